"""`mybert.predict` compared with transformers' `pipeline` on the same file and weights; predictions must agree.

python -m mybert.benchmarks.scripts.prediction_speed --model my-sst2 --data dev.tsv --text_column sentence
"""

import argparse
import itertools
import math
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from transformers import AutoTokenizer, BertForSequenceClassification, pipeline

from ...conversion.verification import REPORT_FILE
from ...files.checkpoint import read_json_object
from ...files.source import read_rows
from ...finetuning import predict
from ..harness import check_agreement, count, flag, script, timed

TOLERANCE = 1e-4  # of float32 scores


@script(
    flag("--model", required=True, help="Model for text classification, folder or Hub name."),
    flag("--data", required=True, help="A table of texts."),
    flag("--text_column", default="sentence", help="Column of the text."),
    flag("--rows", type=count, default=300, help="Rows of the table to read."),
    flag(
        "--batch_sizes",
        type=count,
        nargs="+",
        default=[8, 32],
        help="Batch sizes of the pipeline next to its default, 1; each also with texts sorted by length.",
    ),
    flag("--max_length", type=count, default=512, help="Longest sequence in tokens; the rest is truncated."),
    flag("--dtypes", nargs="+", default=["float32"], help="Types of the computation of mybert.predict."),
    flag(
        "--folders",
        nargs="+",
        default=[],
        help="Further folders of the model, such as converted ones.",
    ),
)
def main(arguments: argparse.Namespace) -> None:
    """Print rows per second, without loading time on either side."""
    rows = read_rows(arguments.data)[: arguments.rows]
    if missing := next((row for row in rows if arguments.text_column not in row), None):
        raise ValueError(f"{arguments.data} has the columns {', '.join(missing)}; expected {arguments.text_column}.")
    texts = [str(row[arguments.text_column]) for row in rows]
    tokenizer = AutoTokenizer.from_pretrained(arguments.model, trust_remote_code=False)
    model = BertForSequenceClassification.from_pretrained(arguments.model, trust_remote_code=False).eval()
    classify = pipeline("text-classification", model=model, tokenizer=tokenizer, device="cpu")
    print(f"{len(texts)} rows of {arguments.data}, rows a second:\n")
    orders = {"": list(range(len(texts))), ", sorted": sorted(range(len(texts)), key=lambda row: len(texts[row]))}
    cut: dict[str, Any] = {"truncation": True, "max_length": arguments.max_length}
    rates: dict[str, float] = {}
    scores = np.zeros(len(texts))
    for suffix, order in orders.items():
        for size in arguments.batch_sizes if suffix else (1, *arguments.batch_sizes):
            seconds, answers = timed(partial(classify, [texts[row] for row in order], batch_size=size, **cut))
            scores[order] = [answer["score"] for answer in answers]
            rates[f"pipeline, batch size {size}{suffix}"] = len(texts) / seconds
    print("\n".join(f"- {name}: {rate:.1f}" for name, rate in rates.items()))
    for folder, dtype in itertools.product([arguments.model, *arguments.folders], arguments.dtypes):
        settings = {"max_length": arguments.max_length, "use_cpu": True, "dtype": dtype}
        loading, _ = timed(partial(predict, folder, texts[:1], **settings))
        seconds, answers = timed(partial(predict, folder, texts, **settings))
        own = len(texts) / max(seconds - loading, 1e-9)
        tolerance = TOLERANCE if dtype == "float32" and not _has_int8_weights(folder) else math.inf
        difference = check_agreement("the scores", [answer["score"] for answer in answers], scores, tolerance)
        print(
            f"\nmybert.predict, {folder}, {dtype}: {own:.1f} ({loading:.1f} s to load and begin are left out); scores "
            f"differ by {difference:.1e} at most; times as fast as"
        )
        print("\n".join(f"- {name}: {own / rate:.2f}" for name, rate in rates.items()))


def _has_int8_weights(folder: str) -> bool:
    report = Path(folder, REPORT_FILE)
    return report.exists() and read_json_object(report).get("dtype") == "int8"


if __name__ == "__main__":
    main()
