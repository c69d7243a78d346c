"""Publishing through the real huggingface_hub client to a Hub on the loopback address."""

import contextlib
import importlib
import inspect
import itertools
import json
import shutil
import subprocess
import sys
from pathlib import Path

import huggingface_hub
import pytest
import torch
import transformers

import mybert
from mybert.conversion.graph_export import DIGEST
from mybert.conversion.model_folder import ModelFolder
from mybert.hub_card import CardContent, publish, publishable_files, publishing, write_card, write_publishable
from mybert.modeling_mybert import auto_map

CODE = sorted(path.name for path in Path(mybert.__file__).parent.glob("modeling_mybert/*_mybert.py"))
PUBLISHED = sorted(
    ["README.md", "config.json", "model.safetensors", "tokenizer.json", "tokenizer_config.json", "vocab.txt", *CODE]
)
REPO = "owner/tiny"


@pytest.fixture
def model_dir(make_model_dir, tmp_path):
    """A separate model folder for the test, with the other files of a run."""
    folder = shutil.copytree(make_model_dir("MyBertForSequenceClassification"), tmp_path / "model")
    of_a_run = ("run.json", "trainer_state.json", "tokens.safetensors", "optimizer.safetensors", "training_args.bin")
    with_texts = ("errors.tsv", "predictions.conll", "nbest_predictions.json", "attention.png")
    for name in (*of_a_run, *with_texts):
        (folder / name).write_bytes(b"no part of the model")
    (folder / "checkpoint-1").mkdir()
    (folder / "checkpoint-1" / "model.safetensors").write_bytes(b"nor is this")
    return folder


def snapshot(folder):
    return {str(path.relative_to(folder)): path.read_bytes() for path in Path(folder).rglob("*") if path.is_file()}


def content_of(files):
    return {name: content if isinstance(content, bytes) else content.read_bytes() for name, content in files.items()}


def save_in_shards(folder):
    model = mybert.MyBertForSequenceClassification.from_pretrained(folder)
    model.save_pretrained(folder, max_shard_size="10KB")
    return model


def test_auto_map_names_a_class_that_exists_for_every_auto_class_that_is_registered():
    assert set(auto_map()) == {
        "AutoConfig",
        "AutoModel",
        "AutoModelForPreTraining",
        "AutoModelForMaskedLM",
        "AutoModelForNextSentencePrediction",
        "AutoModelForSequenceClassification",
        "AutoModelForMultipleChoice",
        "AutoModelForTokenClassification",
        "AutoModelForQuestionAnswering",
    }
    for auto_class, name in auto_map().items():
        module, class_name = name.split(".")
        published = getattr(importlib.import_module(f"mybert.modeling_mybert.{module}"), class_name)
        mapping = {"AutoConfig": None}.get(auto_class, getattr(transformers, auto_class))
        assert mapping is None or mapping._model_mapping[mybert.MyBertConfig] is published


def test_only_the_model_is_published_and_the_folder_stays_as_it_is(model_dir, tmp_path):
    before = snapshot(model_dir)
    files = publishable_files(model_dir, REPO)
    assert sorted(files) == PUBLISHED
    config = json.loads(files["config.json"])
    assert config == json.loads(before["config.json"]) | {"auto_map": auto_map()}
    for name in CODE:
        assert files[name].read_bytes() == (Path(mybert.__file__).parent / "modeling_mybert" / name).read_bytes()
    assert "auto_map" not in json.loads(files["tokenizer_config.json"].read_text())
    folder = write_publishable(model_dir, tmp_path / "new" / "published", REPO, format="mybert")
    assert snapshot(folder) == content_of(files)
    assert snapshot(model_dir) == before
    assert [path.name for path in folder.parent.iterdir()] == ["published"]
    with pytest.raises(ValueError, match="exists and holds other things"):
        write_publishable(model_dir, folder, REPO, format="mybert")


def test_pull_gives_the_bytes_that_were_pushed(client, hub, model_dir, tmp_path):
    (model_dir / "README.md").write_text("---\ntags:\n- mybert\n---\npipeline('fill-mask', model='model')\n")
    before = snapshot(model_dir)
    commit = publish(model_dir, "tiny", format="mybert")
    expected = content_of(publishable_files(model_dir, REPO))
    assert b"model='owner/tiny'" in expected["README.md"], "the Hub names the owner"
    assert commit.commit_url == f"{hub.url}/{REPO}/commit/{commit.oid}"
    pulled = client.snapshot_download(REPO, local_dir=tmp_path / "pulled", revision=commit.oid)
    for name, content in expected.items():
        assert Path(pulled, name).read_bytes() == content, name
    assert set(hub.files(REPO)) == {*expected, ".gitattributes"}
    assert hub.repositories[REPO].messages == ["initial commit", "Upload model"]
    assert snapshot(model_dir) == before


