"""Smaller models without training: fewer layers or heads, and the cost on validation data (`mybert prune`)."""

import logging
import re
import shutil
from collections.abc import Iterable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, fields, replace
from functools import partial
from itertools import chain
from pathlib import Path
from typing import Any

import torch
from accelerate.utils import send_to_device
from safetensors import safe_open
from safetensors.torch import save_file
from torch import nn
from transformers import PreTrainedConfig, PreTrainedModel, PreTrainedTokenizerBase
from transformers.pytorch_utils import prune_linear_layer

from ..cards import CardContent, Comparison, write_card
from ..files.checkpoint import (
    ALL_WEIGHTS,
    COMPANIONS,
    TOKENIZER_FILES,
    WEIGHTS_FILE,
    Checkpoint,
    check_available,
    copy_companions,
    read_json_object,
    refuse_link_outside,
)
from ..files.loading import load_tokenizer
from ..files.options import Group, check_options, option
from ..files.output import MODEL_FOLDER, reserved, write_json
from ..files.progress import progress_bar
from ..files.source import files_of, sources_of
from ..modeling_mybert import MyBertPreTrainedModel
from ..pipelines.batching import batches_by_length
from .data import LABEL_ARGUMENTS, WINDOW_WEIGHT, TaskData
from .heads import encoder_layers, keep_layers
from .prediction.predictor import FinetunedModel, load_finetuned_model
from .tasks.registry import MeasuredModelArguments, TargetSettings, evaluation_names
from .tasks.task import Task

logger = logging.getLogger(__name__)

PRUNING = "pruning.json"  # in the folder: the table
_ORDERS = ("top", "alternate")
_EXAMPLES_AT_ONCE = 16  # in the measurement of heads
_PROJECTIONS = ("query", "key", "value")
_LAYER = re.compile(r"(?P<before>(?:^|.*\.)(?:encoder|transformer)\.layer\.)(?P<number>\d+)(?P<after>\..*)")


@dataclass
class PruneArguments(TargetSettings, MeasuredModelArguments):
    """Settings of `prune`; in Python, `data` may also be in memory, as in `FinetuningArguments`.

    Raises:
        ValueError: If a setting is missing or out of range, or two settings contradict each other.
        OSError: If the model folder does not exist.
    """

    group = Group.SMALLER
    model: str | None = option(required=True, positional=1)
    data: list[str] = option(
        [],
        "Task data with labels, to measure on; without it nothing is measured.",
        group=Group.INPUT,
        positional=2,
        required="output_dir",
        reads="examples",
    )
    drop_layers: list[str] = option(
        ["top"],
        "Layers to drop: top (the last ones first), alternate (the rest are spread evenly and include the first and "
        "the last), or their numbers, from 0.",
    )
    keep_layers: list[int] = option(
        [], "How many layers to keep; several numbers are measured one by one (default: all but one, down to one)."
    )
    keep_heads: list[int] = option(
        [],
        "How many attention heads of each layer to keep, those that matter most for the data (bert, mybert); "
        "several numbers are measured one by one. All layers are kept.",
        excludes="keep_layers drop_layers",
    )
    output_dir: str | None = option(
        None,
        "Folder for the smaller model; without it the cost is only measured.",
        group=Group.INPUT,
        comes_last=True,
    )
    overwrite: bool = option(
        False, "Replace the model that an earlier call wrote.", group=Group.INPUT, comes_last=True
    )

    def __post_init__(self) -> None:
        """Check what can be checked without looking at data."""
        self.data = sources_of(self.data, "data")
        check_options(self)
        if self.named_layers() is not None and self.keep_layers:
            raise ValueError(
                "keep_layers is set, and drop_layers lists the layers to drop; use either keep_layers or drop_layers."
            )
        if self.keep_heads and not self.data:
            raise ValueError("keep_heads is set without data; labeled data is needed to tell which heads matter.")
        if self.keep_heads and self.dtype != "float32":
            raise ValueError(f"dtype is {self.dtype}; heads can only be pruned from float32 weights.")
        if self.keep_heads and self.output_dir and len(self.keep_heads) != 1:
            raise ValueError("output_dir is set; say with keep_heads how many heads its model has, or leave it out.")
        if not self.keep_heads and self.output_dir and self.named_layers() is None and len(self.keep_layers) != 1:
            raise ValueError("output_dir is set; say with keep_layers how many layers its model has, or leave it out.")
        if self.data:
            super().__post_init__()
        else:
            self.checkpoint.check(ask_hub=False)
            of_data = {each.name: each for kind in (MeasuredModelArguments, TargetSettings) for each in fields(kind)}
            idle = [
                name
                for name, each in of_data.items()
                if name not in ("model", "use_cpu") and getattr(self, name) != each.default
            ]
            if idle:
                logger.warning("There is no data to measure on; without effect: %s.", ", ".join(idle))

    def named_layers(self) -> list[int] | None:
        """The indices of the layers to drop, if they are given."""
        if len(self.drop_layers) == 1 and self.drop_layers[0] in _ORDERS:
            return None
        if not self.drop_layers or not all(name.isdecimal() for name in map(str, self.drop_layers)):
            shown = " ".join(map(str, self.drop_layers))
            raise ValueError(
                f"drop_layers is {shown!r}; expected {' or '.join(_ORDERS)}, or numbers of layers from 0."
            )
        return sorted({int(name) for name in self.drop_layers})

    def kept(self, layers: int) -> list[list[int]]:
        """The indices of the layers to keep, for each model to measure, given the number of layers."""
        dropped = self.named_layers()
        if dropped is not None:
            if dropped[-1] >= layers or len(dropped) == layers:
                numbers = " ".join(map(str, dropped))
                raise ValueError(
                    f"drop_layers is {numbers}; {self.model} has layers 0 to {layers - 1}, of which one must stay."
                )
            return [[number for number in range(layers) if number not in dropped]]
        if wrong := [count for count in self.keep_layers if not 0 < count < layers]:
            raise ValueError(
                f"keep_layers is {wrong[0]}; expected 1 to {layers - 1}; {self.model} has {layers} layers."
            )
        counts = self.keep_layers or range(layers - 1, 0, -1)
        choose = top_dropped if self.drop_layers == ["top"] else alternate_dropped
        return [choose(layers, count) for count in counts]


