"""Pipelines that transformers 5 lacks: question answering, next sentence prediction, multiple choice; long texts."""

from transformers import (
    AutoModelForMultipleChoice,
    AutoModelForNextSentencePrediction,
    AutoModelForQuestionAnswering,
    pipelines,
)

from .openvino_model import OpenVinoModel
from .pairs import MultipleChoicePipeline, NextSentencePredictionPipeline, QuestionAnsweringPipeline
from .sentence_scores import (
    ScoringMethod,
    minimal_pair_accuracy,
    minimal_pair_columns,
    pseudo_log_likelihoods,
)
from .spans import Answer, QuestionError, Window, WindowedQuestion, answer_positions, best_answers, make_windows
from .windows import (
    WindowedTextClassificationPipeline,
    WindowedTokenClassificationPipeline,
    WindowPooling,
    own_tokens,
    pool_windows,
    window_places,
    window_starts,
    windowed_pipeline,
)

__all__ = [
    "Answer",
    "MultipleChoicePipeline",
    "NextSentencePredictionPipeline",
    "OpenVinoModel",
    "QuestionAnsweringPipeline",
    "QuestionError",
    "ScoringMethod",
    "Window",
    "WindowPooling",
    "WindowedQuestion",
    "WindowedTextClassificationPipeline",
    "WindowedTokenClassificationPipeline",
    "answer_positions",
    "best_answers",
    "make_windows",
    "minimal_pair_accuracy",
    "minimal_pair_columns",
    "own_tokens",
    "pool_windows",
    "pseudo_log_likelihoods",
    "register_pipelines",
    "window_places",
    "window_starts",
    "windowed_pipeline",
]


def register_pipelines() -> None:
    """Register the tasks of this package with `transformers.pipeline`, except those whose name is registered already.

    transformers rejects the name `"question-answering"` before it looks into the registry, so the name is removed from
    its list of removed tasks, in versions that have one.
    """
    getattr(pipelines, "REMOVED_TASKS", {}).pop("question-answering", None)
    tasks = pipelines.PIPELINE_REGISTRY.supported_tasks
    for task, pipeline_class, model_class, default in (
        (
            "question-answering",
            QuestionAnsweringPipeline,
            AutoModelForQuestionAnswering,
            {"model": ("distilbert/distilbert-base-cased-distilled-squad", "564e9b5")},
        ),
        ("next-sentence-prediction", NextSentencePredictionPipeline, AutoModelForNextSentencePrediction, None),
        ("multiple-choice", MultipleChoicePipeline, AutoModelForMultipleChoice, None),
    ):
        if task in tasks:  # by a user, or an earlier call
            continue
        # Not by `register_pipeline`, after which `save_pretrained` would declare custom code in the configuration: the
        # folder could not be loaded without trust_remote_code, although the pipeline is in this package.
        entry = {"impl": pipeline_class, "pt": (model_class,), "type": "text"}
        tasks[task] = entry if default is None else entry | {"default": default}