def test_models_and_tokenizers_push_themselves(client, hub, model_dir, tmp_path):
    """`push_to_hub` of transformers: code and all heads are uploaded, and the local model is unchanged."""
    model = mybert.MyBertForSequenceClassification.from_pretrained(model_dir)
    before = model.config.to_dict()
    model.push_to_hub(REPO, private=True)
    mybert.MyBertTokenizer.from_pretrained(model_dir).push_to_hub(REPO)
    assert hub.repositories[REPO].private
    files = hub.files(REPO)
    assert {*CODE, "config.json", "model.safetensors", "tokenizer.json"} <= set(files)
    for name in CODE:
        assert files[name] == (Path(mybert.__file__).parent / "modeling_mybert" / name).read_bytes()
    assert json.loads(files["config.json"])["auto_map"] == auto_map()
    assert files["model.safetensors"] == (model_dir / "model.safetensors").read_bytes()
    assert model.config.to_dict() == before
    assert type(model)._auto_class is None
    cache = {"cache_dir": tmp_path / "cache"}
    again = transformers.AutoModelForSequenceClassification.from_pretrained(REPO, **cache)
    assert all(torch.equal(a, b) for a, b in zip(again.parameters(), model.parameters(), strict=True))
    tokenizers = [transformers.AutoTokenizer.from_pretrained(place, **cache) for place in (model_dir, REPO)]
    assert tokenizers[0]("the cat", "a dog").data == tokenizers[1]("the cat", "a dog").data
    signatures = {inspect.signature(cls.push_to_hub) for cls in (mybert.MyBertModel, transformers.PreTrainedModel)}
    assert len(signatures) == 1


@pytest.mark.parametrize("head", [name for name in mybert.__all__ if name.startswith("MyBertFor")] + ["MyBertModel"])
def test_publish_by_default_plain_bert_has_the_same_weights_and_outputs(make_model_dir, tmp_path, head):
    """transformers' own class loads it without this package's code."""
    folder = write_publishable(make_model_dir(head), tmp_path / "out", REPO)
    assert sorted(path.name for path in folder.iterdir()) == sorted(set(PUBLISHED) - set(CODE))
    bert, report = getattr(transformers, head.removeprefix("My")).from_pretrained(folder, output_loading_info=True)
    assert not any(report[kind] for kind in ("missing_keys", "unexpected_keys", "mismatched_keys"))
    model = getattr(mybert, head).from_pretrained(make_model_dir(head)).eval()
    assert all(torch.equal(value, bert.state_dict()[name]) for name, value in model.state_dict().items())
    ids = torch.ones((1, 2, 6) if "Choice" in head else (1, 6), dtype=torch.long)
    with torch.no_grad():
        for name, value in model(ids).items():
            torch.testing.assert_close(bert.eval()(ids)[name], value, rtol=0, atol=1e-5)
    assert "MyBert" not in (folder / "README.md").read_text()


def test_publish_replaces_the_code_of_an_earlier_upload_by_plain_bert(client, hub, model_dir):
    publish(model_dir, REPO, format="mybert")
    publish(model_dir, REPO)
    assert {*PUBLISHED, ".gitattributes"} - set(CODE) == set(hub.files(REPO))
    assert json.loads(hub.files(REPO)["config.json"])["model_type"] == "bert"


def test_publish_keeps_license_results_and_settings_of_the_task(model_dir, tmp_path, change_config):
    (model_dir / "LICENSE.txt").write_text("mine")
    (model_dir / ".eval_results").mkdir()
    results = "- dataset:\n    id: owner/data\n    task_id: default\n  value: 0.5\n"
    (model_dir / ".eval_results" / "data.yaml").write_text(results)
    record = {"task": "classification", "temperature": 1.5, "window_pooling": "mean", "thresholds": {}}
    change_config(model_dir, finetuned_for=record)
    (model_dir / "LICENSES").mkdir()  # as REUSE has it; not published
    folder = write_publishable(model_dir, tmp_path / "out", REPO)
    assert (folder / "LICENSE.txt").read_text() == "mine"
    assert (folder / ".eval_results" / "data.yaml").read_text() == results
    assert json.loads((folder / "config.json").read_text())["finetuned_for"] == record
    lost = (folder / "README.md").read_text().partition("## What other tools leave out")[2]
    assert "temperature" in lost and "Windows of long texts" in lost and "Thresholds" not in lost


def test_publish_names_windows_and_thresholds_of_0(model_dir, tmp_path, change_config):
    change_config(model_dir, finetuned_for={"task": "ner", "doc_stride": 0, "null_score_threshold": 0.0})
    folder = write_publishable(model_dir, tmp_path / "out", REPO)
    lost = (folder / "README.md").read_text().partition("## What other tools leave out")[2]
    assert "Windows of long texts" in lost and "threshold of no answer" in lost


