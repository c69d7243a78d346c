"""From task data to a fine-tuned model: tasks, the recipe, the feature-based approach, evaluation."""

from .commands import EvaluateArguments, FeaturesArguments, evaluate, evaluate_model, extract_features
from .distillation import DistillationArguments, distill
from .features import FEATURES, TABLE_7
from .finetuning_arguments import FinetuningArguments
from .prediction import tag_words
from .prediction_run import PredictArguments, predict, predict_files
from .predictor import Predictor
from .pruning import PruneArguments, prune
from .recipe import finetune
from .registry import TASKS
from .tagger import FeatureTagger
from .task import Task

__all__ = [
    "FEATURES",
    "TABLE_7",
    "TASKS",
    "DistillationArguments",
    "EvaluateArguments",
    "FeatureTagger",
    "FeaturesArguments",
    "FinetuningArguments",
    "PredictArguments",
    "Predictor",
    "PruneArguments",
    "Task",
    "distill",
    "evaluate",
    "evaluate_model",
    "extract_features",
    "finetune",
    "predict",
    "predict_files",
    "prune",
    "tag_words",
]
