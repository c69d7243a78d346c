"""Pruning layers and heads without training: the choice, the cost, and an ordinary model folder as the result."""

import json
import logging
import shutil
from functools import partial

import pytest
import torch
from safetensors.torch import load_file
from transformers import (
    AlbertForSequenceClassification,
    AutoModel,
    AutoModelForSequenceClassification,
    AutoTokenizer,
    BertForSequenceClassification,
    BertModel,
    DistilBertForSequenceClassification,
)

from mybert import (
    MyBertForMultipleChoice,
    MyBertForPreTraining,
    MyBertForQuestionAnswering,
    MyBertForSequenceClassification,
    MyBertForTokenClassification,
)
from mybert.cli import main
from mybert.conversion import export_google_checkpoint, to_transformers_bert
from mybert.files.checkpoint import Checkpoint
from mybert.files.output import locked
from mybert.files.source import read_rows
from mybert.finetuning import TASKS, PruneArguments, evaluate, prune
from mybert.finetuning.pruning import alternate_dropped, head_importance, most_important, top_dropped
from mybert.finetuning.tasks.steps import load_trained, read_examples

SIZE = {"hidden_size": 16, "num_hidden_layers": 4, "num_attention_heads": 2, "intermediate_size": 24}
HEADS = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 24}
ROWS = [("the cat sat on the mat", "1"), ("a dog ate the bread", "0"), ("it was a happy fish", "1")] * 4
CHOICES = [
    {"text": "the cat", "choices": ["sat", "ran on", "ate bread"], "label": 0},
    {"text": "a dog", "choices": ["was sad", "slept", "ran today"], "label": 2},
]
TAGGED = [
    {"tokens": "the cat sat on a mat under a tree".split(), "tags": list("abaabbaba")},
    {"tokens": ["fish"], "tags": ["b"]},
]


def spread(model):
    """Weights with which every layer matters."""
    for parameter in model.parameters():
        parameter.data.add_(torch.randn(parameter.shape) * 0.2)


@pytest.fixture(scope="module")
def save(tiny_model):
    return partial(tiny_model, change=spread)


@pytest.fixture(scope="module")
def bert(tmp_path_factory, save):
    """A classifier of type `bert`."""
    folder = tmp_path_factory.mktemp("prune") / "bert"
    return save(folder, BertForSequenceClassification, labels="01", task="classification", **SIZE)


@pytest.fixture
def data(tmp_path):
    path = tmp_path / "dev.tsv"
    path.write_text("text\tlabel\n" + "".join(f"{text}\t{label}\n" for text, label in ROWS))
    return str(path)


def test_no_copy_names_code_of_the_source(tmp_path, bert, changed):
    named = {"auto_map": {"AutoModel": "modeling_x.X"}, "custom_pipelines": {"text-classification": {"impl": "x.X"}}}
    model = str(changed(bert, **named))
    prune(PruneArguments(model=model, keep_layers=[1], output_dir=str(tmp_path / "small")))
    assert not named.keys() & json.loads((tmp_path / "small" / "config.json").read_text()).keys()


def test_which_layers_stay():
    assert top_dropped(12, 3) == [0, 1, 2]
    assert alternate_dropped(12, 6) == [0, 2, 4, 7, 9, 11]  # DistilBERT's initial layers
    assert [alternate_dropped(4, count) for count in (3, 2, 1)] == [[0, 2, 3], [0, 3], [0]]
    for layers in range(2, 26):
        for count in range(1, layers):
            assert len(set(alternate_dropped(layers, count))) == count


