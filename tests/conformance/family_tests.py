"""The classes and inputs on which transformers' common tests run (`transformers_common.py` copies this file to them).

The environment variable CONFORMANCE_FAMILY names the family: `bert` (transformers' classes) or `mybert`.
"""

import os
import unittest

import torch
import transformers
from transformers.models.auto import modeling_auto

import mybert

from .test_configuration_common import ConfigTester
from .test_modeling_common import ModelTesterMixin
from .test_training_mixin import TrainingTesterMixin

HEADS = {
    "Model": "MODEL_MAPPING_NAMES",
    "ForPreTraining": "MODEL_FOR_PRETRAINING_MAPPING_NAMES",
    "ForMaskedLM": "MODEL_FOR_MASKED_LM_MAPPING_NAMES",
    "ForNextSentencePrediction": "MODEL_FOR_NEXT_SENTENCE_PREDICTION_MAPPING_NAMES",
    "ForSequenceClassification": "MODEL_FOR_SEQUENCE_CLASSIFICATION_MAPPING_NAMES",
    "ForMultipleChoice": "MODEL_FOR_MULTIPLE_CHOICE_MAPPING_NAMES",
    "ForTokenClassification": "MODEL_FOR_TOKEN_CLASSIFICATION_MAPPING_NAMES",
    "ForQuestionAnswering": "MODEL_FOR_QUESTION_ANSWERING_MAPPING_NAMES",
}
LIBRARY, PREFIX = {"bert": (transformers, "Bert"), "mybert": (mybert, "MyBert")}[os.environ["CONFORMANCE_FAMILY"]]
CONFIG_CLASS = getattr(LIBRARY, f"{PREFIX}Config")
CLASSES = {head: getattr(LIBRARY, PREFIX + head) for head in HEADS}

# The common tests decide by these tables of names, which `AutoModel....register` leaves alone, what labels a class
# takes. Without an entry a test would pass over the class.
for head, table in HEADS.items():
    getattr(modeling_auto, table)[CONFIG_CLASS.model_type] = CLASSES[head].__name__


class FamilyModelTester:
    """What the common tests ask for: sizes, a configuration and a batch."""

    batch_size = 5
    seq_length = 9
    num_choices = 3
    num_hidden_layers = 2
    num_attention_heads = 4
    hidden_size = 32
    vocab_size = 99
    type_vocab_size = 2
    is_training = True
    causal_lm_class = CLASSES["ForMaskedLM"]  # the class that the training test fits to a text

    def get_config(self):
        """A tiny configuration without dropout."""
        return CONFIG_CLASS(
            vocab_size=self.vocab_size,
            hidden_size=self.hidden_size,
            num_hidden_layers=self.num_hidden_layers,
            num_attention_heads=self.num_attention_heads,
            intermediate_size=2 * self.hidden_size,
            max_position_embeddings=64,
            type_vocab_size=self.type_vocab_size,
            hidden_dropout_prob=0.0,
            attention_probs_dropout_prob=0.0,
        )

    def prepare_config_and_inputs_for_common(self):
        """The configuration and a batch; every sequence but the first has padding at its right."""
        generator = torch.Generator().manual_seed(0)
        shape = (self.batch_size, self.seq_length)
        lengths = torch.tensor([self.seq_length - row % 4 for row in range(self.batch_size)])
        positions = torch.arange(self.seq_length)
        return self.get_config(), {
            "input_ids": torch.randint(1, self.vocab_size, shape, generator=generator),
            "token_type_ids": (positions >= self.seq_length // 2).long().expand(shape).contiguous(),
            "attention_mask": (positions < lengths[:, None]).long(),
        }


class FamilyTest(ModelTesterMixin, TrainingTesterMixin, unittest.TestCase):
    """transformers' common tests, with the eight classes of a family."""

    model_tester = FamilyModelTester()
    all_model_classes = tuple(CLASSES.values())

    def _prepare_for_class(self, inputs_dict, model_class, return_labels=False):
        inputs_dict = super()._prepare_for_class(inputs_dict, model_class, return_labels=return_labels)
        if return_labels and model_class is CLASSES["ForPreTraining"]:
            inputs_dict["labels"] = torch.zeros_like(inputs_dict["input_ids"])
            inputs_dict["next_sentence_label"] = torch.zeros(len(inputs_dict["input_ids"]), dtype=torch.long)
        return inputs_dict

    def test_config(self):
        ConfigTester(self, config_class=CONFIG_CLASS, hidden_size=36).run_common_tests()
