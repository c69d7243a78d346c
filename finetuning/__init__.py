"""From task data to a fine-tuned model: tasks, the recipe, the feature-based approach, evaluation."""

from .commands import EvaluateArguments, FeaturesArguments, evaluate, evaluate_model, extract_features
from .distillation import DistillationArguments, distill
from .network import FEATURES, TABLE_7, FeatureTagger
from .prediction import PredictArguments, Predictor, predict, predict_files, tag_words
from .pruning import PruneArguments, prune
from .tasks import TASKS, Task
from .training import FinetuningArguments, finetune

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
