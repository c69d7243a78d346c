"""Losses on a teacher's layers; the teacher runs together with the student on the same tokens.

Hidden states: Jiao et al. (2020), "TinyBERT", section 3.1 (equations 8 and 9). Relations: Wang et al. (2021),
"MiniLMv2", section 3.1: queries with queries, keys with keys, values with values. Queries with keys (attention itself)
and values with values: Wang et al. (2020), "MiniLM", sections 3.1 and 3.2.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch
import torch.nn.functional as F
from torch import nn
from transformers import PreTrainedModel

from ..network.encoder_parts import attention_projections, encoder_layers

PROJECTIONS = "hidden_state_projections"
"""Attribute of a student in training: linear maps from its width to the teacher's, one for each state."""

LAYER_LOSSES = "layer_losses"
"""Key in a student's outputs: the loss of each sequence (B,)."""

RELATIONS = ("qq", "kk", "vv")
"""Default relations, those of MiniLMv2: pairs of query, key, value."""

_READ = ("input_ids", "attention_mask", "token_type_ids")


class LayerLosses:
    """Losses, in float32, on hidden states and on relations of the last layers."""

    # The student's hidden state i of M (0 is the embeddings) learns from the teacher's hidden state i N / M of N,
    # through a linear map that is trained with it and then discarded.
    # `autocast` makes the context of mixed precision in which both models run.
    autocast: Callable[[], AbstractContextManager[Any]] = staticmethod(nullcontext)

    def __init__(
        self,
        teacher: PreTrainedModel,  # in eval mode, on the student's device
        hidden_state_weight: float,  # of the mean squared error, at least 0
        relation_weight: float,  # of the divergence, summed over relations, at least 0
        relation_heads: int | None = None,  # see `relation_heads`
        relations: Sequence[str] = RELATIONS,  # "qk" is attention, head by head, and needs equal numbers of heads
    ) -> None:
        self.teacher = teacher
        self.hidden_state_weight = hidden_state_weight
        self.relation_weight = relation_weight
        self.relation_heads = relation_heads
        self.relations = relations

    def check(self, student: PreTrainedModel) -> None:
        """Check that the relations of student and teacher can be computed."""
        if self.relation_weight:
            self._heads(student)
            for model in (self.teacher, student):
                attention_projections(encoder_layers(model)[-1])

    def attach(self, student: PreTrainedModel, seed: int) -> None:
        """Add `LAYER_LOSSES` to a student's outputs whenever its hidden states are requested."""
        self.student = student
        # The losses are part of the outputs, so that wrappers such as DDP know which parameters they depend on.
        self._hook = student.register_forward_hook(self._add_to_outputs, with_kwargs=True)
        if self.hidden_state_weight:
            generator = torch.Generator().manual_seed(seed)
            width, wanted = student.config.hidden_size, self.teacher.config.hidden_size
            maps = [nn.Linear(width, wanted, bias=False) for _ in range(student.config.num_hidden_layers + 1)]
            for each in maps:
                nn.init.normal_(each.weight, std=width**-0.5, generator=generator)
            # As part of the student the linear maps are trained, and saved in checkpoints.
            student.add_module(PROJECTIONS, nn.ModuleList(maps))

    def detach(self) -> None:
        """Undo `attach`."""
        self._hook.remove()
        if self.hidden_state_weight:
            delattr(self.student, PROJECTIONS)

    def _add_to_outputs(self, student: nn.Module, args: Any, inputs: Mapping[str, Any], outputs: Any) -> Any:
        if not inputs.get("output_hidden_states"):
            return outputs
        return {**outputs, LAYER_LOSSES: self(outputs["hidden_states"], inputs)}

    def __call__(self, hidden_states: Sequence[torch.Tensor], inputs: Mapping[str, Any]) -> torch.Tensor:
        """The loss of each sequence (B,), given the student's hidden states, embeddings first, each (B, L, D)."""
        read = {name: inputs[name] for name in _READ if name in inputs}
        with torch.no_grad(), self.autocast():
            wanted = self.teacher.base_model(**read, output_hidden_states=True).hidden_states
        mask = read["attention_mask"].bool()
        loss = torch.zeros(len(mask), device=mask.device)
        if self.hidden_state_weight:
            loss = loss + self.hidden_state_weight * self._of_states(hidden_states, wanted, mask)
        if self.relation_weight:
            loss = loss + self.relation_weight * self._of_relations(hidden_states[-2], wanted[-2], mask)
        return loss

    def _of_states(
        self, found: Sequence[torch.Tensor], wanted: Sequence[torch.Tensor], mask: torch.Tensor
    ) -> torch.Tensor:
        maps = getattr(self.student, PROJECTIONS)
        last = len(found) - 1
        places = [round(number * (len(wanted) - 1) / last) for number in range(last + 1)]
        with self.autocast():
            said = [map_(state) for map_, state in zip(maps, found, strict=True)]
        each = [
            _mean_of_tokens((state.float() - wanted[place]).square().mean(-1), mask)
            for state, place in zip(said, places, strict=True)
        ]
        return torch.stack(each).mean(0)

    def _of_relations(self, found: torch.Tensor, wanted: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        """The divergence of relations, from the inputs of both models' last layers (B, L, D)."""
        heads = self._heads(self.student)
        with self.autocast():
            with torch.no_grad():
                right = [part(wanted) for part in attention_projections(encoder_layers(self.teacher)[-1])]
            own = [part(found) for part in attention_projections(encoder_layers(self.student)[-1])]
        total = torch.zeros(len(mask), device=mask.device)
        for relation in self.relations:
            one, other = ("qkv".index(letter) for letter in relation)
            expected = _log_relations(right[one], right[other], heads, mask)
            said = _log_relations(own[one], own[other], heads, mask)
            divergence = F.kl_div(said, expected, reduction="none", log_target=True)
            total = total + _mean_of_tokens(divergence.sum(-1).mean(1), mask)  # over keys, then heads: (B, L)
        return total

    def _heads(self, student: PreTrainedModel) -> int:
        """The number of parts of vectors in relations; for attention, the models' own number of heads."""
        if "qk" not in self.relations:
            return relation_heads(self.relation_heads, self.teacher, student)
        numbers = [model.config.num_attention_heads for model in (self.teacher, student)]
        if numbers[0] != numbers[1]:
            raise ValueError(
                f"relations has 'qk', attention itself, and teacher and student have {numbers[0]} and {numbers[1]} "
                "heads; expected the same number."
            )
        return numbers[0]


def relation_heads(wanted: int | None, teacher: PreTrainedModel, student: PreTrainedModel) -> int:
    """The number of parts of split vectors: `wanted`, or as many as fit, at most the teacher's heads."""
    widths = [_width_of_queries(model) for model in (teacher, student)]
    if wanted is None:
        choices = range(teacher.config.num_attention_heads, 0, -1)
        return next(heads for heads in choices if not any(width % heads for width in widths))
    if any(width % wanted for width in widths):
        raise ValueError(
            f"relation_heads is {wanted}; expected a divisor of the query widths of teacher and student, "
            f"{widths[0]} and {widths[1]}."
        )
    return wanted


def _width_of_queries(model: PreTrainedModel) -> int:
    """The width of queries, which is less than the hidden size if heads were pruned."""
    weight: Any = attention_projections(encoder_layers(model)[-1])[0].weight
    return len(weight)


def _log_relations(one: torch.Tensor, other: torch.Tensor, heads: int, mask: torch.Tensor) -> torch.Tensor:
    """Log-softmax over tokens of scaled dot products of vectors (B, L, D) split into parts: (B, H, L, L)."""
    left, right = (states.float().unflatten(-1, (heads, -1)).transpose(1, 2) for states in (one, other))
    scores = left @ right.transpose(-1, -2) / left.shape[-1] ** 0.5
    return scores.masked_fill(~mask[:, None, None, :], torch.finfo(scores.dtype).min).log_softmax(-1)


def _mean_of_tokens(values: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
    """The mean of (B, L) over tokens, excluding padding: (B,)."""
    return values.masked_fill(~mask, 0.0).sum(-1) / mask.sum(-1)
