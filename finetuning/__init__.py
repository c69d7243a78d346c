"""From task data to a fine-tuned model: tasks, the recipe, the feature-based approach, evaluation."""

from .commands import EvaluateArguments, FeaturesArguments, evaluate, evaluate_model, extract_features
from .comparison import CompareArguments, compare, compare_files
from .distillation import DistillationArguments, distill
from .features import FEATURES, TABLE_7, FeatureTagger
from .prediction.prediction_run import PredictArguments, predict, predict_files
from .prediction.predictor import Predictor, tag_words
from .prediction.sentence_scoring import ScoreArguments, score, score_files
from .tasks.registry import TASKS
from .tasks.task import Task
from .training.finetuning_arguments import FinetuningArguments
from .training.run import finetune

__all__ = [
    "FEATURES",
    "TABLE_7",
    "TASKS",
    "CompareArguments",
    "DistillationArguments",
    "EvaluateArguments",
    "FeatureTagger",
    "FeaturesArguments",
    "FinetuningArguments",
    "PredictArguments",
    "Predictor",
    "ScoreArguments",
    "Task",
    "compare",
    "compare_files",
    "distill",
    "evaluate",
    "evaluate_model",
    "extract_features",
    "finetune",
    "predict",
    "predict_files",
    "score",
    "score_files",
    "tag_words",
]
