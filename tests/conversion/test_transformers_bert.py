"""MyBERT models become plain `bert` models and come back, bit for bit, with equal outputs."""

import json
import re
from functools import partial
from pathlib import Path

import pytest
import torch
import transformers
from safetensors.torch import load_file, save_file
from transformers import AutoConfig, AutoTokenizer

from mybert.conversion import (
    export_google_checkpoint,
    from_transformers_bert,
    key_map,
    to_transformers_bert,
    verify_conversion,
)
from mybert.conversion.model_folder import EncoderFolder
from mybert.conversion.transformers_bert import copy_what_goes_along
from mybert.files.checkpoint import Checkpoint
from mybert.files.errors import SettingError
from mybert.tokenization import load_vocab, save_vocab


@pytest.fixture(scope="session")
def save_bert(save_model):
    """Save a tiny model of transformers, without a tokenizer."""
    return partial(save_model, library=transformers, tokenizer=False)


def weights_of(folder):
    return load_file(folder / "model.safetensors")


def assert_same_bits(a, b):
    a, b = weights_of(a), weights_of(b)
    assert a.keys() == b.keys()
    assert all(a[name].dtype == b[name].dtype and torch.equal(a[name], b[name]) for name in a)


@pytest.mark.parametrize("head", key_map.HEADS)
def test_there_and_back(tmp_path, head, save_model):
    save_model(tmp_path / "model", head)
    report = to_transformers_bert(tmp_path / "model", tmp_path / "bert")
    assert report.verification.ok and report.head == head and len(report.verification.outputs)
    config = AutoConfig.from_pretrained(tmp_path / "bert")
    assert config.model_type == "bert" and config.architectures == [f"Bert{key_map.HEADS[head].class_suffix}"]
    assert_same_bits(tmp_path / "model", tmp_path / "bert")
    bert = getattr(transformers, config.architectures[0]).from_pretrained(tmp_path / "bert")
    bert.save_pretrained(tmp_path / "bert")
    report = from_transformers_bert(tmp_path / "bert", tmp_path / "back")
    assert report.verification.ok and not report.ignored
    assert_same_bits(tmp_path / "model", tmp_path / "back")
    assert verify_conversion(tmp_path / "bert", tmp_path / "back").ok
    before, after = (json.loads((tmp_path / name / "config.json").read_text()) for name in ("model", "back"))
    assert {name: value for name, value in before.items() if after.get(name, value) != value} == {}
    assert set(before) - set(after) == {"sparse_prediction", "unpad_inputs"}


def test_weights_that_are_left_out_are_named_in_the_report_alone(tmp_path, save_model, capfd, caplog):
    save_model(tmp_path / "bert", "pretraining", library=transformers)
    capfd.readouterr()
    report = from_transformers_bert(tmp_path / "bert", tmp_path / "model", head="encoder")
    assert report.verification.ok and report.ignored
    assert "cls.predictions" not in "".join((*capfd.readouterr(), caplog.text))  # transformers' table


def test_a_trunk_keeps_nothing_of_the_head_that_stays_behind(tmp_path, change_config, save_bert, write_vocab):
    save_bert(tmp_path / "bert", "sequence-classification")
    write_vocab(tmp_path / "bert")
    labels = {"id2label": {0: "a", 1: "b", 2: "c"}, "label2id": {"a": 0, "b": 1, "c": 2}}
    labels |= {"finetuned_for": {"task": "classification"}, "problem_type": "single_label_classification"}
    change_config(tmp_path / "bert", **labels)
    from_transformers_bert(tmp_path / "bert", tmp_path / "same")
    assert AutoConfig.from_pretrained(tmp_path / "same").id2label == {0: "a", 1: "b", 2: "c"}
    from_transformers_bert(tmp_path / "bert", tmp_path / "encoder", head="encoder")
    kept = json.loads((tmp_path / "encoder" / "config.json").read_text())
    assert not kept.keys() & labels.keys()


@pytest.mark.parametrize("head", ["token-classification", "multiple-choice"])
def test_head_that_classes_do_not_fit_is_an_error_that_names_the_source(tmp_path, save_bert, write_vocab, head):
    save_bert(tmp_path / "bert", "sequence-classification", num_labels=3)
    write_vocab(tmp_path / "bert")
    with pytest.raises(
        SettingError, match=rf"^head is '{head}' and the model a Bert\w+: .* in {tmp_path / 'bert'} has"
    ):
        from_transformers_bert(tmp_path / "bert", tmp_path / "out", head)
    from_transformers_bert(tmp_path / "bert", tmp_path / "out", "encoder")


