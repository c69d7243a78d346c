"""Fine-tuning from end to end: task data to a model folder, metrics and predictions (`mybert finetune`)."""

import copy
import inspect
import json
import logging
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from tokenizers.models import WordPiece
from torch import nn
from torch.utils.data import DataLoader, Dataset, Sampler, SequentialSampler
from transformers import (
    AutoConfig,
    AutoTokenizer,
    PreTrainedModel,
    PreTrainedTokenizerBase,
    TrainerCallback,
    TrainerState,
    set_seed,
)
from transformers.trainer import TRAINER_STATE_NAME
from transformers.trainer_utils import EvalLoopOutput

from ..files import write_json
from ..hub_card import Example
from ..runs import (
    MyBertAdamW,
    ResumableTrainer,
    StopOnInterrupt,
    draw_curves,
    last_complete_checkpoint,
    open_run_folder,
    prepare_once,
    speak_in_one_process,
)
from ..tokenization import save_vocab
from .arguments import FinetuningArguments
from .feature_based import feature_tasks
from .freezing import Unfreezing, freeze_layers
from .layers import layerwise_groups, reinitialize_layers
from .report import run_examples, write_finetuning_card
from .task import Labels, Task, TaskData, check_model_name

logger = logging.getLogger(__name__)

METRICS = "metrics.json"
_BOOKKEEPING = ("runtime", "samples_per_second", "steps_per_second", "epoch", "model_preparation_time")


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
    """What a run with one seed gave: its metrics, and how long it trained, if that is known."""

    metrics: dict[str, float]
    seconds: float | None = None


class TaskTrainer(ResumableTrainer):
    """`Trainer` that scores what the task predicts, with learning rates by layer.

    Args:
        run: The task and its data.
        args: Settings.
        **kwargs: Further arguments of `Trainer`.
    """

    args: FinetuningArguments
    optimizer: Any

    def __init__(self, run: TaskRun, args: FinetuningArguments, **kwargs: Any) -> None:
        validation = dict(run.validation)
        super().__init__(
            args=args,
            train_dataset=run.train,
            eval_dataset=validation.get("", validation) or None,
            data_collator=run.task.collator(run.tokenizer),
            processing_class=run.tokenizer,
            compute_metrics=lambda prediction: {},  # Trainer keeps the logits only if there is one
            **kwargs,
        )
        self.run = run
        # `Trainer` looks for **kwargs, in which many models lose it; nobody would divide their accumulated gradient.
        self.model_accepts_loss_kwargs = "num_items_in_batch" in inspect.signature(self.model.forward).parameters

    def _get_num_items_in_batch(self, batch_samples: list, device: torch.device) -> torch.Tensor | int | None:
        """`Trainer`'s, which counts labels; the start of an answer is one."""
        name = "start_positions"
        counted = [{"labels": batch[name]} if name in batch else batch for batch in batch_samples]
        return super()._get_num_items_in_batch(counted, device)

    def compute_loss(self, model: nn.Module, inputs: dict[str, Any], *args: Any, **kwargs: Any) -> Any:
        """`Trainer`'s, with the task's arguments for the model."""
        return super().compute_loss(model, {**inputs, **self.run.task.forward_options(self.model)}, *args, **kwargs)

    def create_optimizer(self, model: nn.Module | None = None) -> torch.optim.Optimizer:
        """The arguments' optimizer, AdamW with bias correction unless they say otherwise, on groups by layer."""
        if self.optimizer is None:
            arguments: Any = self.args
            groups = layerwise_groups(
                self.model, arguments.learning_rate, arguments.layer_decay, arguments.weight_decay
            )
            optimizer_class, options = self.get_optimizer_cls_and_kwargs(arguments, self.model)
            if not arguments.correct_bias:
                optimizer_class, options = MyBertAdamW, options | {"correct_bias": False}
            self.optimizer = optimizer_class(groups, **options)
        return super().create_optimizer(model)

    def _get_eval_sampler(self, eval_dataset: Dataset) -> Sampler | None:
        """In the data's own order, to which predictions belong, whatever the order of training."""
        return SequentialSampler(eval_dataset) if self.args.world_size <= 1 else None  # type: ignore[arg-type]

    def evaluation_loop(self, dataloader: DataLoader, *args: Any, **kwargs: Any) -> EvalLoopOutput:
        """`Trainer`'s, with the task's metrics for the data that is being read."""
        data: Any = dataloader.dataset
        self.compute_metrics = lambda prediction: self.run.task.score(
            self.run.task.predict(prediction.predictions, data, self.run.labels), data.examples
        )
        return super().evaluation_loop(dataloader, *args, **kwargs)

    def evaluate_all(self, split: str, data: Mapping[str, TaskData]) -> tuple[dict[str, float], dict[str, Any]]:
        """Predict every data set of a split.

        Args:
            split: Stands before the metrics' names.
            data: Name -> data set.

        Returns:
            The metrics, without those of speed, and name -> the network's outputs.
        """
        metrics: dict[str, float] = {}
        outputs: dict[str, Any] = {}
        for name, examples in data.items():
            prefix = f"{split}_{name}" if name else split
            output = self.predict(examples, metric_key_prefix=prefix)
            outputs[name] = output.predictions
            measured = {key: float(value) for key, value in (output.metrics or {}).items()}
            metrics |= {key: measured[key] for key in measured if key.removeprefix(f"{prefix}_") not in _BOOKKEEPING}
        if metrics:
            self.log(dict(metrics))
        return metrics, outputs


