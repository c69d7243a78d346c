"""Bootstrap intervals and McNemar's test."""

import numpy as np
import pytest
from scipy.stats import binomtest

from mybert.metrics import count_metrics, mcnemar, paired_bootstrap, weighted_mean


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
    assert found["difference"] == {"value": -0.5, "low": -0.5, "high": -0.5} and found["p"] == pytest.approx(2 / 201)


@pytest.mark.filterwarnings("error")
def test_count_metrics_of_items_with_several_classes_have_no_correlation():
    true, predicted = np.array([[1, 0], [0, 1.0]]), np.ones((2, 2))
    found = count_metrics(np.stack([true * predicted, predicted, true]), np.ones((1, 2)))
    assert found["matthews_correlation"].tolist() == [0] and found["micro_f1"].tolist() == [2 * 2 / 6]


def test_mcnemar_counts_rows_where_one_is_right():
    a, b = [1, 1, 1, 1, 0, 0, 1, 1], [0, 0, 0, 0, 1, 0, 1, 0]
    assert mcnemar(a, b) == {"only_a": 5, "only_b": 1, "p": binomtest(5, 6).pvalue}
    assert mcnemar(a, a) == {"only_a": 0, "only_b": 0, "p": 1.0}
