"""`evaluate` metrics that need no network: each subclass only describes its columns and calls a plain function.

Names, columns and result keys are those of the modules on the Hub, so that `mybert.metrics.load(name)` can replace
`evaluate.load(name)`. Exceptions: `perplexity` takes losses, where the Hub's runs a model on texts, and
`pearson_spearman` and `entity_f1` exist only here. Scores are kept in double precision, as in the official scripts.
"""

from __future__ import annotations

from collections.abc import Callable
from operator import itemgetter
from typing import Any

import evaluate
from datasets import Features, List, Value

from . import entities, glue, language_model, squad


def _describe(metric: evaluate.Metric, columns: dict[str, Any]) -> evaluate.MetricInfo:
    return evaluate.MetricInfo(
        description=type(metric).__doc__ or "", citation="", inputs_description="", features=Features(columns)
    )


def _pair(feature: Any) -> dict[str, Any]:
    return {"predictions": feature, "references": feature}


def _label_columns(config_name: str) -> dict[str, Any]:
    if config_name not in ("default", "multilabel"):
        raise ValueError(f"unknown config name {config_name!r}, expected none or 'multilabel'")
    # "multilabel": one row of 0 and 1 per example
    return _pair(List(Value("int32")) if config_name == "multilabel" else Value("int32"))


class Accuracy(evaluate.Metric):
    """Fraction of examples whose label is right: `{"accuracy"}`."""

    def _info(self) -> evaluate.MetricInfo:
        return _describe(self, _label_columns(self.config_name))

    def _compute(self, predictions: Any, references: Any) -> dict[str, float]:
        return {"accuracy": glue.accuracy(predictions, references)}


class F1(evaluate.Metric):
    """F1 score with `average` binary, macro, micro or weighted: `{"f1"}`."""

    def _info(self) -> evaluate.MetricInfo:
        return _describe(self, _label_columns(self.config_name))

    def _compute(
        self, predictions: Any, references: Any, average: Any = "binary", pos_label: int = 1
    ) -> dict[str, float]:
        return {"f1": glue.f1(predictions, references, average=average, pos_label=pos_label)}


class MatthewsCorrelation(evaluate.Metric):
    """Matthews correlation coefficient: `{"matthews_correlation"}`."""

    def _info(self) -> evaluate.MetricInfo:
        return _describe(self, _pair(Value("int32")))

    def _compute(self, predictions: Any, references: Any) -> dict[str, float]:
        return {"matthews_correlation": glue.matthews_correlation(predictions, references)}


class Pearsonr(evaluate.Metric):
    """Pearson correlation: `{"pearsonr"}`."""

    def _info(self) -> evaluate.MetricInfo:
        return _describe(self, _pair(Value("float64")))

    def _compute(self, predictions: Any, references: Any) -> dict[str, float]:
        return {"pearsonr": glue.pearson(predictions, references)}


class Spearmanr(evaluate.Metric):
    """Spearman rank correlation: `{"spearmanr"}`."""

    def _info(self) -> evaluate.MetricInfo:
        return _describe(self, _pair(Value("float64")))

    def _compute(self, predictions: Any, references: Any) -> dict[str, float]:
        return {"spearmanr": glue.spearman(predictions, references)}


class PearsonSpearman(evaluate.Metric):
    """Both correlations under the keys of STS-B: `{"pearson", "spearmanr"}`."""

    def _info(self) -> evaluate.MetricInfo:
        return _describe(self, _pair(Value("float64")))

    def _compute(self, predictions: Any, references: Any) -> dict[str, float]:
        return glue.pearson_spearman(predictions, references)


class Glue(evaluate.Metric):
    """The official metrics of the GLUE task given as config name."""

    def _info(self) -> evaluate.MetricInfo:
        if self.config_name == "default":
            raise ValueError(f"glue needs the task as config name, one of {', '.join(glue.GLUE_METRICS)}")
        task = glue.glue_task_name(self.config_name)
        return _describe(self, _pair(Value("float64" if task == "stsb" else "int64")))

    def _compute(self, predictions: Any, references: Any) -> dict[str, float]:
        return glue.glue_metrics(self.config_name, predictions, references)


_SQUAD_REFERENCE = {
    "id": Value("string"),
    "answers": {"text": List(Value("string")), "answer_start": List(Value("int32"))},
}


class Squad(evaluate.Metric):
    """Exact match and F1 of SQuAD 1.1 in percent: `{"exact_match", "f1"}`."""

    def _info(self) -> evaluate.MetricInfo:
        prediction = {"id": Value("string"), "prediction_text": Value("string")}
        return _describe(self, {"predictions": prediction, "references": _SQUAD_REFERENCE})

    def _compute(self, predictions: Any, references: Any) -> dict[str, float]:
        texts = _by_id("predictions", predictions, itemgetter("prediction_text"))
        return squad.squad_metrics(texts, _squad_answers(references))


class SquadV2(evaluate.Metric):
    """Exact match and F1 of SQuAD 2.0 in percent, with the search for the best no-answer threshold."""

    def _info(self) -> evaluate.MetricInfo:
        prediction = {
            "id": Value("string"),
            "prediction_text": Value("string"),
            "no_answer_probability": Value("float64"),
        }
        return _describe(self, {"predictions": prediction, "references": _SQUAD_REFERENCE})

    def _compute(self, predictions: Any, references: Any, no_answer_threshold: float = 1.0) -> dict[str, float]:
        texts = _by_id("predictions", predictions, itemgetter("prediction_text"))
        probabilities = {item["id"]: item["no_answer_probability"] for item in predictions}
        return squad.squad_v2_metrics(texts, _squad_answers(references), probabilities, no_answer_threshold)


class Seqeval(evaluate.Metric):
    """Precision, recall and F1 of entities, overall and by type; equal to seqeval and conlleval."""

    def _info(self) -> evaluate.MetricInfo:
        return _describe(self, _pair(List(Value("string"))))

    def _compute(
        self,
        predictions: Any,
        references: Any,
        suffix: bool = False,
        scheme: str | None = None,
        mode: str | None = None,
        zero_division: Any = 0,
    ) -> dict[str, Any]:
        return entities.entity_metrics(predictions, references, scheme, mode, suffix, zero_division)


class Perplexity(evaluate.Metric):
    """Perplexity from the negative log-likelihood of each token in nats (no references): `{"perplexity"}`."""

    def _info(self) -> evaluate.MetricInfo:
        return _describe(self, {"predictions": Value("float64")})

    def _compute(self, predictions: Any) -> dict[str, float]:
        return {"perplexity": language_model.perplexity(predictions)}


MODULES: dict[str, type[evaluate.Metric]] = {
    "accuracy": Accuracy,
    "f1": F1,
    "matthews_correlation": MatthewsCorrelation,
    "pearsonr": Pearsonr,
    "spearmanr": Spearmanr,
    "pearson_spearman": PearsonSpearman,
    "glue": Glue,
    "squad": Squad,
    "squad_v2": SquadV2,
    "seqeval": Seqeval,
    "entity_f1": Seqeval,
    "perplexity": Perplexity,
}
"""Metric classes by the name that `load` takes."""


def _squad_answers(references: Any) -> dict[str, list[str]]:
    return _by_id("references", references, lambda item: list(item["answers"]["text"]))


def _by_id(name: str, items: Any, value: Callable[[Any], Any]) -> dict[str, Any]:
    found = {item["id"]: value(item) for item in items}
    if len(found) < len(items):
        raise ValueError(f"{name} hold {len(items)} questions with {len(found)} ids: expected unique ids")
    return found
