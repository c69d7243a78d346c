"""The MyBERT network: embeddings, attention, layer, trunk and every head (Devlin et al., 2018).

Parameter names are those of transformers' BERT, so checkpoints go both ways unchanged. Modules that exist only to
carry such a name (`encoder`, `attention`, `intermediate`, `cls`) are `ModuleDict`s without a forward of their own: a
head calls the trunk, the trunk its layers, a layer its attention, and that one the attention function chosen by
`config._attn_implementation`.

Padding costs nothing: `MyBertModel.forward` packs the tokens of a padded batch once, before the embeddings, and
unpacks the states once, after the last layer (`padding_mybert.py`).

Shapes: B sequences in a batch, L tokens in a sequence (padding included), D = hidden_size, H heads, V = vocab_size. In
the layers of a packed batch B is 1 and L the number of its tokens. Where rows hold several sequences one after the
other (as transformers' `DataCollatorWithFlattening` makes them), pooled output has a row for each of the N sequences.
"""

import functools
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeVar

import torch
import torch.nn.functional as F
from torch import nn
from transformers import initialization as init
from transformers.activations import ACT2FN
from transformers.masking_utils import (
    create_bidirectional_mask,
    create_causal_mask,
    packed_sequence_mask_function,
)
from transformers.modeling_layers import GradientCheckpointingLayer
from transformers.modeling_outputs import (
    BaseModelOutputWithPooling,
    MaskedLMOutput,
    MultipleChoiceModelOutput,
    NextSentencePredictorOutput,
    QuestionAnsweringModelOutput,
    SequenceClassifierOutput,
    TokenClassifierOutput,
)
from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS, PreTrainedModel
from transformers.processing_utils import Unpack
from transformers.pytorch_utils import apply_chunking_to_forward
from transformers.utils import ModelOutput, TransformersKwargs
from transformers.utils.generic import can_return_tuple, is_flash_attention_requested
from transformers.utils.import_utils import is_tracing
from transformers.utils.output_capturing import capture_outputs

from .configuration_mybert import MyBertConfig
from .padding_mybert import (
    Packing,
    any_length_kernel,
    check_borders,
    last_tokens,
    number_sequences,
    pack_padded,
    pack_sequences,
    pooled_places,
    restarting_positions,
    sequence_lengths,
)

IGNORED_LABEL = -100  # positions with this label count in no loss
FEW_ROWS = 64  # up to here W x^T is faster than x W^T on CPUs (mybert bench --workloads query)


class MyBertEmbeddings(nn.Module):
    """Sum of word, segment and position embeddings, normalised (paper, section 3 and figure 2)."""

    def __init__(self, config: MyBertConfig) -> None:
        super().__init__()
        self.word_embeddings = nn.Embedding(config.vocab_size, config.hidden_size, padding_idx=config.pad_token_id)
        self.position_embeddings = nn.Embedding(config.max_position_embeddings, config.hidden_size)
        self.token_type_embeddings = nn.Embedding(config.type_vocab_size, config.hidden_size)
        self.LayerNorm = nn.LayerNorm(config.hidden_size, eps=config.layer_norm_eps)
        self.dropout = nn.Dropout(config.hidden_dropout_prob)

    def forward(
        self,
        input_ids: torch.Tensor | None,
        token_type_ids: torch.Tensor | None,
        position_ids: torch.Tensor | None,
        inputs_embeds: torch.Tensor | None,
    ) -> torch.Tensor:
        """Embed ids (B, L), or take word embeddings (B, L, D) as they are; returns (B, L, D)."""
        words = self.word_embeddings(input_ids) if inputs_embeds is None else inputs_embeds
        if token_type_ids is None:
            token_type_ids = torch.zeros(words.shape[:-1], dtype=torch.long, device=words.device)
        if position_ids is None:
            position_ids = torch.arange(words.shape[1], device=words.device)[None]
        embeddings = words + self.token_type_embeddings(token_type_ids) + self.position_embeddings(position_ids)
        return self.dropout(self.LayerNorm(embeddings))


def eager_attention_forward(
    module: nn.Module,
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    attention_mask: torch.Tensor | None,
    scaling: float,
    dropout: float = 0.0,
    **kwargs: Unpack[TransformersKwargs],
) -> tuple[torch.Tensor, torch.Tensor]:
    """Attention written out, the one implementation that returns its weights.

    Args:
        module: The attention module; only its `training` flag is read.
        query, key, value: (B, H, L, D / H).
        attention_mask: None, or what is added to the scores, (B or 1, H or 1, L, L); a bool mask is True where a
            token is seen.
        scaling: Factor of the scores.
        dropout: Dropout of the weights, in [0, 1].

    Returns:
        The context (B, L, H, D / H) and the weights (B, H, L, L).
    """
    scores = torch.matmul(query, key.transpose(2, 3)) * scaling
    if attention_mask is not None and attention_mask.dtype == torch.bool:
        scores = scores.masked_fill(~attention_mask, torch.finfo(scores.dtype).min)
    elif attention_mask is not None:
        scores = scores + attention_mask
    weights = F.dropout(F.softmax(scores, dim=-1), p=dropout, training=module.training)
    return torch.matmul(weights, value).transpose(1, 2).contiguous(), weights


class PackedWeight:
    """A linear layer's weight in the layout that the CPU's matrix kernels (oneDNN) read.

    Args:
        weight: The weight (O, I), float32 or bfloat16.
    """

    def __init__(self, weight: torch.Tensor) -> None:
        self.packed = torch.ops.mkldnn._reorder_linear_weight(weight.detach())
        self.origin = self._state_of(weight)

    def __reduce__(self) -> tuple[Any, ...]:
        """A copied or pickled layer has none: such tensors cannot be copied."""
        return type(None), ()

    @staticmethod
    def _state_of(weight: torch.Tensor) -> tuple[int, int]:
        return weight.data_ptr(), -1 if weight.is_inference() else weight._version

    def is_of(self, weight: torch.Tensor) -> bool:
        """Whether the weight is still the one that was packed."""
        return self.origin == self._state_of(weight)

    def multiply(self, hidden_states: torch.Tensor, bias: torch.Tensor) -> torch.Tensor:
        """Product with the weight, and bias: (..., I) to (..., O)."""
        product: torch.Tensor = torch.ops.mkldnn._linear_pointwise(hidden_states, self.packed, bias, "none", [], "")
        return product


