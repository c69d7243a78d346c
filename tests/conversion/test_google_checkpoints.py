"""Google's checkpoints become MyBERT models with the same outputs as Google's code."""

import dataclasses
import gzip
import io
import json
import shutil
import stat
import tarfile
import zipfile
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file
from transformers import AutoConfig, AutoModel, AutoModelForTokenClassification, AutoTokenizer

import mybert
from mybert.conversion import (
    convert_google_checkpoint,
    key_map,
    load_optimizer_state,
    read_tensor_bundle,
    verify_conversion,
    write_tensor_bundle,
)
from mybert.conversion.google_source import open_source
from mybert.conversion.tensorflow.tensor_bundle import SUFFIX

FIXTURES = Path(__file__).parents[1] / "fixtures"
TF1, TF2 = FIXTURES / "google_tf1", FIXTURES / "google_tf2"
HIDDEN = 32
CLASSES = {head: getattr(mybert, f"MyBert{entry.class_suffix}") for head, entry in key_map.HEADS.items()}


def tiny_config():
    sizes = {"hidden_size": 12, "num_hidden_layers": 2, "num_attention_heads": 3, "intermediate_size": 20}
    return mybert.MyBertConfig(vocab_size=30, max_position_embeddings=16, hidden_act="gelu_pytorch_tanh", **sizes)


# --- the table -------------------------------------------------------------------------------------------------------


def test_the_table_is_read_backwards():
    sizes = key_map.sizes_of(tiny_config())
    rng = np.random.default_rng(0)
    for row in [*key_map.encoder_rows(1), *(row for group in key_map.GROUPS.values() for row in group)]:
        parameter = rng.normal(size=row.parameter_shape(sizes)).astype(np.float32)
        if row.google:
            variable = row.to_google(parameter)
            assert variable.shape == row.variable_shape("google", sizes)
            assert np.array_equal(row.to_parameter("google", variable), parameter)
        if row.keras_shape:
            shape = row.variable_shape("keras", sizes)
            assert np.prod(shape) == parameter.size and len(shape) == len(row.shape) + 1


# --- against the activations that Google's code computed -------------------------------------------------------------


def compare(model, reference, names, **inputs):
    """Compare outputs at all positions that are not padding."""
    model.eval()
    mask = torch.from_numpy(reference["input_mask"]).long()
    with torch.no_grad():
        output = model(
            input_ids=torch.from_numpy(reference["input_ids"]).long(),
            attention_mask=mask,
            token_type_ids=torch.from_numpy(reference["segment_ids"]).long(),
            **inputs,
        )
    assert names
    for name, expected in names.items():
        found = output[name]
        expected = torch.from_numpy(reference[expected] if isinstance(expected, str) else expected)
        if isinstance(found, tuple):
            found = torch.stack(found[-len(expected) :])
        assert found.shape == expected.shape, (name, found.shape, expected.shape)
        difference = (found - expected).abs()
        if mask.shape == expected.shape[-3:-1]:
            difference = difference * mask[..., None]
        elif mask.shape == expected.shape:
            difference = difference * mask
        assert difference.max() < 1e-5, (name, difference.max())
    return output


def reference_of(folder):
    return dict(np.load(folder / "reference.npz"))


@pytest.mark.parametrize(
    ("name", "head", "outputs"),
    [
        ("pretrain", None, {"prediction_logits": "mlm_logits", "seq_relationship_logits": "nsp_logits"}),
        ("pretrain", "masked-lm", {"logits": "mlm_logits"}),
        ("pretrain", "next-sentence", {"logits": "nsp_logits"}),
        ("pretrain", "encoder", {"last_hidden_state": "sequence_output", "pooler_output": "pooled_output"}),
        ("classifier", None, {"logits": "classifier_logits"}),
        ("classifier", "pretraining", {"prediction_logits": "mlm_logits", "seq_relationship_logits": "nsp_logits"}),
        ("squad_adam", None, {}),
        ("squad_adam", "encoder", {"last_hidden_state": "sequence_output", "pooler_output": "pooled_output"}),
    ],
)
def test_tensorflow_1(converted, name, head, outputs):
    reference = reference_of(TF1 / name)
    folder, report = converted(name, head)
    assert report.verification is not None and report.verification.ok and not report.initialized
    model = CLASSES[report.head].from_pretrained(folder)
    assert model.config.hidden_act == "gelu_pytorch_tanh"
    if report.head == "question-answering":
        outputs = {f"{end}_logits": reference["squad_logits"][..., i] for i, end in enumerate(("start", "end"))}
    output = compare(model, reference, outputs | {"hidden_states": "all_layers"}, output_hidden_states=True)
    embedded = output.hidden_states[0]
    mask = torch.from_numpy(reference["input_mask"])[..., None]
    assert ((embedded - torch.from_numpy(reference["embedding_output"])) * mask).abs().max() < 1e-5