def test_left_to_right_models(tmp_path, save_model):
    """Without a pooler they are the same on both sides; with one they pool another token."""
    save_model(tmp_path / "model", "masked-lm", is_decoder=True)
    assert to_transformers_bert(tmp_path / "model", tmp_path / "bert").verification.ok
    save_model(tmp_path / "pooled", "sequence-classification", is_decoder=True)
    with pytest.raises(ValueError, match="MyBERT then pools the last token"):
        to_transformers_bert(tmp_path / "pooled", tmp_path / "bert2")
    assert not (tmp_path / "bert2").exists()


@pytest.mark.parametrize("convert", [to_transformers_bert, export_google_checkpoint])
def test_conversions_reject_a_model_with_fewer_heads(tmp_path, save_model, convert):
    """transformers' BERT and Google's have no `head_dim`."""
    save_model(tmp_path / "model", "encoder", num_attention_heads=3, head_dim=8)
    with pytest.raises(ValueError, match=r"head_dim is 8, with 3 heads of a width of \d+; only MyBERT"):
        convert(tmp_path / "model", tmp_path / "written")
    assert not (tmp_path / "written").exists()


def test_the_tokenizer_goes_along(tmp_path, save_model):
    save_model(tmp_path / "model", "encoder")
    to_transformers_bert(tmp_path / "model", tmp_path / "bert")
    from_transformers_bert(tmp_path / "bert", tmp_path / "back")
    for name in ("model", "bert", "back"):
        tokenizer = AutoTokenizer.from_pretrained(tmp_path / name)
        assert tokenizer("The quicker fox").input_ids == [2, 5, 6, 7, 8, 3]
    assert not list((tmp_path / "bert").glob("*.py"))


def test_a_tokenizer_of_vocab_txt_alone(tmp_path, write_vocab, save_bert):
    save_bert(tmp_path / "bert", "encoder")
    write_vocab(tmp_path / "bert")
    from_transformers_bert(tmp_path / "bert", tmp_path / "model")
    tokens = AutoTokenizer.from_pretrained(tmp_path / "model").tokenize("The quicker fox")
    assert tokens == ["the", "quick", "##er", "fox"]


def save_their_tokenizer(folder, **settings):
    """A tokenizer of transformers and what its configuration shall say; None takes a setting out."""
    transformers.BertTokenizer(str(folder / "vocab.txt")).save_pretrained(folder)
    path = folder / "tokenizer_config.json"
    content = json.loads(path.read_text()) | settings
    path.write_text(json.dumps({name: value for name, value in content.items() if value is not None}))


@pytest.mark.parametrize("convert", [to_transformers_bert, export_google_checkpoint])
def test_a_vocab_txt_that_contradicts_the_tokenizer_is_made_anew(tmp_path, convert, save_model, write_vocab, pieces):
    """All commands read `tokenizer.json`; an older `vocab.txt` numbers other pieces."""
    save_model(tmp_path / "model", "masked-lm")
    write_vocab(tmp_path / "model", [*pieces[:9], *reversed(pieces[9:])])
    report = convert(tmp_path / "model", f"{tmp_path}/out/")
    assert load_vocab(tmp_path / "out" / "vocab.txt") == {piece: index for index, piece in enumerate(pieces)}
    made = "tokenizer: copied, vocab.txt made from tokenizer.json"
    assert (made in report.decisions) == (convert is to_transformers_bert)


def test_a_tokenizer_that_names_no_class(tmp_path, write_vocab, save_bert):
    """As `bert-base-uncased` has it: transformers goes by the model's type, which it would not know any more."""
    save_bert(tmp_path / "bert", "encoder")
    tokens = {f"{name}_token": None for name in ("mask", "pad", "cls", "sep", "unk")}
    write_vocab(tmp_path / "bert")
    save_their_tokenizer(tmp_path / "bert", tokenizer_class=None, backend=None, model_max_length=16, **tokens)
    report = from_transformers_bert(tmp_path / "bert", tmp_path / "model")
    assert report.decisions == ("tokenizer: made from tokenizer.json",)
    ids, types = [2, 5, 6, 7, 8, 3, 5, 3], [0] * 6 + [1] * 2
    found = AutoTokenizer.from_pretrained(tmp_path / "model")
    assert type(found).__module__.startswith("transformers.")  # which loads it without mybert
    assert (found.mask_token, found.pad_token, found.model_max_length) == ("[MASK]", "[PAD]", 16)
    assert found("The quicker fox", "the") == {"input_ids": ids, "token_type_ids": types, "attention_mask": [1] * 8}


