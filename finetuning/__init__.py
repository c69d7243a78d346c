"""From task data to a fine-tuned model: tasks, the recipe, the feature-based approach, evaluation."""

from .arguments import FinetuningArguments
from .evaluation import EvaluateArguments, evaluate_model
from .feature_based import FEATURES, TABLE_7, FeaturesArguments, FeatureTagger, extract_features, tag_words
from .recipe import finetune
from .task import Task
from .tasks import TASKS

__all__ = [
    "FEATURES",
    "TABLE_7",
    "TASKS",
    "EvaluateArguments",
    "FeatureTagger",
    "FeaturesArguments",
    "FinetuningArguments",
    "Task",
    "evaluate_model",
    "extract_features",
    "finetune",
    "tag_words",
]
