"""Predict new data with a fine-tuned model (`mybert predict`): any kind of input and task, in bounded memory."""

from __future__ import annotations

import json
import logging
import shutil
import sys
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence, Sized
from dataclasses import dataclass
from functools import partial
from itertools import chain, islice
from pathlib import Path
from typing import Any, NamedTuple

from accelerate import PartialState
from accelerate.utils import gather_object
from tqdm.auto import tqdm

from ...files.errors import refuse_address
from ...files.options import Group, deciding, option
from ...files.output import PARTIAL, check_not_read, check_output_files, locked, write_lines, written_beside
from ...files.processes import leave_standard_output
from ...files.tables import json_line, separated_line
from ...files.text import LINE_BREAKS, STDIN, new_digest, open_text
from ...runs import RunFolder, prepare_once
from ..data import DataRow, new_name, rows_of
from ..tasks.registry import TASK_OPTIONS, task_record
from ..tasks.task import long_text_lines
from .predictor import ROWS_OF_A_PART, Predictor, PredictorSettings

logger = logging.getLogger(__name__)

OUTPUT_ENDINGS = (".jsonl", ".csv", ".tsv", ".parquet")
# A part has a head, and a line for each row: [columns of the data, prediction]. Parts survive an interruption; at the
# end they are merged in the format of the output's ending.
_PART = "predictions-{:08d}.jsonl"
# Marks a call that may replace the output, so that resuming it does not need --overwrite again.
_MAY_REPLACE = "predictions-replace"


@dataclass
class PredictArguments(PredictorSettings):
    """Settings of `predict_files`.

    Raises:
        ValueError: If a setting is missing, out of range, or not one of the task's.
        OSError: If the model folder does not exist.
    """

    group = Group.INPUT
    data: list[str] = option(
        [],
        "Texts: .txt (one per line), .csv, .tsv, .jsonl, .parquet, compressed or not; - reads standard input.",
        required=True,
        positional=2,
    )
    output: str = option(STDIN, f"Where to: {', '.join(OUTPUT_ENDINGS)}; - prints JSON lines.", comes_last=True)
    overwrite: bool = option(False, "Replace the file that an earlier call wrote.", comes_last=True)

    def __post_init__(self) -> None:
        """Check what can be checked without looking at data."""
        if isinstance(self.data, str):
            self.data = [self.data]
        if self.output != STDIN and Path(self.output).suffix.lower() not in OUTPUT_ENDINGS:
            raise ValueError(f"output is {self.output!r}; expected a name that ends in {', '.join(OUTPUT_ENDINGS)}.")
        super().__post_init__()


def predict(model: str | Path, data: Any, output: str | Path | None = None, **settings: Any) -> Any:
    """Predict new data with a fine-tuned model.

        >>> mybert.predict("my-sst2", ["a fine film", "a bore"])
        [{"label": "1", "score": 0.98}, {"label": "0", "score": 0.93}]

    Task, columns and lengths are stored in the model. Data is a file or a list of paths; a list, other iterable or
    `torch.utils.data.Dataset` of texts, pairs of texts, lists of words (for tagging) or dictionaries; a
    `pandas.DataFrame`; or a `datasets.Dataset`.
    `text_column` and `text_pair_column` name columns with other names.

    Args:
        model: Folder or Hub name.
        data: The data to predict.
        output: A file to write, see `predict_files`; None to return the predictions.
        **settings: Other fields of `PredictArguments`: `top_k`, `probabilities`, `dtype`, `max_length`, ...

    Returns:
        With `output`, the result of `predict_files`. Otherwise a dictionary for each row, in the data's order: `label`
        and `score` (regression: `score`; multi-label: lists of both; tagging: lists with one of each for every word,
        and `entities`; questions: `answer`, `score`, `start`, `end`; choices: also `answer`); with `top_k` above 1
        also `best`, with `probabilities` also `probability_<class>`. A list, or an iterator if `data` is one.

    Raises:
        ValueError: If the model has no head for a task, or the data does not fit it.
        OSError: If a file cannot be read or written.
    """
    arguments = PredictArguments(model=str(model), data=data_parts(data), output=str(output or STDIN), **settings)
    if output is not None:
        return _Prediction(arguments).write()
    answers = (answer for _, answer in _Prediction(arguments).rows())
    return answers if isinstance(data, Iterator) else list(answers)


