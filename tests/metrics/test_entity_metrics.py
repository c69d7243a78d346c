"""Entity scores: hand-made spans of every scheme, and numbers frozen from seqeval 1.2.2 and conlleval.pl."""

import json
import random
from pathlib import Path

import pytest

from mybert import metrics

# Scores that seqeval gave for `random_sentences` below, strict where a scheme is named. conlleval.pl counts the same
# in the first two cases, IOB tags read leniently.
FROZEN = json.loads((Path(__file__).parent / "seqeval_scores.json").read_text())


def random_sentences(prefixes, suffix=False):
    """Broken and sound tag sequences with about 60 % agreement, the same on every run."""
    generator = random.Random(11)

    def draw(choices):
        return choices[int(generator.random() * len(choices))]

    def tag():
        prefix, kind = draw(prefixes), draw(["PER", "LOC", "A-B", ""])
        if prefix == "O" or not kind:
            return prefix
        return f"{kind}-{prefix}" if suffix else f"{prefix}-{kind}"

    references = [[tag() for _ in range(1 + int(generator.random() * 9))] for _ in range(300)]
    predictions = [[old if generator.random() < 0.6 else tag() for old in sentence] for sentence in references]
    return predictions, references


@pytest.mark.parametrize(
    ("tags", "spans"),
    [
        ("B-X I-X O B-Y", [("X", 0, 2), ("Y", 3, 4)]),
        ("I-X I-X B-X I-Y", [("X", 0, 2), ("X", 2, 3), ("Y", 3, 4)]),  # IOB1
        ("B-X I-X E-X S-X S-X B-X E-X", [("X", 0, 3), ("X", 3, 4), ("X", 4, 5), ("X", 5, 7)]),  # BIOES
        ("O I-X O E-X I-X", [("X", 1, 2), ("X", 3, 4), ("X", 4, 5)]),  # broken, read leniently
        ("B I O S", [("_", 0, 2), ("_", 3, 4)]),
        ("", []),
    ],
)
def test_lenient_spans(tags, spans):
    assert metrics.entity_spans(tags.split()) == spans


@pytest.mark.parametrize(
    ("scheme", "tags", "spans"),
    [
        ("IOB2", "B-X I-X I-Y I-X B-Y", [("X", 0, 2), ("Y", 4, 5)]),
        ("IOB1", "I-X I-X B-X I-X O B-X", [("X", 0, 2), ("X", 2, 4)]),
        ("IOBES", "B-X I-X E-X B-X I-X S-Y E-X B-X E-Y", [("X", 0, 3), ("Y", 5, 6)]),
        ("BILOU", "B-X I-X L-X U-Y L-Y", [("X", 0, 3), ("Y", 3, 4)]),
        ("IOE2", "I-X I-X E-X E-Y I-X", [("X", 0, 3), ("Y", 3, 4)]),
        ("IOE1", "I-X I-X E-X I-X O I-Y E-X", [("X", 0, 3), ("X", 3, 4), ("Y", 5, 6)]),
        ("IOE1", "I-X E-X O I-X I-Y", [("X", 3, 4), ("Y", 4, 5)]),  # E only where the next entity has the same type
    ],
)
def test_strict_spans_drop_broken_entities(scheme, tags, spans):
    assert metrics.entity_spans(tags.split(), scheme) == spans


def test_scores_by_hand():
    references = [["B-PER", "I-PER", "O", "B-LOC"], ["B-LOC", "O"]]
    predictions = [["B-PER", "I-PER", "O", "B-PER"], ["B-LOC", "B-LOC"]]
    assert metrics.entity_metrics(predictions, references) == {
        "LOC": {"precision": 0.5, "recall": 0.5, "f1": 0.5, "number": 2},
        "PER": {"precision": 0.5, "recall": 1.0, "f1": pytest.approx(2 / 3), "number": 1},
        "overall_precision": 0.5,
        "overall_recall": pytest.approx(2 / 3),
        "overall_f1": pytest.approx(4 / 7),
        "overall_accuracy": pytest.approx(4 / 6),
    }


def test_no_entity_at_all():
    scores = metrics.entity_metrics([["O", "O"]], [["O", "O"]])
    assert scores == {"overall_precision": 0.0, "overall_recall": 0.0, "overall_f1": 0.0, "overall_accuracy": 1.0}
    assert metrics.entity_metrics([["O"]], [["O"]], zero_division=1)["overall_f1"] == 1.0
    assert metrics.entity_metrics([["O"]], [["O"]], zero_division="warn")["overall_f1"] == 0.0


@pytest.mark.parametrize("case", FROZEN, ids=lambda case: f"{case['prefixes']}-{case['scheme']}-{case['suffix']}")
def test_frozen_scores(case):
    predictions, references = random_sentences(case["prefixes"], case["suffix"])
    mode = "strict" if case["scheme"] else "default"
    scores = metrics.entity_metrics(predictions, references, case["scheme"], mode, case["suffix"])
    assert scores == case["scores"]


def test_scheme_without_strict_mode_changes_nothing():
    predictions, references = random_sentences("OBIES")
    assert metrics.entity_metrics(predictions, references, "IOB2") == metrics.entity_metrics(predictions, references)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: metrics.entity_metrics([["O"]], [["O"], ["O"]]), "1 predicted and 2 true sentences"),
        (lambda: metrics.entity_metrics([["O"], ["O"]], [["O"], ["O", "O"]]), "sentence 1 has 1 predicted and 2 true"),
        (lambda: metrics.entity_metrics([[]], [[]]), "no word to score"),
        (lambda: metrics.entity_metrics([["O"]], [["O"]], mode="strict"), "needs a scheme, one of IOB1, IOE1"),
        (lambda: metrics.entity_metrics([["O"]], [["O"]], mode="loose"), "unknown mode 'loose'"),
        (lambda: metrics.entity_spans(["O"], "IOB3"), "unknown tagging scheme 'IOB3'"),
        (lambda: metrics.entity_spans(["S-PER"], "IOB2"), "tag 'S-PER' is not of the form 'B-PER' .* letters I, O, B"),
        (lambda: metrics.entity_spans(["PER"]), "tag 'PER' is not of the form 'B-PER'"),
        (lambda: metrics.entity_spans([""]), "tag '' is not of the form"),
        (lambda: metrics.entity_metrics([[3]], [[3]]), "tag 3 is not text; expected label names such as 'B-PER'"),
        (lambda: metrics.entity_spans([3]), "expected label names such as 'B-PER', not label numbers"),
    ],
)
def test_entity_metrics_wrong_inputs_are_errors(call, message):
    with pytest.raises(ValueError, match=message):
        call()


@pytest.mark.parametrize(
    ("tags", "place"),
    [
        (["B-PER", "O", "I-PER"], "first"),
        (["PER-B", "O"], "last"),
        (["B", "I", "O"], "first"),  # without a type both are possible
        (["U-ORG", "L-ORG"], "first"),
        (["NOUN", "VERB"], None),
        (["B-PER", "NOUN"], None),
    ],
)
def test_entity_letters_are_first_or_last(tags, place):
    assert metrics.entity_letters(tags) == place
