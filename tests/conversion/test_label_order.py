"""Google's MNLI classifier in and out: every class keeps its name, and every name its row."""

from pathlib import Path

import pytest
import torch
from transformers import AutoConfig, AutoModelForSequenceClassification

from mybert.conversion import (
    convert_google_checkpoint,
    export_google_checkpoint,
    read_tensor_bundle,
    verify_conversion,
)
from mybert.metrics import GOOGLE_LABELS, HUB_LABELS

CLASSIFIER = Path(__file__).parents[1] / "fixtures" / "google_tf1" / "classifier"
GOOGLES, GLUES = GOOGLE_LABELS["mnli"], HUB_LABELS["mnli"]
ROWS = ("output_weights", "output_bias")


def probabilities(folder):
    """Class name -> its probabilities for a few sentences."""
    model = AutoModelForSequenceClassification.from_pretrained(folder).eval()
    ids = torch.randint(model.config.vocab_size, (8, 12), generator=torch.Generator().manual_seed(0))
    with torch.no_grad():
        logits = model(input_ids=ids).logits.softmax(-1)
    return {model.config.id2label[row]: logits[:, row] for row in range(3)}


@pytest.fixture
def write_classifier(save_model):
    """Save a classifier with named classes."""

    def write(folder, names):
        labels = {"id2label": dict(enumerate(names)), "label2id": {name: row for row, name in enumerate(names)}}
        return save_model(folder, "sequence-classification", **labels)

    return write


@pytest.mark.parametrize(
    ("options", "names", "said"),
    [
        ({"task": "mnli"}, ["contradiction", "entailment", "neutral"], "Google's order of mnli"),
        ({}, ["LABEL_0", "LABEL_1", "LABEL_2"], "the 3 classes have no names; --task ("),
    ],
)
def test_classes_of_googles_classifier(converted, options, names, said):
    folder, report = converted("classifier", **options)
    (decision,) = [line for line in report.decisions if line.startswith("labels: ")]
    assert said in decision and AutoConfig.from_pretrained(folder).id2label == dict(enumerate(names))


def test_a_classifier_goes_out_and_comes_back_by_name(tmp_path, write_classifier):
    model = write_classifier(tmp_path / "mybert", GLUES)
    report = export_google_checkpoint(tmp_path / "mybert", tmp_path / "google" / "m")
    assert any("contradiction, entailment, neutral, the order of Google" in line for line in report.decisions)
    assert report.verification.ok and len(report.verification.notes) == 2
    rows = [GLUES.index(name) for name in GOOGLES]
    assert rows != [0, 1, 2]
    bundle = read_tensor_bundle(tmp_path / "google" / "m")
    assert (bundle["output_weights"] == model.classifier.weight.detach().numpy()[rows]).all()
    assert (bundle["output_bias"] == model.classifier.bias.detach().numpy()[rows]).all()
    assert verify_conversion(tmp_path / "google", tmp_path / "mybert").ok

    convert_google_checkpoint(tmp_path / "google", tmp_path / "back", task="mnli")
    before, after = probabilities(tmp_path / "mybert"), probabilities(tmp_path / "back")
    assert before.keys() == after.keys()
    for name, values in before.items():
        torch.testing.assert_close(after[name], values, rtol=1e-6, atol=1e-6)
        assert all((values - other).abs().max() > 1e-3 for key, other in before.items() if key != name)
    export_google_checkpoint(tmp_path / "back", tmp_path / "again" / "m")
    again = read_tensor_bundle(tmp_path / "again" / "m")
    assert all((again[name] == bundle[name]).all() for name in ROWS)


def test_verification_takes_no_other_order(tmp_path, write_classifier, change_config):
    write_classifier(tmp_path / "mybert", GLUES)
    export_google_checkpoint(tmp_path / "mybert", tmp_path / "google" / "m")
    change_config(tmp_path / "mybert", id2label=dict(enumerate(("neutral", "entailment", "contradiction"))))
    report = verify_conversion(tmp_path / "google", tmp_path / "mybert")
    assert not report.ok and "classifier.weight" in report.problems[0]


@pytest.mark.parametrize(
    ("names", "said"),
    [
        (("LABEL_0", "LABEL_1", "LABEL_2"), "the 3 classes have no names; their rows stay"),
        (("good", "bad", "ugly"), "good, bad, ugly, the folder's order"),
        (("Neutral", "ENTAILMENT", "contradiction"), "contradiction, ENTAILMENT, Neutral, the order of Google's"),
        (GOOGLES, "contradiction, entailment, neutral, the order of Google's"),
        (("0", "1"), "0, 1, the order of Google's"),
        (("1", "0"), "0, 1, the order of Google's"),
    ],
)
def test_export_google_checkpoint_of_a_classifier_names_the_order_written(tmp_path, names, said, write_classifier):
    model = write_classifier(tmp_path / "mybert", names)
    report = export_google_checkpoint(tmp_path / "mybert", tmp_path / "google" / "m")
    (decision,) = [line for line in report.decisions if line.startswith("labels: ")]
    assert said in decision and report.verification.ok
    order = [names.index(name) for name in decision.removeprefix("labels: ").split(", ") if name in names]
    stored = read_tensor_bundle(tmp_path / "google" / "m")["output_bias"]
    assert (stored == model.classifier.bias.detach().numpy()[order or [0, 1, 2]]).all()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"head": "chatbot"}, "--head"),
        ({"labels": ["a", "b"]}, "has 3 labels in the checkpoint, but 2 names"),
        ({"task": "rte"}, "expected cola, mnli, mrpc, xnli"),
        ({"task": "mrpc"}, r"has 3 labels in the checkpoint, but 2 names were given \(0, 1\)"),
        ({"task": "mnli", "labels": ["a", "b", "c"]}, "both were given"),
        ({"labels": ["a", "b", "a"]}, "different names for all labels"),
        ({"task": "mnli", "head": "token-classification"}, "for a sequence classifier"),
        ({"task": "mnli", "head": "encoder"}, "has no labels to name"),
    ],
)
def test_labels_that_do_not_fit(tmp_path, options, message, user_error):
    with user_error(message):
        convert_google_checkpoint(CLASSIFIER, tmp_path / "model", **options)
    assert list(tmp_path.iterdir()) == []
