"""The classes and inputs on which transformers' common tests run (`transformers_common.py` copies this file to them).

The environment variable CONFORMANCE_FAMILY names the family: `mybert`, a type of transformers' encoders (`bert`,
`roberta`, ...), or one of them whose models are sped up as they are made (`roberta-sped-up`).
"""

import os
import unittest

import torch
import transformers
from transformers import CONFIG_MAPPING, PreTrainedModel
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
FAMILY = os.environ["CONFORMANCE_FAMILY"]
TYPE = FAMILY.removesuffix("-sped-up")
if TYPE == "mybert":
    CONFIG_CLASS = mybert.MyBertConfig
    CLASSES = {head: getattr(mybert, f"MyBert{head}") for head in HEADS}
    # The common tests decide by these tables of names, which `AutoModel....register` leaves alone, what labels a class
    # takes. Without an entry a test would pass over the class.
    for head, table in HEADS.items():
        getattr(modeling_auto, table)[TYPE] = CLASSES[head].__name__
else:
    CONFIG_CLASS = CONFIG_MAPPING[TYPE]
    NAMES = {head: getattr(modeling_auto, table).get(TYPE, "") for head, table in HEADS.items()}
    CLASSES = {head: getattr(transformers, name) for head, name in NAMES.items() if name.endswith(head)}

if FAMILY != TYPE:
    post_init = PreTrainedModel.post_init

    def post_init_and_speed_up(model):
        """Speed up a model at the end of its construction, also by `from_pretrained`."""
        post_init(model)
        if type(model) in CLASSES.values():
            mybert.speed_up(model)

    PreTrainedModel.post_init = post_init_and_speed_up


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
        sizes = {
            "vocab_size": self.vocab_size,
            "hidden_size": self.hidden_size,
            "num_hidden_layers": self.num_hidden_layers,
            "num_attention_heads": self.num_attention_heads,
            "intermediate_size": 2 * self.hidden_size,
            "max_position_embeddings": 64,
            "type_vocab_size": self.type_vocab_size,
            "hidden_dropout_prob": 0.0,
            "attention_probs_dropout_prob": 0.0,
        }
        ids = {"bos_token_id": 1, "eos_token_id": 2, "cls_token_id": 1, "sep_token_id": 2, "pad_token_id": 0}
        if TYPE == "distilbert":
            names = {"hidden_size": "dim", "num_hidden_layers": "n_layers", "num_attention_heads": "n_heads"}
            names |= {"intermediate_size": "hidden_dim", "hidden_dropout_prob": "dropout"}
            names |= {"attention_probs_dropout_prob": "attention_dropout"}
            sizes = {names.get(name, name): size for name, size in sizes.items() if name != "type_vocab_size"}
            return CONFIG_CLASS(**sizes, qa_dropout=0.0, seq_classif_dropout=0.0)
        if TYPE == "modernbert":
            del sizes["type_vocab_size"], sizes["hidden_dropout_prob"], sizes["attention_probs_dropout_prob"]
            return CONFIG_CLASS(**sizes, **ids, local_attention=4, global_attn_every_n_layers=2)
        if TYPE == "electra":
            sizes |= {"embedding_size": self.hidden_size // 2, "summary_last_dropout": 0.0}
        return CONFIG_CLASS(**sizes)

    def prepare_config_and_inputs_for_common(self):
        """The configuration and a batch; every sequence but the first has padding at its right."""
        generator = torch.Generator().manual_seed(0)
        shape = (self.batch_size, self.seq_length)
        lengths = torch.tensor([self.seq_length - row % 4 for row in range(self.batch_size)])
        positions = torch.arange(self.seq_length)
        inputs = {
            "input_ids": torch.randint(1, self.vocab_size, shape, generator=generator),
            "token_type_ids": (positions >= self.seq_length // 2).long().expand(shape).contiguous(),
            "attention_mask": (positions < lengths[:, None]).long(),
        }
        if TYPE in ("distilbert", "modernbert", "mpnet"):
            del inputs["token_type_ids"]
        return self.get_config(), inputs


class FamilyTest(ModelTesterMixin, TrainingTesterMixin, unittest.TestCase):
    """transformers' common tests, with the classes of a family."""

    model_tester = FamilyModelTester()
    all_model_classes = tuple(CLASSES.values())

    def _prepare_for_class(self, inputs_dict, model_class, return_labels=False):
        inputs_dict = super()._prepare_for_class(inputs_dict, model_class, return_labels=return_labels)
        if return_labels and model_class is CLASSES.get("ForPreTraining"):
            inputs_dict["labels"] = torch.zeros_like(inputs_dict["input_ids"])
            if TYPE != "electra":
                inputs_dict["next_sentence_label"] = torch.zeros(len(inputs_dict["input_ids"]), dtype=torch.long)
        return inputs_dict

    def test_config(self):
        ConfigTester(
            self, config_class=CONFIG_CLASS, **{"dim" if TYPE == "distilbert" else "hidden_size": 36}
        ).run_common_tests()
