"""Preparing a run: the task with tokenizer, classes and data, and the initial model."""

import copy
import logging
import warnings
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

import numpy as np
import torch
from transformers import (
    PreTrainedConfig,
    PreTrainedModel,
    PreTrainedTokenizerBase,
    set_seed,
)

from ...files.checkpoint import Checkpoint
from ...files.errors import SettingError, how_to_install
from ...files.loading import load_tokenizer, longest_sequence
from ...files.source import Source
from ...metrics import metric_of
from ...modeling_mybert import IGNORE_INDEX
from ..data import LABEL_ARGUMENTS, WINDOW_WEIGHT, Labels, TaskData, rows_of
from ..heads import check_max_length, encoder_layers, has_new_head, reinitialize_layers
from ..prediction.predictor import task_for_columns
from ..tasks.data_report import check_classes
from ..tasks.feature_tagging import feature_task, new_tagger
from ..tasks.steps import in_order_of, initial_config, load_task_model, read_task_rows
from ..tasks.task import Task
from .finetune_settings import CONTRASTIVE, FEATURE_TAGGING, Approach
from .parameters import add_adapter, freeze_layers, read_adapter_config, set_head_bias
from .plan import FinetunePlan, sources

logger = logging.getLogger(__name__)

E = TypeVar("E")

StartingModel = tuple[PreTrainedModel, list[str]]  # with the names of newly initialized parameters


@dataclass(frozen=True)
class TaskRun:
    """A task with its data, read and tokenized."""

    task: Task  # completed by the classes
    tokenizer: PreTrainedTokenizerBase
    labels: Labels | None  # the classes, if it has any
    train: TaskData
    validation: Mapping[str, TaskData]  # by name; a single data set has the name ""
    test: Mapping[str, TaskData]
    parts: Sequence[TaskData] = ()  # what the training data was joined from: labeled data, files without labels

    def __post_init__(self) -> None:
        """Complete the task with the classes."""
        object.__setattr__(self, "task", self.task.with_classes(self.labels))


def read_run(
    plan: FinetunePlan,
    task: Task,
    tokenizer: PreTrainedTokenizerBase | None = None,  # by default that of the model
    unlabeled: Sequence[Source] = (),  # further training data, without labels
    labels_for: Callable[[Task, Sequence[tuple[Source, Sequence[Any]]]], Labels | None] | None = None,
) -> TaskRun:
    """Read a task's data, hold out validation data and draw a sample, according to the settings, and tokenize it all.

    The classes are those of the training data, or what `labels_for` returns, given the examples of each source.
    """
    settings = plan.settings
    if tokenizer is None:
        tokenizer = _tokenizer_of(settings.model)
    data = sources(plan)
    if data["test"] and (both := [name for name in data["validation"] if f"{name}_".startswith("test_")]):
        raise ValueError(f"Validation data is named {both[0]!r}, as the metrics of test data; expected another name.")
    seed = settings.sampling_seed
    found: dict[tuple[str, str], Sequence[Any]] = {}
    everything: Sequence[Any] = ()
    for train in data["train"].values():
        rows = read_task_rows(task, train, skip_empty=settings.skip_empty)
        task = task.infer_columns(rows)
        task, everything = task.trained_on(task.examples(rows, labeled=True), train)
        found["train", ""] = everything
        if labels_for is None and not settings.allow_unusual_labels:
            check_classes(task, everything, train)
    for name, source in data["validation"].items():
        rows = read_task_rows(task, source, skip_empty=settings.skip_empty)
        found["validation", name] = task.examples(rows, labeled=True)
    if (settings.validation_split or settings.folds) and (line := equal_texts_line(task, everything)):
        logger.warning("%s: %s", data["train"][""], line)
    if settings.validation_split:
        found["train", ""], found["validation", ""] = split_off(task, everything, settings.validation_split, seed)
        data["validation"] = dict(data["train"])
    if settings.max_train_samples and everything:
        count, examples = settings.max_train_samples, found["train", ""]
        if len(examples) < count:  # learning curves are named by the count
            template = "%s: max_train_samples is %s, but there are %s training examples, all of which are used."
            logger.warning(template, data["train"][""], f"{count:,}", f"{len(examples):,}")
        found["train", ""] = sample(examples, count, seed)
    for name, source in data["test"].items():
        rows = read_task_rows(task, source, labeled=None, skip_empty=settings.skip_empty)
        found["test", name] = task.examples(rows, any(task.has_label(row, may_be_blank=False) for row in rows))
    source_of = {(split, name): data[split][name] for split, name in found}
    if labels_for is not None:
        labels = labels_for(task, [(source_of[key], examples) for key, examples in found.items()])
    elif (labels := task.labels(everything, data["train"][""])) is not None:  # before held-out data is removed
        labels = in_order_of(task, settings.model, labels)
    for source in unlabeled:
        key = "unlabeled", str(source)
        source_of[key], found[key] = source, _unlabeled_examples(task, source)
    # The training data last: its labels are known, and an error in other data should show before long computations.
    encoded = {key: task.encode(found[key], labels, tokenizer, source_of[key]) for key in reversed(found)}
    parts_of: dict[str, dict[str, TaskData]] = {}
    for split, name in found:
        parts_of.setdefault(split, {})[name] = encoded[split, name]
    parts = [*parts_of.get("train", {}).values(), *parts_of.get("unlabeled", {}).values()]
    return TaskRun(
        task, tokenizer, labels, joined(parts), parts_of.get("validation", {}), parts_of.get("test", {}), parts
    )


