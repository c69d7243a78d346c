"""Entities in tagged sentences and their precision, recall and F1, as conlleval and seqeval count them."""

from __future__ import annotations

import operator
from collections import Counter
from collections.abc import Sequence, Sized
from dataclasses import dataclass
from numbers import Real
from typing import Any, Literal


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


def entity_spans(tags: Sequence[str], scheme: str | None = None, suffix: bool = False) -> list[tuple[str, int, int]]:
    """Entities of one tagged sentence: `(type, start, end)` in word positions, end exclusive, from left to right.

    Without a scheme, IOB1, IOB2 and BIOES are read leniently as conlleval and seqeval's default mode do: any tag of a
    new type opens an entity, closed or not. The entities that break a scheme are dropped as in seqeval's strict mode.
    A bare prefix has the type `"_"`; with `suffix` the prefix letter comes last (`"PER-B"`).
    """
    if not _is_list(tags):
        raise ValueError(f"the tags are {tags!r}: expected a list of them")
    if scheme is not None and scheme not in _SCHEMES:
        raise ValueError(f"unknown tagging scheme {scheme!r}, expected one of {', '.join(_SCHEMES)}")
    allowed = _SCHEMES[scheme].prefixes if scheme else "OBIES"
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
        raise ValueError(f"unknown mode {mode!r}, expected 'default' or 'strict'")
    if mode == "strict" and scheme is None:
        raise ValueError(f"mode='strict' needs a scheme, one of {', '.join(_SCHEMES)}")
    for name, sentences in (("predictions", predictions), ("references", references)):
        if not _is_list(sentences) or not all(map(_is_list, sentences)):
            raise ValueError(f"{name} are not lists of tags: expected one for each sentence")
    if len(predictions) != len(references):
        raise ValueError(f"found {len(predictions)} predicted and {len(references)} true sentences")
    strict_scheme = scheme if mode == "strict" else None
    if zero_division != "warn" and not (isinstance(zero_division, Real) and zero_division == zero_division):
        raise ValueError(f"zero_division is {zero_division!r}: expected a number or 'warn'")
    undefined = 0.0 if zero_division == "warn" else float(zero_division)

    equal_tags = words = 0
    predicted: Counter[str] = Counter()
    wanted: Counter[str] = Counter()
    correct: Counter[str] = Counter()
    for number, (predicted_tags, true_tags) in enumerate(zip(predictions, references, strict=True)):
        if len(predicted_tags) != len(true_tags):
            raise ValueError(f"sentence {number} has {len(predicted_tags)} predicted and {len(true_tags)} true tags")
        equal_tags += sum(map(operator.eq, predicted_tags, true_tags))
        words += len(true_tags)
        predicted_spans = set(entity_spans(predicted_tags, strict_scheme, suffix))
        true_spans = set(entity_spans(true_tags, strict_scheme, suffix))
        predicted.update(span[0] for span in predicted_spans)
        wanted.update(span[0] for span in true_spans)
        correct.update(span[0] for span in predicted_spans & true_spans)
    if not words:
        raise ValueError("no word to score: every sentence is empty")

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
        raise ValueError(f"tag {tag!r} is not text: expected label names such as 'B-PER', not label numbers")
    prefix, kind = (tag[-1:], tag[:-1]) if suffix else (tag[:1], tag[1:])
    if prefix not in tuple(allowed) or (kind and not (kind.endswith("-") if suffix else kind.startswith("-"))):
        example = "PER-B" if suffix else "B-PER"
        raise ValueError(f"tag {tag!r} is not of the form {example!r} with one of the letters {', '.join(allowed)}")
    kind = kind.strip("-") if scheme else kind[:-1] if suffix else kind[1:]
    return prefix, kind or "_"


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