@pytest.mark.parametrize("encoder", ["BertEncoder", "BertEncoderV2"])
@pytest.mark.parametrize("kind", ["encoder", "pretrainer"])
def test_tensorflow_2(tmp_path, encoder, kind):
    reference = reference_of(TF2 / encoder)
    report = convert_google_checkpoint(TF2 / encoder / kind, tmp_path / "model")
    model = CLASSES[report.head].from_pretrained(tmp_path / "model")
    if kind == "encoder":
        assert report.head == "encoder"
        outputs = {"last_hidden_state": "sequence_output", "pooler_output": "pooled_output"}
    else:
        assert report.head == "pretraining"
        outputs = {"seq_relationship_logits": "next_sentence"}
    output = compare(model, reference, outputs | {"hidden_states": "encoder_outputs"}, output_hidden_states=True)
    if kind == "pretrainer":
        places = torch.from_numpy(reference["masked_lm_positions"]).long()
        picked = output.prediction_logits.gather(
            1, places[..., None].expand(-1, -1, output.prediction_logits.shape[-1])
        )
        assert (picked - torch.from_numpy(reference["mlm_logits"])).abs().max() < 1e-5
        # The encoder inside the pretrainer keeps its own pooler.
        convert_google_checkpoint(TF2 / encoder / kind, tmp_path / "encoder", "encoder")
        inner = mybert.MyBertModel.from_pretrained(tmp_path / "encoder")
        compare(inner, reference, {"pooler_output": "pooled_output"})
        assert not torch.equal(inner.pooler.dense.weight, model.bert.pooler.dense.weight)


def test_an_older_tf2_checkpoint_without_pooler_gets_a_new_one(tmp_path, copy_checkpoint):
    source = TF2 / "BertEncoder" / "encoder"
    with open_source(source) as found:
        pooler = [key for key in read_tensor_bundle(found.prefix) if "/layer_with_weights-6/" in key]
    assert len(pooler) == 2
    changes = dict.fromkeys(["_CHECKPOINTABLE_OBJECT_GRAPH", *pooler])
    folder = copy_checkpoint(source, tmp_path / "source", **changes)
    report = convert_google_checkpoint(folder, tmp_path / "model")
    assert report.initialized == ("bert.pooler.dense.weight", "bert.pooler.dense.bias") and report.verification.ok


@pytest.mark.parametrize("source", ["saved_model", "saved_model/variables/variables", "saved_model/variables"])
def test_saved_model_without_configuration(tmp_path, source):
    report = convert_google_checkpoint(TF2 / source, tmp_path / "model")
    assert any("read off the shapes" in decision for decision in report.decisions)
    model = AutoModel.from_pretrained(tmp_path / "model")
    assert model.config.num_attention_heads == 4 and model.config.vocab_size == 211
    outputs = {"last_hidden_state": "sequence_output", "pooler_output": "pooled_output"}
    compare(model, reference_of(TF2 / "BertEncoder"), outputs)


def test_a_tf2_checkpoint_without_object_graph(tmp_path, copy_checkpoint):
    graph = {"_CHECKPOINTABLE_OBJECT_GRAPH": None}
    for encoder in ("BertEncoder", "BertEncoderV2"):
        folder = copy_checkpoint(TF2 / encoder / "encoder", tmp_path / encoder, **graph)
        convert_google_checkpoint(folder, tmp_path / "model", overwrite=True)
        model = AutoModel.from_pretrained(tmp_path / "model")
        compare(model, reference_of(TF2 / encoder), {"pooler_output": "pooled_output"})


@pytest.mark.parametrize(
    ("number", "shape", "message"),
    [
        (0, (211,), "_embedding_layer/embeddings has shape .211,.; expected 2 sizes"),
        (11, (4, 9, 32), "the shapes contradict each other: .*'hidden_size': 32"),
    ],
)
def test_shapes_from_which_no_configuration_follows_are_errors(tmp_path, copy_checkpoint, number, shape, message):
    changed = {f"variables/{number}{SUFFIX}": np.ones(shape, np.float32)}
    folder = copy_checkpoint(TF2 / "saved_model", tmp_path / "source", **changed)
    with pytest.raises(ValueError, match=message):
        convert_google_checkpoint(folder, tmp_path / "model")


def test_a_checkpoint_of_two_encoders_is_an_error(tmp_path):
    names = [
        f"{encoder}/{layer}/x{SUFFIX}"
        for encoder in "ab"
        for layer in ("_transformer_layers", "_embedding_norm_layer")
    ]
    write_tensor_bundle(tmp_path / "m", dict.fromkeys(names, np.float32(1)))
    with pytest.raises(ValueError, match="it holds 2 encoders; expected one"):
        convert_google_checkpoint(tmp_path / "m", tmp_path / "model")


# --- heads -----------------------------------------------------------------------------------------------------------


def test_token_classification_has_to_be_named(tmp_path):
    report = convert_google_checkpoint(
        TF1 / "classifier", tmp_path / "model", "token_classification", labels=["O", "B-PER", "I-PER"]
    )
    assert report.head == "token-classification" and report.ignored["weight the head does not use"]
    model = AutoModelForTokenClassification.from_pretrained(tmp_path / "model")
    assert model.config.id2label == {0: "O", 1: "B-PER", 2: "I-PER"}
    reference = reference_of(TF1 / "classifier")
    weights = read_tensor_bundle(TF1 / "classifier" / "bert_model.ckpt")
    expected = reference["sequence_output"] @ weights["output_weights"].T + weights["output_bias"]
    compare(model, reference, {"logits": expected.astype(np.float32)})


