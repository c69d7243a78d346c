"""Precision, recall and F1 class by class, which classes are confused, and entities in tagged sentences.

Entities are counted as conlleval and seqeval count them.
"""

from __future__ import annotations

import operator
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence, Sized
from contextlib import suppress
from dataclasses import dataclass, field, replace
from itertools import product
from numbers import Real
from typing import Any, Literal

import numpy as np

_COLUMNS = ("precision", "recall", "f1", "support")
_WIDEST = 40  # characters of a class name in the table
_OUTSIDE = "O"
_MAX_LISTED = 10  # number of confusions that the table lists


@dataclass(frozen=True)
class ClassReport:
    """Results class by class.

    Attributes:
        counted: What is counted: "texts", "labels", "words" or "entities".
        classes: For each class `precision`, `recall` and `f1` in [0, 1], 0 where they are undefined, and `support`,
            the number of true examples.
        averages: "micro" (over all), "macro" (the mean over the classes that are true or predicted somewhere) and
            "weighted" (the mean by support), each with the same three.
        confusion: Counts by (true class, predicted class), without zeros; empty if an example may have several labels.
        confused_classes: The classes of `confusion`, in order.
        confused: What `confusion` counts.
    """

    counted: str
    classes: Mapping[str, Mapping[str, float]]
    averages: Mapping[str, Mapping[str, float]]
    confusion: Mapping[tuple[str, str], int] = field(default_factory=dict)
    confused_classes: Sequence[str] = ()
    confused: str = ""

    def as_json(self) -> dict[str, Any]:
        """The report as JSON values; `confusion_matrix` is true class -> predicted class -> count, without zeros."""
        found: dict[str, Any] = {
            "counted": self.counted,
            "classes": {name: dict(values) for name, values in self.classes.items()},
            "averages": {name: dict(values) for name, values in self.averages.items()},
        }
        if self.confusion:
            matrix: dict[str, dict[str, int]] = {}
            for true, predicted in product(self.confused_classes, repeat=2):
                if count := self.confusion.get((true, predicted)):
                    matrix.setdefault(true, {})[predicted] = count
            found |= {"confusion_matrix_of": self.confused, "confusion_matrix": matrix}
        return found

    def mistakes(self) -> list[tuple[str, str, int]]:
        """True class, predicted class and count of each confusion, the most frequent first."""
        wrong = [(*pair, count) for pair, count in self.confusion.items() if pair[0] != pair[1]]
        return sorted(wrong, key=lambda item: -item[2])

    def lines(self) -> list[str]:
        """The report as a table of 80 columns, with the most frequent mistakes below it."""
        names = [*self.classes, *self.averages]
        width = min(max(map(len, [*names, "class"])), _WIDEST)
        lines = [f"{'class':<{width}}" + "".join(f"{name:>11}" for name in _COLUMNS)]
        for rows in (self.classes, self.averages):
            for name, values in rows.items():
                shares = "".join(f"{values[column]:>11.3f}" for column in _COLUMNS[:3])
                support = f"{values['support']:>11,}" if "support" in values else ""
                lines.append(f"{shortened(name, width):<{width}}{shares}{support}")
            lines.append("")
        if mistakes := self.mistakes()[:_MAX_LISTED]:
            lines.append(f"Most frequent mistakes ({self.confused}):")
            digits = len(f"{mistakes[0][2]:,}")
            width = min(max(len(true) for true, _, _ in mistakes), 30)
            lines += [
                f"  {count:>{digits},}  {shortened(true, width):<{width}}  taken for  {shortened(predicted, 30)}"
                for true, predicted, count in mistakes
            ]
        return lines if lines[-1] else lines[:-1]


def class_report(
    predictions: Sequence[str], references: Sequence[str], classes: Sequence[str], counted: str = "texts"
) -> ClassReport:
    """The report of single-label predictions.

    Args:
        predictions: Predicted class of each text or word.
        references: True class of each.
        classes: All classes, in the order of the report; those that do not occur are omitted.
        counted: What has a class, such as "texts".

    Raises:
        ValueError: If there are not as many predictions as references, or none.
    """
    confusion = Counter(zip(references, predictions, strict=True))
    if not confusion:
        raise ValueError("no example to score: predictions and references are empty.")
    predicted, wanted = Counter(predictions), Counter(references)
    there = [name for name in classes if predicted[name] or wanted[name]]
    counts = {name: (confusion[name, name], predicted[name], wanted[name]) for name in there}
    return replace(_report(counted, counts), confusion=confusion, confused_classes=there, confused=counted)