@pytest.mark.parametrize(
    ("fields", "reason"),
    [({"classifier_pooling": "mean"}, "classifier_pooling is 'mean'"), ({"head_dim": 4}, "head_dim is 4")],
)
def test_publish_what_bert_cannot_express_goes_with_code_or_is_an_error(
    model_dir, tmp_path, change_config, caplog, fields, reason
):
    config = mybert.MyBertConfig.from_pretrained(model_dir)
    model = mybert.MyBertForSequenceClassification(mybert.MyBertConfig(**config.to_dict() | fields))
    model.save_pretrained(model_dir)
    with pytest.raises(ValueError, match=f"model cannot be plain BERT: {reason}"):
        write_publishable(model_dir, tmp_path / "out", REPO, format="bert")
    with caplog.at_level("INFO"):
        folder = write_publishable(model_dir, tmp_path / "out", REPO)
    assert "is published with this package's code" in caplog.text
    assert set(CODE) <= {path.name for path in folder.iterdir()}


def test_publish_bert_folder_stays_as_it_is_and_has_no_code(model_dir, tmp_path):
    plain = write_publishable(model_dir, tmp_path / "plain", REPO)
    again = write_publishable(plain, tmp_path / "again", REPO)
    assert snapshot(again) == snapshot(plain)
    with pytest.raises(ValueError, match="is plain BERT; `mybert convert bert` makes a MyBERT folder of it"):
        write_publishable(plain, tmp_path / "other", REPO, format="mybert")


def test_write_publishable_replaces_the_graphs_of_an_earlier_call(model_dir, tmp_path):
    folder = write_publishable(model_dir, tmp_path / "out", REPO)
    for runtime in ("onnx", "openvino"):
        (folder / runtime).mkdir()
        (folder / runtime / "model").write_bytes(b"of other weights")
    write_publishable(model_dir, folder, REPO, overwrite=True)
    assert not (folder / "onnx").exists() and not (folder / "openvino").exists()


def test_nothing_next_to_a_graph_leaves_through_a_link(model_dir, tmp_path):
    (tmp_path / "secret").write_text("secret")
    (model_dir / "onnx").mkdir()
    (model_dir / "onnx" / "model.onnx").write_bytes(b"")
    (model_dir / "onnx" / "notes.txt").symlink_to(tmp_path / "secret")
    with pytest.raises(ValueError, match=r"onnx/notes\.txt is a link that leads out of"):
        write_publishable(model_dir, tmp_path / "out", REPO)
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("module", "name", "message"),
    [
        ("onnxruntime", "onnx/model.onnx", r"model\.onnx is no graph that ONNX Runtime can read"),
        ("openvino", "openvino/openvino_model.xml", r"openvino_model\.xml or its \.bin file is damaged"),
    ],
)
def test_publish_a_damaged_graph_is_an_error(model_dir, tmp_path, module, name, message):
    pytest.importorskip(module)
    (model_dir / name).parent.mkdir()
    (model_dir / name).write_bytes(b"<broken")
    with pytest.raises(ValueError, match=message):
        write_publishable(model_dir, tmp_path / "out", REPO)


@pytest.mark.parametrize(("output", "message"), [("states", "has no output logits"), ("logits", "has shape")])
def test_publish_a_graph_of_another_tool_with_other_inputs_and_outputs(model_dir, tmp_path, output, message):
    pytest.importorskip("onnxruntime")
    onnx = pytest.importorskip("onnx")
    ids = onnx.helper.make_tensor_value_info("input_ids", onnx.TensorProto.INT64, ["b", "l"])
    states = onnx.helper.make_tensor_value_info(output, onnx.TensorProto.FLOAT, ["b", "l"])
    cast = onnx.helper.make_node("Cast", ["input_ids"], [output], to=onnx.TensorProto.FLOAT)
    versions = [onnx.helper.make_opsetid("", 18)]
    graph = onnx.helper.make_graph([cast], "graph", [ids], [states])
    (model_dir / "onnx" / "folder").mkdir(parents=True)  # is left out
    onnx.save(onnx.helper.make_model(graph, opset_imports=versions, ir_version=8), model_dir / "onnx" / "model.onnx")
    with pytest.raises(ValueError, match=rf"not of the weights next to it, or not float32 \(.*{message}.*delete"):
        write_publishable(model_dir, tmp_path / "out", REPO)


def save_graph(folder, digest):
    """A graph that says of which weights it is."""
    onnx = pytest.importorskip("onnx")
    ids, states = (
        onnx.helper.make_tensor_value_info(name, kind, ["b", "l"])
        for name, kind in (("input_ids", onnx.TensorProto.INT64), ("logits", onnx.TensorProto.FLOAT))
    )
    cast = onnx.helper.make_node("Cast", ["input_ids"], ["logits"], to=onnx.TensorProto.FLOAT)
    graph = onnx.helper.make_graph([cast], "graph", [ids], [states])
    model = onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 18)], ir_version=8)
    onnx.helper.set_model_props(model, {DIGEST: digest})
    (folder / "onnx").mkdir(exist_ok=True)
    onnx.save(model, folder / "onnx" / "model.onnx")


