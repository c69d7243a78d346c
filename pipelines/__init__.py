"""Pipelines that transformers 5 lacks: question answering, next sentence prediction, multiple choice; long texts."""

from .spans import Answer, QuestionError, Window, WindowedQuestion, answer_positions, best_answers, make_windows
from .windows import WindowPooling, own_tokens, pool_windows, window_places, window_starts

__all__ = [
    "Answer",
    "QuestionError",
    "Window",
    "WindowPooling",
    "WindowedQuestion",
    "answer_positions",
    "best_answers",
    "make_windows",
    "own_tokens",
    "pool_windows",
    "register_pipelines",
    "window_places",
    "window_starts",
]


def register_pipelines() -> None:
    """Register the tasks of this package with `transformers.pipeline`; a second call changes nothing.

    Text and token classification are transformers' own, except for models that were fine-tuned to read long texts in
    windows.

    transformers rejects the name `"question-answering"` before it looks into the registry, so the name is removed from
    its list of removed tasks. Versions without that list, or with a pipeline of their own, get ours as well.
    """
    from transformers import (
        AutoModelForMultipleChoice,
        AutoModelForNextSentencePrediction,
        AutoModelForQuestionAnswering,
        pipelines,
    )

    from .multiple_choice_pipeline import MultipleChoicePipeline
    from .next_sentence_prediction_pipeline import NextSentencePredictionPipeline
    from .question_answering_pipeline import QuestionAnsweringPipeline
    from .windowed_pipelines import WindowedTextClassificationPipeline, WindowedTokenClassificationPipeline

    getattr(pipelines, "REMOVED_TASKS", {}).pop("question-answering", None)
    registry = pipelines.PIPELINE_REGISTRY
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
        registry.supported_tasks.pop(task, None)  # avoids the warning that a task is registered twice
        registry.register_pipeline(task, pipeline_class, pt_model=model_class, default=default, type="text")
        # With this attribute, `save_pretrained` would declare custom code in the model's configuration, and the folder
        # could not be loaded without trust_remote_code, although the pipeline is in this package.
        del pipeline_class._registered_impl
    for task, windowed_class in (
        ("text-classification", WindowedTextClassificationPipeline),
        ("token-classification", WindowedTokenClassificationPipeline),
    ):
        registry.supported_tasks[task] = registry.supported_tasks[task] | {"impl": windowed_class}
