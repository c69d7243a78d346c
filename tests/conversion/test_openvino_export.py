"""Model folders become OpenVINO graphs that compute what PyTorch does, packed or as other tools call them."""

import json
import shutil
import sys

import numpy as np
import pytest
import torch
import transformers
from transformers import AutoConfig

import mybert
from mybert.conversion import export_openvino, graph_export, key_map
from mybert.files.machine import cpu_features
from mybert.files.settings import build
from mybert.pipelines.openvino_model import OpenVinoModel, openvino_core

pytest.importorskip("openvino", reason="needs the extra 'openvino'")
nncf = pytest.importorskip("nncf", reason="needs the extra 'openvino'")

FILE = "openvino_model.xml"
TEXTS = ["the quicker fox", "fox w1 w2 w3", "w4", "w9 the w8 ||| w7 fox", "w5 w5 w6 w7 w8 w9 w10"] * 4


def reload(folder, head, library=mybert):
    prefix = "MyBert" if library is mybert else "Bert"
    model_class = getattr(library, prefix + key_map.HEADS[head].class_suffix)
    return model_class.from_pretrained(folder, dtype=torch.float32).eval()


def compiled(folder):
    """The graph as other tools run it, but not in the processor's bfloat16."""
    hint = {"INFERENCE_PRECISION_HINT": "f32"}
    return openvino_core().compile_model(folder / "openvino_model.xml", "CPU", hint)


