"""What a task reads: from the rows of files, the Hub or memory to examples."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar, Generic, TypeVar

from typing_extensions import Self

from ...files.source import GivenData
from ..data.given_data import given_rows
from ..data.rows import DataRow, DataSource, check_columns, read_data

E = TypeVar("E")  # an example from the data


@dataclass(frozen=True, kw_only=True)
class ExampleReader(ABC, Generic[E]):
    """The files and columns of a task, and how their rows become examples."""

    encoding: str = "utf-8"
    text_column: str = "text"
    text_pair_column: str | None = None  # of a second text, in tasks that read two
    label_column: str = "label"
    file_columns: tuple[str, ...] | None = None  # names of the columns of files without header
    skip_broken_rows: bool = False  # in published files, rows with a wrong number of fields
    # For each split, name patterns of its files in the benchmark's folder; the first match is used.
    files: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    evaluations: tuple[str, ...] = ()  # names for several validation (or test) files, in order
    # Whether a model's record says if texts are pairs; otherwise `text_pair` is read if there is one.
    is_recorded: bool = False
    # Fields with other values for the same data on the Hub, whose columns and classes differ.
    hub: Mapping[str, Any] = field(default_factory=dict)

    options: ClassVar[tuple[str, ...]] = ("encoding", "text_column", "label_column")
    """The fields that a user may set."""
    reads_conll: ClassVar[bool] = False

    def read(self, source: DataSource) -> list[E]:
        """Read labelled examples to be measured on, with the settings that they imply, see `settled`."""
        rows = self.rows(source, labelled=True)
        return self.settled(rows).examples(rows, labelled=True)

    def rows(self, source: DataSource, labelled: bool) -> list[DataRow]:
        """Read the rows of a file; columns may be missing in some rows."""
        if isinstance(source, GivenData):
            rows = given_rows(source, self)
        else:
            rows = read_data(
                source,
                self.file_columns,
                self.encoding,
                self.skip_broken_rows,
                conll=self.reads_conll,
                class_names=not self.has_class_numbers,
                literal_quotes=self.is_published(source),
            )
        check_columns(rows, self.columns(labelled))
        return rows

    def is_published(self, source: DataSource) -> bool:
        """Whether a file has the name of one of the benchmark's; quotes in those are part of the text."""
        names = [f"{pattern}{ending}" for group in self.files.values() for pattern in group for ending in ("", ".gz")]
        return isinstance(source, (str, Path)) and any(map(Path(source).match, names))

    @property
    def may_read_pairs(self) -> bool:
        """Whether it reads pairs of texts, or reads them if the data has them: no model says which."""
        by_data = not self.is_recorded and self.text_column == "text" and "text_pair_column" in self.options
        return self.text_pair_column is not None or by_data

    @property
    def text_columns(self) -> list[str]:
        """The columns of its texts: one, or two for pairs."""
        return [self.text_column, *([self.text_pair_column] if self.text_pair_column else [])]

    def columns(self, labelled: bool) -> dict[str, str]:
        """The columns to read, with the setting that names each; label columns only for labelled data."""
        found: dict[str, str] = {}
        for option in self.options:
            if option.endswith(("_column", "_columns")) and (labelled or not option.startswith("label_")):
                names = getattr(self, option) or ()
                found |= dict.fromkeys([names] if isinstance(names, str) else names, option)
        return found

    @property
    def has_class_numbers(self) -> bool:
        """Whether classes are numbers in the data files; class names on the Hub are then not used."""
        return False

    def has_label(self, row: DataRow) -> bool:
        return row.has(self.label_column)

    def is_empty(self, row: DataRow) -> bool:
        """Whether a row of labelled data has no text, or no label."""
        text = row.values.get(self.text_column)
        return not (str(text or "").strip() and self.has_label(row))

    def settled(self, rows: Sequence[DataRow]) -> Self:
        """The reader, with settings inferred from labelled data; ambiguous data is an error."""
        return self

    def examples(self, rows: Sequence[DataRow], labelled: bool) -> list[E]:
        """The examples of a file's rows; error messages name file and row."""
        return [self.example(row, labelled) for row in rows]

    @abstractmethod
    def example(self, row: DataRow, labelled: bool) -> E:
        """The example in a row, see `examples`."""

    def new_examples(self, rows: Sequence[DataRow]) -> list[E]:
        """The examples in rows of new data, which is not prepared for the task."""
        return [self.example(row, labelled=False) for row in rows]

    def training_examples(self, examples: Sequence[E], source: DataSource) -> Sequence[E]:
        """The training examples that can be trained on, at least one."""
        return examples

    @abstractmethod
    def texts_of(self, example: E) -> tuple[str, ...]:
        """The texts of an example."""

    def classes_of(self, example: E) -> tuple[str, ...]:
        """The classes of a labelled example, one for each of its labels; empty if there are no classes."""
        return ()

    def group_of(self, example: E) -> Any:
        """A key shared by examples that must not be separated when data is split: by default their texts."""
        return self.texts_of(example)
