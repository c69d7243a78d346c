"""`mybert adapt`: rows of new pieces, further pretraining, and both models' loss on the same words."""

import json
import shutil
from collections import Counter

import pytest
import torch
from safetensors.torch import load_file
from transformers import AutoModelForMaskedLM, BertForMaskedLM, BertModel

from mybert import MyBertForMaskedLM, MyBertTokenizer
from mybert.pretraining import AdaptArguments, adapt
from mybert.pretraining.initial_weights import add_rows
from mybert.tokenization import extend_vocabulary, spell

WORDS = "catfish dogfish sunfish catdog happytree"


@pytest.fixture
def old(tokenizer) -> MyBertTokenizer:
    pieces = sorted(tokenizer.get_vocab(), key=tokenizer.get_vocab().__getitem__)
    letters = [prefix + letter for letter in "abcdefghijklmnopqrstuvwxyz" for prefix in ("", "##")]
    return MyBertTokenizer(vocab=dict.fromkeys([*pieces, "[unused0]", "[unused1]", *letters, "##fish"]).keys())


@pytest.fixture
def folder(tmp_path, tiny_model, old):
    folder = tiny_model(tmp_path / "bert", BertForMaskedLM, vocab_size=len(old))
    old.save_pretrained(folder)
    return folder


@pytest.fixture
def text(tmp_path):
    lines = [f"{word} sat on the mat and the {word} ate bread" for word in WORDS.split()]
    documents = ["\n".join(lines[number % 5 :] + lines) for number in range(30)]
    (tmp_path / "domain.txt").write_text("\n\n".join(documents) + "\n")
    return str(tmp_path / "domain.txt")


@pytest.fixture
def settings(tmp_path, folder, text):
    own = {"model": str(folder), "text": [text], "output_dir": str(tmp_path / "out"), "new_pieces": 4}
    run = {
        "max_length": 24,
        "max_steps": 4,
        "per_device_train_batch_size": 4,
        "learning_rate": 1e-3,
        "validation_split": 0.2,
    }
    machine = {"num_processes": 1, "use_cpu": True, "disable_tqdm": True}
    return lambda **others: AdaptArguments(**own | run | machine | {"join_lines": False} | others)


@pytest.mark.parametrize("more", [{}, {"new_pieces": 1}, {"append_pieces": False}])
def test_a_dry_run_shows_the_vocabulary_with_new_pieces(tmp_path, settings, more):
    dry = adapt(settings(dry_run=True, **more))
    adapt(settings(max_steps=1, **more))
    model = AutoModelForMaskedLM.from_pretrained(tmp_path / "out")
    assert (dry["model"]["pieces"], dry["model"]["parameters"]) == (model.config.vocab_size, model.num_parameters())


@pytest.mark.parametrize(("rows", "tied"), [("mean", True), ("random", True), ("mean", False)])
def test_new_rows_are_means_and_old_ones_stay(old, make_model, rows, tied):
    new = extend_vocabulary(old, Counter({"catfish": 9, "dogfish": 8, "xö": 7, "sunny": 6}), 4).tokenizer
    assert len(new) == len(old) + 2
    model = make_model(MyBertForMaskedLM, vocab_size=len(old), tie_word_embeddings=tied)
    model.get_output_embeddings().bias.data.normal_()
    before = {name: weight.detach().clone() for name, weight in matrices(model).items()}
    add_rows(model, old, new, rows)
    after, vocab = matrices(model), old.get_vocab()
    assert (after["output"] is after["input"]) is tied and model.config.vocab_size == len(new)
    assert (model.cls.predictions.bias is after["bias"]) is tied
    for piece, index in new.get_vocab().items():
        parts = [vocab[part] for part in spell(piece, vocab) or []]
        for name, weight in before.items():
            found, mean = after[name][index], weight[parts].mean(0)
            if piece in vocab:
                assert torch.equal(found, weight[index])
            elif rows == "mean" and parts:
                torch.testing.assert_close(found, mean)
            elif name == "bias":
                assert found == 0
            else:
                assert not torch.allclose(found, mean) and 0 < found.std() < 0.1


def matrices(model):
    output = model.get_output_embeddings()
    return {"input": model.get_input_embeddings().weight, "output": output.weight, "bias": output.bias}


def test_a_model_is_adapted_and_the_words_are_its_own(tmp_path, settings, old, caplog):
    assert settings().optim == "adamw"
    with caplog.at_level("INFO", logger="mybert"):
        metrics = adapt(settings())
    out = tmp_path / "out"
    new = MyBertTokenizer.from_pretrained(out)
    assert "4 new pieces, 2 of them in [unused] entries: " in caplog.text
    assert "Tokens per word of this text: " in caplog.text and "nats per character: " in caplog.text
    assert len(new) == len(old) + 2 and new.tokenize("sunfish") == ["sunfish"]
    assert len(old.tokenize("sunfish")) > 2
    saved = json.loads((out / "adaptation.json").read_text())
    assert saved == {"before": metrics["before"], "after": metrics["after"]}
    assert saved["before"]["words"] == saved["after"]["words"] > 0
    model = AutoModelForMaskedLM.from_pretrained(out)
    assert model.config.vocab_size == len(new) == model.get_input_embeddings().weight.shape[0]
    again = adapt(settings())  # finished: the same figures, the same weights
    assert again["after"] == metrics["after"]


@pytest.mark.slow
def test_an_interrupted_run_goes_on_to_the_last_bit(tmp_path, settings):
    adapt(settings(output_dir=str(tmp_path / "whole")))
    adapt(settings(save_steps=2))
    shutil.rmtree(tmp_path / "out" / "checkpoint-4")
    (tmp_path / "out" / "model.safetensors").unlink()
    adapt(settings(save_steps=2))
    one, other = (load_file(tmp_path / name / "model.safetensors") for name in ("whole", "out"))
    assert one.keys() == other.keys() and all(torch.equal(one[name], other[name]) for name in one)


def test_an_encoder_without_head_has_nothing_before(folder, tiny_model, settings, old):
    tiny_model(folder, BertModel, vocab_size=len(old))
    old.save_pretrained(folder)
    metrics = adapt(settings(max_steps=1))
    assert metrics["before"] is None and metrics["after"]["nats_per_word"] > 0


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"tokenizer": "bert"}, "tokenizer is set and new_pieces is 4"),
        ({"model": "gone"}, "gone"),
    ],
)
def test_adapt_wrong_settings_leave_no_folder(tmp_path, settings, change, message):
    with pytest.raises((ValueError, OSError), match=message):
        adapt(settings(**change))
    assert not (tmp_path / "out").exists()


def test_without_a_free_entry_nothing_is_begun(tmp_path, folder, settings, tokenizer):
    tokenizer.save_pretrained(folder)
    with pytest.raises(ValueError, match=r"no free \[unused...\] entry"):
        adapt(settings(append_pieces=False))
    assert not (tmp_path / "out" / "run.json").exists()
