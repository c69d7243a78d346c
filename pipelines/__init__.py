"""Pipelines that transformers 5 lacks: question answering, next sentence prediction, multiple choice; long texts."""

from typing import TYPE_CHECKING

from .._lazy_names import lazy_names

if TYPE_CHECKING:
    from .openvino_model import OpenVinoModel
    from .options import Engine, ScoringMethod
    from .pairs import MultipleChoicePipeline, NextSentencePredictionPipeline, QuestionAnsweringPipeline
    from .sentence_scores import (
        minimal_pair_accuracy,
        minimal_pair_columns,
        predict_labeled_only,
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
    from .word_cut import WordCut

__all__ = [
    "Answer",
    "Engine",
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
    "WordCut",
    "answer_positions",
    "best_answers",
    "make_windows",
    "minimal_pair_accuracy",
    "minimal_pair_columns",
    "own_tokens",
    "pool_windows",
    "predict_labeled_only",
    "pseudo_log_likelihoods",
    "window_places",
    "window_starts",
    "windowed_pipeline",
]

__getattr__, __dir__ = lazy_names(__name__)
