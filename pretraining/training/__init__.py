"""The run: its settings, what it prepares, the trainer, the model card."""