def top_dropped(layers: int, count: int) -> list[int]:
    """The lowest `count` of all layers (Sajjad et al., 2020, arXiv 2004.03844: the best choice for most tasks)."""
    return list(range(count))


def alternate_dropped(layers: int, count: int) -> list[int]:
    """`count` layers spread evenly, the first and the last among them, as DistilBERT begins (Sanh et al., 2019)."""
    return [round(place * (layers - 1) / max(count - 1, 1)) for place in range(count)]


def prune(arguments: PruneArguments) -> dict[str, Any]:
    """Remove layers or attention heads from a model, measure the cost, and write the smaller model.

    With fewer layers, the folder has the source's model type, so a `bert` stays one. With fewer heads it is a MyBERT,
    which stores the head size (`head_dim`), unlike transformers' `bert`. Tokenizer, task record and files of
    sentence-transformers are copied; there is a new card, and the table as `pruning.json`.

    Args:
        arguments: The settings.

    Returns:
        `rows`: for each model the `layers` kept, or the `heads` kept in each layer; with data, its number of
        `parameters` and the task's metrics. The first row is the unchanged model. `metric`: the task's main metric,
        None without data.

    Raises:
        ValueError: If the model has no such layers or heads, no head for the task, or is not built like BERT, the data
            does not fit the task, or the output folder contains other files.
        OSError: If a file cannot be read or written.
    """
    model = str(arguments.model)
    checkpoint = Checkpoint(model)
    check_available(checkpoint.name)
    load_tokenizer(checkpoint)  # raises an error if it is not there, or does not belong to the model
    config = checkpoint.config
    layers = getattr(config, "num_hidden_layers", None)
    if not isinstance(layers, int):
        raise ValueError(
            f"{model} is of type {config.model_type}, which has no num_hidden_layers; expected a model like BERT."
        )
    owned = (*MODEL_FOLDER, *COMPANIONS, PRUNING)
    what = "heads" if arguments.keep_heads else "layers"
    choices: list[Any] = [] if arguments.keep_heads else [list(range(layers)), *arguments.kept(layers)]
    with ExitStack() as held:
        if arguments.output_dir:
            output = Path(arguments.output_dir)
            read = [model, *files_of(arguments.data)]
            # Before measuring, which takes time.
            write = held.enter_context(reserved(output, owned, overwrite=arguments.overwrite, read=read))
        found: FinetunedModel | None = None
        if arguments.data:
            device = arguments.state.device
            found = load_finetuned_model(arguments.resolve_task(), arguments.checkpoint, device, arguments.dtype)
            data = found.read(evaluation_names(found.task, arguments.data), arguments.skip_empty)
            if arguments.keep_heads:
                choices = _choices_of_heads(found, data.values(), arguments.keep_heads, model)
                shrink: Any = PrunableHeads(found.model).keep
            else:
                shrink = partial(keep_layers, found.model, encoder_layers(found.model))
        rows: list[dict[str, Any]] = []
        for kept in choices:
            row: dict[str, Any] = {what: kept}
            if found is not None:
                if rows:
                    shrink(kept)
                row["parameters"] = sum(parameter.numel() for parameter in found.model.parameters())
                row |= found.measure(data, arguments.batch_size)[0]
                _say(row, rows[0] if rows else row, what, found.task.main_metric)
            rows.append(row)
        metric = found.task.main_metric if found else None
        if arguments.output_dir:
            with write() as folder:
                local = Checkpoint(
                    checkpoint.local_folder((*TOKENIZER_FILES, *ALL_WEIGHTS, "config.json", *COMPANIONS))
                )
                source = local.path
                for path in chain.from_iterable(map(source.glob, TOKENIZER_FILES)):
                    refuse_link_outside(path, source)
                    shutil.copyfile(path, folder / path.name)
                copy_companions(local.root, folder)
                if arguments.keep_heads and found:
                    found.model.save_pretrained(folder)
                else:
                    _write_without_layers(source, folder, config, choices[-1])
                write_json(folder / PRUNING, {"model": model, "metric": metric, "rows": rows})
                _write_card(folder, output.name, model, rows, what)
    return {"rows": rows, "metric": metric}