@pytest.mark.parametrize(("order", "kept"), [(["top"], [0, 1]), (["alternate"], [0, 3]), (["1", "0"], [2, 3])])
def test_the_folder_computes_what_the_layers_that_stay_compute(tmp_path, bert, data, order, kept):
    output = tmp_path / "small"
    count = [] if order[0].isdecimal() else [2]
    found = prune(
        PruneArguments(model=str(bert), data=[data], drop_layers=order, keep_layers=count, output_dir=str(output))
    )
    small = BertForSequenceClassification.from_pretrained(output)  # still transformers' own type
    expected = BertForSequenceClassification.from_pretrained(bert)
    layers = list(expected.bert.encoder.layer)
    expected.bert.encoder.layer = torch.nn.ModuleList(layers[number] for number in kept)
    texts = AutoTokenizer.from_pretrained(output)([text for text, _ in ROWS], padding=True, return_tensors="pt")
    with torch.no_grad():
        logits, wanted = small.eval()(**texts).logits, expected.eval()(**texts).logits
        whole = BertForSequenceClassification.from_pretrained(bert).eval()(**texts).logits
    assert torch.equal(logits, wanted)
    assert (logits - whole).abs().max() > 1e-3
    config = json.loads((output / "config.json").read_text())
    before = json.loads((bert / "config.json").read_text())
    assert config == before | {"num_hidden_layers": 2}
    assert isinstance(AutoModel.from_pretrained(output), BertModel)
    assert (output / "tokenizer.json").read_bytes() == (bert / "tokenizer.json").read_bytes()
    # The table has the scores of the folder.
    assert [row["layers"] for row in found["rows"]] == [[0, 1, 2, 3], kept]
    for folder, row in zip((bert, output), found["rows"], strict=True):
        assert row["accuracy"] == evaluate(folder, data)["accuracy"]
        assert row["parameters"] == sum(tensor.numel() for tensor in load_file(folder / "model.safetensors").values())
    assert json.loads((output / "pruning.json").read_text()) == {"model": str(bert), **found}
    card = (output / "README.md").read_text()
    assert f"bert with 2 of its 4 layers ({kept[0]}, {kept[1]}, counted from 0)" in card and "| 2 |" in card
    assert sorted(path.name for path in tmp_path.iterdir()) == ["dev.tsv", "small"]


def test_every_size_is_measured(bert, data, caplog):
    with caplog.at_level(logging.INFO, logger="mybert"):
        found = prune(PruneArguments(model=str(bert), data=[data], drop_layers=["alternate"]))
    assert [row["layers"] for row in found["rows"]] == [[0, 1, 2, 3], [0, 2, 3], [0, 3], [0]]
    lines = [record.message for record in caplog.records if " layers " in record.message]
    assert len(lines) == 4 and max(map(len, lines)) <= 80
    assert lines[0].startswith("  4 layers") and "accuracy" in lines[0]
    assert lines[3].endswith(")  kept: 0")
    assert len(prune(PruneArguments(model=str(bert), data=[data], keep_layers=[3, 1]))["rows"]) == 3


ANSWER = {"id": "1", "question": "a cat", "answers": [{"text": "sat", "answer_start": 8}]}
PARAGRAPH = {"context": "the cat sat on the mat", "qas": [ANSWER]}


@pytest.mark.parametrize(
    ("task", "model_class", "rows"),
    [
        ("tagging", MyBertForTokenClassification, "the O\ncat B-X\n\na O\ndog B-X\n"),
        (
            "squad",
            MyBertForQuestionAnswering,
            json.dumps({"version": "1.1", "data": [{"title": "t", "paragraphs": [PARAGRAPH]}]}),
        ),
    ],
)
def test_other_tasks(tmp_path, save, task, model_class, rows):
    folder = save(tmp_path / "m", model_class, task=task, labels=("O", "B-X"), **SIZE)
    path = tmp_path / ("dev.txt" if task == "tagging" else "dev.json")
    path.write_text(rows)
    settings = {"model": str(folder), "data": [str(path)], "keep_layers": [2], "output_dir": str(tmp_path / "small")}
    found = prune(PruneArguments(**settings))
    assert found["metric"] == TASKS[task].main_metric
    assert evaluate(tmp_path / "small", str(path))[found["metric"]] == found["rows"][1][found["metric"]]


def test_a_pretrained_model_needs_no_data(tmp_path, save):
    folder = save(tmp_path / "pretrained", MyBertForPreTraining, **SIZE)
    found = prune(PruneArguments(model=str(folder), keep_layers=[1], output_dir=str(tmp_path / "one")))
    assert found == {"rows": [{"layers": [0, 1, 2, 3]}, {"layers": [0]}], "metric": None}
    one, whole = (MyBertForPreTraining.from_pretrained(path) for path in (tmp_path / "one", folder))
    assert one.config.num_hidden_layers == 1
    for name, parameter in one.named_parameters():
        assert torch.equal(parameter, whole.get_parameter(name))


def test_settings_of_data_that_there_is_none_of_are_said(tmp_path, bert, capsys):
    config = tmp_path / "shared.yaml"
    config.write_text("task: classification\nmax_length: 16\n")
    flags = ["prune", "--model", str(bert), "--keep_layers", "1", "--output_dir"]
    assert main([*flags, str(tmp_path / "one"), "--config", str(config)]) == 0
    assert "There is no data to measure on; without effect: task, max_length." in capsys.readouterr().out
    assert main([*flags, str(tmp_path / "two")]) == 0
    assert "without effect" not in capsys.readouterr().out


