"""The order of unnamed classes is unknown."""

import pytest

from mybert.metrics import GOOGLE_LABELS, HUB_LABELS, google_row_order, has_unnamed_labels, require_named_labels

UNNAMED = {0: "LABEL_0", 1: "LABEL_1", 2: "LABEL_2"}


def test_orders_differ_by_order_alone():
    assert set(GOOGLE_LABELS) == {"cola", "mnli", "mrpc", "xnli"}
    for task, names in HUB_LABELS.items():
        assert sorted(names) == sorted(GOOGLE_LABELS[task])
        assert names != GOOGLE_LABELS[task]


@pytest.mark.parametrize(
    ("names", "unnamed"),
    [(UNNAMED.values(), True), (("LABEL_0", "no"), False), (("0", "1"), False), ((), False), (("LABEL_a",), False)],
)
def test_which_names_are_none(names, unnamed):
    assert has_unnamed_labels([*names]) is unnamed


def test_unnamed_classes_are_refused_where_orders_differ():
    with pytest.raises(ValueError, match=r"some/model .*LABEL_0.*contradiction, entail.*id2label") as error:
        require_named_labels("some/model", "mnli", UNNAMED)
    assert len(str(error.value)) < 500
    require_named_labels("some/model", "mnli", dict(enumerate(HUB_LABELS["mnli"])))
    require_named_labels("some/model", "mrpc", {0: "LABEL_0", 1: "LABEL_1"})
    require_named_labels("some/model", None, UNNAMED)
    require_named_labels("some/model", "mnli", {0: "LABEL_0", 1: "LABEL_1"})  # an encoder's default


@pytest.mark.parametrize(
    ("names", "rows"),
    [
        (["entailment", "neutral", "contradiction"], [2, 0, 1]),  # Google's: contradiction, entailment, neutral
        (["Neutral", "Contradiction", "ENTAILMENT"], [1, 2, 0]),
        (["entailment", "neutral"], None),
        (["good", "bad"], None),
    ],
)
def test_google_row_order_finds_the_rows_of_googles_classes(names, rows):
    assert google_row_order(names) == rows
