import numpy as np
import pytest
from sklearn.metrics import confusion_matrix, precision_recall_fscore_support

from mybert.metrics import ClassReport, class_report, entity_metrics, entity_report, several_labels_report

NAMES = ["bad", "good", "so so", "never"]
RNG = np.random.default_rng(0)
TRUE = [NAMES[n] for n in RNG.integers(0, 3, 200)]
PREDICTED = [NAMES[RNG.integers(0, 3)] if RNG.random() < 0.4 else name for name in TRUE]
COLUMNS = ("precision", "recall", "f1")


def assert_as_scikit_learn(report, predicted, true, labels):
    reference = np.stack(precision_recall_fscore_support(true, predicted, labels=labels, zero_division=0))
    found = [[values[column] for column in (*COLUMNS, "support")] for values in report.classes.values()]
    np.testing.assert_allclose(np.transpose(found), reference)
    for average, values in report.averages.items():
        reference = precision_recall_fscore_support(true, predicted, labels=labels, zero_division=0, average=average)
        assert [values[column] for column in COLUMNS] == pytest.approx(reference[:3])


def test_classes_are_scored_as_scikit_learn_scores_them():
    report = class_report(PREDICTED, TRUE, NAMES)
    assert list(report.classes) == NAMES[:3]  # the fourth does not occur
    assert_as_scikit_learn(report, PREDICTED, TRUE, NAMES[:3])
    reference = confusion_matrix(TRUE, PREDICTED, labels=NAMES[:3])
    matrix = report.as_json()["confusion_matrix"]
    assert [[matrix[true].get(name, 0) for name in NAMES[:3]] for true in NAMES[:3]] == reference.tolist()
    wrong = report.mistakes()
    assert len(wrong) == 6 and wrong == sorted(wrong, key=lambda item: -item[2])


def test_a_class_that_is_only_predicted_or_only_true_counts():
    report = class_report(["a", "c", "a"], ["a", "b", "a"], ["a", "b", "c"])
    assert report.classes["b"] == {"precision": 0, "recall": 0, "f1": 0, "support": 1}
    assert_as_scikit_learn(report, ["a", "c", "a"], ["a", "b", "a"], ["a", "b", "c"])
    with pytest.raises(ValueError, match="no example to score"):
        class_report([], [], ["a"])


def test_several_labels_are_scored_one_by_one():
    sets = [[{name for name in NAMES[:3] if RNG.random() < 0.4} for _ in range(50)] for _ in range(2)]
    report = several_labels_report(*sets, NAMES)
    rows = [np.array([[name in labels for name in NAMES[:3]] for labels in side]) for side in sets]
    assert_as_scikit_learn(report, *rows, [0, 1, 2])
    assert "confusion_matrix" not in report.as_json()
    nothing = several_labels_report([set(), set()], [set(), set()], NAMES)
    assert not nothing.classes and nothing.averages["micro"]["f1"] == 0


def test_entities_are_scored_by_type_and_confused_word_by_word():
    predicted = [["B-PER", "I-PER", "O", "B-LOC"], ["B-ORG", "O"]]
    true = [["B-PER", "I-PER", "O", "B-PER"], ["B-ORG", "I-ORG"]]
    report = entity_report(predicted, true)
    scores = entity_metrics(predicted, true)
    assert report.classes["PER"] == {"precision": 1.0, "recall": 0.5, "f1": pytest.approx(2 / 3), "support": 2}
    assert report.averages["micro"]["f1"] == scores["overall_f1"]
    assert report.averages["macro"]["f1"] == pytest.approx(np.mean([scores[n]["f1"] for n in ("PER", "LOC", "ORG")]))
    matrix = report.as_json()["confusion_matrix"]
    assert matrix == {"ORG": {"ORG": 1, "O": 1}, "PER": {"LOC": 1, "PER": 2}, "O": {"O": 1}}


def test_the_table_fits_80_columns():
    long = "a class with a very long name indeed, which nobody would read to its end"
    lines = class_report(["a", long, "a"] * 9, ["a", long, long] * 9, ["a", long]).lines()
    assert max(map(len, lines)) <= 84 and lines == [line.rstrip() for line in lines]
    assert lines[0].split() == ["class", "precision", "recall", "f1", "support"]
    assert lines[1].split() == ["a", "0.500", "1.000", "0.667", "9"]
    assert lines[-1].split()[0] == "9" and lines[-1].endswith("taken for  a")


def test_the_table_and_its_mistakes_are_aligned():
    scores = {"precision": 0.5, "recall": 1.0, "f1": 2 / 3}
    confusion = {("no", "yes"): 7, ("yes", "no"): 1200, ("yes", "yes"): 5}
    report = ClassReport("texts", {"yes": scores | {"support": 1234}}, {"micro": scores}, confusion, (), "texts")
    table = """
class  precision     recall         f1    support
yes        0.500      1.000      0.667      1,234

micro      0.500      1.000      0.667
"""
    mistakes = """
Most frequent mistakes (texts):
  1,200  yes  taken for  no
      7  no   taken for  yes
"""
    assert report.lines() == (table + mistakes).strip().split("\n")
    assert ClassReport("texts", report.classes, report.averages).lines() == table.strip().split("\n")


def test_the_table_cuts_long_names_and_lists_ten_mistakes():
    names = ["x" * 40, *(f"{number:02d}{'x' * 40}" for number in range(11))]
    lines = class_report([*names[1:], names[0]], names, names).lines()  # each of 12 is taken for the next
    starts = ["class", "x" * 40, f"00{'x' * 35}..."]
    assert [line[:42] for line in lines[:3]] == [f"{start:<42}" for start in starts]
    assert lines[-11] == "Most frequent mistakes (texts):"
    assert lines[-10] == f"  1  {'x' * 27}...  taken for  00{'x' * 25}..."
    assert all(line.startswith("  1  ") for line in lines[-10:])


def test_means_are_over_the_classes_that_occur():
    report = class_report(["a", "b", "b"], ["a", "a", "b"], ["a", "b", "c"])
    # a has precision 1 and recall 1/2, b the other way round; c does not occur
    assert report.averages["macro"] == pytest.approx({"precision": 0.75, "recall": 0.75, "f1": 2 / 3})
    assert report.averages["weighted"] == pytest.approx({"precision": 2.5 / 3, "recall": 2 / 3, "f1": 2 / 3})
    assert report.mistakes() == [("a", "b", 1)]