def test_publish_a_graph_with_the_digest_of_the_weights_only(model_dir, tmp_path):
    pytest.importorskip("onnxruntime")
    save_graph(model_dir, ModelFolder(model_dir).digest())
    card = "---\ntags:\n- bert\n---\n\n# tiny\n"
    (model_dir / "README.md").write_text(card)
    folder = write_publishable(model_dir, tmp_path / "out", REPO)
    assert (folder / "onnx" / "model.onnx").read_bytes() == (model_dir / "onnx" / "model.onnx").read_bytes()
    section = "\n## Graphs\n\n- `onnx/model.onnx` is of these weights.\n"
    assert (folder / "README.md").read_text().startswith(card + section)
    known = "\n## Graphs\n\n- `onnx/model.onnx` differs by little.\n"
    (model_dir / "README.md").write_text(card + known)  # of the export, which stays
    kept = write_publishable(model_dir, tmp_path / "kept", REPO)
    assert (kept / "README.md").read_text().startswith(card + known)
    save_graph(model_dir, "0" * 32)
    with pytest.raises(
        ValueError, match=r"model\.onnx was made of other weights .*: delete the folder onnx, or .* graph"
    ):
        write_publishable(model_dir, tmp_path / "other", REPO)


def test_publish_rejects_a_graph_of_another_type_and_other_weights(model_dir, tmp_path):
    pytest.importorskip("onnxruntime")
    save_graph(model_dir, "0" * 32)
    (model_dir / "onnx" / "model.onnx").rename(model_dir / "onnx" / "model_fp16.onnx")
    save_graph(model_dir, ModelFolder(model_dir).digest())
    with pytest.raises(ValueError, match=r"model_fp16\.onnx was made of other weights"):
        write_publishable(model_dir, tmp_path / "out", REPO)


@pytest.mark.slow
def test_publish_graphs_are_those_of_the_weights(model_dir, tmp_path, client, hub):
    for module in ("onnxruntime", "onnxscript", "openvino", "nncf"):
        pytest.importorskip(module)
    texts = tmp_path / "texts.txt"
    texts.write_text("the cat sat on a mat\n\na dog ran\n\nit was happy\n")
    folder = write_publishable(
        model_dir, tmp_path / "out", REPO, graphs=["onnx", "openvino"], data=[str(texts)], format="bert"
    )
    graphs = {
        path.relative_to(folder).as_posix() for kind in ("onnx", "openvino") for path in folder.glob(f"{kind}/*")
    }
    names = {"onnx/model.onnx", "onnx/model_quantized.onnx"}
    assert graphs == {*names, "openvino/openvino_model.xml", "openvino/openvino_model.bin"}
    notes = (folder / "README.md").read_text().partition("## Graphs")[2]
    assert "calibrated with texts of texts.txt" in notes and notes.count("differs from the weights") == 3
    assert snapshot(write_publishable(folder, tmp_path / "again", REPO)) == snapshot(folder)
    publish(folder, REPO)
    assert graphs <= set(hub.files(REPO))
    publish(model_dir, REPO)
    assert not graphs & set(hub.files(REPO)), "they would be of other weights"

    model = transformers.BertForSequenceClassification.from_pretrained(folder)
    model.classifier.bias.data += 1
    model.save_pretrained(folder)
    only = write_publishable(folder, tmp_path / "only", REPO, graphs=["onnx", "openvino"])  # as the advice says
    notes = (only / "README.md").read_text()
    assert notes.count("## Graphs") == 1 and "calibrated" not in notes
    for runtime in ("onnx", "openvino"):
        with pytest.raises(ValueError, match=rf"{runtime}/.* was made of other weights .* with graphs='{runtime}'"):
            publish(folder, REPO)
        shutil.rmtree(folder / runtime)
    publish(folder, REPO)
    assert b"## Graphs" not in hub.files(REPO)["README.md"]


def test_predict_finds_the_graph_of_a_repository(model_dir, tmp_path, client, hub, monkeypatch, caplog):
    pytest.importorskip("openvino", reason="needs the extra 'openvino'")
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_CACHE", str(tmp_path / "cache"))
    texts = ["the cat sat", "a dog"]
    expected = [answer["score"] for answer in mybert.predict(model_dir, texts, task="sst2", use_cpu=True)]
    for graphs in ((), ("openvino",)):
        publish(model_dir, REPO, graphs=list(graphs))
        with caplog.at_level("INFO"):
            answers = mybert.predict(REPO, texts, task="sst2", use_cpu=True)
        assert [answer["score"] for answer in answers] == pytest.approx(expected, abs=1e-5)
        assert (f"OpenVINO computes the model, since {REPO} has" in caplog.text) == bool(graphs)
    with pytest.raises(ValueError, match=r"engine is openvino, and owner/tiny has no openvino_model\.xml"):
        publish(model_dir, REPO)
        mybert.predict(REPO, texts, task="sst2", engine="openvino")


