"""Bootstrap intervals and McNemar's test."""

import warnings

import numpy as np
import pytest
from scipy.stats import binomtest, pearsonr, spearmanr
from sklearn.metrics import accuracy_score, f1_score, matthews_corrcoef, precision_score, recall_score

from mybert.metrics import count_metrics, mcnemar, paired_bootstrap, weighted_mean
from mybert.metrics.resampling import weighted_pearson, weighted_spearman

WEIGHTS = np.random.default_rng(5).integers(0, 4, size=(6, 30))  # how often each of 30 rows is drawn


def systems(rows=80):
    right = np.random.default_rng(3).random((2, rows)) < [[0.8], [0.6]]
    return right, [lambda weights, side=side: {"accuracy": weighted_mean(side, weights)} for side in right]


@pytest.mark.parametrize(("settings", "tail"), [({}, 0.025), ({"confidence": 0.9}, 0.05)])
def test_paired_bootstrap_gives_the_quantiles_of_resampled_rows(settings, tail):
    right, metrics = systems()
    found = paired_bootstrap(*metrics, 80, resamples=500, seed=7, **settings)["accuracy"]
    places = np.random.default_rng(7).integers(80, size=(500, 80))
    a, b = (side[places].mean(1) for side in right)
    for name, value, samples in (
        ("a", right[0].mean(), a),
        ("b", right[1].mean(), b),
        ("difference", right[1].mean() - right[0].mean(), b - a),
    ):
        expected = {"value": value, "low": np.quantile(samples, tail), "high": np.quantile(samples, 1 - tail)}
        assert found[name] == pytest.approx(expected), name
    assert found["p"] == pytest.approx(2 * (1 + (b >= a).sum()) / 501)
    assert paired_bootstrap(*metrics[::-1], 80, 500, seed=7)["accuracy"]["p"] == found["p"]


def test_paired_bootstrap_compares_metrics_that_both_systems_have():
    _, (first, second) = systems()
    found = paired_bootstrap(lambda weights: first(weights) | {"more": np.ones(len(weights))}, second, 80, resamples=5)
    assert found.keys() == {"accuracy"}


def test_paired_bootstrap_of_equal_systems_has_p_1():
    _, (first, _) = systems()
    found = paired_bootstrap(first, first, 80, resamples=50)["accuracy"]
    assert found["p"] == 1 and found["difference"] == {"value": 0, "low": 0, "high": 0}


def test_paired_bootstrap_does_not_depend_on_chunks(monkeypatch):
    from mybert.metrics import resampling

    _, metrics = systems()
    whole = paired_bootstrap(*metrics, 80, resamples=50)
    monkeypatch.setattr(resampling, "_NUMBERS_AT_ONCE", 560)  # seven resamples
    assert paired_bootstrap(*metrics, 80, resamples=50) == whole


def test_paired_bootstrap_of_a_metric_that_some_resamples_lack_uses_the_others():
    values = np.array([1.0, *[np.nan] * 4])
    metrics = [lambda weights, scale=scale: {"rare": weighted_mean(scale * values, weights)} for scale in (1, 0.5)]
    found = paired_bootstrap(*metrics, 5, resamples=200)["rare"]
    assert found["difference"] == {"value": -0.5, "low": -0.5, "high": -0.5}
    # A resample without the row, of which there are 0.8 ** 5, shows no difference: one row proves nothing.
    assert found["p"] == pytest.approx(2 * 0.8**5, abs=0.1)


def test_correlation_of_a_resample_without_rows_is_missing():
    predictions, references = np.array([[1.0, 2.0], [2.0, 1.0]])
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        found = weighted_pearson(predictions, references, np.array([[1.0, 1.0], [0.0, 0.0], [2.0, 0.0]]))
    np.testing.assert_array_equal(found, [-1.0, np.nan, 0.0])


