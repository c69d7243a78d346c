"""The message at a command's end: its output, main figures and the next call, by a function for each command."""

import logging
import re
import shlex
import textwrap
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from ..files.options import Group, default_of, options_of

logger = logging.getLogger(__name__)

_SENTENCE = "The cat sat on the mat."
_COLUMNS = 80
_QUOTED = re.compile(r"'[^']*'|\"[^\"]*\"")
# Files of a run's folder, other than the model, and their descriptions.
_PARTS = {
    "training_curves.png": "curves",
    "metrics.json": "metrics",
    "predictions*": "predictions",
    "nbest_predictions*": "answers",
    "class_report*.txt": "by class",
    "confusion_matrix*.png": "confusion",
    "errors*.tsv": "errors",
    "README.md": "card",
}


class Closing(NamedTuple):
    """The parts of a message."""

    output: str = ""  # a file or folder
    figures: Iterable[str] = ()
    next_call: Iterable[str] = ()  # a command and its flags, words of a shell
    note: str = ""  # on that call


def say_closing(name: str, settings: Any, result: Any) -> None:
    """Show the message of a command, if it has one for this result."""
    closing = CLOSINGS[name](settings, result) if name in CLOSINGS else None
    if closing is None or closing.output == "-":
        return
    lines, figures = [], ", ".join(closing.figures)
    if output := closing.output:
        lines.append(f"\nDone: {output}" + (f" ({figures})" if figures else ""))
        if len(lines[0]) > _COLUMNS and figures:
            lines = [f"\nDone: {output}", f"  {figures}"]
        for pattern, title in _PARTS.items() if Path(output).is_dir() else ():
            lines += [f"  {title:<12} {path}" for path in sorted(Path(output).glob(pattern))[:1]]
    if words := [*closing.next_call]:
        call = shell_lines(shlex.join(["mybert", *words]), _COLUMNS - 2)
        lines.append(f"{'' if lines else chr(10)}Next:\n{call}")
        lines += [f"  ({closing.note})"] if closing.note else []
    logger.info("%s", "\n".join(lines))


def shell_lines(call: str, width: int = 78) -> str:
    """Format a command in several lines that can be copied into a shell."""
    kept = _QUOTED.sub(lambda quoted: quoted[0].replace(" ", "\0"), call)  # quoted words are not wrapped
    lines = textwrap.wrap(
        kept, width, initial_indent="  ", subsequent_indent="    ", break_long_words=False, break_on_hyphens=False
    )
    return " \\\n".join(lines).replace("\0", " ")


def _figures(result: Mapping[str, Any], names: Mapping[str, str]) -> list[str]:
    """The metrics that a result has, with their titles."""
    return [f"{title} {_number(result[name])}" for name, title in names.items() if result.get(name) is not None]


def _number(value: float) -> str:
    return format(value, "," if isinstance(value, int) else ".4g")


def _flags(settings: Any, group: Group) -> list[str]:
    """The given options of a group as flags."""
    words: list[str] = []
    for name, option in options_of(type(settings)).items():
        value = getattr(settings, name)
        if getattr(option, "group", None) is not group or value == default_of(option):
            continue
        if isinstance(value, bool):
            words += (
                [f"--{name}"] if value else [f"--no_{name}"] if default_of(option) is True else [f"--{name}", "False"]
            )
        else:
            words += [f"--{name}", *map(str, value if isinstance(value, list) else [value])]
    return words


def _attention_of(folder: str) -> list[str]:
    has_tokenizer = Path(folder, "tokenizer.json").exists()
    return ["attention", folder, _SENTENCE] if has_tokenizer else []


def _demo(settings: Any, result: Any) -> Closing:
    return Closing(next_call=["attention", str(Path(settings.output_dir, "pretrained")), _SENTENCE])


def _vocab(settings: Any, result: Any) -> Closing:
    call = ["pretrain", *settings.text, "--tokenizer", settings.output_dir, "--output_dir", "pretrained"]
    call += _flags(settings, Group.READING)
    return Closing(settings.output_dir, [f"{len(result)} pieces"], [] if "-" in settings.text else call)


def _data(settings: Any, result: Any) -> Closing | None:
    if not hasattr(result, "size"):  # shards are missing, or nothing was to be written
        return None
    call = ["pretrain", "--token_store", settings.output, "--tokenizer", str(settings.tokenizer)]
    flags = _flags(settings, Group.OBJECTIVE) + _flags(settings, Group.SEQUENCES)
    return Closing(settings.output, (), [*call, "--output_dir", "pretrained", *flags])


def _losses(result: Mapping[str, Any]) -> list[str]:
    names = {
        "eval_perplexity": "perplexity",
        "eval_mlm_accuracy": "mlm accuracy",
        "eval_nsp_accuracy": "nsp accuracy",
        "minimal_pair_accuracy": "minimal pairs",
    }
    return _figures(result, names) or _figures(result, {"mlm_loss": "mlm loss", "nsp_loss": "nsp loss"})


