"""Fine-tuning from end to end: task data to a model folder, metrics and predictions (`mybert finetune`)."""

import json
import logging
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from huggingface_hub import EvalResult
from transformers import (
    AutoConfig,
    AutoModelForSequenceClassification,
    AutoTokenizer,
    DataCollatorWithPadding,
    EvalPrediction,
    PreTrainedModel,
    PreTrainedTokenizerBase,
    Trainer,
    TrainingArguments,
    set_seed,
)
from transformers.utils import logging as hf_logging

from ..hub_card import CardContent, Example, TrainingDescription, describe_environment, run_example, write_card
from ..training import StopOnInterrupt, open_run_folder
from ..visualization import training_curves
from .classification import ClassificationDataset, Labels, load_examples
from .tasks import TASKS, Task

logger = logging.getLogger(__name__)

# What Trainer reports of an evaluation beside the task's metrics.
_BOOKKEEPING = ("loss", "runtime", "samples_per_second", "steps_per_second", "epoch", "model_preparation_time")
EXAMPLES = 3  # on the card

# Settings that decide a run's result: an interrupted run goes on only with the same.
_DECISIVE = (
    *("task", "model", "train_file", "text_column", "text_pair_column", "label_column", "encoding"),
    *("max_length", "from_scratch"),
    *("learning_rate", "warmup_steps", "weight_decay", "adam_beta1", "adam_beta2", "adam_epsilon"),
    *("per_device_train_batch_size", "gradient_accumulation_steps", "max_steps", "num_train_epochs", "seed"),
)


@dataclass
class FinetuningArguments(TrainingArguments):
    """Settings of `finetune`: those below and all of transformers' `TrainingArguments`."""

    task: str = field(default="classification", metadata={"help": f"The task: {', '.join(TASKS)}."})
    model: str = field(default="", metadata={"help": "Model folder or Hub name to start from."})
    train_file: str = field(default="", metadata={"help": "Training data (.csv, .tsv, .json, .jsonl)."})
    validation_file: str | None = field(default=None, metadata={"help": "Data to evaluate on."})
    test_file: str | None = field(default=None, metadata={"help": "Data to predict; labels are not needed."})
    text_column: str | None = field(default=None, metadata={"help": "Column of the sentence, if not the task's own."})
    text_pair_column: str | None = field(default=None, metadata={"help": "Column of a pair's second sentence."})
    label_column: str | None = field(default=None, metadata={"help": "Column of the label, if not the task's own."})
    encoding: str = field(default="utf-8", metadata={"help": "Encoding of the data files."})
    max_length: int = field(default=128, metadata={"help": "Longest sequence in tokens."})
    from_scratch: bool = field(
        default=False, metadata={"help": "Start from random weights (to see what pretraining gives)."}
    )
    overwrite: bool = field(default=False, metadata={"help": "Delete what the output folder holds."})
    learning_rate: float = field(default=5e-5, metadata={"help": "Peak learning rate."})
    warmup_steps: float = field(default=0.1, metadata={"help": "Steps of warm-up; below 1 a share of all steps."})
    weight_decay: float = field(default=0.01, metadata={"help": "Weight decay, without biases and LayerNorm."})
    adam_epsilon: float = field(default=1e-6, metadata={"help": "Epsilon of Adam."})
    dataloader_pin_memory: bool = field(
        default_factory=torch.cuda.is_available, metadata={"help": "Pin batches in memory, for a faster way to a GPU."}
    )
    per_device_train_batch_size: int = field(default=32, metadata={"help": "Sequences of a batch on a device."})
    per_device_eval_batch_size: int = field(default=64, metadata={"help": "The same in evaluation."})
    logging_steps: float = field(default=50, metadata={"help": "Log every so many steps."})
    save_strategy: str = field(default="epoch", metadata={"help": "When to save a checkpoint: no, steps, epoch."})
    eval_strategy: str = field(default="epoch", metadata={"help": "When to evaluate: no, steps, epoch."})
    save_total_limit: int | None = field(default=1, metadata={"help": "Keep this many checkpoints."})

    def __post_init__(self) -> None:
        """Check what can be checked without looking at files."""
        for name in ("model", "train_file", "output_dir"):
            if not getattr(self, name):
                raise ValueError(f"{name} is not set; fine-tuning needs model, train_file and output_dir.")
        if self.task not in TASKS:
            raise ValueError(f"task is {self.task!r}; expected one of {', '.join(TASKS)}.")
        if self.validation_file is None:
            self.eval_strategy = "no"
        super().__post_init__()

    def resolve_task(self) -> Task:
        """The task with the columns that were named."""
        task = TASKS[self.task]
        if self.text_column or self.text_pair_column:
            columns = (self.text_column or task.text_columns[0], self.text_pair_column)
            task = replace(task, text_columns=tuple(name for name in columns if name))
        return replace(task, label_column=self.label_column) if self.label_column else task