def data_parts(data: Any) -> list[Any]:
    """The data of a call from Python: several paths, a file, or data in memory."""
    if isinstance(data, str) and data != STDIN and not _is_there(data):
        refuse_address(data)
        raise FileNotFoundError(f"There is no file {data[:60]!r}; a text is given in a list: [text].")
    return list(data) if isinstance(data, (list, tuple)) and data and isinstance(data[0], Path) else [data]


def _is_there(name: str) -> bool:
    try:
        return Path(name).exists()
    except OSError:  # too long for a file name
        return False


def predict_files(arguments: PredictArguments) -> dict[str, Any]:
    """Predict files, and write their rows with the predictions.

    A row of the output is a row of the data, in order: its columns, then `label` and `score` or the task's own fields
    (see `predict`). A name that exists in the data gets the prefix `predicted_`. Memory holds some 1,000 rows. A call
    that was killed, or that found an error in the data, resumes when repeated without `overwrite`, which starts over;
    rows corrected in the meantime are predicted again, with their neighbours. Several processes share the work.

    Args:
        arguments: The settings.

    Returns:
        `rows`, the number of rows, and how many of them exceeded the maximum length: `cut`, which were truncated, and
        `windowed`, which were read in windows.

    Raises:
        ValueError: If the model has no head for a task, the data does not fit it, the output exists, or
            an earlier call that was interrupted had other settings, files or another model.
        OSError: If a file cannot be read or written.
    """
    if arguments.output == STDIN:  # on which nothing else may be printed
        leave_standard_output()
    return _Prediction(arguments).write()


class PartHead(NamedTuple):
    """Description of a part of the predictions."""

    digest: str  # of its rows
    columns: Sequence[str]  # those of the data that its rows keep
    cut: int  # truncated texts
    windowed: int  # texts read in windows


