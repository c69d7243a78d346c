"""What a run is made of, prepared once: the task with tokenizer, classes and data, and the model it starts from."""

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from transformers import AutoConfig, AutoTokenizer, PreTrainedModel, PreTrainedTokenizerBase, set_seed

from .adapters import add_adapter, read_adapter_config
from .encoder_parts import reinitialize_layers
from .finetuning_arguments import FinetuningArguments
from .freezing import freeze_layers
from .heads import Beginning, longest_sequence
from .labels import Labels
from .rows import DataRow, DataSource
from .samples import sample, split_off
from .task import Task, TaskData

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class TaskRun:
    """A task with its data, read and tokenized.

    Attributes:
        task: The task.
        tokenizer: The tokenizer.
        labels: The classes, if it has some.
        train: The training data.
        validation: Name -> data to evaluate on; a single one has the name "".
        test: The same for data to predict.
    """

    task: Task
    tokenizer: PreTrainedTokenizerBase
    labels: Labels | None
    train: TaskData
    validation: Mapping[str, TaskData]
    test: Mapping[str, TaskData]


@dataclass(frozen=True)
class Outcome:
    """What a run with one seed gave.

    Attributes:
        metrics: Its metrics.
        seconds: How long it trained, if that is known.
        model: The model as its folder has it, if it is in memory.
        interrupted: Whether there was a Ctrl-C, in or after the last step.
    """

    metrics: dict[str, float]
    seconds: float | None = None
    model: PreTrainedModel | None = None
    interrupted: bool = False


def read_run(arguments: FinetuningArguments, task: Task) -> TaskRun:
    """Read and tokenize a task's data.

    Raises:
        ValueError: If the data is not what the task expects.
        OSError: If a file, or the tokenizer, cannot be read.
    """
    tokenizer = AutoTokenizer.from_pretrained(arguments.model, trust_remote_code=False)
    longest = longest_sequence(AutoConfig.from_pretrained(arguments.model, trust_remote_code=False))
    if longest is not None:  # pipelines cut there; a tokenizer may not know it
        tokenizer.model_max_length = min(tokenizer.model_max_length, longest)
    sources = arguments.sources(task)
    (train,) = sources["train"].values()
    rows = _rows(task, train, arguments.skip_empty)
    task = task.settled(rows)
    examples = task.training_examples(task.examples(rows, labelled=True), train)
    labels = task.labels(examples, train)
    if labels is not None:
        labels = task.in_order_of(arguments.model, labels)
    seed = arguments.sampling_seed
    found: dict[tuple[str, str], Sequence[Any]] = {}
    for name, source in sources["validation"].items():
        found["validation", name] = task.examples(_rows(task, source, arguments.skip_empty), labelled=True)
    if arguments.validation_split:
        examples, found["validation", ""] = split_off(task, examples, arguments.validation_split, seed)
        sources["validation"] = {"": train}
    if arguments.max_train_samples:
        examples = sample(task, examples, arguments.max_train_samples, seed)
    data = {("train", ""): task.encode(examples, labels, tokenizer, train)}
    found |= {("test", name): task.read(source, labelled=False) for name, source in sources["test"].items()}
    for (split, name), those in found.items():
        data[split, name] = task.encode(those, labels, tokenizer, sources[split][name])
    data = dict(zip(data, task.complete([*data.values()], tokenizer), strict=True))
    validation, test = (
        {name: found for (kind, name), found in data.items() if kind == split} for split in ("validation", "test")
    )
    return TaskRun(task, tokenizer, labels, data["train", ""], validation, test)


def _rows(task: Task, source: DataSource, skip_empty: bool) -> list[DataRow]:
    """The rows of labelled data; with `skip_empty` those that have text and label."""
    rows = task.rows(source)
    if not skip_empty:
        return rows
    kept = [row for row in rows if not task.is_empty(row)]
    if not kept:
        raise ValueError(f"{source} has {len(rows)} rows, and none with both text and label.")
    if len(kept) < len(rows):
        logger.info(
            "%s: %d of %d rows have no text or no label and are left out.", source, len(rows) - len(kept), len(rows)
        )
    return kept


def check_metric(run: TaskRun, arguments: FinetuningArguments) -> None:
    """Refuse a metric for the best model that the validation data does not give.

    Raises:
        ValueError: If it is one.
    """
    names: set[str] = set()
    measured = {"": run.train} if arguments.folds else run.validation
    for name, data in measured.items():
        metrics = run.task.score([run.task.right_prediction(example) for example in data.examples], data.examples)
        names |= {f"{name}_{metric}" if name else metric for metric in ("loss", *metrics)}
    metric = str(arguments.metric_for_best_model).removeprefix("eval_")
    if measured and metric not in names:
        raise ValueError(f"metric_for_best_model is {metric!r}; expected one of {', '.join(sorted(names))}.")


def starting_model(run: TaskRun, arguments: FinetuningArguments, seed: int) -> tuple[PreTrainedModel, list[str]]:
    """The model at the start of training, with its adapters or what is frozen for good, and which parameters are new.

    Args:
        run: The task and its data.
        arguments: The settings.
        seed: Of the new parameters.

    Raises:
        ValueError: If the model's head is one for other classes, or it has fewer layers than are to be frozen.
        OSError: If it cannot be read.
    """
    adapter = read_adapter_config(arguments.peft_config) if arguments.has_adapter else None
    set_seed(seed)
    beginning = Beginning(arguments.new_head, arguments.from_scratch, arguments.bilstm, arguments.keep_model_type)
    model, new = run.task.load_model(arguments.model, run.labels, beginning)
    reinitialize_layers(model, arguments.reinitialize_layers)
    freeze_layers(model, None if arguments.freeze == "encoder" else arguments.freeze_layers)
    return (model if adapter is None else add_adapter(model, adapter)), new
