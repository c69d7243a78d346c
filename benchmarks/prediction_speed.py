"""`mybert.predict` compared with transformers' `pipeline` on the same file and weights; predictions must agree.

python -m mybert.benchmarks.prediction_speed --model my-sst2 --data dev.tsv --text_column sentence
"""

import functools
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from transformers import AutoTokenizer, BertForSequenceClassification, HfArgumentParser, pipeline

from ..files import only_errors, read_rows
from ..finetuning import predict
from .script import script
from .timing import describe_setting, timed


@dataclass
class PredictionSpeedArguments:
    model: str = field(metadata={"help": "Model for text classification, folder or Hub name."})
    data: str = field(metadata={"help": "A table of texts."})
    text_column: str = field(default="sentence", metadata={"help": "Column of the text."})
    rows: int = field(default=300, metadata={"help": "Rows of the table to read."})
    batch_sizes: list[int] = field(
        default_factory=lambda: [8, 32],
        metadata={"help": "Batch sizes of the pipeline beside its default, 1; each also with texts sorted by length."},
    )
    max_length: int = field(default=512, metadata={"help": "Longest sequence in tokens; the rest is cut."})
    dtypes: list[str] = field(
        default_factory=lambda: ["float32"], metadata={"help": "Types of the weights of mybert.predict."}
    )


def column(rows: Sequence[dict[str, Any]], name: str, path: str | Path) -> list[str]:
    if missing := next((row for row in rows if name not in row), None):
        raise ValueError(f"{path} has the columns {', '.join(missing)}; expected {name}.")
    return [str(row[name]) for row in rows]


@script
def main() -> None:
    """Print rows per second, without loading time on either side."""
    (arguments,) = HfArgumentParser(PredictionSpeedArguments).parse_args_into_dataclasses()
    texts = column(read_rows(arguments.data)[: arguments.rows], arguments.text_column, arguments.data)
    tokenizer = AutoTokenizer.from_pretrained(arguments.model, trust_remote_code=False)
    with only_errors():
        model = BertForSequenceClassification.from_pretrained(arguments.model, trust_remote_code=False).eval()
    classify = pipeline("text-classification", model=model, tokenizer=tokenizer, device="cpu")
    cut = {"truncation": True, "max_length": arguments.max_length}
    print(f"{describe_setting()}\n\n{len(texts)} rows of {arguments.data}, rows a second:\n")
    rates, wanted = {}, {}
    for name, order in (
        ("", list(range(len(texts)))),
        (", sorted", sorted(range(len(texts)), key=lambda row: len(texts[row]))),
    ):
        for size in arguments.batch_sizes if name else (1, *arguments.batch_sizes):
            run = functools.partial(classify, [texts[row] for row in order], batch_size=size, **cut)
            seconds, answers = timed(run)
            wanted = {row: answer["score"] for row, answer in zip(order, answers, strict=True)}
            rates[f"pipeline, batch size {size}{name}"] = len(texts) / seconds
    columns = list(rates)
    print("\n".join(f"- {column}: {rates[column]:.1f}" for column in columns))
    for dtype in arguments.dtypes:
        settings = {"max_length": arguments.max_length, "use_cpu": True, "dtype": dtype}
        loading, _ = timed(functools.partial(predict, arguments.model, texts[:1], **settings))
        seconds, found = timed(functools.partial(predict, arguments.model, texts, **settings))
        rate = len(texts) / (seconds - loading)
        difference = max(abs(row["score"] - wanted[place]) for place, row in enumerate(found))
        print(
            f"\nmybert.predict, {dtype}: {rate:.1f} ({loading:.1f} s to load and begin are left out); scores differ "
            f"by {difference:.1e} at most; times as fast as"
        )
        print("\n".join(f"- {column}: {rate / rates[column]:.2f}" for column in columns))


if __name__ == "__main__":
    main()
