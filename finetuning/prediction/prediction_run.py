"""Predict new data with a fine-tuned model (`mybert predict`): any kind of input and task, in bounded memory."""

from __future__ import annotations

import json
import logging
import os
import re
import sys
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence, Sized
from functools import partial
from itertools import chain, islice
from pathlib import Path
from typing import Any, NamedTuple

from accelerate.utils import gather_object

from ...files.errors import SettingError, refuse_address
from ...files.moves import PARTIAL, discard, temporary_path
from ...files.options import deciding
from ...files.output import Output, check_output_files, locked, reserved, write_lines, write_text, written_beside
from ...files.processes import leave_standard_output
from ...files.progress import progress_bar
from ...files.source import Source, check_kept_columns, is_data_frame
from ...files.spreadsheets import MAX_ROWS, fits_cell, write_sheet
from ...files.tables import (
    LIBRARIES,
    USUAL_STYLE,
    CsvStyle,
    json_line,
    json_values,
    pyarrow_for,
    separated_line,
    style_of,
)
from ...files.text import LINE_BREAKS, SEPARATED_SUFFIXES, SPREADSHEET_SUFFIX, STDIN, file_of, new_digest, open_text
from ...runs import RunFolder, prepare_once
from ..data import DataRow, new_name, rows_of
from ..settings.parts import TASK_OPTIONS
from ..settings.prediction import PredictArguments, PredictSettings
from ..tasks.registry import task_record
from ..tasks.steps import label_count_line, long_text_lines
from .predictor import Predictor, with_answers

logger = logging.getLogger(__name__)

# A part has a head, and a line for each row: [columns of the data, prediction]. Parts survive an interruption; at the
# end they are merged in the format of the output's ending.
_PART = "predictions-{:08d}.jsonl"
# Marks a call that may replace the output, so that resuming it does not need --overwrite again.
_MAY_REPLACE = "predictions-replace"
_MERGED = "predictions-merged"  # marks parts that are needed only if there is no output


def predict(model: str | Path, data: Any, output: str | Path | None = None, **settings: Any) -> Any:
    """Predict new data with a fine-tuned model.

        >>> mybert.predict("my-sst2", ["a fine film", "a bore"])
        [{"label": "1", "score": 0.98}, {"label": "0", "score": 0.93}]

    Task, columns and lengths are stored in the model. Data is a file or a list of paths; a list, other iterable or
    `torch.utils.data.Dataset` of texts, pairs of texts, lists of words (for tagging) or dictionaries; a
    `datasets.Dataset`; or a data frame: a DataFrame of pandas or polars, or a `pyarrow.Table`.
    `text_column` and `text_pair_column` name columns with other names.

    Args:
        model: Folder or Hub name.
        data: The data to predict.
        output: A file to write, see `predict_files`; None to return the predictions.
        **settings: Other options of `PredictSettings`: `top_k`, `probabilities`, `dtype`, `max_length`, ...

    Returns:
        With `output`, the result of `predict_files`. Otherwise a dictionary for each row, in the data's order: `label`
        (None below `confidence_threshold`) and `score` (regression: `score`; multi-label: lists of both; tagging:
        lists with one of each for every word, and `entities`; questions: `answer`, `score`, `start`, `end`; choices:
        also `answer`); with `top_k` above 1 also `best`, with `probabilities` also `probability_<class>`. A list, or
        an iterator if `data` is one. For a data frame, a data frame of the same kind: its index and columns
        (`keep_columns`), followed by these.

    Raises:
        ValueError: If the model has no head for a task, or the data does not fit it.
        OSError: If a file cannot be read or written.
    """
    arguments = PredictArguments(
        model=model, data=data_parts(data), output=STDIN if output is None else output, **settings
    )
    prediction = _Prediction(arguments)
    if output is not None:
        return prediction.write()
    if is_data_frame(data):
        check_kept_columns(data, prediction.columns)
    answers = (answer for _, answer in prediction.answered())
    if isinstance(data, Iterator):
        return answers
    return with_answers(data, prediction.columns, list(answers)) if is_data_frame(data) else list(answers)


def data_parts(data: Any) -> list[Any]:
    """The data of a call from Python: several paths, a file, or data in memory."""
    # Unlike os.path.exists, Path.exists raises for a text, which is too long for a file name.
    if isinstance(data, str) and data != STDIN and not os.path.exists(file_of(data)):  # noqa: PTH110
        refuse_address(data)
        raise FileNotFoundError(f"There is no file {data[:60]!r}; a text is given in a list: [text].")
    return list(data) if isinstance(data, (list, tuple)) and data and isinstance(data[0], Path) else [data]


