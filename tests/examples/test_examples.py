"""The programs in `examples/` run as a user would run them, and do what they say."""

import json
import random
import re
from importlib.util import find_spec
from pathlib import Path

import pytest
import torch
from transformers import AutoModelForSequenceClassification, AutoTokenizer

import mybert
from mybert import MyBertForSequenceClassification
from mybert.pretraining import read_documents

pytestmark = pytest.mark.slow
EXAMPLES = Path(__file__).parents[2] / "examples"
ROWS = [("the cat sat on the mat", "1"), ("a dog ate the bread", "0"), ("it was a happy fish", "1")] * 4
TEXTS = [text for text, _ in ROWS]


def spread(model):
    """Weights with which every layer matters."""
    for parameter in model.parameters():
        parameter.data.add_(torch.randn(parameter.shape) * 0.2)


@pytest.fixture
def classifier(tmp_path, tiny_model):
    """A model of three layers with four heads of eight and 24 units, and its data."""
    (tmp_path / "dev.tsv").write_text("text\tlabel\n" + "".join(f"{text}\t{label}\n" for text, label in ROWS))
    size = {"hidden_size": 32, "num_hidden_layers": 3, "num_attention_heads": 4, "intermediate_size": 24}
    kind = MyBertForSequenceClassification
    return tiny_model(tmp_path / "model", kind, task="classification", labels="01", change=spread, **size)


@pytest.fixture
def run_example(run_python, tmp_path):
    def run(name, *words):
        return run_python(EXAMPLES / f"{name}.py", *words, cwd=tmp_path).stdout

    return run


def logits_of(folder):
    model = AutoModelForSequenceClassification.from_pretrained(folder).eval()
    inputs = AutoTokenizer.from_pretrained(folder)(TEXTS, padding=True, return_tensors="pt")
    with torch.no_grad():
        return model, model(**inputs).logits


def test_prune_encoder_writes_a_smaller_model_that_predicts(classifier, run_example, tmp_path):
    flags = ["--layers", 0, 2, "--heads", 3, "--units", 16, "--text_column", "text"]
    output = run_example("prune_encoder", "model", "dev.tsv", "small", *flags)
    config = json.loads((tmp_path / "small" / "config.json").read_text())
    sizes = ("num_hidden_layers", "num_attention_heads", "head_dim", "intermediate_size")
    assert [config[name] for name in sizes] == [2, 3, 8, 16]
    small, _ = logits_of(tmp_path / "small")
    whole, _ = logits_of(classifier)
    counts = [model.num_parameters() for model in (whole, small)]
    assert counts[1] < counts[0]
    assert [int(count.replace(",", "")) for count in re.findall(r"([\d,]+) parameters", output)] == counts
    accuracies = [
        mybert.evaluate(folder, tmp_path / "dev.tsv")["accuracy"] for folder in (classifier, tmp_path / "small")
    ]
    assert [float(value) for value in re.findall(r"accuracy (\S+)", output)] == pytest.approx(accuracies, abs=1e-4)
    assert len(mybert.predict(tmp_path / "small", TEXTS)) == len(TEXTS)


def test_prune_encoder_removes_the_least_important(classifier, run_example, tmp_path):
    """Heads and units that compute nothing go, and the logits stay."""
    model = MyBertForSequenceClassification.from_pretrained(classifier)
    for layer in model.bert.encoder.layer:
        layer.attention.output.dense.weight.data[:, 8:16] = 0  # of the second head
        layer.output.dense.weight.data[:, 5] = 0
    model.save_pretrained(classifier)
    run_example("prune_encoder", "model", "dev.tsv", "small", "--heads", 3, "--units", 23, "--text_column", "text")
    whole, expected = logits_of(classifier)
    small, logits = logits_of(tmp_path / "small")
    torch.testing.assert_close(logits, expected)
    for before, after in zip(whole.bert.encoder.layer, small.bert.encoder.layer, strict=True):
        query = before.attention.self.query.weight
        assert torch.equal(after.attention.self.query.weight, torch.cat([query[:8], query[16:]]))
        units = before.output.dense.weight
        assert torch.equal(after.output.dense.weight, torch.cat([units[:, :5], units[:, 6:]], dim=1))


def random_words(seed, count=300):
    generator = random.Random(seed)
    return ["".join(generator.choices("abcdefghijklmnopqrstuvwxyz", k=6)) for _ in range(count)]


@pytest.mark.skipif(find_spec("datasketch") is None, reason="datasketch is not installed")
def test_remove_near_duplicates_keeps_the_first_and_what_differs(run_example, tmp_path):
    first, other, short = random_words(1), random_words(2), random_words(3, 40)
    moved = " ".join([*first[150:], *first[:150]]).upper() + "!"
    changed = [f"{word}x" if index % 40 == 7 else word for index, word in enumerate(first)]
    half = [*first[:150], *other[:150]]
    generator = random.Random(0)
    chinese = "".join(chr(generator.randrange(0x4E00, 0x5E00)) for _ in range(300))
    words = [first, other, moved.split(), changed, half, short, short, [chinese], [f"{chinese[:280]}\u7ec8"]]
    documents = [[" ".join(each)] for each in words]
    (tmp_path / "text.txt").write_text("\n\n".join(line for (line,) in documents) + "\n")
    output = run_example("remove_near_duplicates", "text.txt", "--output", "clean.txt")
    kept = [documents[index] for index in (0, 1, 4, 5, 6, 7)]
    assert list(read_documents(tmp_path / "clean.txt")) == kept
    assert "3 of 9 documents removed" in output and "Document 3 is 0.9" in output
    run_example("remove_near_duplicates", "text.txt", "--output", "clean.txt", "--similarity", 0.2)
    assert list(read_documents(tmp_path / "clean.txt")) == [document for document in kept if document != documents[4]]
