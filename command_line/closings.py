"""The closing message of a command: where its output is, its main figures, and what to run next.

A function for each command turns its arguments and its result into a `Closing`. A command that prints its result on
standard output, for other programs to read, has none.
"""

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from shlex import quote
from typing import Any

from .flags import shell_lines

logger = logging.getLogger(__name__)

# Files of a run's folder, other than the model, and their descriptions.
_PARTS = {
    "training_curves.png": "curves",
    "metrics.json": "metrics",
    "predictions*": "predictions",
    "nbest_predictions*": "answers",
    "class_report*.txt": "by class",
    "confusion_matrix*.png": "confusion",
    "README.md": "card",
}
_COLUMNS = 80


@dataclass(frozen=True)
class Closing:
    made: str | Path = ""  # file or folder; "" if there is none
    said: str = ""  # its main figures, in a few words
    next_call: Sequence[str | Path] = ()  # words of a command, of `mybert` or another program

    def __str__(self) -> str:
        """Format it in lines of 80 columns."""
        lines = []
        if self.made:
            lines.append(f"\nDone: {self.made}" + (f" ({self.said})" if self.said else ""))
            if len(lines[0]) > _COLUMNS and self.said:
                lines = [f"\nDone: {self.made}", f"  {self.said}"]
            lines += [f"  {what:<12} {path}" for what, path in _parts(Path(self.made))]
        if self.next_call:
            call = shell_lines([str(word) for word in self.next_call], _COLUMNS - 2)
            lines.append(f"Next:\n{call}" if lines else f"\nNext:\n{call}")
        return "\n".join(lines)


def _parts(folder: Path) -> list[tuple[str, Path]]:
    if not folder.is_dir():
        return []
    found = [(what, sorted(folder.glob(pattern))) for pattern, what in _PARTS.items()]
    return [(what, paths[0]) for what, paths in found if paths]


def say_closing(name: str, arguments: Any, result: Any) -> None:
    """Show a command's closing message, if it has one and is not quiet."""
    describe = _CLOSINGS.get(name)
    if describe is not None and (closing := describe(arguments, result)) is not None:
        logger.info("%s", closing)


def _shown(value: Any) -> str:
    return f"{value:.4g}" if isinstance(value, float) else f"{value:,}" if isinstance(value, int) else str(value)


def _figures(metrics: Mapping[str, Any], names: Mapping[str, str]) -> str:
    """Return the available metrics, as `name value`."""
    return ", ".join(f"{shown} {_shown(metrics[name])}" for name, shown in names.items() if name in metrics)


def _mybert(*words: str | Path) -> tuple[str, ...]:
    return ("mybert", *(quote(str(word)) for word in words))


def _demo(arguments: Any, result: Mapping[str, Any]) -> Closing:
    call = ("attention", Path(arguments.output_dir) / "pretrained", "The cat sat on the mat.")
    return Closing(next_call=_mybert(*call))


def _vocab(arguments: Any, result: Any) -> Closing:
    call = ("pretrain", *arguments.text, "--tokenizer", arguments.output_dir, "--output_dir", "pretrained")
    return Closing(
        arguments.output_dir, f"{len(result):,} pieces", _mybert(*call) if "-" not in arguments.text else ()
    )


def _data(arguments: Any, result: Any) -> Closing | None:
    if arguments.dry_run:
        return None
    shards = len(list(Path(arguments.output).glob("tokens-*.safetensors")))
    if shards < arguments.num_shards > 1:
        return Closing(arguments.output, f"{shards} of {arguments.num_shards} shards")
    call = ("pretrain", "--data", arguments.output, "--tokenizer", arguments.tokenizer, "--output_dir", "pretrained")
    return Closing(arguments.output, "", _mybert(*call))


def _pretrain(arguments: Any, result: Mapping[str, Any]) -> Closing:
    names = {"eval_perplexity": "perplexity", "eval_mlm_accuracy": "mlm accuracy", "eval_nsp_accuracy": "nsp accuracy"}
    said = _figures(result, names) or _figures(result, {"mlm_loss": "mlm loss", "nsp_loss": "nsp loss"})
    files = ("--train_file", "train.tsv", "--validation_file", "dev.tsv")
    call = ("finetune", arguments.output_dir, "--task", "classification", *files, "--output_dir", "tuned")
    return Closing(arguments.output_dir, said, _mybert(*call))


def _adapt(arguments: Any, result: Mapping[str, Any]) -> Closing:
    closing = _pretrain(arguments, result)
    if not result.get("before"):
        return closing
    before, after = (_shown(result[name]["nats_per_character"]) for name in ("before", "after"))
    return Closing(closing.made, f"nats per character {before} before, {after} now", closing.next_call)