def test_models_like_bert(tmp_path, tiny_model, data):
    """DistilBERT has other names; ALBERT shares one layer."""
    tiny_model(tmp_path / "distil", DistilBertForSequenceClassification, labels="01", hidden_dim=24, **SIZE)
    settings = {"data": [data], "keep_layers": [2], "output_dir": str(tmp_path / "small")}
    prune(PruneArguments(model=str(tmp_path / "distil"), **settings))
    small = AutoModelForSequenceClassification.from_pretrained(tmp_path / "small")
    assert len(small.distilbert.transformer.layer) == 2
    with pytest.raises(ValueError, match="only bert and mybert can have heads pruned"):
        prune(PruneArguments(model=str(tmp_path / "distil"), data=[data], keep_heads=[1]))
    tiny_model(tmp_path / "albert", AlbertForSequenceClassification, embedding_size=8, **SIZE)
    with pytest.raises(ValueError, match="expected the 4 of a model like BERT"):
        prune(PruneArguments(model=str(tmp_path / "albert"), keep_layers=[2], output_dir=str(tmp_path / "a")))
    assert not (tmp_path / "a").exists()


@pytest.fixture(scope="module")
def classifier(tmp_path_factory, save):
    """A MyBERT of two layers with four heads of eight."""
    folder = tmp_path_factory.mktemp("heads") / "model"
    return save(folder, MyBertForSequenceClassification, task="classification", labels="01", **HEADS)


def masked_loss(model, batch, masks):
    """The loss with a factor on the context of every head of every layer."""
    hooks = []
    for layer, mask in zip(model.bert.encoder.layer, masks, strict=True):
        wide = mask.repeat_interleave(model.config.head_size)
        dense = layer.attention.output.dense
        hooks.append(dense.register_forward_pre_hook(lambda module, inputs, wide=wide: (inputs[0] * wide,)))
    try:
        return model(**batch).loss
    finally:
        for hook in hooks:
            hook.remove()


@pytest.mark.parametrize(
    ("name", "head", "labels", "rows"),
    [
        ("classification", MyBertForSequenceClassification, "01", [{"text": text, "label": y} for text, y in ROWS]),
        ("multiple_choice", MyBertForMultipleChoice, "", CHOICES),
        ("tagging", MyBertForTokenClassification, "ab", TAGGED),
    ],
    ids=["a text", "the choices of a question are one example", "a short sentence counts as a long one"],
)
def test_importance_is_the_mean_derivative_by_a_mask(tmp_path, tokenizer, save, name, head, labels, rows):
    folder = save(tmp_path / "m", head, task=name, labels=labels, **HEADS)
    task = TASKS[name]
    model, labels = load_trained(task, Checkpoint(folder))
    (tmp_path / "dev.json").write_text(json.dumps(rows))
    data = str(tmp_path / "dev.json")
    encoded = task.encode(read_examples(task, data), labels, tokenizer, data)
    expected = torch.zeros(2, 4, dtype=torch.float64)
    for place in range(len(encoded)):
        masks = torch.ones(2, 4, requires_grad=True)
        loss = masked_loss(model.eval(), task.collator(tokenizer, model)([encoded[place]]), masks)
        expected += torch.autograd.grad(loss, masks)[0].abs().double()
    expected /= expected.norm(dim=1, keepdim=True)
    found = head_importance(task, encoded, model, tokenizer)
    assert (found - expected).abs().max() < 1e-4
    assert found.std() > 0.01
    assert all(parameter.grad is None for parameter in model.parameters()) and model.config.unpad_inputs


def test_most_important_heads_are_in_order_and_ties_go_to_the_first():
    assert most_important(torch.tensor([[0.1, 0.9, 0.5], [0.2, 0.2, 0.1]]), 2) == [[1, 2], [0, 1]]


