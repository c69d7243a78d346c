"""`mybert bench`: a fine-tuned model with every engine and type that is installed, and transformers' `pipeline`."""

import logging
import math
import shlex
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from functools import partial
from itertools import chain
from pathlib import Path
from typing import Any

import torch
from transformers import pipeline

from ..conversion import export_openvino
from ..conversion.key_map import head_of_class
from ..conversion.model_folder import open_model_folder
from ..files.machine import bfloat16_features
from ..files.output import output_to, write_text
from ..files.processes import no_warnings, own_process, torch_threads
from ..files.progress import progress_bar, without_loading_bars
from ..files.text import PAIR_SEPARATOR
from ..finetuning.data import DataRow, rows_of, text_columns
from ..finetuning.prediction.predictor import Predictor
from ..finetuning.tasks.task import Task
from ..tokenization.characters import replace_lone_surrogates
from . import register
from .settings import BenchSettings
from .timing import REST, describe_setting, evenly, heading, in_turns, memory, ratio, row, timed

logger = logging.getLogger(__name__)

_BATCH = 32  # of the pipeline
_PIPELINE = f"transformers' pipeline, batches of {_BATCH}"
_PYTORCH = "PyTorch"
_ENOUGH = 0.99  # equal answers that an engine needs in order to be recommended
_SAME = 0.05  # difference of values of regression
_GRAPHS = {"OpenVINO": "openvino", "OpenVINO int8": "openvino-int8"}  # ends of folders' names
_TRUNCATED: dict[str, dict[str, Any]] = {
    "text-classification": {"truncation": True},
    "fill-mask": {"tokenizer_kwargs": {"truncation": True}},
}  # other pipelines truncate, or read windows


def measure_engines(arguments: BenchSettings) -> str:
    """Measure the engines, print a Markdown table, and return it with the machine, which a file may get, too."""
    columns = {name: getattr(arguments, name) for name in ("task", "text_column", "text_pair_column")}
    given = {name: value for name, value in columns.items() if value is not None}
    with torch_threads(arguments.threads):
        title, table = compare_engines(
            str(arguments.model), arguments.data, arguments.num_sentences, arguments.repeats, given
        )
        machine = f"Machine: {describe_setting()}"
    logger.info("%s\n\n%s\n\n%s", machine, title, table)
    report = f"{machine}\n\n## {title}\n\n{table}\n"
    if arguments.output is not None:
        with output_to(arguments.output, overwrite=arguments.overwrite) as path:
            write_text(path, report)
    return report


class AnsweringSides:
    """Ways to answer the same rows, which `make` creates, in the process that measures them."""

    def __init__(self, make: Callable[..., dict[str, Callable[[], list[Any]]]], *arguments: Any) -> None:
        register()  # with transformers, as a command has done in its own process
        with no_warnings(), without_loading_bars():
            self._sides = make(*arguments)

    def names(self) -> list[str]:
        return list(self._sides)

    def answers(self, name: str) -> list[Any]:
        return self._sides[name]()

    def seconds(self, name: str) -> float:
        time.sleep(REST)
        return timed(self._sides[name])[0]

    def peak(self) -> float:
        """MB, including the libraries; not a number where the system does not tell."""
        return memory("VmHWM") * 2**20 / 1e6 if Path("/proc/self/status").exists() else math.nan


def by_pipeline(
    name: str, folder: str, task: Task, inputs: Sequence[Any], threads: int, dtype: str
) -> dict[str, Callable[[], list[Any]]]:
    """The model of transformers in a pipeline, as most people run it: rows as they come, and sorted by length."""
    torch.set_num_threads(threads)
    source = open_model_folder(folder, head_of_class(task.auto_class.__name__.replace("AutoModel", "Bert")))
    model = source.load_of_transformers().to(getattr(torch, dtype))
    tokenizer = source.load_tokenizer(model_max_length=task.max_length)
    run = pipeline(task.pipeline, model=model, tokenizer=tokenizer, device="cpu")
    options = _TRUNCATED.get(task.pipeline, {})

    def answers(order: Sequence[int]) -> list[Any]:
        found = run([inputs[place] for place in order], batch_size=_BATCH, **options)
        return [answer for _, answer in sorted(zip(order, found, strict=True), key=lambda pair: pair[0])]

    places = range(len(inputs))
    by_length = sorted(places, key=lambda place: len(str(inputs[place])))
    return {name: partial(answers, places), f"{name}, sorted": partial(answers, by_length)}


