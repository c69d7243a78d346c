"""The whole BERT life in minutes, without a download."""
