"""Tokenizers and models that do not belong together, of several model types; weights under a wrapper's names."""

import json

import pytest
import torch
import transformers
from safetensors.torch import load_file, save_file
from transformers import AutoModel, AutoModelForSequenceClassification, pipeline

import mybert
from mybert.conversion import from_transformers_bert
from mybert.files.checkpoint import Checkpoint
from mybert.files.loading import load_model, load_tokenizer

CLASSES = {
    "bert": transformers.BertForSequenceClassification,
    "mybert": mybert.MyBertForSequenceClassification,
    "distilbert": transformers.DistilBertForSequenceClassification,
    "electra": transformers.ElectraForSequenceClassification,
}
WRAPPERS = {"module.": ", as DataParallel saves them", "_orig_mod.": ", as torch.compile saves them", "bert.": ""}


@pytest.fixture(params=CLASSES)
def folder(request, tmp_path, tiny_model):
    """A classifier of each type, with its tokenizer."""
    return tiny_model(tmp_path / request.param, CLASSES[request.param])


def wrap(folder, prefix):
    """Put a prefix before the names of a folder's weights; returns the weights under their own names."""
    weights = load_file(folder / "model.safetensors")
    save_file({f"{prefix}{name}": value for name, value in weights.items()}, folder / "model.safetensors")
    return weights


def pieces_of(tokenizer):
    vocabulary = tokenizer.get_vocab()
    return sorted(vocabulary, key=vocabulary.__getitem__)


def only_vocab_txt(folder, pieces):
    (folder / "tokenizer.json").unlink()
    (folder / "tokenizer_config.json").write_text(json.dumps({"tokenizer_class": "BertTokenizer"}))
    (folder / "vocab.txt").write_text("".join(f"{piece}\n" for piece in pieces))
    return Checkpoint(folder)


@pytest.mark.parametrize("kept", [(), ("tokenizer_config.json",)], ids=["nothing", "settings"])
def test_load_tokenizer_without_a_vocabulary_names_the_files(folder, kept):
    for name in {"tokenizer.json", "tokenizer_config.json", "vocab.txt"}.difference(kept):
        (folder / name).unlink()
    (folder / "notes.txt").write_text("no vocabulary\n")
    with pytest.raises(OSError, match=r"holds neither tokenizer\.json nor vocab\.txt; expected .* writes it\.$"):
        load_tokenizer(Checkpoint(folder))


def test_load_tokenizer_with_a_vocabulary_of_another_name_names_it(folder, tokenizer):
    only_vocab_txt(folder, pieces_of(tokenizer))
    (folder / "vocab.txt").rename(folder / "words.txt")
    with pytest.raises(OSError, match=r"words\.txt looks like its vocabulary: rename it to vocab\.txt\.$"):
        load_tokenizer(Checkpoint(folder))


def test_load_tokenizer_of_roberta_without_a_vocabulary_names_its_files(tmp_path, tiny_model):
    folder = tiny_model(tmp_path / "roberta", transformers.RobertaModel, pad_token_id=0)
    for file in (*folder.glob("*tokenizer*"), folder / "vocab.txt"):
        file.unlink()
    with pytest.raises(OSError, match=r"holds neither tokenizer\.json nor vocab\.json nor merges\.txt"):
        load_tokenizer(Checkpoint(folder))


def test_load_tokenizer_with_more_tokens_than_embeddings_names_the_last(folder, tokenizer):
    pieces = pieces_of(tokenizer)
    assert len(load_tokenizer(only_vocab_txt(folder, pieces))) == len(pieces)
    (folder / "vocab.txt").write_text("".join(f"{piece}\n" for piece in [*pieces, "more"]))
    with pytest.raises(ValueError, match=rf"the id {len(pieces)} \(more\), and the model {len(pieces)} word embedd"):
        load_tokenizer(Checkpoint(folder))


def test_load_tokenizer_without_special_tokens_names_them(folder, tokenizer):
    pieces = [f"{piece}x" if piece in ("[UNK]", "[SEP]") else piece for piece in pieces_of(tokenizer)]
    with pytest.raises(ValueError, match=r"lacks the special tokens \[UNK\], \[SEP\]\.$"):
        load_tokenizer(only_vocab_txt(folder, pieces))