def test_weighted_mean_is_the_mean_of_repeated_rows():
    values = np.random.default_rng(6).normal(size=30)
    values[[3, 8]] = np.nan
    expected = [np.nanmean(np.repeat(values, weights)) for weights in WEIGHTS]
    np.testing.assert_allclose(weighted_mean(values, WEIGHTS), expected)
    only_missing = np.isnan(values).astype(int)[None]
    assert np.isnan(weighted_mean(values, only_missing)).all()


def test_count_metrics_are_those_of_repeated_rows():
    rng = np.random.default_rng(7)
    true = rng.integers(0, 3, 30)
    predicted = np.where(rng.random(30) < 0.6, true, rng.integers(0, 3, 30))
    classes = np.eye(4)  # the last one does not occur
    found = count_metrics(np.stack([classes[true] * classes[predicted], classes[predicted], classes[true]]), WEIGHTS)
    for number, weights in enumerate(WEIGHTS):
        sides = np.repeat(true, weights), np.repeat(predicted, weights)
        expected = {
            "accuracy": accuracy_score(*sides),
            "precision": precision_score(*sides, average="micro"),
            "recall": recall_score(*sides, average="micro"),
            "micro_f1": f1_score(*sides, average="micro"),
            "macro_f1": f1_score(*sides, average="macro"),
            "matthews_correlation": matthews_corrcoef(*sides),
        }
        assert {name: found[name][number] for name in expected} == pytest.approx(expected)
        assert found["f1"][number][:3] == pytest.approx(f1_score(*sides, average=None))
        assert np.isnan(found["f1"][number][3])


def test_macro_f1_is_over_the_classes_that_occur_in_a_resample():
    true, predicted = np.array([0, 0, 1]), np.array([0, 1, 1])
    classes = np.eye(2)
    counts = np.stack([classes[true] * classes[predicted], classes[predicted], classes[true]])
    found = count_metrics(counts, np.array([[1, 0, 0], [1, 1, 0], [0, 0, 0]]))
    # of the second, class 0 has precision 1 and recall 1/2, and class 1 is predicted but never true
    assert found["macro_f1"] == pytest.approx([1, (2 / 3 + 0) / 2, 0]) and found["accuracy"].tolist() == [1, 0.5, 0]


@pytest.mark.parametrize(("metric", "reference"), [(weighted_pearson, pearsonr), (weighted_spearman, spearmanr)])
def test_correlations_are_those_of_repeated_rows(metric, reference):
    rng = np.random.default_rng(8)
    x = rng.integers(0, 6, 30).astype(float)  # some are equal
    y = 100 + 0.1 * x + rng.normal(size=30)
    found = metric(x, y, WEIGHTS)
    expected = [reference(np.repeat(x, weights), np.repeat(y, weights)).statistic for weights in WEIGHTS]
    np.testing.assert_allclose(found, expected, rtol=1e-10)
    for sides in ((x, np.full(30, 0.1)), (np.full(30, 1e15 / 3), y)):
        assert metric(*sides, WEIGHTS).tolist() == [0] * 6
    assert metric(x, y, np.eye(30, dtype=int)[:2]).tolist() == [0, 0]  # a single row
    assert metric(x, 1e6 + x, WEIGHTS) == pytest.approx(np.ones(6))  # little compared with its mean


@pytest.mark.filterwarnings("error")
def test_count_metrics_of_items_with_several_classes_have_no_correlation():
    true, predicted = np.array([[1, 0], [0, 1.0]]), np.ones((2, 2))
    found = count_metrics(np.stack([true * predicted, predicted, true]), np.ones((1, 2)))
    assert found["matthews_correlation"].tolist() == [0] and found["micro_f1"].tolist() == [2 * 2 / 6]


def test_mcnemar_counts_rows_where_one_is_right():
    a, b = [1, 1, 1, 1, 0, 0, 1, 1], [0, 0, 0, 0, 1, 0, 1, 0]
    assert mcnemar(a, b) == {"only_a": 5, "only_b": 1, "p": binomtest(5, 6).pvalue}
    assert mcnemar(a, a) == {"only_a": 0, "only_b": 0, "p": 1.0}