def test_labels_of_a_classifier_may_be_numbers(tmp_path):
    convert_google_checkpoint(TF1 / "classifier", tmp_path / "model", labels=[2, 0, 1], verify=False)
    assert AutoConfig.from_pretrained(tmp_path / "model").label2id == {"2": 0, "0": 1, "1": 2}


def test_multiple_choice_has_one_score(tmp_path, copy_checkpoint):
    one = {"output_weights": np.ones((1, HIDDEN), np.float32), "output_bias": np.zeros(1, np.float32)}
    folder = copy_checkpoint(TF1 / "classifier", tmp_path / "source", **one)
    report = convert_google_checkpoint(folder, tmp_path / "model", "multiple-choice")
    assert report.verification.outputs == {"logits": (2, 3)}
    with pytest.raises(ValueError, match=r"has shape \(3, 32\), but the .* \(1, 32\)"):
        convert_google_checkpoint(TF1 / "classifier", tmp_path / "other", "multiple-choice")
    assert not (tmp_path / "other").exists()


def test_a_head_that_is_not_there_is_newly_initialized_and_said_so(tmp_path, caplog):
    arguments = {"head": "classifier", "labels": ["no", "perhaps", "yes", "never"]}
    report = convert_google_checkpoint(TF1 / "pretrain", tmp_path / "model", **arguments)
    assert report.initialized == ("classifier.weight", "classifier.bias")
    assert "newly initialized" in caplog.text and "classifier.weight" in str(report)
    weights = load_file(tmp_path / "model" / "model.safetensors")
    assert 0.01 < weights["classifier.weight"].std() < 0.03 and not weights["classifier.bias"].any()
    convert_google_checkpoint(TF1 / "pretrain", tmp_path / "again", **arguments)
    assert (tmp_path / "again" / "model.safetensors").read_bytes() == (
        tmp_path / "model" / "model.safetensors"
    ).read_bytes()
    convert_google_checkpoint(TF1 / "pretrain", tmp_path / "again", **arguments, seed=1, overwrite=True)
    other = load_file(tmp_path / "again" / "model.safetensors")["classifier.weight"]
    assert not torch.equal(other, weights["classifier.weight"])


# --- optimizer -------------------------------------------------------------------------------------------------------


def test_optimizer_state(converted):
    folder, report = converted("squad_adam", optimizer_state=True)
    assert report.optimizer_step == 1234
    assert not any(key.startswith("cls/squad") for key in report.ignored["optimizer slot"])
    model = mybert.MyBertForQuestionAnswering.from_pretrained(folder)
    optimizer = torch.optim.AdamW(model.parameters())
    assert load_optimizer_state(folder, model, optimizer) == 1234
    bundle = read_tensor_bundle(TF1 / "squad_adam" / "bert_model.ckpt")
    for row in key_map.model_rows("question-answering", 2):
        state = optimizer.state[model.get_parameter(row.parameter)]
        for moment, slot in (("exp_avg", "adam_m"), ("exp_avg_sq", "adam_v")):
            assert np.array_equal(state[moment].numpy(), row.to_parameter("google", bundle[f"{row.google}/{slot}"]))
        assert state["step"] == 1234


def test_an_older_name_of_the_slots(tmp_path, copy_checkpoint, converted):
    old = {}
    for name, value in read_tensor_bundle(TF1 / "squad_adam" / "bert_model.ckpt").items():
        if name.endswith(("adam_m", "adam_v")):
            renamed = name.replace("adam_m", "BERTAdam").replace("adam_v", "BERTAdam_1")
            old |= {name: None, renamed: value}
    folder = copy_checkpoint(TF1 / "squad_adam", tmp_path / "old", **old)
    convert_google_checkpoint(folder, tmp_path / "model", optimizer_state=True)
    a, b = (
        load_file(path / "optimizer.safetensors")
        for path in (converted("squad_adam", optimizer_state=True)[0], tmp_path / "model")
    )
    assert a.keys() == b.keys() and all(torch.equal(a[name], b[name]) for name in a)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"global_step": None}, "no integer global_step"),
        ({"bert/embeddings/word_embeddings/adam_m": None}, "only one of its two moments"),
        ({"bert/embeddings/word_embeddings/adam_m": np.ones(3, np.float32)}, "has shape"),
        ({"global_step": np.int64(-1)}, "global_step is -1"),
    ],
)
def test_broken_optimizer_states(tmp_path, change, message, copy_checkpoint):
    folder = copy_checkpoint(TF1 / "squad_adam", tmp_path / "source", **change)
    with pytest.raises(ValueError, match=message):
        convert_google_checkpoint(folder, tmp_path / "model", optimizer_state=True)
    assert not (tmp_path / "model").exists()


