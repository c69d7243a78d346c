"""The heads of fine-tuning: sequences, choices, tokens and answers (Devlin et al., 2018, section 4).

Shapes: B sequences in a batch, L tokens in a sequence (padding included), D = hidden_size. If rows hold several
sequences one after the other, sequence-level heads return one row for each of the N sequences.
"""

import torch
from torch import nn
from transformers.modeling_outputs import (
    MultipleChoiceModelOutput,
    QuestionAnsweringModelOutput,
    SequenceClassifierOutput,
    TokenClassifierOutput,
)
from transformers.processing_utils import Unpack
from transformers.utils import TransformersKwargs
from transformers.utils.generic import can_return_tuple
from transformers.utils.import_utils import is_tracing

from .batch_mybert import rows_of_sequences, sequence_lengths
from .configuration_mybert import MyBertConfig
from .head_mybert import MyBertHead, no_tokens
from .hooks_mybert import is_changed
from .inputs_mybert import check_values, unmask_empty_rows
from .losses_mybert import padding_is_ignored, position_loss, value_loss
from .modeling_mybert import MyBertModel


class _MyBertWithClassifier(MyBertHead):
    """What the heads with dropout and one linear layer, `classifier`, share."""

    def __init__(self, config: MyBertConfig, num_outputs: int, add_pooling_layer: bool = True) -> None:
        super().__init__(config)
        self.num_labels = config.num_labels
        self.bert = MyBertModel(config, add_pooling_layer)
        dropout = config.hidden_dropout_prob if config.classifier_dropout is None else config.classifier_dropout
        self.dropout = nn.Dropout(dropout)
        self.classifier = nn.Linear(config.hidden_size, num_outputs)
        self.post_init()


class MyBertForSequenceClassification(_MyBertWithClassifier):
    """A linear layer on the pooled output: single-label, multi-label or regression (paper, section 4.1).

    With `config.classifier_pooling` "mean" it is on the mean of the last hidden states, and there is no pooler.
    """

    def __init__(self, config: MyBertConfig) -> None:
        is_mean = getattr(config, "classifier_pooling", "cls") == "mean"  # a BertConfig is rejected by `MyBertModel`
        super().__init__(config, config.num_labels, add_pooling_layer=not is_mean)

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
        """Classify sequences or pairs; for the other inputs see `MyBertModel`.

        Args:
            labels: Class ids (B,); 0.0 or 1.0 for each label (B, num_labels); or values (B,) or (B, num_labels) for
                regression. `config.problem_type` says which. If that is None, it is inferred from the first labels
                (one label: regression; integers: single-label; otherwise multi-label) and stored in the configuration.
            num_items_in_batch: Number of label values in the optimizer step, by which the loss is divided; None for
                those of this batch.

        Returns:
            `loss` (None without labels) and `logits` (B, num_labels).

        Raises:
            ValueError: If the labels have the wrong shape, dtype or values.
        """
        others = (attention_mask, token_type_ids, position_ids, inputs_embeds, kwargs)
        if self.config.classifier_pooling == "mean":
            outputs = self._encoder(*others)(input_ids)
            limits = (kwargs.get("cu_seq_lens_q"), kwargs.get("max_length_q"))
            pooled = mean_states(outputs.last_hidden_state, attention_mask, position_ids, *limits)
        else:
            outputs = self._encoder(*others, output_indices=no_tokens(input_ids, inputs_embeds))(input_ids)
            pooled = outputs.pooler_output
        logits = self.classifier(self.dropout(pooled))
        loss = self._loss(logits, labels, num_items_in_batch)
        return SequenceClassifierOutput(loss, logits, outputs.hidden_states, outputs.attentions)

    def _loss(
        self, logits: torch.Tensor, labels: torch.Tensor | None, num_items_in_batch: torch.Tensor | int | None
    ) -> torch.Tensor | None:
        if labels is None:
            return None
        if self.config.problem_type is None:
            if self.num_labels == 1:
                self.config.problem_type = "regression"
            elif labels.dtype in (torch.long, torch.int):
                self.config.problem_type = "single_label_classification"
            else:
                self.config.problem_type = "multi_label_classification"
        if self.config.problem_type == "single_label_classification":
            return self._loss_of_classes(logits, labels, num_items_in_batch)
        if labels.numel() != logits.numel():
            raise ValueError(
                f"labels has shape {tuple(labels.shape)}; {self.config.problem_type} needs a value for each of the "
                f"{tuple(logits.shape)} logits."
            )
        is_regression = self.config.problem_type == "regression"
        return value_loss(logits, labels.view(logits.shape), num_items_in_batch, is_regression)


