"""From task data to a fine-tuned model."""
