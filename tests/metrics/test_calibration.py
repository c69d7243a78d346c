from functools import partial

import numpy as np
import pytest
import torch
from sklearn.metrics import f1_score

from mybert.metrics import (
    best_f1_threshold,
    calibration_bins,
    expected_calibration_error,
    fit_temperature,
    fit_thresholds,
    held_out_labels,
    held_out_temperatures,
    log_loss,
    selective_accuracy,
    with_temperature,
)

RNG = np.random.default_rng(0)
LOGITS = RNG.normal(size=(20_000, 4))
TRUTH = np.array([RNG.choice(4, p=row) for row in torch.tensor(LOGITS).softmax(-1).numpy()])


def softmax(logits):
    return torch.tensor(logits).softmax(-1).numpy()


def test_a_temperature_that_was_put_in_is_found():
    """Labels are drawn from the probabilities, so these are calibrated; logits times three are too sure."""
    assert fit_temperature(softmax(LOGITS), TRUTH) == pytest.approx(1, abs=0.03)
    sure = softmax(3 * LOGITS)
    temperature = fit_temperature(sure, TRUTH)
    assert temperature == pytest.approx(3, abs=0.09)
    np.testing.assert_allclose(with_temperature(sure, 3.0), softmax(LOGITS), atol=1e-12)
    assert expected_calibration_error(sure, TRUTH) > 0.2
    assert expected_calibration_error(with_temperature(sure, temperature), TRUTH) < 0.015
    assert (with_temperature(sure, 7.0).argmax(1) == sure.argmax(1)).all()


def test_the_temperature_has_the_least_loss():
    sure = softmax(3 * LOGITS[:300])
    logits, best = torch.tensor(np.log(sure)), fit_temperature(sure, TRUTH[:300])
    targets = torch.nn.functional.one_hot(torch.tensor(TRUTH[:300]), 4).double()
    targets = targets * (1 - 1 / 302) + (1 - targets) / 302 / 3
    losses = [torch.nn.functional.cross_entropy(logits / value, targets) for value in (best * 0.99, best, best * 1.01)]
    assert losses[1] < min(losses[0], losses[2])


def test_a_model_without_mistakes_is_not_sure_beyond_its_data():
    probabilities = softmax(np.array([[4.0, 0.0], [0.0, 4.0]] * 5))
    temperature = fit_temperature(probabilities, [0, 1] * 5)
    assert with_temperature(probabilities, temperature).max() == pytest.approx(1 - 1 / 12, abs=1e-3)


def test_the_error_is_the_papers():
    """Two of three with 0.9 are right, none of one with 0.6: |2/3 - 0.9| x 3/4 + |0 - 0.6| / 4."""
    probabilities = [[0.9, 0.1], [0.9, 0.1], [0.1, 0.9], [0.4, 0.6]]
    expected = abs(2 / 3 - 0.9) * 3 / 4 + 0.6 / 4
    assert expected_calibration_error(probabilities, [0, 0, 0, 0]) == pytest.approx(expected)
    bins = calibration_bins(probabilities, [0, 0, 0, 0], bins=10)
    np.testing.assert_allclose(bins[8], [3, 0.9, 2 / 3])
    np.testing.assert_allclose(bins[5], [1, 0.6, 0])
    assert bins[:, 0].sum() == 4
    assert expected_calibration_error([[1.0, 0.0], [0.0, 1.0]], [0, 1]) == 0


def test_parts_are_measured_with_the_temperature_of_the_others():
    sure = softmax(3 * LOGITS[:103])
    found = held_out_temperatures(sure, TRUTH[:103])
    others = np.arange(103) % 5 != 2
    temperature = fit_temperature(sure[others], TRUTH[:103][others])
    np.testing.assert_allclose(found[2::5], with_temperature(sure[2::5], temperature))
    assert held_out_temperatures(sure[:2], TRUTH[:2]).shape == (2, 4)


def test_probabilities_of_zero_and_one_class_are_no_trouble():
    certain = np.array([[1.0, 0.0], [0.0, 1.0], [1.0, 0.0]])
    assert 1 < fit_temperature(certain, [0, 1, 1]) <= 20
    assert np.isfinite(with_temperature(certain, 0.05)).all()
    assert with_temperature([[1.0]], 2.0).tolist() == [[1.0]] and fit_temperature([[1.0]] * 3, [0, 0, 0]) > 0


def test_temperatures_have_a_range():
    """Of 0.05 to 20, where sure predictions are at random, and where unsure ones are always right."""
    assert fit_temperature([[1.0, 0.0]] * 2, [0, 1]) == pytest.approx(20, rel=1e-3)
    assert fit_temperature([[0.501, 0.499]] * 50, [0] * 50) == pytest.approx(0.05, rel=1e-3)


def test_the_paper_has_15_bins():
    """0.65 and 0.67 are on both sides of 10/15."""
    assert expected_calibration_error([[0.65, 0.35], [0.67, 0.33]], [0, 1]) == pytest.approx((0.35 + 0.67) / 2)
    assert len(calibration_bins([[0.65, 0.35]], [0])) == 15


