"""The heads of pretraining: masked LM, next sentence prediction, and both (Devlin et al., 2018, section 3.1).

Shapes: B sequences in a batch, L tokens in a sequence (padding included), D = hidden_size, H heads, V = vocab_size.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn
from transformers import initialization as init
from transformers.activations import ACT2FN
from transformers.modeling_outputs import MaskedLMOutput, NextSentencePredictorOutput
from transformers.processing_utils import Unpack
from transformers.utils import ModelOutput, TransformersKwargs
from transformers.utils.generic import can_return_tuple

from .batch_mybert import flat_indices
from .configuration_mybert import MyBertConfig
from .head_mybert import MyBertHead, no_tokens
from .hooks_mybert import is_changed
from .inputs_mybert import check_indices, check_labels
from .linear_mybert import filled_up, linear
from .losses_mybert import IGNORE_INDEX, cross_entropy, linear_cross_entropy, mean_of, padding_is_ignored
from .modeling_mybert import MyBertModel


class MyBertPredictionTransform(nn.Module):
    """Linear layer, activation and layer normalization before the vocabulary product."""

    def __init__(self, config: MyBertConfig) -> None:
        super().__init__()
        self.dense = nn.Linear(config.hidden_size, config.hidden_size)
        self.transform_act_fn = ACT2FN[config.hidden_act]
        self.LayerNorm = nn.LayerNorm(config.hidden_size, eps=config.layer_norm_eps)

    def forward(self, hidden_states: torch.Tensor) -> torch.Tensor:
        """(..., D) to (..., D)."""
        states: torch.Tensor = self.LayerNorm(linear(self.dense, hidden_states, self.transform_act_fn))
        return states


class MyBertPredictionHead(nn.Module):
    """Masked-LM head: a transform, then the product with the word embeddings plus a bias (`cls.predictions`)."""

    def __init__(self, config: MyBertConfig) -> None:
        super().__init__()
        self.transform = MyBertPredictionTransform(config)
        self.decoder = nn.Linear(config.hidden_size, config.vocab_size)
        self.bias = nn.Parameter(torch.zeros(config.vocab_size))  # tied to decoder.bias; checkpoints use this name

    def forward(self, hidden_states: torch.Tensor) -> torch.Tensor:
        """Hidden states (..., D) to logits (..., V)."""
        return linear(self.decoder, self.transform(hidden_states))

    def with_loss(
        self, hidden_states: torch.Tensor, labels: torch.Tensor, num_items_in_batch: torch.Tensor | int | None
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Logits (N, V) and loss of the hidden states of labeled positions (N, D); see `linear_cross_entropy`."""
        return linear_cross_entropy(self.decoder, self.transform(filled_up(hidden_states)), labels, num_items_in_batch)


class MyBertPretrainingHeads(nn.Module):
    """The heads of a pretraining model (`cls`), one or both."""

    def __init__(self, config: MyBertConfig, predictions: bool = True, seq_relationship: bool = True) -> None:
        super().__init__()
        if predictions:
            self.predictions = MyBertPredictionHead(config)
        if seq_relationship:
            self.seq_relationship = nn.Linear(config.hidden_size, 2)

    def forward(self, *states: torch.Tensor) -> torch.Tensor | tuple[torch.Tensor, ...]:
        """Hidden states (..., D) and pooled output (B, D), or one of them, to logits (..., V) and (B, 2)."""
        logits = []
        for head, part in zip(self.children(), states, strict=True):
            logits.append(head(part))  # no comprehension: it would be one more call on the way to the kernel
        return tuple(logits) if len(logits) > 1 else logits[0]