def _pretrain(settings: Any, result: Mapping[str, Any]) -> Closing:
    files = "--train_file", "train.tsv", "--validation_file", "dev.tsv"
    call = ["finetune", settings.output_dir, "--task", "classification", *files, "--output_dir", "tuned"]
    return Closing(settings.output_dir, _losses(result), call)


def _adapt(settings: Any, result: Mapping[str, Any]) -> Closing:
    name = "nats_per_character"
    nats = [f"{_number(result[when][name])} {when}" for when in ("before", "after") if name in result.get(when, {})]
    figures = [f"nats per character {', '.join(nats).replace('after', 'now')}"] if nats else _losses(result)
    return _pretrain(settings, result)._replace(figures=figures)


def _selecting_metric(settings: Any) -> str:
    from ..finetuning.training.plan import selecting_metric  # loaded by the run

    return selecting_metric(settings)


def _finetune(settings: Any, result: Mapping[str, Any]) -> Closing:
    best = _selecting_metric(settings)
    # Several approaches, or mean and deviation of several seeds or folds.
    rows = {name: row[best] for name, row in result.items() if isinstance(row, Mapping) and best in row}
    if rows.keys() - {"teacher"}:
        figures = [f"{best}: {', '.join(_figures(rows, {name: name for name in rows}))}"]
    else:
        titles = {
            best: best,
            f"majority_{best}": "most frequent answer",
            "mae": "mae",
            "mean_value_mae": "mae of the mean value",
            f"test_{best}": f"test {best}",
        }
        figures = _figures(result, titles) + _figures(rows, {"teacher": "teacher"})
    folder = settings.output_dir
    if not Path(folder, "config.json").exists():
        return Closing(folder, figures)
    file, form = settings.new_data
    call = ["predict", folder, file, "--output", "predictions.csv"]
    return Closing(folder, figures, call, f"each line of {file}: {form}" if form else "")


def _evaluate(settings: Any, result: Mapping[str, float]) -> Closing:
    return Closing(settings.output, _figures(result, {name: name for name in [*result][:4]}))


def _output(settings: Any, result: Any) -> Closing | None:
    return Closing(settings.output) if settings.output else None


def _glue(settings: Any, result: Mapping[str, Any]) -> Closing:
    figures = [f"{len(result['tasks'])} tasks"] if "tasks" in result else []
    figures += [f"average {result['average']:.1%}"] if result.get("average") is not None else []
    return Closing(f"{settings.output_dir}/suite.md", figures)


def _ablation(settings: Any, result: Mapping[str, Any]) -> Closing:
    return Closing(f"{settings.output_dir}/ablation.md", [f"{len(result)} rows"])


def _conversion(settings: Any, result: Any) -> Closing:
    return Closing(str(result.output), [f"{result.parameters:,} parameters"])


def _import(settings: Any, result: Any) -> Closing:
    return _conversion(settings, result)._replace(next_call=_attention_of(settings.output_dir))


def _to_bert(settings: Any, result: Any) -> Closing:
    return _conversion(settings, result)._replace(next_call=["card", settings.output_dir, "--license", "apache-2.0"])


def _graph(settings: Any, result: Any) -> Closing:
    return Closing(settings.output_dir, [f"differs from PyTorch by at most {result.largest_difference:.1e}"])


def _card(settings: Any, result: str) -> Closing:
    has_tokenizer = Path(settings.model, "tokenizer.json").exists()
    call = ["push", str(settings.model), "OWNER/NAME", "--output_dir", "preview"] if has_tokenizer else []
    return Closing(str(result), (), call)


def _push(settings: Any, result: str) -> Closing:
    if settings.output_dir is None:
        return Closing(result)
    call = ["push", settings.model, settings.repo_id, *_flags(settings, Group.UPLOAD)]
    note = f"without network, where there is one: hf upload {settings.repo_id} {shlex.quote(settings.output_dir)}"
    return Closing(result, ["nothing was uploaded"], call, note)


def _file(settings: Any, result: Any) -> Closing:
    return Closing(str(result))


CLOSINGS: dict[str, Callable[[Any, Any], Closing | None]] = {
    "demo": _demo,
    "vocab": _vocab,
    "data": _data,
    "pretrain": _pretrain,
    "adapt": _adapt,
    "finetune": _finetune,
    "distill": _finetune,
    "evaluate": _evaluate,
    **dict.fromkeys(("compare", "predict", "score", "features", "bench"), _output),
    "glue": _glue,
    "ablation": _ablation,
    **dict.fromkeys(("convert google", "convert bert"), _import),
    "convert to-google": _conversion,
    "convert to-bert": _to_bert,
    **dict.fromkeys(("convert onnx", "convert openvino"), _graph),
    "card": _card,
    "push": _push,
    **dict.fromkeys(("attention", "curves"), _file),
}
