"""Model folders, complete and broken in every way that has an error message."""

import json
import os
import re
import shutil
import sys
import time
from functools import partial

import huggingface_hub
import pytest
import torch
import transformers
from huggingface_hub.errors import EntryNotFoundError, HTTPError, RepositoryNotFoundError
from safetensors.torch import load_file, save_file

import mybert
from mybert.files.checkpoint import (
    Checkpoint,
    check_available,
    companion_files,
    copy_companions,
    head_name,
    open_safetensors,
)

SIZES = {
    "vocab_size": 11,
    "hidden_size": 8,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "intermediate_size": 12,
    "max_position_embeddings": 16,
}
HEADS = (
    "Model ForPreTraining ForMaskedLM ForNextSentencePrediction ForSequenceClassification ForMultipleChoice "
    "ForTokenClassification ForQuestionAnswering"
).split()


@pytest.fixture(scope="session")
def saved(tmp_path_factory):
    """A classifier with three labels, saved."""
    folder = tmp_path_factory.mktemp("models") / "classifier"
    mybert.MyBertForSequenceClassification(mybert.MyBertConfig(**SIZES, num_labels=3)).save_pretrained(folder)
    return folder


@pytest.fixture
def folder(saved, tmp_path):
    """A copy of it to break."""
    shutil.copytree(saved, tmp_path / "model")
    return tmp_path / "model"


def change(folder, **fields) -> None:
    """Set fields of a folder's configuration; None takes one away."""
    path = folder / "config.json"
    config = json.loads(path.read_text()) | fields
    path.write_text(json.dumps({name: value for name, value in config.items() if value is not None}))


def complaint(folder, kind=ValueError) -> str:
    with pytest.raises(kind) as caught:
        Checkpoint(folder).check_folder()
    assert len(str(caught.value)) < 500
    return str(caught.value)


@pytest.mark.parametrize("head", HEADS)
@pytest.mark.parametrize("family", ["MyBert", "Bert"])
def test_check_folder_after_save_pretrained_accepts_it(family, head, tmp_path):
    config_class = mybert.MyBertConfig if family == "MyBert" else transformers.BertConfig
    labels = 2 if head == "ForQuestionAnswering" else 3
    model = getattr(mybert if family == "MyBert" else transformers, family + head)(
        config_class(**SIZES, num_labels=labels)
    )
    model.save_pretrained(tmp_path)
    assert Checkpoint(tmp_path).check_folder().fields == json.loads((tmp_path / "config.json").read_text())
    stored = {name: tuple(value.shape) for name, value in load_file(tmp_path / "model.safetensors").items()}
    assert {name: shape for name, (_, shape) in Checkpoint(tmp_path).tensors.items()} == stored


def test_parts_half_precision_a_bare_trunk_and_old_names_are_accepted(folder, tmp_path):
    model = mybert.MyBertForSequenceClassification.from_pretrained(folder)
    model.half().save_pretrained(tmp_path / "parts", max_shard_size="1KB")
    assert len(list((tmp_path / "parts").glob("model-*.safetensors"))) > 1
    Checkpoint(tmp_path / "parts").check_folder()
    old = {
        name.removeprefix("bert.")
        .replace("LayerNorm.weight", "LayerNorm.gamma")
        .replace("Norm.bias", "Norm.beta"): value
        for name, value in load_file(folder / "model.safetensors").items()
    }
    save_file(old, folder / "model.safetensors")
    change(folder, model_type=None)
    Checkpoint(folder).check_folder()