def mean_states(
    hidden_states: torch.Tensor,
    attention_mask: torch.Tensor | None,
    position_ids: torch.Tensor | None,
    cu_seqlens: torch.Tensor | None,
    max_seqlen: int | None,
) -> torch.Tensor:
    """The mean hidden state (N, D) of the tokens of each sequence in a batch (B, L, D), special tokens included."""
    shape = (hidden_states.shape[0], hidden_states.shape[1])
    lengths = sequence_lengths(shape, None if attention_mask is not None else position_ids, cu_seqlens)
    if lengths is not None:
        return rows_of_sequences(hidden_states, lengths, max_seqlen).sum(1) / lengths[:, None]
    if attention_mask is None:
        return hidden_states.mean(1)
    if len(attention_mask.shape) != 2:
        raise ValueError(
            f"attention_mask has shape {tuple(attention_mask.shape)}; expected {shape}: a prepared mask does not say "
            "which tokens are padding, and classifier_pooling is 'mean'."
        )
    is_token = unmask_empty_rows(attention_mask).bool()
    return hidden_states.masked_fill(~is_token[..., None], 0).sum(1) / is_token.sum(1, keepdim=True)


class MyBertForMultipleChoice(_MyBertWithClassifier):
    """A score for each choice, computed from its pooled output; a softmax compares them (paper, section 4.4)."""

    def __init__(self, config: MyBertConfig) -> None:
        super().__init__(config, 1)

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
        """Score the choices; inputs as for `MyBertModel`, with a dimension for the C choices after the first.

        Args:
            input_ids, attention_mask, token_type_ids, position_ids: (B, C, L).
            inputs_embeds: (B, C, L, D) in place of `input_ids`.
            labels: Index of the right choice (B,), in [0, C). If rows hold several sequences, pass the inputs as
                (1, 1, L) and one label for each question; without labels all scores are returned in one row.
            num_items_in_batch: Number of questions in the optimizer step, by which the loss is divided; None for
                those of this batch.

        Returns:
            `loss` (None without labels) and `logits` (B, C).

        Raises:
            ValueError: If the inputs have no dimension for the choices, or the labels do not fit.
        """
        if inputs_embeds is None:
            name, first, expected = "input_ids", input_ids, "(batch, choices, tokens)"
        else:
            name, first = "inputs_embeds", inputs_embeds
            expected = f"(batch, choices, tokens, {self.config.hidden_size})"
        if first is not None and first.dim() != len(expected.split(",")):
            raise ValueError(f"{name} has shape {tuple(first.shape)}; expected {expected}.")

        given = (input_ids, attention_mask, token_type_ids, position_ids, inputs_embeds)
        input_ids, attention_mask, token_type_ids, position_ids, inputs_embeds = (
            None if tensor is None else tensor.flatten(0, 1) for tensor in given
        )
        others = (attention_mask, token_type_ids, position_ids, inputs_embeds, kwargs)
        outputs = self._encoder(*others, output_indices=no_tokens(input_ids, inputs_embeds))(input_ids)
        assert first is not None  # the encoder rejects a call without input
        scores = self.classifier(self.dropout(outputs.pooler_output))
        questions, choices = first.shape[:2]
        if not is_tracing(scores) and len(scores) != questions * choices:  # several sequences in a row
            questions = 1 if labels is None else labels.shape[0]
        logits = scores.view(questions, -1)
        loss = self._loss_of_classes(logits, labels, num_items_in_batch)
        return MultipleChoiceModelOutput(loss, logits, outputs.hidden_states, outputs.attentions)


