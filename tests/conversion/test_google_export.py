"""MyBERT models become checkpoints that Google's code restores, and come back bit for bit."""

import json
import shutil
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file

import mybert
from mybert.conversion import (
    convert_google_checkpoint,
    export_google_checkpoint,
    key_map,
    read_tensor_bundle,
    to_transformers_bert,
    verify_conversion,
)

TF1 = Path(__file__).parents[1] / "fixtures" / "google_tf1"


@pytest.mark.parametrize("head", key_map.HEADS)
def test_import_of_the_export_is_bit_identical(tmp_path, head, save_model):
    labels = {"id2label": {0: "a", 1: "b", 2: "c"}, "label2id": {"a": 0, "b": 1, "c": 2}}
    fields = labels if "classifier" in key_map.HEADS[head].groups else {}
    save_model(tmp_path / "model", head, **fields)
    prefix = tmp_path / "google" / "bert_model.ckpt"
    report = export_google_checkpoint(tmp_path / "model", prefix)
    assert report.head == head and report.verification.ok
    assert {path.name for path in prefix.parent.iterdir()} == {
        "bert_config.json", "bert_model.ckpt.data-00000-of-00001", "bert_model.ckpt.index", "checkpoint", "vocab.txt",
    }  # fmt: skip
    assert (prefix.parent / "vocab.txt").read_bytes() == (tmp_path / "model" / "vocab.txt").read_bytes()
    named = head if head in ("token-classification", "multiple-choice") else None
    back = convert_google_checkpoint(
        prefix.parent, tmp_path / "back", named, labels=["a", "b", "c"] if fields else None
    )
    assert back.head == head and not back.initialized
    a, b = (load_file(tmp_path / name / "model.safetensors") for name in ("model", "back"))
    assert a.keys() == b.keys() and all(torch.equal(a[name], b[name]) for name in a)
    configs = [json.loads((tmp_path / name / "config.json").read_text()) for name in ("model", "back")]
    assert {k: v for k, v in configs[0].items() if v != configs[1].get(k)} == {}
    tokenizers = [json.loads((tmp_path / name / "tokenizer.json").read_text()) for name in ("model", "back")]
    assert tokenizers[0] == tokenizers[1]


@pytest.mark.parametrize("name", ["pretrain", "classifier", "squad_adam"])
def test_export_of_the_import_has_googles_bytes(tmp_path, name, converted, write_vocab):
    model, _ = converted(name, vocab_file=write_vocab(tmp_path / "words"))
    export_google_checkpoint(model, tmp_path / "out" / "bert_model.ckpt")
    exported = read_tensor_bundle(tmp_path / "out" / "bert_model.ckpt")
    googles = read_tensor_bundle(TF1 / name / "bert_model.ckpt")
    filled = {"bert/pooler/dense/kernel", "bert/pooler/dense/bias"} if name == "squad_adam" else set()
    for variable in exported:
        assert exported.info[variable].shape == googles.info[variable].shape
        if variable in filled:
            assert not exported[variable].any()
        else:
            assert exported[variable].tobytes() == googles[variable].tobytes()
    left_out = {v for v in googles if not v.endswith(("adam_m", "adam_v")) and v != "global_step"} - set(exported)
    assert all(v.startswith("cls/") for v in left_out)
    config = json.loads((tmp_path / "out" / "bert_config.json").read_text())
    assert config == json.loads((TF1 / name / "bert_config.json").read_text())


