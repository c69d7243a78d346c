"""Selecting training and held-out examples."""

import warnings
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal, TypeVar

import numpy as np

from ...files.options import AT_LEAST_1, Group, Range, option
from ...modeling_mybert import IGNORE_INDEX
from ..tasks.task import WINDOW_WEIGHT, Task, TaskData

E = TypeVar("E")

_PART = Range("a share in (0, 1), or 0 for none", lambda value: 0 <= value < 1)
_SEVERAL = Range("at least 2, or 0 for none", lambda value: value == 0 or value >= 2)


@dataclass(kw_only=True)
class SampleSettings:
    """Settings for selecting and weighting examples; results depend only on the data and the seed."""

    group = Group.EXAMPLES
    decides = True
    validation_split: float = option(
        0.0,
        "Share of the training data, in (0, 1), to hold out as validation data, drawn by the seed, stratified by "
        "class. For data without a validation file.",
        _PART,
        excludes="validation_file",
    )
    folds: int = option(
        0,
        "Cross-validation: this many trainings, each evaluated on a different part of the training data, and a last "
        "one on all of it.",
        _SEVERAL,
        excludes="validation_file validation_split seeds features=all save_strategy=best",
        why="where each part is the validation data in turn, and must not choose a checkpoint",
    )
    max_train_samples: int | None = option(
        None, "Train on only this many examples, drawn by the seed, stratified by class.", AT_LEAST_1
    )
    skip_empty: bool = option(False, "Leave out training and validation rows without text or label, and log how many.")
    class_weights: Literal["balanced"] | None = option(
        None, "'balanced': weight the loss so that every class counts the same, however rare.", group=Group.TRAINING
    )
    early_stopping_patience: int | None = option(
        None,
        "Stop after this many evaluations in which the main metric does not improve.",
        AT_LEAST_1,
        group=Group.RECORDS,
        idle_with="folds",
    )


def split_off(task: Task, examples: Sequence[E], share: float, seed: int) -> tuple[list[E], list[E]]:
    """Hold out a fraction, in (0, 1), of examples, stratified if each has one class; returns both sides in order."""
    # Examples that belong together (equal texts, questions on one text) are not separated, and count as one.
    groups = _groups(task, examples)
    firsts = [examples[numbers[0]] for numbers in groups]
    what = "examples" if len(groups) == len(examples) else "different texts"
    count = max(round(share * len(groups)), min(1, round(share * len(examples))))  # few texts, each many times
    drawn = _drawn(len(groups), count, _strata(task, firsts), seed, what)
    places = {number for group in drawn for number in groups[group]}
    kept = [example for number, example in enumerate(examples) if number not in places]
    return kept, [example for number, example in enumerate(examples) if number in places]


def equal_texts_line(task: Task, examples: Sequence[Any]) -> str:
    """A message about texts that occur several times; "" if there are none."""
    counts = Counter((task.group_of(example), task.texts_of(example)) for example in examples)
    several = sum(count for count in counts.values() if count > 1)
    if not several:
        return ""
    return (
        f"{several:,} of {len(examples):,} training examples have a text that occurs several times; equal texts are "
        "kept together, so that none is both trained and measured on."
    )


def sample(task: Task, examples: Sequence[E], count: int, seed: int) -> list[E]:
    """Draw a stratified sample of examples, in their order; all of them if there are no more."""
    if count >= len(examples):
        return list(examples)
    return [examples[place] for place in _drawn(len(examples), count, _strata(task, examples), seed, "examples")]


def fold_numbers(task: Task, examples: Sequence[E], folds: int, seed: int) -> list[int]:
    """The fold of each example, from 0; folds have equally many different texts, stratified as in `split_off`."""
    selection = _model_selection()
    groups = _groups(task, examples)
    count, strata = len(groups), _strata(task, [examples[numbers[0]] for numbers in groups])
    if count < folds:
        what = "examples or texts" if count == len(examples) else "different texts"
        raise ValueError(f"folds is {folds}, but there are only {count} {what}; expected at most that many.")
    if strata is not None and max(Counter(strata).values()) < folds:
        strata = None
    splitter = (selection.KFold if strata is None else selection.StratifiedKFold)(
        folds, shuffle=True, random_state=seed
    )
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "The least populated class", UserWarning)  # then only some folds have it
        numbers = np.zeros(len(examples), dtype=int)
        for number, (_, held_out) in enumerate(splitter.split(np.zeros(count), strata)):
            for group in held_out:
                numbers[groups[group]] = number
    return numbers.tolist()


def _groups(task: Task, examples: Sequence[Any]) -> list[list[int]]:
    """The indices of the examples of each group, see `Task.group_of`."""
    groups: dict[Any, list[int]] = {}
    for number, example in enumerate(examples):
        groups.setdefault(task.group_of(example), []).append(number)
    return list(groups.values())


def _strata(task: Task, examples: Sequence[Any]) -> list[str] | None:
    """The class of each example, if each has one."""
    classes = [task.classes_of(example) for example in examples]
    return [found[0] for found in classes] if all(len(found) == 1 for found in classes) else None


def _model_selection() -> Any:
    try:
        from sklearn import model_selection
    except ImportError as error:
        raise ImportError(f"Drawing examples needs scikit-learn: pip install mybert[train] ({error}).") from error
    return model_selection


def _drawn(total: int, count: int, strata: Sequence[str] | None, seed: int, what: str) -> list[int]:
    """Draw indices; not stratified if a class has one example, or if there are more classes than draws."""
    train_test_split = _model_selection().train_test_split
    if not 0 < count < total:
        raise ValueError(f"validation_split gives {count} of {total} {what}; expected at least one on each side.")
    places = list(range(total))
    if strata is not None:
        counts = Counter(strata)
        several = [place for place in places if counts[strata[place]] > 1]
        classes = {strata[place] for place in several}
        if len(classes) <= min(count, len(several) - count):
            _, drawn = train_test_split(
                several, test_size=count, random_state=seed, stratify=[strata[place] for place in several]
            )
            return sorted(drawn)
    return sorted(train_test_split(places, test_size=count, random_state=seed)[1])


def label_counts(data: TaskData, classes: int) -> np.ndarray:
    """The number of labels of each class, one per sequence or per token; windows of a text count as one label."""
    labels = np.concatenate([np.asarray(label).reshape(-1) for label in data.inputs["labels"]])
    shares = np.asarray(data.inputs.get(WINDOW_WEIGHT, np.ones(len(labels))))
    is_label = labels != IGNORE_INDEX
    return np.bincount(labels[is_label], shares[is_label], minlength=classes)