@pytest.mark.parametrize("source", ["mybert", "bert"])
def test_fewer_heads_compute_what_zeros_in_place_of_the_others_compute(tmp_path, classifier, data, tokenizer, source):
    folder = classifier
    if source == "bert":
        to_transformers_bert(classifier, folder := tmp_path / "bert")
    output = tmp_path / "small"
    found = prune(PruneArguments(model=str(folder), data=[data], keep_heads=[3], output_dir=str(output)))
    assert [len(row["heads"][0]) for row in found["rows"]] == [4, 3]
    kept = found["rows"][1]["heads"]
    assert kept != found["rows"][0]["heads"]
    small = AutoModelForSequenceClassification.from_pretrained(output).eval()
    whole = MyBertForSequenceClassification.from_pretrained(classifier).eval()
    assert (small.config.num_attention_heads, small.config.head_dim, small.config.model_type) == (3, 8, "mybert")
    assert small.bert.encoder.layer[1].attention.self.query.weight.shape == (24, 32)
    masks = torch.tensor([[float(head in numbers) for head in range(4)] for numbers in kept])
    texts = tokenizer([text for text, _ in ROWS], padding=True, return_tensors="pt")
    batch = {**texts, "labels": torch.tensor([int(label) for _, label in ROWS])}
    for unpads in (True, False):
        small.config.unpad_inputs = whole.config.unpad_inputs = unpads
        loss, wanted = small(**batch).loss, masked_loss(whole, batch, masks)
        assert torch.allclose(loss, wanted, atol=1e-6)
    assert abs(wanted - whole(**batch).loss) > 1e-4
    small.train()
    small(**batch).loss.backward()
    assert small.bert.encoder.layer[0].attention.output.dense.weight.grad.abs().max() > 0
    # An ordinary folder for all other purposes.
    for row, place in zip(found["rows"], (folder, output), strict=True):
        assert row["accuracy"] == evaluate(place, data)["accuracy"]
        stored = load_file(place / "model.safetensors").values()
        assert row["parameters"] == sum(tensor.numel() for tensor in stored)
    assert "with 3 of the 4 attention heads of each layer" in (output / "README.md").read_text()
    again = {"model": str(output), "data": [data], "keep_heads": [1], "output_dir": str(tmp_path / "one")}
    assert len(prune(PruneArguments(**again))["rows"][1]["heads"][1]) == 1
    fewer = {"model": str(output), "keep_layers": [1], "output_dir": str(tmp_path / "layer")}
    prune(PruneArguments(**fewer))
    assert MyBertForSequenceClassification.from_pretrained(tmp_path / "layer").config.head_dim == 8
    for convert, place in ((to_transformers_bert, "b"), (export_google_checkpoint, "g")):
        with pytest.raises(ValueError, match="head_dim is 8, with 3 heads of a width of 32; only MyBERT"):
            convert(output, tmp_path / place)
    assert not (tmp_path / "b").exists()


def test_data_in_memory(tmp_path, bert, data):
    rows = read_rows(data)
    for name, given in (("file", [data]), ("memory", rows)):
        prune(PruneArguments(model=str(bert), data=given, keep_layers=[2], output_dir=str(tmp_path / name)))
    files = [(tmp_path / name / "pruning.json").read_bytes() for name in ("file", "memory")]
    assert files[0] == files[1]


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"model": ""}, "model is not set"),
        ({"data": []}, "data is not set; .* Or give output_dir"),
        ({"drop_layers": ["bottom"]}, "drop_layers is 'bottom'; expected top or alternate"),
        ({"drop_layers": ["1"], "keep_layers": [2]}, "keep_layers is set, and drop_layers lists"),
        ({"output_dir": "x"}, "output_dir is set; say with keep_layers"),
        ({"output_dir": "x", "keep_layers": [1, 2]}, "output_dir is set; say with keep_layers"),
        ({"keep_layers": [4]}, "keep_layers is 4; expected 1 to 3; .* has 4 layers"),
        ({"keep_heads": [2]}, "keep_heads is 2; expected 1 to 1, .* has 2 a layer"),
        ({"drop_layers": ["4"]}, "drop_layers is 4; .* has layers 0 to 3"),
        ({"drop_layers": ["0", "1", "2", "3"]}, "drop_layers is 0 1 2 3; .* one must stay"),
    ],
)
def test_prune_wrong_settings_are_errors(bert, data, settings, message):
    with pytest.raises(ValueError, match=message):
        prune(PruneArguments(**{"model": str(bert), "data": [data]} | settings))


def test_nothing_is_written_over(tmp_path, bert, data, capsys):
    own = shutil.copytree(bert, tmp_path / "own")
    before = {path.name: path.read_bytes() for path in own.iterdir()}

    def call(output, *flags):
        flags = ["--keep_layers", "2", "--output_dir", str(tmp_path / output), *flags]
        return main(["prune", str(own), data, *flags]), capsys.readouterr()

    (tmp_path / "link").symlink_to("own")
    for output in ("own", "link"):
        status, said = call(output, "--overwrite")
        assert status == 2 and "is already read or written by this call; name another place" in said.err
    assert {path.name: path.read_bytes() for path in own.iterdir()} == before
    with locked(tmp_path / "busy"):
        status, said = call("busy")
    assert status == 2 and "busy is being written by process" in said.err
    assert "parameters" not in said.out  # not after measuring
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "thesis.tex").touch()
    status, said = call("mine")
    assert status == 2 and "thesis.tex" in said.err
    assert [call("out", "--quiet", *flags)[0] for flags in ([], [], ["--overwrite"])] == [0, 2, 0]