def several_labels_report(
    predictions: Sequence[Iterable[str]], references: Sequence[Iterable[str]], classes: Sequence[str]
) -> ClassReport:
    """The report of multi-label predictions.

    Args:
        predictions: Predicted labels of each text.
        references: True labels of each text.
        classes: All labels, in the order of the report; those that do not occur are omitted.

    Raises:
        ValueError: If there are not as many predictions as references.
    """
    pairs = [(set(left), set(right)) for left, right in zip(predictions, references, strict=True)]
    right = Counter(name for left, true in pairs for name in left & true)
    predicted = Counter(name for left, _ in pairs for name in left)
    wanted = Counter(name for _, true in pairs for name in true)
    there = [name for name in classes if predicted[name] or wanted[name]]
    return _report("labels", {name: (right[name], predicted[name], wanted[name]) for name in there})


def entity_report(
    predictions: Sequence[Sequence[str]], references: Sequence[Sequence[str]], suffix: bool = False
) -> ClassReport:
    """The report of tagged entities by their types, as seqeval and conlleval count them.

    Its `confusion` counts words by the entity type of their tag, `O` for none.

    Args:
        predictions: Tags of each sentence.
        references: The same shape.
        suffix: Whether the letter comes last (`"PER-B"`).

    Raises:
        ValueError: As `entity_metrics`.
    """
    found = entity_metrics(predictions, references, suffix=suffix)
    rows = {
        name: {column: scores[column] for column in _COLUMNS[:3]} | {"support": scores["number"]}
        for name, scores in found.items()
        if isinstance(scores, dict)
    }
    micro = {column: found[f"overall_{column}"] for column in _COLUMNS[:3]}
    predicted, wanted = (
        [_type(tag, suffix) for sentence in side for tag in sentence] for side in (predictions, references)
    )
    words = Counter(zip(wanted, predicted, strict=True))
    names = [*sorted({*wanted, *predicted} - {_OUTSIDE}), _OUTSIDE]
    return ClassReport("entities", rows, {"micro": micro} | _means(rows), words, names, "words")


def _type(tag: str, suffix: bool) -> str:
    return tag if tag == _OUTSIDE else _parse_tag(tag, _LENIENT, suffix, None)[1]


def _report(counted: str, counts: Mapping[str, tuple[int, int, int]]) -> ClassReport:
    """Return the report from counts of correct, predicted and true items by class."""
    rows = {name: precision_recall_f1(*found) | {"support": found[2]} for name, found in counts.items()}
    micro = precision_recall_f1(*map(sum, zip((0, 0, 0), *counts.values(), strict=True)))
    return ClassReport(counted, rows, {"micro": micro} | _means(rows))


def _means(rows: Mapping[str, Mapping[str, float]]) -> dict[str, dict[str, float]]:
    if not rows:
        return {}
    support = np.array([values["support"] for values in rows.values()], dtype=np.float64)
    weights = support if support.any() else None
    columns = {column: [values[column] for values in rows.values()] for column in _COLUMNS[:3]}
    return {
        "macro": {column: float(np.mean(values)) for column, values in columns.items()},
        "weighted": {column: float(np.average(values, weights=weights)) for column, values in columns.items()},
    }


def shortened(text: str, width: int) -> str:
    """Return a text on one line, truncated to so many characters."""
    text = " ".join(text.split())
    return text if len(text) <= width else f"{text[: width - 3]}..."


# Entities


@dataclass(frozen=True)
class _Scheme:
    """Strict tagging scheme: which prefixes exist, and which pairs of tags start, continue and end an entity."""

    # A pair is three characters: previous prefix, current prefix (`?` is any), and `=` same type, `!` another, `*`
    # either. These are the tables of seqeval's schemes, so that scores are equal on broken sequences as well.
    prefixes: str
    start: str
    inside: str
    end: str


