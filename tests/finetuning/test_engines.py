"""Folders converted for OpenVINO answer as the models that they were converted from."""

import gc
import json
import logging
import os
import shutil
import signal
import sys
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from safetensors.numpy import load_file
from transformers import AutoModelForSequenceClassification, AutoTokenizer, BertForSequenceClassification, pipelines

import mybert
from mybert.cli import main
from mybert.conversion import export_openvino, to_transformers_bert
from mybert.files.checkpoint import Checkpoint
from mybert.finetuning import TASKS, EvaluateArguments, FeaturesArguments, Predictor, extract_features
from mybert.hub_card import write_publishable
from mybert.pipelines import openvino_model
from mybert.pipelines.openvino_model import OpenVinoModel

pytest.importorskip("openvino", reason="needs the extra 'openvino'")

QUESTIONS = [
    {"question": "who sat", "context": f"the {word} sat on a mat and slept"} for word in ("cat", "dog", "tree")
]
CHOICES = [
    {"sent1": "the cat sat", "sent2": "it", **{f"ending{n}": "ate fish " * n or "ran" for n in range(4)}},
    {
        "sent1": "a dog ran under the tree and",
        "sent2": "it",
        **{f"ending{n}": "slept very " * n or "" for n in range(4)},
    },
]


@pytest.fixture(scope="module")
def graph(tmp_path_factory, models):
    """Convert the model of a task, once."""
    folder, made = tmp_path_factory.mktemp("graphs"), {}

    def convert(task):
        if task not in made:
            export_openvino(models / task, folder / task)
            made[task] = folder / task
        return made[task]

    return convert


@pytest.fixture(scope="module")
def encoder(tmp_path_factory, tiny_model):
    """A model without a head, and its conversion."""
    folder = tmp_path_factory.mktemp("encoder")
    model = tiny_model(folder / "model", mybert.MyBertModel, initializer_range=0.5)
    export_openvino(model, folder / "graph")
    return model, folder / "graph"


def assert_close(found, expected):
    """Equal, but for numbers, which may differ by rounding."""
    if isinstance(expected, dict):
        assert found.keys() == expected.keys()
        found, expected = list(found.values()), list(expected.values())
    if isinstance(expected, list):
        assert len(found) == len(expected)
        for one, other in zip(found, expected, strict=True):
            assert_close(one, other)
    elif isinstance(expected, (float, np.floating)):
        assert found == pytest.approx(expected, abs=1e-5)
    else:
        assert found == expected


@pytest.mark.parametrize(
    ("task", "data"),
    [
        ("sst2", None),
        *(
            pytest.param(task, data, marks=pytest.mark.slow)
            for task, data in (("ner", None), ("squad", QUESTIONS), ("swag", CHOICES), ("regression", None))
        ),
    ],
)
def test_predict_with_openvino_answers_as_pytorch(models, graph, texts, caplog, task, data):
    caplog.set_level(logging.INFO, "mybert")
    data = data or texts
    expected = mybert.predict(models / task, data, engine="torch", use_cpu=True)
    assert not [line for line in caplog.messages if "OpenVINO" in line]
    assert_close(mybert.predict(graph(task), data), expected)
    assert [line for line in caplog.messages if "OpenVINO" in line] == [
        f"OpenVINO computes the model, since {graph(task)} has openvino_model.xml."
    ]
    assert_close(mybert.predict(graph(task), data[:1], engine="openvino"), expected[:1])


@pytest.mark.slow
@pytest.mark.parametrize(
    ("task", "data"),
    [
        ("fill_mask", ["the [MASK] sat on a [MASK]", "a dog [MASK]"]),
        ("next_sentence", [("the cat sat", "it slept"), ("a dog ran", "under the tree it was very happy")]),
    ],
)
def test_predict_with_openvino_chooses_the_head_of_a_pretrained_model(pretrained, tmp_path, task, data):
    export_openvino(pretrained, tmp_path / "graph")
    expected = mybert.predict(pretrained, data, task=task, use_cpu=True)
    assert_close(mybert.predict(tmp_path / "graph", data, task=task), expected)