def test_load_tokenizer_with_far_fewer_tokens_than_embeddings_warns(tmp_path, tiny_model, caplog):
    for size, warns in ((150, False), (400, True)):
        folder = tiny_model(tmp_path / str(size), transformers.BertModel, vocab_size=size)
        load_tokenizer(Checkpoint(folder))
        assert ("they may not belong together" in caplog.text) is warns


def test_case_01_pipelines_reject_a_made_up_tokenizer(tmp_path, tiny_model):
    folder = tiny_model(tmp_path / "bert", transformers.BertForQuestionAnswering)
    pipeline("question-answering", model=str(folder))
    for file in (*folder.glob("*tokenizer*"), folder / "vocab.txt"):
        file.unlink()
    with pytest.raises(OSError, match=r"bert holds neither tokenizer\.json nor vocab\.txt"):
        pipeline("question-answering", model=str(folder))


@pytest.mark.parametrize("prefix", WRAPPERS)
def test_case_18_weights_of_a_wrapper_are_named_and_converted(prefix, tmp_path, tiny_model):
    folder = tiny_model(tmp_path / "bert", transformers.BertForSequenceClassification, num_hidden_layers=2)
    texts = ["the cat sat", "a dog ran"]
    expected = mybert.predict(folder, texts)
    weights = wrap(folder, prefix)
    with pytest.raises(
        ValueError, match=rf"begin with '{prefix}'{WRAPPERS[prefix]}; .*`mybert convert bert .* OUTPUT`"
    ):
        mybert.predict(folder, texts)
    assert from_transformers_bert(folder, tmp_path / "mybert").verification.ok
    converted = load_file(tmp_path / "mybert" / "model.safetensors")
    assert converted.keys() == weights.keys() and all(torch.equal(converted[key], weights[key]) for key in weights)
    assert mybert.predict(tmp_path / "mybert", texts) == expected


def test_case_18_load_model_of_another_type_names_the_wrapper(folder):
    wrap(folder, "module.")
    with pytest.raises(ValueError, match=r"begin with 'module\.', as DataParallel saves them"):
        load_model(Checkpoint(folder), AutoModelForSequenceClassification)


@pytest.mark.parametrize("auto_class", [AutoModel, AutoModelForSequenceClassification])
def test_load_model_without_weights_of_the_encoder_is_an_error(folder, auto_class):
    weights = load_file(folder / "model.safetensors")
    kept = {name: value for name, value in weights.items() if "word_embeddings" not in name}
    save_file(kept, folder / "model.safetensors")
    with pytest.raises(ValueError, match=r"lack 1 of the encoder's, such as \S*word_embeddings\.weight"):
        load_model(Checkpoint(folder), auto_class)


def test_load_model_without_weights_of_the_head_is_an_error_if_it_is_needed(folder):
    weights = load_file(folder / "model.safetensors")
    save_file({name: value for name, value in weights.items() if "classif" not in name}, folder / "model.safetensors")
    load_model(Checkpoint(folder), AutoModelForSequenceClassification)
    with pytest.raises(ValueError, match=r"has no head for this task \(it lacks .*classif"):
        load_model(Checkpoint(folder), AutoModelForSequenceClassification, needs_head=True)


def test_check_folder_with_an_onnx_graph_says_what_reads_it(folder):
    weights = folder / "model.safetensors"
    for name in ("model.onnx", "onnx/model_int8.onnx"):
        (folder / name).parent.mkdir(exist_ok=True)
        weights = weights.rename(folder / name)
        with pytest.raises(FileNotFoundError, match=rf"holds an ONNX graph \({name}\) .*onnxruntime.*docs/graphs\.md"):
            Checkpoint(folder).check_folder()


@pytest.mark.parametrize("error", [MemoryError, KeyboardInterrupt])
def test_load_tokenizer_without_memory_or_interrupted_blames_no_file(error, tmp_path, tiny_model, monkeypatch):
    def load(*args, **options):
        raise error

    monkeypatch.setattr(transformers.AutoTokenizer, "from_pretrained", load)
    with pytest.raises(error):
        load_tokenizer(Checkpoint(tiny_model(tmp_path / "model")))
