"""What bfloat16 and int8 cost fine-tuned models of any task: score, changed answers, size, and time on a CPU.

    mybert finetune --task sst2 --data_dir SST-2 --model MODEL --output_dir my-sst2
    python -m mybert.benchmarks.quantization_accuracy my-sst2 --data SST-2/dev.tsv SST-2/test.tsv
    python -m mybert.benchmarks.quantization_accuracy teacher student --data STS-B/dev.tsv

Each model reads the files as it was fine-tuned to. Times are from text to predictions, taken in turns, and compared
with the first model's in float32.
"""

import argparse
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any

from transformers import PreTrainedModel

from ..files import only_errors
from ..finetuning.inference import network_outputs
from ..finetuning.prediction import FinetunedModel, load_finetuned_model
from ..finetuning.task_arguments import FinetunedModelArguments
from .script import script
from .timing import describe_setting, take_turns

DTYPES = ("float32", "bfloat16", "int8")


def answer_all(found: FinetunedModel, examples: Sequence[Any], path: Path) -> tuple[Any, Any]:
    """Tokenize examples and run them through a network: the tokenized data and the network's outputs."""
    task, network, labels, tokenizer = found
    (data,) = task.complete([task.encode(examples, labels, tokenizer, str(path))], tokenizer)
    return data, network_outputs(task, data, network, tokenizer)


def megabytes(model: PreTrainedModel) -> float:
    """The weights as they are saved."""
    return sum(weights.nbytes for weights in model.state_dict().values()) / 2**20


def table(models: Sequence[str], path: Path, repeats: int) -> str:
    """Measure the models on a file with labels: a row for each of them and each type of weights.

    Raises:
        ValueError: If the file is not what a model reads, or a model has no head for a task.
        OSError: If a model or the file cannot be read.
    """
    found, runs, kept = {}, {}, {}
    for model in models:
        task = FinetunedModelArguments(model=model).resolve_task()
        for dtype in DTYPES:
            found[model, dtype] = load_finetuned_model(task, model, dtype=dtype)
        examples = found[model, DTYPES[0]].task.read(str(path))
        for dtype in DTYPES:
            run = partial(answer_all, found[model, dtype], examples, path)
            runs[f"{model}, {dtype}"] = run
            kept[model, dtype] = run()
    seconds = take_turns(runs, repeats)
    first = next(iter(seconds.values()))
    lines = [f"\n{path.name}, {len(examples)} examples\n"]
    lines += [
        "| | score, % | answers as in float32, % | weights, MB | seconds | times as fast |",
        "|---|---|---|---|---|---|",
    ]
    for model in models:
        said: list[Any] = []
        for dtype in DTYPES:
            task, network, labels, _ = found[model, dtype]
            data, outputs = kept[model, dtype]
            score = task.score(task.predict(outputs, data, labels), data.examples)[task.main_metric] / task.full_score
            answers = [row.get("answer", row.get("label")) for row in task.answers(outputs, data, labels)]
            said = said or answers
            same = sum(one == other for one, other in zip(said, answers, strict=True)) / len(answers)
            agreement = "" if said[0] is None else f"{100 * same:.2f}"  # values have no label
            times = seconds[f"{model}, {dtype}"]
            faster = median(theirs / ours for theirs, ours in zip(first, times, strict=True))
            cells = [f"{Path(model).name}, {dtype}", f"{100 * score:.2f}", agreement, f"{megabytes(network):.1f}"]
            lines.append(f"| {' | '.join(cells)} | {median(times):.2f} | {faster:.2f} |")
    return "\n".join(lines)


@script
def main() -> None:
    """Print a table for each file."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("models", nargs="+", help="fine-tuned models, folders or Hub names")
    parser.add_argument("--data", nargs="+", type=Path, required=True, help="files with labels")
    parser.add_argument("--repeats", type=int, default=3, help="timed runs, of which medians are told")
    arguments = parser.parse_args()
    print(describe_setting())
    for path in arguments.data:
        with only_errors():
            said = table(arguments.models, path, arguments.repeats)
        print(said)


if __name__ == "__main__":
    main()
