"""The MyBERT trunk (Devlin et al., 2018).

Parameter names are those of transformers' BERT, so checkpoints load unchanged in both. A head (`heads_mybert.py`,
`pretraining_heads_mybert.py`) calls the trunk, which calls embeddings, encoder and pooler (`layers_mybert.py`).

Padding is not computed: `MyBertModel.forward` packs the tokens of a padded batch once, before the embeddings, and
unpacks the hidden states once, after the last layer (`batch_mybert.py`), unless a user has hooked, replaced or
patched a module, whose code may depend on the rows of the batch (`hooks_mybert.py`).

Shapes: B sequences in a batch, L tokens in a sequence (padding included), D = hidden_size, H heads, V = vocab_size. In
the layers of a packed batch, B is 1 and L is the total number of tokens. If rows hold several sequences one after the
other (as from transformers' `DataCollatorWithFlattening`), the pooled output has a row for each of the N sequences.
"""

import inspect
from typing import Any

import torch
import torch.nn.functional as F
from torch import nn
from transformers.masking_utils import (
    ALL_MASK_ATTENTION_FUNCTIONS,
    create_bidirectional_mask,
    create_causal_mask,
    flash_attention_mask,
    packed_sequence_mask_function,
)
from transformers.modeling_outputs import BaseModelOutputWithPooling
from transformers.processing_utils import Unpack
from transformers.utils import TransformersKwargs
from transformers.utils.generic import can_return_tuple
from transformers.utils.import_utils import is_tracing
from transformers.utils.output_capturing import capture_outputs

from .base_mybert import MyBertPreTrainedModel
from .batch_mybert import (
    Packing,
    bidirectional_mask,
    flash_limits,
    has_padding,
    last_tokens,
    number_sequences,
    pack_full,
    pack_padded,
    pack_sequences,
    pooled_places,
    restarting_positions,
    sequence_lengths,
    supports_varlen,
    unmask_empty_rows,
)
from .checks_mybert import check_attention_mask, check_cu_seqlens, check_ids, check_indices, check_length, check_words
from .configuration_mybert import MyBertConfig
from .hooks_mybert import has_hook_from_outside, is_changed, is_known_class, runs_known_forward
from .layers_mybert import MyBertEmbeddings, MyBertEncoder, MyBertPooler
from .linear_mybert import filled_up

# Raised by a compiled model, whose branches must not depend on tensor values.
_NOT_KEPT_APART = (
    "position_ids restart at 0 within a row, but a compiled model with flash attention cannot use them to find where "
    "sequences end; pass cu_seq_lens_q and max_length_q."
)


