"""Using a fine-tuned model: predictions for new data, metrics for labelled data."""

from .finetuned_model import tag_words
from .prediction_run import PredictArguments, predict, predict_files
from .predictor import Predictor

__all__ = ["PredictArguments", "Predictor", "predict", "predict_files", "tag_words"]
