"""MyBertConfig: fields as in transformers' BERT, every wrong value raises one clear sentence."""

import json
import re

import numpy as np
import pytest
import torch
import transformers
from transformers.activations import ACT2FN

import mybert
from mybert.modeling_mybert.bilstm import MyBertBiLstmConfig
from mybert.modeling_mybert.model_sizes import MODEL_SIZES


def test_fields_and_defaults_are_those_of_transformers():
    my_bert, bert = mybert.MyBertConfig().to_dict(), transformers.BertConfig().to_dict()
    assert {name: value for name, value in bert.items() if my_bert.get(name, value) != value} == {"model_type": "bert"}
    # The fields that only BERT's has belong to text generation.
    assert bert.keys() - my_bert.keys() <= {"add_cross_attention", "use_cache", "bos_token_id", "eos_token_id"}
    assert my_bert.keys() - bert.keys() == {"sparse_prediction", "unpad_inputs"}


def test_config_round_trip_is_equal(tmp_path):
    config = mybert.MyBertConfig(
        hidden_size=96,
        classifier_dropout=0.2,
        id2label={0: "no", 1: "yes", 2: "maybe"},
        label2id={"no": 0, "yes": 1, "maybe": 2},
        problem_type="single_label_classification",
    )
    config.save_pretrained(tmp_path)
    again = mybert.MyBertConfig.from_pretrained(tmp_path)
    assert again.to_dict() == config.to_dict()
    assert again.num_labels == 3 and again.id2label[2] == "maybe"


def test_fields_of_a_bert_configuration_are_taken_over(no_complaints):
    bert = transformers.BertConfig(hidden_size=24, num_hidden_layers=1)
    for config in (mybert.MyBertConfig(**bert.to_dict()), mybert.MyBertConfig.from_dict(bert.to_dict())):
        assert config.model_type == "mybert"
        assert (config.hidden_size, config.num_hidden_layers) == (24, 1)


@pytest.mark.parametrize("model_type", ["bert", None, "mybert"])
def test_a_bert_configuration_is_read_as_ours(tmp_path, model_type, no_complaints):
    fields = {"hidden_size": 64, "num_attention_heads": 2}
    (tmp_path / "config.json").write_text(json.dumps({**fields, **({"model_type": model_type} if model_type else {})}))
    config = mybert.MyBertConfig.from_pretrained(tmp_path)
    assert config.model_type == "mybert" and config.hidden_size == 64
    config.save_pretrained(tmp_path)
    assert json.loads((tmp_path / "config.json").read_text())["model_type"] == "mybert"


SIZES = (
    "vocab_size",
    "hidden_size",
    "num_attention_heads",
    "intermediate_size",
    "max_position_embeddings",
    "type_vocab_size",
)
DROPOUTS = ("hidden_dropout_prob", "attention_probs_dropout_prob", "classifier_dropout")
WRONG = [
    *[
        (name, value, "an integer from 1 to 2147483647")
        for name in SIZES
        for value in (0, -3, 1.5, "12", None, True, 2**31, 10**12)
    ],
    *[("num_hidden_layers", value, "an integer from 0 to 10000") for value in (-1, 2.0, None, 10_001, 10**9)],
    *[(name, value, "a probability between 0 and 1") for name in DROPOUTS for value in (-0.1, 1.01, "0.1", True)],
    *[("initializer_range", value, "a number of at least 0") for value in (-0.02, "0.02", None)],
    *[("layer_norm_eps", value, "a number above 0") for value in (0, -1e-12, "1e-12")],
    *[("hidden_act", value, f"one of {', '.join(sorted(ACT2FN))}") for value in ("gleu", None, 3)],
    *[("pad_token_id", value, "None or a token id between 0 and 30521") for value in (-1, 30522, 0.0)],
    ("problem_type", "classification", "None or one of regression, single_label_classification, "),
    *[
        (name, value, "True or False")
        for name in ("is_decoder", "tie_word_embeddings", "sparse_prediction")
        for value in (1, "yes", None)
    ],
    # Values that would end in a traceback inside transformers.
    *[("num_labels", value, "an integer from 0 to 10000000") for value in (10**12, -1, "3", 2.0, True)],
    *[("dtype", value, "the name of a PyTorch dtype") for value in ("float99", "nn", "torch.float32", 5, ["float32"])],
    ("torch_dtype", "float99", "the name of a PyTorch dtype"),
    *[("id2label", value, "a dictionary") for value in (["a"], "a", 5)],
    ("label2id", ["a"], "a dictionary"),
    *[("head_dim", value, "None or an integer from 1 to ") for value in (0, 2.5, True)],
]


@pytest.mark.parametrize("key", ["a", "1.5", "-1", "9" * 5000, None, 1.5])
def test_labels_have_numbers(key):
    with pytest.raises(ValueError, match=r"id2label has the key .*; expected label numbers") as caught:
        mybert.MyBertConfig(id2label={key: "yes"})
    assert len(str(caught.value)) < 500