def _tokenizer_of(model: str) -> PreTrainedTokenizerBase:
    """A model's tokenizer, which knows the model's longest input: pipelines truncate to it."""
    checkpoint = Checkpoint(model)
    tokenizer, longest = load_tokenizer(checkpoint), longest_sequence(checkpoint.config)
    if longest is not None:
        tokenizer.model_max_length = min(tokenizer.model_max_length, longest)
    return tokenizer


def _unlabeled_examples(task: Task, source: Source) -> Sequence[Any]:
    rows = list(rows_of(source, task, new=True))
    if not rows:
        raise ValueError(f"{source} holds no rows.")
    return task_for_columns(task, rows[0], ()).examples(rows, labeled=False, new=True)


def joined(parts: Sequence[TaskData]) -> TaskData:
    """Join data of several sources, without a `layout`; parts without labels get ignored labels."""
    if len(parts) == 1:
        return parts[0]
    names = dict.fromkeys(name for part in parts for name in part.inputs)
    like = {name: next(part.inputs[name][0] for part in parts if name in part.inputs) for name in names}
    inputs: dict[str, list[Any]] = {name: [] for name in names}
    for part in parts:
        for name in names:
            inputs[name] += part.inputs[name] if name in part.inputs else _missing(name, like[name], part)
    return TaskData(
        [example for part in parts for example in part.examples],
        inputs,
        parts[0].source,
        cut=sum(part.cut for part in parts),
        windowed=sum(part.windowed for part in parts),
    )


def _missing(name: str, label: Any, data: TaskData) -> list[Any]:
    """Equal weights, or ignored labels, for every sequence, in the form of another part's labels."""
    if name == WINDOW_WEIGHT:
        return [1.0] * len(data)
    if isinstance(label, float):
        return [np.nan] * len(data)
    if isinstance(label, list) and isinstance(label[0], float):
        return [[np.nan] * len(label)] * len(data)
    if isinstance(label, list):
        return [[IGNORE_INDEX] * len(ids) for ids in data.inputs["input_ids"]]
    return [IGNORE_INDEX] * len(data)


def check_metric(run: TaskRun, plan: FinetunePlan) -> None:
    """Check that the validation data can be scored and has the metric that selects the best model."""
    names: set[str] = set()
    if folds := plan.settings.folds:
        examples, source = run.train.examples, run.train.source
        numbers = np.array(fold_numbers(run.task, examples, folds, plan.settings.sampling_seed))
        parts = [[examples[place] for place in np.flatnonzero(numbers == fold).tolist()] for fold in range(folds)]
        found = [_scores_of_right(run.task, part, f"A fold of {source} with {len(part)} examples") for part in parts]
        names = {"loss"}.union(set.intersection(*map(set, found)))
    for name, data in run.validation.items():
        scores = _scores_of_right(run.task, data.examples, str(data.source))
        names |= {metric_of(name, metric) for metric in ("loss", *scores)}
    for data in run.test.values():
        if not data.inputs.keys().isdisjoint(LABEL_ARGUMENTS):
            _scores_of_right(run.task, data.examples, str(data.source))
    if names and "temperature" in run.task.fitted_fields:
        import scipy.optimize  # noqa: F401 - an error now, not at the end
    if names and plan.metric not in names:
        raise SettingError("metric_for_best_model", plan.metric, known=sorted(names))


