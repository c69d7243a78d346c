"""A fine-tuning run: its settings, samples, trainer, measurement and card."""
