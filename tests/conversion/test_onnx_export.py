"""Model folders become ONNX graphs that ONNX Runtime computes as PyTorch does, for every head, shape and padding."""

import json
import logging
import shutil
import sys
from functools import partial

import pytest
import torch
import transformers
from transformers import AutoConfig, AutoTokenizer

import mybert
from mybert.command_line.flags import CommandParser
from mybert.conversion import commands, export_onnx, graph_export, key_map
from mybert.files.machine import cpu_features
from mybert.files.settings import build

onnx = pytest.importorskip("onnx", reason="needs the extra 'onnx'")
onnxruntime = pytest.importorskip("onnxruntime", reason="needs the extra 'onnx'")
pytest.importorskip("onnxscript", reason="needs the extra 'onnx'")

INPUTS = ["input_ids", "attention_mask", "token_type_ids"]


def reload(folder, head, library=mybert):
    prefix = "MyBert" if library is mybert else "Bert"
    model_class = getattr(library, prefix + key_map.HEADS[head].class_suffix)
    return model_class.from_pretrained(folder, dtype=torch.float32).eval()


def session_of(folder, file="model.onnx"):
    return onnxruntime.InferenceSession(folder / file, providers=["CPUExecutionProvider"])


def batch_of(shape, side="right"):
    generator = torch.Generator().manual_seed(sum(shape))
    length = shape[-1]
    lengths = torch.randint(1, length + 1, (*shape[:-1], 1), generator=generator)
    places = torch.arange(length)
    mask = places < lengths if side == "right" else places >= length - lengths
    draw = partial(torch.randint, size=shape, generator=generator)
    return {"input_ids": draw(high=61), "attention_mask": mask.long(), "token_type_ids": draw(high=2)}


def run(session, batch):
    names = [output.name for output in session.get_outputs()]
    arrays = session.run(names, {name: tensor.numpy() for name, tensor in batch.items()})
    return dict(zip(names, map(torch.from_numpy, arrays), strict=True))


def at_tokens(head, name, output, batch):
    has_padding = "length" in key_map.HEADS[head].outputs[name]
    return output[batch["attention_mask"].bool()] if has_padding else output


# Files and their largest differences; without dot products of int8, sums in 16 bits saturate.
HAS_INT8 = any("VNNI" in feature for feature in cpu_features())
TOLERANCES = {"model.onnx": 1e-5} | ({"model_int8.onnx": 0.5} if HAS_INT8 else {})


def assert_same_as_model(session, model, head, tolerance=1e-5):
    """Compare on shapes not used in the export, padded on either side."""
    for shape in ((1, 2, 1), (1, 1, 24), (5, 3, 9), (7, 2, 13)):
        shape = shape if head == "multiple-choice" else shape[::2]
        for side in ("right", "left"):
            batch = batch_of(shape, side)
            outputs = run(session, batch)
            with torch.no_grad():
                expected = model(**batch)
            assert list(outputs) == list(expected)
            for name, output in outputs.items():
                assert output.shape == expected[name].shape
                torch.testing.assert_close(
                    at_tokens(head, name, output, batch),
                    at_tokens(head, name, expected[name], batch),
                    rtol=1e-5,
                    atol=tolerance,
                )
                assert expected[name].numel() < 9 or expected[name].std() > 0.1  # there is something to compare


def assert_sequences_of_a_row_are_apart(session, model, head, tolerance=1e-5):
    numbers = torch.tensor([[1, 1, 1, 2, 3, 3, 0], [1, 1, 2, 2, 2, 2, 2]])
    ids, segments = torch.arange(14).view(2, 7) + 5, (torch.arange(14) % 2).view(2, 7)
    packed = {"input_ids": ids, "attention_mask": numbers, "token_type_ids": segments}
    has_choices = head == "multiple-choice"
    outputs = run(session, {name: values[None] if has_choices else values for name, values in packed.items()})
    sequences = [(row, number) for row in range(2) for number in range(1, int(numbers[row].max()) + 1)]
    for place, (row, number) in enumerate(sequences):
        own = numbers[row] == number
        alone = {"input_ids": ids[row, own][None], "token_type_ids": segments[row, own][None]}
        with torch.no_grad():
            expected = model(**{name: values[None] if has_choices else values for name, values in alone.items()})
        for name, right in expected.items():
            of_tokens = "length" in key_map.HEADS[head].outputs[name]
            found = outputs[name][row, own] if of_tokens else outputs[name].flatten(0, int(has_choices))[place]
            torch.testing.assert_close(found, right[0].view(found.shape), rtol=1e-5, atol=tolerance)