def finetune(arguments: FinetuningArguments) -> dict[str, Any]:
    """Fine-tune a model on a task.

    The output folder becomes a model folder, with `metrics.json`, `README.md`, `training_curves.png` and, for a test
    file, `predictions.tsv` (index, prediction, and the probability of each class).

    Args:
        arguments: The settings.

    Returns:
        The metrics of the validation file; `examples`, those of the card; `interrupted`, whether Ctrl-C ended the run
        early.

    Raises:
        ValueError: If a file lacks a column or a label, has one class only or an unknown one, or the output folder
            holds other things.
        OSError: If a file cannot be read or written.
    """
    task = arguments.resolve_task()
    output_dir = Path(arguments.output_dir)
    tokenizer = AutoTokenizer.from_pretrained(arguments.model)
    datasets, labels = _datasets(arguments, task, tokenizer)
    set_seed(arguments.seed)
    model = _model(arguments, labels)
    checkpoint = open_run_folder(output_dir, _settings(arguments), arguments.overwrite)
    logger.info("Training data: %s examples.", f"{len(datasets['train']):,}")
    logger.info("A training example:\n  %s", tokenizer.decode(datasets["train"][0]["input_ids"]))
    interrupt = StopOnInterrupt()
    trainer = Trainer(
        model=model,
        args=arguments,
        train_dataset=datasets["train"],
        eval_dataset=datasets.get("validation"),
        data_collator=DataCollatorWithPadding(tokenizer),
        processing_class=tokenizer,
        compute_metrics=lambda prediction: _metrics(task, prediction),
        callbacks=[interrupt],
    )
    result = trainer.train(resume_from_checkpoint=checkpoint)
    if interrupt.interrupted:
        logger.warning("Stopped at step %d; the same command goes on from there.", trainer.state.global_step)
        return {"interrupted": True}
    metrics = trainer.evaluate() if "validation" in datasets else {}
    metrics = {name.removeprefix("eval_"): value for name, value in metrics.items()}
    model.save_pretrained(output_dir)
    tokenizer.save_pretrained(output_dir)
    trainer.save_state()
    (output_dir / "metrics.json").write_text(json.dumps(metrics, indent=2) + "\n")
    if "test" in datasets:
        _write_predictions(trainer, datasets["test"], labels, output_dir / "predictions.tsv")
    try:
        training_curves(trainer.state.log_history, output_dir / "training_curves.png")
    except ImportError as error:
        logger.warning(str(error))
    examples = _examples(output_dir, arguments, task)
    _write_card(output_dir, arguments, metrics, result.metrics["train_runtime"], len(datasets["train"]), examples)
    return metrics | {"examples": [asdict(example) for example in examples], "interrupted": False}


def _datasets(
    arguments: FinetuningArguments, task: Task, tokenizer: PreTrainedTokenizerBase
) -> tuple[dict[str, ClassificationDataset], Labels | None]:
    """The data sets that there are files for, and the classes of the training data."""
    labels = None
    datasets = {}
    for name, path in (
        ("train", arguments.train_file),
        ("validation", arguments.validation_file),
        ("test", arguments.test_file),
    ):
        if path is None:
            continue
        texts, values = load_examples(path, task, arguments.encoding, labelled=name != "test")
        if values is not None and not task.is_regression:
            labels = labels or Labels.from_column(values, path)
            values = labels.ids(values, path)
        datasets[name] = ClassificationDataset(texts, values, tokenizer, arguments.max_length)
    return datasets, labels