def test_nothing_is_uploaded_twice(client, hub, model_dir, caplog):
    first = publish(model_dir, REPO)
    hub.requests.clear()
    assert publish(model_dir, REPO).oid == first.oid
    assert not hub.paths("PUT") and len(hub.repositories[REPO].messages) == 2
    with caplog.at_level("INFO"):
        commit = publish(model_dir, REPO, create_pr=True)
    assert commit.pr_url is None and "no pull request was opened" in caplog.text


@pytest.mark.parametrize("private", [True, False])
def test_a_model_never_goes_to_a_repository_of_the_other_visibility(client, hub, model_dir, private):
    publish(model_dir, REPO, private=private)
    assert hub.repositories[REPO].private == private
    hub.requests.clear()
    with pytest.raises(ValueError, match=rf"owner/tiny exists and is {'private' if private else 'public'}"):
        publish(model_dir, REPO, private=not private)
    assert not hub.paths("PUT") and not any("preupload" in path or "commit" in path for path in hub.paths("POST"))


def test_publish_to_a_repository_with_another_kind_of_model_is_one_sentence(client, hub, model_dir):
    client.create_repo(REPO)
    client.upload_file(path_or_fileobj=b'{"model_type": "gpt2"}', path_in_repo="config.json", repo_id=REPO)
    before = hub.files(REPO)
    with pytest.raises(
        ValueError, match=r"owner/tiny exists and holds a model of type 'gpt2'; expected mybert or bert"
    ):
        publish(model_dir, REPO)
    assert hub.files(REPO) == before
    client.delete_file("config.json", repo_id=REPO)
    publish(model_dir, REPO)
    publish(model_dir, REPO, format="mybert")
    assert json.loads(hub.files(REPO)["config.json"])["model_type"] == "mybert"


def test_branch_revision_and_pull_request(client, hub, model_dir):
    publish(model_dir, REPO)
    main = hub.repositories[REPO].refs["main"]

    change_weights(model_dir, "MyBertForTokenClassification")
    publish(model_dir, REPO, revision="v2", commit_message="Second version")
    assert hub.repositories[REPO].refs["main"] == main and hub.repositories[REPO].messages[-1] == "Second version"
    assert hub.files(REPO, "v2")["model.safetensors"] == (model_dir / "model.safetensors").read_bytes()

    change_weights(model_dir, "MyBertForMaskedLM")
    publish(model_dir, REPO, branch="v3", revision="v2")
    assert hub.files(REPO, "v3") != hub.files(REPO, "v2") != hub.files(REPO, "main")

    pull_request = publish(model_dir, REPO, create_pr=True)
    assert pull_request.pr_url == f"{hub.url}/{REPO}/discussions/1" and pull_request.pr_revision == "refs/pr/1"
    assert hub.files(REPO, "refs/pr/1") == hub.files(REPO, "v3") and hub.repositories[REPO].refs["main"] == main

    change_weights(model_dir, "MyBertModel")
    publish(model_dir, REPO, revision="refs/pr/1")
    assert hub.files(REPO, "refs/pr/1") != hub.files(REPO, "v3")

    with pytest.raises(ValueError, match="neither branch nor revision"):
        publish(model_dir, REPO, create_pr=True, branch="v4")
    for place in ("revision", "branch"):
        with pytest.raises(ValueError, match="owner/tiny has no revision 'refs/pr/7'"):
            publish(model_dir, REPO, **{place: "refs/pr/7"})


def change_weights(model_dir, head):
    config = mybert.MyBertConfig.from_pretrained(model_dir)
    getattr(mybert, head)(config).save_pretrained(model_dir)


def test_weights_of_an_earlier_upload_do_not_stay(client, hub, model_dir):
    publish(model_dir, REPO, format="mybert")
    client.upload_file(path_or_fileobj=b"pickle", path_in_repo="pytorch_model.bin", repo_id=REPO)
    client.upload_file(path_or_fileobj=b"text", path_in_repo="notes.txt", repo_id=REPO)
    save_in_shards(model_dir)
    (model_dir / "model.safetensors").unlink()
    publish(model_dir, REPO, format="mybert")
    weights = {name for name in hub.files(REPO) if name.startswith(("model.", "model-", "pytorch"))}
    assert weights == {path.name for path in model_dir.glob("model*")} and len(weights) > 2
    assert "notes.txt" in hub.files(REPO)


def test_publish_removes_tokenizer_adapter_and_modules_of_an_earlier_upload(client, hub, model_dir):
    publish(model_dir, REPO)
    published = set(hub.files(REPO))
    earlier = ("added_tokens.json", "special_tokens_map.json", "adapter_config.json", "adapter_model.safetensors")
    for name in (*earlier, "modules.json", "1_Pooling/config.json", "notes.txt", "data/vocab.txt"):
        client.upload_file(path_or_fileobj=b"{}", path_in_repo=name, repo_id=REPO)
    publish(model_dir, REPO)
    assert set(hub.files(REPO)) == published | {"notes.txt", "data/vocab.txt"}


