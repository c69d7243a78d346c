"""The network of a task: encoder and head, BiLSTM, features of frozen layers, vectors of texts."""