def linear(layer: nn.Module, hidden_states: torch.Tensor) -> torch.Tensor:
    """Call a linear layer; on a CPU with its packed weight, if it has one, or few rows as the transposed product.

    Only a plain layer is looked through: not one that an adapter or a quantizer has put in its place, that has hooks,
    or whose weight is not a plain one. Training never is: dropout follows the layout of its input in memory, and
    checkpointing runs a layer with and without gradient.

    Args:
        layer: The layer, (..., I) to (..., O).
        hidden_states: (..., I).

    Returns:
        (..., O).
    """
    if (
        torch.is_grad_enabled()
        or type(layer) is not nn.Linear
        or layer.training
        or hidden_states.device.type != "cpu"
        or type(layer.weight) is not nn.Parameter
        or layer.bias is None
        or layer._forward_hooks
        or layer._forward_pre_hooks
        or "forward" in layer.__dict__  # accelerate moves weights in a forward of its own
        or torch.compiler.is_compiling()
        or torch.jit.is_tracing()
        or torch.is_autocast_enabled("cpu")
    ):
        return layer(hidden_states)
    packed_weight = getattr(layer, "packed_weight", None)
    if packed_weight is not None and packed_weight.is_of(layer.weight) and hidden_states.dtype == layer.weight.dtype:
        product: torch.Tensor = packed_weight.multiply(hidden_states, layer.bias)
        return product
    rows = hidden_states.numel() // layer.in_features
    if rows > FEW_ROWS:
        return layer(hidden_states)
    columns = torch.addmm(layer.bias[:, None], layer.weight, hidden_states.reshape(rows, layer.in_features).t())
    return columns.t().contiguous().view(*hidden_states.shape[:-1], layer.out_features)


class MyBertSelfAttention(nn.Module):
    """Multi-head attention up to the context; the output product is the layer's `attention.output`."""

    def __init__(self, config: MyBertConfig, layer_idx: int) -> None:
        super().__init__()
        self.config = config
        self.layer_idx = layer_idx
        self.head_size = config.hidden_size // config.num_attention_heads
        self.scaling = self.head_size**-0.5
        self.is_causal = config.is_decoder
        self.query = nn.Linear(config.hidden_size, config.hidden_size)
        self.key = nn.Linear(config.hidden_size, config.hidden_size)
        self.value = nn.Linear(config.hidden_size, config.hidden_size)

    def forward(
        self,
        hidden_states: torch.Tensor,
        attention_mask: torch.Tensor | None,
        packing: Packing | None = None,
        **kwargs: Unpack[TransformersKwargs],
    ) -> tuple[torch.Tensor, torch.Tensor | None]:
        """Context (B, L, D) of hidden states (B, L, D), and the weights (B, H, L, L) where the function gives them."""
        head_shape = (*hidden_states.shape[:-1], -1, self.head_size)
        query = linear(self.query, hidden_states).view(head_shape)
        key = linear(self.key, hidden_states).view(head_shape)
        value = linear(self.value, hidden_states).view(head_shape)
        dropout = self.config.attention_probs_dropout_prob if self.training else 0.0
        if packing is not None:
            context = packing.attend(query[0], key[0], value[0], dropout, self.scaling, self.is_causal)
            return context.view(hidden_states.shape), None
        attention: Callable = ALL_ATTENTION_FUNCTIONS.get_interface(
            self.config._attn_implementation, eager_attention_forward
        )
        context, weights = attention(
            self,
            query.transpose(1, 2),
            key.transpose(1, 2),
            value.transpose(1, 2),
            attention_mask,
            dropout=dropout,
            scaling=self.scaling,
            **kwargs,
        )
        return context.reshape(hidden_states.shape).contiguous(), weights


class MyBertResidual(nn.Module):
    """End of a sub-layer: product, dropout, residual connection, layer normalisation (post-LN)."""

    def __init__(self, input_size: int, config: MyBertConfig) -> None:
        super().__init__()
        self.dense = nn.Linear(input_size, config.hidden_size)
        self.LayerNorm = nn.LayerNorm(config.hidden_size, eps=config.layer_norm_eps)
        self.dropout = nn.Dropout(config.hidden_dropout_prob)

    def forward(self, sublayer_states: torch.Tensor, residual: torch.Tensor) -> torch.Tensor:
        """(B, L, input_size) and the residual (B, L, D) to (B, L, D)."""
        return self.LayerNorm(self.dropout(linear(self.dense, sublayer_states)) + residual)


class MyBertLayer(GradientCheckpointingLayer):
    """One layer: self-attention and a feed-forward network, each closed by `MyBertResidual`."""

    def __init__(self, config: MyBertConfig, layer_idx: int) -> None:
        super().__init__()
        self.chunk_size_feed_forward = config.chunk_size_feed_forward
        self.activation = ACT2FN[config.hidden_act]
        self.attention = nn.ModuleDict(
            {"self": MyBertSelfAttention(config, layer_idx), "output": MyBertResidual(config.hidden_size, config)}
        )
        self.intermediate = nn.ModuleDict({"dense": nn.Linear(config.hidden_size, config.intermediate_size)})
        self.output = MyBertResidual(config.intermediate_size, config)

    def forward(
        self, hidden_states: torch.Tensor, attention_mask: torch.Tensor | None, **kwargs: Unpack[TransformersKwargs]
    ) -> torch.Tensor:
        """Hidden states (B, L, D) of this layer from those of the layer below."""
        context, _ = self.attention["self"](hidden_states, attention_mask, **kwargs)
        hidden_states = self.attention["output"](context, hidden_states)
        return apply_chunking_to_forward(self.feed_forward, self.chunk_size_feed_forward, 1, hidden_states)

    def feed_forward(self, hidden_states: torch.Tensor) -> torch.Tensor:
        """Feed-forward network with its residual connection, (B, L, D) to (B, L, D)."""
        return self.output(self.activation(linear(self.intermediate["dense"], hidden_states)), hidden_states)


class MyBertPooler(nn.Module):
    """A sequence's representation: the hidden state of one token, mostly the first, through a product and tanh."""

    def __init__(self, config: MyBertConfig) -> None:
        super().__init__()
        self.dense = nn.Linear(config.hidden_size, config.hidden_size)

    def forward(self, hidden_states: torch.Tensor) -> torch.Tensor:
        """(B, L, D) to (B, D)."""
        return torch.tanh(linear(self.dense, hidden_states[:, 0]))


class MyBertPredictionHead(nn.Module):
    """Masked-LM head: a transform, then the product with the word embeddings and a bias (`cls.predictions`)."""

    def __init__(self, config: MyBertConfig) -> None:
        super().__init__()
        self.activation = ACT2FN[config.hidden_act]
        self.transform = nn.ModuleDict(
            {
                "dense": nn.Linear(config.hidden_size, config.hidden_size),
                "LayerNorm": nn.LayerNorm(config.hidden_size, eps=config.layer_norm_eps),
            }
        )
        self.decoder = nn.Linear(config.hidden_size, config.vocab_size)
        self.bias = nn.Parameter(torch.zeros(config.vocab_size))  # tied to decoder.bias; checkpoints hold this name

    def forward(self, hidden_states: torch.Tensor) -> torch.Tensor:
        """(..., D) to (..., V)."""
        hidden_states = self.activation(linear(self.transform["dense"], hidden_states))
        return linear(self.decoder, self.transform["LayerNorm"](hidden_states))


_Model = TypeVar("_Model", bound="MyBertPreTrainedModel")