def operators(path):
    return [node.op_type for node in onnx.load(path).graph.node]


@pytest.fixture(scope="module")
def exported(tmp_path_factory, save_model):
    """A tagger's folder, its export with int8, and the report."""
    folder = tmp_path_factory.mktemp("tagger")
    save_model(folder / "model", "token-classification")
    with pytest.MonkeyPatch.context() as patch:  # which fails on some graphs and versions
        patch.setattr("onnxruntime.quantization.shape_inference.quant_pre_process", None)
        patch.setattr("onnxruntime.quantization.quant_pre_process", None)
        report = export_onnx(folder / "model", folder / "onnx", dtype="int8")
    return folder / "model", folder / "onnx", report


@pytest.mark.slow
@pytest.mark.parametrize("head", key_map.HEADS)
def test_every_head(tmp_path, head, save_model):
    save_model(tmp_path / "model", head)
    report = export_onnx(tmp_path / "model", tmp_path / "onnx", dtype="int8")
    model = reload(tmp_path / "model", head)
    axes = ["batch_size", "num_choices", "sequence_length"]
    for file, tolerance in TOLERANCES.items():
        session = session_of(tmp_path / "onnx", file)
        assert [(entry.name, entry.type) for entry in session.get_inputs()] == [(x, "tensor(int64)") for x in INPUTS]
        for entry in session.get_inputs():
            assert entry.shape == (axes if head == "multiple-choice" else axes[::2])
        assert [output.name for output in session.get_outputs()] == list(key_map.HEADS[head].outputs)
        leading = axes[: 1 + (head == "multiple-choice")]
        assert all(output.shape[: len(leading)] == leading for output in session.get_outputs())
        assert_same_as_model(session, model, head, tolerance)
        assert_sequences_of_a_row_are_apart(session, model, head, tolerance)
    differences = report.differences
    assert max(differences["model.onnx"].values()) < 1e-5 < max(differences["model_int8.onnx"].values())
    # Every product with a weight is one of integers: six in a layer, and those of the heads.
    products = {"masked-lm": 2, "pretraining": 4, "token-classification": 1, "question-answering": 1, "encoder": 1}
    assert operators(tmp_path / "onnx" / "model_int8.onnx").count("MatMulInteger") == 12 + products.get(head, 2)


@pytest.mark.slow
@pytest.mark.parametrize("head", ["encoder", "sequence-classification", "masked-lm", "multiple-choice"])
def test_left_to_right(tmp_path, head, save_model):
    save_model(tmp_path / "model", head, is_decoder=True)
    export_onnx(tmp_path / "model", tmp_path / "onnx")
    model = reload(tmp_path / "model", head)
    assert model.config.is_decoder
    assert_same_as_model(session_of(tmp_path / "onnx"), model, head)


def test_export_onnx_of_a_classifier_of_the_mean_has_the_mean(tmp_path, save_model):
    save_model(tmp_path / "model", "sequence-classification", classifier_pooling="mean")
    export_onnx(tmp_path / "model", tmp_path / "onnx")
    model = reload(tmp_path / "model", "sequence-classification")
    assert model.bert.pooler is None
    assert_same_as_model(session_of(tmp_path / "onnx"), model, "sequence-classification")
    assert_sequences_of_a_row_are_apart(session_of(tmp_path / "onnx"), model, "sequence-classification")
    assert "classifier_pooling" not in json.loads((tmp_path / "onnx" / "config.json").read_text())


@pytest.mark.slow
@pytest.mark.parametrize("head", ["sequence-classification", "masked-lm"])
def test_a_model_of_transformers(tmp_path, head, save_model, write_vocab):
    save_model(tmp_path / "bert", head, library=transformers, tokenizer=False)
    write_vocab(tmp_path / "bert")
    export_onnx(tmp_path / "bert", tmp_path / "onnx")
    bert = reload(tmp_path / "bert", head, library=transformers)
    assert_same_as_model(session_of(tmp_path / "onnx"), bert, head)
    assert (tmp_path / "onnx" / "tokenizer.json").is_file()