def _model(arguments: FinetuningArguments, labels: Labels | None) -> PreTrainedModel:
    names = ("value",) if labels is None else labels.names
    config = AutoConfig.from_pretrained(
        arguments.model,
        id2label=dict(enumerate(names)),
        label2id={name: index for index, name in enumerate(names)},
        problem_type="regression" if labels is None else "single_label_classification",
    )
    longest = getattr(config, "max_position_embeddings", arguments.max_length)
    if arguments.max_length > longest:
        raise ValueError(f"max_length is {arguments.max_length}; {arguments.model} reads at most {longest} tokens.")
    if arguments.from_scratch:
        return AutoModelForSequenceClassification.from_config(config)
    verbosity = hf_logging.get_verbosity()
    hf_logging.set_verbosity_error()  # a report on every weight of the heads; what matters of it is said below
    try:
        model, loaded = AutoModelForSequenceClassification.from_pretrained(
            arguments.model, config=config, output_loading_info=True
        )
    finally:
        hf_logging.set_verbosity(verbosity)
    logger.info("Weights from %s; new ones: %s.", arguments.model, ", ".join(sorted(loaded["missing_keys"])) or "none")
    return model


def _metrics(task: Task, prediction: EvalPrediction) -> dict[str, float]:
    logits = np.asarray(prediction.predictions)
    values = logits[:, 0] if task.is_regression else logits.argmax(-1)
    return task.compute_metrics(values, np.asarray(prediction.label_ids))


def _write_predictions(trainer: Trainer, dataset: ClassificationDataset, labels: Labels | None, path: Path) -> None:
    logits = trainer.predict(dataset).predictions.astype(np.float64)
    if labels is None:
        header, rows = ["index", "prediction"], [[f"{value:.6f}"] for value in logits[:, 0]]
    else:
        exponentials = np.exp(logits - logits.max(-1, keepdims=True))
        probabilities = exponentials / exponentials.sum(-1, keepdims=True)
        header = ["index", "prediction", *labels.names]
        rows = [[labels.names[row.argmax()], *(f"{value:.6f}" for value in row)] for row in probabilities]
    partial = path.with_suffix(".partial")
    lines = ["\t".join(header), *("\t".join([str(index), *row]) for index, row in enumerate(rows))]
    partial.write_text("\n".join(lines) + "\n", encoding="utf-8")
    partial.replace(path)


def _settings(arguments: FinetuningArguments) -> dict[str, Any]:
    """What decides the result of a run."""
    return {"command": "finetune"} | {name: getattr(arguments, name) for name in _DECISIVE}


def _examples(output_dir: Path, arguments: FinetuningArguments, task: Task) -> list[Example]:
    """The text-classification pipeline on a few rows of the validation data, or else of the training data."""
    path = arguments.validation_file or arguments.train_file
    texts, labels = load_examples(path, task, arguments.encoding)
    assert labels is not None
    examples = []
    for index in np.random.default_rng(0).permutation(len(labels))[:EXAMPLES]:
        parts = dict(zip(("text", "text_pair"), (column[index] for column in texts), strict=False))
        code = (
            "import mybert\n"
            "from transformers import pipeline\n\n"
            f"classify = pipeline('text-classification', model={str(output_dir)!r})\n"
            f"answer = classify({parts if len(parts) > 1 else [parts['text']]!r})\n"
            "print(answer)"
        )
        examples.append(run_example(f"Text classification (the data says: {labels[index]})", code))
    return examples


def _write_card(
    output_dir: Path,
    arguments: FinetuningArguments,
    metrics: dict[str, float],
    wall_time: float,
    size: int,
    examples: list[Example],
) -> None:
    write_card(
        output_dir,
        CardContent(
            name=output_dir.name,
            summary=f"A BERT model fine-tuned for {arguments.task}.",
            training=TrainingDescription(
                corpus=f"{Path(arguments.train_file).name}, {size:,} examples",
                hyperparameters={
                    "learning rate": arguments.learning_rate,
                    "batch size": arguments.train_batch_size * arguments.gradient_accumulation_steps,
                    "epochs": arguments.num_train_epochs,
                    "longest sequence": arguments.max_length,
                },
                seeds=[arguments.seed],
                wall_time=wall_time,
                **describe_environment(),
            ),
            examples=examples,
            results=[
                EvalResult(
                    task_type="text-classification",
                    dataset_type=arguments.task,
                    dataset_name=Path(str(arguments.validation_file)).name,
                    metric_type=name,
                    metric_value=metrics[name],
                )
                for name in metrics
                if name not in _BOOKKEEPING
            ],
        ),
    )