def finetune(arguments: FinetuningArguments) -> dict[str, Any]:
    """Fine-tune a model on a task.

    The output folder becomes a model folder, with `metrics.json`, `README.md`, `training_curves.png` and predictions
    in the benchmark's format: for the test data, or else for the validation data. With several seeds it is that of the
    best; the others' metrics are in `seed_*`. With all rows of the paper's table 7 each row has a folder of its own.

    Args:
        arguments: The settings.

    Returns:
        The metrics of the validation data, those of the test data, if it has labels, with the prefix `test_`;
        `examples`, those of the card; `interrupted`, whether Ctrl-C ended the run early. With several seeds also
        `mean`, `deviation` and `best_seed`; with all rows of table 7 row -> metrics.

    Raises:
        ValueError: If the data lacks a column or a label, has one class only or an unknown one, the model has another
            head, or the output folder holds other things.
        OSError: If a file cannot be read or written.
    """
    speak_in_one_process(arguments)
    check_model_name(arguments.model)
    task = arguments.resolve_task()
    tasks = {"": task}
    if arguments.approach == "features":
        device = str(arguments.device)
        tasks = feature_tasks(task, arguments.features, arguments.model, arguments.lstm_size, device)
    with arguments.main_process_first(local=False, desc="reading and tokenizing the data"):
        run = read_run(arguments, next(iter(tasks.values())))
        _check_metric(run, arguments)  # mistakes have to show before there is a folder
        _make_model(run, arguments)
    files = [str(data.source) for data in (run.train, *run.validation.values(), *run.test.values())]
    prepare_once(
        arguments,
        lambda: open_run_folder(
            arguments.output_dir,
            arguments.decisive(),
            arguments.overwrite,
            [file for file in files if Path(file).is_file()],
            [arguments.model],
        ),
    )
    logger.info("Training data: %s examples, %s sequences.", f"{len(run.train.examples):,}", f"{len(run.train):,}")
    ids = run.train[0].get("input_ids")
    if ids is not None:
        choices = ids if isinstance(ids[0], list) else [ids]
        logger.info("A training example:\n  %s", "\n  ".join(map(run.tokenizer.decode, choices)))
    results: dict[str, dict[str, Any]] = {}
    for name, row in tasks.items():
        if name:
            logger.info("Features: %s.", name)
        results[name] = _finetune(replace(run, task=row), arguments, Path(arguments.output_dir) / name)
        if results[name]["interrupted"]:
            return {"interrupted": True}
    if list(results) == [""]:
        return results[""]
    if arguments.should_save:
        metrics = {name: {key: result[key] for key in result if key != "examples"} for name, result in results.items()}
        write_json(Path(arguments.output_dir) / METRICS, metrics)
    return results | {"interrupted": False}


def read_run(arguments: FinetuningArguments, task: Task) -> TaskRun:
    """Read and tokenize a task's data.

    Raises:
        ValueError: If the data is not what the task expects.
        OSError: If a file, or the tokenizer, cannot be read.
    """
    tokenizer = AutoTokenizer.from_pretrained(arguments.model)
    longest = getattr(AutoConfig.from_pretrained(arguments.model), "max_position_embeddings", None)
    if longest is not None:  # pipelines cut there; a tokenizer may not know it
        tokenizer.model_max_length = min(tokenizer.model_max_length, longest)
    sources = arguments.sources(task)
    (train,) = sources["train"].values()
    examples = task.training_examples(task.read(train), train)
    labels = task.labels(examples, train)
    if labels is not None:
        labels = task.in_order_of(arguments.model, labels)
    data = {"train": {"": task.encode(examples, labels, tokenizer, train)}}
    for split in ("validation", "test"):
        data[split] = {
            name: task.encode(task.read(source, labelled=split == "validation"), labels, tokenizer, source)
            for name, source in sources[split].items()
        }
    return TaskRun(task, tokenizer, labels, data["train"][""], data["validation"], data["test"])


