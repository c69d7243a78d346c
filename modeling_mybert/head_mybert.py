"""What all heads share: the call of their encoder, which a user may have replaced, and the loss of classes."""

import inspect
from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from torch import nn

from .hooks_mybert import has_foreign_hooks, hooks_of, is_known_class, runs_known_forward
from .inputs_mybert import check_labels
from .losses_mybert import cross_entropy
from .modeling_mybert import MyBertModel, padding_kept
from .pretrained_mybert import MyBertPreTrainedModel

_FORWARD = MyBertModel.forward  # a user may patch the class


class MyBertHead(MyBertPreTrainedModel):
    """A model with an encoder, `bert`, and a head on it."""

    def _encoder(
        self,
        attention_mask: torch.Tensor | None,
        token_type_ids: torch.Tensor | None,
        position_ids: torch.Tensor | None,
        inputs_embeds: torch.Tensor | None,
        others: dict[str, Any],
        *,
        output_indices: torch.Tensor | None = None,
        unpad_inputs: bool | None = None,
    ) -> Callable[..., Any]:
        """The encoder with all arguments but `input_ids`: its caller's, and mybert's where it takes them.

        What a user has put in place of a `MyBertModel`, or around it, gets the arguments of transformers' BERT. It may
        read any token, and padding as well. For `output_indices` and `unpad_inputs` see `MyBertModel.forward`.
        """
        encoder: Any = self.bert
        arguments = {
            "attention_mask": attention_mask,
            "token_type_ids": token_type_ids,
            "position_ids": position_ids,
            "inputs_embeds": inputs_embeds,
            **others,
            "return_dict": True,
        }
        is_unchanged = type(encoder).forward is _FORWARD and runs_known_forward(encoder)
        if not (is_unchanged or _passes_arguments_on(encoder)):
            of_bert = {key: value for key, value in arguments.items() if key not in ("token_indices", "unpad_inputs")}
            return partial(_call_with_padding, encoder, **of_bert)
        if unpad_inputs is not None:
            arguments["unpad_inputs"] = unpad_inputs
        if output_indices is not None and is_unchanged and not has_foreign_hooks(*hooks_of(encoder)):
            arguments["output_indices"] = output_indices
        return partial(encoder, **arguments)

    def _loss_of_classes(
        self,
        logits: torch.Tensor,
        labels: torch.Tensor | None,
        num_items_in_batch: torch.Tensor | int | None,
        name: str = "labels",
    ) -> torch.Tensor | None:
        """`cross_entropy` of logits (..., C) and class ids (...), which are checked; None without labels."""
        if labels is None:
            return None
        labels = labels.view(-1) if logits.dim() == 2 else labels  # of rows, also as a column
        check_labels(name, labels, logits.shape[:-1], logits.shape[-1], self.training)
        return cross_entropy(logits, labels, num_items_in_batch)


def no_tokens(*inputs: torch.Tensor | None) -> torch.Tensor | None:
    """`output_indices` of a head that reads only the pooled output, on the device of the first input that is given."""
    given = next((tensor for tensor in inputs if tensor is not None), None)  # the encoder rejects a call without input
    return None if given is None else given.new_empty(0, dtype=torch.long)


def _call_with_padding(encoder: nn.Module, /, *args: Any, **kwargs: Any) -> Any:
    if torch.compiler.is_compiling():  # it cannot trace context variables
        return encoder(*args, **kwargs)
    before = padding_kept.set(True)
    try:
        return encoder(*args, **kwargs)
    finally:
        padding_kept.reset(before)


def _passes_arguments_on(encoder: nn.Module) -> bool:
    """Whether an encoder is a `MyBertModel` with another forward, or one that an adapter or FSDP has wrapped."""
    if not isinstance(encoder, MyBertModel):
        return is_known_class(type(encoder), type(encoder).forward) and runs_known_forward(encoder)
    parameters = inspect.signature(encoder.forward).parameters.values()
    return any(parameter.kind is parameter.VAR_KEYWORD for parameter in parameters)
