"""The parts of the encoder: embeddings, attention, layer and pooler (Devlin et al., 2018).

Modules have the names and the arguments of those of transformers' BERT, so that users can replace and hook the same
ones. Self-attention calls the attention function chosen by `config._attn_implementation`.

Shapes: B sequences in a batch, L tokens in a sequence (padding included), D = hidden_size, H heads. In the layers of a
packed batch, B is 1 and L is the total number of tokens.
"""

from collections.abc import Callable, Container, Sequence
from typing import Any

import torch
from torch import nn
from transformers.activations import ACT2FN
from transformers.modeling_layers import GradientCheckpointingLayer
from transformers.modeling_outputs import BaseModelOutput
from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS
from transformers.processing_utils import Unpack
from transformers.utils import TransformersKwargs

from .attention_mybert import eager_attention_forward, packed_attention, prefers_eager
from .batch_mybert import Batch
from .configuration_mybert import MyBertConfig
from .linear_mybert import Product, call_layer, call_layers, linear


class MyBertEmbeddings(nn.Module):
    """Sum of word, segment and position embeddings, normalized (paper, section 3 and figure 2)."""

    def __init__(self, config: MyBertConfig) -> None:
        super().__init__()
        self.word_embeddings = nn.Embedding(config.vocab_size, config.hidden_size, padding_idx=config.pad_token_id)
        self.position_embeddings = nn.Embedding(config.max_position_embeddings, config.hidden_size)
        self.token_type_embeddings = nn.Embedding(config.type_vocab_size, config.hidden_size)
        self.LayerNorm = nn.LayerNorm(config.hidden_size, eps=config.layer_norm_eps)
        self.dropout = nn.Dropout(config.hidden_dropout_prob)

    def forward(
        self,
        input_ids: torch.Tensor | None = None,
        token_type_ids: torch.Tensor | None = None,
        position_ids: torch.Tensor | None = None,
        inputs_embeds: torch.Tensor | None = None,
    ) -> torch.Tensor:
        """Embed token ids (B, L), or take word embeddings (B, L, D); returns (B, L, D)."""
        words = self.word_embeddings(input_ids) if inputs_embeds is None else inputs_embeds
        if token_type_ids is None:
            token_type_ids = torch.zeros(words.shape[:-1], dtype=torch.long, device=words.device)
        if position_ids is None:
            position_ids = torch.arange(words.shape[1], device=words.device)[None]
        embeddings = words + self.token_type_embeddings(token_type_ids) + self.position_embeddings(position_ids)
        return self.dropout(self.LayerNorm(embeddings))


class MyBertSelfAttention(nn.Module):
    """Multi-head attention without its output projection, which is the layer's `attention.output`."""

    def __init__(self, config: MyBertConfig) -> None:
        super().__init__()
        self.config = config
        self.head_size = config.head_size
        self.scaling = self.head_size**-0.5
        size = config.num_attention_heads * config.head_size
        self.query = nn.Linear(config.hidden_size, size)
        self.key = nn.Linear(config.hidden_size, size)
        self.value = nn.Linear(config.hidden_size, size)
        self.dropout = nn.Dropout(config.attention_probs_dropout_prob)  # its probability is that of attention weights

    @property
    def is_causal(self) -> bool:
        """Whether attention is causal; transformers' attention functions read this attribute."""
        return self.config.is_decoder

    def forward(
        self,
        hidden_states: torch.Tensor,
        attention_mask: torch.Tensor | None = None,
        batch: Batch | None = None,
        product: Product = call_layer,
        **kwargs: Unpack[TransformersKwargs],
    ) -> tuple[torch.Tensor, torch.Tensor | None]:
        """Hidden states (B, L, D) to context (B, L, H * head_size) and attention weights (B, H, L, L) or None.

        With a packed `batch`, each token attends to those of its sequence, without a mask.
        """
        shape, dropout = (*hidden_states.shape[:-1], -1, self.head_size), self.dropout.p if self.training else 0.0
        if product is call_layer:
            query, key, value = call_layers((self.query, self.key, self.value), hidden_states)
        else:
            query, key = product(self.query, hidden_states), product(self.key, hidden_states)
            value = product(self.value, hidden_states)
        query, key = query.view(shape).transpose(1, 2), key.view(shape).transpose(1, 2)
        value = value.view(shape).transpose(1, 2)
        options: dict[str, Any] = {"dropout": dropout, "scaling": self.scaling, **kwargs}
        implementation = self.config._attn_implementation
        attention: Callable = eager_attention_forward
        if batch is not None:
            attention, options["batch"] = packed_attention, batch
        elif not (
            query.dtype == torch.bfloat16
            and implementation == "sdpa"
            and attention_mask is None
            and prefers_eager(query, dropout, self.is_causal)
        ):
            attention = ALL_ATTENTION_FUNCTIONS.get_interface(implementation, eager_attention_forward)
        context, weights = attention(self, query, key, value, attention_mask, **options)
        return context.flatten(2).contiguous(), weights


class MyBertOutput(nn.Module):
    """End of a sub-layer: linear layer, dropout, residual connection, layer normalization (post-LN)."""

    def __init__(self, input_size: int, config: MyBertConfig) -> None:
        super().__init__()
        self.dense = nn.Linear(input_size, config.hidden_size)
        self.LayerNorm = nn.LayerNorm(config.hidden_size, eps=config.layer_norm_eps)
        self.dropout = nn.Dropout(config.hidden_dropout_prob)

    def forward(
        self, sublayer_states: torch.Tensor, residual: torch.Tensor, product: Product = call_layer
    ) -> torch.Tensor:
        """Sub-layer states (B, L, input_size) and residual (B, L, D) to (B, L, D)."""
        return self.LayerNorm(self.dropout(product(self.dense, sublayer_states)) + residual)