def _check_metric(run: TaskRun, arguments: FinetuningArguments) -> None:
    """Refuse a metric for the best model that the validation data does not give."""
    names: set[str] = set()
    for name, data in run.validation.items():
        metrics = run.task.score([run.task.right_prediction(example) for example in data.examples], data.examples)
        names |= {f"{name}_{metric}" if name else metric for metric in ("loss", *metrics)}
    metric = str(arguments.metric_for_best_model).removeprefix("eval_")
    if run.validation and metric not in names:
        raise ValueError(f"metric_for_best_model is {metric!r}; expected one of {', '.join(sorted(names))}.")


def _make_model(run: TaskRun, arguments: FinetuningArguments) -> tuple[PreTrainedModel, list[str]]:
    """The model at the start of training, with what is frozen for good, and which parameters are new."""
    model, new = run.task.load_model(
        arguments.model,
        run.labels,
        arguments.new_head,
        arguments.from_scratch,
        arguments.bilstm,
        arguments.keep_model_type,
    )
    if arguments.reinitialize_layers:
        reinitialize_layers(model, arguments.reinitialize_layers)
    freeze_layers(model, None if arguments.freeze == "encoder" else arguments.freeze_layers)
    return model, new


def _finetune(run: TaskRun, arguments: FinetuningArguments, output_dir: Path) -> dict[str, Any]:
    """Train with every seed, keep the best model, and describe it on a card; see `finetune` for what it returns."""
    seeds = [arguments.seed + number for number in range(arguments.seeds)]
    folders = {seed: output_dir / f"seed_{seed}" if len(seeds) > 1 else output_dir for seed in seeds}
    outcomes: dict[int, Outcome] = {}
    trained = False
    for seed, folder in folders.items():
        if (folder / METRICS).is_file():
            logger.info("%s is finished; it is not trained again.", folder)
            outcomes[seed] = _read_outcome(folder, output_dir)
            continue
        if len(seeds) > 1:
            logger.info("Seed %d, %d of %d.", seed, len(outcomes) + 1, len(seeds))
        outcome = _train(run, arguments, seed, folder)
        if outcome is None:
            return {"interrupted": True}
        outcomes[seed] = outcome
        trained = True
    measured = {seed: outcome.metrics for seed, outcome in outcomes.items()}
    best = seeds[0]
    summary: dict[str, Any] = {}
    if len(seeds) > 1:
        best, summary = _compare(measured, arguments)
    examples: list[Example] = []
    if arguments.should_save:
        if len(seeds) > 1:
            _keep(folders[best], [folders[seed] for seed in seeds], output_dir)
            by_seed = {"seeds": {str(seed): metrics for seed, metrics in measured.items()}}
            write_json(output_dir / METRICS, measured[best] | summary | by_seed)
        shown = next(iter(run.validation.values()), run.train)
        examples = run_examples(run.task, shown.examples, output_dir)
        if trained or not (output_dir / "README.md").is_file():  # else it is its owner's
            outcome = outcomes[best]
            write_finetuning_card(
                output_dir, arguments, run.task, run.train, outcome.metrics, outcome.seconds, measured, examples
            )
    return measured[best] | summary | {"examples": [asdict(example) for example in examples], "interrupted": False}