def test_there_is_no_optimizer_state(tmp_path):
    for source in (TF1 / "pretrain", TF2 / "BertEncoder" / "encoder"):
        with pytest.raises(ValueError):
            convert_google_checkpoint(source, tmp_path / "model", optimizer_state=True)
    convert_google_checkpoint(TF1 / "squad_adam", tmp_path / "model", "encoder", optimizer_state=True)
    model = mybert.MyBertForMaskedLM(tiny_config())
    optimizer = torch.optim.AdamW(model.parameters())
    other = mybert.MyBertModel(tiny_config())
    with pytest.raises(ValueError, match="shape"):
        load_optimizer_state(tmp_path / "model", other, torch.optim.AdamW(other.parameters()))
    with pytest.raises(ValueError, match="fit no trained parameter"):
        load_optimizer_state(tmp_path / "model", model, optimizer)
    with pytest.raises(FileNotFoundError, match="no such file"):
        load_optimizer_state(tmp_path / "nothing", model, optimizer)
    file = tmp_path / "model" / "optimizer.safetensors"
    save_file(load_file(file), file, {"step": "some"})
    with pytest.raises(ValueError, match="the step is 'some'; expected a number"):
        load_optimizer_state(file, model, optimizer)
    file.write_bytes(file.read_bytes()[:-1])
    with pytest.raises(ValueError, match=r"optimizer\.safetensors: the file cannot be read: .*incomplete"):
        load_optimizer_state(file, model, optimizer)


# --- every variable is accounted for ---------------------------------------------------------------------------------


def test_unknown_variables(tmp_path, copy_checkpoint):
    folder = copy_checkpoint(TF1 / "pretrain", tmp_path / "source", **{"my/extra/kernel": np.ones(2, np.float32)})
    with pytest.raises(ValueError, match=r"1 variables are not known: 'my/extra/kernel'"):
        convert_google_checkpoint(folder, tmp_path / "model")
    report = convert_google_checkpoint(folder, tmp_path / "model", ignore=["my/.*"])
    assert report.ignored["named by the user"] == ("my/extra/kernel",)
    assert verify_conversion(folder, tmp_path / "model", ignore=["my/.*"]).ok
    with pytest.raises(ValueError, match="not a regular expression"):
        convert_google_checkpoint(folder, tmp_path / "other", ignore=["("])


END = "/.ATTRIBUTES/VARIABLE_VALUE"
POOLER = "bert/pooler/dense"


@pytest.mark.parametrize(
    ("source", "kinds"),
    [
        (
            TF1 / "pretrain",
            {
                "optimizer slot": [
                    "beta1_power",
                    *(f"{POOLER}/bias/{name}" for name in ("Adam", "Adam_1", "Momentum", "lamb_m")),
                ],
                "moving average": [f"{POOLER}/kernel/ExponentialMovingAverage"],
                "loss scale": ["current_loss_scale", "good_steps"],
                "training signal": ["signal_early_stopping/STOP"],
            },
        ),
        (
            TF2 / "BertEncoderV2" / "encoder",
            {
                "optimizer slot": [
                    f"encoder/_pooler_layer/kernel/.OPTIMIZER_SLOT/optimizer/m{END}",
                    f"optimizer/learning_rate{END}",
                ],
                "step counter": [f"global_step{END}", f"save_counter{END}"],
            },
        ),
    ],
)
def test_variables_of_training_are_ignored_by_kind(tmp_path, source, kinds, copy_checkpoint):
    extra = {name: np.ones((), np.float32) for names in kinds.values() for name in names}
    folder = copy_checkpoint(source, tmp_path / "source", **extra)
    report = convert_google_checkpoint(folder, tmp_path / "model", verify=False)
    assert {kind: sorted(report.ignored[kind]) for kind in kinds} == {
        kind: sorted(names) for kind, names in kinds.items()
    }


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"bert/encoder/layer_1/output/dense/bias": None}, "missing: 'bert/encoder/layer_1/output/dense/bias'"),
        ({"cls/predictions/output_bias": None}, "cls/predictions/output_bias"),
        ({"bert/embeddings/position_embeddings": np.ones((50, HIDDEN), np.float32)}, r"\(50, 32\), .* \(48, 32\)"),
        ({"bert/pooler/dense/bias": np.ones(HIDDEN, np.int32)}, "bert/pooler/dense/bias' is of type int32"),
        ({"bert/embeddings/word_embeddings": None}, "not a BERT"),
        ({"bert/encoder/layer_2/output/dense/bias": np.ones(HIDDEN, np.float32)}, "has 3 layers, num_hidden_layers"),
        ({"bert/pooler/dense/bias": np.full(HIDDEN, np.nan, np.float32)}, "seq_relationship_logits is not finite"),
    ],
)
def test_variables_that_do_not_fit(tmp_path, change, message, copy_checkpoint):
    folder = copy_checkpoint(TF1 / "pretrain", tmp_path / "source", **change)
    with pytest.raises(ValueError, match=message):
        convert_google_checkpoint(folder, tmp_path / "model")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["source"], "nothing half-written"


def test_damage_in_what_is_ignored_is_found_too(tmp_path):
    shutil.copytree(TF1 / "squad_adam", tmp_path / "source")
    path = tmp_path / "source" / "bert_model.ckpt.data-00000-of-00001"
    info = read_tensor_bundle(path).info["bert/pooler/dense/kernel/adam_v"]
    content = bytearray(path.read_bytes())
    content[info.offset] ^= 4
    path.write_bytes(content)
    with pytest.raises(ValueError, match=r"adam_v.* has checksum"):
        convert_google_checkpoint(tmp_path / "source", tmp_path / "model")