def batch_of(lengths, head, side="right"):
    generator = torch.Generator().manual_seed(sum(lengths))
    places, ends = torch.arange(max(lengths)), torch.tensor(lengths)[:, None]
    mask = (places < ends if side == "right" else places >= max(lengths) - ends).long()
    shape = (len(lengths) // 2, 2, -1) if head == "multiple-choice" else mask.shape
    draw = {"input_ids": 61, "token_type_ids": 2}
    batch = {name: torch.randint(high, mask.shape, generator=generator) for name, high in draw.items()}
    return {name: values.view(shape) for name, values in (batch | {"attention_mask": mask}).items()}


def assert_same(found, expected, head, batch):
    assert list(found) == list(expected)
    for name, right in expected.items():
        at_tokens = "length" in key_map.HEADS[head].outputs[name]
        real = batch["attention_mask"].bool() if at_tokens else ...
        torch.testing.assert_close(torch.as_tensor(found[name])[real], right[real], rtol=1e-5, atol=1e-5)
        assert right.numel() < 9 or right.std() > 0.1  # there is something to compare


@pytest.fixture(scope="module")
def tagger(tmp_path_factory, save_model):
    """A tagger's folder, and its export in int8 with the report."""
    folder = tmp_path_factory.mktemp("tagger")
    save_model(folder / "model", "token-classification")
    (folder / "texts.txt").write_text("\n".join(TEXTS))
    report = export_openvino(folder / "model", folder / "int8", dtype="int8", data=[str(folder / "texts.txt")])
    return folder / "model", folder / "int8", report


@pytest.fixture(scope="module")
def exported(tmp_path_factory, save_model, change_config):
    """The export of a classifier in bfloat16, with a task and a tokenizer without segments, and the report."""
    folder = tmp_path_factory.mktemp("exported")
    save_model(folder / "model", "sequence-classification", dtype=torch.bfloat16)
    change_config(folder / "model", finetuned_for={"task": "sst2", "max_length": 12})
    path = folder / "model" / "tokenizer_config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"model_input_names": ["input_ids", "attention_mask"]}))
    (folder / "texts.txt").write_text("\n".join(TEXTS))
    report = export_openvino(folder / "model", folder / "graph", data=str(folder / "texts.txt"))
    return folder / "graph", report


@pytest.mark.slow
@pytest.mark.parametrize(
    ("head", "fields"),
    [*((head, {}) for head in key_map.HEADS), ("sequence-classification", {"classifier_pooling": "mean"})],
)
def test_export_openvino_every_head_computes_as_pytorch(tmp_path, head, fields, save_model):
    library = transformers if head == "question-answering" else mybert
    save_model(tmp_path / "model", head, library=library, **fields)
    report = export_openvino(tmp_path / "model", tmp_path / "graph")
    assert report.head == head and 0 < report.largest_difference < 1e-5
    assert list(report.differences[FILE]) == list(key_map.HEADS[head].outputs)
    model = reload(tmp_path / "model", head, library)
    run = OpenVinoModel(tmp_path / "graph", model.config)
    graph = compiled(tmp_path / "graph")
    assert [entry.get_names() for entry in graph.inputs] == [{name} for name in graph_export.INPUTS]
    for lengths, side in (([13, 2, 7, 5, 1, 4], "right"), ([24, 24], "right"), ([9, 3, 6, 9], "left")):
        batch = batch_of(lengths, head, side)
        with torch.no_grad():
            expected = model(**batch)
        found = run(**batch)
        assert_same(found, expected, head, batch)
        of_tokens = [name for name, shape in key_map.HEADS[head].outputs.items() if "length" in shape]
        assert not any(found[name][batch["attention_mask"] == 0].any() for name in of_tokens)
        by_others = graph({name: values.numpy() for name, values in batch.items()})
        assert_same({entry.get_any_name(): values for entry, values in by_others.items()}, expected, head, batch)


@pytest.mark.parametrize("pooling", [pytest.param("cls", marks=pytest.mark.slow), "mean"])
def test_export_openvino_rows_of_several_sequences_give_one_output_each(tmp_path, save_model, pooling):
    model = save_model(tmp_path / "model", "sequence-classification", classifier_pooling=pooling).eval()
    export_openvino(tmp_path / "model", tmp_path / "graph")
    graph = compiled(tmp_path / "graph")
    numbers = torch.tensor([[1, 1, 1, 2, 3, 3, 0], [1, 1, 2, 2, 2, 2, 2]])
    ids, segments = torch.arange(14).view(2, 7) + 5, (torch.arange(14) % 2).view(2, 7)
    found = graph([ids, numbers, segments])["logits"]
    sequences = [(row, number) for row in range(2) for number in range(1, int(numbers[row].max()) + 1)]
    assert found.shape == (len(sequences), 3)
    for logits, (row, number) in zip(found, sequences, strict=True):
        own = numbers[row] == number
        with torch.no_grad():
            expected = model(input_ids=ids[row, own][None], token_type_ids=segments[row, own][None]).logits[0]
        np.testing.assert_allclose(logits, expected, atol=1e-5)


def test_export_openvino_folder_holds_graph_tokenizer_and_task(exported):
    folder, _ = exported
    names = {"config.json", "conversion.json", "tokenizer.json", "tokenizer_config.json", "vocab.txt"}
    assert {path.name for path in folder.iterdir()} == {*names, "openvino_model.xml", "openvino_model.bin"}
    config = AutoConfig.from_pretrained(folder)
    assert type(config) is transformers.BertConfig and config.finetuned_for == {"task": "sst2", "max_length": 12}
    assert config.dtype == torch.float32


def test_export_openvino_tokenizer_without_segments_is_compared_on_texts(exported):
    _, report = exported
    assert report.texts == len(TEXTS) and report.largest_difference < 1e-5


def test_export_openvino_int8_is_compared_on_other_texts_than_it_is_calibrated_with(tagger):
    _, folder, report = tagger
    assert report.dtype == "int8" and report.texts == len(TEXTS) // 2
    assert 1e-4 < report.differences_on_texts[FILE] < 1 and 0.8 < report.equal_decisions[FILE] <= 1
    kept = json.loads((folder / "conversion.json").read_text())
    assert kept["equal_decisions"] == report.equal_decisions and "10 texts" in str(report)
    graph = openvino_core().read_model(folder / "openvino_model.xml")
    weights = [node for node in graph.get_ops() if node.get_type_name() == "Constant"]
    is_int8 = [node.get_element_type().get_type_name() == "i8" for node in weights]
    assert sum(is_int8) == 13 + 3  # of products and embeddings


@pytest.mark.slow
@pytest.mark.skipif(not any("VNNI" in name for name in cpu_features()), reason="this CPU has no int8 dot products")
def test_export_openvino_int8_computes_classifiers_of_the_mean(tmp_path, save_model):
    save_model(tmp_path / "model", "sequence-classification", classifier_pooling="mean")
    (tmp_path / "texts.txt").write_text("\n".join(TEXTS))
    report = export_openvino(tmp_path / "model", tmp_path / "int8", dtype="int8", data=[str(tmp_path / "texts.txt")])
    assert report.equal_decisions[FILE] > 0.8


def test_export_openvino_wrong_decisions_are_counted(tagger, tmp_path):
    source, other, _ = tagger
    shutil.copytree(other, tmp_path / "graph")
    texts = tmp_path / "texts.csv"
    texts.write_text("line\n" + "\n".join(TEXTS))
    report = export_openvino(source, tmp_path / "graph", data=str(texts), text_column="line", overwrite=True)
    assert report.texts == len(TEXTS) and report.equal_decisions[FILE] == 1 and report.largest_difference < 1e-5
    model = reload(source, "token-classification")
    with torch.no_grad():
        model.classifier.bias[0] += 100  # always decides for the first class
    converted = OpenVinoModel(tmp_path / "graph", model.config)
    given = {"model": "", "output_dir": "", "data": [str(texts)], "text_column": "line"}
    settings = build(graph_export.ConvertOpenVinoSettings, given)
    folder = graph_export.open_model_folder(source)
    tokenizer = folder.load_tokenizer()
    rows = graph_export._tokenized(folder, tokenizer, model, graph_export.INPUTS, settings)
    difference, equal = graph_export._compare_on_texts(model, converted, rows, "token-classification", tokenizer)
    assert equal < 0.9 and difference > 90


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"dtype": "int8"}, "dtype is int8 without data; expected texts"),
        ({"dtype": "int8", "data": ["empty.txt"]}, r"There is no text in empty\.txt"),
    ],
)
def test_export_openvino_wrong_options_are_one_sentence(tagger, tmp_path, monkeypatch, options, message):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "empty.txt").write_text("\n\n")
    with pytest.raises(ValueError, match=message):
        export_openvino(tagger[0], tmp_path / "graph", **options)
    assert [path.name for path in tmp_path.iterdir()] == ["empty.txt"]


