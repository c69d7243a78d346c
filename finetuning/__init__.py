"""From task data to a fine-tuned model: tasks, the recipe, the feature-based approach, evaluation."""

from typing import TYPE_CHECKING

from .._lazy_names import lazy_names

if TYPE_CHECKING:
    from .commands import evaluate, evaluate_model, extract_features
    from .comparison import compare, compare_files
    from .distill_settings import DistillSettings
    from .distillation import DistillationArguments, distill
    from .feature_table import FEATURES, TABLE_7
    from .features import FeatureTagger
    from .prediction.prediction_run import predict, predict_files
    from .prediction.predictor import Predictor, tag_words
    from .prediction.sentence_scoring import score, score_files
    from .settings.evaluation import CompareArguments, CompareSettings, EvaluateArguments, EvaluateSettings
    from .settings.features import FeaturesArguments, FeaturesSettings
    from .settings.prediction import PredictArguments, PredictSettings, ScoreArguments, ScoreSettings
    from .tasks.registry import TASKS
    from .tasks.task import Task
    from .training.finetune_settings import FinetuneSettings
    from .training.plan import FinetunePlan, FinetuningArguments, plan_finetuning
    from .training.run import finetune

__all__ = [
    "FEATURES",
    "TABLE_7",
    "TASKS",
    "CompareArguments",
    "CompareSettings",
    "DistillSettings",
    "DistillationArguments",
    "EvaluateArguments",
    "EvaluateSettings",
    "FeatureTagger",
    "FeaturesArguments",
    "FeaturesSettings",
    "FinetunePlan",
    "FinetuneSettings",
    "FinetuningArguments",
    "PredictArguments",
    "PredictSettings",
    "Predictor",
    "ScoreArguments",
    "ScoreSettings",
    "Task",
    "compare",
    "compare_files",
    "distill",
    "evaluate",
    "evaluate_model",
    "extract_features",
    "finetune",
    "plan_finetuning",
    "predict",
    "predict_files",
    "score",
    "score_files",
    "tag_words",
]

__getattr__, __dir__ = lazy_names(__name__)