class MyBertForTokenClassification(_MyBertWithClassifier):
    """A linear layer on the hidden state of each token (paper, section 5.3)."""

    def __init__(self, config: MyBertConfig) -> None:
        super().__init__(config, config.num_labels, add_pooling_layer=False)

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
        """Classify tokens; for the other inputs see `MyBertModel`.

        Args:
            labels: Class ids (B, L), -100 at positions to ignore.
            num_items_in_batch: Number of labeled tokens in the optimizer step, by which the loss is divided; None for
                those of this batch.

        Returns:
            `loss` (None without labels) and `logits` (B, L, num_labels).

        Raises:
            ValueError: If the labels have the wrong shape, dtype or values.
        """
        unpad_inputs = not is_changed(self.dropout, self.classifier) and padding_is_ignored(
            labels, attention_mask, **kwargs
        )
        others = (attention_mask, token_type_ids, position_ids, inputs_embeds, kwargs)
        outputs = self._encoder(*others, unpad_inputs=unpad_inputs)(input_ids)
        logits = self.classifier(self.dropout(outputs.last_hidden_state))
        loss = self._loss_of_classes(logits, labels, num_items_in_batch)
        return TokenClassifierOutput(loss, logits, outputs.hidden_states, outputs.attentions)


class MyBertForQuestionAnswering(MyBertHead):
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
        """Score each token as start and end of the answer; for the other inputs see `MyBertModel`.

        Args:
            start_positions, end_positions: Token index of the answer's start and end in its sequence (B,), or (N,) if
                rows hold several sequences. As in transformers' BERT, an index past the end of the row is ignored in
                the loss and a negative one counts as 0. An index past the end of its own sequence, or at padding that
                cannot be an answer, is ignored as well.
            num_items_in_batch: Number of answers in the optimizer step, by which the loss is divided; None for those
                of this batch.
            **kwargs: See `MyBertModel`. As in transformers' BERT, the loss counts padding as possible answers, so a
                batch with labels keeps its padding. With `unpad_inputs=True` padding is removed and no answer can be
                there.

        Returns:
            `loss` (mean of the start and the end loss; None without labels), `start_logits` and `end_logits` (B, L).

        Raises:
            ValueError: If the positions have the wrong shape or dtype.
        """
        padding = None  # True at padding, if answers cannot be there
        unpad_inputs = kwargs.pop("unpad_inputs", None)
        if unpad_inputs and attention_mask is not None and len(attention_mask.shape) == 2:
            padding = unmask_empty_rows(attention_mask) == 0
        if unpad_inputs is None:
            unpad_inputs = start_positions is None or attention_mask is None
        unpad_inputs = unpad_inputs and not is_changed(self.qa_outputs)
        others = (attention_mask, token_type_ids, position_ids, inputs_embeds, kwargs)
        outputs = self._encoder(*others, unpad_inputs=unpad_inputs)(input_ids)
        both = self.qa_outputs(outputs.last_hidden_state).split(1, dim=-1)
        start_logits, end_logits = (scores.squeeze(-1).contiguous() for scores in both)
        loss = None
        if start_positions is not None and end_positions is not None:
            of_tokens = position_ids if attention_mask is None else None
            lengths = sequence_lengths(start_logits.shape, of_tokens, kwargs.get("cu_seq_lens_q"))
            losses = []
            for name, scores, positions in (
                ("start_positions", start_logits, start_positions),
                ("end_positions", end_logits, end_positions),
            ):
                if padding is not None:
                    scores = scores.masked_fill(padding, -torch.inf)
                if lengths is not None:
                    scores = rows_of_sequences(scores, lengths, kwargs.get("max_length_q"), fill=-torch.inf)
                positions = positions.view(-1)
                if positions.shape != scores.shape[:1]:
                    raise ValueError(f"{name} has shape {tuple(positions.shape)}; expected ({scores.shape[0]},).")
                check_values(name, positions, None, self.training)
                losses.append(position_loss(scores, positions, num_items_in_batch))
            loss = (losses[0] + losses[1]) / 2
        return QuestionAnsweringModelOutput(loss, start_logits, end_logits, outputs.hidden_states, outputs.attentions)


__all__ = [
    "MyBertForMultipleChoice",
    "MyBertForQuestionAnswering",
    "MyBertForSequenceClassification",
    "MyBertForTokenClassification",
]