def _choices_of_heads(
    found: FinetunedModel, data: Iterable[TaskData], counts: Sequence[int], model: str
) -> list[list[list[int]]]:
    """All heads of each layer, and for each count those that matter most for the data."""
    heads = getattr(found.model.config, "num_attention_heads", 0)
    if wrong := [count for count in counts if not 0 < count < heads]:
        raise ValueError(f"keep_heads is {wrong[0]}; expected 1 to {heads - 1}, {model} has {heads} a layer.")
    parts = [head_importance(found.task, part, found.model, found.tokenizer, progress=True) for part in data]
    return [most_important(torch.stack(parts).mean(0), count) for count in (heads, *counts)]


def _say(row: Mapping[str, Any], first: Mapping[str, Any], what: str, metric: str) -> None:
    """Log a row of the table: the main metric, and the loss compared with the first row."""
    name = next(name for name in row if name == metric or name.endswith(f"_{metric}"))
    shown = f"{_count(row, what):>3} {what} {row['parameters']:>13,} parameters  {name} {row[name]:.4f}"
    if row is not first:
        shown += f" ({row[name] - first[name]:+.4f})"
        shown += f"  kept: {' '.join(map(str, row[what]))}" if what == "layers" else ""
    logger.info("%s", shown)


def _count(row: Mapping[str, Any], what: str) -> int:
    """How many layers, or heads of each layer, the model of a row has."""
    return len(row["layers"] if what == "layers" else row["heads"][0])


def _write_without_layers(source: Path, folder: Path, config: PreTrainedConfig, kept: Sequence[int]) -> None:
    """Write a model folder with some of the layers of another; the weights keep their dtypes and names."""
    places = {number: place for place, number in enumerate(kept)}
    tensors: dict[str, torch.Tensor] = {}
    found = set()
    for file in Checkpoint(source).weight_files:
        with safe_open(file, framework="pt") as weights:
            for name in weights.keys():  # noqa: SIM118 -- no dictionary
                if layer := _LAYER.fullmatch(name):
                    found.add(number := int(layer["number"]))
                    if number not in places:
                        continue
                    renamed = f"{layer['before']}{places[number]}{layer['after']}"
                tensors[renamed if layer else name] = weights.get_tensor(name)
    if found != set(range(config.num_hidden_layers)):
        raise ValueError(
            f"The weights in {source} are of {len(found)} layers named encoder.layer or transformer.layer; expected "
            f"the {config.num_hidden_layers} of a model like BERT."
        )
    save_file(tensors, folder / WEIGHTS_FILE, metadata={"format": "pt"})
    foreign = ("auto_map", "custom_pipelines")  # references to code in the source's folder, which is not copied
    settings = {name: value for name, value in read_json_object(source / "config.json").items() if name not in foreign}
    settings[config.attribute_map.get("num_hidden_layers", "num_hidden_layers")] = len(kept)
    write_json(folder / "config.json", settings, sort_keys=True)


def _write_card(folder: Path, name: str, model: str, rows: Sequence[Mapping[str, Any]], what: str) -> None:
    """Write a card; `what` was reduced, "layers" or "heads"."""
    counts = [_count(row, what) for row in rows]
    shown = model if not Path(model).exists() else Path(model).name
    which = (
        f"{counts[-1]} of its {counts[0]} layers ({', '.join(map(str, rows[-1]['layers']))}, counted from 0)"
        if what == "layers"
        else f"{counts[-1]} of the {counts[0]} attention heads of each layer"
    )
    summary = f"{shown} with {which}, not trained since."
    content = CardContent(name=name, summary=summary, base_model=None if Path(model).exists() else model)
    if len(rows[0]) > 1:
        table = {
            str(count): {key: value for key, value in row.items() if key != what}
            for count, row in zip(counts, rows, strict=True)
        }
        content = replace(content, comparisons=[Comparison("On the validation data", table, what.capitalize())])
    write_card(folder, content)