@pytest.mark.parametrize("dtype", [np.float16, np.float64])
def test_weights_become_float32(tmp_path, dtype, copy_checkpoint):
    tensors = {
        name: value.astype(dtype) if value.dtype == np.float32 else value
        for name, value in read_tensor_bundle(TF1 / "pretrain" / "bert_model.ckpt").items()
    }
    folder = copy_checkpoint(TF1 / "pretrain", tmp_path / "source", **tensors)
    assert convert_google_checkpoint(folder, tmp_path / "model").verification.ok
    weights = load_file(tmp_path / "model" / "model.safetensors")
    assert {value.dtype for value in weights.values()} == {torch.float32}


# --- configuration ---------------------------------------------------------------------------------------------------


def test_the_whole_configuration_is_taken_over(tmp_path):
    source = json.loads((TF1 / "pretrain" / "bert_config.json").read_text())
    source |= {"hidden_dropout_prob": 0.25, "attention_probs_dropout_prob": 0.35, "initializer_range": 0.05}
    source |= {
        "directionality": "bidi",
        "pooler_type": "first_token_transform",
    }  # in the Chinese release, without effect
    (tmp_path / "config.json").write_text(json.dumps(source))
    convert_google_checkpoint(TF1 / "pretrain", tmp_path / "model", config_file=tmp_path / "config.json")
    config = mybert.MyBertConfig.from_pretrained(tmp_path / "model")
    for name, value in source.items():
        if name not in ("hidden_act", "directionality", "pooler_type"):
            assert getattr(config, name) == value, name
    assert config.architectures == ["MyBertForPreTraining"] and config.hidden_act == "gelu_pytorch_tanh"


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ("{", "is not JSON"),
        ("[1]", "a JSON list"),
        ("{}", "is missing"),
        ("[" * 10**5, "JSON"),
        ({"num_hidden_layers": 10**12}, "num_hidden_layers is 1000000000000; expected an integer from"),
        ({"num_hidden_layers": 3}, "has 2 layers, num_hidden_layers of the configuration is 3"),
        ({"num_hidden_layers": -1}, "num_hidden_layers is -1"),
        ({"num_attention_heads": 5}, "multiple of num_attention_heads"),
        ({"hidden_size": "32"}, "hidden_size"),
        ({"hidden_act": "swish"}, "hidden_act is 'swish'; expected one of gelu, relu, tanh, linear"),
        ({"hidden_act": 5}, "hidden_act is 5"),
        ({"vocab_size": 10**15}, "vocab_size is 1000000000000000; expected an integer from"),
        ({"vocab_size": 10**9}, r"\(211, 32\), but the configuration asks for \(1000000000, 32\)"),
        ({"embedding_size": 16}, "this is not a BERT"),
        ({"vocab_size": None}, "vocab_size"),
    ],
)
def test_configurations_that_do_not_fit(tmp_path, change, message):
    if isinstance(change, dict):
        change = json.dumps(json.loads((TF1 / "pretrain" / "bert_config.json").read_text()) | change)
    (tmp_path / "config.json").write_text(change)
    with pytest.raises(ValueError, match=message):
        convert_google_checkpoint(TF1 / "pretrain", tmp_path / "model", config_file=tmp_path / "config.json")


def test_a_tf1_checkpoint_needs_its_configuration(tmp_path):
    (tmp_path / "deep").mkdir()
    for file in (TF1 / "pretrain").glob("bert_model*"):
        shutil.copy(file, tmp_path / "deep" / file.name)
    with pytest.raises(FileNotFoundError, match="no bert_config"):
        convert_google_checkpoint(tmp_path / "deep", tmp_path / "model")


# --- vocabulary ------------------------------------------------------------------------------------------------------


WORDS = ["the", "fox", "quick", "."]
KEPT_CASE = ["The", "Fox", "Quick"]


@pytest.mark.parametrize(
    ("name", "words", "options", "said", "tokens"),
    [
        ("plain", WORDS, {}, "uncased, the vocabulary holds (almost) no capital", ["the", "fox"]),
        ("plain", WORDS, {"do_lower_case": False}, "cased, as asked for", ["[UNK]", "[UNK]"]),
        ("plain", [*WORDS, *KEPT_CASE], {}, "cased, the vocabulary holds capital letters", ["The", "Fox"]),
        ("plain", [*WORDS, *KEPT_CASE], {"do_lower_case": True}, "uncased, as asked for", ["the", "fox"]),
        ("cased_L-2", WORDS, {}, "uncased, the vocabulary holds (almost) no capital", ["the", "fox"]),
        ("cased_L-2", ["漢", "字"], {}, "cased, the name says so", ["[UNK]", "[UNK]"]),
        ("plain", ["漢", "字"], {}, "uncased, as no piece has case", ["[UNK]", "[UNK]"]),
    ],
)
def test_whether_to_lower_case(
    tmp_path, caplog, name, words, options, said, tokens, write_vocab, copy_checkpoint, pieces
):
    folder = copy_checkpoint(TF1 / "pretrain", tmp_path / name)
    write_vocab(folder, [*pieces[:5], *words])
    report = convert_google_checkpoint(folder, tmp_path / "model", verify=False, **options)
    assert [decision for decision in report.decisions if decision.startswith(f"tokenizer: {said}")]
    tokenizer = AutoTokenizer.from_pretrained(tmp_path / "model")
    assert tokenizer.tokenize("The Fox") == tokens and tokenizer.model_max_length == 48
    assert (tmp_path / "model" / "vocab.txt").read_bytes() == (folder / "vocab.txt").read_bytes()
    assert ("the vocabulary wins" in caplog.text) == (name.startswith("cased") and said.startswith("un"))