def test_other_model_types_are_not_compared(folder):
    change(folder, model_type="distilbert", vocab_size=10**12)
    assert Checkpoint(folder).check_folder().fields["vocab_size"] == 10**12
    change(folder, model_type="bert", vocab_size=12, quantization_config={"bits": 8})
    Checkpoint(folder).check_folder()


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"vocab_size": 10**12}, r"word_embeddings.weight in .* has shape \(11, 8\); expected \(1000000000000, 8\)"),
        ({"max_position_embeddings": 20}, r"position_embeddings.weight in .* \(16, 8\); expected \(20, 8\)"),
        ({"type_vocab_size": 1}, r"token_type_embeddings.weight in .* \(2, 8\); expected \(1, 8\)"),
        ({"hidden_size": 16}, r"word_embeddings.weight in .* \(11, 8\); expected \(11, 16\)"),
        ({"intermediate_size": 13}, r"layer.0.intermediate.dense.weight in .* \(12, 8\); expected \(13, 8\)"),
        ({"id2label": {"0": "a", "1": "b"}}, r"classifier.weight in .* \(3, 8\); expected \(2, 8\)"),
        ({"architectures": ["MyBertForMultipleChoice"]}, r"classifier.weight in .* \(3, 8\); expected \(1, 8\)"),
        *(
            ({"num_hidden_layers": layers}, f"num_hidden_layers is {layers}, but the weights have 2 layers")
            for layers in (10**9, 10**30, 3, 1, 0)
        ),
        ({"hidden_size": "8"}, "hidden_size is '8'; expected a whole number of at least 1"),
        ({"vocab_size": 11.0}, r"vocab_size is 11\.0; expected a whole number"),
        ({"num_attention_heads": True}, "num_attention_heads is True; expected a whole number"),
        ({"num_hidden_layers": -1}, "num_hidden_layers is -1; expected a whole number of at least 0"),
        ({"dtype": "float99"}, "dtype is 'float99'; expected one of float16, bfloat16"),
        ({"torch_dtype": [1]}, r"torch_dtype is \[1\]; expected one of float16"),
        ({"architectures": "Bert"}, "architectures is 'Bert'; expected a list"),
        ({"architectures": [1]}, r"architectures is \[1\]; expected a list"),
        ({"model_type": ["bert"]}, r"model_type is \['bert'\]; expected a string"),
        ({"id2label": ["a"]}, r"id2label is \['a'\]; expected an object"),
        ({"id2label": {"0": [1]}}, r"id2label is \{'0': \[1\]\}; expected an object"),
        ({"id2label": {"a": "b"}}, r"id2label is \{'a': 'b'\}; expected 0, 1, 2"),
        ({"id2label": {"0": "a", "2": "b"}}, r"id2label is \{'0': 'a', '2': 'b'\}; expected 0, 1, 2"),
        ({"label2id": {"a": {}}}, r"label2id is \{'a': \{\}\}; expected an object"),
    ],
)
def test_configurations_that_disagree_with_the_weights_or_have_wrong_types(folder, fields, message):
    change(folder, **fields)
    found = complaint(folder)
    assert re.search(message, found) and str(folder) in found


def test_missing_tensors(folder):
    weights = load_file(folder / "model.safetensors")
    gone = "bert.encoder.layer.1.output.dense.bias"
    save_file({name: value for name, value in weights.items() if name != gone}, folder / "model.safetensors")
    assert complaint(folder).startswith(f"The weights in {folder} lack {gone}; expected")


@pytest.mark.parametrize("name", ["config.json", "tokenizer.json", "tokenizer_config.json"])
@pytest.mark.parametrize(
    ("content", "sentence"),
    [
        (b"", "is not JSON"),
        (b"\xff\xfe", "is not JSON"),
        (b"[1]", "holds a JSON list"),
        (b"null", "holds a JSON NoneType"),
        (b"[" * 100_000, "is nested too deeply"),
        (b'{"a": ' + b"9" * 5000 + b"}", "is not JSON"),
    ],
    ids=["empty", "no text", "list", "null", "deep", "long number"],
)
def test_files_that_hold_no_object(folder, name, content, sentence):
    (folder / name).write_bytes(content)
    assert complaint(folder).startswith(f"{folder / name} {sentence}")


def test_a_tokenizer_file_of_something_else(folder):
    (folder / "tokenizer.json").write_text("{}")
    found = "tokenizer.json has no model and added_tokens; expected"
    assert found in complaint(folder)
    graph = (folder / "model.safetensors").rename(folder / "openvino_model.xml")
    with pytest.raises(ValueError, match=found):
        Checkpoint(folder).check(needs_weights=False)
    graph.unlink()
    Checkpoint(folder).check(needs_weights=False)  # a new model is not loaded from the folder


def test_files_that_are_not_there(folder, tmp_path):
    assert complaint(tmp_path / "nothing", FileNotFoundError).startswith("There is no folder")
    weights = (folder / "model.safetensors").read_bytes()
    (folder / "model.safetensors").unlink()
    assert complaint(folder, FileNotFoundError) == f"There is no model.safetensors in {folder}."
    torch.save({}, folder / "pytorch_model.bin")
    assert "holds only pickled weights (pytorch_model.bin)" in complaint(folder, FileNotFoundError)
    index = folder / "model.safetensors.index.json"
    for content in ({}, {"weight_map": {}}, {"weight_map": {"a": "../model.safetensors"}}, {"weight_map": [1]}):
        index.write_text(json.dumps(content))
        assert "has no weight_map that names files of its folder" in complaint(folder)
    index.write_text(json.dumps({"weight_map": {"a": "part.safetensors"}}))
    assert complaint(folder, FileNotFoundError).startswith("There is no part.safetensors in")
    (folder / "model.safetensors").write_bytes(weights)
    (folder / "config.json").unlink()
    assert complaint(folder, FileNotFoundError) == f"There is no file {folder / 'config.json'}."