def head_importance(
    task: Task, data: TaskData, model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase, progress: bool = False
) -> torch.Tensor:
    """Importance of each head for the loss (Michel et al., 2019, section 4.1): (layers, heads), float64."""
    # The mean over the examples of the absolute derivative of the loss with respect to a factor on the head's context.
    # Within each layer, importances are divided by their Euclidean norm. The model's gradients and mode are restored.
    layers = _attention_of(model)
    if data.inputs.keys().isdisjoint(LABEL_ARGUMENTS):
        raise ValueError(f"The data has no labels to train a {type(model).__name__} with.")
    heads, size = model.config.num_attention_heads, model.config.head_size
    total = torch.zeros(len(layers), heads, dtype=torch.float64)
    contexts: list[torch.Tensor] = []

    def keep(module: nn.Module, arguments: object, output: tuple[torch.Tensor, object]) -> None:
        contexts.append(output[0])

    hooks = [layer.self.register_forward_hook(keep) for layer in layers]
    unpads, was_training = model.config.unpad_inputs, model.training
    model.config.unpad_inputs = False  # in a packed batch examples are not separate rows
    collate, loss = task.collator(tokenizer, model), task.loss
    lengths = [len(data[place]["input_ids"]) for place in range(len(data))]
    try:
        model.eval()
        batches = list(batches_by_length(lengths, model.device, _EXAMPLES_AT_ONCE))
        for places in progress_bar(batches, "Heads", delay=2, disable=not progress):
            rows = [{name: value for name, value in data[place].items() if name != WINDOW_WEIGHT} for place in places]
            batch: Any = send_to_device(collate(rows), model.device)
            contexts.clear()
            each = loss.of_labels(loss.logits(model(**batch)), batch).view(len(places), -1)
            there = loss.labeled(batch).view(len(places), -1)
            of_examples = each.masked_fill(~there, 0.0).sum(1) / there.sum(1).clamp(min=1)  # means over words
            gradients = torch.autograd.grad(of_examples.sum(), contexts)
            for number, (context, gradient) in enumerate(zip(contexts, gradients, strict=True)):
                products = (context.detach() * gradient).unflatten(-1, (heads, size)).sum((1, 3))
                of_heads = products.unflatten(0, (len(places), -1)).sum(1)  # an example may have several choices
                total[number] += of_heads.abs().sum(0).cpu().double()  # MPS has no double precision
    finally:
        for hook in hooks:
            hook.remove()
        model.config.unpad_inputs = unpads
        model.train(was_training)
    norms = total.norm(dim=1, keepdim=True)
    return total / torch.where(norms > 0, norms, 1)


class PrunableHeads:
    """A MyBERT, not quantized, whose heads can be removed and restored; all layers keep the same number."""

    def __init__(self, model: PreTrainedModel) -> None:
        self._model = model
        self._whole = [
            {name: getattr(layer.self, name) for name in _PROJECTIONS} | {"output": layer.output.dense}
            for layer in _attention_of(model)
        ]
        self._size = model.config.head_size

    def keep(self, heads: Sequence[Sequence[int]]) -> None:
        """Keep only these heads of each layer, equally many and in order, and remove the weights of the others."""
        config = self._model.config
        (count,) = {len(numbers) for numbers in heads}
        config.num_attention_heads = count
        own = None if count * self._size == config.hidden_size else self._size
        config.head_dim = own
        for layer, whole, numbers in zip(_attention_of(self._model), self._whole, heads, strict=True):
            rows = torch.cat([torch.arange(number * self._size, (number + 1) * self._size) for number in numbers])
            for name in _PROJECTIONS:
                layer.self.add_module(name, prune_linear_layer(whole[name], rows))
            layer.output.add_module("dense", prune_linear_layer(whole["output"], rows, dim=1))


def _attention_of(model: PreTrainedModel) -> list[Any]:
    """The attention of each layer; a ValueError if the model is not a MyBERT."""
    if not isinstance(model, MyBertPreTrainedModel):
        raise ValueError(f"The model is a {type(model).__name__}; only bert and mybert can have heads pruned.")
    return [layer.attention for layer in encoder_layers(model)]


def most_important(importance: torch.Tensor, count: int) -> list[list[int]]:
    """The `count` most important heads of each layer by `head_importance`, in order; ties go to the first."""
    order = importance.argsort(dim=1, descending=True, stable=True)[:, :count]
    return [sorted(row) for row in order.tolist()]