def _finetune(arguments: Any, result: Mapping[str, Any]) -> Closing:
    best = str(arguments.metric_for_best_model).removeprefix("eval_")
    rows = {name: metrics[best] for name, metrics in result.items() if isinstance(metrics, dict) and best in metrics}
    said = ", ".join(f"{name} {_shown(value)}" for name, value in rows.items())  # rows of table 7; mean and deviation
    said = (
        f"{best}: {said}"
        if said
        else _figures(result, {best: best, f"majority_{best}": "most frequent answer", f"test_{best}": f"test {best}"})
    )
    call = ("predict", arguments.output_dir, "new.txt", "--output", "predictions.tsv")
    return Closing(arguments.output_dir, said, () if rows and best not in result else _mybert(*call))


def _distill(arguments: Any, result: Mapping[str, Any]) -> Closing:
    closing = _finetune(arguments, {name: value for name, value in result.items() if name != "teacher"})
    teacher = _figures(result["teacher"], {str(arguments.metric_for_best_model).removeprefix("eval_"): "teacher"})
    return Closing(closing.made, ", ".join(filter(None, [closing.said, teacher])), closing.next_call)


def _evaluate(arguments: Any, result: Mapping[str, Any]) -> Closing | None:
    if arguments.output == "-":
        return None
    return Closing(arguments.output, ", ".join(f"{name} {_shown(value)}" for name, value in list(result.items())[:4]))


def _predict(arguments: Any, result: Any) -> Closing | None:
    if arguments.output == "-":
        return None
    return Closing(arguments.output)


def _prune(arguments: Any, result: Mapping[str, Any]) -> Closing | None:
    if not arguments.output_dir:
        return None
    first, last = result["rows"][0], result["rows"][-1]
    said = (
        f"{len(last['layers'])} of {len(first['layers'])} layers"
        if "layers" in last
        else f"{len(last['heads'][0])} of {len(first['heads'][0])} heads a layer"
    )
    call: tuple[str, ...] = ("predict", arguments.output_dir, "new.txt")
    if result["metric"] is None:  # the model may have no head
        call = ("finetune", arguments.output_dir, "--train_file", "train.tsv", "--output_dir", "tuned")
    return Closing(arguments.output_dir, said, _mybert(*call))


def _features(arguments: Any, result: Mapping[str, Any]) -> Closing:
    return Closing(arguments.output)


def _ablation(arguments: Any, result: Mapping[str, Any]) -> Closing:
    return Closing(Path(arguments.output_dir) / "ablation.md", f"{len(result)} rows")


def _glue(arguments: Any, result: Mapping[str, Any]) -> Closing:
    figure = f"average {100 * result['average']:.1f} over {len(result['tasks'])} tasks"
    return Closing(Path(arguments.output_dir) / "suite.md", figure)


def _convert_google(arguments: Any, result: Any) -> Closing:
    call = ("attention", arguments.output_dir, "The cat sat on the mat.")
    return Closing(arguments.output_dir, f"{result.parameters} parameters", _mybert(*call))


def _convert_to_google(arguments: Any, result: Any) -> Closing:
    return Closing(result.output, f"{result.parameters} parameters")


def _convert_to_bert(arguments: Any, result: Any) -> Closing:
    call = ("card", arguments.output_dir, "--license", "apache-2.0")
    return Closing(arguments.output_dir, f"{result.parameters} parameters", _mybert(*call))


def _convert_onnx(arguments: Any, result: Any) -> Closing:
    worst = max(value for outputs in result.differences.values() for value in outputs.values())
    return Closing(arguments.output_dir, f"differs from PyTorch by at most {worst:.1e}")


def _card(arguments: Any, result: Path) -> Closing:
    return Closing(result, "", _mybert("push", arguments.model, "OWNER/NAME", "--output_dir", "preview"))


def _push(arguments: Any, result: str) -> Closing:
    if not arguments.output_dir:
        return Closing(result)
    from ..hub_card import UploadOptions

    flags: list[str] = []  # above all --private
    for option in fields(UploadOptions):
        if (value := getattr(arguments, option.name)) != option.default:
            flags += [f"--{option.name}", *([] if value is True else [str(value)])]
    return Closing(result, "nothing was uploaded", _mybert("push", arguments.model, arguments.repo_id, *flags))


def _picture(arguments: Any, result: Path) -> Closing:
    return Closing(result)


def _bench(arguments: Any, result: Any) -> Closing | None:
    return Closing(arguments.output) if arguments.output else None


_CLOSINGS: dict[str, Callable[[Any, Any], Closing | None]] = {
    "demo": _demo,
    "vocab": _vocab,
    "data": _data,
    "pretrain": _pretrain,
    "adapt": _adapt,
    "finetune": _finetune,
    "distill": _distill,
    "evaluate": _evaluate,
    "predict": _predict,
    "prune": _prune,
    "features": _features,
    "ablation": _ablation,
    "glue": _glue,
    "convert google": _convert_google,
    "convert to-google": _convert_to_google,
    "convert bert": _convert_google,
    "convert to-bert": _convert_to_bert,
    "convert onnx": _convert_onnx,
    "card": _card,
    "push": _push,
    "attention": _picture,
    "curves": _picture,
    "bench": _bench,
}