def test_padding_is_where_the_vocabulary_has_it(tmp_path, write_vocab, copy_checkpoint, pieces):
    folder = copy_checkpoint(TF1 / "pretrain", tmp_path / "source")
    write_vocab(folder, [*pieces[5:], *pieces[:5]])
    convert_google_checkpoint(folder, tmp_path / "model")
    model = mybert.MyBertModel.from_pretrained(tmp_path / "model")
    tokenizer = AutoTokenizer.from_pretrained(tmp_path / "model")
    assert model.embeddings.word_embeddings.padding_idx == tokenizer.pad_token_id == len(pieces) - 5


def test_a_vocabulary_that_kept_accents(tmp_path, write_vocab, copy_checkpoint, pieces):
    folder = copy_checkpoint(TF1 / "pretrain", tmp_path / "source")
    write_vocab(folder, [*pieces, "한", "##국", "café"])
    report = convert_google_checkpoint(folder, tmp_path / "model")
    assert any("accents: kept, as the vocabulary has them" in decision for decision in report.decisions)
    assert AutoTokenizer.from_pretrained(tmp_path / "model").tokenize("한국 Café") == ["한", "##국", "café"]
    report = convert_google_checkpoint(folder, tmp_path / "model", strip_accents=True, overwrite=True)
    assert not any("accents" in decision for decision in report.decisions)
    assert AutoTokenizer.from_pretrained(tmp_path / "model").tokenize("한국") == ["[UNK]"]


def test_without_vocabulary_there_is_no_tokenizer(tmp_path, caplog):
    report = convert_google_checkpoint(TF1 / "pretrain", tmp_path / "model", verify=False)
    assert "no vocab.txt" in caplog.text and any("tokenizer: none" in decision for decision in report.decisions)
    assert {path.name for path in (tmp_path / "model").iterdir()} == {
        "README.md", "config.json", "conversion.json", "model.safetensors"
    }  # fmt: skip


def test_a_vocabulary_that_is_too_large(tmp_path, write_vocab, pieces):
    vocab = write_vocab(tmp_path, [*pieces, *(f"x{i}" for i in range(300))])
    with pytest.raises(ValueError, match="holds 361 pieces, vocab_size of the configuration is 211"):
        convert_google_checkpoint(TF1 / "pretrain", tmp_path / "model", vocab_file=vocab)


def test_the_checkpoints_own_setting_wins(tmp_path, write_vocab, copy_checkpoint):
    key = "do_lower_case/.ATTRIBUTES/VARIABLE_VALUE"
    folder = copy_checkpoint(TF2 / "BertEncoder" / "encoder", tmp_path / "source", **{key: np.array(False)})
    write_vocab(folder)
    report = convert_google_checkpoint(folder, tmp_path / "model")
    assert f"tokenizer: cased, the checkpoint's {key} says so" in report.decisions
    assert report.ignored["tokenizer setting"] == (key,)


# --- sources ---------------------------------------------------------------------------------------------------------


@pytest.fixture
def release(tmp_path, write_vocab, copy_checkpoint):
    """A folder like those in Google's archives."""
    folder = copy_checkpoint(TF1 / "pretrain", tmp_path / "uncased_L-2_H-32_A-4")
    write_vocab(folder)
    return folder


def pack(folder, archive, extra=()):
    if archive.suffix == ".zip":
        with zipfile.ZipFile(archive, "w", zipfile.ZIP_DEFLATED) as out:
            for path in sorted(folder.iterdir()):
                out.write(path, f"{folder.name}/{path.name}")
            for info, content in extra:
                out.writestr(info, content)
    else:
        with tarfile.open(archive, "w:gz" if archive.suffix == ".gz" else "w") as out:
            out.add(folder, f"./{folder.name}")
            for info, content in extra:
                out.addfile(info, io.BytesIO(content))
    return archive


@pytest.mark.parametrize("kind", ["folder", "outer", "prefix", "index", "a.zip", "a.tar.gz", "a.tar"])
def test_sources(tmp_path, release, kind):
    source = {
        "folder": release,
        "outer": release.parent,
        "prefix": release / "bert_model.ckpt",
        "index": release / "bert_model.ckpt.index",
    }.get(kind) or pack(release, tmp_path / kind)
    report = convert_google_checkpoint(source, tmp_path / "model")
    assert report.head == "pretraining" and report.verification.ok
    assert AutoTokenizer.from_pretrained(tmp_path / "model").tokenize("quicker") == ["quick", "##er"]
    assert verify_conversion(source, tmp_path / "model").ok


@pytest.mark.parametrize("kind", ["folder", "outer", "a.zip", "a.tar.gz"])
def test_open_source_next_to_files_of_macos_finds_the_checkpoint(tmp_path, release, kind):
    macos = tmp_path / "__MACOSX" / release.name
    macos.mkdir(parents=True)
    (release / "checkpoint").unlink()  # which would name the right one
    for path in list(release.iterdir()):
        for folder in (release, macos):
            (folder / f"._{path.name}").write_bytes(b"\0\5\x16\7")
    source = {"folder": release, "outer": tmp_path}.get(kind) or pack(release, tmp_path / kind)
    with open_source(source) as found:
        assert found.prefix.name == "bert_model.ckpt"
        if kind.startswith("a."):
            assert not list(found.prefix.parent.glob("._*"))