@pytest.mark.parametrize(
    ("options", "added", "word"),
    [
        ({}, [], None),
        ({"do_lower_case": False}, [], None),
        ({"do_lower_case": False, "strip_accents": False}, [], None),
        ({"strip_accents": False}, [], "Google's code strips"),
        ({"do_lower_case": False, "strip_accents": True}, [], "Google's code keeps"),
        ({"tokenize_chinese_chars": False}, [], "Chinese characters"),
        ({}, ["<user>"], "(<user>)"),
    ],
)
def test_other_tokens_in_googles_code_are_said(tmp_path, caplog, options, added, word, save_model, pieces):
    save_model(tmp_path / "model", "encoder", tokenizer=False, vocab_size=len(pieces) + len(added))
    tokenizer = mybert.MyBertTokenizer(pieces, **options)
    tokenizer.add_tokens(added)
    tokenizer.save_pretrained(tmp_path / "model")
    report = export_google_checkpoint(tmp_path / "model", tmp_path / "out" / "m")
    assert [word in decision and word in caplog.text for decision in report.decisions] == [True] * (word is not None)


def test_a_vocabulary_without_tokenizer_json_is_exported_as_its_settings_say(tmp_path, save_model, write_vocab):
    save_model(tmp_path / "model", "encoder", tokenizer=False)
    write_vocab(tmp_path / "model")
    report = export_google_checkpoint(tmp_path / "model", tmp_path / "out" / "m")
    assert report.decisions == ()
    assert (tmp_path / "out" / "vocab.txt").read_bytes() == (tmp_path / "model" / "vocab.txt").read_bytes()
    (tmp_path / "model" / "tokenizer_config.json").write_text('{"do_lower_case": true, "strip_accents": false}')
    report = export_google_checkpoint(tmp_path / "model", tmp_path / "out" / "m", overwrite=True)
    (decision,) = report.decisions  # of how the vocabulary is used, which its file does not say
    assert decision.startswith("accents: Google's code strips those that this tokenizer keeps")


def test_a_korean_model_comes_back_with_its_tokens(tmp_path, save_model, pieces):
    save_model(tmp_path / "model", "encoder")
    korean = [*pieces[:5], *"가나다라마바사", *pieces[-18:]]
    mybert.MyBertTokenizer(korean, strip_accents=False).save_pretrained(tmp_path / "model")
    export_google_checkpoint(tmp_path / "model", tmp_path / "out" / "m")
    convert_google_checkpoint(tmp_path / "out", tmp_path / "back")
    before, after = (mybert.MyBertTokenizer.from_pretrained(tmp_path / name) for name in ("model", "back"))
    assert before.tokenize("가 나다 W40") == after.tokenize("가 나다 W40") == ["가", "[UNK]", "w40"]


def test_weights_that_the_head_does_not_use(tmp_path, save_old_bert):
    weights = save_old_bert(tmp_path / "bert")
    report = export_google_checkpoint(tmp_path / "bert", tmp_path / "out" / "m")
    assert report.verification.ok and report.head == "masked-lm"
    assert report.ignored == {
        "weight the head does not use": ["cls.seq_relationship.bias", "cls.seq_relationship.weight"]
    }
    assert any("bert/pooler is the folder's" in decision for decision in report.decisions)
    written = read_tensor_bundle(tmp_path / "out" / "m")
    pooler = weights["bert.pooler.dense.weight"].numpy()
    assert pooler.any() and np.array_equal(written["bert/pooler/dense/kernel"], pooler.T)
    assert not any(name.startswith("cls/seq_relationship") for name in written)
    gains = weights["bert.embeddings.LayerNorm.weight"].numpy()
    assert np.array_equal(written["bert/embeddings/LayerNorm/gamma"], gains)
    weights["bert.encoder.layer.0.output.dense.bias"][0] += 1
    save_file(weights, tmp_path / "bert" / "model.safetensors", metadata={"format": "pt"})
    assert not verify_conversion(tmp_path / "out", tmp_path / "bert").ok


