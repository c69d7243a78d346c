"""The encoder: embeddings, layers and pooler (Devlin et al., 2018).

Parameter names are those of transformers' BERT, so checkpoints load unchanged in both. A head (`heads_mybert.py`,
`pretraining_heads_mybert.py`) calls `MyBertModel`, which calls embeddings, layers and pooler (`layers_mybert.py`).

Padding is not computed: `MyBertModel.forward` packs the tokens of a padded batch once, before the embeddings, and
unpacks the hidden states once, after the last layer (`batch_mybert.py`), unless a user has hooked, replaced or patched
a module, whose code may depend on the rows of the batch (`hooks_mybert.py`).

Shapes: B sequences in a batch, L tokens in a sequence (padding included), D = hidden_size, H heads, V = vocab_size. In
the layers of a packed batch, B is 1 and L is the total number of tokens. If rows hold several sequences one after the
other (as from transformers' `DataCollatorWithFlattening`), the pooled output has a row for each of the N sequences.
"""

from contextvars import ContextVar
from typing import Any

import torch
from torch import nn
from transformers.modeling_outputs import BaseModelOutputWithPooling
from transformers.processing_utils import Unpack
from transformers.utils import TransformersKwargs
from transformers.utils.output_capturing import capture_outputs

from .attention_mybert import supports_varlen
from .batch_mybert import Batch
from .configuration_mybert import MyBertConfig
from .hooks_mybert import Scan, is_changed, runs_known_forward, scan
from .inputs_mybert import Inputs, check_indices, check_inputs
from .layers_mybert import MyBertEmbeddings, MyBertEncoder, MyBertPooler
from .linear_mybert import choose_product, filled_up
from .pretrained_mybert import MyBertPreTrainedModel

# Whether a user's module around the encoder is running, which may read the hidden states of padding, too.
padding_kept: ContextVar[bool] = ContextVar("padding_kept", default=False)