def predict_files(arguments: PredictSettings) -> dict[str, Any]:
    """Predict files, and write their rows with the predictions.

    A row of the output is a row of the data, in order: its columns, then `label` and `score` or the task's own fields
    (see `predict`). A name that exists in the data gets the prefix `predicted_`. Memory holds some 1,000 rows. A call
    with more than 1,024 rows that was killed, or that found an error in the data, resumes when repeated without
    `overwrite`, which starts over; rows corrected in the meantime are predicted again, with their neighbors. Several
    processes share the work.

    Args:
        arguments: The settings.

    Returns:
        `rows`, the number of rows; how many of them exceeded the maximum length: `cut`, which were truncated, and
        `windowed`, which were read in windows; and `empty`, how many had no text (`skip_empty`).

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
    empty: int  # rows without a text
    labels: Mapping[str, int]  # how often each was predicted


class _Prediction:
    """A call of `predict`, which predicts the data part by part."""

    def __init__(self, arguments: PredictSettings) -> None:
        self.arguments, data = arguments, arguments.data
        # Whether another call can read the data again, because it is in files.
        self.can_resume = all(isinstance(source, (str, Path)) and str(source) != STDIN for source in data)
        self.files = [str(source) for source in data] if self.can_resume else []
        self.state = arguments.device.state
        self.predictor = Predictor(arguments)
        rows = chain.from_iterable(rows_of(source, self.predictor.task, new=True) for source in data)
        first = next(rows, None)
        if first is None:
            raise ValueError(f"{', '.join(str(Source.of(each)) for each in data)} holds no rows.")
        self.predictor.settle(first)
        self.columns = list(self.predictor.kept(first))
        self._rows = chain([first], rows)

    def answered(self) -> Iterator[tuple[DataRow, dict[str, Any]]]:
        """Every row with its prediction, in order."""
        predictor, count = self.predictor, 0
        with self._progress() as progress:
            for rows in predictor.parts(self._rows):
                yield from zip(rows, predictor.answers(rows), strict=True)
                progress.update(len(rows))
                count += len(rows)
        self._summarize(predictor.labels, count, predictor.cut, predictor.windowed, predictor.empty)

    def _summarize(self, labels: Counter[str], rows: int, cut: int, windowed: int, empty: int) -> dict[str, int]:
        """Log how many texts were too long or missing, and how often each label was predicted; returns the numbers."""
        for line in long_text_lines(self.predictor.task, rows, cut, windowed):
            logger.warning("%s", line)
        if empty:
            logger.warning("%s of %s rows have no text, so their answers are empty.", f"{empty:,}", f"{rows:,}")
        if line := label_count_line(self.predictor.task, labels, rows):
            logger.info("%s", line)
        return {"rows": rows, "cut": cut, "windowed": windowed, "empty": empty}

    def _progress(self) -> Any:
        data = self.arguments.data
        total = (
            len(data[0]) if len(data) == 1 and isinstance(data[0], Sized) and not isinstance(data[0], str) else None
        )
        return progress_bar(
            desc="Predict", total=total, unit=" rows", delay=2, disable=not self.state.is_main_process or None
        )

    def write(self) -> dict[str, Any]:
        """Write the output, see `predict_files`."""
        arguments, output = self.arguments, Path(self.arguments.output)
        if arguments.output == STDIN:
            return self._print()
        if needed := LIBRARIES.get(output.suffix.lower()):
            needed(output)  # an error now, not at the end
        parts = output.with_name(f".{output.name}{PARTIAL}")
        if self.state.num_processes == 1 and not parts.exists():  # nor did an earlier call leave any
            with reserved(output, overwrite=arguments.overwrite, read=self.files) as place:
                rows = list(islice(self._rows, Predictor.rows_per_part + 1))
                if len(rows) <= Predictor.rows_per_part:
                    return self._write_directly(rows, place)
            self._rows = chain(rows, self._rows)
        return self._write_in_parts(parts, output)

    def _write_directly(self, rows: Sequence[DataRow], place: Output) -> dict[str, int]:
        """Predict and write the rows of one part; a call that ends earlier leaves nothing."""
        predictor, output = self.predictor, place.path
        pairs = self._predicted(rows, output, progress=True)
        table = list(output_rows(pairs, {name for kept, _ in pairs for name in kept}))
        with place.written() as path:
            write_rows(path, [lambda: table], output, self._style())
        logger.info("%s: %s rows.", output, f"{len(rows):,}")
        return self._summarize(predictor.labels, len(rows), predictor.cut, predictor.windowed, predictor.empty)

    def _predicted(self, rows: Sequence[DataRow], output: Path, progress: bool = False) -> list[_Pair]:
        """The kept columns and the prediction of each row, as the output can hold them."""
        answers = self.predictor.answers(rows, progress)
        kept = json_rows_for(output, map(self.predictor.kept, rows))
        return list(zip(kept, json_rows_for(output, answers), strict=True))

    def _style(self) -> CsvStyle:
        """The style of a CSV or TSV file like the first file of the data."""
        if not self.files or Path(self.arguments.output).suffix.lower() not in SEPARATED_SUFFIXES:
            return USUAL_STYLE
        return style_of(self.files[0], self.predictor.task.encoding)

    def _write_in_parts(self, path: Path, output: Path) -> dict[str, int]:
        """Write the output by parts in a hidden folder, with which a call that is repeated resumes."""
        folder = RunFolder(
            path,
            overwrite=self.arguments.overwrite or not self.can_resume,
            kept="What was predicted" if self.can_resume else "",
        )
        with folder:
            prepare_once(self.state.is_main_process, lambda: self._begin(folder, output))
            try:
                heads, rows = self._write_parts(path, output)
            except (ValueError, OSError) as error:  # in the data, or what belongs to the model
                has_parts = self.can_resume and any(path.glob("predictions-*.jsonl"))
                if has_parts and isinstance(error, ValueError):
                    logger.info("What was predicted is kept; correct the data and run the same command to continue.")
                elif not has_parts and self.state.num_processes == 1:
                    discard(path, temporary_path(output, "old"))
                raise
            heads = gather_object(heads)  # of all processes
            counts = {name: sum(getattr(head, name) for head in heads) for name in ("cut", "windowed", "empty")}
            if self.state.is_main_process:
                merge_parts(path, heads, output, self._style())
                logger.info("%s: %s rows.", output, f"{rows:,}")
                self._summarize(sum((Counter(head.labels) for head in heads), Counter[str]()), rows, **counts)
        return {"rows": rows, **counts}

    def _begin(self, folder: RunFolder, output: Path) -> None:
        """Check the output, and begin a run or resume an interrupted one."""
        arguments, task = self.arguments, self.predictor.task
        may_replace = folder.path / _MAY_REPLACE
        with locked(output):
            if (folder.path / _MERGED).is_file() and output.exists() and not may_replace.is_file():
                discard(folder.path, temporary_path(output, "old"))  # a call was killed after its output was written
            check_output_files([output], arguments.overwrite or may_replace.is_file(), self.files)
        settings = {
            "command": "predict",
            "model": str(arguments.model),
            "data": self.files,
            "rows_of_a_part": Predictor.rows_per_part,
            **{name: value for name, value in deciding(arguments).items() if name not in ("task", *TASK_OPTIONS)},
            "task": task_record(type(task).__name__, task),
            "device": self.state.device.type,
        }
        folder.begin(settings, arguments.checkpoint.deciding_files)  # each part records a digest of its rows
        if arguments.overwrite:
            write_text(may_replace, "")

    def _write_parts(self, folder: Path, output: Path) -> tuple[list[PartHead], int]:
        """Predict the missing parts of this process; returns the heads of its parts, and the number of all rows."""
        heads: list[PartHead] = []
        count = there = 0
        with self._progress() as progress:
            for index, rows in enumerate(self.predictor.parts(self._rows)):
                count += len(rows)
                if count >= MAX_ROWS and output.suffix.lower() == SPREADSHEET_SUFFIX:
                    raise ValueError(f"{output} cannot hold more than {MAX_ROWS - 1:,} rows; {_OTHER_OUTPUT}.")
                if index % self.state.num_processes == self.state.process_index:
                    digest = new_digest()
                    for row in rows:
                        digest.update(f"{json_line(row.values)}\n".encode())
                    file = folder / _PART.format(index)  # if there is one, it is complete
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
        predictor = self.predictor
        cut, windowed, empty, labels = predictor.cut, predictor.windowed, predictor.empty, predictor.labels.copy()
        pairs = self._predicted(rows, output)
        counts = predictor.cut - cut, predictor.windowed - windowed, predictor.empty - empty, predictor.labels - labels
        head = PartHead(digest, list(dict.fromkeys(name for kept, _ in pairs for name in kept)), *counts)
        write_lines(file, [json.dumps(head), *(f"[{json_line(kept)}, {json_line(answer)}]" for kept, answer in pairs)])
        return head

    def _print(self) -> dict[str, Any]:
        """Write to standard output."""
        if self.state.num_processes > 1:
            raise SettingError.worded("Several processes cannot share standard output; give a file with {output}.")
        predictor, columns, count = self.predictor, set[str](), 0

        def pairs() -> Iterator[_Pair]:
            for row, answer in self.answered():
                kept = predictor.kept(row)
                columns.update(kept)
                yield kept, answer

        for row in output_rows(pairs(), columns):
            print(json_line(row))
            count += 1
        sys.stdout.flush()
        return {"rows": count, "cut": predictor.cut, "windowed": predictor.windowed, "empty": predictor.empty}


_Pair = tuple[Mapping[str, Any], Mapping[str, Any]]  # the columns of a row that are kept, and its prediction


def output_rows(pairs: Iterable[_Pair], columns: Collection[str]) -> Iterator[dict[str, Any]]:
    """The rows of an output; predicted columns get other names than the `columns` of the data."""
    for kept, answer in pairs:
        yield {**kept, **{new_name(name, columns): value for name, value in answer.items()}}


_OTHER_OUTPUT = "expected an output that ends in .csv, .jsonl or .parquet"
# By ending, whether a cell can hold a text, and what it cannot hold.
_LIMITS: dict[str, tuple[Callable[[str], bool], str]] = {
    ".tsv": (lambda text: not any(sign in text for sign in f"\t{LINE_BREAKS}"), "a tab or line break"),
    SPREADSHEET_SUFFIX: (fits_cell, "a control character or more than 32,767 characters"),
}


def json_rows_for(output: Path, rows: Iterable[Mapping[str, Any]]) -> Sequence[Mapping[str, Any]]:
    """The rows, with values as JSON has them; one that the output's format cannot hold is an error."""
    values = list(map(json_values, rows))
    if output.suffix.lower() in _LIMITS:  # now, not at the end
        fits, others = _LIMITS[output.suffix.lower()]
        for row in values:
            for name, value in row.items():
                for text, kind in ((name, "the name of a column"), (_cell(value), name)):
                    if not fits(text):
                        raise ValueError(
                            f"{output}: {text[:40]!r} as {kind} has {others}, which a {output.suffix} file cannot "
                            f"hold; {_OTHER_OUTPUT}."
                        )
    return values


