"""Pipelines that transformers 5 lacks: question answering, next sentence prediction, multiple choice."""

from .spans import Answer, Window, WindowedQuestion, answer_positions, best_answers, make_windows

__all__ = [
    "Answer",
    "Window",
    "WindowedQuestion",
    "answer_positions",
    "best_answers",
    "make_windows",
    "register_pipelines",
]


def register_pipelines() -> None:
    """Make `transformers.pipeline` know the tasks of this room; a second call changes nothing.

    transformers refuses the name `"question-answering"` before it looks into the registry, so the name leaves its list
    of removed tasks. Versions without that list, or with a pipeline of their own, get ours as well.
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
        registry.supported_tasks.pop(task, None)  # spares the warning that a task is registered twice
        registry.register_pipeline(task, pipeline_class, pt_model=model_class, default=default, type="text")
        # With this mark `save_pretrained` would declare custom code in the model's config, and the saved folder could
        # not be loaded without trust_remote_code, although the pipeline is here.
        del pipeline_class._registered_impl