def test_the_index_of_an_earlier_save_stays_behind(model_dir):
    save_in_shards(model_dir).save_pretrained(model_dir)
    assert (model_dir / "model.safetensors.index.json").is_file()
    assert [name for name in publishable_files(model_dir, REPO) if name.startswith("model.")] == ["model.safetensors"]


def test_an_interrupted_upload_goes_on(client, hub, model_dir):
    save_in_shards(model_dir)
    (model_dir / "model.safetensors").unlink()
    shards = len(list(model_dir.glob("model-*")))

    uploads = itertools.count()
    hub.refuse = lambda method, path: 400 if method == "PUT" and next(uploads) else None  # all but the first
    with pytest.raises(ConnectionError, match=r"model to owner/tiny broke off: .*The same call continues"):
        publish(model_dir, REPO, format="mybert")
    assert set(hub.files(REPO)) == {".gitattributes"}, "nothing half-published is to be seen"
    arrived = len(hub.blobs)
    assert arrived == 1 < shards

    hub.refuse = lambda method, path: "drop" if "/commit/" in path else None
    hub.requests.clear()
    with pytest.raises(ConnectionError, match="broke off"):
        publish(model_dir, REPO, format="mybert")
    assert len(hub.paths("PUT")) == shards - arrived
    assert set(hub.files(REPO)) == {".gitattributes"}

    hub.refuse = lambda method, path: None
    hub.requests.clear()
    publish(model_dir, REPO, format="mybert")
    assert not hub.paths("PUT")
    expected = content_of(publishable_files(model_dir, REPO))
    assert {name: hub.files(REPO)[name] for name in expected} == expected


@pytest.mark.slow
@pytest.mark.parametrize("refusal", ["drop", 400])
def test_publish_failing_at_any_request_has_published_all_files_or_none(client, hub, model_dir, refusal):
    publish(model_dir, "owner/whole")
    requests = len(hub.requests)
    for at in range(1, requests + 1):
        numbers = itertools.count(1)
        hub.refuse = lambda method, path, numbers=numbers, at=at: refusal if next(numbers) == at else None
        succeeded = False
        with contextlib.suppress(OSError, ValueError):
            publish(model_dir, f"owner/n{at}")
            succeeded = True
        names = set(hub.files(f"owner/n{at}")) if f"owner/n{at}" in hub.repositories else {".gitattributes"}
        assert names == set(hub.files("owner/whole")) if succeeded else names == {".gitattributes"}
        hub.refuse = lambda method, path: None
        publish(model_dir, f"owner/n{at}")
        assert set(hub.files(f"owner/n{at}")) == set(hub.files("owner/whole"))


def test_the_hubs_refusal_is_passed_on(client, hub, model_dir):
    with pytest.raises(OSError, match="401") as caught:
        publish(model_dir, REPO, token="hf_AnotherSecret987")
    assert "hf_AnotherSecret987" not in str(caught.value)
    assert not hub.repositories


@pytest.mark.slow
def test_the_token_is_neither_shown_nor_stored(hub, hub_environment, model_dir, tmp_path):
    token = hub_environment["HF_TOKEN"]
    code = (
        "import sys, logging; logging.basicConfig(level=logging.DEBUG, stream=sys.stdout)\n"
        "from mybert.hub_card import PushArguments, push\n"
        f"arguments = PushArguments(model={str(model_dir)!r}, repo_id={REPO!r})\n"
        "print(arguments, push(arguments))"
    )
    environment = hub_environment | {"HF_HUB_VERBOSITY": "debug", "HF_DEBUG": "1", "TRANSFORMERS_VERBOSITY": "debug"}
    result = subprocess.run(
        [sys.executable, "-c", code], env=environment, capture_output=True, text=True, cwd=tmp_path
    )
    assert result.returncode == 0, result.stderr
    assert f"{hub.url}/{REPO}/commit/" in result.stdout
    assert {authorization for _, path, authorization in hub.requests if path.startswith("/api")} == {f"Bearer {token}"}
    secret = token.encode()
    assert secret not in (result.stdout + result.stderr).encode()
    assert not [path for path in tmp_path.rglob("*") if path.is_file() and secret in path.read_bytes()]
    assert not [name for name, content in hub.files(REPO).items() if secret in content]


def test_examples_in_the_card_load_the_repository(model_dir, monkeypatch):
    outside = Path.cwd()
    names = ["model", "./model", f"{model_dir.parent.name}/model", str(model_dir), "."]
    stays = ["pipeline('fill-mask', model='models')", "run('model')", "don't model='it"]
    stays += [r"run(model='\x')", r"run(model='a\0b')"]  # no text of Python, and no path
    lines = [f"pipeline('fill-mask', model={name!r})" for name in names] + [f'pipeline("x", model="{model_dir}")']
    (model_dir / "README.md").write_text("\n".join(["---", "tags:", "- mybert", "---", *lines, *stays, ""]))
    for folder in (model_dir.parent, outside):
        monkeypatch.chdir(folder)
        card = publishable_files(model_dir, REPO)["README.md"].decode().splitlines()
        assert card[4:9] == [f"pipeline('fill-mask', model='{REPO}')"] * 5
        assert card[9] == f'pipeline("x", model="{REPO}")' and card[10:] == stays


