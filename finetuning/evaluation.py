"""Measuring a fine-tuned model on task data, without training."""

import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from transformers import Trainer, TrainingArguments

from ..files import files_written_beside
from .prediction import load_finetuned_model
from .rows import DataSource
from .task import Task

# What `Task.write_predictions` writes.
PREDICTION_FILES = ("predictions*", "nbest_predictions*.json", "null_odds*.json")


def measure_model(
    task: Task,
    model: str,
    sources: Mapping[str, DataSource],
    batch_size: int = 64,
    predictions_dir: str | Path | None = None,
    **settings: Any,
) -> dict[str, float]:
    """Measure a model on task data.

    Args:
        task: The task.
        model: Folder or Hub name.
        sources: Name -> data with labels; a single one has the name "".
        batch_size: Sequences at a time.
        predictions_dir: Folder to write predictions to.
        **settings: Further arguments of `TrainingArguments`.

    Returns:
        The task's metrics; of several data sets each with the prefix of its name.

    Raises:
        ValueError: If the model has no head for the task, or the data is not what the task expects.
        OSError: If a file cannot be read or written.
    """
    with tempfile.TemporaryDirectory() as scratch:
        arguments = TrainingArguments(scratch, per_device_eval_batch_size=batch_size, **settings)
        task, network, labels, tokenizer = load_finetuned_model(task, model, arguments.device)
        collator = task.collator(tokenizer, network)
        trainer = Trainer(network, arguments, data_collator=collator, processing_class=tokenizer)
        metrics: dict[str, float] = {}
        predicted = {}
        encoded = [task.encode(task.read(source), labels, tokenizer, source) for source in sources.values()]
        for name, data in zip(sources, task.complete(encoded, tokenizer), strict=True):
            predicted[name] = predictions = task.predict(trainer.predict(data).predictions, data, labels)
            prefix = f"{name}_" if name else ""
            metrics |= {f"{prefix}{key}": value for key, value in task.score(predictions, data.examples).items()}
        if predictions_dir and arguments.should_save:
            Path(predictions_dir).mkdir(parents=True, exist_ok=True)
            with files_written_beside(predictions_dir) as folder:
                for (name, predictions), data in zip(predicted.items(), encoded, strict=True):
                    task.write_predictions(predictions, data.examples, folder, f"_{name}" if name else "")
    return metrics
