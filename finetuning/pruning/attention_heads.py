"""Pruning attention heads: their importance on labelled data, and models with only the most important ones."""

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from accelerate.utils import send_to_device
from torch import nn
from tqdm.auto import tqdm
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from ...modeling_mybert import IGNORE_INDEX, MyBertPreTrainedModel
from ...pipelines.batching import batches_by_length
from ..network.encoder_parts import encoder_layers
from ..tasks.task import WINDOW_WEIGHT, Task, TaskData

_EXAMPLES_AT_ONCE = 16
_PROJECTIONS = ("query", "key", "value")


def head_importance(
    task: Task, data: TaskData, model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase, progress: bool = False
) -> torch.Tensor:
    """Importance of each head for the loss (Michel et al., 2019, section 4.1): (layers, heads), float64."""
    # The mean over the examples of the absolute derivative of the loss with respect to a factor on the head's context.
    # Within each layer, importances are divided by their Euclidean norm. The model's gradients and mode are restored.
    layers = _attention_of(model)
    heads, size = model.config.num_attention_heads, model.config.head_size
    total = torch.zeros(len(layers), heads, dtype=torch.float64)
    contexts: list[torch.Tensor] = []

    def keep(module: nn.Module, arguments: object, output: tuple[torch.Tensor, object]) -> None:
        contexts.append(output[0])

    hooks = [layer.self.register_forward_hook(keep) for layer in layers]
    unpads, was_training = model.config.unpad_inputs, model.training
    model.config.unpad_inputs = False  # in a packed batch examples are not separate rows
    collate = task.collator(tokenizer, model)
    lengths = [len(data[place]["input_ids"]) for place in range(len(data))]
    try:
        model.eval()
        batches = list(batches_by_length(lengths, model.device, _EXAMPLES_AT_ONCE))
        for places in tqdm(batches, "Heads", delay=2, disable=not progress):
            rows = [{name: value for name, value in data[place].items() if name != WINDOW_WEIGHT} for place in places]
            batch: Any = send_to_device(collate(rows), model.device)
            contexts.clear()
            loss = model(**batch).loss
            if loss is None:
                raise ValueError(f"The data has no labels to train a {type(model).__name__} with.")
            gradients = torch.autograd.grad(loss, contexts)
            shares = _shares_of_loss(batch, len(places)).to(loss.device)
            for number, (context, gradient) in enumerate(zip(contexts, gradients, strict=True)):
                products = (context.detach() * gradient).unflatten(-1, (heads, size)).sum((1, 3))
                of_examples = products.unflatten(0, (len(places), -1)).sum(1)  # one may have several choices
                total[number] += (of_examples.abs() / shares).sum(0).double().cpu()
    finally:
        for hook in hooks:
            hook.remove()
        model.config.unpad_inputs = unpads
        model.train(was_training)
    norms = total.norm(dim=1, keepdim=True)
    return total / torch.where(norms > 0, norms, 1)


def _shares_of_loss(batch: Mapping[str, Any], count: int) -> torch.Tensor:
    """Each example's share of a batch's loss, which is a mean over labels; shape (count, 1)."""
    labels = batch.get("labels")
    if labels is None or labels.dim() < 2 or labels.is_floating_point():  # one label each, or equally many
        return torch.full((count, 1), 1 / count)
    of_examples = (labels != IGNORE_INDEX).sum(1, keepdim=True).clamp(min=1)
    return of_examples / of_examples.sum()


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
                linear = whole[name]
                part = _new_linear(linear.weight[rows], linear.bias[rows])
                layer.self.add_module(name, part)
            output = whole["output"]
            layer.output.add_module("dense", _new_linear(output.weight[:, rows], output.bias))


def _attention_of(model: PreTrainedModel) -> list[Any]:
    """The attention of each layer; a ValueError if the model is not a MyBERT."""
    if not isinstance(model, MyBertPreTrainedModel):
        raise ValueError(f"The model is a {type(model).__name__}; only bert and mybert can have heads pruned.")
    return [layer.attention for layer in encoder_layers(model)]


def _new_linear(weight: torch.Tensor, bias: torch.Tensor) -> nn.Linear:
    linear = nn.Linear(weight.shape[1], weight.shape[0], device="meta")
    linear.weight = nn.Parameter(weight.detach().contiguous().clone())
    linear.bias = nn.Parameter(bias.detach().clone())
    return linear


def most_important(importance: torch.Tensor, count: int) -> list[list[int]]:
    """The `count` most important heads of each layer by `head_importance`, in order; ties go to the first."""
    order = importance.argsort(dim=1, descending=True, stable=True)[:, :count]
    return [sorted(row) for row in order.tolist()]
