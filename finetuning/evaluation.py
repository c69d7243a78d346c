"""Measuring without training: a model on task data, or predictions that are already there (`mybert evaluate`)."""

import json
import tempfile
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from accelerate import PartialState
from transformers import AutoConfig, AutoTokenizer, Trainer, TrainingArguments

from ..files import write_json
from .arguments import TaskArguments, evaluation_names
from .feature_based import FeatureTaggerConfig, feature_tasks
from .sources import Source
from .task import Task, check_model_name

STANDARD_OUTPUT = "-"


@dataclass
class EvaluateArguments(TaskArguments):
    """Settings of `evaluate_model`."""

    model: str | None = field(default=None, metadata={"help": "Fine-tuned model, folder or Hub name."})
    data: list[str] = field(
        default_factory=list, metadata={"help": "Task data with labels; several files are reported one by one."}
    )
    predictions: str | None = field(
        default=None, metadata={"help": "Predictions for the data in the benchmark's format, in place of a model."}
    )
    output: str = field(default=STANDARD_OUTPUT, metadata={"help": "JSON file for the metrics; - prints them."})
    predictions_dir: str | None = field(default=None, metadata={"help": "Folder to write the model's predictions to."})
    batch_size: int = field(default=64, metadata={"help": "Sequences at a time."})
    bf16: bool = field(default=False, metadata={"help": "Compute in bfloat16."})
    use_cpu: bool = field(default=False, metadata={"help": "Leave an accelerator alone."})

    def __post_init__(self) -> None:
        """Check what can be checked without looking at files.

        Raises:
            ValueError: If a setting is missing or out of its range.
            OSError: If there is no such model folder.
        """
        if isinstance(self.data, str):
            self.data = [self.data]
        if not self.data:
            raise ValueError("data is not set; expected the files to evaluate on.")
        if bool(self.model) == bool(self.predictions):
            raise ValueError("Expected a model or predictions, and not both.")
        if self.predictions and (len(self.data) > 1 or self.predictions_dir):
            raise ValueError("predictions are of one data file and already written; expected one file in data.")
        if self.batch_size < 1:
            raise ValueError(f"batch_size is {self.batch_size}; expected at least 1.")
        if self.model:
            check_model_name(self.model)
        self.resolve_task()


def evaluate_model(arguments: EvaluateArguments) -> dict[str, float]:
    """Measure a model, or predictions.

    Args:
        arguments: The settings.

    Returns:
        The task's metrics; of several files with the prefixes that `finetune` gives them. They are also printed or
        written as JSON.

    Raises:
        ValueError: If the data is not what the task expects or has no labels, the model has no head for the task, or
            the predictions do not fit the data.
        OSError: If a file cannot be read or written.
    """
    task = arguments.resolve_task()
    sources = evaluation_names(task, arguments.data)
    if arguments.predictions:
        examples = task.read(arguments.data[0])
        metrics = task.score(task.read_predictions(Path(arguments.predictions), examples), examples)
    else:
        metrics = _evaluate(task, sources, arguments)
    if not PartialState().is_main_process:
        return metrics
    if arguments.output == STANDARD_OUTPUT:
        print(json.dumps(metrics, indent=2))
    else:
        write_json(Path(arguments.output), metrics)
    return metrics


def _evaluate(task: Task, sources: dict[str, Source], arguments: EvaluateArguments) -> dict[str, float]:
    assert arguments.model
    config = AutoConfig.from_pretrained(arguments.model)
    encoder = arguments.model
    with tempfile.TemporaryDirectory() as scratch:
        settings = TrainingArguments(
            scratch,
            per_device_eval_batch_size=arguments.batch_size,
            bf16_full_eval=arguments.bf16,
            use_cpu=arguments.use_cpu,
        )
        if isinstance(config, FeatureTaggerConfig):
            encoder = config.encoder
            task = feature_tasks(task, config.features, encoder, config.lstm_size, str(settings.device))[""]
        model, labels = task.load_finetuned(arguments.model)
        tokenizer = AutoTokenizer.from_pretrained(encoder)
        trainer = Trainer(model, settings, data_collator=task.collator(tokenizer), processing_class=tokenizer)
        metrics: dict[str, Any] = {}
        for name, source in sources.items():
            data = task.encode(task.read(source), labels, tokenizer, source)
            outputs = trainer.predict(data).predictions
            predictions = task.predict(outputs, data, labels)
            prefix = f"{name}_" if name else ""
            metrics |= {f"{prefix}{key}": value for key, value in task.score(predictions, data.examples).items()}
            if arguments.predictions_dir and settings.should_save:
                folder = Path(arguments.predictions_dir)
                folder.mkdir(parents=True, exist_ok=True)
                task.write_predictions(predictions, data.examples, folder, f"_{name}" if name else "")
    return metrics