@pytest.mark.parametrize(
    ("place", "source"),
    [
        (".", "ft"),
        ("ft", "."),
        ("ft", "bert_model.ckpt"),
        ("ft/work", ".."),
        ("ft/work", "../bert_model.ckpt"),
        ("ft/work/deeper", "../.."),
    ],
)
def test_open_source_by_relative_path_looks_in_the_folder_above(tmp_path, release, monkeypatch, place, source):
    release.rename(tmp_path / "ft")
    for name in ("vocab.txt", "bert_config.json"):
        (tmp_path / "ft" / name).rename(tmp_path / name)
    (tmp_path / "ft/work/deeper").mkdir(parents=True)
    (tmp_path / "ft/work/vocab.txt").write_text("of another model")
    monkeypatch.chdir(tmp_path / place)
    with open_source(source) as found:
        assert found.vocab_file.samefile(tmp_path / "vocab.txt")
        assert found.config_file.samefile(tmp_path / "bert_config.json")


def test_the_state_file_names_the_latest(release):
    for step in (5, 7):
        write_tensor_bundle(release / f"model.ckpt-{step}", dict(read_tensor_bundle(release / "bert_model.ckpt")))
    with open_source(release) as found:
        assert found.prefix.name == "model.ckpt-7"
    (release / "checkpoint").write_text('model_checkpoint_path: "/else/where/model.ckpt-5"\n')
    with open_source(release) as found:
        assert found.prefix == release / "model.ckpt-5"
    (release / "checkpoint").unlink()
    with (
        pytest.raises(ValueError, match=r"holds 3 checkpoints \(bert_model.ckpt, model.ckpt-5"),
        open_source(release),
    ):
        pass


def test_sources_without_checkpoint(tmp_path):
    with pytest.raises(ValueError, match="holds no TensorFlow checkpoint"):
        convert_google_checkpoint(tmp_path, tmp_path / "model")
    with pytest.raises(FileNotFoundError, match="no such file"):
        convert_google_checkpoint(tmp_path / "nothing", tmp_path / "model")


def zip_member(name, mode=0o100644):
    info = zipfile.ZipInfo(name)
    info.external_attr = mode << 16
    return info


def tar_member(name, kind=tarfile.REGTYPE, size=0, link=""):
    info = tarfile.TarInfo(name)
    info.type, info.size, info.linkname = kind, size, link
    return info


UNSAFE_ZIP = [
    (zip_member("../vocab.txt"), b"x"),
    (zip_member("a/../../vocab.txt"), b"x"),
    (zip_member("/etc/vocab.txt"), b"x"),
    (zip_member("..\\vocab.txt"), b"x"),
    (zip_member("C:/vocab.txt"), b"x"),
    (zip_member("a/link", stat.S_IFLNK | 0o777), b"/etc/passwd"),
    (zip_member("uncased_L-2_H-32_A-4/vocab.txt"), b"x"),
]
UNSAFE_TAR = [
    (tar_member("../vocab.txt", size=1), b"x"),
    (tar_member("/etc/vocab.txt", size=1), b"x"),
    (tar_member("a/vocab.txt", tarfile.SYMTYPE, link="/etc/passwd"), b""),
    (tar_member("a/vocab.txt", tarfile.LNKTYPE, link="../../secret"), b""),
    (tar_member("a/pipe", tarfile.FIFOTYPE), b""),
    (tar_member("uncased_L-2_H-32_A-4/vocab.txt", size=1), b"x"),
]


@pytest.mark.filterwarnings("ignore:Duplicate name")
@pytest.mark.parametrize(
    ("archive", "member"), [*(("a.zip", m) for m in UNSAFE_ZIP), *(("a.tar.gz", m) for m in UNSAFE_TAR)]
)
def test_unsafe_members(tmp_path, release, archive, member):
    pack(release, tmp_path / archive, [member])
    before = sorted(tmp_path.rglob("*"))
    with pytest.raises(ValueError, match=r"member .* is refused"):
        convert_google_checkpoint(tmp_path / archive, tmp_path / "model")
    assert sorted(tmp_path.rglob("*")) == before


def test_members_with_backslashes_are_named(tmp_path, release):
    pack(release, tmp_path / "a.zip", [(zip_member("uncased\\vocab.txt"), b"x")])
    with pytest.raises(ValueError, match=r"is refused: its name has the character .* expected / between folders"):
        convert_google_checkpoint(tmp_path / "a.zip", tmp_path / "model")


@pytest.mark.parametrize(("suffix", "mode"), [("bz2", "w:bz2"), ("xz", "w:xz")])
def test_archives_of_other_kinds_are_named(tmp_path, release, suffix, mode):
    with tarfile.open(tmp_path / f"a.tar.{suffix}", mode) as out:
        out.add(release, release.name)
    with pytest.raises(ValueError, match=rf"a\.tar\.{suffix}: .*; expected a zip, tar or tar\.gz archive"):
        convert_google_checkpoint(tmp_path / f"a.tar.{suffix}", tmp_path / "model")