@pytest.mark.parametrize("lost", [["config.json", "model.safetensors"], ["config.json"], ["model.safetensors"]])
@pytest.mark.parametrize(("base", "named"), [("a/base", " of 'a/base'"), (None, "")])
def test_an_adapter_in_place_of_a_model(folder, lost, base, named):
    (folder / "adapter_config.json").write_text(json.dumps({"base_model_name_or_path": base}))
    Checkpoint(folder).check_folder()  # a model may have one beside it
    for name in lost:
        (folder / name).unlink()
    found = complaint(folder, FileNotFoundError)
    assert found.startswith(f"{folder} holds a PEFT adapter{named}; expected a model.")
    assert f"PeftModel.from_pretrained(model, {str(folder)!r}).merge_and_unload().save_pretrained(...)" in found


def test_the_name_of_a_head_is_found_behind_any_name_of_a_model():
    assert head_name("RoFormerForSequenceClassification") == "SequenceClassification"
    assert head_name("AutoModelForMaskedLM") == "MaskedLM"
    assert head_name("RoFormerModel") == head_name("BertLMHeadModel") == ""


def test_weights_that_are_cut_off(folder):
    path = folder / "model.safetensors"
    weights = path.read_bytes()
    for content in (b"", weights[:7], weights[:100], weights[:-1], b"\xff" * 100):
        path.write_bytes(content)
        assert complaint(folder).startswith(f"{path} cannot be read (")


@pytest.fixture
def hub(monkeypatch):
    """The Hub's answer to a file request, an error or nothing; and the requested names."""
    asked, answers = [], []

    def answer(url, timeout):
        asked.append(url)
        assert timeout <= 10
        if answers:
            raise answers[0]

    monkeypatch.setattr(huggingface_hub, "get_hf_file_metadata", answer)
    return asked, answers


@pytest.mark.parametrize("name", ["./gone", "/gone", "~/gone", "runs/gone", "a/b/c", "../gone"])
def test_a_path_is_not_asked_for(name, hub, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "runs").mkdir()
    for check in (partial(check_available, ask_hub=False), check_available):
        with pytest.raises(FileNotFoundError, match=rf"^There is no model folder {name}\.$"):
            check(name)
    assert hub[0] == []


def test_check_available_of_local_files_asks_no_hub(hub, tmp_path):
    check_available(tmp_path)
    (tmp_path / "vocab.txt").write_text("[PAD]\n")
    check_available(tmp_path / "vocab.txt", "tokenizer")
    for ask_hub in (False, True):  # transformers takes a file for a configuration, and unpickles it as weights
        with pytest.raises(NotADirectoryError, match=r"^model is '.*vocab.txt', which is a file"):
            check_available(tmp_path / "vocab.txt", ask_hub=ask_hub)
    assert hub[0] == []


