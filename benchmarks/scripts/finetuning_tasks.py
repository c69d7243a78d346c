"""Scores and times of fine-tuning: MyBERT and transformers' BERT, parts to train, and the feature-based approach.

    python -m mybert.benchmarks.scripts.finetuning_tasks all-MiniLM-L6-v2 --data data --output_dir evidence --seeds 2

Every run is a run of `mybert finetune`, whose command is printed first. Finished runs are not repeated, and a folder
with a run of other settings is rejected. Both classes get the same weights, data, seed and settings
(`--keep_model_type` selects transformers' own), one after the other in this process. `data` contains `glue/`, `ner/`
and `squad/`. Nothing is selected on the validation data: the model after the last step is scored.
"""

import argparse
import statistics
from pathlib import Path
from typing import Any

from ...files.checkpoint import read_json_object
from ...finetuning import TASKS, FinetuningArguments, finetune
from ..harness import count, flag, heading, ratio, row, script

COMMON: dict[str, Any] = {
    "learning_rate": 1e-4,
    "per_device_train_batch_size": 32,
    "eval_strategy": "no",
    "save_strategy": "no",
    "disable_tqdm": True,
}
NER = {"task": "ner", **{f"{split}_file": f"ner/wnut17/{name}.conll" for split, name in
                         (("train", "train"), ("validation", "dev"), ("test", "test"))}}  # fmt: skip
SQUAD = {"train_file": "squad/train-v1.1.json.gz", "validation_file": "squad/dev-v1.1.json.gz"}
STSB = {"task": "stsb", "data_dir": "glue/STS-B", "num_train_epochs": 2}

# Settings by name; run with both classes.
COMPARED: dict[str, dict[str, Any]] = {
    "CoLA": {"task": "cola", "data_dir": "glue/CoLA", "num_train_epochs": 2},
    "SST-2": {"task": "sst2", "data_dir": "glue/SST-2", "max_steps": 300},
    "MRPC": {"task": "mrpc", "data_dir": "glue/MRPC", "num_train_epochs": 1},
    "STS-B": STSB,
    "RTE": {"task": "rte", "data_dir": "glue/RTE", "num_train_epochs": 1},
    "WNUT-17": NER | {"num_train_epochs": 3},
    "SQuAD 1.1": SQUAD | {"task": "squad", "num_train_epochs": 1, "per_device_train_batch_size": 16},
}
# Parts to train; MyBERT only.
MODES: dict[str, dict[str, Any]] = {
    "everything": {},
    "all but the embeddings and three of six layers": {"freeze_layers": 3},
    "one epoch the head, then everything": {"train_head_first": 1},
    "a layer more every quarter of an epoch": {"gradual_unfreezing": 0.25},
    "pooler and head": {"freeze": "encoder"},
}
FEATURES = NER | {"approach": "features", "features": "all", "lstm_size": 128, "num_train_epochs": 6}
FEATURES |= {"learning_rate": 1e-3}


def train_once(settings: dict[str, Any], output_dir: Path, arguments: argparse.Namespace) -> dict[str, Any]:
    """Train, or read a finished run with the same settings; return metrics, and `seconds` of a single training."""
    metrics_file, state_file = output_dir / "metrics.json", output_dir / "trainer_state.json"
    settings = COMMON | settings | {"model": arguments.model, "output_dir": str(output_dir)}
    if arguments.max_steps:
        settings["max_steps"] = arguments.max_steps
    for name in ("data_dir", "train_file", "validation_file", "test_file"):
        if name in settings:
            settings[name] = str(arguments.data / settings[name])
    if not metrics_file.is_file():
        print("mybert finetune", *(f"--{name} {value}" for name, value in settings.items()), flush=True)
    finetune(FinetuningArguments(**settings))
    metrics: dict[str, Any] = read_json_object(metrics_file)
    if state_file.is_file():
        history = read_json_object(state_file)["log_history"]
        metrics["seconds"] = next(entry["train_runtime"] for entry in history if "train_runtime" in entry)
    return metrics


def show(values: list[float], full: float = 1.0) -> str:
    """Mean and, for several values, deviation, in percent of the best possible score."""
    values = [100 * value / full for value in values]
    deviation = f" ± {statistics.stdev(values):.1f}" if len(values) > 1 else ""
    return f"{statistics.mean(values):.1f}{deviation}"


def compare_classes(arguments: argparse.Namespace) -> None:
    results: dict[tuple[str, bool], list[dict[str, Any]]] = {}
    for seed in range(42, 42 + arguments.seeds):
        for name in arguments.tasks:
            for keep in (False, True):
                settings = COMPARED[name] | {"seed": seed, "keep_model_type": keep}
                folder = arguments.output_dir / name.replace(" ", "_") / f"{'bert' if keep else 'mybert'}_{seed}"
                results.setdefault((name, keep), []).append(train_once(settings, folder, arguments))
    print()
    print(heading("task, metric", "MyBERT", "transformers' BERT", "seconds", "transformers'", "times as fast"))
    for name in arguments.tasks:
        metric = TASKS[COMPARED[name]["task"]].main_metric
        full = 100.0 if name.startswith("SQuAD") else 1.0  # as in its official script
        sides = results[name, False], results[name, True]
        seconds = [[metrics["seconds"] for metrics in side] for side in sides]
        scores = (show([metrics[metric] for metrics in side], full) for side in sides)
        medians = (f"{statistics.median(values):.0f}" for values in seconds)
        print(row(f"{name}, {metric}", *scores, *medians, f"{ratio(seconds[1], seconds[0]):.2f}"))


def compare_modes(arguments: argparse.Namespace) -> None:
    print()
    print(heading("STS-B: what learns", "Pearson", "seconds"))
    for number, (name, settings) in enumerate(MODES.items()):
        folder = f"modes/{number}" if settings else "STS-B/mybert_42"  # the first one is also in the other table
        metrics = train_once(STSB | settings, arguments.output_dir / folder, arguments)
        print(row(name, show([metrics["pearson"]]), f"{metrics['seconds']:.0f}"))


def compare_features(arguments: argparse.Namespace) -> None:
    rows = train_once(FEATURES, arguments.output_dir / "table7", arguments)
    print()
    print(heading("WNUT-17: features of the frozen encoder", "validation F1", "test F1"))  # as in the paper's table 7
    for name, metrics in rows.items():
        print(row(name, show([metrics["f1"]]), show([metrics["test_f1"]])))


PARTS = {"tasks": compare_classes, "modes": compare_modes, "features": compare_features}


@script(
    flag("model", help="A pretrained model folder."),
    flag("--data", type=Path, required=True, help="Folder with glue/, ner/ and squad/."),
    flag("--output_dir", type=Path, required=True, help="Folder for all runs."),
    flag("--parts", nargs="+", default=list(PARTS), choices=PARTS, help="Tables to make."),
    flag("--tasks", nargs="+", default=list(COMPARED), choices=COMPARED, help="Rows of the first table."),
    flag("--seeds", type=count, default=1, help="Seeds of the first table, from 42 on."),
    flag("--max_steps", type=count, help="Only this many steps of each run, to try the script."),
)
def main(arguments: argparse.Namespace) -> None:
    for part in arguments.parts:
        PARTS[part](arguments)


if __name__ == "__main__":
    main()
