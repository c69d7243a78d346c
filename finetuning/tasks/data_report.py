"""The report on a run's data before training: classes, lengths, an example, and warnings."""

import html
import logging
import re
import unicodedata
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from statistics import fmean, pstdev
from typing import Any

from transformers import PreTrainedTokenizerBase

from ...files.errors import SettingError, Wording, worded
from ...files.source import Source
from ...metrics.reports import shortened
from ...tokenization import unknown_warning
from ..data import MISSING, TaskData, joining_sign, quoted, sequences_of
from .steps import long_text_lines
from .task import Task

logger = logging.getLogger(__name__)

_COLUMNS = 80
_MAX_CLASSES, _MIN_CLASSES = 20, 3  # numbers of classes listed; the latter if each occurs once
_NUMBER = re.compile(r"-?\d+([.,]\d+)?")
_FEW_LABELS = 200  # texts a class, below which a linear probe may be better
_ONE_CLASS = 0.95  # fraction of one class above which a warning is logged
_DOUBTFUL, _TOO_MANY = 20, 50  # classes, of which most have one example: a warning above the first, else an error
_FLAGS = ("task", "label_column", "label_separator")  # named in warnings
_NO_LABEL = frozenset(("-", "?", "N/A", "n/a"))  # in data such as SNLI, where annotators disagree
_PIECES = re.compile(r"(?<!\S)(##\w|\[CLS\])")
_TOKENIZED = 0.1  # fraction of texts with pieces above which a warning is logged
_GRADES = range(3, 11)  # numbers of classes, from 1, that may be grades


def describe_data(
    task: Task,
    train: TaskData,
    validation: dict[str, TaskData],
    tokenizer: PreTrainedTokenizerBase,
    folds: int = 0,  # of cross-validation, or 0
) -> None:
    """Log a description of the data, and warnings."""
    lines = [*data_lines(task, train), *long_text_lines(task, len(train.examples), train.cut, train.windowed)]
    for name, data in validation.items():
        lines.append(f"Validation data{f' ({name})' if name else ''}: {len(data.examples):,} examples.")
        lines += long_text_lines(task, len(data.examples), data.cut, data.windowed)
    if folds:
        lines.append(
            f"Cross-validation: {folds} trainings, each evaluated on a different part, and one on all of the data."
        )
    elif not validation:
        lines.append(
            "There is no validation data, so nothing is measured; --validation_split 0.1 holds out a tenth of the "
            "training data."
        )
    for line in lines:
        logger.info("%s", line)
    for warning in filter(None, (unknown_share_warning(train, tokenizer), *data_warnings(task, train, validation))):
        logger.warning("%s", warning)


def texts_a_class(train: TaskData) -> float:
    """Training texts for each class; numbers count as one."""
    return len(train.examples) / max(1, len({name for example in train.examples for name in example.classes}))


def few_labels_line(train: TaskData) -> str:
    """An offer of other approaches for few labeled texts; "" for more."""
    labels = texts_a_class(train)
    if labels >= _FEW_LABELS or not any(example.classes for example in train.examples):
        return ""
    return (
        f"Few labels ({labels:.0f} texts a class): --approach contrastive or linear_probe may do better; "
        "--approach auto compares them by cross-validation."
    )


def data_lines(task: Task, data: TaskData) -> list[str]:
    """Count, classes, first example and lengths of training data, in lines of 80 columns."""
    examples = data.examples
    sequences = "" if len(data) == len(examples) else f" in {len(data):,} sequences"
    lines = [f"Training data: {len(examples):,} examples{sequences}."]
    counts = Counter(name for example in examples for name in example.classes)
    total = len(examples) if task.labels_rows else counts.total()
    if task.has_classes and task.labels_rows and not task.has_one_class:
        lines.append("Labels, in percent of the examples, each of which may have several:")
    width = min(max([len(name) for name in counts] + [5]), 40)
    listed = _MAX_CLASSES if counts and max(counts.values()) > 1 else _MIN_CLASSES
    for name, count in counts.most_common(listed):
        lines.append(f"  {shortened(name, width):<{width}}  {count:>9,}  {count / total:>6.1%}")
    if len(counts) > listed:
        lines.append(f"  and {len(counts) - listed:,} more of {len(counts):,} classes")
    lines += [*_value_lines(task, examples), *_grade_lines(task, counts)]
    if examples:
        classes = list(dict.fromkeys(examples[0].classes))
        lines.append("The first example" + (f" ({shortened(', '.join(classes), 40)}):" if classes else ":"))
        lines += [f"  {shortened(text, _COLUMNS - 2)}" for text in examples[0].texts]
    lengths = [max(map(len, sequences_of(row))) for row in data.inputs.get("input_ids", ())]
    if lengths:
        average = sum(lengths) / len(lengths)
        lines.append(
            f"Length: {average:.1f} tokens on average, {max(lengths)} at most (max_length {task.max_length})."
        )
    return lines