@pytest.mark.parametrize("place", ["tokenizer_config.json", "config.json"])
def test_a_tokenizer_of_another_class_is_copied(tmp_path, place, write_vocab, pieces, save_bert):
    save_bert(tmp_path / "bert", "encoder")
    write_vocab(tmp_path / "bert", [*pieces[:5], *"quickfox"])
    settings = {"word_tokenizer_type": "basic", "subword_tokenizer_type": "character"}
    (tmp_path / "bert" / "tokenizer_config.json").write_text(json.dumps(settings))
    path = tmp_path / "bert" / place
    path.write_text(json.dumps(json.loads(path.read_text()) | {"tokenizer_class": "BertJapaneseTokenizer"}))
    report = from_transformers_bert(tmp_path / "bert", tmp_path / "model")
    assert report.decisions == ("tokenizer: copied",)
    before, after = (AutoTokenizer.from_pretrained(tmp_path / name) for name in ("bert", "model"))
    assert type(before) is type(after) is transformers.BertJapaneseTokenizer
    assert before.tokenize("quick fox") == after.tokenize("quick fox") == [*"quickfox"]


def test_a_tokenizer_that_names_its_class_is_copied(tmp_path, write_vocab, save_bert):
    save_bert(tmp_path / "bert", "encoder")
    write_vocab(tmp_path / "bert")
    save_their_tokenizer(tmp_path / "bert")
    from_transformers_bert(tmp_path / "bert", tmp_path / "model")
    for name in ("tokenizer.json", "tokenizer_config.json"):
        assert (tmp_path / "model" / name).read_bytes() == (tmp_path / "bert" / name).read_bytes()


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_the_type_of_the_weights_stays(tmp_path, dtype, save_model):
    save_model(tmp_path / "model", "masked-lm", dtype=dtype)
    to_transformers_bert(tmp_path / "model", tmp_path / "bert")
    assert_same_bits(tmp_path / "model", tmp_path / "bert")
    assert AutoConfig.from_pretrained(tmp_path / "bert").dtype == dtype


def test_untied_output_weights(tmp_path, save_model):
    save_model(tmp_path / "model", "pretraining", tie_word_embeddings=False)
    to_transformers_bert(tmp_path / "model", tmp_path / "bert")
    assert "cls.predictions.decoder.weight" in weights_of(tmp_path / "bert")
    assert_same_bits(tmp_path / "model", tmp_path / "bert")


@pytest.fixture
def save_with_copies(save_model):
    """Save a masked LM whose file has tied parameters under these names, too; gives its weights."""

    def save(folder, names=(), add=0.0, drop=(), dtype=torch.float32):
        save_model(folder, "masked-lm", library=transformers)
        weights = weights_of(folder)
        weights |= {name: (weights[key_map.TIED[name]] + add).to(dtype) for name in names}
        kept = {name: value for name, value in weights.items() if name not in drop}
        save_file(kept, folder / "model.safetensors", metadata={"format": "pt"})
        return kept

    return save


@pytest.mark.parametrize("name", key_map.TIED)
def test_output_parameters_that_differ_stay_untied(tmp_path, name, save_with_copies):
    """As transformers 5 loads them, whatever the configuration says."""
    kept = save_with_copies(tmp_path / "bert", [name], add=1.0)
    for convert, source, output in (
        (from_transformers_bert, "bert", "model"), (to_transformers_bert, "model", "back"),
    ):  # fmt: skip
        assert convert(tmp_path / source, tmp_path / output).verification.ok
        weights = weights_of(tmp_path / output)
        assert torch.equal(weights[name], kept[name]) and weights.keys() >= key_map.TIED.keys()
        assert AutoConfig.from_pretrained(tmp_path / output).tie_word_embeddings is False
    with pytest.raises(ValueError, match=f"{name} differs from {key_map.TIED[name]}; Google's graph has one bias"):
        export_google_checkpoint(tmp_path / "bert", tmp_path / "out" / "m")
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_copies_of_tied_parameters_are_left_out(tmp_path, dtype, save_with_copies):
    save_with_copies(tmp_path / "bert", key_map.TIED, dtype=dtype)
    report = from_transformers_bert(tmp_path / "bert", tmp_path / "model")
    assert report.verification.ok and not report.ignored
    assert not weights_of(tmp_path / "model").keys() & key_map.TIED.keys()
    assert export_google_checkpoint(tmp_path / "bert", tmp_path / "out" / "m").verification.ok


def test_of_two_tied_parameters_either_may_be_there(tmp_path, save_with_copies):
    kept = save_with_copies(tmp_path / "bert", ["cls.predictions.decoder.bias"], drop=["cls.predictions.bias"])
    assert from_transformers_bert(tmp_path / "bert", tmp_path / "model").verification.ok
    assert torch.equal(weights_of(tmp_path / "model")["cls.predictions.bias"], kept["cls.predictions.decoder.bias"])
    assert export_google_checkpoint(tmp_path / "bert", tmp_path / "out" / "m").verification.ok