@pytest.mark.parametrize(
    ("task", "data"),
    [("sst2", None), *(pytest.param(*case, marks=pytest.mark.slow) for case in (("ner", None), ("squad", QUESTIONS)))],
)
def test_pipeline_with_a_graph_answers_as_pytorch_from_packed_rows(models, graph, texts, monkeypatch, task, data):
    rows, run = [], OpenVinoModel._run
    monkeypatch.setattr(OpenVinoModel, "_run", lambda self, *inputs: rows.append(len(inputs[0])) or run(self, *inputs))
    monkeypatch.setattr(pipelines.base.logger, "error", pytest.fail)  # "The model ... is not supported"
    tokenizer = AutoTokenizer.from_pretrained(models / task)
    found, expected = (
        pipelines.pipeline(TASKS[task].pipeline, model=model, tokenizer=tokenizer)(data or texts, batch_size=10)
        for model in (OpenVinoModel(graph(task)), str(models / task))
    )
    assert_close(found, expected)
    assert task == "squad" or (len(rows) == 3 and sum(rows) < 30)


def test_sentence_transformers_with_a_graph_encodes_as_pytorch(encoder, texts):
    library = pytest.importorskip("sentence_transformers")
    model, graph = encoder
    sentences = library.SentenceTransformer(str(model), device="cpu")
    expected = sentences.encode(texts)
    sentences[0].model = OpenVinoModel(graph)
    np.testing.assert_allclose(sentences.encode(texts), expected, atol=1e-5)
    assert expected.std() > 0.1


def test_evaluate_with_openvino_gives_the_same_metrics(models, graph, texts):
    data = list(zip(texts, ["0", "1"] * 15, strict=True))
    expected = mybert.evaluate(models / "sst2", data, use_cpu=True)
    assert_close(mybert.evaluate(graph("sst2"), data, engine="openvino"), expected)


@pytest.mark.parametrize("pooling", ["mean", None])
def test_features_with_openvino_are_those_of_pytorch(encoder, tmp_path, texts, pooling):
    model, graph = encoder
    (tmp_path / "texts.txt").write_text("\n".join(texts))
    found = []
    for folder in (model, graph):
        output = str(tmp_path / f"{folder.name}.safetensors")
        files = {"text": [str(tmp_path / "texts.txt")], "output": output}
        extract_features(FeaturesArguments(model=str(folder), features="last", pooling=pooling, **files))
        found.append(load_file(output)["features"])
    np.testing.assert_allclose(found[1], found[0], atol=1e-5)
    assert found[0].std() > 0.1


def test_features_of_a_graph_have_no_embeddings(encoder, tmp_path, texts):
    (tmp_path / "texts.txt").write_text("\n".join(texts))
    files = {"text": [str(tmp_path / "texts.txt")], "output": str(tmp_path / "other.jsonl")}
    with pytest.raises(ValueError, match="embeddings needs the states of other layers than the last"):
        extract_features(FeaturesArguments(model=str(encoder[1]), features="embeddings", **files))


def test_features_of_a_graph_with_a_head_are_rejected(graph, tmp_path):
    (tmp_path / "texts.txt").write_text("the cat")
    files = {"text": [str(tmp_path / "texts.txt")], "output": str(tmp_path / "out.jsonl")}
    with pytest.raises(ValueError, match=r"has a graph with a head \(SequenceClassification\)"):
        extract_features(FeaturesArguments(model=str(graph("sst2")), pooling="mean", **files))


def test_engine_of_a_folder_without_graph_is_one_sentence(models, tmp_path, capsys):
    (tmp_path / "texts.txt").write_text("the cat")
    model = str(models / "sst2")
    assert main(["predict", model, str(tmp_path / "texts.txt"), "--engine", "openvino"]) == 2
    error = capsys.readouterr().err
    assert f"engine is openvino, and {model} has no openvino_model.xml; `mybert convert openvino {model}" in error
    for make, data in ((Predictor, {}), (EvaluateArguments, {"data": ["x"]})):
        with pytest.raises(ValueError, match="engine is openvino"):
            make(model=model, engine="openvino", **data)