def test_a_folder_with_a_quotation_mark_stays_in_no_card(model_dir):
    quoted = model_dir.rename(model_dir.with_name('it\'s "mine"'))
    (quoted / "README.md").write_text(f"---\ntags:\n- mybert\n---\npipeline('x', model={str(quoted)!r})\n")
    assert f"pipeline('x', model='{REPO}')" in publishable_files(quoted, REPO)["README.md"].decode()


def test_a_folder_without_a_card_gets_one(model_dir):
    card = huggingface_hub.ModelCard(publishable_files(model_dir, REPO)["README.md"].decode())
    assert card.data.pipeline_tag == "text-classification" and "# tiny" in card.text and "| Parameters |" in card.text


@pytest.mark.parametrize(
    ("broken", "message"),
    [
        ("---\nmodel-index:\n- name: tiny\n  results:\n  - task: {}\n---\n", "expects: .*model_index"),
        ("---\n- a\n---\n", "is no map of names and values: it is a list"),
        ("---\na: [\n---\n", "is not YAML"),
        ("---\na: !!python/object/apply:os.abort []\n---\n", "is not YAML"),
    ],
)
def test_invalid_metadata_is_refused(model_dir, broken, message):
    (model_dir / "README.md").write_text(broken)
    with pytest.raises(ValueError, match=message):
        publishable_files(model_dir, REPO)


def test_publish_wrong_folders_are_errors(model_dir, change_config):
    write_card(model_dir, CardContent(name="tiny"))
    (model_dir / "model.safetensors").rename(model_dir / "pytorch_model.bin")
    with pytest.raises(FileNotFoundError, match=r"holds only pickled weights \(pytorch_model\.bin\)"):
        publish(model_dir, REPO)
    (model_dir / "pytorch_model.bin").rename(model_dir / "model.safetensors")
    (model_dir / "tokenizer.json").rename(model_dir / "other.json")
    with pytest.raises(FileNotFoundError, match=r"holds no tokenizer.json: save the tokenizer there"):
        publish(model_dir, REPO)
    (model_dir / "other.json").rename(model_dir / "tokenizer.json")
    change_config(model_dir, model_type="mybert-bilstm")
    with pytest.raises(ValueError, match="is of type 'mybert-bilstm'; expected mybert or bert: the code that goes to"):
        publish(model_dir, REPO)
    with pytest.raises(ValueError, match="Repo id"):
        publishable_files(model_dir, "owner/a name")


@pytest.mark.parametrize("format", ["bert", "mybert"])
def test_write_publishable_loads_the_tokenizer_once(format, model_dir, tmp_path, monkeypatch):
    loaded = []
    monkeypatch.setattr(publishing, "load_tokenizer", loaded.append)
    write_publishable(model_dir, tmp_path / "published", REPO, format=format)
    assert len(loaded) == 1
    with pytest.raises(ValueError, match="Repo id"):
        write_publishable(model_dir, tmp_path / "other", "owner/a name", format=format)


@pytest.mark.parametrize("name", ["picture.png", "README.md", "config.json", "model.safetensors", "tokenizer.json"])
def test_nothing_leaves_through_a_link(name, model_dir, tmp_path):
    if name.endswith(".png"):
        write_card(model_dir, CardContent(name="tiny", pictures={"A picture": name}))
    secret = tmp_path / "secret"
    secret.write_bytes((model_dir / name).read_bytes() if (model_dir / name).exists() else b"secret")
    (model_dir / name).unlink(missing_ok=True)
    (model_dir / name).symlink_to(secret)
    with pytest.raises(ValueError, match=rf"{name} is a link that leads out of .*model"):
        write_publishable(model_dir, tmp_path / "out", REPO)
    assert not (tmp_path / "out").exists()
    (model_dir / name).unlink()
    (model_dir / "inside").write_bytes(secret.read_bytes())
    (model_dir / name).symlink_to("inside")
    write_publishable(model_dir, tmp_path / "out", REPO)


def test_pictures_are_published_if_the_card_names_them(model_dir):
    names = ["my picture.png", "curves (1).png", "raw.png"]
    for name in (*names, "picture.png", "w.png"):
        (model_dir / name).write_bytes(b"")
    write_card(model_dir, CardContent(name="tiny", pictures=dict(zip("ab", names[:2], strict=True))))
    with (model_dir / "README.md").open("a") as card:
        card.write('<img src="https://x.org/owner/tiny/resolve/main/raw.png">\n')
    assert sorted(name for name in publishable_files(model_dir, REPO) if name.endswith(".png")) == sorted(names)


