"""Measuring a fine-tuned model on task data, without training."""

import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from transformers import Trainer, TrainingArguments

from .prediction import load_finetuned_model
from .rows import DataSource
from .task import Task


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
        for name, source in sources.items():
            data = task.encode(task.read(source), labels, tokenizer, source)
            predictions: Sequence[Any] = task.predict(trainer.predict(data).predictions, data, labels)
            prefix = f"{name}_" if name else ""
            metrics |= {f"{prefix}{key}": value for key, value in task.score(predictions, data.examples).items()}
            if predictions_dir and arguments.should_save:
                folder = Path(predictions_dir)
                folder.mkdir(parents=True, exist_ok=True)
                task.write_predictions(predictions, data.examples, folder, f"_{name}" if name else "")
    return metrics