class MyBertModel(MyBertPreTrainedModel):
    """The trunk: embeddings, layers and pooler.

    Args:
        config: The configuration.
        add_pooling_layer: Whether there is a pooler; token-level heads have none.
    """

    def __init__(self, config: MyBertConfig, add_pooling_layer: bool = True) -> None:
        if not hasattr(config, "check"):  # not isinstance: the Hub's copy of the class is a different class
            raise ValueError(
                f"config is a {type(config).__name__}; expected a MyBertConfig. "
                "MyBertConfig.from_dict(config.to_dict()) makes one of a BertConfig."
            )
        config.check()
        super().__init__(config)
        self.gradient_checkpointing = False
        self.keeps_rows = False  # whether code around this module expects hidden states of padding, too
        self.embeddings = MyBertEmbeddings(config)
        self.encoder = MyBertEncoder(config)
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
        token_indices: torch.Tensor | None = None,
        output_indices: torch.Tensor | None = None,
        unpad_inputs: bool = True,
        **kwargs: Unpack[TransformersKwargs],
    ) -> BaseModelOutputWithPooling | tuple[torch.Tensor, ...]:
        """Encode a batch.

        Rows may hold several sequences one after the other, without padding and without an attention mask. Their
        boundaries are given by `cu_seq_lens_q`, or else by positions that start again at 0.

        Args:
            input_ids: Token ids (B, L), in [0, V).
            attention_mask: 1 at tokens, 0 at padding (B, L); or a prepared mask (B, 1, L, L): bool, True where a token
                may be attended to, or floating point, added to the scores. None: no padding.
            token_type_ids: Segments (B, L) or (1, L), in [0, type_vocab_size). None: all 0.
            position_ids: Positions (B, L) or (1, L), in [0, max_position_embeddings). None: 0, 1, 2, ...
            inputs_embeds: Word embeddings (B, L, D) in place of `input_ids`.
            token_indices: Indices into the flattened batch where `attention_mask` (B, L) is 1 (S,), for a batch with
                all padding at the end of rows and no labels at it. Passing them avoids a synchronization with an
                accelerator.
            output_indices: Indices into the flattened batch of the tokens whose last hidden states the caller reads
                (P,), besides those of the pooled output; (0,) for that alone. None: all. See "Returns".
            unpad_inputs: False if the hidden states of padding are needed. Padding is also kept if somebody has put
                hooks on submodules, or has replaced or patched some.
            **kwargs: `output_hidden_states`, `output_attentions` (eager attention only), `return_dict`;
                `cu_seq_lens_q`, the offset of each sequence in the flattened batch, and B L at the end (N + 1,);
                `max_length_q`, the length of the max_seqlen of these sequences; and other arguments of the attention
                function.

        Returns:
            `last_hidden_state` (B, L, D); `pooler_output` (B, D), or (N, D) if rows hold several sequences, or None
            without a pooler; and, if requested, `hidden_states` (embeddings and each layer, each (B, L, D)) and
            `attentions` (one for each layer, each (B, H, L, L)). Hidden states of removed padding are 0.

            With `output_indices`, the last layer computes what follows its attention for needed tokens only, and
            `last_hidden_state` is (P, D), undefined at removed padding. It remains (B, L, D) if all tokens are
            computed anyway: if hidden states are requested, submodules have hooks or have been replaced or patched, or
            dropout has to draw the random numbers of transformers' BERT.

        Raises:
            ValueError: If an argument's shape, dtype or values do not fit the configuration. Values on an accelerator
                are not checked in training, where reading them would synchronize with the device; nothing is checked
                in a graph that is being compiled or exported.
        """
        config, cu_seqlens, max_seqlen = self.config, kwargs.get("cu_seq_lens_q"), kwargs.get("max_length_q")
        if not (torch.compiler.is_compiling() or torch.jit.is_tracing()):
            inputs = (input_ids, attention_mask, token_type_ids, position_ids, inputs_embeds)
            self._check_inputs(*inputs, cu_seqlens, max_seqlen)
        words = input_ids if inputs_embeds is None else inputs_embeds
        assert words is not None
        shape = (words.shape[0], words.shape[1])
        if attention_mask is not None and len(attention_mask.shape) == 2:
            attention_mask = unmask_empty_rows(attention_mask)
        if token_type_ids is not None:
            token_type_ids = token_type_ids.expand(shape)
        if position_ids is not None:
            position_ids = position_ids.expand(shape)
        elif cu_seqlens is not None:
            position_ids = restarting_positions(shape, cu_seqlens)
        # With a mask, positions do not mark sequence boundaries.
        lengths = sequence_lengths(shape, None if attention_mask is not None else position_ids, cu_seqlens)
        if token_indices is not None:
            check_indices("token_indices", token_indices, shape[0] * shape[1], self.training)
            if attention_mask is None or len(attention_mask.shape) != 2:
                raise ValueError(
                    "token_indices is given without the attention_mask (batch, tokens) that it belongs to."
                )
            if token_indices.shape[0] == shape[0] * shape[1]:
                attention_mask = token_indices = None  # no padding
        if output_indices is not None:
            check_indices("output_indices", output_indices, shape[0] * shape[1], self.training)
        packing, is_changed_inside = None, self.keeps_rows or self._is_changed_inside()
        if config.unpad_inputs and unpad_inputs and not is_changed_inside:
            packing = self._pack(words, attention_mask, lengths, max_seqlen, token_indices)
        if output_indices is not None and (is_changed_inside or self._computes_all_tokens(packing, **kwargs)):
            output_indices = None
        if packing is None:
            sequences = self._boundary_arguments(words, attention_mask, position_ids, lengths, max_seqlen)
            if token_indices is not None and attention_mask is not None:  # transformers would read its values
                if config.is_decoder:
                    attention_mask = None  # no token attends to the padding after it
                elif config._attn_implementation in ("sdpa", "eager"):
                    attention_mask = bidirectional_mask(attention_mask)
            return self._encode(
                *(input_ids, token_type_ids, position_ids, inputs_embeds, attention_mask),
                output_indices=output_indices,
                **{**kwargs, **sequences, "return_dict": True},
            )
        if inputs_embeds is None and is_changed(self.embeddings.word_embeddings):
            # It gets rows; NEFTune's noise, for example, depends on the shape of the batch.
            input_ids, inputs_embeds = None, self.embeddings.word_embeddings(input_ids)
        if position_ids is None:
            position_ids = torch.arange(shape[1], device=words.device).expand(shape)
        limits = flash_limits(packing.cu_seqlens, packing.max_seqlen) if self._is_flash() else {}
        outputs = self._encode(
            *(
                None if tensor is None else packing.pack(tensor)
                for tensor in (input_ids, token_type_ids, position_ids, inputs_embeds)
            ),
            pooled_tokens=packing.pooled_tokens,
            output_indices=None if output_indices is None else packing.places(output_indices),
            **{**kwargs, **(limits or {"packing": packing}), "return_dict": True},
        )
        if output_indices is not None:
            return outputs
        outputs.last_hidden_state = packing.unpack(outputs.last_hidden_state)
        if outputs.hidden_states is not None:
            outputs.hidden_states = tuple(
                None if states is None else packing.unpack(states) for states in outputs.hidden_states
            )
        return outputs

    def _check_inputs(
        self,
        input_ids: torch.Tensor | None,
        attention_mask: torch.Tensor | None,
        token_type_ids: torch.Tensor | None,
        position_ids: torch.Tensor | None,
        inputs_embeds: torch.Tensor | None,
        cu_seqlens: torch.Tensor | None,
        max_seqlen: int | None,
    ) -> None:
        config = self.config
        shape = check_words(input_ids, inputs_embeds, config.hidden_size)
        if cu_seqlens is None:
            max_seqlen = shape[1]
        elif cu_seqlens.device.type == "cpu":
            check_cu_seqlens(shape, cu_seqlens)
            max_seqlen = int(cu_seqlens.diff().max())
        if position_ids is None and max_seqlen is not None:
            check_length(max_seqlen, config.max_position_embeddings)
        # An adapter or a user's module in their place may lack these attributes.
        words = getattr(self.embeddings, "word_embeddings", None)
        num_words = getattr(words, "num_embeddings", config.vocab_size)
        check_ids("input_ids", input_ids, shape, num_words, self.training)
        check_ids("token_type_ids", token_type_ids, shape, config.type_vocab_size, self.training)
        check_ids("position_ids", position_ids, shape, config.max_position_embeddings, self.training)
        check_attention_mask(attention_mask, shape)

    def _pack(
        self,
        words: torch.Tensor,
        attention_mask: torch.Tensor | None,
        lengths: torch.Tensor | None,
        max_seqlen: int | None,
        token_indices: torch.Tensor | None,
    ) -> Packing | None:
        """Remove the padding of a batch or separate its sequences; None if it runs as it is.

        `lengths` is the result of `sequence_lengths`; `max_seqlen` is the greatest of them, or more, if known.
        """
        config, shape = self.config, (words.shape[0], words.shape[1])
        is_flash = self._is_flash()
        if not (is_flash or config._attn_implementation == "sdpa"):
            return None
        varlen = is_flash or self._supports_varlen(words)
        if is_tracing(words) and not (varlen and lengths is not None and max_seqlen is not None):
            return None  # shapes and branches must not depend on tensor values
        if lengths is not None:
            if not (varlen or words.device.type == "cpu") and shape[1] <= config.max_position_embeddings:
                return None  # an accelerator runs one masked call faster than one call for each length
            return pack_sequences(shape, lengths, varlen, max_seqlen, config.is_decoder)
        is_prepared = attention_mask is not None and len(attention_mask.shape) != 2
        if is_prepared or not (varlen or words.device.type == "cpu"):
            return None
        packing = None
        if attention_mask is not None:
            packing = pack_padded(attention_mask, varlen, config.is_decoder, token_indices)
        # In training without padding, dropout draws the same random numbers as transformers' BERT.
        if packing is None and not varlen and not self.training and not has_padding(attention_mask):
            packing = pack_full(shape, config.is_decoder)
        return packing

    def _is_changed_inside(self) -> bool:
        """Whether code of others runs inside, which may depend on rows or read any token; not in word embeddings."""
        words = getattr(self.embeddings, "word_embeddings", None)  # they run before packing
        return is_changed(self.embeddings, self.encoder, self.pooler, leave_out=words) or (
            # PyTorch's modules treat all tokens alike, but a pooler chooses one.
            type(self.pooler).__module__.startswith("torch.nn.modules.")
        )

    def _computes_all_tokens(self, packing: Packing | None, output_hidden_states: Any = None, **kwargs: Any) -> bool:
        """Whether the last layer computes all tokens, although the caller does not need all."""
        is_requested = self.config.output_hidden_states if output_hidden_states is None else output_hidden_states
        if is_requested or not self.encoder.layer:
            return True
        if packing is not None or not self.training:  # packed, dropout draws other random numbers in any case
            return False
        last: Any = self.encoder.layer[-1]
        after_attention = (last.attention.output, last.intermediate, last.output)
        return any(
            isinstance(module, nn.Dropout) and module.p for part in after_attention for module in part.modules()
        )

    def _boundary_arguments(
        self,
        words: torch.Tensor,
        attention_mask: torch.Tensor | None,
        position_ids: torch.Tensor | None,
        lengths: torch.Tensor | None,
        max_seqlen: int | None,
    ) -> dict[str, Any]:
        """Arguments of `_encode` for the sequence boundaries of an unpacked batch.

        `numbers` is the sequence number of each token (B, L), if rows hold several sequences. `pooled_tokens` is the
        index in the flattened batch of the token that the pooler reads for each sequence (N,), if that is not the
        first of each row. Flash attention, which reads no mask, also gets the boundaries as `cu_seq_lens_*`.
        """
        shape, is_causal = (words.shape[0], words.shape[1]), self.config.is_decoder
        sequences: dict[str, Any] = {}
        if lengths is None:
            if is_causal:
                sequences["pooled_tokens"] = last_tokens(shape, attention_mask, words.device)
            if attention_mask is None and position_ids is not None:
                if self._is_flash():
                    # A graph cannot branch on whether rows hold several sequences; checked on the device.
                    torch._assert_async(~number_sequences(position_ids).any(), _NOT_KEPT_APART)
                elif is_tracing(words):
                    sequences["numbers"] = number_sequences(position_ids)
            return sequences
        cu_seqlens = F.pad(lengths.cumsum(0), (1, 0))
        numbers = torch.bucketize(torch.arange(shape[0] * shape[1], device=words.device), cu_seqlens[1:], right=True)
        sequences = {"numbers": numbers.view(shape), "pooled_tokens": pooled_places(cu_seqlens, is_causal)}
        if self._is_flash():
            max_seqlen = max_seqlen or (shape[1] if is_tracing(words) else int(lengths.max()))
            sequences.update(flash_limits(cu_seqlens.int(), max_seqlen))
        return sequences

    def _is_flash(self) -> bool:
        """Whether attention is flash attention, built in or from the Hub, which reads no mask."""
        masks = ALL_MASK_ATTENTION_FUNCTIONS._global_mapping  # transformers' own lookup, compiles too
        return masks.get(self.config._attn_implementation) is flash_attention_mask

    def _supports_varlen(self, words: torch.Tensor) -> bool:
        """Whether attention can run in the variable-length kernel."""
        if not words.is_cuda:
            return False
        dtype = torch.get_autocast_dtype("cuda") if torch.is_autocast_enabled("cuda") else self.dtype
        layers: Any = self.encoder.layer
        has_dropout = self.training and any(layer.attention.self.dropout.p for layer in layers)
        return supports_varlen(words.device, dtype, self.config.head_size, has_dropout)

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
        output_indices: torch.Tensor | None = None,
        **kwargs: Unpack[TransformersKwargs],
    ) -> BaseModelOutputWithPooling:
        """Run a batch, packed if there is a `packing`, through the network; see `_boundary_arguments`.

        The last layer computes all tokens, or those that are pooled and `output_indices`; `last_hidden_state` is
        (B, L, D) or (P, D).
        """
        hidden_states: torch.Tensor = self.embeddings(
            input_ids=input_ids, token_type_ids=token_type_ids, position_ids=position_ids, inputs_embeds=inputs_embeds
        )
        if "packing" not in kwargs:
            create_mask = create_causal_mask if self.config.is_decoder else create_bidirectional_mask
            attention_mask = create_mask(
                config=self.config,
                inputs_embeds=hidden_states,
                attention_mask=attention_mask,
                past_key_values=None,
                and_mask_function=None if numbers is None else packed_sequence_mask_function(numbers),
            )
        if output_indices is None:
            hidden_states = self.encoder(hidden_states, attention_mask=attention_mask, **kwargs).last_hidden_state
            pooled_states = hidden_states
            if self.pooler is not None and pooled_tokens is not None:
                pooled_states = hidden_states.flatten(0, 1).index_select(0, pooled_tokens)[:, None]
        else:
            if self.pooler is None:
                pooled_tokens = output_indices[:0]
            elif pooled_tokens is None:  # the first of each row
                batch_size, length = hidden_states.shape[:2]
                pooled_tokens = torch.arange(batch_size, device=output_indices.device) * length
            num_pooled, tokens = pooled_tokens.shape[0], torch.cat([pooled_tokens, output_indices])
            kwargs["output_tokens"] = filled_up(tokens, multiple=16)
            states = self.encoder(hidden_states, attention_mask=attention_mask, **kwargs).last_hidden_state[0]
            pooled_states, hidden_states = states[:num_pooled, None], states[num_pooled : tokens.shape[0]]
        pooled = None if self.pooler is None else self.pooler(pooled_states)
        return BaseModelOutputWithPooling(last_hidden_state=hidden_states, pooler_output=pooled)