@pytest.mark.slow
def test_an_encoder_without_pooler_in_half_precision(tmp_path, save_model):
    options = {"add_pooling_layer": False}
    save_model(tmp_path / "model", "encoder", dtype=torch.bfloat16, options=options)
    report = export_onnx(tmp_path / "model", tmp_path / "onnx")
    assert list(report.differences["model.onnx"]) == ["last_hidden_state"]
    (output,) = session_of(tmp_path / "onnx").get_outputs()
    assert (output.name, output.type) == ("last_hidden_state", "tensor(float)")
    assert json.loads((tmp_path / "onnx" / "config.json").read_text())["dtype"] == "float32"
    names = {"config.json", "conversion.json", "model.onnx", "tokenizer.json", "tokenizer_config.json", "vocab.txt"}
    assert {path.name for path in (tmp_path / "onnx").iterdir()} == names


@pytest.mark.slow
def test_weights_too_large_for_one_file(tmp_path, monkeypatch, save_model, write_vocab):
    monkeypatch.setattr("torch.onnx._internal.exporter._onnx_program._LARGE_MODEL_THRESHOLD", 0)
    save_model(tmp_path / "model", "masked-lm", tokenizer=False)
    write_vocab(tmp_path / "model")  # of a tokenizer that is no other's
    (tmp_path / "model" / "tokenizer_config.json").write_text('{"tokenizer_class": "BertJapaneseTokenizer"}')
    export_onnx(tmp_path / "model", tmp_path / "there", dtype="int8")
    (tmp_path / "there").rename(tmp_path / "onnx")  # the graph finds its weights wherever the folder is
    names = {path.name for path in (tmp_path / "onnx").iterdir()}
    assert {"model.onnx", "model.onnx.data", "model_int8.onnx", "model_int8.onnx.data"} <= names
    assert "tokenizer.json" not in names
    for name in ("vocab.txt", "tokenizer_config.json"):
        assert (tmp_path / "onnx" / name).read_bytes() == (tmp_path / "model" / name).read_bytes()
    model = reload(tmp_path / "model", "masked-lm")
    for file, tolerance in TOLERANCES.items():
        assert_same_as_model(session_of(tmp_path / "onnx", file), model, "masked-lm", tolerance)


def test_the_folder(exported):
    source, folder, report = exported
    names = {"config.json", "conversion.json", "tokenizer.json", "tokenizer_config.json", "vocab.txt"}
    assert {path.name for path in folder.iterdir()} == {*names, "model.onnx", "model_int8.onnx"}
    assert [path.name for path in folder.parent.iterdir() if path.name.startswith(".")] == []
    kept = json.loads((folder / "conversion.json").read_text())
    assert kept["differences"] == report.differences
    assert "model_int8.onnx" in str(report)
    onnx.checker.check_model(folder / "model.onnx", full_check=True)
    config = AutoConfig.from_pretrained(folder)
    assert type(config) is transformers.BertConfig and config.architectures == ["BertForTokenClassification"]
    assert config.id2label == AutoConfig.from_pretrained(source).id2label


def test_from_text_to_labels(exported):
    source, folder, _ = exported
    texts = [["the quicker fox", "w3 w4"], ["fox", "w1"]]
    batch = AutoTokenizer.from_pretrained(folder)(texts, padding=True, return_tensors="pt")
    assert batch["token_type_ids"].any()
    with torch.no_grad():
        expected = reload(source, "token-classification")(**batch).logits
    real = batch["attention_mask"].bool()
    torch.testing.assert_close(run(session_of(folder), dict(batch))["logits"][real], expected[real], rtol=0, atol=1e-5)


def test_rows_of_padding_only_are_finite(exported):
    _, folder, _ = exported
    batch = batch_of((3, 7))
    batch["attention_mask"][1] = 0
    for file in ("model.onnx", "model_int8.onnx"):
        assert run(session_of(folder, file), batch)["logits"].isfinite().all()


def test_weights_of_products_are_int8(exported):
    _, folder, _ = exported
    quantized = [tensor for tensor in onnx.load(folder / "model_int8.onnx").graph.initializer if tensor.data_type == 3]
    weights = [tensor for tensor in quantized if len(tensor.dims) == 2]
    assert sorted(weight.dims[0] * weight.dims[1] for weight in weights) == [32 * 3, *[32 * 32] * 8, *[32 * 48] * 4]