def _train(run: TaskRun, arguments: FinetuningArguments, seed: int, output_dir: Path) -> Outcome | None:
    """Train with one seed, evaluate, and write model, metrics and predictions; None if Ctrl-C ended it."""
    arguments = copy.copy(arguments)
    arguments.seed, arguments.output_dir = seed, str(output_dir)
    set_seed(seed)
    model, new = _make_model(run, arguments)
    if len(new) < len(list(model.parameters())):
        logger.info("Weights from %s; new ones: %s.", arguments.model, ", ".join(new) or "none")
    interrupt = StopOnInterrupt()
    callbacks: list[TrainerCallback] = [interrupt]
    if arguments.train_head_first or arguments.gradual_unfreezing:
        callbacks.append(Unfreezing(model, arguments.train_head_first, arguments.gradual_unfreezing))
    trainer = TaskTrainer(run, arguments, model=model, callbacks=callbacks)
    checkpoint = None
    if output_dir.is_dir() and not arguments.save_only_model:  # without the optimizer there is no going on
        checkpoint = last_complete_checkpoint(output_dir)
    seconds = trainer.train(resume_from_checkpoint=checkpoint).metrics["train_runtime"]
    if interrupt.interrupted:
        return None
    if arguments.should_save:  # before an evaluation in half precision rounds the weights
        output_dir.mkdir(parents=True, exist_ok=True)
        model.save_pretrained(output_dir)
        run.tokenizer.save_pretrained(output_dir)
        _save_vocab(run.tokenizer, output_dir)
    metrics, outputs = trainer.evaluate_all("eval", run.validation)
    metrics = {name.removeprefix("eval_"): value for name, value in metrics.items()}
    trainer.run = run = replace(run, task=run.task.adapted(metrics))
    test_metrics, test_outputs = trainer.evaluate_all("test", run.test)
    metrics |= test_metrics
    if arguments.should_save:
        trainer.save_state()
        draw_curves(trainer.state.log_history, output_dir)
        for name, data in (run.test or run.validation).items():
            predictions = run.task.predict((test_outputs or outputs)[name], data, run.labels)
            run.task.write_predictions(predictions, data.examples, output_dir, f"_{name}" if name else "")
        write_json(output_dir / METRICS, metrics)  # the last file: it says that the seed is done
    trainer.accelerator.wait_for_everyone()
    return Outcome(metrics, seconds)


def _save_vocab(tokenizer: PreTrainedTokenizerBase, output_dir: Path) -> None:
    """Write a WordPiece vocabulary for Google's tools; a plain tokenizer leaves it out."""
    backend = getattr(tokenizer, "backend_tokenizer", None)
    if backend is None or not isinstance(backend.model, WordPiece):
        return
    vocab = backend.get_vocab(with_added_tokens=False)
    if sorted(vocab.values()) == list(range(len(vocab))):
        save_vocab(vocab, output_dir / "vocab.txt")


def _read_outcome(folder: Path, output_dir: Path) -> Outcome:
    """What a finished run gave; with several seeds only the best one's log is kept, in the output folder."""
    metrics = json.loads((folder / METRICS).read_text(encoding="utf-8"))
    states = [path for path in (folder / TRAINER_STATE_NAME, output_dir / TRAINER_STATE_NAME) if path.is_file()]
    history = TrainerState.load_from_json(str(states[0])).log_history if states else []
    return Outcome(metrics, next((entry["train_runtime"] for entry in history if "train_runtime" in entry), None))


def _compare(
    measured: Mapping[int, Mapping[str, float]], arguments: FinetuningArguments
) -> tuple[int, dict[str, Any]]:
    """The best seed, and mean and standard deviation of every metric over the seeds."""
    metric = str(arguments.metric_for_best_model).removeprefix("eval_")
    choose = max if arguments.greater_is_better else min
    # A type of entity that the data lacks is measured only where a seed has predicted it.
    names = [name for name in measured[arguments.seed] if all(name in metrics for metrics in measured.values())]
    if metric not in names:
        raise ValueError(f"metric_for_best_model is {metric!r}; expected one of {', '.join(names) or 'no metric'}.")
    best = choose(measured, key=lambda seed: measured[seed][metric])
    values = {name: np.array([metrics[name] for metrics in measured.values()]) for name in names}
    mean = {name: float(value.mean()) for name, value in values.items()}
    deviation = {name: float(value.std(ddof=1)) for name, value in values.items()}
    logger.info(
        "%s over %d seeds: mean %.4g, deviation %.2g, best %.4g (seed %d).",
        *(metric, len(measured), mean[metric], deviation[metric], measured[best][metric], best),
    )
    return best, {"mean": mean, "deviation": deviation, "best_seed": best}


def _keep(best: Path, folders: Sequence[Path], output_dir: Path) -> None:
    """Move the best run's files up; of the runs only their metrics stay."""
    for file in [path for path in best.iterdir() if path.is_file() and path.name != METRICS]:
        file.replace(output_dir / file.name)
    for folder in folders:
        for path in [path for path in folder.iterdir() if path.name != METRICS]:
            shutil.rmtree(path) if path.is_dir() else path.unlink()
