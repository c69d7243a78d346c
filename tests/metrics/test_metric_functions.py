"""Plain metric functions: values worked out by hand, scikit-learn and scipy, and one sentence per mistake."""

import math

import numpy as np
import pytest
from scipy import stats
from sklearn import metrics as sklearn_metrics

from mybert import metrics

PREDICTIONS = [1, 0, 1, 1, 0, 1]
REFERENCES = [1, 1, 0, 1, 0, 1]


def test_label_metrics_by_hand():
    # true positives 3, false positives 1, false negatives 1, true negatives 1
    assert metrics.accuracy(PREDICTIONS, REFERENCES) == pytest.approx(4 / 6)
    assert metrics.f1(PREDICTIONS, REFERENCES) == pytest.approx(6 / 8)
    assert metrics.matthews_correlation(PREDICTIONS, REFERENCES) == pytest.approx((3 * 1 - 1 * 1) / 8)


@pytest.mark.parametrize("average", ["macro", "micro", "weighted"])
def test_f1_averages_are_those_of_scikit_learn(average):
    generator = np.random.default_rng(0)
    predictions, references = generator.integers(0, 4, (2, 200))
    expected = sklearn_metrics.f1_score(references, predictions, average=average)
    assert metrics.f1(predictions, references, average=average) == expected
    rows, wanted = generator.integers(0, 2, (2, 50, 5))
    expected = sklearn_metrics.f1_score(wanted, rows, average=average, zero_division=0)
    assert metrics.f1(rows, wanted, average=average) == expected


@pytest.mark.parametrize("average", ["micro", "macro", "weighted"])
def test_f1_of_a_single_label_is_that_of_the_label(average):
    assert metrics.f1([[1], [0], [0], [0]], [[1], [1], [0], [0]], average=average) == pytest.approx(2 / 3)
    assert metrics.f1([[0], [0]], [[0], [0]], average=average) == 0.0


def test_multi_label_accuracy_counts_whole_rows():
    assert metrics.accuracy([[1, 0], [1, 1]], [[1, 0], [1, 0]]) == 0.5


def test_correlations_are_those_of_scipy():
    generator = np.random.default_rng(1)
    predictions = generator.normal(size=100)
    references = np.round(predictions + generator.normal(size=100))  # rounding makes ties
    assert metrics.pearson_spearman(predictions, references) == {
        "pearson": pytest.approx(stats.pearsonr(predictions, references).statistic, abs=1e-12),
        "spearmanr": pytest.approx(stats.spearmanr(predictions, references).statistic, abs=1e-12),
    }


def test_errors_of_values_by_hand():
    found = metrics.errors_of_values([1, 2, 4], [1, 4, 1])  # 0, -2 and 3
    assert found == pytest.approx({"mae": 5 / 3, "rmse": math.sqrt(13 / 3)})


def test_lower_is_better_looks_at_the_end_of_a_name():
    errors = ("mae", "content_rmse", "loss", "dev_loss", "eval_mlm_loss", "perplexity", "eval_perplexity")
    assert all(map(metrics.lower_is_better, errors))
    assert not any(map(metrics.lower_is_better, ("pearson", "mae_pearson", "loss_f1", "accuracy", "schmae")))


def test_one_class_only_is_zero_not_nan():
    assert metrics.f1([0, 0], [0, 0]) == 0.0
    assert metrics.matthews_correlation([1, 1, 1], [1, 0, 1]) == 0.0
    assert metrics.pearson_spearman([2.0, 2.0, 2.0], [1.0, 2.0, 3.0]) == {"pearson": 0.0, "spearmanr": 0.0}


def test_named_labels():
    assert metrics.f1(["yes", "no"], ["yes", "yes"], pos_label="yes") == pytest.approx(2 / 3)


@pytest.mark.parametrize(
    ("names", "keys"),
    [
        (["CoLA", "cola", "ax"], ["matthews_correlation"]),
        (["SST-2", "sst2", "QNLI", "RTE", "WNLI"], ["accuracy"]),
        (["MNLI", "mnli-mm", "mnli_matched", "MNLI-mismatched"], ["accuracy"]),
        (["MRPC", "QQP"], ["accuracy", "f1"]),
        (["STS-B", "stsb", "sts_b"], ["pearson", "spearmanr"]),
    ],
)
def test_glue_keys(names, keys):
    for name in names:
        assert list(metrics.glue_metrics(name, PREDICTIONS, REFERENCES)) == keys


def test_glue_values_are_the_single_functions():
    assert metrics.glue_metrics("mrpc", PREDICTIONS, REFERENCES) == {
        "accuracy": metrics.accuracy(PREDICTIONS, REFERENCES),
        "f1": metrics.f1(PREDICTIONS, REFERENCES),
    }