class _Prediction:
    """A call of `predict`, which predicts the data part by part."""

    def __init__(self, arguments: PredictArguments) -> None:
        self.arguments, data = arguments, arguments.data
        # Whether another call can read the data again, because it is in files.
        self.can_resume = all(isinstance(source, (str, Path)) and str(source) != STDIN for source in data)
        self.state = PartialState(cpu=arguments.use_cpu)
        self.predictor = Predictor(arguments)
        rows = chain.from_iterable(rows_of(source, self.predictor.task, new=True) for source in data)
        first = next(rows, None)
        if first is None:
            raise ValueError("The data holds no rows.")
        self.predictor.settle(first)
        remaining = chain([first], rows)
        self.parts: Iterator[list[DataRow]] = iter(lambda: list(islice(remaining, ROWS_OF_A_PART)), [])

    def rows(self) -> Iterator[tuple[DataRow, dict[str, Any]]]:
        """Every row with its prediction, in order."""
        found = self.predictor
        found.load()
        count = 0
        with self._progress() as progress:
            for rows in self.parts:
                yield from zip(rows, found.answers(rows), strict=True)
                progress.update(len(rows))
                count += len(rows)
        for line in long_text_lines(found.task, count, found.cut, found.windowed):
            logger.warning("%s", line)

    def _progress(self) -> Any:
        data = self.arguments.data
        total = (
            len(data[0]) if len(data) == 1 and isinstance(data[0], Sized) and not isinstance(data[0], str) else None
        )
        return tqdm(desc="Predict", total=total, unit=" rows", delay=2, disable=not self.state.is_main_process or None)

    def write(self) -> dict[str, Any]:
        """Write the output, see `predict_files`."""
        arguments, output = self.arguments, Path(self.arguments.output)
        if arguments.output == STDIN:
            return self._print()
        folder = RunFolder(
            output.with_name(f".{output.name}{PARTIAL}"), overwrite=arguments.overwrite or not self.can_resume
        )
        with folder:
            prepare_once(self.state.is_main_process, lambda: self._begin(folder, output))
            try:
                heads, rows = self._write_parts(folder.path, output)
            except ValueError:  # an error in the data
                if self.can_resume and any(folder.path.glob("predictions-*.jsonl")):
                    logger.info("What was predicted is kept; correct the data and run the same command to continue.")
                elif self.state.num_processes == 1:
                    shutil.rmtree(folder.path)
                raise
            heads = gather_object(heads)  # of all processes
            cut, windowed = sum(head.cut for head in heads), sum(head.windowed for head in heads)
            if self.state.is_main_process:
                merge_parts(folder.path, heads, output)
                for line in long_text_lines(self.predictor.task, rows, cut, windowed):
                    logger.warning("%s", line)
                logger.info("%s: %s rows.", output, f"{rows:,}")
        return {"rows": rows, "cut": cut, "windowed": windowed}

    def _begin(self, folder: RunFolder, output: Path) -> None:
        """Check the output, and begin a run or resume an interrupted one."""
        arguments, task = self.arguments, self.predictor.task
        files = [str(source) for source in arguments.data] if self.can_resume else []
        may_replace = folder.path / _MAY_REPLACE
        check_not_read(output, files)
        with locked(output):  # which removes what a call left that was killed after it had written the output
            check_output_files([output], arguments.overwrite or may_replace.is_file())
        settings = {
            "command": "predict",
            "model": str(arguments.model),
            "data": files,
            "rows_of_a_part": ROWS_OF_A_PART,
            **{name: value for name, value in deciding(arguments).items() if name not in TASK_OPTIONS},
            "task": task_record(type(task).__name__, task),
            "device": self.state.device.type,
        }
        folder.begin(settings, arguments.checkpoint.deciding_files)  # each part records a digest of its rows
        if arguments.overwrite:
            may_replace.touch()

    def _write_parts(self, folder: Path, output: Path) -> tuple[list[PartHead], int]:
        """Predict the missing parts of this process; returns the heads of its parts, and the number of all rows."""
        heads: list[PartHead] = []
        count = there = 0
        with self._progress() as progress:
            for number, rows in enumerate(self.parts):
                count += len(rows)
                if number % self.state.num_processes == self.state.process_index:
                    digest = new_digest()
                    for row in rows:
                        digest.update(f"{json_line(row.values)}\n".encode())
                    file = folder / _PART.format(number)  # if there is one, it is complete
                    head = PartHead(*json.loads(next(open_text(file)))) if file.is_file() else None
                    if head is not None and head.digest == digest.hexdigest():
                        there += len(rows)
                    else:
                        head = self._write_part(file, rows, digest.hexdigest(), output)
                    heads.append(head)
                progress.update(len(rows))
        if there:
            logger.info("%s rows had been predicted already, by a call that was interrupted.", f"{there:,}")
        return heads, count

    def _write_part(self, file: Path, rows: Sequence[DataRow], digest: str, output: Path) -> PartHead:
        """Predict a part and write it, kept columns and prediction of each row, completely or not at all."""
        found = self.predictor
        cut, windowed = found.cut, found.windowed
        answers = found.answers(rows)
        kept = [found.kept(row) for row in rows]
        lines = [f"[{json_line(values)}, {json_line(answer)}]" for values, answer in zip(kept, answers, strict=True)]
        # Now, not at the end: a TSV file cannot hold tabs or line breaks in values.
        if output.suffix.lower() == ".tsv":
            for values in chain.from_iterable(map(json.loads, lines)):
                refuse_breaks(values, output)
        columns = list(dict.fromkeys(chain.from_iterable(kept)))
        head = PartHead(digest, columns, found.cut - cut, found.windowed - windowed)
        write_lines(file, [json.dumps(head), *lines])
        return head

    def _print(self) -> dict[str, Any]:
        """Write to standard output."""
        if self.state.num_processes > 1:
            raise ValueError("Several processes cannot share standard output; give a file with --output.")
        count, columns = 0, set[str]()
        for row, answer in self.rows():
            kept = self.predictor.kept(row)
            columns.update(kept)
            print(json_line(output_row(kept, answer, columns)))
            count += 1
        sys.stdout.flush()
        return {"rows": count, "cut": self.predictor.cut, "windowed": self.predictor.windowed}