class MyBertPreTrainedModel(PreTrainedModel):
    """What all MyBERT models share: configuration class, initialisation, and what transformers may do with them."""

    config: MyBertConfig
    config_class = MyBertConfig
    base_model_prefix = "bert"
    supports_gradient_checkpointing = True
    _no_split_modules = ["MyBertEmbeddings", "MyBertLayer"]
    _supports_flash_attn = True
    _supports_sdpa = True
    _supports_flex_attn = True
    _supports_attention_backend = True
    _can_record_outputs = {"hidden_states": MyBertLayer, "attentions": MyBertSelfAttention}
    # Checkpoints of transformers 4.30 and before hold the positions 0 ... 511 as if they were weights.
    _keys_to_ignore_on_load_unexpected = [r"embeddings\.position_ids$"]

    @classmethod
    def from_pretrained(
        cls: type[_Model], pretrained_model_name_or_path: Any, *model_args: Any, config: Any = None, **kwargs: Any
    ) -> _Model:
        """As in transformers; a configuration object of type `bert` becomes one of MyBERT's with the same values."""
        if getattr(config, "model_type", None) == "bert":
            attn_implementation = config._attn_implementation
            config = cls.config_class.from_dict(config.to_dict(), attn_implementation=attn_implementation)
        return super().from_pretrained(pretrained_model_name_or_path, *model_args, config=config, **kwargs)

    @torch.no_grad()
    def _init_weights(self, module: nn.Module) -> None:
        super()._init_weights(module)
        if isinstance(module, MyBertPredictionHead):
            init.zeros_(module.bias)

    def prepack_weights(self: _Model) -> _Model:
        """Make inference on a CPU faster: linear layers get a second copy of their weights, laid out for its kernels.

        Outputs differ by rounding. Saving and adapters use the weights themselves. `train()` drops the copies, and
        after another change of weights they are no longer used; this method makes new ones. (A change that PyTorch
        does not count, through `weight.data` or by a fused optimizer on a model left in `eval()`, goes unnoticed.)
        Copies and pickles of the model come without.

        Returns:
            The model.

        Raises:
            ValueError: If the model is not on a CPU, its weights are neither float32 nor bfloat16, or this build of
                PyTorch has no oneDNN.
        """
        if self.device.type != "cpu" or self.dtype not in (torch.float32, torch.bfloat16):
            raise ValueError(
                f"The model is {self.dtype} on {self.device}; prepacking weights expects float32 or bfloat16 on a CPU."
            )
        if not torch.backends.mkldnn.is_available():
            raise ValueError("This build of PyTorch has no oneDNN, whose layout prepacked weights have.")
        if self.dtype == torch.bfloat16 and not torch.ops.mkldnn._is_mkldnn_bf16_supported():
            raise ValueError("This CPU has no bfloat16 kernels; expected a float32 model to prepack weights.")
        for module in self.modules():
            if type(module) is nn.Linear and type(module.weight) is nn.Parameter:
                module.packed_weight = PackedWeight(module.weight)  # type: ignore[assignment]
        return self

    def train(self: _Model, mode: bool = True) -> _Model:
        """As in torch; training drops the copies of `prepack_weights`: fused optimizers change weights uncounted."""
        if mode:
            for module in self.modules():
                module.__dict__.pop("packed_weight", None)
        return super().train(mode)

    @functools.wraps(PreTrainedModel.push_to_hub, assigned=())  # its signature
    def push_to_hub(self, *args: Any, **kwargs: Any) -> Any:
        """As in transformers; this code and the `auto_map` of all heads go along, so that it loads without mybert."""
        model_class, classes = type(self), auto_map()
        own = [name for name, source in classes.items() if source.endswith(f".{model_class.__name__}")]
        if not own or model_class._auto_class is not None:  # a class of the user's, or one that takes its code along
            return super().push_to_hub(*args, **kwargs)
        model_class._auto_class, self.config.auto_map = own[0], classes
        try:
            return super().push_to_hub(*args, **kwargs)
        finally:
            model_class._auto_class = None
            del self.config.auto_map


def auto_map() -> dict[str, str]:
    """Auto class of transformers -> class in these files, for the configuration and every head."""
    heads = [name for name in __all__ if name.startswith("MyBertFor") and not name.endswith("Output")]
    return {
        "AutoConfig": "configuration_mybert.MyBertConfig",
        "AutoModel": "modeling_mybert.MyBertModel",
        **{name.replace("MyBert", "AutoModel", 1): f"modeling_mybert.{name}" for name in heads},
    }