def _value_lines(task: Task, examples: Sequence[Any]) -> Iterable[str]:
    """The range and spread of the numbers of each column."""
    columns: dict[str, list[float]] = defaultdict(list)
    for example in examples:
        for name, value in example.numbers.items():
            columns[name or task.label_column].append(value)
    for name in filter(columns.get, task.columns(labeled=True)):
        values = columns[name]
        yield (
            f"Values in {name!r}: {min(values):g} to {max(values):g}, mean {fmean(values):.4g}, standard "
            f"deviation {pstdev(values):.4g}."
        )


def _grade_lines(task: Task, counts: Iterable[str]) -> Iterable[str]:
    """An offer of regression for classes that may be grades, such as 1 to 5 stars."""
    names = set(counts)
    is_counted = len(names) in _GRADES and names == {str(number + 1) for number in range(len(names))}
    if is_counted and _is_of_texts(task) and task.has_one_class:
        yield f"Are the classes 1 to {len(names)} grades, such as stars? Then their order counts:"
        yield f"  --task regression --label_column {task.label_column}"


def _is_of_texts(task: Task) -> bool:
    """Whether a task classifies texts of a user's own data."""
    return "label_separator" in task.options and not task.glue


def check_classes(task: Task, examples: Sequence[Any], source: Source) -> None:
    """Reject classes that are no labels: what programs write for a missing one, ids, texts, joined labels."""
    for example in examples if task.has_classes and not task.classes else ():
        if missing := next((name for name in example.classes if name in MISSING), None):
            raise SettingError.worded(
                "{}, row {}: {!r} as {}, which programs write for a missing value; leave it empty ({skip_empty=True} "
                "leaves such rows out)[, or pass {allow_unusual_labels=True} for a class of this name].",
                source,
                example.row,
                missing,
                task.label_column,
            )
    if warning := _single_examples(task, examples, _TOO_MANY):
        template = "{}: {}[, or pass {allow_unusual_labels=True} to learn them]."
        raise SettingError.worded(template, source, warning)


def _single_examples(task: Task, examples: Sequence[Any], least: int) -> Wording:
    """A message about more than `least` classes most of which have one example; "" if there are no such ones."""
    counts = Counter(name for example in examples for name in example.classes)
    single = sum(count == 1 for count in counts.values())
    if len(counts) <= least or single <= len(counts) / 2 or not task.labels_rows:
        return worded("")
    if getattr(task, "label_columns", ()) or task.classes or getattr(examples[0], "positions", None):
        return worded("")  # the classes are not found in the data
    column, is_of_texts = f"{task.label_column!r}", _is_of_texts(task)
    if is_of_texts and (sign := joining_sign(counts)):
        return _joined_labels(column, counts, sign)
    is_number = is_of_texts and task.has_one_class and all(map(_NUMBER.fullmatch, counts))
    question = "a number? For numbers use {task='regression'}; for" if is_number else "an id or a text? For"
    template = (
        "{:,} classes in {}, {:,} of them with one example, for {:,} examples: is this "
        + question
        + " labels choose another column with {label_column}"
    )
    return worded(template, len(counts), column, single, len(examples))


def _joined_labels(column: str, counts: Iterable[str], sign: str) -> Wording:
    names = list(counts)
    joined = [name for name in names if sign in name]
    template = (
        "{:,} of {:,} classes in {} look like several labels joined by {!r}, as {}; if they are, use "
        "{task='multilabel'} with {label_separator} {!r}"
    )
    return worded(template, len(joined), len(names), column, sign, quoted(joined[0]), sign)


def data_warnings(task: Task, train: TaskData, validation: dict[str, TaskData]) -> list[str]:
    """Warnings: suspicious classes, a single dominant class, similar class names, duplicate texts."""
    return [
        *_class_warnings(task, train.examples),
        *_text_warnings(train.examples),
        *_leaks(train.examples, validation.values()),
        *_lone_classes(task, train.examples, validation),
    ]


def unknown_share_warning(data: TaskData, tokenizer: PreTrainedTokenizerBase) -> str:
    """A warning about data of which many tokens are unknown, see `unknown_warning`; special tokens do not count."""
    counts: Counter[int] = Counter()
    for ids in data.inputs.get("input_ids", ()):
        for sequence in sequences_of(ids):
            counts.update(sequence)
    tokens = counts.total() - sum(counts[number] for number in {*tokenizer.all_special_ids})
    unknown = counts[tokenizer.unk_token_id]
    advice = "Begin with a model of it, or add its characters with mybert adapt."
    return unknown_warning(unknown, tokens + unknown, advice)


