"""The effect of bfloat16 and int8 on fine-tuned models: score, changed predictions, size, and time on a CPU.

    mybert finetune --task sst2 --data_dir SST-2 --model MODEL --output_dir my-sst2
    python -m mybert.benchmarks.scripts.quantization_accuracy my-sst2 --data SST-2/dev.tsv SST-2/test.tsv
    python -m mybert.benchmarks.scripts.quantization_accuracy teacher student --data STS-B/dev.tsv

Each model reads the files with the settings of its fine-tuning. Times are from text to predictions, measured in turns,
and compared with the first model in float32.
"""

import argparse
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any

from ...files.checkpoint import Checkpoint
from ...files.source import Source
from ...finetuning.prediction.predictor import FinetunedModel, load_finetuned_model
from ...finetuning.tasks.registry import FinetunedModelArguments
from ...finetuning.tasks.task import network_outputs
from ..harness import REPEATS, flag, heading, ratio, row, script, take_turns

DTYPES = ("float32", "bfloat16", "int8")


def answer_all(found: FinetunedModel, examples: Sequence[Any], path: Path) -> tuple[Any, Any]:
    """Tokenize examples and run them through a model: the tokenized data and the model's outputs."""
    task, network, labels, tokenizer = found
    data = task.encode(examples, labels, tokenizer, Source.of(path))
    return data, network_outputs(task, data, network, tokenizer)


def load_all(models: Sequence[str]) -> dict[str, list[FinetunedModel]]:
    """Return by name each model with its weights in each dtype, in the order of `DTYPES`."""
    tasks = {model: FinetunedModelArguments(model=model).resolve_task() for model in models}
    return {
        model: [load_finetuned_model(task, Checkpoint(model), dtype=dtype) for dtype in DTYPES]
        for model, task in tasks.items()
    }


def table(models: Mapping[str, Sequence[FinetunedModel]], path: Path, repeats: int) -> str:
    """Measure models, as from `load_all`, on a file with labels: a row for each model and dtype."""
    runs = {}
    for model, variants in models.items():
        examples = variants[0].task.read(Source.of(path))
        for dtype, found in zip(DTYPES, variants, strict=True):
            runs[f"{model}, {dtype}"] = partial(answer_all, found, examples, path)
    times, kept = take_turns(runs, repeats)
    first = next(iter(times.values()))
    columns = "score, %", "answers as in float32, %", "weights, MB", "seconds", "times as fast"
    lines = [f"{path.name}, {len(examples)} examples\n", heading("", *columns)]
    for model, variants in models.items():
        said: list[Any] = []
        for dtype, (task, network, labels, _) in zip(DTYPES, variants, strict=True):
            data, outputs = kept[f"{model}, {dtype}"]
            score = task.score(task.predict(outputs, data, labels), data.examples)[task.main_metric] / task.full_score
            answers = [row.get("answer", row.get("label")) for row in task.answers(outputs, data, labels)]
            said = said or answers
            same = sum(one == other for one, other in zip(said, answers, strict=True)) / len(answers)
            agreement = "" if said[0] is None else f"{100 * same:.2f}"  # regression has no labels
            ours = times[f"{model}, {dtype}"]
            size = sum(weights.nbytes for weights in network.state_dict().values()) / 2**20
            cells = f"{size:.1f}", f"{median(ours):.2f}", f"{ratio(first, ours):.2f}"
            lines.append(row(f"{Path(model).name}, {dtype}", f"{100 * score:.2f}", agreement, *cells))
    return "\n".join([*lines, ""])


@script(
    flag("models", nargs="+", help="fine-tuned models, folders or Hub names"),
    flag("--data", nargs="+", type=Path, required=True, help="files with labels"),
    REPEATS,
)
def main(arguments: argparse.Namespace) -> None:
    models = load_all(arguments.models)
    for path in arguments.data:
        print(table(models, path, arguments.repeats))


if __name__ == "__main__":
    main()