def test_pictures_of_the_card_that_are_not_published_are_a_warning(model_dir, tmp_path, caplog):
    (model_dir / "images").mkdir()
    for name in ("images/fig.png", "my fig.png"):
        (model_dir / name).write_bytes(b"")
    text = "![a](images/fig.png) ![b](<my fig.png>) ![c](https://x.org/c.png) ![d](./gone.jpg 'D')"
    write_card(model_dir, CardContent(name="tiny"))
    with (model_dir / "README.md").open("a") as card:
        card.write(text)
    with caplog.at_level("WARNING", logger="mybert"):
        folder = write_publishable(model_dir, tmp_path / "out", REPO, format="mybert")
    assert "README.md shows pictures that are not published (images/fig.png, gone.jpg); expected PNG" in caplog.text
    assert (folder / "my fig.png").is_file()


def test_code_that_the_folder_names_does_not_go_along(model_dir):
    for name, fields in (
        (
            "config.json",
            {"auto_map": {"AutoModel": "evil.Evil"}, "custom_pipelines": {"fill-mask": {"impl": "evil.E"}}},
        ),
        ("tokenizer_config.json", {"auto_map": {"AutoTokenizer": ["evil.Evil", None]}}),
    ):
        content = json.loads((model_dir / name).read_text())
        (model_dir / name).write_text(json.dumps(content | fields))
    files = content_of(publishable_files(model_dir, REPO))
    assert not [name for name, content in files.items() if b"evil" in content]


def test_a_folder_that_a_push_wrote_may_be_replaced(model_dir, tmp_path):
    folder = write_publishable(model_dir, tmp_path / "out", REPO)
    before = snapshot(folder)
    (tmp_path / ".out.new-0123abcd.partial").mkdir()  # left by a call that was killed
    write_publishable(model_dir, folder, REPO, overwrite=True)
    assert snapshot(folder) == before
    assert not list(tmp_path.glob(".*"))
    (folder / "thesis.tex").write_text("mine")
    with pytest.raises(ValueError, match=r"holds files that no run wrote \(thesis\.tex\)"):
        write_publishable(model_dir, folder, REPO, overwrite=True)
    assert (folder / "thesis.tex").read_text() == "mine"


def test_write_publishable_into_the_model_folder_is_rejected(model_dir):
    before = snapshot(model_dir)
    with pytest.raises(ValueError, match="is already read or written by this call; name another place"):
        write_publishable(model_dir, model_dir, REPO, overwrite=True)
    assert snapshot(model_dir) == before


SENTENCES = ["the cat sat on a mat", "a dog ran", "it was a very happy tree"]


def test_a_sentence_transformer_gives_the_same_vectors(make_model_dir, tmp_path, caplog):
    sentence_transformers = pytest.importorskip("sentence_transformers")
    from sentence_transformers.sentence_transformer.modules import Normalize, Pooling, Transformer

    modules = [Transformer(str(make_model_dir("MyBertModel"))), Pooling(16, pooling_mode="max"), Normalize()]
    model = sentence_transformers.SentenceTransformer(
        modules=modules, device="cpu", prompts={"query": "the cat "}, default_prompt_name="query"
    )
    folder = tmp_path / "model"
    model.save_pretrained(str(folder))
    expected = model.encode(SENTENCES)
    out = write_publishable(folder, tmp_path / "out", REPO)
    again = sentence_transformers.SentenceTransformer(str(out), device="cpu")
    assert (again.encode(SENTENCES) == expected).all() and abs((expected**2).sum(-1) - 1).max() < 1e-5
    assert huggingface_hub.ModelCard.load(out / "README.md").data.library_name == "sentence-transformers"

    (folder / "modules.json").unlink()
    data = huggingface_hub.ModelCard(publishable_files(folder, REPO)["README.md"].decode()).data
    assert data.library_name == "transformers" and "sentence-transformers" not in data.tags
    assert "holds no modules.json" in caplog.text


def test_a_tag_of_sentence_transformers_goes_where_its_files_are_not(model_dir):
    (model_dir / "README.md").write_text("---\nlibrary_name: peft\ntags:\n- mine\n- sentence-transformers\n---\n")
    data = huggingface_hub.ModelCard(publishable_files(model_dir, REPO)["README.md"].decode()).data
    assert (data.library_name, data.tags) == ("peft", ["mine"])


def test_modules_of_code_or_pickles_are_refused(model_dir):
    (model_dir / "modules.json").write_text('[{"idx": 1, "name": "1", "path": "1_Dense", "type": "x"}]')
    for name in ("dense.py", "pytorch_model.bin"):
        (model_dir / "1_Dense").mkdir(exist_ok=True)
        (model_dir / "1_Dense" / name).write_bytes(b"")
        with pytest.raises(ValueError, match=rf"1_Dense/{name} is not one of \.json, "):
            publishable_files(model_dir, REPO)
        (model_dir / "1_Dense" / name).unlink()