def _scores_of_right(task: Task, examples: Sequence[Any], what: str) -> dict[str, float]:
    """The scores of all-correct predictions; `what` names the data in the message."""
    try:
        return task.measures(list(map(task.gold_prediction, examples)), examples).scores()
    except ValueError as error:
        raise ValueError(f"{what} cannot be measured: {error}") from None


def check_batches(run: TaskRun, plan: FinetunePlan) -> None:
    """Check that there is at least one whole batch if incomplete batches are dropped."""
    whole = plan.training.per_device_train_batch_size * plan.training.world_size
    there = len(run.train)
    if folds := plan.settings.folds:
        there -= -(-there // folds)
    if plan.training.dataloader_drop_last and there < whole:
        raise SettingError.worded(
            "{dataloader_drop_last} is set and there are {} sequences to train on, less than a batch of {}; "
            "leave it out, or give a smaller {per_device_train_batch_size}.",
            there,
            whole,
        )


def starting_model(
    run: TaskRun,
    plan: FinetunePlan,
    approach: Approach,
    seed: int,
    config: PreTrainedConfig | None = None,
) -> StartingModel:
    """The initial model, with adapters or frozen layers, and the names of its new, seeded parameters."""
    settings = plan.settings
    set_seed(seed)
    if approach is FEATURE_TAGGING:
        model, new = new_tagger(run.task, run.labels)
    else:
        model, new = load_task_model(run.task, settings.model, run.labels, plan.network(approach), config)
    if has_new_head(model, new) and not settings.class_weights:  # under which all classes are equally frequent
        set_head_bias(model, run.task, run.train)
    return _with_trained_parts(model, plan, approach), new


def empty_model(
    run: TaskRun, plan: FinetunePlan, approach: Approach, config: PreTrainedConfig | None = None
) -> PreTrainedModel:
    """The initial model of an approach without weights and adapters, if `starting_model` can make it."""
    task, settings, name = run.task, plan.settings, plan.settings.model
    before = Checkpoint(name).config
    model: PreTrainedModel
    with torch.device("meta"):
        if approach is FEATURE_TAGGING:
            check_max_length(task.max_length, name, before)
            model, _ = new_tagger(feature_task(task, settings.features, name, settings.lstm_size, "cpu"), run.labels)
        else:
            made = initial_config(task, name, before, run.labels, plan.network(approach), config)
            model = task.auto_class.from_config(made, trust_remote_code=False)
        _with_trained_parts(copy.deepcopy(model), plan, approach)
    return model


def _with_trained_parts(model: PreTrainedModel, plan: FinetunePlan, approach: Approach) -> PreTrainedModel:
    """A model with the layers reinitialized or frozen, or the adapter added, that the settings name."""
    settings = plan.settings
    adapter = read_adapter_config(settings.peft_config) if settings.has_adapter else None
    fresh, frozen = settings.reinitialize_layers, settings.freeze_layers
    if approach is CONTRASTIVE and frozen >= len(encoder_layers(model)):
        raise SettingError.worded(
            "{freeze_layers} is {} with {approach} {!r}, so nothing is trained; expected less than {}, or {approach} "
            "'linear_probe'.",
            frozen,
            approach.name,
            len(encoder_layers(model)),
        )
    reinitialize_layers(model, fresh)
    freeze_layers(model, None if settings.freeze == "encoder" else frozen)
    if fresh and fresh + frozen > len(encoder_layers(model)):
        raise SettingError.worded(
            "{reinitialize_layers} is {} and {freeze_layers} {} of {} layers: some would be random and "
            "never trained; expected less.",
            fresh,
            frozen,
            len(encoder_layers(model)),
        )
    return model if adapter is None else add_adapter(model, adapter)


# Selecting training and held-out examples; a choice depends only on the data and the seed.


def split_off(task: Task, examples: Sequence[E], share: float, seed: int) -> tuple[list[E], list[E]]:
    """Hold out a fraction, in (0, 1), of examples, stratified if each has one class; returns both sides in order."""
    # Examples that belong together (equal texts, questions on one text) are not separated, and count as one.
    groups = _groups(task, examples)
    firsts = [examples[numbers[0]] for numbers in groups]
    what = "examples" if len(groups) == len(examples) else "different texts"
    count = max(round(share * len(groups)), min(1, round(share * len(examples))))  # few texts, each many times
    drawn = _drawn(len(groups), count, _strata(firsts), seed, what)
    places = {number for group in drawn for number in groups[group]}
    kept = [example for number, example in enumerate(examples) if number not in places]
    return kept, [example for number, example in enumerate(examples) if number in places]


def equal_texts_line(task: Task, examples: Sequence[Any]) -> str:
    """A message about texts that occur several times; "" if there are none."""
    counts = Counter((task.group_of(example), example.texts) for example in examples)
    several = sum(count for count in counts.values() if count > 1)
    if not several:
        return ""
    return (
        f"{several:,} of {len(examples):,} training examples have a text that occurs several times; equal texts are "
        "kept together, so that none is both trained and measured on."
    )


def sample(examples: Sequence[E], count: int, seed: int) -> list[E]:
    """Draw a stratified sample of examples, in their order; all of them if there are no more."""
    if count >= len(examples):
        return list(examples)
    return [examples[place] for place in _drawn(len(examples), count, _strata(examples), seed, "examples")]


def fold_numbers(task: Task, examples: Sequence[E], folds: int, seed: int) -> list[int]:
    """The fold of each example, from 0; folds have equally many different texts, stratified as in `split_off`."""
    selection = _model_selection()
    groups = _groups(task, examples)
    count, strata = len(groups), _strata([examples[numbers[0]] for numbers in groups])
    if count < folds:
        what = "examples or texts" if count == len(examples) else "different texts"
        raise SettingError.worded(
            "{folds} is {}, but there are only {} {}; expected at most that many.", folds, count, what
        )
    if strata is not None and max(Counter(strata).values()) < folds:
        strata = None
    splitter = (selection.KFold if strata is None else selection.StratifiedKFold)(
        folds, shuffle=True, random_state=seed
    )
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "The least populated class", UserWarning)  # then only some folds have it
        numbers = np.zeros(len(examples), dtype=int)
        for number, (_, held_out) in enumerate(splitter.split(np.zeros(count), strata)):
            for group in held_out:
                numbers[groups[group]] = number
    return numbers.tolist()