_SCHEMES = {
    "IOB1": _Scheme("IOB", "OI* II! BI* IB= BB=", "BI= II=", "II! IO* IB* BO* BI! BB="),
    "IOE1": _Scheme("IOE", "OI* II! EI* EE=", "II= IE=", "II! IO* IE! EI= EE="),
    "IOB2": _Scheme("IOB", "?B*", "BI= II=", "??*"),
    "IOE2": _Scheme("IOE", "OI* OE* EI* EE* II! IE!", "IE= II=", "E?*"),
    "IOBES": _Scheme("IOBES", "?B* ?S*", "BI= BE= II= IE=", "S?* E?*"),
    "BILOU": _Scheme("BILOU", "?B* ?U*", "BI= BL= II= IL=", "U?* L?*"),
}
_SCHEMES["BIOES"] = _SCHEMES["IOBES"]


_LENIENT = "OBIESLUM"  # letters without a scheme
_AS_BIOES = {"L": "E", "U": "S", "M": "I"}


def entity_letters(tags: Iterable[str]) -> Literal["first", "last"] | None:
    """Where the letters of entity tags are (`"B-PER"`, `"PER-B"`), whatever the scheme; None for other tags."""
    tags = list(tags)
    with suppress(ValueError):
        entity_spans(tags)
        return "first"
    with suppress(ValueError):
        entity_spans(tags, suffix=True)
        return "last"
    return None


def entity_spans(tags: Sequence[str], scheme: str | None = None, suffix: bool = False) -> list[tuple[str, int, int]]:
    """Entities of one tagged sentence: `(type, start, end)` in word positions, end exclusive, from left to right.

    Without a scheme, IOB1, IOB2 and BIOES are read leniently as conlleval and seqeval's default mode do: any tag of a
    new type opens an entity, closed or not; BILOU and BMES are read as BIOES. The entities that break a scheme are
    dropped as in seqeval's strict mode. A bare prefix has the type `"_"`; with `suffix` the prefix letter comes last
    (`"PER-B"`).
    """
    if not _is_list(tags):
        raise ValueError(f"the tags are {tags!r}; expected a list of them.")
    if scheme is not None and scheme not in _SCHEMES:
        raise ValueError(f"unknown tagging scheme {scheme!r}; expected one of {', '.join(_SCHEMES)}.")
    allowed = _SCHEMES[scheme].prefixes if scheme else _LENIENT
    parsed = [_parse_tag(tag, allowed, suffix, scheme) for tag in tags]
    return _strict_spans(parsed, _SCHEMES[scheme]) if scheme else _lenient_spans(parsed)


def entity_metrics(
    predictions: Sequence[Sequence[str]],
    references: Sequence[Sequence[str]],
    scheme: str | None = None,
    mode: str | None = None,
    suffix: bool = False,
    zero_division: float | Literal["warn"] = 0.0,
) -> dict[str, Any]:
    """Precision, recall and F1 of whole entities; equal to conlleval (lenient) and to seqeval (both modes).

    Args:
        predictions: Tags of each sentence.
        references: The same shape.
        scheme: Tagging scheme, IOB1, IOE1, IOB2, IOE2, IOBES (= BIOES) or BILOU; required by `mode="strict"` and
            ignored otherwise.
        mode: None or `"default"` is lenient; `"strict"` drops entities that break `scheme`.
        suffix: Whether the prefix letter comes last (`"PER-B"`).
        zero_division: Value of precision without a predicted entity and of recall without a true one; `"warn"`,
            seqeval's default, is 0.

    Returns:
        `overall_precision`, `overall_recall`, `overall_f1` over all entities, `overall_accuracy` over tags, and under
        each entity type `{"precision", "recall", "f1", "number"}` with the number of true entities.

    Raises:
        ValueError: Lengths differ, there are no words, a sentence is not a list, a tag does not belong to the scheme,
            or `mode` and `scheme` do not fit.
    """
    if mode not in (None, "default", "strict"):
        raise ValueError(f"unknown mode {mode!r}; expected 'default' or 'strict'.")
    if mode == "strict" and scheme is None:
        raise ValueError(f"mode='strict' needs a scheme, one of {', '.join(_SCHEMES)}.")
    for name, sentences in (("predictions", predictions), ("references", references)):
        if not _is_list(sentences) or not all(map(_is_list, sentences)):
            raise ValueError(f"{name} are not lists of tags; expected one for each sentence.")
    if len(predictions) != len(references):
        raise ValueError(f"found {len(predictions)} predicted and {len(references)} true sentences.")
    strict_scheme = scheme if mode == "strict" else None
    if zero_division != "warn" and not (isinstance(zero_division, Real) and zero_division == zero_division):
        raise ValueError(f"zero_division is {zero_division!r}; expected a number or 'warn'.")
    undefined = 0.0 if zero_division == "warn" else float(zero_division)

    equal_tags = words = 0
    predicted: Counter[str] = Counter()
    wanted: Counter[str] = Counter()
    correct: Counter[str] = Counter()
    for number, (predicted_tags, true_tags) in enumerate(zip(predictions, references, strict=True)):
        if len(predicted_tags) != len(true_tags):
            raise ValueError(f"sentence {number} has {len(predicted_tags)} predicted and {len(true_tags)} true tags.")
        equal_tags += sum(map(operator.eq, predicted_tags, true_tags))
        words += len(true_tags)
        predicted_spans = set(entity_spans(predicted_tags, strict_scheme, suffix))
        true_spans = set(entity_spans(true_tags, strict_scheme, suffix))
        predicted.update(span[0] for span in predicted_spans)
        wanted.update(span[0] for span in true_spans)
        correct.update(span[0] for span in predicted_spans & true_spans)
    if not words:
        raise ValueError("no word to score: every sentence is empty.")

    result: dict[str, Any] = {}
    for name in sorted(predicted.keys() | wanted.keys()):
        scores = precision_recall_f1(correct[name], predicted[name], wanted[name], undefined)
        result[name] = {**scores, "number": wanted[name]}
    overall = precision_recall_f1(correct.total(), predicted.total(), wanted.total(), undefined)
    result.update({f"overall_{key}": value for key, value in overall.items()})
    result["overall_accuracy"] = equal_tags / words
    return result


