"""What a student learns from a teacher's layers, which runs beside it on the same tokens.

Hidden states: Jiao et al. (2020), "TinyBERT", section 3.1 (equations 8 and 9). Relations: Wang et al. (2021),
"MiniLMv2", section 3.1: queries with queries, keys with keys, values with values; of queries with keys, which are
attention itself, and values with values Wang et al. (2020), "MiniLM", sections 3.1 and 3.2.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import nn
from transformers import PreTrainedModel

from ..network.encoder_parts import attention_projections, encoder_layers

PROJECTIONS = "hidden_state_projections"
"""Attribute of a student in training: from its width to the teacher's, one linear map for each state."""

LAYER_LOSSES = "layer_losses"
"""In a student's outputs: the loss of each sequence (B,)."""

RELATIONS = ("qq", "kk", "vv")
"""Those of MiniLMv2: each of two of query, key, value."""

_READ = ("input_ids", "attention_mask", "token_type_ids")


class LayerLosses:
    """Losses on hidden states and on relations.

    The student's state number i of M (0 are the embeddings) learns from the teacher's number i N / M of N, through a
    linear map that is learnt with it and thrown away. Relations are of the last layers.

    Args:
        teacher: The teacher, in evaluation mode, where the student will be.
        hidden_state_weight: Weight of the mean squared error of hidden states, at least 0.
        relation_weight: Weight of the divergence of relations, summed over them, at least 0.
        relation_heads: Into how many parts vectors are cut for relations; None for as many as fit both widths, at most
            the teacher's heads.
        relations: Which ones, see `RELATIONS`; "qk" is attention, head by head, in models with equally many heads.
    """

    def __init__(
        self,
        teacher: PreTrainedModel,
        hidden_state_weight: float,
        relation_weight: float,
        relation_heads: int | None = None,
        relations: Sequence[str] = RELATIONS,
    ) -> None:
        self.teacher = teacher
        self.hidden_state_weight = hidden_state_weight
        self.relation_weight = relation_weight
        self.relation_heads = relation_heads
        self.relations = relations

    def check(self, student: PreTrainedModel) -> None:
        """Refuse a student, or a teacher, whose relations cannot be computed.

        Raises:
            ValueError: If a width is no multiple of the number of heads, a model is not built like BERT, or attention
                is compared and the models have other numbers of heads.
        """
        if self.relation_weight:
            self._heads(student)
            for model in (self.teacher, student):
                attention_projections(encoder_layers(model)[-1])

    def attach(self, student: PreTrainedModel, seed: int) -> None:
        """Add `LAYER_LOSSES` to a student's outputs whenever its hidden states are asked for.

        The linear maps become a part of it, so that they are trained and stand in its checkpoints; and the losses come
        with its outputs, so that what wraps it, as several processes do, knows which parameters they come from.
        """
        self.student = student
        self._hook = student.register_forward_hook(self._add_to_outputs, with_kwargs=True)
        if self.hidden_state_weight:
            generator = torch.Generator().manual_seed(seed)
            width, wanted = student.config.hidden_size, self.teacher.config.hidden_size
            maps = [nn.Linear(width, wanted, bias=False) for _ in range(student.config.num_hidden_layers + 1)]
            for each in maps:
                nn.init.normal_(each.weight, std=width**-0.5, generator=generator)
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
        """The loss of each sequence (B,).

        Args:
            hidden_states: The student's, embeddings first, each (B, L, D).
            inputs: What it reads; the same tokens are the teacher's.
        """
        read = {name: inputs[name] for name in _READ if name in inputs}
        with torch.no_grad():
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
        each = [
            _mean_of_tokens((maps[number](found[number]) - wanted[place]).float().square().mean(-1), mask)
            for number, place in enumerate(places)
        ]
        return torch.stack(each).mean(0)

    def _of_relations(self, found: torch.Tensor, wanted: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        """The divergence of the relations; both get what goes into their last layer (B, L, D)."""
        heads = self._heads(self.student)
        with torch.no_grad():
            right = [part(wanted) for part in attention_projections(encoder_layers(self.teacher)[-1])]
        own = [part(found) for part in attention_projections(encoder_layers(self.student)[-1])]
        total = torch.zeros(len(mask), device=mask.device)
        for relation in self.relations:
            one, other = ("qkv".index(letter) for letter in relation)
            expected = _log_relations(right[one], right[other], heads, mask)
            said = _log_relations(own[one], own[other], heads, mask)
            divergence = (expected.exp() * (expected - said)).sum(-1).mean(1)  # over keys, then heads: (B, L)
            total = total + _mean_of_tokens(divergence, mask)
        return total

    def _heads(self, student: PreTrainedModel) -> int:
        """Into how many parts vectors are cut; attention has heads of its own."""
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
    """Into how many parts queries, keys and values are cut for relations.

    Args:
        wanted: How many, or None for as many as fit, at most the teacher's heads.
        teacher: The teacher.
        student: The student.

    Raises:
        ValueError: If one of their widths is no multiple of what is wanted.
    """
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
    """With heads pruned away they are narrower than the model."""
    weight: Any = attention_projections(encoder_layers(model)[-1])[0].weight
    return len(weight)


def _log_relations(one: torch.Tensor, other: torch.Tensor, heads: int, mask: torch.Tensor) -> torch.Tensor:
    """Logarithms of the scaled dot products' softmax over tokens, of vectors (B, L, D) cut in parts: (B, H, L, L)."""
    left, right = (states.float().unflatten(-1, (heads, -1)).transpose(1, 2) for states in (one, other))
    scores = left @ right.transpose(-1, -2) / left.shape[-1] ** 0.5
    return scores.masked_fill(~mask[:, None, None, :], torch.finfo(scores.dtype).min).log_softmax(-1)


def _mean_of_tokens(values: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
    """The mean of (B, L) over the tokens that are no padding: (B,)."""
    return values.masked_fill(~mask, 0.0).sum(-1) / mask.sum(-1)