class _MyBertWithPredictions(MyBertHead):
    """What the two models with a masked-LM head share."""

    _tied_weights_keys = {
        "cls.predictions.decoder.weight": "bert.embeddings.word_embeddings.weight",
        "cls.predictions.decoder.bias": "cls.predictions.bias",
    }

    def get_output_embeddings(self) -> nn.Module:
        """The masked-LM output layer."""
        return self.cls.predictions.decoder

    def set_output_embeddings(self, new_embeddings: nn.Module) -> None:
        """Replace the masked-LM output layer and the bias that checkpoints store as `cls.predictions.bias`."""
        head: Any = self.cls.predictions
        head.decoder, bias = new_embeddings, getattr(new_embeddings, "bias", None)
        # If weights are not tied, the two biases must be separate: a shared one would be saved under one name only.
        head.bias = bias if bias is None or self.config.tie_word_embeddings else nn.Parameter(bias.detach().clone())

    @torch.no_grad()
    def _init_weights(self, module: nn.Module) -> None:
        super()._init_weights(module)
        if isinstance(module, MyBertPredictionHead):
            init.zeros_(module.bias)

    def _indices_to_predict(
        self,
        words: torch.Tensor | None,
        labels: torch.Tensor | None,
        prediction_indices: torch.Tensor | None,
    ) -> torch.Tensor | None:
        """Indices of the labeled positions in the flattened batch (P,), if only these are predicted; else None."""
        if labels is None or words is None:  # the encoder rejects a call without input
            return None
        check_labels("labels", labels, words.shape[:2], self.config.vocab_size, self.training)
        # The vocabulary product is most of the cost of a small model, and only 15 % of the tokens have labels. In a
        # compiled graph the number of labeled positions is a shape, so the caller must give their indices.
        is_known = prediction_indices is not None or not torch.compiler.is_compiling()
        if not (is_known and (self.training or self.config.sparse_prediction)):
            return None
        if prediction_indices is None:
            prediction_indices = flat_indices(labels != IGNORE_INDEX)
        check_indices("prediction_indices", prediction_indices, labels.numel(), self.training)
        return prediction_indices

    def _predict(
        self,
        states: Sequence[torch.Tensor],
        labels: torch.Tensor | None,
        indices: torch.Tensor | None,
        output_indices: torch.Tensor | None,
        num_items_in_batch: torch.Tensor | int | None,
    ) -> tuple[Any, ...]:
        """Masked-LM loss and logits, (B, L, V) or (P, V), and those of next sentence prediction with that head."""
        if labels is not None and indices is not None:
            labels = labels.flatten().index_select(0, indices)
        if labels is not None and output_indices is not None:
            hidden_states, *pooled = states
            if hidden_states.dim() == 3:
                hidden_states = hidden_states.flatten(0, 1).index_select(0, output_indices)
            logits, loss = self.cls.predictions.with_loss(hidden_states, labels, num_items_in_batch)
            return loss, logits, *(self.cls.seq_relationship(output) for output in pooled)
        logits, *others = self.cls(*states) if len(states) > 1 else (self.cls(*states),)
        if indices is not None:
            logits = logits.flatten(0, 1).index_select(0, indices)
        return None if labels is None else cross_entropy(logits, labels, num_items_in_batch), logits, *others


@dataclass
class MyBertForPreTrainingOutput(ModelOutput):
    """Output of `MyBertForPreTraining`; as a tuple, that of transformers' `BertForPreTraining`.

    Attributes:
        loss: Sum of the two losses below; without labels for one of them, the other.
        prediction_logits: (B, L, V), or (labeled positions, V) if only those were computed, in the order of
            `prediction_indices`.
        seq_relationship_logits: Logits of next sentence prediction (B, 2): B follows A, B is random.
        hidden_states: Embeddings and each layer, each (B, L, D), if requested.
        attentions: One for each layer, each (B, H, L, L), if requested.
        mlm_loss: Masked-LM loss: the mean over the labeled positions, or a fraction of an optimizer step's mean.
        nsp_loss: The same for next sentence prediction, over sequences.
    """

    loss: torch.Tensor | None = None
    prediction_logits: torch.Tensor | None = None
    seq_relationship_logits: torch.Tensor | None = None
    hidden_states: tuple[torch.Tensor, ...] | None = None
    attentions: tuple[torch.Tensor, ...] | None = None
    mlm_loss: torch.Tensor | None = None
    nsp_loss: torch.Tensor | None = None

    def to_tuple(self) -> tuple[Any, ...]:
        """The fields that transformers' output has, since code unpacks them; the two losses have only their names."""
        return tuple(value for name, value in self.items() if name not in ("mlm_loss", "nsp_loss"))


class MyBertForPreTraining(_MyBertWithPredictions):
    """Masked LM and next sentence prediction, as in pretraining (paper, section 3.1)."""

    def __init__(self, config: MyBertConfig) -> None:
        super().__init__(config)
        self.bert = MyBertModel(config)
        self.cls = MyBertPretrainingHeads(config)
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
        prediction_indices: torch.Tensor | None = None,
        **kwargs: Unpack[TransformersKwargs],
    ) -> MyBertForPreTrainingOutput | tuple[torch.Tensor, ...]:
        """Predict masked tokens and whether segment B follows segment A; for other inputs see `MyBertModel`.

        Args:
            labels: Original token ids (B, L) at masked positions, -100 elsewhere.
            next_sentence_label: (B,): 0 if B follows A, 1 if B is random, -100 to ignore the sequence.
            num_items_in_batch: Number of masked tokens in all micro-batches and processes of an optimizer step; the
                masked-LM loss is then the batch's fraction of that step's mean. None: the mean over this batch.
            num_sequences_in_batch: The same for the sequences of next sentence prediction. transformers' `Trainer`
                does not pass it; with `num_items_in_batch` alone, the loss of a micro-batch is weighted by its share
                of the masked tokens. `mybert.pretraining.PretrainingTrainer` passes both.
            prediction_indices: Indices of all labeled positions in the flattened batch (P,). Passing them avoids a
                synchronization with an accelerator, and lets a compiled graph compute only labeled positions.
                Positions with label -100 are ignored in the loss, so they can pad P to a constant number.

        Returns:
            `MyBertForPreTrainingOutput`; its loss is the sum of the losses whose labels were given.

        Raises:
            ValueError: If labels or indices have the wrong shape, dtype or values.
        """
        words = input_ids if inputs_embeds is None else inputs_embeds
        indices = self._indices_to_predict(words, labels, prediction_indices)
        output_indices = None if (has_changes := is_changed(self.cls)) else indices
        unpad_inputs = not has_changes and padding_is_ignored(labels, attention_mask, **kwargs)
        others = (attention_mask, token_type_ids, position_ids, inputs_embeds, kwargs)
        outputs = self._encoder(*others, output_indices=output_indices, unpad_inputs=unpad_inputs)(input_ids)
        states = outputs.last_hidden_state, outputs.pooler_output
        mlm_loss, prediction_logits, seq_relationship_logits = self._predict(
            states, labels, indices, output_indices, num_items_in_batch
        )
        sequences = (seq_relationship_logits, next_sentence_label, num_sequences_in_batch)
        nsp_loss = self._loss_of_classes(*sequences, name="next_sentence_label")
        if (
            nsp_loss is not None
            and labels is not None
            and num_items_in_batch is not None
            and num_sequences_in_batch is None
        ):
            nsp_loss = mean_of(nsp_loss * (labels != IGNORE_INDEX).sum(), num_items_in_batch)
        losses = [loss for loss in (mlm_loss, nsp_loss) if loss is not None]
        return MyBertForPreTrainingOutput(
            loss=sum(losses, losses[0].new_zeros(())) if losses else None,
            prediction_logits=prediction_logits,
            seq_relationship_logits=seq_relationship_logits,
            hidden_states=outputs.hidden_states,
            attentions=outputs.attentions,
            mlm_loss=mlm_loss,
            nsp_loss=nsp_loss,
        )


