"""A fine-tuning run: its settings, samples, trainer, measurement and card."""

from .finetuning_arguments import FinetuningArguments
from .run import finetune

__all__ = ["FinetuningArguments", "finetune"]