class MyBertModel(MyBertPreTrainedModel):
    """The trunk: embeddings, layers and pooler.

    Args:
        config: The configuration.
        add_pooling_layer: Whether there is a pooler; heads on single tokens have none.
    """

    def __init__(self, config: MyBertConfig, add_pooling_layer: bool = True) -> None:
        if not hasattr(config, "check"):  # by its method: the Hub's copy of the class is a class of its own
            raise ValueError(
                f"config is a {type(config).__name__}; expected a MyBertConfig. "
                "MyBertConfig.from_dict(config.to_dict()) makes one of a BertConfig."
            )
        config.check()
        super().__init__(config)
        self.gradient_checkpointing = False
        self.embeddings = MyBertEmbeddings(config)
        self.encoder = nn.ModuleDict(
            {"layer": nn.ModuleList([MyBertLayer(config, index) for index in range(config.num_hidden_layers)])}
        )
        self.pooler = MyBertPooler(config) if add_pooling_layer else None
        self.post_init()

    def get_input_embeddings(self) -> nn.Module:
        """The word embeddings."""
        return self.embeddings.word_embeddings

    def set_input_embeddings(self, value: nn.Embedding) -> None:
        """Replace the word embeddings."""
        self.embeddings.word_embeddings = value

    @can_return_tuple
    def forward(
        self,
        input_ids: torch.Tensor | None = None,
        attention_mask: torch.Tensor | None = None,
        token_type_ids: torch.Tensor | None = None,
        position_ids: torch.Tensor | None = None,
        inputs_embeds: torch.Tensor | None = None,
        **kwargs: Unpack[TransformersKwargs],
    ) -> BaseModelOutputWithPooling | tuple[torch.Tensor, ...]:
        """Encode a batch.

        Rows may hold several sequences one after the other, without padding (and without attention mask). They are
        found by `cu_seq_lens_q`, or else by positions that start again at 0.

        Args:
            input_ids: Token ids (B, L), in [0, V).
            attention_mask: 1 at tokens, 0 at padding (B, L); or a prepared mask (B, 1, L, L): bool, True where a token
                is seen, or what is added to the scores. None: no padding.
            token_type_ids: Segments (B, L), in [0, type_vocab_size). None: all 0.
            position_ids: Positions (B, L) or (1, L), in [0, max_position_embeddings). None: 0, 1, 2, ...
            inputs_embeds: Word embeddings (B, L, D) in place of `input_ids`.
            **kwargs: `output_hidden_states`, `output_attentions` (eager attention only), `return_dict`;
                `cu_seq_lens_q`, where each sequence starts in the flattened batch, and B L at the end (N + 1,);
                `max_length_q`, the tokens of the longest of these; `unpad_inputs`, False for a caller who uses the
                states of padding; and other arguments of the attention function.

        Returns:
            `last_hidden_state` (B, L, D), `pooler_output` (B, D), for several sequences a row (N, D), or None, and, if
            asked for, `hidden_states` (one more than there are layers, each (B, L, D)) and `attentions` (one a layer,
            each (B, H, L, L)). Padding that did not run through the layers has states 0.

        Raises:
            ValueError: If an argument's shape, type or values do not fit the configuration. Values on an accelerator
                are not checked in training, where looking would make the device wait; nothing is checked in a graph
                that is being compiled or exported.
        """
        borders = kwargs.get("cu_seq_lens_q")
        if not (torch.compiler.is_compiling() or torch.jit.is_tracing()):
            longest = kwargs.get("max_length_q")
            self._check_inputs(
                input_ids, attention_mask, token_type_ids, position_ids, inputs_embeds, borders, longest
            )
        words = input_ids if inputs_embeds is None else inputs_embeds
        assert words is not None
        shape = (words.shape[0], words.shape[1])
        if position_ids is not None:
            position_ids = position_ids.expand(shape)
        elif borders is not None:
            position_ids = restarting_positions(shape, borders)
        packing, sequences = self._find_sequences(words, attention_mask, position_ids, **kwargs)
        if packing is None:
            return self._encode(
                input_ids,
                token_type_ids,
                position_ids,
                inputs_embeds,
                attention_mask,
                **{**kwargs, **sequences, "return_dict": True},
            )
        if position_ids is None:
            position_ids = torch.arange(shape[1], device=words.device).expand(shape)
        inputs = (input_ids, token_type_ids, position_ids, inputs_embeds)
        outputs = self._encode(
            *(None if tensor is None else packing.pack(tensor) for tensor in inputs),
            pooled_tokens=packing.pooled_tokens,
            packing=packing,
            **{**kwargs, "return_dict": True},
        )
        outputs.last_hidden_state = packing.unpack(outputs.last_hidden_state)
        if outputs.hidden_states is not None:
            outputs.hidden_states = tuple(
                None if states is None else packing.unpack(states) for states in outputs.hidden_states
            )
        return outputs

    def _find_sequences(
        self,
        words: torch.Tensor,
        attention_mask: torch.Tensor | None,
        position_ids: torch.Tensor | None,
        unpad_inputs: bool = True,
        cu_seq_lens_q: torch.Tensor | None = None,
        max_length_q: int | None = None,
        **kwargs: Any,
    ) -> tuple[Packing | None, dict[str, Any]]:
        """How the batch runs: packed; or as it is, with arguments of `_encode` that tell its sequences apart.

        These are `numbers`, that of each token's sequence (B, L) where rows hold several; `pooled_tokens`, the place
        in the flattened batch of the token that stands for each sequence (N,), if it is not each row's first; and the
        borders of the sequences for flash attention, which reads no mask.
        """
        config = self.config
        shape = (words.shape[0], words.shape[1])
        lengths: torch.Tensor | None
        packs = unpad_inputs and config.unpad_inputs and config._attn_implementation == "sdpa"
        any_length = packs and self._takes_any_length(words)
        sequences: dict[str, Any] = {}
        if config.is_decoder:
            sequences["pooled_tokens"] = last_tokens(shape, attention_mask, words.device)
        if attention_mask is not None and cu_seq_lens_q is None:
            position_ids = None
        if is_tracing(words):  # shapes and branches must not depend on values
            if cu_seq_lens_q is None:
                if position_ids is not None:
                    sequences["numbers"] = number_sequences(position_ids)
                return None, sequences
            lengths = cu_seq_lens_q.long().diff()
            packs = any_length and max_length_q is not None
        else:
            lengths = sequence_lengths(shape, position_ids, cu_seq_lens_q)
        if lengths is None:
            if attention_mask is None or len(attention_mask.shape) != 2 or not packs:
                return None, sequences
            can_pack = any_length or words.device.type == "cpu"
            return pack_padded(attention_mask, any_length, config.is_decoder) if can_pack else None, sequences
        if packs:
            return pack_sequences(shape, lengths, any_length, max_length_q, config.is_decoder), sequences
        borders = F.pad(lengths.cumsum(0), (1, 0))
        numbers = torch.bucketize(torch.arange(shape[0] * shape[1], device=words.device), borders[1:], right=True)
        sequences = {"numbers": numbers.view(shape), "pooled_tokens": pooled_places(borders, config.is_decoder)}
        if is_flash_attention_requested(config):
            longest = max_length_q or (shape[1] if is_tracing(words) else int(lengths.max()))
            sequences.update(cu_seq_lens_q=borders.int(), cu_seq_lens_k=borders.int())
            sequences.update(max_length_q=longest, max_length_k=longest)
        return None, sequences

    def _takes_any_length(self, words: torch.Tensor) -> bool:
        """Whether attention runs in the kernel for sequences of any length."""
        config, device = self.config, words.device
        if not words.is_cuda:
            return False
        dtype = torch.get_autocast_dtype("cuda") if torch.is_autocast_enabled("cuda") else self.dtype
        dropout = config.attention_probs_dropout_prob if self.training else 0.0
        return any_length_kernel(device, dtype, config.hidden_size // config.num_attention_heads, dropout)

    @capture_outputs
    def _encode(
        self,
        input_ids: torch.Tensor | None,
        token_type_ids: torch.Tensor | None,
        position_ids: torch.Tensor | None,
        inputs_embeds: torch.Tensor | None,
        attention_mask: torch.Tensor | None = None,
        numbers: torch.Tensor | None = None,
        pooled_tokens: torch.Tensor | None = None,
        packing: Packing | None = None,
        **kwargs: Unpack[TransformersKwargs],
    ) -> BaseModelOutputWithPooling:
        """Run a batch, packed or not, through the network; see `_find_sequences`."""
        hidden_states: torch.Tensor = self.embeddings(input_ids, token_type_ids, position_ids, inputs_embeds)
        if packing is None:
            create_mask = create_causal_mask if self.config.is_decoder else create_bidirectional_mask
            attention_mask = create_mask(
                config=self.config,
                inputs_embeds=hidden_states,
                attention_mask=attention_mask,
                past_key_values=None,
                and_mask_function=None if numbers is None else packed_sequence_mask_function(numbers),
            )
        for layer in self.encoder["layer"].children():
            hidden_states = layer(hidden_states, attention_mask, packing=packing, position_ids=position_ids, **kwargs)
        pooled = None
        if self.pooler is not None:
            pooled_states = hidden_states
            if pooled_tokens is not None:
                pooled_states = hidden_states.flatten(0, 1).index_select(0, pooled_tokens)[:, None]
            pooled = self.pooler(pooled_states)
        return BaseModelOutputWithPooling(last_hidden_state=hidden_states, pooler_output=pooled)

    def _check_inputs(
        self,
        input_ids: torch.Tensor | None,
        attention_mask: torch.Tensor | None,
        token_type_ids: torch.Tensor | None,
        position_ids: torch.Tensor | None,
        inputs_embeds: torch.Tensor | None,
        borders: torch.Tensor | None,
        longest: int | None,
    ) -> None:
        config = self.config
        if input_ids is not None and inputs_embeds is None:
            if input_ids.dim() != 2:
                raise ValueError(f"input_ids has shape {_shape(input_ids)}; expected (batch, tokens).")
            batch_size, length = input_ids.shape
        elif inputs_embeds is not None and input_ids is None:
            if inputs_embeds.dim() != 3 or inputs_embeds.shape[2] != config.hidden_size:
                raise ValueError(
                    f"inputs_embeds has shape {_shape(inputs_embeds)}; expected (batch, tokens, {config.hidden_size})."
                )
            batch_size, length, _ = inputs_embeds.shape
        else:
            raise ValueError("Exactly one of input_ids and inputs_embeds must be given.")
        if batch_size == 0 or length == 0:
            raise ValueError(f"The batch is empty: {batch_size} sequences of {length} tokens.")
        if borders is None:
            longest = length
        elif borders.device.type == "cpu":
            check_borders((batch_size, length), borders)
            longest = int(borders.diff().max())
        if position_ids is None and longest is not None and longest > config.max_position_embeddings:
            raise ValueError(
                f"The sequence has {longest} tokens; this model reads at most {config.max_position_embeddings} "
                "(max_position_embeddings). Truncate it or split it into windows."
            )
        # An adapter or a user's module in their place need not say how many there are.
        num_words = getattr(self.embeddings.word_embeddings, "num_embeddings", config.vocab_size)
        for name, ids, limit, rows in (
            ("input_ids", input_ids, num_words, (batch_size,)),
            ("token_type_ids", token_type_ids, config.type_vocab_size, (batch_size, 1)),
            ("position_ids", position_ids, config.max_position_embeddings, (batch_size, 1)),
        ):
            if ids is None:
                continue
            if ids.dim() != 2 or ids.shape[0] not in rows or ids.shape[1] != length:
                raise ValueError(
                    f"{name} has shape {_shape(ids)}; expected ({batch_size}, {length}) as the other inputs."
                )
            _check_ids(name, ids, limit, self.training)
        if attention_mask is None:
            return
        # A prepared mask has four dimensions; it may be flex attention's BlockMask, which has a shape and no `dim()`.
        if len(attention_mask.shape) == 4:
            if isinstance(attention_mask, torch.Tensor) and not (
                attention_mask.is_floating_point() or attention_mask.dtype == torch.bool
            ):
                raise ValueError(
                    f"attention_mask has type {attention_mask.dtype}; a prepared mask is expected to be bool (True "
                    "where a token is seen) or floating point (added to the scores)."
                )
        elif attention_mask.shape != (batch_size, length):
            raise ValueError(
                f"attention_mask has shape {_shape(attention_mask)}; expected ({batch_size}, {length}), or four "
                "dimensions for a prepared mask."
            )


class _MyBertWithPredictions(MyBertPreTrainedModel):
    """What the two models with a vocabulary layer share."""

    _tied_weights_keys = {
        "cls.predictions.decoder.weight": "bert.embeddings.word_embeddings.weight",
        "cls.predictions.decoder.bias": "cls.predictions.bias",
    }

    def get_output_embeddings(self) -> nn.Module:
        """The vocabulary layer."""
        return self.cls["predictions"].decoder

    def set_output_embeddings(self, new_embeddings: nn.Module) -> None:
        """Replace the vocabulary layer; the bias of the checkpoint's name goes with it."""
        self.cls["predictions"].decoder = new_embeddings
        self.cls["predictions"].bias = new_embeddings.bias

    def _predict(
        self,
        hidden_states: torch.Tensor,
        labels: torch.Tensor | None,
        num_items_in_batch: torch.Tensor | int | None,
    ) -> tuple[torch.Tensor, torch.Tensor | None]:
        """Logits and masked-LM loss of hidden states (B, L, D).

        The vocabulary product is most of the cost of a small model. Where only the loss is wanted it runs on the
        labelled positions alone (15 % of the tokens), and the logits are (labelled positions, V) instead of (B, L, V).
        """
        if labels is None:
            return self.cls["predictions"](hidden_states), None
        _check_labels("labels", labels, hidden_states.shape[:2], self.config.vocab_size, self.training)
        # A graph that is being compiled keeps its shapes: how many positions are labelled is known only when it runs.
        if (self.training or self.config.sparse_prediction) and not torch.compiler.is_compiling():
            is_labelled = labels != IGNORED_LABEL
            hidden_states, labels = hidden_states[is_labelled], labels[is_labelled]
        logits = self.cls["predictions"](hidden_states)
        return logits, cross_entropy(logits, labels, num_items_in_batch)


@dataclass
class MyBertForPreTrainingOutput(ModelOutput):
    """Output of `MyBertForPreTraining`.

    Attributes:
        loss: Sum of the losses whose labels were given.
        prediction_logits: (B, L, V), or (labelled positions, V) where only those were computed.
        seq_relationship_logits: (B, 2): B follows A, B is random.
        hidden_states: One more than there are layers, each (B, L, D), if asked for.
        attentions: One a layer, each (B, H, L, L), if asked for.
    """

    loss: torch.Tensor | None = None
    prediction_logits: torch.Tensor | None = None
    seq_relationship_logits: torch.Tensor | None = None
    hidden_states: tuple[torch.Tensor, ...] | None = None
    attentions: tuple[torch.Tensor, ...] | None = None


class MyBertForPreTraining(_MyBertWithPredictions):
    """Masked LM and next sentence prediction, as in pretraining (paper, section 3.1)."""

    def __init__(self, config: MyBertConfig) -> None:
        super().__init__(config)
        self.bert = MyBertModel(config)
        self.cls = nn.ModuleDict(
            {"predictions": MyBertPredictionHead(config), "seq_relationship": nn.Linear(config.hidden_size, 2)}
        )
        self.post_init()

    @can_return_tuple
    def forward(
        self,
        input_ids: torch.Tensor | None = None,
        attention_mask: torch.Tensor | None = None,
        token_type_ids: torch.Tensor | None = None,
        position_ids: torch.Tensor | None = None,
        inputs_embeds: torch.Tensor | None = None,
        labels: torch.Tensor | None = None,
        next_sentence_label: torch.Tensor | None = None,
        num_items_in_batch: torch.Tensor | int | None = None,
        num_sequences_in_batch: torch.Tensor | int | None = None,
        **kwargs: Unpack[TransformersKwargs],
    ) -> MyBertForPreTrainingOutput | tuple[torch.Tensor, ...]:
        """Predict masked tokens and whether segment B follows segment A; the inputs are those of `MyBertModel`.

        Args:
            labels: Original tokens (B, L) at masked positions, -100 elsewhere.
            next_sentence_label: (B,): 0 if B follows A, 1 if B is random, -100 to leave the sequence out.
            num_items_in_batch: Masked tokens of all micro-batches and processes of an optimizer step; the masked-LM
                loss is then their share of that step's mean. None: the mean over this batch.
            num_sequences_in_batch: The same for the sequences of next sentence prediction. transformers' `Trainer`
                does not know it: with `num_items_in_batch` alone a micro-batch weighs as much in this mean as in the
                other. `mybert.runs.PretrainingTrainer` passes both.

        Returns:
            `MyBertForPreTrainingOutput`; its loss is the sum of the losses whose labels were given.
        """
        outputs = self.bert(
            input_ids,
            attention_mask=attention_mask,
            token_type_ids=token_type_ids,
            position_ids=position_ids,
            inputs_embeds=inputs_embeds,
            **{"unpad_inputs": _padding_is_ignored(labels, attention_mask), **kwargs, "return_dict": True},
        )
        prediction_logits, loss = self._predict(outputs.last_hidden_state, labels, num_items_in_batch)
        seq_relationship_logits = self.cls["seq_relationship"](outputs.pooler_output)
        if next_sentence_label is not None:
            next_sentence_label = next_sentence_label.view(-1)
            rows = seq_relationship_logits.shape[:1]
            _check_labels("next_sentence_label", next_sentence_label, rows, 2, self.training)
            next_sentence_loss = cross_entropy(seq_relationship_logits, next_sentence_label, num_sequences_in_batch)
            if num_items_in_batch is not None and num_sequences_in_batch is None and labels is not None:
                next_sentence_loss = next_sentence_loss * (labels != IGNORED_LABEL).sum() / num_items_in_batch
            loss = next_sentence_loss if loss is None else loss + next_sentence_loss
        return MyBertForPreTrainingOutput(
            loss=loss,
            prediction_logits=prediction_logits,
            seq_relationship_logits=seq_relationship_logits,
            hidden_states=outputs.hidden_states,
            attentions=outputs.attentions,
        )


class MyBertForMaskedLM(_MyBertWithPredictions):
    """Masked LM alone."""

    def __init__(self, config: MyBertConfig) -> None:
        super().__init__(config)
        self.bert = MyBertModel(config, add_pooling_layer=False)
        self.cls = nn.ModuleDict({"predictions": MyBertPredictionHead(config)})
        self.post_init()

    @can_return_tuple
    def forward(
        self,
        input_ids: torch.Tensor | None = None,
        attention_mask: torch.Tensor | None = None,
        token_type_ids: torch.Tensor | None = None,
        position_ids: torch.Tensor | None = None,
        inputs_embeds: torch.Tensor | None = None,
        labels: torch.Tensor | None = None,
        num_items_in_batch: torch.Tensor | int | None = None,
        **kwargs: Unpack[TransformersKwargs],
    ) -> MaskedLMOutput | tuple[torch.Tensor, ...]:
        """Predict tokens; the inputs are those of `MyBertModel`.

        Args:
            labels: Original tokens (B, L) at masked positions, -100 elsewhere.
            num_items_in_batch: Masked tokens of a whole optimizer step; None: the mean over this batch.

        Returns:
            `loss`, and `logits`: (B, L, V), or (labelled positions, V) in training with labels.
        """
        outputs = self.bert(
            input_ids,
            attention_mask=attention_mask,
            token_type_ids=token_type_ids,
            position_ids=position_ids,
            inputs_embeds=inputs_embeds,
            **{"unpad_inputs": _padding_is_ignored(labels, attention_mask), **kwargs, "return_dict": True},
        )
        logits, loss = self._predict(outputs.last_hidden_state, labels, num_items_in_batch)
        return MaskedLMOutput(
            loss=loss, logits=logits, hidden_states=outputs.hidden_states, attentions=outputs.attentions
        )


class MyBertForNextSentencePrediction(MyBertPreTrainedModel):
    """Next sentence prediction alone."""

    def __init__(self, config: MyBertConfig) -> None:
        super().__init__(config)
        self.bert = MyBertModel(config)
        self.cls = nn.ModuleDict({"seq_relationship": nn.Linear(config.hidden_size, 2)})
        self.post_init()

    @can_return_tuple
    def forward(
        self,
        input_ids: torch.Tensor | None = None,
        attention_mask: torch.Tensor | None = None,
        token_type_ids: torch.Tensor | None = None,
        position_ids: torch.Tensor | None = None,
        inputs_embeds: torch.Tensor | None = None,
        labels: torch.Tensor | None = None,
        num_items_in_batch: torch.Tensor | int | None = None,
        **kwargs: Unpack[TransformersKwargs],
    ) -> NextSentencePredictorOutput | tuple[torch.Tensor, ...]:
        """Predict whether segment B follows segment A; the inputs are those of `MyBertModel`.

        Args:
            labels: (B,): 0 if B follows A, 1 if B is random.
            num_items_in_batch: Sequences of a whole optimizer step; None: the mean over this batch.

        Returns:
            `loss`, and `logits` (B, 2).
        """
        outputs = self.bert(
            input_ids,
            attention_mask=attention_mask,
            token_type_ids=token_type_ids,
            position_ids=position_ids,
            inputs_embeds=inputs_embeds,
            **{**kwargs, "return_dict": True},
        )
        logits = self.cls["seq_relationship"](outputs.pooler_output)
        loss = None
        if labels is not None:
            labels = labels.view(-1)
            _check_labels("labels", labels, logits.shape[:1], 2, self.training)
            loss = cross_entropy(logits, labels, num_items_in_batch)
        return NextSentencePredictorOutput(
            loss=loss, logits=logits, hidden_states=outputs.hidden_states, attentions=outputs.attentions
        )


class MyBertForSequenceClassification(MyBertPreTrainedModel):
    """A linear layer on the pooled output: classes, several labels at once, or regression (paper, section 4.1)."""

    def __init__(self, config: MyBertConfig) -> None:
        super().__init__(config)
        self.num_labels = config.num_labels
        self.bert = MyBertModel(config)
        self.dropout = nn.Dropout(_classifier_dropout(config))
        self.classifier = nn.Linear(config.hidden_size, config.num_labels)
        self.post_init()

    @can_return_tuple
    def forward(
        self,
        input_ids: torch.Tensor | None = None,
        attention_mask: torch.Tensor | None = None,
        token_type_ids: torch.Tensor | None = None,
        position_ids: torch.Tensor | None = None,
        inputs_embeds: torch.Tensor | None = None,
        labels: torch.Tensor | None = None,
        num_items_in_batch: torch.Tensor | int | None = None,
        **kwargs: Unpack[TransformersKwargs],
    ) -> SequenceClassifierOutput | tuple[torch.Tensor, ...]:
        """Classify sequences or pairs; the inputs are those of `MyBertModel`.

        Args:
            labels: Class ids (B,); 0.0 or 1.0 for each label (B, num_labels); or values (B,) or (B, num_labels) for
                regression. Which it is says `config.problem_type`; where that is None it is read off the first labels
                (one label: regression; integers: classes; otherwise several labels) and kept in the configuration.
            num_items_in_batch: Number of label values of a whole optimizer step; None: the mean over this batch.

        Returns:
            `loss`, and `logits` (B, num_labels).
        """
        outputs = self.bert(
            input_ids,
            attention_mask=attention_mask,
            token_type_ids=token_type_ids,
            position_ids=position_ids,
            inputs_embeds=inputs_embeds,
            **{**kwargs, "return_dict": True},
        )
        logits = self.classifier(self.dropout(outputs.pooler_output))
        loss = None if labels is None else self._loss(logits, labels, num_items_in_batch)
        return SequenceClassifierOutput(
            loss=loss, logits=logits, hidden_states=outputs.hidden_states, attentions=outputs.attentions
        )

    def _loss(
        self, logits: torch.Tensor, labels: torch.Tensor, num_items_in_batch: torch.Tensor | int | None
    ) -> torch.Tensor:
        if self.config.problem_type is None:
            if self.num_labels == 1:
                self.config.problem_type = "regression"
            elif labels.dtype in (torch.long, torch.int):
                self.config.problem_type = "single_label_classification"
            else:
                self.config.problem_type = "multi_label_classification"
        if self.config.problem_type == "single_label_classification":
            labels = labels.view(-1)
            _check_labels("labels", labels, logits.shape[:1], self.num_labels, self.training)
            return cross_entropy(logits, labels, num_items_in_batch)
        if labels.numel() != logits.numel():
            raise ValueError(
                f"labels has shape {_shape(labels)}; {self.config.problem_type} needs a value for each of the "
                f"{_shape(logits)} logits."
            )
        labels = labels.view(logits.shape).to(logits.dtype)
        if self.config.problem_type == "regression":
            total = F.mse_loss(logits, labels, reduction="sum")
        else:
            total = F.binary_cross_entropy_with_logits(logits, labels, reduction="sum")
        return total / (labels.numel() if num_items_in_batch is None else num_items_in_batch)


class MyBertForMultipleChoice(MyBertPreTrainedModel):
    """A score for each choice from its pooled output, compared by softmax (paper, section 4.4)."""

    def __init__(self, config: MyBertConfig) -> None:
        super().__init__(config)
        self.bert = MyBertModel(config)
        self.dropout = nn.Dropout(_classifier_dropout(config))
        self.classifier = nn.Linear(config.hidden_size, 1)
        self.post_init()

    @can_return_tuple
    def forward(
        self,
        input_ids: torch.Tensor | None = None,
        attention_mask: torch.Tensor | None = None,
        token_type_ids: torch.Tensor | None = None,
        position_ids: torch.Tensor | None = None,
        inputs_embeds: torch.Tensor | None = None,
        labels: torch.Tensor | None = None,
        num_items_in_batch: torch.Tensor | int | None = None,
        **kwargs: Unpack[TransformersKwargs],
    ) -> MultipleChoiceModelOutput | tuple[torch.Tensor, ...]:
        """Choose; the inputs are those of `MyBertModel` with a dimension for the C choices after the first.

        Args:
            input_ids, attention_mask, token_type_ids, position_ids: (B, C, L).
            inputs_embeds: (B, C, L, D) in place of `input_ids`.
            labels: Index of the right choice (B,), in [0, C). For several sequences a row, B and C are those of the
                questions: pass them as (1, 1, L); without labels all their scores come in one row.
            num_items_in_batch: Questions of a whole optimizer step; None: the mean over this batch.

        Returns:
            `loss`, and `logits` (B, C).
        """
        if inputs_embeds is None:
            name, first, expected = "input_ids", input_ids, "(batch, choices, tokens)"
        else:
            name, first = "inputs_embeds", inputs_embeds
            expected = f"(batch, choices, tokens, {self.config.hidden_size})"
        if first is not None and first.dim() != len(expected.split(",")):
            raise ValueError(f"{name} has shape {_shape(first)}; expected {expected}.")

        def flatten(tensor: torch.Tensor | None) -> torch.Tensor | None:
            return None if tensor is None else tensor.flatten(0, 1)

        outputs = self.bert(
            flatten(input_ids),
            attention_mask=flatten(attention_mask),
            token_type_ids=flatten(token_type_ids),
            position_ids=flatten(position_ids),
            inputs_embeds=flatten(inputs_embeds),
            **{**kwargs, "return_dict": True},
        )
        assert first is not None  # the trunk has refused a call without input
        scores = self.classifier(self.dropout(outputs.pooler_output))
        questions, choices = first.shape[:2]
        if not is_tracing(scores) and len(scores) != questions * choices:  # several sequences a row
            questions = 1 if labels is None else labels.shape[0]
        logits = scores.view(questions, -1)
        loss = None
        if labels is not None:
            _check_labels("labels", labels, logits.shape[:1], logits.shape[1], self.training)
            loss = cross_entropy(logits, labels, num_items_in_batch)
        return MultipleChoiceModelOutput(
            loss=loss, logits=logits, hidden_states=outputs.hidden_states, attentions=outputs.attentions
        )


class MyBertForTokenClassification(MyBertPreTrainedModel):
    """A linear layer on each token (paper, section 5.3)."""

    def __init__(self, config: MyBertConfig) -> None:
        super().__init__(config)
        self.num_labels = config.num_labels
        self.bert = MyBertModel(config, add_pooling_layer=False)
        self.dropout = nn.Dropout(_classifier_dropout(config))
        self.classifier = nn.Linear(config.hidden_size, config.num_labels)
        self.post_init()

    @can_return_tuple
    def forward(
        self,
        input_ids: torch.Tensor | None = None,
        attention_mask: torch.Tensor | None = None,
        token_type_ids: torch.Tensor | None = None,
        position_ids: torch.Tensor | None = None,
        inputs_embeds: torch.Tensor | None = None,
        labels: torch.Tensor | None = None,
        num_items_in_batch: torch.Tensor | int | None = None,
        **kwargs: Unpack[TransformersKwargs],
    ) -> TokenClassifierOutput | tuple[torch.Tensor, ...]:
        """Label tokens; the inputs are those of `MyBertModel`.

        Args:
            labels: Class ids (B, L), -100 where none counts.
            num_items_in_batch: Labelled tokens of a whole optimizer step; None: the mean over this batch.

        Returns:
            `loss`, and `logits` (B, L, num_labels).
        """
        outputs = self.bert(
            input_ids,
            attention_mask=attention_mask,
            token_type_ids=token_type_ids,
            position_ids=position_ids,
            inputs_embeds=inputs_embeds,
            **{"unpad_inputs": _padding_is_ignored(labels, attention_mask), **kwargs, "return_dict": True},
        )
        logits = self.classifier(self.dropout(outputs.last_hidden_state))
        loss = None
        if labels is not None:
            _check_labels("labels", labels, logits.shape[:2], self.num_labels, self.training)
            loss = cross_entropy(logits, labels, num_items_in_batch)
        return TokenClassifierOutput(
            loss=loss, logits=logits, hidden_states=outputs.hidden_states, attentions=outputs.attentions
        )


class MyBertForQuestionAnswering(MyBertPreTrainedModel):
    """A start and an end score for each token (paper, section 4.2)."""

    def __init__(self, config: MyBertConfig) -> None:
        super().__init__(config)
        if config.num_labels != 2:
            raise ValueError(
                f"num_labels is {config.num_labels}; question answering has 2 (start and end): pass num_labels=2."
            )
        self.bert = MyBertModel(config, add_pooling_layer=False)
        self.qa_outputs = nn.Linear(config.hidden_size, 2)
        self.post_init()

    @can_return_tuple
    def forward(
        self,
        input_ids: torch.Tensor | None = None,
        attention_mask: torch.Tensor | None = None,
        token_type_ids: torch.Tensor | None = None,
        position_ids: torch.Tensor | None = None,
        inputs_embeds: torch.Tensor | None = None,
        start_positions: torch.Tensor | None = None,
        end_positions: torch.Tensor | None = None,
        num_items_in_batch: torch.Tensor | int | None = None,
        **kwargs: Unpack[TransformersKwargs],
    ) -> QuestionAnsweringModelOutput | tuple[torch.Tensor, ...]:
        """Score the answer's first and last token; the inputs are those of `MyBertModel`.

        Args:
            start_positions, end_positions: Token indices in the sequence (B,), or (N,) for several sequences a row. As
                in transformers' BERT, one past the end of the row is left out of the loss and a negative one counts
                as 0. One past the end of its own sequence, or on padding that is no possible answer, is left out, too.
            num_items_in_batch: Answers of a whole optimizer step; None: the mean over this batch.
            **kwargs: Those of `MyBertModel`. As in transformers' BERT the loss takes padding for possible answers, so
                that a batch with positions runs with its padding; with `unpad_inputs=True` padding is neither.

        Returns:
            `loss` (mean of the start and the end loss), `start_logits` and `end_logits` (B, L).
        """
        padding = None  # where it is, if it is no place for an answer
        if kwargs.get("unpad_inputs") and attention_mask is not None and len(attention_mask.shape) == 2:
            padding = attention_mask == 0
        outputs = self.bert(
            input_ids,
            attention_mask=attention_mask,
            token_type_ids=token_type_ids,
            position_ids=position_ids,
            inputs_embeds=inputs_embeds,
            **{"unpad_inputs": start_positions is None or attention_mask is None, **kwargs, "return_dict": True},
        )
        start_logits, end_logits = (
            scores.squeeze(-1).contiguous() for scores in self.qa_outputs(outputs.last_hidden_state).split(1, dim=-1)
        )
        loss = None
        if start_positions is not None and end_positions is not None:
            lengths = None
            if not is_tracing(start_logits):
                positions_of_tokens = position_ids if attention_mask is None else None
                lengths = sequence_lengths(start_logits.shape, positions_of_tokens, kwargs.get("cu_seq_lens_q"))
            losses = []
            for name, logits, positions in (
                ("start_positions", start_logits, start_positions),
                ("end_positions", end_logits, end_positions),
            ):
                if padding is not None:
                    logits = logits.masked_fill(padding, -torch.inf)
                if lengths is not None:  # each sequence has its own scores
                    parts = logits.flatten().split(lengths.tolist())
                    logits = nn.utils.rnn.pad_sequence(parts, batch_first=True, padding_value=-torch.inf)
                length = logits.shape[1]
                positions = positions.view(-1)
                if positions.shape != logits.shape[:1]:
                    raise ValueError(f"{name} has shape {_shape(positions)}; expected ({logits.shape[0]},).")
                _check_type(name, positions)
                positions = positions.long().clamp(min=0)
                scores = logits.gather(1, positions.clamp(max=length - 1)[:, None]).squeeze(1)
                positions = positions.masked_fill((positions >= length) | (scores == -torch.inf), IGNORED_LABEL)
                losses.append(cross_entropy(logits, positions, num_items_in_batch))
            loss = (losses[0] + losses[1]) / 2
        return QuestionAnsweringModelOutput(
            loss=loss,
            start_logits=start_logits,
            end_logits=end_logits,
            hidden_states=outputs.hidden_states,
            attentions=outputs.attentions,
        )


def cross_entropy(
    logits: torch.Tensor, labels: torch.Tensor, num_items_in_batch: torch.Tensor | int | None = None
) -> torch.Tensor:
    """Cross entropy over the labels that are not -100, in fp32.

    Args:
        logits: (..., C).
        labels: Class ids (...), -100 where none counts.
        num_items_in_batch: What the sum is divided by: the labels of all micro-batches of an optimizer step. None: the
            labels of this batch. (With a mean over each micro-batch, accumulated gradients would not be those of one
            large batch.)

    Returns:
        A scalar; 0 if no label counts.
    """
    total = F.cross_entropy(
        logits.flatten(0, -2).float(), labels.flatten().long(), ignore_index=IGNORED_LABEL, reduction="sum"
    )
    if num_items_in_batch is None:
        num_items_in_batch = (labels != IGNORED_LABEL).sum().clamp(min=1)
    return total / num_items_in_batch


def _padding_is_ignored(labels: torch.Tensor | None, attention_mask: torch.Tensor | None) -> bool:
    """Whether no label (B, L) stands at padding: only then may padding be left out of the computation."""
    if labels is None or attention_mask is None or attention_mask.shape != labels.shape or is_tracing(labels):
        return True
    return not ((labels != IGNORED_LABEL) & (attention_mask == 0)).any()


def _classifier_dropout(config: MyBertConfig) -> float:
    return config.hidden_dropout_prob if config.classifier_dropout is None else config.classifier_dropout


def _shape(tensor: torch.Tensor) -> str:
    return str(tuple(tensor.shape))


def _check_type(name: str, ids: torch.Tensor) -> None:
    if ids.dtype not in (torch.int64, torch.int32):
        raise ValueError(f"{name} has type {ids.dtype}; expected integers of 64 or 32 bits.")


def _check_ids(name: str, ids: torch.Tensor, limit: int, training: bool) -> None:
    """Check an id tensor's type, and its values where looking at them does not make a training device wait."""
    _check_type(name, ids)
    if ids.device.type != "cpu" and (training or (ids.is_cuda and torch.cuda.is_current_stream_capturing())):
        return
    try:
        smallest, largest = (int(value) for value in torch.aminmax(ids))
    except RuntimeError:  # there are no values to look at: meta and fake tensors, torch.func.vmap
        return
    if smallest < 0 or largest >= limit:
        wrong = smallest if smallest < 0 else largest
        raise ValueError(f"{name} holds {wrong}; expected values from 0 to {limit - 1}.")


def _check_labels(name: str, labels: torch.Tensor, shape: torch.Size, num_classes: int, training: bool) -> None:
    if torch.compiler.is_compiling() or torch.jit.is_tracing():
        return
    if labels.shape != shape:
        raise ValueError(f"{name} has shape {_shape(labels)}; expected {tuple(shape)}.")
    _check_ids(name, labels.masked_fill(labels == IGNORED_LABEL, 0), num_classes, training)


__all__ = [
    "MyBertForMaskedLM",
    "MyBertForMultipleChoice",
    "MyBertForNextSentencePrediction",
    "MyBertForPreTraining",
    "MyBertForPreTrainingOutput",
    "MyBertForQuestionAnswering",
    "MyBertForSequenceClassification",
    "MyBertForTokenClassification",
    "MyBertModel",
    "MyBertPreTrainedModel",
]