_FORWARD = MyBertModel.forward


def encoder_arguments(
    encoder: Any,
    arguments: dict[str, Any],
    output_indices: torch.Tensor | None = None,
    unpad_inputs: bool | None = None,
) -> dict[str, Any]:
    """Keyword arguments of a head's call of its encoder: those of the head's caller, and ours where it takes them.

    What a user has put in place of a `MyBertModel`, or around it, gets the arguments of transformers' BERT. It may
    read any token, and padding as well.

    Args:
        encoder: The `bert` of the head.
        arguments: Those of the head's caller.
        output_indices, unpad_inputs: See `MyBertModel.forward`; None for its defaults.
    """
    arguments = {**arguments, "return_dict": True}
    is_ours = type(encoder).forward is _FORWARD and runs_known_forward(encoder)
    if is_ours and encoder.keeps_rows:
        encoder.keeps_rows = False
    if not (is_ours or _passes_arguments_on(encoder)):
        for module in encoder.modules():
            if isinstance(module, MyBertModel):
                module.keeps_rows = True
        return {name: value for name, value in arguments.items() if name not in ("token_indices", "unpad_inputs")}
    if unpad_inputs is not None:
        arguments["unpad_inputs"] = unpad_inputs
    if output_indices is not None and is_ours and not has_hook_from_outside(encoder):
        arguments["output_indices"] = output_indices
    return arguments


def _passes_arguments_on(encoder: nn.Module) -> bool:
    """Whether an encoder is a `MyBertModel` with another forward, or one that an adapter or FSDP has wrapped."""
    if not isinstance(encoder, MyBertModel):
        return is_known_class(type(encoder), type(encoder).forward) and runs_known_forward(encoder)
    parameters = inspect.signature(encoder.forward).parameters.values()
    return any(parameter.kind is parameter.VAR_KEYWORD for parameter in parameters)


def no_tokens(*inputs: torch.Tensor | None) -> torch.Tensor | None:
    """`output_indices` of a head that reads only the pooled output, on the device of the first input that is given."""
    given = next((tensor for tensor in inputs if tensor is not None), None)  # the encoder refuses a call without input
    return None if given is None else given.new_empty(0, dtype=torch.long)


__all__ = ["MyBertModel", "encoder_arguments", "no_tokens"]
