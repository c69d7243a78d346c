"""The kinds of tasks, one file each."""

from .classification_task import ClassificationTask
from .feature_task import FeatureTask, feature_tasks
from .fill_mask_task import FillMaskTask
from .multiple_choice_task import MultipleChoiceTask
from .next_sentence_task import NextSentenceTask
from .question_answering_task import QuestionAnsweringTask
from .tagging_task import TaggedSentence, TaggingTask

__all__ = [
    "ClassificationTask",
    "FeatureTask",
    "FillMaskTask",
    "MultipleChoiceTask",
    "NextSentenceTask",
    "QuestionAnsweringTask",
    "TaggedSentence",
    "TaggingTask",
    "feature_tasks",
]