def merge_parts(folder: Path, heads: Collection[PartHead], output: Path, style: CsvStyle = USUAL_STYLE) -> None:
    """Merge the parts in order, and delete their folder; the output's ending is one of `OUTPUT_ENDINGS`."""
    known = set(chain.from_iterable(head.columns for head in heads))

    def rows_of_part(number: int) -> Iterator[dict[str, Any]]:
        lines = islice(open_text(folder / _PART.format(number)), 1, None)
        return output_rows(map(json.loads, lines), known)

    parts = [partial(rows_of_part, number) for number in range(len(heads))]
    with locked(output):
        with written_beside(output) as path:
            write_rows(path, parts, output, style)
            write_text(folder / _MERGED, "")
        discard(folder, temporary_path(output, "old"))


_WHOLE_NUMBER = re.compile(r"-?[1-9]\d{0,14}|0")  # which a spreadsheet, too, writes so


_Part = Callable[[], Iterable[dict[str, Any]]]  # each call yields its rows from the start


def write_rows(path: Path, parts: Sequence[_Part], output: Path, style: CsvStyle = USUAL_STYLE) -> None:
    """Write rows to a temporary path in the format of the output's ending, one of `OUTPUT_ENDINGS`."""
    ending, encoding = output.suffix.lower(), "utf-8"
    rows = chain.from_iterable(part() for part in parts)
    if ending == ".parquet":
        _write_parquet(path, parts, output)
        return
    if ending == ".jsonl":
        lines: Iterable[str] = map(json_line, rows)
    else:
        columns = list(dict.fromkeys(name for part in parts for row in part() for name in row))
        table: Iterable[list[Any]] = chain([columns], ([row.get(name) for name in columns] for row in rows))
        if ending == SPREADSHEET_SUFFIX:
            write_sheet(path, ([_plain_cell(value) for value in row] for row in table))
            return
        mark, encoding = style.mark if ending == ".csv" else "\t", style.encoding
        lines = (separated_line([_cell(value, style.decimal_sign) for value in row], mark) for row in table)
    with path.open("w", encoding=encoding, newline="") as target:
        target.writelines(f"{line}\n" for line in lines)


def _cell(value: Any, decimal_sign: str = ".") -> str:
    if value is None:
        return ""
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    return text.replace(".", decimal_sign) if isinstance(value, float) else text


def _plain_cell(value: Any) -> Any:
    """A value as a spreadsheet holds it: lists are JSON, and a label such as "1" is a number, as those of a sheet.

    Its numbers have 15 digits, so a longer one is a text.
    """
    text = _cell(value)
    if value is None or isinstance(value, (bool, float)):
        return value
    return int(text) if _WHOLE_NUMBER.fullmatch(text) else text


def _write_parquet(path: Path, parts: Sequence[_Part], output: Path) -> None:
    pyarrow = pyarrow_for(output)
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
    with pyarrow.parquet.ParquetWriter(path, schema) as writer:
        for rows in parts:
            given = [row | {name: _cell(row[name]) for name in mixed if row.get(name) is not None} for row in rows()]
            writer.write_table(pyarrow.Table.from_pylist(given, schema=schema))