class MyBertModel(MyBertPreTrainedModel):
    """The encoder: embeddings, layers and pooler.

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

    @capture_outputs
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
                `max_length_q`, the length of the longest of these sequences; and other arguments of the attention
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
        given = (input_ids, attention_mask, token_type_ids, position_ids, inputs_embeds, token_indices)
        inputs = self._read(given, kwargs, output_indices)
        network = self._scan()
        may_pack = self.config.unpad_inputs and unpad_inputs and not network.is_changed
        has_varlen_kernel = may_pack and self._supports_varlen(inputs.words)
        batch = Batch.of(self.config, inputs, self.training, may_pack, has_varlen_kernel)
        all_states = kwargs.pop("output_hidden_states", None)
        all_states = self.config.output_hidden_states if all_states is None else all_states
        tokens, num_pooled = None, 0
        if not (output_indices is None or all_states or network.is_changed or self._computes_all_tokens(batch)):
            tokens, num_pooled = self._needed_tokens(output_indices, batch)

        hidden_states = self._embed(inputs, batch)
        options = {"attention_mask": None, **kwargs, **batch.attention_arguments(self.config, hidden_states)}
        if not network.is_changed:  # modules of users get no arguments that those of transformers' BERT do not get
            options["product"] = choose_product(hidden_states, self.training or torch.is_grad_enabled(), network)
        if all_states:
            options["output_hidden_states"] = all_states
        if tokens is not None:
            options["output_tokens"] = filled_up(tokens, 16)
        outputs = self.encoder(hidden_states, **options)
        states = outputs.last_hidden_state
        if tokens is None:
            states, to_pool = batch.unpack(states), self._states_to_pool(states, batch)
        else:
            states, to_pool = states[0, num_pooled : tokens.shape[0]], states[0, :num_pooled, None]
        pooled = None if self.pooler is None else self.pooler(to_pool)
        if all_states := getattr(outputs, "hidden_states", None):
            all_states = tuple(None if one is None else batch.unpack(one) for one in all_states)
        return BaseModelOutputWithPooling(states, pooled, all_states)

    def _read(self, given: tuple[Any, ...], others: dict[str, Any], output_indices: torch.Tensor | None) -> Inputs:
        """The inputs in one shape, checked unless a graph is being compiled or exported."""
        words = given[0] if given[4] is None else given[4]
        inputs = Inputs(*(words, *given, others.get("cu_seq_lens_q"), others.get("max_length_q")))
        if not (torch.compiler.is_compiling() or torch.jit.is_tracing()):
            # An adapter or a user's module in place of the embeddings may lack these attributes.
            table = getattr(self.embeddings, "word_embeddings", None)
            num_words = getattr(table, "num_embeddings", self.config.vocab_size)
            check_inputs(self.config, num_words, self.training, inputs)
            if output_indices is not None:
                check_indices("output_indices", output_indices, inputs.shape[0] * inputs.shape[1], self.training)
        return inputs.in_one_shape()

    def _needed_tokens(self, output_indices: torch.Tensor, batch: Batch) -> tuple[torch.Tensor, int]:
        """Indices in the flattened batch, packed if it is, of tokens to pool, then of others; how many to pool."""
        pooled_tokens = output_indices[:0] if self.pooler is None else batch.pooled_tokens
        if pooled_tokens is None:  # the first of each row
            pooled_tokens = torch.arange(batch.shape[0], device=output_indices.device) * batch.shape[1]
        return torch.cat([pooled_tokens, batch.places(output_indices)]), pooled_tokens.shape[0]

    def _embed(self, inputs: Inputs, batch: Batch) -> torch.Tensor:
        """The embeddings of the tokens, packed if the batch is."""
        input_ids, inputs_embeds, positions = inputs.input_ids, inputs.inputs_embeds, inputs.position_ids
        if batch.is_packed:
            if input_ids is not None and is_changed(self.embeddings.word_embeddings):
                # It gets rows; NEFTune's noise, for example, depends on the shape of the batch.
                input_ids, inputs_embeds = None, self.embeddings.word_embeddings(input_ids)
            if positions is None:
                positions = torch.arange(batch.shape[1], device=inputs.words.device).expand(batch.shape)
        embeddings: torch.Tensor = self.embeddings(
            input_ids=batch.pack(input_ids),
            token_type_ids=batch.pack(inputs.token_type_ids),
            position_ids=batch.pack(positions),
            inputs_embeds=batch.pack(inputs_embeds),
        )
        return embeddings

    def _states_to_pool(self, hidden_states: torch.Tensor, batch: Batch) -> torch.Tensor:
        """The pooled token of each sequence (N, 1, D), or all of its tokens for a pooler of somebody else's."""
        if batch.pooled_tokens is None:  # the first of each row
            return hidden_states
        parts = () if self.pooler is None else self.pooler.modules()
        if any(type(part).forward is _POOL and runs_known_forward(part) for part in parts):
            return hidden_states.flatten(0, 1).index_select(0, batch.pooled_tokens)[:, None]
        return batch.rows(hidden_states)

    def _scan(self) -> Scan:
        """Look for code of others inside and around, once in a forward; not in word embeddings, which get rows."""
        is_read = not torch.compiler.is_compiling() and padding_kept.get()
        # PyTorch's modules treat all tokens alike, but a pooler chooses one.
        if is_read or (self.pooler is not None and type(self.pooler).__module__.startswith("torch.nn.modules.")):
            return Scan(is_changed=True)
        words = getattr(self.embeddings, "word_embeddings", None)
        return scan(self.embeddings, self.encoder, self.pooler, leave_out=words)

    def _computes_all_tokens(self, batch: Batch) -> bool:
        """Whether the last layer computes all tokens, although the caller does not need all."""
        if not self.encoder.layer:
            return True
        if batch.is_packed or not self.training:  # packed, dropout draws other random numbers in any case
            return False
        last: Any = self.encoder.layer[-1]
        after_attention = (last.attention.output, last.intermediate, last.output)
        return any(
            isinstance(module, nn.Dropout) and module.p for part in after_attention for module in part.modules()
        )

    def _supports_varlen(self, words: torch.Tensor) -> bool:
        """Whether attention can run in the variable-length kernel."""
        if not words.is_cuda:
            return False
        dtype = torch.get_autocast_dtype("cuda") if torch.is_autocast_enabled("cuda") else self.dtype
        layers: Any = self.encoder.layer
        has_dropout = self.training and any(layer.attention.self.dropout.p for layer in layers)
        return supports_varlen(words.device, dtype, self.config.head_size, has_dropout)


_POOL = MyBertPooler.forward  # a user may patch the class