def by_predictor(
    name: str, model: str, settings: Mapping[str, Any], rows: Sequence[DataRow]
) -> dict[str, Callable[[], Any]]:
    """What `mybert predict` does between reading and writing."""
    predictor = Predictor(model, **settings)
    predictor.settle(rows[0])
    predictor.load()
    parts = list(predictor.parts(rows))
    return {name: lambda: [answer for part in parts for answer in predictor.answers(part)]}


def compare_engines(
    model: str, data: Sequence[str], number: int, repeats: int, columns: Mapping[str, str]
) -> tuple[str, str]:
    """Title and table; `columns` are the task and its columns, as flags of `predict` by name."""
    settings = {"use_cpu": True, "threads": torch.get_num_threads(), **columns}
    predictor = Predictor(model, **settings)
    given = chain.from_iterable(rows_of(file, predictor.task, new=True) for file in data)
    rows = evenly(list(given), number)
    if len(rows) < 2:
        raise ValueError(
            f"{', '.join(data)} has {len(rows)} rows; expected at least 2, since one half calibrates int8."
        )
    predictor.settle(rows[0])
    task = predictor.task
    predictor.load()  # what cannot predict is an error before the conversions, which take minutes
    del predictor
    texts = [example.texts for example in task.examples(rows, labeled=False, new=True)]
    sides: dict[str, Callable[..., Any]] = {}  # the processes of the sides, by name
    with ExitStack() as stack:
        temporary = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        folders = {_PYTORCH: model} | _converted(model, texts[::2], temporary)
        inputs = [_pipeline_input(task.pipeline, *parts) for parts in texts]
        dtypes = {"float32": ""} | ({"bfloat16": " bfloat16"} if bfloat16_features() else {})
        made: dict[str, tuple[Any, ...]] = {}
        for dtype, suffix in dtypes.items():
            name = f"{_PIPELINE}{suffix}"
            made[name] = by_pipeline, name, model, task, inputs, torch.get_num_threads(), dtype
        for engine, folder in folders.items():
            for dtype, suffix in dtypes.items():
                name = f"{engine}{suffix}"
                made[name] = by_predictor, name, str(folder), settings | {"dtype": dtype}, rows
        for name, arguments in progress_bar(made.items(), "preparing", leave=False):
            try:
                ask = stack.enter_context(own_process(name, AnsweringSides, *arguments))
            except ValueError as error:  # of transformers' BERT, which lacks something that MyBERT has
                if not name.startswith(_PIPELINE):
                    raise
                logger.warning("Without %s: %s.", name, str(error).removesuffix("."))
            else:
                sides |= dict.fromkeys(ask("names"), ask)
        answers = {name: ask("answers", name) for name, ask in progress_bar(sides.items(), "answering", leave=False)}
        seconds = in_turns({name: partial(ask, "seconds", name) for name, ask in sides.items()}, repeats)
        peaks = {name: ask("peak") for name, ask in sides.items()}
    comparable = [name for name in made if not name.startswith(_PIPELINE)]
    lines, best = _table(answers, seconds, peaks, comparable)
    lines += ["", f"{best} is the fastest whose answers are those of PyTorch in {_ENOUGH:.0%} of the rows:", ""]
    lines += [f"    {line}" for line in _commands(best, model, data, columns, task)]
    return f"{model}: {len(rows)} rows of {', '.join(data)}, medians of {repeats}", "\n".join(lines)


def _table(
    answers: Mapping[str, Sequence[Any]],
    seconds: Mapping[str, Sequence[float]],
    peaks: Mapping[str, float],
    comparable: Sequence[str],  # the sides among which the best is chosen
) -> tuple[list[str], str]:
    """The table, and the fastest side that answers as PyTorch does; of the rows that did not calibrate int8."""
    lines = [heading("", "rows a second", "times as fast", "peak memory, MB", "equal answers", "largest difference")]
    best, peer = _PYTORCH, next(iter(answers))
    for name, found in answers.items():
        equal, difference = agreement(found[1::2], answers[_PYTORCH][1::2])
        shares = ("", "") if equal is None else (f"{equal:.1%}", f"{difference:.0e}")
        rate, faster = len(found) / statistics.median(seconds[name]), ratio(seconds[peer], seconds[name])
        lines.append(row(name, f"{rate:,.1f}", f"{faster:.2f}", f"{peaks[name]:,.0f}", *shares))
        if name in comparable and (equal or 0) >= _ENOUGH:
            best = min(best, name, key=lambda side: statistics.median(seconds[side]))
    return lines, best