def _is_list(value: Any) -> bool:
    return isinstance(value, Sized) and not isinstance(value, str)


def _parse_tag(tag: str, allowed: str, suffix: bool, scheme: str | None) -> tuple[str, str]:
    """Return prefix letter and type of a tag."""
    if not isinstance(tag, str):
        raise ValueError(f"tag {tag!r} is not text; expected label names such as 'B-PER', not label numbers.")
    prefix, kind = (tag[-1:], tag[:-1]) if suffix else (tag[:1], tag[1:])
    if prefix not in tuple(allowed) or (kind and not (kind.endswith("-") if suffix else kind.startswith("-"))):
        example = "PER-B" if suffix else "B-PER"
        raise ValueError(f"tag {tag!r} is not of the form {example!r} with one of the letters {', '.join(allowed)}.")
    kind = kind.strip("-") if scheme else kind[:-1] if suffix else kind[1:]
    return prefix if scheme else _AS_BIOES.get(prefix, prefix), kind or "_"


def _lenient_spans(tags: Sequence[tuple[str, str]]) -> list[tuple[str, int, int]]:
    spans: list[tuple[str, int, int]] = []
    start = 0
    before, kind_before = "O", "_"
    for position, (prefix, kind) in enumerate([*tags, ("O", "_")]):
        changed = kind != kind_before
        if before in "ES" or (before in "BI" and (prefix in "BSO" or changed)):
            spans.append((kind_before, start, position))
        if prefix in "BS" or (prefix in "IE" and (before in "ESO" or changed)):
            start = position
        before, kind_before = prefix, kind
    return spans


def _strict_spans(tags: Sequence[tuple[str, str]], scheme: _Scheme) -> list[tuple[str, int, int]]:
    outside = ("O", "_")
    tags = [*tags, outside]

    def fits(table: str, before: tuple[str, str], now: tuple[str, str]) -> bool:
        same = "=" if before[1] == now[1] else "!"
        return any(
            row[0] in ("?", before[0]) and row[1] in ("?", now[0]) and row[2] in ("*", same) for row in table.split()
        )

    spans: list[tuple[str, int, int]] = []
    position, before = 0, outside
    while position < len(tags):
        end = position + 1
        if fits(scheme.start, before, tags[position]):
            while fits(scheme.inside, tags[end - 1], tags[end]):
                end += 1
            if fits(scheme.end, tags[end - 1], tags[end]):
                spans.append((tags[position][1], position, end))
        before, position = tags[end - 1], end
    return spans


def precision_recall_f1(correct: int, predicted: int, wanted: int, undefined: float = 0.0) -> dict[str, float]:
    """Return the three scores from counts; `undefined` is precision or recall without a predicted or true one."""
    precision = correct / predicted if predicted else undefined
    recall = correct / wanted if wanted else undefined
    total = precision + recall
    return {"precision": precision, "recall": recall, "f1": 2 * precision * recall / total if total else 0.0}