@pytest.mark.parametrize(
    ("scores", "references", "threshold"),
    [
        ([0.3, 0.9, 0.1, 0.8], [0, 1, 0, 1], 0.55),
        ([0.9, 0.2], [1, 1], 0.1),  # everything is true: half of the lowest score
        ([0.95, 0.9, 0.6, 0.5], [1, 0, 0, 1], 0.25),  # F1 is 2/3 with one or all; 0.925 is farther from 1/2
        ([0.7, 0.6, 0.2, 0.1], [1, 0, 0, 1], 0.65),
        ([0.6, 0.6, 0.2], [1, 0, 0], 0.4),  # equal scores are not separated
    ],
)
def test_best_f1_threshold_by_hand(scores, references, threshold):
    assert best_f1_threshold(scores, references) == pytest.approx(threshold)


def test_best_f1_threshold_has_the_best_f1():
    rng = np.random.default_rng(1)
    references = rng.random(200) < 0.3
    scores = np.round(np.clip(0.3 * references + rng.normal(0.4, 0.2, 200), 0.01, 1), 2)
    best = max(f1_score(references, scores > each - 0.005) for each in scores)
    assert f1_score(references, scores > best_f1_threshold(scores, references)) == best


def test_thresholds_of_rare_labels_are_near_the_common_one():
    """The common threshold 0.35 has the weight of ten examples; the third label has none of its own."""
    scores = np.array([[0.9, 0.4, 0.05], [0.8, 0.3, 0.05], [0.3, 0.2, 0.05], [0.1, 0.1, 0.05]])
    references = np.array([[1, 1, 0], [1, 0, 0], [0, 0, 0], [0, 0, 0]])
    expected = [(2 * 0.55 + 10 * 0.35) / 12, 0.35, 0.35]
    np.testing.assert_allclose(fit_thresholds(scores, references), expected)
    assert fit_thresholds(scores, 0 * references).tolist() == [0.5] * 3


def test_labels_of_a_part_have_the_thresholds_of_the_others():
    rng = np.random.default_rng(2)
    references = rng.random((23, 2)) < 0.4
    scores = np.clip(0.4 * references + 0.6 * rng.random((23, 2)), 0, 1)
    found = held_out_labels(scores, references)
    for part in range(5):
        others = np.arange(23) % 5 != part
        expected = scores[~others] > fit_thresholds(scores[others], references[others])
        assert np.array_equal(found[~others], expected)


def test_log_loss_is_the_cross_entropy():
    expected = torch.nn.functional.cross_entropy(torch.tensor(LOGITS), torch.tensor(TRUTH))
    assert log_loss(softmax(LOGITS), TRUTH) == pytest.approx(expected.item())


def test_selective_accuracy_counts_answers_from_the_threshold_on():
    probabilities, references = [[0.75, 0.25], [0.25, 0.75], [0.6, 0.4], [0.4, 0.6]], [0, 0, 1, 1]
    assert selective_accuracy(probabilities, references, 0.75) == {"coverage": 0.5, "selective_accuracy": 0.5}
    assert selective_accuracy(probabilities, references, 0.7) == {"coverage": 0.5, "selective_accuracy": 0.5}
    assert selective_accuracy(probabilities[1:], references[1:], 0.7)["selective_accuracy"] == 0
    assert selective_accuracy(probabilities, references, 0.8) == {"coverage": 0.0}


@pytest.mark.parametrize(
    ("function", "probabilities", "references", "message"),
    [
        *(
            (function, *wrong)
            for function in (
                expected_calibration_error,
                fit_temperature,
                log_loss,
                partial(selective_accuracy, threshold=0.5),
            )
            for wrong in (
                ([[0.2, 0.8]], [0, 1], r"shape \(1, 2\) and references \(2,\); expected \(examples, classes\)"),
                ([0.2, 0.8], [0, 1], r"shape \(2,\) and references"),
                (np.zeros((0, 2)), [], r"shape \(0, 2\)"),
                ([[0.2, np.nan]], [0], "hold nan; expected numbers in"),
                ([[-0.5, 1.5]], [0], r"hold -0\.5; expected numbers in \[0, 1\]"),
                ([[0.2, 0.8]], [2], "references hold 2; expected 0 to 1"),
                ([[0.2, 0.8]], [-1], "references hold -1; expected 0 to 1"),
            )
        ),
        *(
            (function, *wrong)
            for function in (fit_thresholds, held_out_labels)
            for wrong in (
                ([[0.2], [0.8]], [[1], [0], [0]], "expected the same shape"),
                ([[0.2], [1.8]], [[1], [0]], "hold 1.8; expected numbers in"),
                ([[0.2], [0.8]], [[1], [2]], "references hold 2; expected 0 to 1"),
            )
        ),
        (best_f1_threshold, [0.2, np.inf], [1, 0], "hold inf; expected numbers in"),
    ],
)
def test_calibration_wrong_input_is_error(function, probabilities, references, message):
    with pytest.raises(ValueError, match=message):
        function(probabilities, references)