def _converted(model: str, texts: Sequence[Sequence[str]], temporary: Path) -> dict[str, Path]:
    """Folders of the model for OpenVINO, by engine; int8 is calibrated with texts."""
    lines = temporary / "calibration.txt"
    pairs = (PAIR_SEPARATOR.join((first, other)) for first, *others in texts for other in others)
    alone = (first for first, *others in texts if not others)
    joined = "\n".join(" ".join(text.split()) for text in chain(alone, pairs))
    lines.write_text(replace_lone_surrogates(joined), encoding="utf-8")
    folders, int8 = {}, {"dtype": "int8", "data": [str(lines)]}
    for engine, options in (("OpenVINO", dict[str, Any]()), ("OpenVINO int8", int8)):
        logger.info("converting to %s", engine)
        try:
            export_openvino(model, temporary / engine, **options)
        except (ImportError, RuntimeError, ValueError) as error:  # OpenVINO's own; a model that reads left to right
            logger.warning("Without %s: %s", engine, str(error).strip().splitlines()[-1])
        else:
            folders[engine] = temporary / engine
    return folders


def _pipeline_input(kind: str, first: str, *others: str) -> Any:
    """What a pipeline reads for the texts of an example."""
    match kind:
        case "question-answering":
            return {"question": first, "context": others[0]}
        case "multiple-choice":
            return {"prompt": first, "choices": list(others)}
        case _:
            return {"text": first, "text_pair": others[0]} if others else first


def agreement(found: Sequence[Any], expected: Sequence[Any]) -> tuple[float | None, float]:
    """The fraction of answers equal but for their numbers, and the largest difference of these numbers in them.

    Of answers that are a number alone, those count that differ by at most `_SAME`. None if the answers have other
    fields, as those of some pipelines.
    """
    kinds = [
        isinstance(side[0], dict) and {name: type(side[0][name]) for name in sorted(side[0])}
        for side in (found, expected)
    ]
    if not kinds[0] or kinds[0] != kinds[1]:
        return None, 0.0
    equal, largest = 0, 0.0
    for one, other in zip(found, expected, strict=True):
        sides = [list(_values({name: answer[name] for name in expected[0]})) for answer in (one, other)]
        words, numbers = ([[v for v in side if isinstance(v, float) == wanted] for side in sides] for wanted in (0, 1))
        if words[0] == words[1]:
            difference = max((abs(a - b) for a, b in zip(*numbers, strict=True)), default=0.0)
            equal += bool(words[0]) or difference <= _SAME
            largest = max(largest, difference)
    return equal / len(found), largest


def _values(answer: Any) -> Iterator[Any]:
    parts = answer.values() if isinstance(answer, dict) else answer
    if isinstance(parts, (str, int, float, type(None))):
        yield parts.removeprefix("LABEL_") if isinstance(parts, str) else parts  # of classes without names
    else:
        for part in parts:
            yield from _values(part)


def _commands(best: str, model: str, data: Sequence[str], columns: Mapping[str, str], task: Task) -> Iterator[str]:
    """The commands that use an engine and type."""
    folder = model
    engine, _, _ = best.partition(" bfloat16")
    if engine in _GRAPHS:
        folder = f"{model.rstrip('/')}-{_GRAPHS[engine]}"
        texts: list[str] = []
        if engine.endswith("int8"):
            is_plain = len(text_columns(task)) == 1 and not task.reads_conll
            texts = ["--dtype", "int8", "--data", *(data if is_plain else ["texts.txt"])]
            texts += ["--text_column", task.text_column] if is_plain and task.text_column != "text" else []
        yield shlex.join(["mybert", "convert", "openvino", model, folder, *texts])
    dtype = ["--dtype", "bfloat16"] if best.endswith("bfloat16") else []
    given = chain.from_iterable((f"--{name}", value) for name, value in columns.items())
    yield shlex.join(["mybert", "predict", folder, *data, *given, *dtype, "--output", "predictions.csv"])