def test_perplexity():
    assert metrics.perplexity([math.log(8.0)] * 3) == pytest.approx(8.0)
    assert metrics.perplexity([1.0, 4.0], [30, 10]) == pytest.approx(math.exp(1.75))
    assert metrics.perplexity([1e9]) == metrics.perplexity([1.0, math.inf]) == math.inf
    assert metrics.perplexity([math.inf, 1.0], [0, 1]) == pytest.approx(math.e)


def test_errors_of_one_value_are_defined_and_its_correlation_is_not():
    assert metrics.errors_of_values([1.0], [3.0]) == {"mae": 2.0, "rmse": 2.0}
    with pytest.raises(ValueError, match="there is no example; expected at least one"):
        metrics.errors_of_values([], [])


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: metrics.accuracy([1, 2], [1, 2, 3]), r"shape \(2,\) and references \(3,\)"),
        (lambda: metrics.accuracy(np.zeros((4, 3)), np.zeros(4)), "take the argmax of logits"),
        (lambda: metrics.accuracy([], []), "empty"),
        (lambda: metrics.f1([0, 1, 2], [0, 1, 2]), r"needs two labels, found \[0, 1, 2\]"),
        (lambda: metrics.f1([0, 1], [0, 1], average=None), "unknown average None"),
        (lambda: metrics.pearson([1.0], [1.0]), "at least two examples, found 1"),
        (lambda: metrics.spearman([1.0, math.nan], [1.0, 2.0]), "predictions hold 1 values"),
        (lambda: metrics.glue_metrics("snli", [1], [1]), "unknown GLUE task 'snli'; expected one of cola"),
        (lambda: metrics.perplexity([1.0], [0]), "no token to score"),
        (lambda: metrics.accuracy(["1"], [1]), "predictions are text and references numbers"),
        (lambda: metrics.accuracy(["1", 1], [1, 1]), "predictions are not labels .*several kinds"),
        (lambda: metrics.accuracy([None], [1]), "predictions are not labels .*several kinds, or none"),
        (lambda: metrics.accuracy([1], [math.nan]), "references hold nan; expected labels"),
        (lambda: metrics.accuracy([0.3], [0]), "predictions hold 0.3; expected labels"),
        (lambda: metrics.accuracy([[1], [1, 0]], [[1], [1, 0]]), "rows of equal length"),
        (lambda: metrics.accuracy([1j], [1]), "of type complex128"),
        (lambda: metrics.f1(["a", "b"], ["a", "b"]), "pos_label is 1, but the labels are text"),
        (lambda: metrics.f1([0, 1], [0, 1], pos_label="1"), "pos_label is '1', but the labels are numbers"),
        (lambda: metrics.f1([[1, 0]], [[1, 0]]), "F1 of rows with 2 labels each"),
        (lambda: metrics.f1([[2, 0]], [[1, 0]], average="macro"), "is for rows of 0 and 1"),
        (lambda: metrics.matthews_correlation(["a"], [1]), "predictions are text and references numbers"),
        (lambda: metrics.pearson(["1", "2"], [1, 2]), "predictions are text; expected numbers"),
        (lambda: metrics.spearman([None, 1], [1, 2]), "predictions are not labels or numbers"),
        (lambda: metrics.glue_metrics(None, [1], [1]), "unknown GLUE task None"),
        (lambda: metrics.perplexity([[1.0]]), r"losses have shape \(1, 1\)"),
        (lambda: metrics.pearson([[1.0], [2.0]], [[1.0], [2.0]]), "expected one number each per example"),
        (lambda: metrics.perplexity([math.nan]), "values that are not numbers, or negative counts"),
        (lambda: metrics.perplexity([-math.inf]), "values that are not numbers"),
        (lambda: metrics.perplexity([1.0, 2.0], [3, -1]), "or negative counts"),
        (lambda: metrics.perplexity([1.0], [math.inf]), "values that are not numbers"),
        (lambda: metrics.entity_metrics(["OO"], ["OO"]), "predictions are not lists of tags"),
        (lambda: metrics.entity_metrics([["O"]], None), "references are not lists of tags"),
        (lambda: metrics.entity_metrics([["O"]], [["O"]], zero_division=math.nan), "zero_division is nan"),
        (lambda: metrics.entity_spans("OO"), "the tags are 'OO'; expected a list"),
    ],
)
def test_metric_functions_wrong_inputs_are_errors(call, message):
    with pytest.raises(ValueError, match=message):
        call()


def test_labels_of_other_kinds_of_arrays():
    objects = np.array(["yes", "no"], dtype=object)
    assert (
        metrics.accuracy(objects, ["yes", "no"]) == metrics.accuracy(np.array([1, 0], dtype=object), [1.0, 0.0]) == 1
    )
    assert metrics.accuracy([True, False], [1, 1]) == 0.5
    assert metrics.f1([1, 1, 0], [True, False, False]) == pytest.approx(2 / 3)
