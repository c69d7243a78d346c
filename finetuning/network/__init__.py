"""The network of a task: encoder and head, BiLSTM, features of frozen layers, vectors of texts."""

from .features import FEATURES, TABLE_7, FeatureTagger

__all__ = ["FEATURES", "TABLE_7", "FeatureTagger"]
