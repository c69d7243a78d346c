"""Tasks: their definition, a file for each kind, the registry, and the settings that they share."""

from .classification_task import ClassificationTask
from .feature_task import FeatureTask, feature_tasks
from .fill_mask_task import FillMaskTask
from .multiple_choice_task import MultipleChoiceTask
from .next_sentence_task import NextSentenceTask
from .question_answering_task import QuestionAnsweringTask
from .registry import TASKS
from .tagged_sentences import TaggedSentence
from .tagging_task import TaggingTask
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
    "feature_tasks",
]
