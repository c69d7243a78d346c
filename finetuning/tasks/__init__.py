"""Tasks: their definition, a file for each kind, the registry, and the settings that they share."""

from .classification import ClassificationTask, NextSentenceTask
from .fill_mask import FillMaskTask
from .multiple_choice import MultipleChoiceTask
from .question_answering import QuestionAnsweringTask
from .registry import TASKS
from .tagging import FeatureTask, TaggedSentence, TaggingTask, feature_task
from .task import Task

__all__ = [
    "TASKS",
    "ClassificationTask",
    "FeatureTask",
    "FillMaskTask",
    "MultipleChoiceTask",
    "NextSentenceTask",
    "QuestionAnsweringTask",
    "TaggedSentence",
    "TaggingTask",
    "Task",
    "feature_task",
]
