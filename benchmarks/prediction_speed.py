"""`mybert.predict` beside transformers' `pipeline` on the same file and the same weights; the answers are compared.

python -m mybert.benchmarks.prediction_speed --model my-sst2 --data dev.tsv --text_column sentence
"""

import functools
from dataclasses import dataclass, field

from transformers import AutoTokenizer, BertForSequenceClassification, HfArgumentParser, pipeline

from ..files import only_errors, read_rows
from ..finetuning import predict
from .timing import describe_setting, timed


@dataclass
class PredictionSpeedArguments:
    """Settings of the benchmark."""

    model: str = field(metadata={"help": "Model for text classification, folder or Hub name."})
    data: str = field(metadata={"help": "A table of texts."})
    text_column: str = field(default="sentence", metadata={"help": "Column of the text."})
    rows: int = field(default=300, metadata={"help": "Rows of the table to read."})
    batch_sizes: list[int] = field(
        default_factory=lambda: [8, 32], metadata={"help": "Batch sizes of the pipeline beside its default, 1."}
    )
    max_length: int = field(default=512, metadata={"help": "Longest sequence in tokens; the rest is cut."})


def main() -> None:
    """Run the benchmark and print a table."""
    (arguments,) = HfArgumentParser(PredictionSpeedArguments).parse_args_into_dataclasses()
    texts = [str(row[arguments.text_column]) for row in read_rows(arguments.data)[: arguments.rows]]
    tokenizer = AutoTokenizer.from_pretrained(arguments.model, trust_remote_code=False)
    with only_errors():
        model = BertForSequenceClassification.from_pretrained(arguments.model, trust_remote_code=False).eval()
    classify = pipeline("text-classification", model=model, tokenizer=tokenizer, device="cpu")
    cut = {"truncation": True, "max_length": arguments.max_length}
    seconds, found = timed(lambda: predict(arguments.model, texts, max_length=arguments.max_length, use_cpu=True))
    rate = len(texts) / seconds
    print(f"{describe_setting()}\n\n{len(texts)} rows. mybert.predict, loading included: {rate:.1f} rows/s.")
    for size in (1, *arguments.batch_sizes):
        taken, answers = timed(functools.partial(classify, texts, batch_size=size, **cut))
        difference = max(abs(ours["score"] - theirs["score"]) for ours, theirs in zip(found, answers, strict=True))
        ratio = f"{len(texts) / taken:.1f} rows/s, mybert {taken / seconds:.1f} times as fast"
        print(f"pipeline, batch size {size}: {ratio}; scores differ by {difference:.1e} at most.")


if __name__ == "__main__":
    main()
