"""A BiLSTM between encoder and head: the paper's ablation of left-to-right models (section 5.1, table 5).

Their hidden states contain nothing of the tokens to their right; a randomly initialized BiLSTM combines both
directions. Such models need this package: the code on the Hub has no BiLSTM. There is no export to `bert` or
TensorFlow, and no packed input.
"""

from typing import Any

import torch
from torch import nn
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence
from transformers.modeling_outputs import BaseModelOutputWithPooling

from .batch_mybert import sequence_lengths
from .configuration_mybert import MyBertConfig
from .heads_mybert import (
    MyBertForMultipleChoice,
    MyBertForQuestionAnswering,
    MyBertForSequenceClassification,
    MyBertForTokenClassification,
)
from .inputs_mybert import unmask_empty_rows
from .modeling_mybert import MyBertModel


class MyBertBiLstmConfig(MyBertConfig):
    """`MyBertConfig` of a model with a BiLSTM, whose two directions have half of `hidden_size` each."""

    model_type = "mybert-bilstm"

    def check(self) -> None:
        """Check the values as `MyBertConfig.check` does; `hidden_size` must be even."""
        super().check()
        if self.hidden_size % 2:
            raise ValueError(f"hidden_size is {self.hidden_size}; a BiLSTM needs an even one.")

    @classmethod
    def get_config_dict(
        cls, pretrained_model_name_or_path: Any, **kwargs: Any
    ) -> tuple[dict[str, Any], dict[str, Any]]:
        """Read a `config.json`; that of a model without a BiLSTM is accepted, to add one."""
        config_dict, kwargs = super().get_config_dict(pretrained_model_name_or_path, **kwargs)
        return {**config_dict, "model_type": cls.model_type}, kwargs


class MyBertBiLstmModel(MyBertModel):
    """The encoder with the BiLSTM; `last_hidden_state` and `pooler_output` come from the BiLSTM."""

    config_class = MyBertBiLstmConfig

    def __init__(self, config: MyBertBiLstmConfig, add_pooling_layer: bool = True) -> None:
        super().__init__(config, add_pooling_layer=add_pooling_layer)
        self.bilstm = nn.LSTM(config.hidden_size, config.hidden_size // 2, batch_first=True, bidirectional=True)
        self.post_init()

    def forward(
        self,
        input_ids: torch.Tensor | None = None,
        attention_mask: torch.Tensor | None = None,
        **kwargs: Any,
    ) -> BaseModelOutputWithPooling:
        """Encode a batch; see `MyBertModel.forward`.

        Rows hold one sequence each, padded on the right; padding elsewhere, or several sequences, is a ValueError.
        """
        outputs = super().forward(input_ids, attention_mask=attention_mask, **{**kwargs, "return_dict": True})
        states = outputs.last_hidden_state
        of_tokens = kwargs.get("position_ids") if attention_mask is None else None
        lengths = sequence_lengths((states.shape[0], states.shape[1]), of_tokens, kwargs.get("cu_seq_lens_q"))
        if lengths is not None and len(lengths) > len(states):
            raise ValueError(
                f"{len(lengths)} sequences are in {len(states)} rows (cu_seq_lens_q or position_ids); a BiLSTM "
                "expects one in each."
            )
        states = run_lstm(self.bilstm, states, attention_mask)
        outputs.last_hidden_state = states
        outputs.pooler_output = None if self.pooler is None else self.pooler(states)
        return outputs


def run_lstm(lstm: nn.LSTM, states: torch.Tensor, mask: torch.Tensor | None) -> torch.Tensor:
    """Run an LSTM over rows (B, L, D) that are padded on the right; its outputs (B, L, E) are 0 at padding."""
    if mask is None:
        return lstm(states)[0]
    is_token = unmask_empty_rows(mask).bool().cpu()  # torch packs no empty rows
    if (is_token[:, 1:] > is_token[:, :-1]).any():
        raise ValueError("attention_mask has tokens behind padding; a BiLSTM expects padding on the right.")
    packed = pack_padded_sequence(states, is_token.sum(1), batch_first=True, enforce_sorted=False)
    return pad_packed_sequence(lstm(packed)[0], batch_first=True, total_length=states.shape[1])[0]


class _WithBiLstm:
    """Mixin that replaces a head's encoder by one with a BiLSTM."""

    config_class = MyBertBiLstmConfig
    bert: Any

    def __init__(self, config: MyBertBiLstmConfig) -> None:
        super().__init__(config)  # type: ignore[call-arg]
        self.bert = MyBertBiLstmModel(config, add_pooling_layer=self.bert.pooler is not None)
        self.post_init()  # type: ignore[attr-defined]


class MyBertBiLstmForSequenceClassification(_WithBiLstm, MyBertForSequenceClassification):
    """`MyBertForSequenceClassification` on a BiLSTM."""


class MyBertBiLstmForMultipleChoice(_WithBiLstm, MyBertForMultipleChoice):
    """`MyBertForMultipleChoice` on a BiLSTM."""


class MyBertBiLstmForTokenClassification(_WithBiLstm, MyBertForTokenClassification):
    """`MyBertForTokenClassification` on a BiLSTM."""


class MyBertBiLstmForQuestionAnswering(_WithBiLstm, MyBertForQuestionAnswering):
    """`MyBertForQuestionAnswering` on a BiLSTM."""


BILSTM_HEADS = {
    "AutoModelForSequenceClassification": MyBertBiLstmForSequenceClassification,
    "AutoModelForMultipleChoice": MyBertBiLstmForMultipleChoice,
    "AutoModelForTokenClassification": MyBertBiLstmForTokenClassification,
    "AutoModelForQuestionAnswering": MyBertBiLstmForQuestionAnswering,
}
