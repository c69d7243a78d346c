"""Task data in memory instead of files: data frames, data sets, iterables."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, ClassVar, Protocol

from ...files.source import GivenData, has_items, items_of
from .rows import DataRow, DataSource, HubSplit, with_class_names


class ColumnNames(Protocol):
    """The properties of a task that are needed to read rows; `Task` has them."""

    reads_conll: ClassVar[bool]

    @property
    def text_column(self) -> str:
        """Column of the text."""

    @property
    def text_pair_column(self) -> str | None:
        """Column of the second text."""

    @property
    def label_column(self) -> str:
        """Column of the label."""

    @property
    def may_read_pairs(self) -> bool:
        """Whether it reads pairs of texts, or reads them if the data has them."""

    @property
    def has_class_numbers(self) -> bool:
        """Whether classes are numbers."""


def given_rows(source: GivenData, task: ColumnNames) -> list[DataRow]:
    """The rows of task data in memory, see `rows_of`; the counterpart of `read_data` for files."""
    rows = (row.values for row in rows_of(source.data, str(source), task, labelled=True))
    named = with_class_names(rows, getattr(source.data, "features", None), not task.has_class_numbers)
    found = [DataRow(values, str(source), number) for number, values in enumerate(named, start=1)]
    if not found:
        raise ValueError(f"{source} holds no rows.")
    return found


def rows_of(data: Any, name: str, task: ColumnNames, labelled: bool) -> Iterator[DataRow]:
    """Yield rows of data in memory, one after the other.

    Args:
        data: A `pandas.DataFrame` or a `datasets.Dataset`; or an iterable or `torch.utils.data.Dataset` of
            dictionaries or of what the task reads: texts, pairs of texts, or lists of words for tagging; for labelled
            data, of dictionaries or tuples of one of these and its label. None is an empty text.
        name: Name of the argument, for messages.
        task: The task.
        labelled: Whether it is labelled data. Items other than dictionaries then get the task's columns, otherwise
            `text` and `text_pair`.

    Raises:
        ValueError: If the data, or an item, is of another kind.
    """
    if isinstance(data, Mapping) or not has_items(data):
        found = " ".join(repr(data).split())
        if isinstance(data, Mapping):
            found = f"a {type(data).__name__} of {', '.join(map(repr, data))}"
        raise ValueError(
            f"{name} is {found[:160]}; expected a file, a table (DataFrame, Dataset) or an iterable of rows."
        )
    for number, item in enumerate(items_of(data), start=1):
        values = dict(item) if isinstance(item, Mapping) else None
        if values is None:
            values = _labelled(item, task) if labelled else _texts(item, task)
        if values is None:
            read = "a text, a list of words" if task.reads_conll else "one text (the task reads no pairs)"
            if task.may_read_pairs:
                read = "a pair of texts" if task.text_pair_column else "a text or a pair of texts"
            expected = f"a tuple of {read} and its label" if labelled else read
            raise ValueError(f"{name}, row {number}: {str(item)[:60]!r}; expected {expected} or a dictionary.")
        yield DataRow(values, name, number)


def _texts(item: Any, task: ColumnNames) -> dict[str, Any] | None:
    """The columns of a text, a pair of texts, or words, whichever the task reads; None for anything else."""
    if item is None or isinstance(item, str):
        return {"text": item}
    if not isinstance(item, (list, tuple)) or not item:
        return None
    if task.reads_conll:
        are_words = all(isinstance(word, str) and len(word.split()) < 2 for word in item)  # not a text and its label
        return {"text": list(item)} if are_words else None
    is_pair = len(item) == 2 and all(part is None or isinstance(part, str) for part in item)
    return dict(zip(("text", "text_pair"), item, strict=True)) if is_pair and task.may_read_pairs else None


def _labelled(item: Any, task: ColumnNames) -> dict[str, Any] | None:
    """The same with the task's column names, for an item alone or in a tuple with its label."""
    has_label = isinstance(item, tuple) and len(item) == 2
    texts = _texts(item[0] if has_label else item, task)
    if texts is None:
        return None
    columns = {"text": task.text_column, "text_pair": task.text_pair_column or "text_pair"}
    label = {task.label_column: item[1]} if has_label else {}
    return {columns[column]: text for column, text in texts.items()} | label


def data_name(source: DataSource) -> str:
    """The name of data in descriptions; for a file, without its folder."""
    if isinstance(source, GivenData):
        return source.described
    return Path(source).name if isinstance(source, (str, Path)) else str(source)


def source_of(data: Any, name: str) -> DataSource | None:
    """The data of an argument for a single data set, see `sources_of`."""
    sources = [GivenData(name, data)] if isinstance(data, Mapping) else sources_of(data, name)
    if len(sources) > 1:
        raise ValueError(f"{name} is {', '.join(map(str, sources))[:160]}; expected one file.")
    return sources[0] if sources else None


def sources_of(data: Any, name: str) -> list[DataSource]:
    """The data sets of an argument: files, or data in memory (see `rows_of`); a dictionary names several."""
    if data is None:
        return []
    if isinstance(data, (str, Path, HubSplit, GivenData)):
        return [str(data) if isinstance(data, Path) else data]
    if isinstance(data, Mapping):
        return [GivenData(name, table, str(part)) for part, table in data.items()]
    if isinstance(data, (list, tuple)) and all(isinstance(item, (str, Path, GivenData)) for item in data):
        return [str(item) if isinstance(item, Path) else item for item in data]
    return [GivenData(name, data)]


def files_of(sources: Iterable[DataSource]) -> list[str]:
    """The sources that are files."""
    return [str(source) for source in sources if isinstance(source, (str, Path))]