class MyBertForMaskedLM(_MyBertWithPredictions):
    """Masked LM alone."""

    def __init__(self, config: MyBertConfig) -> None:
        super().__init__(config)
        self.bert = MyBertModel(config, add_pooling_layer=False)
        self.cls = MyBertPretrainingHeads(config, seq_relationship=False)
        self.post_init()

    @can_return_tuple
    def forward(
        self,
        input_ids: torch.Tensor | None = None,
        attention_mask: torch.Tensor | None = None,
        token_type_ids: torch.Tensor | None = None,
        position_ids: torch.Tensor | None = None,
        inputs_embeds: torch.Tensor | None = None,
        *,  # in transformers' BERT two arguments of decoders are before the labels
        labels: torch.Tensor | None = None,
        num_items_in_batch: torch.Tensor | int | None = None,
        prediction_indices: torch.Tensor | None = None,
        **kwargs: Unpack[TransformersKwargs],
    ) -> MaskedLMOutput | tuple[torch.Tensor, ...]:
        """Predict masked tokens; for other inputs see `MyBertModel`.

        Args:
            labels: Original token ids (B, L) at masked positions, -100 elsewhere.
            num_items_in_batch: Masked tokens in the optimizer step; None: the mean over this batch.
            prediction_indices: See `MyBertForPreTraining`.

        Returns:
            `loss` (None without labels) and `logits`: (B, L, V), or (labeled positions, V) in training with labels or
            with `sparse_prediction`.
        """
        words = input_ids if inputs_embeds is None else inputs_embeds
        indices = self._indices_to_predict(words, labels, prediction_indices)
        output_indices = None if (has_changes := is_changed(self.cls)) else indices
        unpad_inputs = not has_changes and padding_is_ignored(labels, attention_mask, **kwargs)
        others = (attention_mask, token_type_ids, position_ids, inputs_embeds, kwargs)
        outputs = self._encoder(*others, output_indices=output_indices, unpad_inputs=unpad_inputs)(input_ids)
        states = (outputs.last_hidden_state,)
        loss, logits = self._predict(states, labels, indices, output_indices, num_items_in_batch)
        return MaskedLMOutput(loss, logits, outputs.hidden_states, outputs.attentions)


class MyBertForNextSentencePrediction(MyBertHead):
    """Next sentence prediction alone."""

    def __init__(self, config: MyBertConfig) -> None:
        super().__init__(config)
        self.bert = MyBertModel(config)
        self.cls = MyBertPretrainingHeads(config, predictions=False)
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
        """Predict whether segment B follows segment A; for other inputs see `MyBertModel`.

        Args:
            labels: (B,): 0 if B follows A, 1 if B is random, -100 to ignore the sequence.
            num_items_in_batch: Sequences in the optimizer step; None: the mean over this batch.

        Returns:
            `loss` (None without labels) and `logits` (B, 2).
        """
        others = (attention_mask, token_type_ids, position_ids, inputs_embeds, kwargs)
        outputs = self._encoder(*others, output_indices=no_tokens(input_ids, inputs_embeds))(input_ids)
        logits = self.cls(outputs.pooler_output)
        loss = self._loss_of_classes(logits, labels, num_items_in_batch)
        return NextSentencePredictorOutput(loss, logits, outputs.hidden_states, outputs.attentions)


__all__ = [
    "MyBertForMaskedLM",
    "MyBertForNextSentencePrediction",
    "MyBertForPreTraining",
    "MyBertForPreTrainingOutput",
]