def test_dtype_int8_in_pytorch_names_the_conversion(models, tmp_path, capsys):
    (tmp_path / "texts.tsv").write_text("sentence\tlabel\nthe cat\t1\n")
    model, data = str(models / "sst2"), str(tmp_path / "texts.tsv")
    for command in (
        ["predict", model, data],
        ["evaluate", data, "--model", model],
        ["predict", model, data, "--engine", "torch"],
    ):
        assert main([*command, "--dtype", "int8"]) == 2
        error = capsys.readouterr().err
        assert f"`mybert convert openvino {model} OUTPUT --dtype int8 --data TEXTS` writes a folder" in error
    with pytest.raises(ValueError, match="dtype is int8, which PyTorch does not compute"):
        mybert.predict(model, ["the cat"], dtype="int8")


def test_engine_torch_needs_weights(graph):
    with pytest.raises(FileNotFoundError, match=r"holds only openvino_model\.xml; this needs model\.safetensors"):
        mybert.predict(graph("sst2"), ["the cat"], engine="torch")


def test_engine_auto_without_openvino_uses_weights_if_there_are_some(models, graph, tmp_path, monkeypatch, texts):
    monkeypatch.setitem(sys.modules, "openvino", None)
    with pytest.raises(ImportError, match=r"OpenVINO is not installed: run pip install '\.\[openvino\]' in the clone"):
        mybert.predict(graph("sst2"), texts)
    both = shutil.copytree(graph("sst2"), tmp_path / "both")
    shutil.copy(models / "sst2" / "model.safetensors", both)
    assert_close(mybert.predict(both, texts), mybert.predict(models / "sst2", texts))
    with pytest.raises(ImportError, match="OpenVINO is not installed"):
        mybert.predict(both, texts, engine="openvino")


def test_dtype_that_graph_or_processor_lacks_is_one_sentence(graph, monkeypatch):
    with pytest.raises(ValueError, match=r"dtype is int8, and the weights in .* are float32; .* writes int8"):
        mybert.predict(graph("sst2"), ["the cat"], dtype="int8")
    old_processor = SimpleNamespace(get_property=lambda *names: ["FP32", "INT8"])
    monkeypatch.setattr(openvino_model, "openvino_core", lambda: old_processor)
    with pytest.raises(ValueError, match="dtype is bfloat16, and this processor has no instructions for it"):
        mybert.predict(graph("sst2"), ["the cat"], dtype="bfloat16")


def test_graph_that_is_damaged_is_one_sentence(graph, tmp_path):
    folder = shutil.copytree(graph("sst2"), tmp_path / "damaged")
    for file in ("bin", "xml"):
        (folder / f"openvino_model.{file}").write_text("<net")
        with pytest.raises(ValueError, match=r"openvino_model\.xml or its \.bin file is damaged"):
            mybert.predict(folder, ["the cat"])


def test_sequence_longer_than_the_positions_is_rejected(graph):
    checkpoint = Checkpoint(graph("sst2"))
    run = OpenVinoModel(checkpoint.path, checkpoint.config)
    with pytest.raises(ValueError, match="The sequence has 65 tokens; this model reads at most 64"):
        run(input_ids=torch.ones(2, 65, dtype=torch.long))


