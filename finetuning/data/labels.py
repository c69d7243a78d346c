"""The classes of a task, and labels as text."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from transformers import PreTrainedConfig

from .rows import DataSource, in_one_line

LABEL_ARGUMENTS = ("labels", "start_positions", "end_positions")
"""The arguments of models that are labels."""

_LONGEST_NAME = 40  # characters of a name in messages
_TRUTH = {"True": "1", "False": "0", "true": "1", "false": "0"}  # as text tables write 1 and 0
_WITHOUT_NAME = re.compile(r"^LABEL_(\d+)$")  # transformers' names for unnamed classes
_WHOLE_NUMBER = re.compile(r"^(-?\d+)\.0+$")  # as tables write integers in a column with missing values


@dataclass(frozen=True)
class Labels:
    """The classes of a task, in the order of their ids."""

    names: tuple[str, ...]

    @classmethod
    def from_data(cls, values: Sequence[str], source: DataSource) -> Labels:
        """Find the classes of training data: numbers in numerical order, names in alphabetical order."""
        names = sorted(set(values), key=_natural_order)
        if len(names) < 2:
            raise ValueError(f"{source} has only one class ({', '.join(map(quoted, names))}); expected at least two.")
        return cls(tuple(names))

    @classmethod
    def from_config(cls, config: PreTrainedConfig) -> Labels:
        """The classes of a fine-tuned model; unnamed ones (LABEL_0) are named by their number."""
        names = [config.id2label[number] for number in range(config.num_labels)]
        return cls(tuple(_WITHOUT_NAME.sub(r"\1", name) for name in names))

    def ids(self, values: Sequence[str], source: DataSource) -> list[int]:
        """Ids of labels, given by name; by id if names are not numbers; true and false if the classes are 0 and 1."""
        index = {name: number for number, name in enumerate(self.names)}
        by_number = {str(number): number for number in range(len(self.names))}
        unknown = sorted({value for value in values if value not in index}, key=_natural_order)
        if unknown and not index.keys() & by_number.keys() and set(values) <= by_number.keys():
            return [by_number[value] for value in values]
        if unknown and set(self.names) == {"0", "1"} and set(values) <= _TRUTH.keys():
            return [index[_TRUTH[value]] for value in values]
        if unknown:
            known = ", ".join(map(quoted, self.names[:20])) + (", ..." if len(self.names) > 20 else "")
            raise ValueError(f"{source} has the label {quoted(unknown[0])}; expected one of {known}.")
        return [index[value] for value in values]


def listed(names: Sequence[str]) -> str:
    return ", ".join(map(_short, names[:5])) + (", ..." if len(names) > 5 else "")


def quoted(name: str) -> str:
    """A class name for messages, shortened: by mistake it may be a page of text."""
    return repr(_short(name))


def _short(name: str) -> str:
    return name if len(name) <= _LONGEST_NAME else f"{name[: _LONGEST_NAME - 3]}..."


def _natural_order(name: str) -> tuple[int, float, str]:
    try:
        number = float(name)
    except ValueError:
        number = math.nan
    return (0, number, name) if math.isfinite(number) else (1, 0.0, name)  # "nan" cannot be sorted among numbers


def label_name(value: Any) -> str:
    """A label as text in one line; equal numbers give equal text (1, 1.0, "1", "1.0", "LABEL_1")."""
    text = str(int(value)) if isinstance(value, bool) else in_one_line(str(value).strip())
    return _WHOLE_NUMBER.sub(r"\1", _WITHOUT_NAME.sub(r"\1", text))
