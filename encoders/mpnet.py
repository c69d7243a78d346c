"""MPNet without padding: its layers compute attention themselves, with a bias for each distance of two tokens.

Its encoder packs the embeddings, and hands batch and biases to the layers in place of the attention mask.
"""

import dataclasses
from typing import Any, NamedTuple

import torch
from transformers.modeling_outputs import BaseModelOutput
from transformers.models.mpnet.modeling_mpnet import MPNetEncoder, MPNetSelfAttention

from ..modeling_mybert.batch_mybert import Batch, pack_batch
from .attention import attend_in_groups, columns_of_groups
from .packing import has_changed, may_pack_tensors


class _Packed(NamedTuple):
    batch: Batch
    biases: list[torch.Tensor]  # of each group: (count or 1, H, length, keys)


class PackedMPNetEncoder(MPNetEncoder):
    """The class that `speed_up` gives MPNet's encoder."""

    def forward(
        self,
        hidden_states: torch.Tensor,
        attention_mask: torch.Tensor | None = None,
        output_attentions: bool = False,
        output_hidden_states: bool = False,
        return_dict: bool = False,
        **kwargs: Any,
    ) -> Any:
        """As in transformers."""
        batch = None if output_attentions else self._batch(hidden_states, attention_mask)
        if batch is None:
            options = {"output_attentions": output_attentions, "output_hidden_states": output_hidden_states}
            return super().forward(hidden_states, attention_mask, return_dict=return_dict, **options, **kwargs)
        packed, states, collected = _Packed(batch, self._biases(batch)), batch.pack(hidden_states), [hidden_states]
        for layer in self.layer:
            states = layer(states, packed)[0]
            if output_hidden_states:
                collected.append(batch.unpack(states))
        last = collected[-1] if len(collected) > 1 else batch.unpack(states)
        all_states = tuple(collected) if output_hidden_states else None
        if not return_dict:
            return (last,) if all_states is None else (last, all_states)
        return BaseModelOutput(last_hidden_state=last, hidden_states=all_states)

    def _batch(self, hidden_states: torch.Tensor, attention_mask: torch.Tensor | None) -> Batch | None:
        """How to pack embeddings (B, L, D) with the mask (B, 1, L, L) that is added to the scores; None if not."""
        if torch.compiler.is_compiling() or not may_pack_tensors(hidden_states, attention_mask):
            return None
        if hidden_states.device.type != "cpu":  # the variable-length kernel has no biases
            return None
        is_token = None
        if attention_mask is not None:
            row = attention_mask[:, :1, :1]
            is_token = row[:, 0, 0] == 0
            hides = row == torch.finfo(attention_mask.dtype).min
            if not ((hides[:, 0, 0] | is_token).all() and is_token.any(1).all() and (attention_mask == row).all()):
                return None  # not a mask of padding, or a row of nothing else
        shape = (hidden_states.shape[0], hidden_states.shape[1])
        batch = pack_batch(shape, is_token, False, may_fill_up=not self.training)
        if batch is None or has_changed(self):
            return None
        if any(type(layer.attention.attn) is not PackedMPNetSelfAttention for layer in self.layer):  # replaced since
            return None
        return dataclasses.replace(
            batch, padding=None
        )  # heads read the state of the first token even if it is padding

    def _biases(self, batch: Batch) -> list[torch.Tensor]:
        """The attention biases of each group: (count or 1, H, length, keys)."""
        assert batch.groups is not None
        biases = []
        for columns, (_, _, first_key) in zip(columns_of_groups(batch), batch.groups, strict=True):
            distances = columns[:, None, first_key:] - columns[:, :, None]
            buckets = self.relative_position_bucket(distances)
            biases.append(self.relative_attention_bias(buckets).permute(0, 3, 1, 2))
        return biases


class PackedMPNetSelfAttention(MPNetSelfAttention):
    """The class that `speed_up` gives MPNet's attention."""

    def forward(
        self, hidden_states: torch.Tensor, attention_mask: Any = None, *args: Any, **kwargs: Any
    ) -> tuple[torch.Tensor, ...]:
        """As in transformers; with a packed batch in place of the mask, attention within each sequence."""
        if not isinstance(attention_mask, _Packed):
            return super().forward(hidden_states, attention_mask, *args, **kwargs)
        head_shape = (-1, self.num_attention_heads, self.attention_head_size)
        query, key, value = (layer(hidden_states).view(head_shape) for layer in (self.q, self.k, self.v))
        dropout, scaling = self.dropout.p if self.training else 0.0, self.attention_head_size**-0.5
        batch, biases = attention_mask
        context = attend_in_groups(batch, query, key, value, dropout, scaling, biases)
        return (self.o(context.flatten(1)[None]),)
