"""Using a fine-tuned model: predictions for new data, metrics for labelled data."""

from .prediction_run import PredictArguments, predict, predict_files
from .predictor import Predictor, tag_words

__all__ = ["PredictArguments", "Predictor", "predict", "predict_files", "tag_words"]
