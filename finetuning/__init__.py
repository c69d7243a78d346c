"""From task data to a fine-tuned model."""

from .recipe import FinetuningArguments, finetune
from .tasks import TASKS, Task

__all__ = ["TASKS", "FinetuningArguments", "Task", "finetune"]