def test_a_pooler_that_is_not_there_is_written_as_zeros(tmp_path, save_model):
    save_model(tmp_path / "masked", "masked-lm")
    save_model(tmp_path / "encoder", "encoder", options={"add_pooling_layer": False})
    for name in ("masked", "encoder"):
        report = export_google_checkpoint(tmp_path / name, tmp_path / name / "out" / "m")
        assert report.verification.ok and any("written as zeros" in decision for decision in report.decisions)
        assert not read_tensor_bundle(tmp_path / name / "out" / "m")["bert/pooler/dense/kernel"].any()
    assert to_transformers_bert(tmp_path / "encoder", tmp_path / "bert").verification.ok
    a, b = (load_file(tmp_path / name / "model.safetensors") for name in ("encoder", "bert"))
    assert a.keys() == b.keys() and all(torch.equal(a[name], b[name]) for name in a)
    assert not any("pooler" in name for name in a)


def test_activations_that_google_computes(tmp_path, save_model, change_config):
    save_model(tmp_path / "model", "encoder")
    for activation, written in (("relu", "relu"), ("tanh", "tanh"), ("gelu_new", "gelu")):
        change_config(tmp_path / "model", hidden_act=activation)
        export_google_checkpoint(tmp_path / "model", tmp_path / "out" / "m", verify=False, overwrite=True)
        assert json.loads((tmp_path / "out" / "bert_config.json").read_text())["hidden_act"] == written


def test_another_activation_is_refused_or_written_with_a_warning(tmp_path, caplog, save_model):
    save_model(tmp_path / "model", "encoder", hidden_act="gelu")
    with pytest.raises(ValueError, match=r"hidden_act is 'gelu'; .* allow_other_activation"):
        export_google_checkpoint(tmp_path / "model", tmp_path / "out" / "m")
    assert not (tmp_path / "out").exists()
    report = export_google_checkpoint(tmp_path / "model", tmp_path / "out" / "m", allow_other_activation=True)
    assert "tanh-GELU instead" in caplog.text and any("outputs will differ" in text for text in report.decisions)


def test_another_epsilon_is_written_with_a_warning(tmp_path, caplog, save_model):
    for epsilon in (1e-12, 1e-5):
        caplog.clear()
        save_model(tmp_path / f"{epsilon}", "encoder", layer_norm_eps=epsilon)
        output = tmp_path / f"out {epsilon}" / "m"
        report = export_google_checkpoint(tmp_path / f"{epsilon}", output, verify=False)
        is_other = epsilon != 1e-12
        assert ("layer_norm_eps is 1e-05; Google's code uses 1e-12" in caplog.text) == is_other
        assert any("layer_norm_eps: 1e-05 becomes 1e-12" in text for text in report.decisions) == is_other


@pytest.mark.parametrize(
    ("fields", "message"), [({"is_decoder": True}, "is_decoder is true"), ({"tie_word_embeddings": False}, "tie_word")]
)
def test_models_that_googles_graph_cannot_express(tmp_path, fields, message, save_model):
    save_model(tmp_path / "model", "masked-lm", **fields)
    with pytest.raises(ValueError, match=message):
        export_google_checkpoint(tmp_path / "model", tmp_path / "out" / "m")


def test_a_folder_takes_the_checkpoint_under_googles_name(tmp_path, save_model):
    save_model(tmp_path / "model", "encoder")
    (tmp_path / "there" / ".new-0123abcd.partial").mkdir(parents=True)  # left by a call that was killed
    for folder in (str(tmp_path / "there"), f"{tmp_path}/new/"):
        export_google_checkpoint(tmp_path / "model", folder)
        names = ("bert_model.ckpt.index", "bert_model.ckpt.data-00000-of-00001", "checkpoint")
        assert {path.name for path in Path(folder).iterdir()} == {*names, "bert_config.json", "vocab.txt"}
    assert {path.name for path in tmp_path.iterdir()} == {"model", "there", "new"}


