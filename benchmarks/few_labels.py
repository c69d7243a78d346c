"""Scores and times with few labels: the approaches of `mybert finetune` and SetFit, on equal draws of labels.

    python -m mybert.benchmarks.few_labels all-MiniLM-L6-v2 --train train.tsv --test test.tsv --labels 8 16 \
        --draws 10 --approaches linear_probe contrastive finetune setfit --output sst2.jsonl

The tables have the columns `label`, `text` and, for pairs, `text_pair`. A draw has as many texts of each class as
`--labels` says. Times are of a whole call from model folder to classifier, `mybert.finetune` with its files included.
SetFit (if it is installed) has its defaults: pairs oversampled, batches of 16 pairs, here up to `--pairs`; it reads
pairs of texts joined by " [SEP] ". Fine-tuning has 20 epochs. Each result is a line of the output file; existing ones
are not repeated.
"""

import argparse
import json
import random
import statistics
import tempfile
import time
from collections import defaultdict
from pathlib import Path
from typing import Any

from sklearn.metrics import accuracy_score, matthews_corrcoef

from ..files.source import read_rows
from ..finetuning import finetune, predict
from ..studies.timing import heading, row
from .harness import count, flag, script

SETFIT = "setfit"
SETTINGS: dict[str, dict[str, Any]] = {
    "linear_probe": {},
    "contrastive": {},
    "finetune": {"num_train_epochs": 20},
    "auto": {},
}
Rows = list[dict[str, str]]


def drawn(rows: Rows, labels: int, draw: int) -> Rows:
    """As many rows of each class, drawn by the number of the draw."""
    random_ = random.Random(draw)
    by_class: dict[str, Rows] = defaultdict(list)
    for each in rows:
        by_class[each["label"]].append(each)
    return [each for name in sorted(by_class) for each in random_.sample(by_class[name], labels)]


def answers_of_mybert(model: str, train: Rows, test: Rows, approach: str, seed: int) -> tuple[list[str], float]:
    """The labels that a classifier predicts, and the seconds of its training."""
    with tempfile.TemporaryDirectory() as folder:
        settings: Any = {"model": model, "train_file": train, "output_dir": folder, "overwrite": True, "seed": seed}
        settings |= {"approach": approach, "card_examples": False, "save_strategy": "no"}
        start = time.perf_counter()
        finetune(**settings, **SETTINGS[approach])
        seconds = time.perf_counter() - start
        unlabeled = [{name: text for name, text in each.items() if name != "label"} for each in test]
        return [answer["label"] for answer in predict(folder, unlabeled)], seconds


def answers_of_setfit(model: str, train: Rows, test: Rows, pairs: int, seed: int) -> tuple[list[str], float]:
    """As `answers_of_mybert`, by SetFit."""
    from datasets import Dataset
    from setfit import SetFitModel, Trainer, TrainingArguments

    def text_of(each: dict[str, str]) -> str:
        return " [SEP] ".join(each[name] for name in ("text", "text_pair") if name in each)

    data = Dataset.from_dict({"text": list(map(text_of, train)), "label": [each["label"] for each in train]})
    with tempfile.TemporaryDirectory() as folder:
        start = time.perf_counter()
        classifier = SetFitModel.from_pretrained(model)
        arguments: Any = {"output_dir": folder, "seed": seed, "report_to": "none", "save_strategy": "no"}
        plan = TrainingArguments(batch_size=16, num_epochs=1, show_progress_bar=False, **arguments)
        counts = [sum(each["label"] == name for each in train) for name in {each["label"] for each in train}]
        same = sum(number * (number + 1) // 2 for number in counts)
        other = len(train) * (len(train) + 1) // 2 - same
        if 2 * max(same, other) > pairs:
            plan.max_steps = pairs // 16
        Trainer(model=classifier, args=plan, train_dataset=data).train()
        seconds = time.perf_counter() - start
        return [str(answer) for answer in classifier.predict(list(map(text_of, test)))], seconds


@script(
    flag("model", help="folder or Hub name of a sentence encoder"),
    flag("--train", required=True, help="table from which labels are drawn"),
    flag("--test", required=True, help="table of test data"),
    flag("--test_texts", type=count, default=1000, help="texts of the test data, drawn once"),
    flag("--labels", type=count, nargs="+", default=[8], help="texts a class"),
    flag("--draws", type=count, default=10),
    flag("--approaches", nargs="+", default=["linear_probe", "contrastive"], choices=[*SETTINGS, SETFIT]),
    flag("--pairs", type=count, default=5000, help="SetFit's pairs, at most"),
    flag("--metric", choices=["accuracy", "matthews"], default="accuracy"),
    flag("--output", required=True, help="file of results, one line each"),
)
def main(arguments: argparse.Namespace) -> None:
    """Measure, and print means and standard errors."""
    train, test = ([dict(each) for each in read_rows(path)] for path in (arguments.train, arguments.test))
    test = random.Random(0).sample(test, min(len(test), arguments.test_texts))
    output = Path(arguments.output)
    results = [json.loads(line) for line in output.read_text().splitlines()] if output.is_file() else []
    done = {(each["labels"], each["approach"], each["draw"]) for each in results}
    right = [each["label"] for each in test]
    measure = {"accuracy": accuracy_score, "matthews": matthews_corrcoef}[arguments.metric]
    for labels in arguments.labels:
        for draw in range(arguments.draws):
            rows = drawn(train, labels, draw)
            for approach in arguments.approaches:
                if (labels, approach, draw) in done:
                    continue
                if approach == SETFIT:
                    answers, seconds = answers_of_setfit(arguments.model, rows, test, arguments.pairs, draw)
                else:
                    answers, seconds = answers_of_mybert(arguments.model, rows, test, approach, draw)
                result = {"labels": labels, "approach": approach, "draw": draw}
                result |= {"score": round(100 * float(measure(right, answers)), 2), "seconds": round(seconds, 2)}
                results.append(result)
                with output.open("a") as file:
                    print(json.dumps(result), file=file)
    print(heading("approach", "texts a class", "draws", arguments.metric, "standard error", "seconds"))
    for labels in arguments.labels:
        for approach in arguments.approaches:
            chosen = [each for each in results if (each["labels"], each["approach"]) == (labels, approach)]
            scores = [each["score"] for each in chosen]
            error = statistics.stdev(scores) / len(scores) ** 0.5 if len(scores) > 1 else 0.0
            numbers = statistics.fmean(scores), error, statistics.median(each["seconds"] for each in chosen)
            print(row(approach, labels, len(scores), *(f"{number:.1f}" for number in numbers)))


if __name__ == "__main__":
    main()
