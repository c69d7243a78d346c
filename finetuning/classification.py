"""Classification and regression of sentences and pairs (paper, section 4.1): tables to data sets."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from torch.utils.data import Dataset
from transformers import PreTrainedTokenizerBase

from .tables import column, read_table
from .tasks import Task


@dataclass(frozen=True)
class Labels:
    """The classes of a task, in the order of their ids; none for regression."""

    names: tuple[str, ...]

    @classmethod
    def from_column(cls, values: Sequence[Any], path: str | Path) -> "Labels":
        """Find the classes of the training data: numbers in their order, names in alphabetical order.

        Raises:
            ValueError: If there is only one class.
        """
        names = sorted({str(value) for value in values}, key=_natural_order)
        if len(names) < 2:
            raise ValueError(f"{path} has one class only ({names[0]!r}); a classifier needs at least two.")
        return cls(tuple(names))

    def ids(self, values: Sequence[Any], path: str | Path) -> list[int]:
        """Ids of labels.

        Raises:
            ValueError: If a label is not one of the classes.
        """
        index = {name: number for number, name in enumerate(self.names)}
        unknown = sorted({str(value) for value in values} - set(index), key=_natural_order)
        if unknown:
            known = ", ".join(repr(name) for name in self.names)
            raise ValueError(f"{path} has labels that the training data lacks: {unknown[0]!r}; known are {known}.")
        return [index[str(value)] for value in values]


def load_examples(
    path: str | Path, task: Task, encoding: str = "utf-8", labelled: bool = True
) -> tuple[list[list[str]], list[Any] | None]:
    """Read the texts and labels of a table.

    Args:
        path: The file, see `read_table`.
        task: Says which columns.
        encoding: Encoding of the file.
        labelled: Whether to read labels.

    Returns:
        One list of sentences, or two for pairs; and the labels as they stand there, or, for regression, as numbers.

    Raises:
        OSError: If the file cannot be read.
        ValueError: If the file lacks a column, a label is empty, or a value is not a number.
    """
    rows = read_table(path, task.file_columns, encoding)
    texts = [[str(value) for value in column(rows, name, path)] for name in task.text_columns]
    if not labelled:
        return texts, None
    labels = column(rows, task.label_column, path)
    for number, label in enumerate(labels, start=1):
        if label is None or str(label).strip() == "":
            raise ValueError(f"{path} has no label in row {number}.")
    if not task.is_regression:
        return texts, labels
    try:
        return texts, [float(label) for label in labels]
    except ValueError as error:
        raise ValueError(f"{path} has a {task.label_column} that is not a number: {error}.") from error


class ClassificationDataset(Dataset):
    """Tokenized sentences or pairs, with labels if there are any.

    Args:
        texts: One list of sentences, or two of equal length.
        labels: Class ids or values; None where they are not known.
        tokenizer: The tokenizer.
        max_length: Longest sequence in tokens; of a pair the longer sentence is cut first.
    """

    def __init__(
        self,
        texts: list[list[str]],
        labels: Sequence[float] | None,
        tokenizer: PreTrainedTokenizerBase,
        max_length: int,
    ) -> None:
        self.encodings = tokenizer(*texts, truncation=True, max_length=max_length)
        self.labels = labels

    def __len__(self) -> int:
        return len(self.encodings["input_ids"])

    def __getitem__(self, index: int) -> dict[str, Any]:
        """`input_ids`, `token_type_ids`, `attention_mask` and, if there are labels, `labels` of an example."""
        example = {name: values[index] for name, values in self.encodings.items()}
        if self.labels is not None:
            example["labels"] = self.labels[index]
        return example


def _natural_order(name: str) -> tuple[int, float, str]:
    try:
        return (0, float(name), name)
    except ValueError:
        return (1, 0.0, name)