def _class_warnings(task: Task, examples: Sequence[Any]) -> Iterable[str]:
    found = [example.classes for example in examples]
    counts = Counter(name for names in found for name in names)
    if not counts:
        return
    single = sum(count == 1 for count in counts.values())
    column = f"{task.label_column!r}"
    if _is_of_texts(task) and (sign := joining_sign(counts)):
        yield f"{_joined_labels(column, counts, sign).for_flags(_FLAGS)}."
    elif warning := _single_examples(task, examples, _DOUBTFUL):
        yield f"{warning.for_flags(_FLAGS)}."
    elif single:
        yield f"{single} of {len(counts)} classes in {column} have a single example, too few to learn and evaluate."
    name, count = counts.most_common(1)[0]
    if len(counts) > 1 and all(len(names) == 1 for names in found) and count > _ONE_CLASS * counts.total():
        yield (
            f"{count / counts.total():.1%} of the examples are of class {shortened(name, 40)!r}; always predicting "
            "it would be right as often. Look at macro_f1; --class_weights balanced makes rare classes count."
        )
    if task.labels_rows:
        for name in _unlabeled(counts):
            yield (
                f"{counts[name]:,} examples are of class {name!r}, which means 'no label' in some data; if it does "
                "here, leave the label empty and pass --skip_empty."
            )
        if name := next((name for name in counts if len(name) > 2 and name[0] == name[-1] == '"'), None):
            yield f"The class {quoted(name)} is in quotes; in CSV, they are around the whole cell, without a space."
    alike: dict[str, list[str]] = defaultdict(list)
    for name in counts:
        alike[_look(name)].append(name)
    for names in alike.values():
        if len(names) > 1:
            yield f"The classes {' and '.join(map(quoted, names[:3]))} look alike; are they the same class?"


def _look(name: str) -> str:
    """A class's name without what readers overlook: capitals, invisible signs, HTML's entities, leading zeros."""
    text = unicodedata.normalize("NFKC", html.unescape(name)).casefold()
    text = " ".join("".join(sign for sign in text if unicodedata.category(sign) != "Cf").split())
    return str(float(text.replace(",", "."))) if _NUMBER.fullmatch(text) else text


def _unlabeled(names: Iterable[str]) -> list[str]:
    """The classes that seem to mean that there is no label: SNLI's -, or -1 next to 0, 1, 2 as on the Hub."""
    names = set(names)
    has_words = any(map(str.isalpha, "".join(names - _NO_LABEL)))
    negative = [name for name in names if name[0] == "-" and name[1:].isdigit()]
    return sorted(
        (names & _NO_LABEL if has_words else set()) | {*(negative if negative == ["-1"] and "2" in names else ())}
    )


def _text_warnings(examples: Sequence[Any]) -> Iterable[str]:
    empty = sum(not all(text.strip() for text in example.texts) for example in examples)
    if empty:
        yield f"{empty:,} of {len(examples):,} training examples have an empty text."
    if examples and all(_NUMBER.fullmatch(text) for example in examples for text in example.texts):
        yield "All training texts are numbers; are they ids? --text_column names the column of the texts."
    written = Counter(text for example in examples for text in example.texts if text in MISSING)
    if written:
        names = " or ".join(written)
        yield f"{written.total():,} training texts are {names}, which programs write for a missing value."
    pieces = sum(any(map(_PIECES.search, example.texts)) for example in examples)
    if pieces > _TOKENIZED * len(examples):
        yield (
            f"{pieces:,} of {len(examples):,} training examples have pieces such as ##ing or [CLS], as tokenizers "
            "write them; they are read as text: begin with the text itself."
        )
    classes: dict[tuple[str, ...], set[tuple[str, ...]]] = defaultdict(set)
    for example in examples:
        if example.classes:
            classes[example.texts].add(tuple(example.classes))
    if several := sum(len(found) > 1 for found in classes.values()):
        which = "One text appears" if several == 1 else f"{several:,} texts appear"
        yield f"{which} in the training data with different labels."


def _leaks(examples: Sequence[Any], validation: Iterable[TaskData]) -> Iterable[str]:
    known = {example.texts for example in examples}
    for data in validation:
        if both := sum(example.texts in known for example in data.examples):
            yield (
                f"{both:,} of {len(data.examples):,} validation examples are in the training data as well, so scores "
                "on them will be better than on new texts."
            )


def _lone_classes(task: Task, examples: Sequence[Any], validation: dict[str, TaskData]) -> Iterable[str]:
    """Warnings of validation data with one class only, as the first rows of a sorted file have."""
    if not task.labels_rows or len({name for example in examples for name in example.classes}) < 2:
        return
    for name, data in validation.items():
        classes = {each for example in data.examples for each in example.classes}
        if len(classes) == 1 and len(data.examples) > 1:
            what = f"All {len(data.examples):,} validation examples{f' ({name})' if name else ''}"
            yield f"{what} are of class {quoted(*classes)}; scores on them say nothing about the others."
