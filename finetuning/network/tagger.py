"""The tagger of the feature-based approach (paper, section 5.3): a BiLSTM on the hidden states of a frozen encoder."""

import torch
from torch import nn
from transformers import AutoConfig, PreTrainedConfig, PreTrainedModel
from transformers import initialization as init
from transformers.modeling_outputs import TokenClassifierOutput

from ...modeling_mybert import cross_entropy
from .bilstm import run_lstm
from .features import FEATURES, combine


class FeatureTaggerConfig(PreTrainedConfig):
    """Configuration of `FeatureTagger`."""

    model_type = "mybert-feature-tagger"

    encoder: str = ""  # folder or Hub name
    features: str = "concat_last_four"  # a key of `FEATURES`
    num_states: int = 4  # hidden states per token
    state_size: int = 768  # of each hidden state
    lstm_size: int = 768  # units in each direction
    lstm_layers: int = 2
    dropout: float = 0.1  # before each layer


class FeatureTagger(PreTrainedModel):
    """A BiLSTM over the frozen features of a sentence's words, and a linear layer (paper, section 5.3)."""

    config: FeatureTaggerConfig
    config_class = FeatureTaggerConfig
    main_input_name = "features"

    def __init__(self, config: FeatureTaggerConfig) -> None:
        super().__init__(config)
        combination = FEATURES[config.features].combination
        self.weights = nn.Parameter(torch.zeros(config.num_states)) if combination == "weighted" else None
        size = config.state_size * (config.num_states if combination == "concat" else 1)
        self.dropout = nn.Dropout(config.dropout)
        self.lstm = nn.LSTM(
            size,
            config.lstm_size,
            config.lstm_layers,
            batch_first=True,
            bidirectional=True,
            dropout=config.dropout if config.lstm_layers > 1 else 0.0,
        )
        self.classifier = nn.Linear(2 * config.lstm_size, config.num_labels)
        self.post_init()

    @torch.no_grad()
    def _init_weights(self, module: nn.Module) -> None:
        super()._init_weights(module)
        if isinstance(module, FeatureTagger) and module.weights is not None:
            init.zeros_(module.weights)

    def forward(
        self,
        features: torch.Tensor,
        attention_mask: torch.Tensor,
        labels: torch.Tensor | None = None,
        num_items_in_batch: torch.Tensor | int | None = None,
    ) -> TokenClassifierOutput:
        """Tag words.

        Args:
            features: Hidden states of each word's first piece (B, W, num_states, state_size).
            attention_mask: 1 at words, 0 at padding (B, W).
            labels: Class ids (B, W), -100 at words to ignore.
            num_items_in_batch: Labelled words in the optimizer step; None: the mean over this batch.

        Returns:
            `loss` (None without labels) and `logits` (B, W, num_labels).
        """
        weights = None if self.weights is None else self.weights.softmax(0)
        combined = combine(features, FEATURES[self.config.features], weights)
        states = run_lstm(self.lstm, self.dropout(combined), attention_mask)
        logits = self.classifier(self.dropout(states))
        loss = None
        if labels is not None:
            loss = cross_entropy(logits, labels, num_items_in_batch)
        return TokenClassifierOutput(loss=loss, logits=logits)


AutoConfig.register(FeatureTaggerConfig.model_type, FeatureTaggerConfig, exist_ok=True)