def _groups(task: Task, examples: Sequence[Any]) -> list[list[int]]:
    """The indices of the examples of each group, see `Task.group_of`."""
    groups: dict[Any, list[int]] = {}
    for number, example in enumerate(examples):
        groups.setdefault(task.group_of(example), []).append(number)
    return list(groups.values())


def _strata(examples: Sequence[Any]) -> list[str] | None:
    """The class of each example, if each has one."""
    classes = [example.classes for example in examples]
    return [found[0] for found in classes] if all(len(found) == 1 for found in classes) else None


def _model_selection() -> Any:
    try:
        from sklearn import model_selection
    except ImportError as error:
        raise ImportError(f"Drawing examples needs scikit-learn: {how_to_install('train')} ({error}).") from error
    return model_selection


def _drawn(total: int, count: int, strata: Sequence[str] | None, seed: int, what: str) -> list[int]:
    """Draw indices, stratified unless there are more classes than draws; a class's only example is not drawn."""
    train_test_split = _model_selection().train_test_split
    if not 0 < count < total:
        raise SettingError.worded(
            "{validation_split} gives {} of {} {}; expected at least one on each side.", count, total, what
        )
    places = list(range(total))
    if strata is not None:
        counts = Counter(strata)
        several = [place for place in places if counts[strata[place]] > 1]
        classes = {strata[place] for place in several}
        if len(classes) <= min(count, len(several) - count):
            _, drawn = train_test_split(
                several, test_size=count, random_state=seed, stratify=[strata[place] for place in several]
            )
            return sorted(drawn)
    return sorted(train_test_split(places, test_size=count, random_state=seed)[1])
