"""The effect of bfloat16 and int8 on fine-tuned models: score, changed predictions, size, and time on a CPU.

    mybert finetune --task sst2 --data_dir SST-2 --model MODEL --output_dir my-sst2
    python -m mybert.benchmarks.quantization_accuracy my-sst2 --data SST-2/dev.tsv SST-2/test.tsv
    python -m mybert.benchmarks.quantization_accuracy teacher student --data STS-B/dev.tsv

Each model reads the files with the settings of its fine-tuning. Times are from text to predictions, measured in turns,
and compared with the first model in float32.
"""

import argparse
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any

from transformers import PreTrainedModel

from ..files import Checkpoint, only_errors
from ..finetuning.prediction.predictor import FinetunedModel, load_finetuned_model
from ..finetuning.tasks.task import network_outputs
from ..finetuning.tasks.task_arguments import FinetunedModelArguments
from .script import at_least_1, script
from .timing import describe_setting, in_turns, seconds

DTYPES = ("float32", "bfloat16", "int8")


def answer_all(found: FinetunedModel, examples: Sequence[Any], path: Path) -> tuple[Any, Any]:
    """Tokenize examples and run them through a model: the tokenized data and the model's outputs."""
    task, network, labels, tokenizer = found
    (data,) = task.complete([task.encode(examples, labels, tokenizer, str(path))], tokenizer)
    return data, network_outputs(task, data, network, tokenizer)


def megabytes(model: PreTrainedModel) -> float:
    """Size of the weights as saved, in MB."""
    return sum(weights.nbytes for weights in model.state_dict().values()) / 2**20


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
        examples = variants[0].task.read(str(path))
        for dtype, found in zip(DTYPES, variants, strict=True):
            runs[model, dtype] = partial(answer_all, found, examples, path)
    kept = {key: run() for key, run in runs.items()}  # warms up, too
    times = in_turns({f"{model}, {dtype}": partial(seconds, run) for (model, dtype), run in runs.items()}, repeats)
    first = next(iter(times.values()))
    lines = [
        f"\n{path.name}, {len(examples)} examples\n",
        "| | score, % | answers as in float32, % | weights, MB | seconds | times as fast |",
        "|---|---|---|---|---|---|",
    ]
    for model, variants in models.items():
        said: list[Any] = []
        for dtype, (task, network, labels, _) in zip(DTYPES, variants, strict=True):
            data, outputs = kept[model, dtype]
            score = task.score(task.predict(outputs, data, labels), data.examples)[task.main_metric] / task.full_score
            answers = [row.get("answer", row.get("label")) for row in task.answers(outputs, data, labels)]
            said = said or answers
            same = sum(one == other for one, other in zip(said, answers, strict=True)) / len(answers)
            agreement = "" if said[0] is None else f"{100 * same:.2f}"  # regression has no labels
            ours = times[f"{model}, {dtype}"]
            faster = median(theirs / own for theirs, own in zip(first, ours, strict=True))
            cells = [f"{Path(model).name}, {dtype}", f"{100 * score:.2f}", agreement, f"{megabytes(network):.1f}"]
            lines.append(f"| {' | '.join(cells)} | {median(ours):.2f} | {faster:.2f} |")
    return "\n".join(lines)


@script
def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("models", nargs="+", help="fine-tuned models, folders or Hub names")
    parser.add_argument("--data", nargs="+", type=Path, required=True, help="files with labels")
    parser.add_argument("--repeats", type=at_least_1, default=3, help="timed runs; the table has their medians")
    arguments = parser.parse_args()
    with only_errors():
        models = load_all(arguments.models)
    print(describe_setting())
    for path in arguments.data:
        print(table(models, path, arguments.repeats))


if __name__ == "__main__":
    main()