def output_row(kept: Mapping[str, Any], answer: Mapping[str, Any], columns: Collection[str]) -> dict[str, Any]:
    """A row of the output; predicted columns get other names than the `columns` of the data."""
    return {**kept, **{new_name(name, columns): value for name, value in answer.items()}}


def refuse_breaks(row: Mapping[str, Any], output: Path) -> None:
    for name, value in row.items():
        for text, what in ((name, "the name of a column"), (_cell(value), name)):
            if any(sign in text for sign in f"\t{LINE_BREAKS}"):
                raise ValueError(
                    f"{output}: {text[:40]!r} as {what} has a tab or line break, which a .tsv file cannot hold; "
                    "expected an output that ends in .csv, .jsonl or .parquet."
                )


def merge_parts(folder: Path, heads: Collection[PartHead], output: Path) -> None:
    """Merge the parts in order, and delete their folder; the output's ending is one of `OUTPUT_ENDINGS`."""
    known = set(chain.from_iterable(head.columns for head in heads))

    def rows_of_part(number: int) -> Iterator[dict[str, Any]]:
        lines = islice(open_text(folder / _PART.format(number)), 1, None)
        return (output_row(kept, answer, known) for kept, answer in map(json.loads, lines))

    parts = [partial(rows_of_part, number) for number in range(len(heads))]
    with locked(output):
        with written_beside(output) as path:
            write_rows(path, parts, output)
        folder.rename(path)  # to the name of what is incomplete: if this call is killed now, the next lock removes it
        shutil.rmtree(path)


_Part = Callable[[], Iterable[dict[str, Any]]]  # each call yields its rows from the start


def write_rows(path: Path, parts: Sequence[_Part], output: Path) -> None:
    """Write rows to a temporary path in the format of the output's ending, one of `OUTPUT_ENDINGS`."""
    ending = output.suffix.lower()
    if ending == ".parquet":
        _write_parquet(path, parts, output)
        return
    rows = chain.from_iterable(part() for part in parts)
    lines: Iterable[str] = map(json_line, rows)
    if ending != ".jsonl":
        columns = list(dict.fromkeys(name for part in parts for row in part() for name in row))
        cells = ([_cell(row.get(name)) for name in columns] for row in rows)
        mark = "," if ending == ".csv" else "\t"
        lines = (separated_line(line, mark) for line in chain([columns], cells))
    with path.open("w", encoding="utf-8", newline="") as target:
        target.writelines(f"{line}\n" for line in lines)


def _cell(value: Any) -> str:
    if value is None:
        return ""
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def _write_parquet(path: Path, parts: Sequence[_Part], output: Path) -> None:
    try:
        import pyarrow
        from pyarrow.parquet import ParquetWriter
    except ImportError as error:
        raise ImportError(f"Writing {path} needs the pyarrow package: pip install pyarrow.") from error

    types: dict[str, Any] = {}  # the common type of a column's values in all parts; None if there is none
    for rows in parts:
        given = list(rows())
        for name in dict.fromkeys(chain.from_iterable(given)):
            if types.setdefault(name, pyarrow.null()) is None:
                continue
            try:
                here = pyarrow.array([row.get(name) for row in given]).type
                schemas = [pyarrow.schema({name: kind}) for kind in (types[name], here)]
                types[name] = pyarrow.unify_schemas(schemas, promote_options="permissive").field(name).type
            except (pyarrow.ArrowException, OverflowError):
                types[name] = None
    mixed = [name for name, kind in types.items() if kind is None]
    for name in mixed:
        logger.warning("%s: %r has values of several kinds; they are written as text.", output, name)
    schema = pyarrow.schema({name: kind or pyarrow.string() for name, kind in types.items()})
    with ParquetWriter(path, schema) as writer:
        for rows in parts:
            given = [row | {name: _cell(row[name]) for name in mixed if row.get(name) is not None} for row in rows()]
            writer.write_table(pyarrow.Table.from_pylist(given, schema=schema))
