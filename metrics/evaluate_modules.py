"""`evaluate` metrics that need no network: a table of columns and plain functions.

Names, columns and result keys are those of the modules on the Hub, so that `mybert.metrics.load(name)` can replace
`evaluate.load(name)`. Exceptions: `perplexity` takes losses, where the Hub's runs a model on texts, and
`pearson_spearman` and `entity_f1` exist only here. Scores are kept in double precision, as in the official scripts.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import evaluate
from datasets import Features, List, Value

from .classification import (
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
from .language_model import perplexity
from .reports import entity_metrics
from .squad import squad_metrics, squad_v2_metrics


@dataclass(frozen=True)
class _Row:
    """A metric: `columns` and `compute` get the name of the configuration first."""

    description: str
    columns: Callable[[str], Any]
    compute: Callable[..., dict[str, Any]]


def _label(config_name: str) -> Any:
    if config_name not in ("default", "multilabel"):
        raise ValueError(f"unknown config name {config_name!r}; expected none or 'multilabel'.")
    return List(Value("int32")) if config_name == "multilabel" else Value("int32")  # a row of 0 and 1 per example


def _glue(task: str) -> Any:
    if task == "default":
        raise ValueError(f"glue needs the task as config name, one of {', '.join(GLUE_METRICS)}.")
    return Value("float64" if glue_task_name(task) == "stsb" else "int64")


def _score(_: str) -> Any:
    return Value("float64")


def _named(key: str, function: Callable[..., float]) -> Callable[..., dict[str, float]]:
    return lambda _, **given: {key: function(**given)}


def _squad_v2(_: str, predictions: Any, references: Any, **options: Any) -> dict[str, float]:
    probabilities = {item["id"]: item["no_answer_probability"] for item in predictions}
    return squad_v2_metrics(*_texts_and_answers(predictions, references), probabilities, **options)


def _texts_and_answers(predictions: Any, references: Any) -> tuple[dict[str, str], dict[str, list[str]]]:
    texts = {item["id"]: item["prediction_text"] for item in predictions}
    answers = {item["id"]: list(item["answers"]["text"]) for item in references}
    for name, items, found in (("predictions", predictions, texts), ("references", references, answers)):
        if len(found) < len(items):
            raise ValueError(f"{name} hold {len(items)} questions with {len(found)} ids; expected unique ids.")
    return texts, answers


_ANSWER = {"id": Value("string"), "prediction_text": Value("string")}
_ANSWERS = {"id": Value("string"), "answers": {"text": List(Value("string")), "answer_start": List(Value("int32"))}}
_ENTITIES = _Row(
    "Precision, recall and F1 of entities, overall and by type; equal to seqeval and conlleval.",
    lambda _: List(Value("string")),
    lambda _, **given: entity_metrics(**given),
)
METRICS = {
    "accuracy": _Row(
        'Fraction of examples whose label is right: `{"accuracy"}`.', _label, _named("accuracy", accuracy)
    ),
    "f1": _Row('F1 score with `average` binary, macro, micro or weighted: `{"f1"}`.', _label, _named("f1", f1)),
    "matthews_correlation": _Row(
        'Matthews correlation coefficient: `{"matthews_correlation"}`.',
        lambda _: Value("int32"),
        _named("matthews_correlation", matthews_correlation),
    ),
    "pearsonr": _Row('Pearson correlation: `{"pearsonr"}`.', _score, _named("pearsonr", pearson)),
    "spearmanr": _Row('Spearman rank correlation: `{"spearmanr"}`.', _score, _named("spearmanr", spearman)),
    "pearson_spearman": _Row(
        'Both correlations under the keys of STS-B: `{"pearson", "spearmanr"}`.',
        _score,
        lambda _, **given: pearson_spearman(**given),
    ),
    "glue": _Row("The official metrics of the GLUE task given as config name.", _glue, glue_metrics),
    "squad": _Row(
        'Exact match and F1 of SQuAD 1.1 in percent: `{"exact_match", "f1"}`.',
        lambda _: (_ANSWER, _ANSWERS),
        lambda _, **given: squad_metrics(*_texts_and_answers(**given)),
    ),
    "squad_v2": _Row(
        "Exact match and F1 of SQuAD 2.0 in percent, with the search for the best no-answer threshold.",
        lambda _: (_ANSWER | {"no_answer_probability": Value("float64")}, _ANSWERS),
        _squad_v2,
    ),
    "seqeval": _ENTITIES,
    "entity_f1": _ENTITIES,
    "perplexity": _Row(
        'Perplexity from the negative log-likelihood of each token in nats (no references): `{"perplexity"}`.',
        lambda _: (Value("float64"),),
        lambda _, predictions: {"perplexity": perplexity(predictions)},
    ),
}


class LocalMetric(evaluate.Metric):
    """A metric of the table by name; its columns are (predictions, references) or one type for both."""

    def __init__(self, metric: str, **options: Any) -> None:
        self._metric = metric
        super().__init__(**options)

    @property
    def name(self) -> str:
        """The metric's name, by which `evaluate` stores its data and calls its results in combinations."""
        return self._metric

    def _info(self) -> evaluate.MetricInfo:
        row = METRICS[self._metric]
        columns = row.columns(self.config_name)
        columns = columns if isinstance(columns, tuple) else (columns, columns)
        return evaluate.MetricInfo(
            description=row.description,
            citation="",
            inputs_description="",
            features=Features(zip(("predictions", "references"), columns, strict=False)),
        )

    def _compute(self, **given: Any) -> dict[str, Any]:
        return METRICS[self._metric].compute(self.config_name, **given)