def test_an_old_checkpoint(tmp_path, save_old_bert):
    weights = save_old_bert(tmp_path / "bert")
    report = from_transformers_bert(tmp_path / "bert", tmp_path / "all", "pretraining")
    assert report.verification.ok and not report.ignored
    for name, value in weights_of(tmp_path / "all").items():
        assert torch.equal(value, weights[name])
    report = from_transformers_bert(tmp_path / "bert", tmp_path / "part")
    assert report.head == "masked-lm" and len(report.ignored["weight the head does not use"]) == 4


def test_a_difference_is_found(tmp_path, save_model, change_config):
    save_model(tmp_path / "model", "sequence-classification")
    to_transformers_bert(tmp_path / "model", tmp_path / "bert")
    weights = weights_of(tmp_path / "bert")
    weights["classifier.bias"][1] += 1
    save_file(weights, tmp_path / "bert" / "model.safetensors", metadata={"format": "pt"})
    report = verify_conversion(tmp_path / "model", tmp_path / "bert")
    assert [problem.split(" differ")[0] for problem in report.problems] == ["logits", "1 tensors"]
    weights["classifier.bias"] = weights["classifier.bias"].double()
    save_file(weights, tmp_path / "bert" / "model.safetensors", metadata={"format": "pt"})
    report = verify_conversion(tmp_path / "model", tmp_path / "bert")
    assert report.problems[-1] == "1 tensors differ from the source, classifier.bias by inf"
    to_transformers_bert(tmp_path / "model", tmp_path / "bert", overwrite=True)
    change_config(tmp_path / "bert", hidden_act="relu")
    assert not verify_conversion(tmp_path / "model", tmp_path / "bert").ok
    assert Path(report.model_dir) == tmp_path / "bert"


def test_verification_of_a_folder_with_other_classes_names_all_that_differs(tmp_path, save_model):
    for name, labels in (("model", 3), ("other", 2)):
        save_model(tmp_path / name, "sequence-classification", num_labels=labels)
    to_transformers_bert(tmp_path / "other", tmp_path / "bert")
    report = verify_conversion(tmp_path / "model", tmp_path / "bert")
    assert not report.ok and report.problems[0] == "logits differs by inf between the two models"
    assert re.search("classifier.weight by inf, classifier.bias by inf", report.problems[1])


def test_verification_finds_outputs_of_another_shape(tmp_path, save_model, monkeypatch):
    save_model(tmp_path / "model", "sequence-classification")
    to_transformers_bert(tmp_path / "model", tmp_path / "bert")
    forward = transformers.BertForSequenceClassification.forward

    def without_the_last_class(model, **inputs):
        outputs = forward(model, **inputs)
        outputs.logits = outputs.logits[..., :-1]
        return outputs

    monkeypatch.setattr(transformers.BertForSequenceClassification, "forward", without_the_last_class)
    report = verify_conversion(tmp_path / "model", tmp_path / "bert")
    assert any(re.match(r"logits has shape \(\d, 2\); expected \(\d, 3\)$", problem) for problem in report.problems)


def test_an_encoder_of_another_type_gets_the_tokenizer_that_other_tools_read(tmp_path, tiny_model, tokenizer):
    folder = tiny_model(tmp_path / "distilbert", transformers.DistilBertModel)
    (folder / "tokenizer.json").unlink()
    (folder / "tokenizer_config.json").unlink()
    save_vocab(tokenizer.get_vocab(), folder / "vocab.txt")
    (tmp_path / "out").mkdir()
    decisions = copy_what_goes_along(EncoderFolder(Checkpoint(folder)), tmp_path / "out")
    assert decisions == ["tokenizer: saved again, with tokenizer.json"]
    before, after = (AutoTokenizer.from_pretrained(path) for path in (folder, tmp_path / "out"))
    assert (tmp_path / "out" / "tokenizer.json").is_file() and before.get_vocab() == after.get_vocab()


@pytest.mark.parametrize("has_pooler", [True, False])
def test_an_encoder_of_another_type_is_loaded_with_the_pooler_that_was_saved(tmp_path, tiny_model, has_pooler):
    model = tiny_model(tmp_path / "roberta", transformers.RobertaModel)
    if not has_pooler:
        weights = {
            name: value for name, value in load_file(model / "model.safetensors").items() if "pooler" not in name
        }
        save_file(weights, model / "model.safetensors", metadata={"format": "pt"})
    assert (EncoderFolder(Checkpoint(model)).load_for_graph().pooler is not None) is has_pooler