@pytest.mark.parametrize("padding", ["right", "left"])
@pytest.mark.parametrize("dtype", [torch.bool, torch.uint8, torch.int32, torch.int64, torch.float16, torch.float32])
def test_open_vino_model_takes_masks_of_every_type_as_bert(dtype, padding, graph, models):
    run = OpenVinoModel(graph("sst2"))
    model = AutoModelForSequenceClassification.from_pretrained(models / "sst2").eval()
    ids = torch.tensor([[2, 5, 6, 7, 3], [2, 8, 3, 0, 0]])
    mask = (ids != 0).to(dtype)
    if padding == "left":
        ids, mask = ids.roll(2, 1), mask.roll(2, 1)
        ids[0], mask[0] = ids[0].roll(-2), 1
    with torch.inference_mode():
        expected = model(input_ids=ids, attention_mask=mask).logits
        for words in (ids, ids.int()):
            found = run(input_ids=words, attention_mask=mask).logits
            torch.testing.assert_close(found, expected, atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize(
    ("inputs", "message"),
    [
        ({"attention_mask": torch.ones(1, 3, 3)}, r"attention_mask has shape \(1, 3, 3\); expected \(1, 3\)"),
        ({"attention_mask": torch.ones(1, 1, 3, 3).bool()}, r"attention_mask has shape \(1, 1, 3, 3\).*no prepared"),
        ({"attention_mask": torch.ones(1, 2)}, r"attention_mask has shape \(1, 2\)"),
        ({"token_type_ids": torch.full((1, 3), 2)}, "token_type_ids holds 2; expected values from 0 to 1"),
        ({"token_type_ids": torch.zeros(1, 2).long()}, r"token_type_ids has shape \(1, 2\)"),
        ({"input_ids": torch.tensor([[2, 999, 3]])}, "input_ids holds 999; expected values from 0 to"),
        ({"input_ids": torch.tensor([2, 5, 3])}, r"input_ids has shape \(3,\); expected \(batch, tokens\)"),
    ],
)
def test_open_vino_model_rejects_inputs_that_bert_rejects(inputs, message, graph):
    run = OpenVinoModel(graph("sst2"))
    with pytest.raises(ValueError, match=message):
        run(**{"input_ids": torch.tensor([[2, 5, 3]])} | inputs)


def test_threads_are_those_of_both_engines(models, graph, monkeypatch):
    numbers = []
    monkeypatch.setattr(torch, "set_num_threads", numbers.append)
    for folder in (models / "sst2", graph("sst2")):
        mybert.predict(folder, ["the cat"], threads=3)
        assert numbers[0] == 3 and numbers.pop() == torch.get_num_threads()
        numbers.clear()
    monkeypatch.setattr(torch, "get_num_threads", lambda: 3)
    compiled, core = [], type(openvino_model.openvino_core())
    monkeypatch.setattr(core, "compile_model", lambda core, graph, device, settings: compiled.append(settings))
    with pytest.raises(AttributeError):  # of a compiled model that is None
        mybert.predict(graph("sst2"), ["the cat"])
    assert compiled[0]["INFERENCE_NUM_THREADS"] == 3


def test_compare_of_a_model_and_its_conversion_finds_no_difference(models, graph, tmp_path, capsys):
    data = tmp_path / "dev.tsv"
    data.write_text("sentence\tlabel\nthe cat sat\t1\na dog ran under the tree\t0\nthe tree\t1\n")
    names = str(models / "sst2"), str(graph("sst2"))
    assert (
        main(["compare", *names, "--data", str(data), "--report", str(tmp_path / "report.json"), "--threads", "2"])
        == 0
    )
    report = json.loads((tmp_path / "report.json").read_text())
    assert report["differing_rows"] == 0 and report["metrics"]["accuracy"]["difference"]["value"] == 0
    assert report["models"]["a"]["parameters"] > 0 and report["models"]["b"]["parameters"] is None
    assert report["models"]["b"]["bytes"] == (graph("sst2") / "openvino_model.bin").stat().st_size
    assert "(OpenVINO, " in capsys.readouterr().out
    assert main(["compare", *names, "--data", str(data), "--engine", "openvino"]) == 2
    assert "has no openvino_model.xml" in capsys.readouterr().err


def test_signals_are_heard_after_models_are_released_in_the_order_of_their_creation(graph):
    checkpoint = Checkpoint(graph("sst2"))
    held = [OpenVinoModel(checkpoint.path, checkpoint.config) for _ in range(2)]
    while held:
        held.pop(0)
        gc.collect()
    child = os.fork()
    if child == 0:
        signal.signal(signal.SIGTERM, lambda number, frame: os._exit(7))
        os.kill(os.getpid(), signal.SIGTERM)
        signal.pause()
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7


def test_another_graph_does_not_resume_a_call(graph, tmp_path):
    folder = shutil.copytree(graph("sst2"), tmp_path / "model")
    files = Checkpoint(folder).deciding_files
    assert {"openvino_model.xml", "openvino_model.bin"} <= {file.rpartition("/")[2] for file in files}
    assert json.loads((folder / "conversion.json").read_text())["texts"] == 0


@pytest.fixture(scope="module")
def published(tmp_path_factory, models):
    """A classifier's folder as `mybert push --graphs openvino` uploads it."""
    folder = tmp_path_factory.mktemp("published") / "sst2"
    return write_publishable(models / "sst2", folder, "owner/sst2", graphs=["openvino"])


def test_predict_of_a_published_folder_uses_its_graph(models, published, texts, caplog, tmp_path, capsys):
    caplog.set_level(logging.INFO, "mybert")
    assert (published / "openvino" / "openvino_model.xml").is_file()
    expected = mybert.predict(models / "sst2", texts, engine="torch", use_cpu=True)
    line = f"OpenVINO computes the model, since {published} has openvino_model.xml."
    for engine, uses_graph in (("auto", True), ("openvino", True), ("torch", False)):
        caplog.clear()
        assert_close(mybert.predict(published, texts, engine=engine, use_cpu=True), expected)
        assert (line in caplog.messages) == uses_graph, engine
    files = {Path(file).relative_to(published).as_posix() for file in Checkpoint(published).deciding_files}
    assert {"model.safetensors", "openvino/openvino_model.xml", "openvino/openvino_model.bin"} <= files
    data = tmp_path / "dev.tsv"
    data.write_text("sentence\tlabel\nthe cat sat\t1\na dog ran under the tree\t0\nthe tree\t1\n")
    report = mybert.compare(models / "sst2", published, data, use_cpu=True)
    assert report["models"]["b"]["bytes"] == (published / "openvino" / "openvino_model.bin").stat().st_size
    metrics = mybert.evaluate(published, data, engine="openvino")
    assert_close(metrics, mybert.evaluate(models / "sst2", data, use_cpu=True))


def test_predict_of_a_published_folder_without_openvino_or_on_a_gpu_uses_weights(published, monkeypatch):
    assert not openvino_model.runs_in_openvino(Checkpoint(published), "auto", device="cuda")
    assert openvino_model.runs_in_openvino(Checkpoint(published), "openvino", device="cuda")
    monkeypatch.setattr(openvino_model, "find_spec", lambda name: None)
    assert not openvino_model.runs_in_openvino(Checkpoint(published), "auto")


def test_features_of_a_published_folder_use_weights_where_the_graph_has_no_such_states(
    published, models, tmp_path, encoder
):
    (tmp_path / "texts.txt").write_text("the cat sat\na dog ran")
    model, graph = encoder
    with_graph = shutil.copytree(model, tmp_path / "with_graph")
    shutil.copytree(graph, with_graph / "openvino")
    for folder, source, chosen, is_in_torch in (
        (published, models / "sst2", {"pooling": "mean"}, True),
        (with_graph, model, {}, True),
        (with_graph, model, {"pooling": "mean"}, False),
    ):
        vectors = []
        for name in (folder, source):
            output = str(tmp_path / "out.safetensors")
            files = {"text": [str(tmp_path / "texts.txt")], "output": output, "overwrite": True}
            extract_features(FeaturesArguments(model=str(name), use_cpu=True, **chosen, **files))
            vectors.append(load_file(output)["features"])
        np.testing.assert_allclose(*vectors, atol=1e-5)
        assert np.array_equal(*vectors) == is_in_torch


def test_open_vino_model_runs_graphs_of_other_tools_with_padding(models, tmp_path, texts):
    import openvino

    model = BertForSequenceClassification.from_pretrained(
        to_transformers_bert(models / "sst2", tmp_path / "plain").output
    )
    batch = AutoTokenizer.from_pretrained(models / "sst2")(texts, padding=True, return_tensors="pt")
    names = ("input_ids", "attention_mask")
    example = {name: batch[name] for name in names}
    graph = openvino.convert_model(model.eval(), example_input=example)
    for port, name in zip(graph.inputs, names, strict=True):
        port.get_tensor().set_names({name})
    openvino.save_model(graph, tmp_path / "plain" / "openvino" / "openvino_model.xml", compress_to_fp16=False)
    with torch.no_grad():
        expected = model(**example).logits
    found = OpenVinoModel(tmp_path / "plain")(**batch).logits
    torch.testing.assert_close(found, expected, atol=1e-4, rtol=1e-4)
    assert expected.std() > 0.1


def test_open_vino_model_of_a_folder_without_graph_says_so(models):
    with pytest.raises(
        FileNotFoundError, match=r"sst2 has no openvino_model\.xml, as `mybert convert openvino` writes"
    ):
        OpenVinoModel(models / "sst2")
