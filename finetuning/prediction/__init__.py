"""Using a fine-tuned model: predictions for new data, metrics for labeled data."""