def test_the_command_says_what_matters_and_nothing_else(tmp_path, caplog, capfd, recwarn, save_model):
    save_model(tmp_path / "model", "next-sentence")
    capfd.readouterr()
    caplog.set_level("INFO")
    handlers = list(logging.root.handlers)
    recwarn.clear()
    arguments = [
        "--model",
        str(tmp_path / "model"),
        "--output_dir",
        str(tmp_path / "onnx"),
        "--dtype",
        "int8",
        "--opset",
        "18",
    ]
    settings = build(commands.ConvertOnnxSettings, CommandParser("convert onnx").given(arguments))
    report = commands.convert_onnx(settings)
    assert set(report.differences) == {"model.onnx", "model_int8.onnx"}
    assert {entry.version for entry in onnx.load(tmp_path / "onnx" / "model.onnx").opset_import} == {18}
    assert str(report) in caplog.text
    assert {record.name.split(".")[0] for record in caplog.records} == {"mybert"}
    out, err = capfd.readouterr()
    assert out == "" and all(not line.strip() or "Loading weights" in line for line in err.splitlines())
    assert "torchvision" not in err and "pre-processing" not in err
    assert [str(warning.message) for warning in recwarn] == []
    assert logging.root.handlers == handlers and logging.root.manager.disable == 0


@pytest.mark.slow
def test_an_opset_that_cannot_be_written(tmp_path, save_model):
    save_model(tmp_path / "model", "next-sentence")
    with pytest.raises(ValueError, match="opset is 13, but the exporter of PyTorch can only write"):
        export_onnx(tmp_path / "model", tmp_path / "onnx", opset=13)
    assert [path.name for path in tmp_path.iterdir()] == ["model"]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda bias: bias.add_(1), r"model\.onnx: the conversion is wrong: logits differs by [01]\.?\d* from"),
        (lambda bias: bias.fill_(torch.nan), "logits differs by nan"),
    ],
)
def test_a_difference_leaves_nothing_behind(exported, tmp_path, monkeypatch, change, message):
    source, folder, _ = exported

    def copy_then_change(model, source, inputs, path, *others):
        shutil.copy(folder / "model.onnx", path)
        with torch.no_grad():
            change(model.classifier.bias)
        return {"model.onnx": graph_export.OnnxModel(path / "model.onnx")}

    monkeypatch.setattr(graph_export, "_write_onnx", copy_then_change)
    with pytest.raises(ValueError, match=message):
        export_onnx(source, tmp_path / "onnx")
    assert not list(tmp_path.iterdir())


def test_outputs_that_are_not_finite(exported, tmp_path, monkeypatch):
    source, folder, _ = exported

    def write_infinite(model, source, inputs, path, *others):
        written = onnx.load(folder / "model.onnx")
        (bias,) = (tensor for tensor in written.graph.initializer if tensor.name.endswith("classifier.bias"))
        bias.CopyFrom(onnx.numpy_helper.from_array(torch.full((3,), torch.inf).numpy(), bias.name))
        onnx.save(written, path / "model.onnx")
        return {"model.onnx": graph_export.OnnxModel(path / "model.onnx")}

    monkeypatch.setattr(graph_export, "_write_onnx", write_infinite)
    with pytest.raises(ValueError, match="logits is not finite"):
        export_onnx(source, tmp_path / "onnx")
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(("head", "equal"), [("encoder", None), ("sequence-classification", 1.0)])
def test_decisions_on_texts_are_those_of_classes(tmp_path, save_model, head, equal):
    model = save_model(tmp_path / "model", head).eval()
    tokenizer = AutoTokenizer.from_pretrained(tmp_path / "model")
    rows = [dict(tokenizer(text)) for text in ("the quick fox", "the fox")]
    assert graph_export._compare_on_texts(model, model, rows, head, tokenizer) == (0, equal)


def test_a_graph_without_memory_is_no_broken_one(tmp_path, monkeypatch):
    def load(*args, **options):
        raise MemoryError

    monkeypatch.setattr(onnxruntime, "InferenceSession", load)
    with pytest.raises(MemoryError):
        graph_export.OnnxModel(tmp_path / "model.onnx")


def test_the_extra_is_missing(tmp_path, monkeypatch):
    for package in ("onnx", "onnxruntime", "onnxscript"):
        with monkeypatch.context() as patch, pytest.raises(ImportError, match=r"run pip install '\.\[onnx\]'"):
            patch.setitem(sys.modules, package, None)
            export_onnx(tmp_path / "model", tmp_path / "onnx")