class MyBertAttention(nn.Module):
    """First sub-layer: self-attention and its end."""

    def __init__(self, config: MyBertConfig) -> None:
        super().__init__()
        self.self = MyBertSelfAttention(config)
        self.output = MyBertOutput(config.num_attention_heads * config.head_size, config)

    def forward(
        self,
        hidden_states: torch.Tensor,
        attention_mask: torch.Tensor | None = None,
        output_tokens: torch.Tensor | None = None,
        product: Product | None = None,
        **kwargs: Unpack[TransformersKwargs],
    ) -> tuple[torch.Tensor, torch.Tensor | None]:
        """Hidden states (B, L, D) to those after the sub-layer and attention weights; see `MyBertLayer.forward`."""
        products = {} if product is None else {"product": product}
        context, weights = self.self(hidden_states, attention_mask=attention_mask, **products, **kwargs)
        if output_tokens is not None:
            context = context.flatten(0, 1).index_select(0, output_tokens)[None]
            hidden_states = hidden_states.flatten(0, 1).index_select(0, output_tokens)[None]
        return self.output(context, hidden_states, **products), weights


class MyBertIntermediate(nn.Module):
    """Start of the second sub-layer, the feed-forward network: linear layer and activation."""

    def __init__(self, config: MyBertConfig) -> None:
        super().__init__()
        self.dense = nn.Linear(config.hidden_size, config.intermediate_size)
        self.intermediate_act_fn = ACT2FN[config.hidden_act]

    def forward(self, hidden_states: torch.Tensor, product: Product = call_layer) -> torch.Tensor:
        """Hidden states (B, L, D) to (B, L, intermediate_size)."""
        return product(self.dense, hidden_states, self.intermediate_act_fn)


class MyBertLayer(GradientCheckpointingLayer):
    """One layer: self-attention and a feed-forward network, each ended by a `MyBertOutput`."""

    def __init__(self, config: MyBertConfig) -> None:
        super().__init__()
        self.chunk_size_feed_forward = config.chunk_size_feed_forward
        self.attention = MyBertAttention(config)
        self.intermediate = MyBertIntermediate(config)
        self.output = MyBertOutput(config.intermediate_size, config)

    def forward(
        self,
        hidden_states: torch.Tensor,
        attention_mask: torch.Tensor | None = None,
        product: Product | None = None,
        **kwargs: Unpack[TransformersKwargs],
    ) -> torch.Tensor:
        """Hidden states (B, L, D) of the layer below to those of this layer, of the same shape.

        With `output_tokens`, indices into the flattened batch (n,), only to those of these tokens, (1, n, D): all that
        follows attention is computed token by token.
        """
        # Modules of users get no arguments that those of transformers' BERT do not get.
        products = {} if product is None else {"product": product}
        inner_products = products if isinstance(self.intermediate, MyBertIntermediate) else {}
        hidden_states, _ = self.attention(hidden_states, attention_mask, **products, **kwargs)
        outputs, chunk = [], self.chunk_size_feed_forward
        for part in hidden_states.split(chunk, dim=1) if chunk else (hidden_states,):
            outputs.append(self.output(self.intermediate(part, **inner_products), part, **products))
        return torch.cat(outputs, dim=1) if chunk else outputs[0]


class MyBertEncoder(nn.Module):
    """The layers."""

    def __init__(self, config: MyBertConfig) -> None:
        super().__init__()
        self.layer = nn.ModuleList([MyBertLayer(config) for _ in range(config.num_hidden_layers)])

    def forward(
        self,
        hidden_states: torch.Tensor,
        attention_mask: torch.Tensor | None = None,
        output_tokens: torch.Tensor | None = None,
        output_hidden_states: bool | int | Sequence[int] | None = None,
        **kwargs: Unpack[TransformersKwargs],
    ) -> BaseModelOutput:
        """Embeddings (B, L, D) to the hidden states of the last layer; `output_tokens`: see `MyBertLayer.forward`.

        The embeddings and the hidden states of each layer are returned as well if `output_hidden_states` is True; if
        it is an index or several, None stands for the others.
        """
        count = len(self.layer) + 1
        wanted: Container[int] = range(count if output_hidden_states else 0)
        if wanted and not isinstance(output_hidden_states, bool):
            indices = [output_hidden_states] if isinstance(output_hidden_states, int) else output_hidden_states
            wanted = {index % count for index in indices or () if -count <= index < count}
        collected = [hidden_states if 0 in wanted else None]
        for number, layer in enumerate(self.layer, start=1):
            needed = {"output_tokens": output_tokens} if output_tokens is not None and number == count - 1 else {}
            hidden_states = layer(hidden_states, attention_mask, **needed, **kwargs)
            collected.append(hidden_states if number in wanted else None)
        return BaseModelOutput(hidden_states, tuple(collected) if output_hidden_states else None)


class MyBertPooler(nn.Module):
    """The pooled output: one token's hidden state, usually the first, through a linear layer and tanh."""

    def __init__(self, config: MyBertConfig) -> None:
        super().__init__()
        self.dense = nn.Linear(config.hidden_size, config.hidden_size)
        self.activation = nn.Tanh()

    def forward(self, hidden_states: torch.Tensor) -> torch.Tensor:
        """Hidden states (B, L, D) to pooled output (B, D), from the first token of each row."""
        return linear(self.dense, hidden_states[:, 0], self.activation)
