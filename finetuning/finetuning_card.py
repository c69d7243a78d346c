"""What a fine-tuning run says about itself: examples, curves and the card."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from huggingface_hub import EvalResult
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from ..files import describe_environment
from ..hub_card import (
    CardContent,
    Comparison,
    Example,
    TrainingDescription,
    write_card,
)
from .finetuning_arguments import FinetuningArguments
from .task import Task, TaskData

EXAMPLES = 3  # on the card


def task_examples(
    task: Task, data: Sequence[Any], model_dir: Path, model: PreTrainedModel | None, tokenizer: PreTrainedTokenizerBase
) -> list[Example]:
    """The model on a few examples of the data; see `Task.card_examples`."""
    places = np.random.default_rng(0).permutation(len(data))[:EXAMPLES]
    return task.card_examples([data[place] for place in places], model_dir, model, tokenizer)


def write_finetuning_card(
    output_dir: Path,
    arguments: FinetuningArguments,
    task: Task,
    train: TaskData,
    metrics: Mapping[str, float],
    seconds: float | None,
    by_seed: Mapping[int, Mapping[str, float]],
    examples: Sequence[Example],
) -> None:
    """Write the model's card.

    Args:
        output_dir: The model folder.
        arguments: The run's settings.
        task: The task.
        train: The training data.
        metrics: Of the model.
        seconds: How long it trained, if that is known.
        by_seed: The metrics of all seeds, the model's own among them.
        examples: What `task_examples` gave.
    """
    transfer = {
        "frozen": arguments.freeze or (arguments.freeze_layers if arguments.freeze_layers >= 0 else None),
        "head first, epochs": arguments.train_head_first or None,
        "gradual unfreezing, epochs a layer": arguments.gradual_unfreezing or None,
        "reinitialised top layers": arguments.reinitialize_layers or None,
        "learning rate from layer to layer": arguments.layer_decay if arguments.layer_decay != 1 else None,
    }
    duration = {"steps": arguments.max_steps} if arguments.max_steps > 0 else {"epochs": arguments.num_train_epochs}
    data = arguments.dataset or ", ".join(Path(name).name for name in arguments.validation_file or ())
    seeds = Comparison(
        f"The {len(by_seed)} seeds of the run; the best one is this model.",
        {f"seed {seed}": values for seed, values in by_seed.items()},
    )
    write_card(
        output_dir,
        CardContent(
            name=output_dir.name,
            summary=f"A BERT model fine-tuned for {arguments.task}.",
            training=TrainingDescription(
                corpus=f"{_data_name(train)}, {len(train.examples):,} examples",
                hyperparameters={
                    "learning rate": arguments.learning_rate,
                    "batch size": arguments.train_batch_size
                    * arguments.gradient_accumulation_steps
                    * arguments.world_size,
                    **duration,
                    "longest sequence": task.max_length,
                    **{name: value for name, value in transfer.items() if value is not None},
                },
                seeds=list(by_seed),
                wall_time=seconds,
                **describe_environment(),
            ),
            examples=examples,
            results=[
                EvalResult(
                    task_type=task.pipeline,
                    dataset_type=arguments.task,
                    dataset_name=data,
                    metric_type=name,
                    metric_value=value,
                )
                for name, value in metrics.items()
                if not name.endswith("loss") and np.isfinite(value)
            ],
            comparisons=[seeds] if len(by_seed) > 1 else [],
        ),
    )


def _data_name(data: TaskData) -> str:
    return Path(data.source).name if isinstance(data.source, (str, Path)) else str(data.source)