def test_export_google_checkpoint_ended_between_its_moves_is_completed_by_the_next_reader(
    tmp_path, save_model, monkeypatch
):
    for name, layers in (("old", 2), ("new", 1)):
        save_model(tmp_path / name, "encoder", num_hidden_layers=layers)
    prefix, replace = tmp_path / "out" / "m", Path.replace
    export_google_checkpoint(tmp_path / "old", prefix)

    def ended(path, target):
        if target.name == "m.index":
            raise MemoryError
        return replace(path, target)

    with monkeypatch.context() as patch, pytest.raises(OSError, match="not enough memory"):
        patch.setattr(Path, "replace", ended)
        export_google_checkpoint(tmp_path / "new", prefix, overwrite=True)
    assert verify_conversion(prefix, tmp_path / "new").ok
    assert not list((tmp_path / "out").glob(".*"))


def test_half_precision_is_widened(tmp_path, save_model):
    save_model(tmp_path / "model", "encoder")
    mybert.MyBertModel.from_pretrained(tmp_path / "model", dtype=torch.bfloat16).save_pretrained(tmp_path / "model")
    assert export_google_checkpoint(tmp_path / "model", tmp_path / "out" / "m").verification.ok
    bundle = read_tensor_bundle(tmp_path / "out" / "m")
    weight = load_file(tmp_path / "model" / "model.safetensors")["pooler.dense.weight"]
    assert np.array_equal(bundle["bert/pooler/dense/kernel"], weight.float().numpy().T)


def leave_out(folder, name):
    """Save a model's weights without one."""
    weights = load_file(folder / "model.safetensors")
    del weights[name]
    save_file(weights, folder / "model.safetensors", {"format": "pt"})


@pytest.mark.parametrize(
    ("spoil", "message"),
    [
        (lambda f, change: (f / "model.safetensors").unlink(), "There is no model.safetensors"),
        (lambda f, change: change(f, model_type="roberta"), "model_type 'roberta'; expected 'mybert' or 'bert'"),
        (lambda f, change: change(f, architectures=["MyBertForPoetry"]), "MyBertForPoetry"),
        (lambda f, change: change(f, architectures=None), "architectures in config.json is None"),
        (lambda f, change: change(f, num_hidden_layers=10**9), "num_hidden_layers is 1000000000, but"),
        (lambda f, change: change(f, num_attention_heads=3), "config.json: .*hidden_size"),
        (lambda f, change: leave_out(f, "classifier.bias"), "1 parameters are missing, classifier.bias"),
    ],
)
def test_broken_model_folders(tmp_path, spoil, message, save_model, change_config):
    save_model(tmp_path / "model", "sequence-classification")
    spoil(tmp_path / "model", change_config)
    with pytest.raises((FileNotFoundError, ValueError), match=message):
        export_google_checkpoint(tmp_path / "model", tmp_path / "out" / "m")
    with pytest.raises((FileNotFoundError, ValueError), match=message):
        to_transformers_bert(tmp_path / "model", tmp_path / "bert")


def test_every_form_of_a_folder_gives_the_same_checkpoint(tmp_path, save_model):
    """Of transformers, in shards, and with the index of earlier shards."""
    model = save_model(tmp_path / "model", "pretraining")
    export_google_checkpoint(tmp_path / "model", tmp_path / "out" / "m", verify=False)
    expected = (tmp_path / "out" / "m.data-00000-of-00001").read_bytes()

    to_transformers_bert(tmp_path / "model", tmp_path / "bert", verify=False)
    shutil.copytree(tmp_path / "model", tmp_path / "shards")
    (tmp_path / "shards" / "model.safetensors").unlink()
    model.save_pretrained(tmp_path / "shards", max_shard_size="4KB")
    assert len(list((tmp_path / "shards").glob("*.safetensors"))) > 2
    shutil.copytree(tmp_path / "shards", tmp_path / "whole again")
    model.save_pretrained(tmp_path / "whole again")  # which takes the parts away, but not their index
    assert (tmp_path / "whole again" / "model.safetensors.index.json").is_file()
    for name in ("bert", "shards", "whole again"):
        assert export_google_checkpoint(tmp_path / name, tmp_path / name / "out" / "m").verification.ok
        assert (tmp_path / name / "out" / "m.data-00000-of-00001").read_bytes() == expected, name