def test_a_name_is_asked_for_once(hub, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    check_available("owner/name", ask_hub=False)
    assert hub[0] == []
    check_available("owner/name")
    assert hub[0] == ["https://huggingface.co/owner/name/resolve/main/config.json"]
    hub[1][:] = [EntryNotFoundError("no config.json")]
    check_available("owner/name")
    hub[1][:] = [RepositoryNotFoundError.__new__(RepositoryNotFoundError)]
    with pytest.raises(OSError, match=r"^model is 'owner/name'; there is no such folder here, and the Hub has none"):
        check_available("owner/name")
    for error in (HTTPError("no network"), ConnectionError("offline"), TimeoutError()):
        hub[1][:] = [error]
        with pytest.raises(OSError, match=r"^tokenizer is 'owner/name'; .* here, and the Hub could not be reached"):
            check_available("owner/name", "tokenizer")
    with pytest.raises(FileNotFoundError, match="There is no model folder two words"):
        check_available("two words")
    monkeypatch.setattr(huggingface_hub, "try_to_load_from_cache", lambda name, file: {"vocab.txt": file}.get(file))
    check_available("owner/name")  # of which the cache has a part


def test_an_unreachable_hub_is_asked_once(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_OFFLINE", False)
    http = sys.modules[HTTPError.__module__.partition(".")[0]]
    asked = []

    def refuse(client, request, **kwargs):
        asked.append(request.url.path)
        raise http.ConnectError("no network")

    monkeypatch.setattr(http.Client, "send", refuse)
    monkeypatch.setattr(time, "sleep", lambda seconds: pytest.fail("it waits to ask again"))
    with pytest.raises(OSError, match="the Hub could not be reached"):
        check_available("owner/name")
    assert asked.count("/owner/name/resolve/main/config.json") == 1


MODULES = [
    {"idx": 0, "name": "0", "path": "", "type": "sentence_transformers.models.Transformer"},
    {"idx": 1, "name": "1", "path": "1_Pooling", "type": "sentence_transformers.models.Pooling"},
    {"idx": 2, "name": "2", "path": "2_Dense", "type": "sentence_transformers.models.Dense"},
]
FILES = ["1_Pooling/config.json", "2_Dense/config.json", "2_Dense/deeper/weights.bin", "modules.json"]


@pytest.fixture
def embedder(tmp_path):
    source = tmp_path / "source"
    for name in FILES:
        (source / name).parent.mkdir(parents=True, exist_ok=True)
        (source / name).write_text(name)
    (source / "modules.json").write_text(json.dumps(MODULES))
    for name in ("config.json", "3_Other/config.json"):
        (source / name).parent.mkdir(exist_ok=True)
        (source / name).write_text("{}")
    return source


def test_modules_travel_whole(embedder, tmp_path):
    assert companion_files(embedder) == FILES
    assert copy_companions(embedder, tmp_path / "target") == FILES
    assert {path.name for path in (tmp_path / "target").iterdir()} == {"1_Pooling", "2_Dense", "modules.json"}
    for name in FILES:
        assert (tmp_path / "target" / name).read_bytes() == (embedder / name).read_bytes()


def test_settings_travel_without_modules(tmp_path):
    (tmp_path / "config_sentence_transformers.json").write_text("{}")
    assert companion_files(tmp_path) == ["config_sentence_transformers.json"]


OUTSIDE = [json.dumps([MODULES[0], MODULES[1] | {"path": path}]) for path in ("..", "/etc", "1_Pooling/../..", ".")]


@pytest.mark.parametrize(
    "content", ["", "[1]", '{"a": 1}', "[" * 5000, '[{"path": 3}]', '[{"path": ["a"]}]', *OUTSIDE]
)
def test_broken_lists_of_modules_and_modules_outside_are_refused(embedder, tmp_path, content):
    (embedder / "modules.json").write_text(content)
    with pytest.raises(ValueError, match=r"modules\.json") as caught:
        copy_companions(embedder, tmp_path / "target")
    assert len(str(caught.value)) < 500 and not (tmp_path / "target").exists()


def test_links_are_followed_within_the_hub_s_cache_only(embedder, tmp_path):
    (tmp_path / "secret").write_text("secret")
    snapshot = tmp_path / "models--a" / "snapshots" / "1"
    snapshot.parent.mkdir(parents=True)
    embedder.rename(snapshot)
    (tmp_path / "models--a" / "blobs").mkdir()
    (snapshot / "1_Pooling" / "config.json").rename(tmp_path / "models--a" / "blobs" / "abc")
    (snapshot / "1_Pooling" / "config.json").symlink_to("../../../blobs/abc")
    assert companion_files(snapshot) == FILES
    (snapshot / "1_Pooling" / "leak").symlink_to(tmp_path / "secret")
    with pytest.raises(ValueError, match="leads out of"):
        companion_files(snapshot)


def test_check_folder_called_again_reads_nothing_again(tmp_path, tiny_model, monkeypatch):
    checkpoint = Checkpoint(tiny_model(tmp_path / "model")).check_folder()
    monkeypatch.setattr("mybert.files.checkpoint.read_json_object", lambda path: pytest.fail(f"{path} was read again"))
    assert checkpoint.check_folder().check(ask_hub=False) is checkpoint


def test_fields_of_a_model_on_the_hub_are_those_of_its_configuration(tmp_path, monkeypatch):
    cached = tmp_path / "models--me--model"
    for name, content in (("snapshots/1a/config.json", '{"model_type": "bert", "mine": 3}'), ("refs/main", "1a")):
        (cached / name).parent.mkdir(parents=True)
        (cached / name).write_text(content)
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path))
    assert Checkpoint("me/model").fields["mine"] == 3


def test_open_safetensors_of_a_file_that_torch_cannot_map_says_why(tmp_path):
    resource = pytest.importorskip("resource", reason="limits of POSIX")
    save_file({"a": torch.ones(2)}, tmp_path / "a")
    free = os.open(tmp_path, os.O_RDONLY)
    os.close(free)
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (free + 1, limits[1]))  # safetensors opens the file, then torch does
    try:
        with pytest.raises(OSError, match=r"/a cannot be read: .*Too many open files.*\.$"):
            open_safetensors(tmp_path / "a", "pt")
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, limits)


def test_open_safetensors_says_why_a_file_cannot_be_opened(tmp_path, monkeypatch):
    with pytest.raises(FileNotFoundError, match="gone"):
        open_safetensors(tmp_path / "gone", "np")
    (tmp_path / "loop").symlink_to("loop")
    with pytest.raises(OSError, match="Too many levels of symbolic links"):  # safetensors says that there is no file
        open_safetensors(tmp_path / "loop", "np")

    def missing(path, framework):
        raise FileNotFoundError(path)

    (tmp_path / "late").touch()  # as if it came when it had been missed
    monkeypatch.setattr("mybert.files.checkpoint.safe_open", missing)
    with pytest.raises(FileNotFoundError, match="late"):
        open_safetensors(tmp_path / "late", "np")
