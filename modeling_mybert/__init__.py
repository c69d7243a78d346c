"""The network: configuration and every model class.

The names load on first use (PEP 562): reading a configuration must not import PyTorch modules.
"""

from typing import TYPE_CHECKING

from .._lazy_names import lazy_names

if TYPE_CHECKING:
    from .batch_mybert import flat_indices
    from .configuration_mybert import MyBertConfig
    from .heads_mybert import (
        MyBertForMultipleChoice,
        MyBertForQuestionAnswering,
        MyBertForSequenceClassification,
        MyBertForTokenClassification,
    )
    from .linear_mybert import LinearKernels, linear_kernels, set_linear_kernel
    from .losses_mybert import IGNORE_INDEX, cross_entropy, mean_of
    from .model_sizes import MODEL_SIZES
    from .modeling_mybert import MyBertModel
    from .pretrained_mybert import MyBertPreTrainedModel, auto_map
    from .pretraining_heads_mybert import (
        MyBertForMaskedLM,
        MyBertForNextSentencePrediction,
        MyBertForPreTraining,
        MyBertForPreTrainingOutput,
    )

__all__ = [
    "IGNORE_INDEX",
    "MODEL_SIZES",
    "LinearKernels",
    "MyBertConfig",
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
    "auto_map",
    "cross_entropy",
    "flat_indices",
    "linear_kernels",
    "mean_of",
    "set_linear_kernel",
]


__getattr__, __dir__ = lazy_names(__name__)
