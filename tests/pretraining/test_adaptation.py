"""`mybert adapt`: rows of new pieces, further pretraining, and both models' loss on the same words."""

import json
import shutil
from collections import Counter

import pytest
import torch
from safetensors.torch import load_file
from transformers import AutoModelForMaskedLM, BertConfig, BertForMaskedLM, BertModel

from mybert import MyBertConfig, MyBertForMaskedLM, MyBertTokenizer
from mybert.pretraining import AdaptArguments, PretrainingTrainer, adapt
from mybert.pretraining.initial_weights import add_rows
from mybert.tokenization import extend_vocabulary, spell

SIZE = {"hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 16}
WORDS = "catfish dogfish sunfish catdog happytree"


@pytest.fixture
def old(tokenizer) -> MyBertTokenizer:
    pieces = sorted(tokenizer.get_vocab(), key=tokenizer.get_vocab().__getitem__)
    letters = [prefix + letter for letter in "abcdefghijklmnopqrstuvwxyz" for prefix in ("", "##")]
    return MyBertTokenizer(vocab=dict.fromkeys([*pieces, "[unused0]", "[unused1]", *letters, "##fish"]).keys())


@pytest.fixture
def folder(tmp_path, old):
    torch.manual_seed(0)
    BertForMaskedLM(BertConfig(vocab_size=len(old), **SIZE)).save_pretrained(tmp_path / "bert")
    old.save_pretrained(tmp_path / "bert")
    return tmp_path / "bert"


@pytest.fixture
def text(tmp_path):
    lines = [f"{word} sat on the mat and the {word} ate bread" for word in WORDS.split()]
    documents = ["\n".join(lines[number % 5 :] + lines) for number in range(30)]
    (tmp_path / "domain.txt").write_text("\n\n".join(documents) + "\n")
    return str(tmp_path / "domain.txt")


def settings(tmp_path, folder, text, **others):
    return AdaptArguments(
        **{
            "model": str(folder),
            "text": [text],
            "output_dir": str(tmp_path / "out"),
            "new_pieces": 4,
            "join_lines": False,
            "max_length": 24,
            "max_steps": 4,
            "per_device_train_batch_size": 4,
            "learning_rate": 1e-3,
            "heldout": 0.2,
            "num_processes": 1,
            "use_cpu": True,
            "disable_tqdm": True,
        }
        | others
    )


@pytest.mark.parametrize("rows", ["mean", "random"])
def test_new_rows_are_means_and_old_ones_stay(old, rows):
    new = extend_vocabulary(old, Counter({"catfish": 9, "dogfish": 8, "xö": 7, "sunny": 6}), 4).tokenizer
    assert len(new) == len(old) + 2
    torch.manual_seed(0)
    model = MyBertForMaskedLM(MyBertConfig(vocab_size=len(old), **SIZE))
    model.cls.predictions.bias.data.normal_()
    head = model.cls.predictions
    weights, bias = model.get_input_embeddings().weight.detach().clone(), head.bias.detach().clone()
    add_rows(model, old, new, rows)
    head = model.cls.predictions
    embeddings, vocab = model.get_input_embeddings().weight, old.get_vocab()
    assert embeddings is model.get_output_embeddings().weight and model.config.vocab_size == len(new)
    assert head.bias is model.get_output_embeddings().bias
    for piece, index in new.get_vocab().items():
        if piece in vocab:
            assert torch.equal(embeddings[index], weights[index]) and bias[index] == head.bias[index]
            continue
        parts = [vocab[part] for part in spell(piece, vocab) or []]
        mean = weights[parts].mean(0)
        if rows == "mean" and parts:
            assert torch.allclose(embeddings[index], mean)
            assert torch.allclose(head.bias[index], bias[parts].mean())
        else:
            assert not torch.allclose(embeddings[index], mean) and 0 < embeddings[index].std() < 0.1
            assert head.bias[index] == 0


def test_a_vocabulary_layer_of_its_own_has_means_too(old):
    new = extend_vocabulary(old, Counter({"catfish": 9, "dogfish": 8, "sunny": 6}), 3).tokenizer
    torch.manual_seed(0)
    model = MyBertForMaskedLM(MyBertConfig(vocab_size=len(old), tie_word_embeddings=False, **SIZE))
    weights = model.get_output_embeddings().weight.detach().clone()
    add_rows(model, old, new)
    found = model.get_output_embeddings().weight
    assert found is not model.get_input_embeddings().weight
    kept = [index for piece, index in old.get_vocab().items() if new.get_vocab().get(piece) == index]
    assert torch.equal(found[kept], weights[kept])
    for piece, index in new.get_vocab().items():
        if piece not in old.get_vocab():
            parts = old.convert_tokens_to_ids(spell(piece, old.get_vocab()))
            torch.testing.assert_close(found[index], weights[parts].mean(0))


def test_a_model_is_adapted_and_the_words_are_its_own(tmp_path, folder, text, old, caplog):
    with caplog.at_level("INFO", logger="mybert"):
        metrics = adapt(settings(tmp_path, folder, text))
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
    again = adapt(settings(tmp_path, folder, text))  # finished: the same figures, the same weights
    assert again["after"] == metrics["after"]


@pytest.mark.slow
def test_an_interrupted_run_goes_on_to_the_last_bit(tmp_path, folder, text):
    whole = settings(tmp_path, folder, text, output_dir=str(tmp_path / "whole"))
    adapt(whole)
    stopped = {"save_steps": 2}
    adapt(settings(tmp_path, folder, text, **stopped))
    shutil.rmtree(tmp_path / "out" / "checkpoint-4")
    (tmp_path / "out" / "model.safetensors").unlink()
    adapt(settings(tmp_path, folder, text, **stopped))
    one, other = (load_file(tmp_path / name / "model.safetensors") for name in ("whole", "out"))
    assert one.keys() == other.keys() and all(torch.equal(one[name], other[name]) for name in one)


def weights(path):
    return load_file(path / "model.safetensors")


@pytest.mark.parametrize(("optim", "corrects"), [(None, True), ("adamw", True), ("google", False)])
def test_the_optimizer_is_adamw_unless_another_is_named(tmp_path, folder, text, optim, corrects):
    named = {} if optim is None else {"optim": optim}
    trainer = PretrainingTrainer(model=torch.nn.Linear(2, 2), args=settings(tmp_path, folder, text, **named))
    assert trainer.create_optimizer().defaults["correct_bias"] is corrects


def test_an_encoder_without_head_has_nothing_before(tmp_path, text, old):
    BertModel(BertConfig(vocab_size=len(old), **SIZE)).save_pretrained(tmp_path / "encoder")
    old.save_pretrained(tmp_path / "encoder")
    metrics = adapt(settings(tmp_path, tmp_path / "encoder", text, max_steps=1))
    assert metrics["before"] is None and metrics["after"]["nats_per_word"] > 0


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"model": None}, "model is not set; give the model to adapt"),
        ({"tokenizer": "bert"}, "tokenizer is set and new_pieces is 4; new pieces are learned from text"),
        ({"model": "gone"}, "gone"),
    ],
)
def test_mistakes(tmp_path, folder, text, change, message):
    with pytest.raises((ValueError, OSError), match=message):
        adapt(settings(tmp_path, folder, text, **change))
    assert not (tmp_path / "out").exists()


def test_without_a_free_entry_nothing_is_begun(tmp_path, folder, text, tokenizer):
    tokenizer.save_pretrained(folder)
    with pytest.raises(ValueError, match=r"no free \[unused...\] entry"):
        adapt(settings(tmp_path, folder, text, append_pieces=False))
    assert not (tmp_path / "out" / "run.json").exists()