def test_config_numbers_of_labels_from_numpy_are_integers(tmp_path):
    labels = dict(zip(np.arange(3), "abc", strict=True))
    for fields, expected in (
        ({"num_labels": np.int64(3)}, {"num_labels": 3}),
        ({"id2label": labels}, {"id2label": {0: "a", 1: "b", 2: "c"}}),
    ):
        config = mybert.MyBertConfig(**fields)
        assert config.to_json_string() == mybert.MyBertConfig(**expected).to_json_string()
        config.save_pretrained(tmp_path)
        again = mybert.MyBertConfig.from_pretrained(tmp_path, num_labels=np.int32(5))
        assert again.num_labels == 5


def test_config_error_abbreviates_long_values(tmp_path):
    for fields in ({"hidden_size": "9" * 100_000}, {"dtype": "x" * 100_000}, {"num_labels": [1] * 10_000}):
        (tmp_path / "config.json").write_text(json.dumps(fields))
        with pytest.raises(ValueError, match=f"{next(iter(fields))} is ") as caught:
            mybert.MyBertConfig.from_pretrained(tmp_path)
        assert len(str(caught.value)) < 500


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", torch.float64, None])
def test_types_of_weights(dtype):
    config = mybert.MyBertConfig(dtype=dtype)
    assert config.dtype == (getattr(torch, dtype) if isinstance(dtype, str) else dtype)


@pytest.mark.parametrize(("name", "value", "expected"), WRONG)
def test_config_wrong_values_are_errors(name, value, expected):
    with pytest.raises(ValueError, match=re.escape(f"{name} is {value!r}; expected {expected}")):
        mybert.MyBertConfig(**{name: value})


def test_heads_may_have_a_width_of_their_own(tmp_path):
    config = mybert.MyBertConfig(hidden_size=100, num_attention_heads=3, head_dim=16)
    assert config.head_size == 16 and mybert.MyBertConfig().head_size == 64
    config.save_pretrained(tmp_path)
    assert mybert.MyBertConfig.from_pretrained(tmp_path).head_dim == 16
    mybert.MyBertConfig().save_pretrained(tmp_path)
    assert "head_dim" not in (tmp_path / "config.json").read_text()


@pytest.mark.parametrize(
    ("fields", "sentence"),
    [
        *(
            ({"position_embedding_type": kind}, f"position_embedding_type is '{kind}'; MyBERT has 'absolute'")
            for kind in ("relative_key", "relative_key_query")
        ),
        ({"add_cross_attention": True}, "add_cross_attention is True; MyBERT is an encoder"),
        ({"hidden_size": 100}, r"hidden_size \(100\) must be a multiple of num_attention_heads \(12\)\."),
    ],
)
def test_config_unsupported_fields_are_errors(fields, sentence):
    with pytest.raises(ValueError, match=sentence):
        mybert.MyBertConfig(**fields)
    mybert.MyBertConfig(position_embedding_type="absolute")


def test_config_of_a_bilstm_needs_an_even_width():
    with pytest.raises(ValueError, match=r"^hidden_size is 15; a BiLSTM needs an even one\.$"):
        MyBertBiLstmConfig(hidden_size=15, num_attention_heads=3)


def test_a_value_assigned_later_is_checked_by_the_model():
    config = mybert.MyBertConfig()
    config.hidden_size = 100
    with pytest.raises(ValueError, match=r"hidden_size \(100\) must be a multiple"):
        mybert.MyBertForMaskedLM(config)


def test_question_answering_has_two_labels():
    with pytest.raises(ValueError, match="num_labels is 3; question answering has 2"):
        mybert.MyBertForQuestionAnswering(mybert.MyBertConfig(num_labels=3))


def test_a_misspelled_field_is_noticed(record_complaints):
    with record_complaints() as complaints:
        config = mybert.MyBertConfig(hidden_dropuot_prob=0.3)
    assert complaints and "Did you mean 'hidden_dropout_prob'?" in complaints[0]
    assert config.hidden_dropout_prob == 0.1


def test_fields_of_others_are_kept_in_silence(no_complaints):
    config = mybert.MyBertConfig(pooler_type="first_token_transform", summary_note="kept", torch_dtype="float32")
    assert config.summary_note == "kept"
    assert mybert.MyBertConfig(num_labels=5).id2label == {number: f"LABEL_{number}" for number in range(5)}


@pytest.mark.parametrize("classifier_dropout", [0, 0.0, 1, None])
def test_limits_of_ranges_are_allowed(classifier_dropout):
    mybert.MyBertConfig(
        classifier_dropout=classifier_dropout, num_hidden_layers=0, initializer_range=0, pad_token_id=None
    )


@pytest.mark.parametrize(
    ("size", "parameters"),
    [
        # Of the released models, with 30,522 pieces and a pooler.
        ("tiny", 4_385_920),
        ("mini", 11_170_560),
        ("small", 28_763_648),
        ("medium", 41_373_184),
        ("base", 109_482_240),
        ("large", 335_141_888),
    ],
)
def test_sizes_have_the_parameters_of_the_released_models(size, parameters):
    layers, width, heads = MODEL_SIZES[size]
    sizes = {"num_hidden_layers": layers, "hidden_size": width, "num_attention_heads": heads}
    with torch.device("meta"):
        model = mybert.MyBertModel(mybert.MyBertConfig(**sizes, intermediate_size=4 * width))
    assert model.num_parameters() == parameters and width // heads == 64
