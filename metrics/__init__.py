"""Metrics that need no network: plain functions, and `evaluate` modules by name."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from .._lazy_names import lazy_names

if TYPE_CHECKING:
    import evaluate

    from .calibration import (
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
    from .classification import (
        GLUE_METRICS,
        accuracy,
        errors_of_values,
        f1,
        glue_metrics,
        glue_task_name,
        lower_is_better,
        matthews_correlation,
        metric_of,
        metric_of_class,
        pearson,
        pearson_spearman,
        spearman,
    )
    from .label_orders import GOOGLE_LABELS, HUB_LABELS, google_row_order, has_unnamed_labels, require_named_labels
    from .language_model import MaskedWords, fitting_words, masked_words, perplexity, word_loss
    from .reports import (
        ClassReport,
        class_report,
        entity_letters,
        entity_metrics,
        entity_report,
        entity_spans,
        several_labels_report,
    )
    from .resampling import (
        WeightedMetrics,
        count_metrics,
        mcnemar,
        paired_bootstrap,
        weighted_mean,
        weighted_pearson,
        weighted_spearman,
    )
    from .squad import normalize_answer, squad_answers, squad_metrics, squad_v2_metrics

__all__ = [
    "GLUE_METRICS",
    "GOOGLE_LABELS",
    "HUB_LABELS",
    "ClassReport",
    "MaskedWords",
    "WeightedMetrics",
    "accuracy",
    "best_f1_threshold",
    "calibration_bins",
    "class_report",
    "count_metrics",
    "entity_letters",
    "entity_metrics",
    "entity_report",
    "entity_spans",
    "errors_of_values",
    "expected_calibration_error",
    "f1",
    "fit_temperature",
    "fit_thresholds",
    "fitting_words",
    "glue_metrics",
    "glue_task_name",
    "google_row_order",
    "has_unnamed_labels",
    "held_out_labels",
    "held_out_temperatures",
    "load",
    "log_loss",
    "lower_is_better",
    "masked_words",
    "matthews_correlation",
    "mcnemar",
    "metric_of",
    "metric_of_class",
    "normalize_answer",
    "paired_bootstrap",
    "pearson",
    "pearson_spearman",
    "perplexity",
    "require_named_labels",
    "selective_accuracy",
    "several_labels_report",
    "spearman",
    "squad_answers",
    "squad_metrics",
    "squad_v2_metrics",
    "weighted_mean",
    "weighted_pearson",
    "weighted_spearman",
    "with_temperature",
    "word_loss",
]


def load(name: str, config_name: str | None = None, **options: Any) -> evaluate.EvaluationModule:
    """A metric by name, without any network; needs the packages `evaluate` and `datasets`.

    Args:
        name: `"accuracy"`, `"f1"`, `"matthews_correlation"`, `"pearsonr"`, `"spearmanr"`, `"pearson_spearman"`,
            `"glue"`, `"squad"`, `"squad_v2"`, `"seqeval"` (also called `"entity_f1"`) or `"perplexity"`.
        config_name: The GLUE task of `"glue"`; `"multilabel"` for accuracy and F1 on rows of 0 and 1.
        **options: Passed to `evaluate.EvaluationModule` (`experiment_id`, `num_process`, `keep_in_memory` ...).

    Raises:
        ValueError: There is no metric or configuration of this name.
        ImportError: `evaluate` or `datasets` is missing.
    """
    try:
        from .evaluate_modules import METRICS, LocalMetric
    except ImportError as error:
        raise ImportError(
            f"mybert.metrics.load needs the packages evaluate and datasets: pip install evaluate datasets ({error})."
        ) from error

    if str(name) not in METRICS:
        raise ValueError(f"unknown metric {name!r}; expected one of {', '.join(METRICS)}.")
    return LocalMetric(str(name), config_name=config_name, **options)


__getattr__, __dir__ = lazy_names(__name__)