def test_export_openvino_left_to_right_model_is_rejected(tmp_path, save_model):
    save_model(tmp_path / "model", "masked-lm", is_decoder=True)
    with pytest.raises(ValueError, match="is_decoder is true; expected"):
        export_openvino(tmp_path / "model", tmp_path / "graph")


def test_export_openvino_difference_leaves_nothing_behind(tagger, tmp_path, monkeypatch):
    write = graph_export._write_openvino

    def write_then_change(model, *others):
        graphs = write(model, *others)
        model.classifier.bias = torch.nn.Parameter(model.classifier.bias + 1)  # not in place: the graph shares memory
        return graphs

    monkeypatch.setattr(graph_export, "_write_openvino", write_then_change)
    with pytest.raises(ValueError, match=r"openvino_model\.xml: the conversion is wrong: logits differs by"):
        export_openvino(tagger[0], tmp_path / "graph")
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("package", ["openvino", "nncf"])
def test_export_openvino_missing_package_names_the_extra(tagger, tmp_path, monkeypatch, package):
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(ImportError, match=r"pip install '\.\[openvino\]'"):
        export_openvino(tagger[0], tmp_path / "graph", dtype="int8", data=["texts.txt"])


def test_import_openvino_telemetry_stays_off(tmp_path, run_python):
    """By default, importing OpenVINO sends a message, and leaves a file with the user's consent."""
    script = (
        "import socket\n"
        "socket.getaddrinfo = socket.socket.connect = lambda *found, **more: print('connects', found)\n"
        "from mybert.pipelines.openvino_model import import_openvino\n"
        "import_openvino()\n"
        "import nncf, openvino.tools.ovc, time\n"
        "time.sleep(0.5)\n"
        "print(type(openvino.tools.ovc.telemetry).__module__)\n"
    )
    done = run_python("-c", script, HOME=str(tmp_path), CI="false")
    assert done.stdout.split() == ["openvino.tools.ovc.telemetry_stub"]
    assert not (tmp_path / "intel").exists()