def test_bombs(tmp_path, release):
    zeros = bytes(50_000_000)
    pack(release, tmp_path / "a.zip", [("zeros.bin", zeros)])
    pack(release, tmp_path / "a.tar.gz", [(tar_member("zeros.bin", size=len(zeros)), zeros)])
    for archive in ("a.zip", "a.tar.gz"):
        with pytest.raises(ValueError, match="100 times the compressed size"):
            convert_google_checkpoint(tmp_path / archive, tmp_path / "model")


def test_a_member_that_is_shorter_than_announced_is_an_error(tmp_path, release):
    content = bytearray(pack(release, tmp_path / "a.zip").read_bytes())
    entry = content.rindex(f"{release.name}/vocab.txt".encode()) - 46  # in the list of members at the end
    assert content[entry : entry + 4] == b"PK\1\2"
    content[entry + 25] += 1  # of its size
    (tmp_path / "a.zip").write_bytes(content)
    with pytest.raises(ValueError, match=r"a\.zip: .*vocab\.txt has \d+ bytes, \d+ were announced"):
        convert_google_checkpoint(tmp_path / "a.zip", tmp_path / "model")


def test_checkpoints_of_other_models_are_named(tmp_path):
    kernel = {"model/dense/kernel/.ATTRIBUTES/VARIABLE_VALUE": np.ones((2, 3), np.float32)}
    write_tensor_bundle(tmp_path / "m.ckpt", kernel)
    with pytest.raises(ValueError, match=r"m\.ckpt: the checkpoint is not a BERT; it holds model/dense/kernel/"):
        convert_google_checkpoint(tmp_path / "m.ckpt", tmp_path / "model")


@pytest.mark.parametrize("name", ["a.zip", "a.tar.gz", "a.tar"])
def test_broken_archives(tmp_path, release, name):
    def files_of(prefix):
        return [Path(f"{prefix}{suffix}").read_bytes() for suffix in (".index", ".data-00000-of-00001")]

    content, expected = pack(release, tmp_path / name).read_bytes(), files_of(release / "bert_model.ckpt")
    broken = [content[:size] for size in range(0, len(content), len(content) // 12) if any(content[size:])]
    broken.append(gzip.compress(b"no tar at all") if name == "a.tar.gz" else b"nothing")
    for start in broken:  # trailing zeros of a tar file are not needed
        (tmp_path / name).write_bytes(start)
        with pytest.raises(ValueError, match=name), open_source(tmp_path / name):
            pass
    for place in range(0, len(content), len(content) // 60):
        spoiled = bytearray(content)
        spoiled[place] ^= 0x55
        (tmp_path / name).write_bytes(spoiled)
        try:  # a flipped byte in unused data, such as a date, is harmless
            with open_source(tmp_path / name) as found:
                # tar has no checksum of what it holds; TensorFlow's files have
                assert name == "a.tar" or files_of(found.prefix) == expected, place
        except ValueError as error:
            assert str(error).startswith(str(tmp_path / name))


# --- proof -----------------------------------------------------------------------------------------------------------


def test_the_report_is_a_table_and_json(converted):
    folder, report = converted("classifier")
    saved = json.loads((folder / "conversion.json").read_text())
    assert saved == json.loads(json.dumps(dataclasses.asdict(report)))
    assert saved["verification"]["model_dir"] == str(folder)
    assert len(saved["verification"]["tensors"]) == 41 and saved["ignored"]["step counter"] == ["global_step"]
    assert "41 identical in every bit" in str(report) and "logits (2, 3)" in str(report)


@pytest.mark.parametrize("name", ["bert.encoder.layer.1.output.dense.weight", "cls.predictions.bias"])
def test_verification_finds_a_single_changed_weight(tmp_path, name, converted):
    shutil.copytree(converted("pretrain")[0], tmp_path / "model")
    path = tmp_path / "model" / "model.safetensors"
    weights = load_file(path)
    weights[name].view(-1)[3] += 1e-6
    save_file(weights, path, metadata={"format": "pt"})
    report = verify_conversion(TF1 / "pretrain", tmp_path / "model")
    assert not report.ok and name in report.problems[0] and "WRONG" in str(report)
    del weights[name]
    save_file(weights, path, metadata={"format": "pt"})
    if name.startswith("bert."):  # no model of any kind
        with pytest.raises(ValueError, match=f"lack {name}"):
            verify_conversion(TF1 / "pretrain", tmp_path / "model")
    else:
        report = verify_conversion(TF1 / "pretrain", tmp_path / "model")
        assert any(f"missing: {name}" in problem for problem in report.problems)


def test_the_card_names_the_folder_wherever_one_stands(tmp_path, monkeypatch, copy_checkpoint, converted):
    copy_checkpoint(TF1 / "pretrain", tmp_path / "googles")
    (tmp_path / "own").mkdir()
    monkeypatch.chdir(tmp_path / "own")
    convert_google_checkpoint("../googles", ".")
    card = (tmp_path / "own" / "README.md").read_text()
    assert card.startswith("---\n") and "\n# own\n" in card and "to be trained" not in card
    monkeypatch.chdir(tmp_path / "googles")
    convert_google_checkpoint(".", "../model", head="sequence-classification")
    card = (tmp_path / "model" / "README.md").read_text()
    assert "converted from `googles`" in card and "to be trained before use: `classifier" in card
