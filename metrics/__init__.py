"""Metrics that need no network."""

from .functions import (
    GLUE_METRICS,
    accuracy,
    f1,
    glue_metrics,
    glue_task_name,
    matthews_correlation,
    pearson,
    pearson_spearman,
    spearman,
)

__all__ = [
    "GLUE_METRICS",
    "accuracy",
    "f1",
    "glue_metrics",
    "glue_task_name",
    "matthews_correlation",
    "pearson",
    "pearson_spearman",
    "spearman",
]
