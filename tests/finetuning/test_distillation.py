"""Distillation: losses by hand, stored teacher outputs, resumed runs, and rejected settings."""

import json
import os
import re
import signal
from dataclasses import replace

import numpy as np
import pytest
import torch
from safetensors.numpy import load_file
from torch.nn.functional import binary_cross_entropy_with_logits, cross_entropy, kl_div, log_softmax, softmax
from transformers import (
    AutoModelForSequenceClassification,
    BertForSequenceClassification,
    DistilBertForSequenceClassification,
    MPNetConfig,
    MPNetModel,
    pipeline,
)

import mybert
from mybert import (
    MyBertConfig,
    MyBertForMultipleChoice,
    MyBertForQuestionAnswering,
    MyBertForSequenceClassification,
    MyBertForTokenClassification,
    MyBertModel,
    MyBertTokenizer,
)
from mybert.finetuning import TASKS, DistillationArguments, distill
from mybert.finetuning import distillation_trainer as teacher_module
from mybert.finetuning.data import WINDOW_WEIGHT
from mybert.finetuning.distillation import Distillation
from mybert.finetuning.distillation_trainer import (
    LAYER_LOSSES,
    PROJECTIONS,
    SOFT_TARGETS,
    DistillationLoss,
    LayerLosses,
    init_embeddings_from_teacher,
    relation_heads,
)
from mybert.finetuning.features import FeatureTagger, FeatureTaggerConfig
from mybert.finetuning.tasks.losses import ClassLoss, LabelLoss, NumberLoss, SpanLoss
from mybert.finetuning.training import run as training_run
from mybert.finetuning.training.finetune_settings import FINETUNING
from mybert.finetuning.training.plan import completed

NAN = float("nan")
CLASSES = ("bad", "fair", "good")
SIZE = {"hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 32}
SIZE |= {"initializer_range": 0.4}  # with the usual small weights all texts have almost the same logits
NOUNS, VERBS = ("cat", "dog", "tree", "mat", "fish", "bread"), ("sat", "ran", "slept", "ate")
ENDS = ("today", "very happy", "under a tree", "on the mat", "sad")
TEXTS = [f"the {noun} {verb} {end}" for noun in NOUNS for verb in VERBS for end in ENDS]


@pytest.fixture(scope="module")
def folders(tmp_path_factory, tokenizer, tiny_model):
    """Teachers and students by name, with the same vocabulary, and a student with another."""
    words = [word for word in tokenizer.get_vocab() if word.isalpha() and word not in ("cat", "dog", "tree")]
    pieces = ["c", "d", "t", "##a", "##t", "##o", "##g", "##r", "##e"]
    other = MyBertTokenizer(vocab=["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *pieces, *sorted(words)])
    classes = {"labels": CLASSES}
    made = {
        "teacher": (MyBertForSequenceClassification, classes),
        "bert": (BertForSequenceClassification, classes),
        "several": (MyBertForSequenceClassification, classes | {"problem_type": "multi_label_classification"}),
        "value": (MyBertForSequenceClassification, {"num_labels": 1, "problem_type": "regression"}),
        "tagger": (MyBertForTokenClassification, {"labels": ("O", "B-PET")}),
        "answers": (MyBertForQuestionAnswering, {}),
        "choices": (MyBertForMultipleChoice, {}),
        "plain": (MyBertModel, {}),
        "other_words": (MyBertModel, {"words": other}),
    }
    return {
        name: str(tiny_model(tmp_path_factory.mktemp(name) / name, kind, seed=number, **SIZE, **fields))
        for number, (name, (kind, fields)) in enumerate(made.items())
    }


@pytest.fixture
def arguments(folders, tmp_path):
    """Makes settings of a short run."""

    def make(name="out", **settings):
        for key in ("teacher", "student"):
            settings[key] = folders.get(settings.get(key), settings.get(key))
        defaults = {"output_dir": str(tmp_path / name), "per_device_train_batch_size": 8, "max_steps": 6}
        return DistillationArguments(**defaults | {"max_length": 16, "disable_tqdm": True, "use_cpu": True} | settings)

    return make


def labeled(count=24, labels=("good", "bad", "fair")):
    return [{"text": text, "label": labels[number % len(labels)]} for number, text in enumerate(TEXTS[:count])]


def unlabeled(count=24):
    return [{"text": text} for text in TEXTS[-count:]]


# The loss


def hand_made(objective, logits, targets, labels, temperature, weight):
    """The loss of each item, one after the other, by torch's own functions."""
    found = []
    for z, t, label in zip(logits, targets, labels, strict=True):
        if objective == "classes":
            soft = kl_div(log_softmax(z / temperature, -1), softmax(t / temperature, -1), reduction="sum")
            soft = soft - (softmax(t / temperature, -1) * log_softmax(t / temperature, -1)).sum()  # and its entropy
            soft = soft * temperature**2
            hard = None if label == -100 else cross_entropy(z[None], torch.tensor([label]))
        elif objective == "labels":
            p, q = torch.sigmoid(t / temperature), torch.sigmoid(z / temperature)
            soft = -(p * q.log() + (1 - p) * (1 - q).log()).mean() * temperature**2
            hard = None if label is None else binary_cross_entropy_with_logits(z, torch.tensor(label))
        else:
            soft = ((z - t) ** 2)[0]
            hard = None if label is None else ((z - label) ** 2)[0]
        found.append(soft if hard is None else (1 - weight) * soft + weight * hard)
    return torch.stack(found)


LOSSES = {"classes": ClassLoss(), "labels": LabelLoss(), "value": NumberLoss(), "span": SpanLoss()}
CASES = {
    "classes": ([2, -100, 0, 1], torch.tensor([2, -100, 0, 1])),
    "labels": (
        [[1.0, 0.0, 1.0], None, [0.0, 0.0, 0.0], [0.0, 1.0, 1.0]],
        torch.tensor([[1.0, 0, 1], [NAN] * 3, [0, 0, 0], [0, 1, 1]]),
    ),
    "value": ([0.5, None, -1.0, 2.0], torch.tensor([0.5, NAN, -1.0, 2.0])),
}


@pytest.mark.parametrize("objective", CASES)
@pytest.mark.parametrize("temperature", [1.0, 3.0])
def test_the_loss_and_its_gradient_are_those_made_by_hand(objective, temperature):
    torch.manual_seed(0)
    width = 1 if objective == "value" else 3
    targets, labels, expected = torch.randn(4, width) * 2, *CASES[objective][::-1]
    found = []
    for make in ("hand", "loss"):
        logits = torch.linspace(-2, 3, 4 * width).view(4, width).requires_grad_()
        if make == "hand":
            loss = hand_made(objective, logits, targets, expected, temperature, 0.3).mean()
        else:
            loss = DistillationLoss(LOSSES[objective], temperature, 0.3)(
                {"logits": logits}, {"labels": labels, SOFT_TARGETS: targets}
            )
        loss.backward()
        found.append((loss.detach(), logits.grad))
    assert found[0][1].abs().max() > 0.05
    torch.testing.assert_close(found[0], found[1])


def test_words_without_soft_targets_and_windows_weigh_as_they_should():
    logits, targets = torch.randn(2, 3, 4), torch.randn(2, 3, 4)
    targets[0, 2] = targets[1, 0] = NAN
    labels = torch.tensor([[1, -100, -100], [-100, 2, -100]])
    shares = torch.tensor([0.5, 1.0])
    logits.requires_grad_()
    batch = {"labels": labels, SOFT_TARGETS: targets, WINDOW_WEIGHT: shares}
    loss_of = DistillationLoss(ClassLoss(), 2.0, 0.25)
    loss = loss_of({"logits": logits}, batch)
    of_layers = torch.tensor([3.0, 7.0])  # a loss of each sequence, the first of which counts half
    with_layers = loss_of({"logits": logits, LAYER_LOSSES: of_layers}, batch)
    torch.testing.assert_close(with_layers - loss, torch.tensor((0.5 * 3 + 7) / 1.5))
    items = [(0, 0, 1), (0, 1, -100), (1, 1, 2), (1, 2, -100)]
    each = [
        shares[row] * hand_made("classes", logits[row, [place]], targets[row, [place]], [label], 2.0, 0.25)[0]
        for row, place, label in items
    ]
    torch.testing.assert_close(loss, sum(each) / (0.5 * 2 + 1.0 * 2))
    loss.backward()
    assert logits.grad.isfinite().all()
    assert not logits.grad[0, 2].any() and logits.grad[1, 2].any()


@pytest.mark.parametrize("labels", [[-100, -100], [2, -100]])
@pytest.mark.parametrize("weights", [None, [0.25, 0.5]])
def test_loss_of_a_batch_with_few_or_no_labels_is_made_by_hand(labels, weights):
    torch.manual_seed(0)
    logits, targets = torch.randn(2, 4), torch.randn(2, 4)
    batch = {"labels": torch.tensor(labels), SOFT_TARGETS: targets}
    if weights:
        batch[WINDOW_WEIGHT] = torch.tensor(weights)
    loss = DistillationLoss(ClassLoss(), 2.0, 0.25)({"logits": logits}, batch)
    each = hand_made("classes", logits, targets, labels, 2.0, 0.25)
    torch.testing.assert_close(loss, each.mean() if not weights else (each * torch.tensor([1, 2])).sum() / 3)


def test_loss_with_labels_of_more_pieces_than_the_teacher_has_logits_for_is_two_means():
    """As with `continuation_labels`: the labels of all pieces weigh as much as those of the words' first pieces."""
    torch.manual_seed(0)
    logits, targets = torch.randn(2, 3, 4), torch.randn(2, 3, 4)
    labels = torch.tensor([[1, 3, 0], [-100, 2, 2]])
    targets[0, 1:] = targets[1, 2] = NAN  # the teacher has logits at (0, 0), (1, 0) and (1, 1)
    loss = DistillationLoss(ClassLoss(), 2.0, 0.25)({"logits": logits}, {"labels": labels, SOFT_TARGETS: targets})
    soft = [
        hand_made("classes", logits[row, [place]], targets[row, [place]], [-100], 2.0, 0.25)[0]
        for row, place in ((0, 0), (1, 0), (1, 1))
    ]
    hard = cross_entropy(logits.flatten(0, 1), labels.flatten())  # of five pieces, two of them in the teacher's three
    torch.testing.assert_close(loss, (0.75 * soft[0] + soft[1] + 0.75 * soft[2] + 2 * 0.25 * hard) / 3)


@pytest.mark.parametrize("objective", [*CASES, "span"])
def test_loss_of_logits_in_float64_has_the_gradient_of_its_differences(objective):
    torch.manual_seed(0)
    width = 1 if objective == "value" else 3
    loss_of = DistillationLoss(LOSSES[objective], 2.0, 0.3)
    if objective == "span":
        names, targets = ("start_logits", "end_logits"), torch.randn(4, 3, 2)
        labels = {name: torch.tensor([0, 2, -100, 1]) for name in ("start_positions", "end_positions")}
    else:
        names, targets, labels = ("logits",), torch.randn(4, width), {"labels": CASES[objective][1]}
    logits = [torch.randn(4, width, dtype=torch.float64, requires_grad=True) for _ in names]
    for batch in (labels, labels | {SOFT_TARGETS: targets}):

        def loss(*logits, batch=batch):
            return loss_of(dict(zip(names, logits, strict=True)), batch)

        assert loss(*logits).dtype == torch.float64
        assert torch.autograd.gradcheck(loss, logits)


def test_the_ends_of_answers_are_compared_over_the_tokens_that_there_are():
    torch.manual_seed(0)
    outputs = {name: torch.randn(2, 5, requires_grad=True) for name in ("start_logits", "end_logits")}
    targets = torch.randn(2, 5, 2)
    targets[1, 3:] = NAN  # padding
    labels = {"start_positions": torch.tensor([1, -100]), "end_positions": torch.tensor([3, -100])}
    loss = DistillationLoss(SpanLoss(), 2.0, 0.4)(outputs, labels | {SOFT_TARGETS: targets})
    expected = []
    for row, length in ((0, 5), (1, 3)):
        ends = []
        for column, name in enumerate(outputs):
            z, t = outputs[name][row, :length], targets[row, :length, column]
            soft = -(softmax(t / 2, -1) * log_softmax(z / 2, -1)).sum() * 4
            hard = cross_entropy(outputs[name][[row]], torch.tensor([(1, 3)[column]]))
            ends.append(soft if row else 0.6 * soft + 0.4 * hard)
        expected.append(sum(ends) / 2)
    torch.testing.assert_close(loss, sum(expected) / 2)
    loss.backward()
    assert all(values.grad.isfinite().all() for values in outputs.values())


# The teacher's outputs


def direct(folder, texts):
    """The logits of transformers' own class, text by text."""
    model = BertForSequenceClassification.from_pretrained(folder).eval()
    words = MyBertTokenizer.from_pretrained(folder)
    with torch.no_grad():
        return np.concatenate([model(**words(text, return_tensors="pt")).logits.numpy() for text in texts])


def test_distill_keeps_the_teachers_own_outputs(arguments, folders, tmp_path, monkeypatch):
    monkeypatch.setattr(teacher_module, "SEQUENCES_OF_A_PART", 10)
    result = distill(arguments(teacher="bert", student="plain", train_file=labeled(), validation_file=labeled(12)))
    parts = [load_file(path) for path in sorted((tmp_path / "out" / "teacher_outputs").iterdir())]
    by_size = {size: [part for part in parts if len(part["rows"]) == size] for size in (10, 4, 2)}
    assert [len(found) for found in by_size.values()] == [3, 1, 1]  # 10, 10, 4 and 10, 2
    expected = direct(folders["bert"], TEXTS[:24])
    assert np.ptp(expected, axis=0).max() > 0.1
    for start, size in ((0, 10), (10, 10), (20, 4)):
        wanted = expected[start : start + size]
        assert any(np.allclose(part["logits"], wanted, atol=1e-5) for part in by_size[size])
    right = np.mean(
        expected[:12].argmax(-1) == [{"good": 2, "bad": 0, "fair": 1}[row["label"]] for row in labeled(12)]
    )
    assert result["teacher"]["accuracy"] == pytest.approx(right)
    report = json.loads((tmp_path / "out" / "distillation.json").read_text())
    assert report["teacher"]["metrics"]["accuracy"] == pytest.approx(right)
    assert report["student"]["metrics"]["accuracy"] == result["accuracy"]


def training_data(arguments):
    """The training data of a run, and its labels."""
    run = Distillation(arguments)
    return run.begun(prepared(run))


def prepared(run):
    found = run.read(run.plan.task)
    run.start(found, run.plan, FINETUNING, 0)
    return found


def test_words_of_another_vocabulary_have_the_teachers_logits_at_their_first_piece(arguments, folders):
    rows = [{"tokens": "the cat sat".split(), "tags": ["O", "B-PET", "O"]}]
    texts = [{"tokens": "a dog ran under a tree".split()}]
    run = training_data(arguments(teacher="tagger", student="other_words", train_file=rows, unlabeled=texts))
    model = MyBertForTokenClassification.from_pretrained(folders["tagger"]).eval()
    words = MyBertTokenizer.from_pretrained(folders["tagger"])
    for number, sentence in enumerate((rows[0]["tokens"], texts[0]["tokens"])):
        with torch.no_grad():
            said = model(**words(" ".join(sentence), return_tensors="pt")).logits[0, 1:-1].numpy()
        pieces = [len(run.tokenizer.tokenize(word)) for word in sentence]
        assert max(pieces) == (4 if number else 3)  # t ##r ##e ##e; c ##a ##t
        targets = run.train.inputs["soft_targets"][number]
        first = 1 + np.cumsum([0, *pieces[:-1]])
        assert np.allclose(targets[first], said, atol=1e-5)
        assert np.isnan(np.delete(targets, first, axis=0)).all()
    assert [label for label in run.train.inputs["labels"][0] if label != -100] == [0, 1, 0]
    assert set(run.train.inputs["labels"][1]) == {-100}


def test_choices_of_other_lengths_have_the_teachers_logits(arguments, folders, tokenizer, tmp_path):
    rows = [
        {"text": "the cat", "choices": ["sat", "ran on a mat", "ate bread"], "label": 0},
        {"text": "a dog was", "choices": ["very sad", "under a tree today", "a fish"], "label": 2},
    ]
    run = training_data(arguments(teacher="choices", student="plain", train_file=rows))
    model = MyBertForMultipleChoice.from_pretrained(folders["choices"]).eval()
    for row, targets in zip(rows, run.train.inputs["soft_targets"], strict=True):
        read = tokenizer([row["text"]] * 3, row["choices"], padding=True, return_tensors="pt")
        with torch.no_grad():
            said = model(**{name: values[None] for name, values in read.items()}).logits[0]
        assert np.allclose(targets, said, atol=1e-5)
    data = {"train_file": rows, "validation_file": rows, "output_dir": str(tmp_path / "whole")}
    assert "accuracy" in distill(arguments(teacher="choices", student="plain", **data))


def test_classes_stand_in_the_order_of_the_student(arguments, folders, tmp_path, tiny_model):
    names = ("good", "bad", "fair")
    tuned = tiny_model(tmp_path / "tuned", MyBertForSequenceClassification, labels=names, **SIZE)
    run = training_data(arguments(teacher="bert", student=str(tuned), train_file=labeled()))
    assert run.labels.names == names
    assert run.train.inputs["labels"][:3] == [0, 1, 2]
    assert np.allclose(run.train.inputs["soft_targets"], direct(folders["bert"], TEXTS[:24])[:, [2, 0, 1]], atol=1e-5)


def test_windows_of_a_text_have_its_pooled_logits(arguments):
    rows = [{"text": " ".join(TEXTS[:4])}, {"text": TEXTS[5]}]
    run = training_data(arguments(teacher="teacher", student="plain", unlabeled=rows, window_pooling="mean"))
    targets, shares = np.array(run.train.inputs["soft_targets"]), run.train.inputs["window_weight"]
    assert len(targets) > 2
    assert (targets[:-1] == targets[0]).all() and (targets[-1] != targets[0]).any()
    assert sum(shares) == pytest.approx(2) and shares[-1] == 1


def test_distill_with_windows_and_tables_learns_from_labels_and_texts(arguments, tmp_path):
    pandas = pytest.importorskip("pandas", reason="a table in memory is a data frame")
    rows = [{"text": " ".join(TEXTS[n : n + 4]), "labels": ["good"][: n % 2]} for n in range(8)]
    data = {"train_file": pandas.DataFrame(rows), "unlabeled": pandas.DataFrame(unlabeled(8))}
    distill(arguments(teacher="several", student="plain", window_pooling="mean", max_steps=1, **data))
    weights = load_file(tmp_path / "out" / "model.safetensors")
    assert all(np.isfinite(values).all() for values in weights.values())


def test_texts_without_labels_have_missing_numbers_as_labels(arguments):
    rows = [{"text": text, "score": number / 8} for number, text in enumerate(TEXTS[:16])]
    run = training_data(arguments(teacher="value", student="plain", train_file=rows, unlabeled=unlabeled()))
    labels = run.train.inputs["labels"]
    assert len(labels) == 40
    assert not np.isnan(labels[:16]).any() and np.isnan(labels[16:]).all()


@pytest.mark.parametrize(("teacher", "label"), [("teacher", "good"), ("several", ["good"])])
def test_data_without_labels_may_be_predicted_by_a_student(arguments, teacher, label):
    rows = [{"text": text, "label" if teacher == "teacher" else "labels": label} for text in TEXTS[:4]]
    run = training_data(arguments(teacher=teacher, student="plain", train_file=rows, test_file=unlabeled(3)))
    assert run.test[""].inputs.keys() == {"input_ids", "token_type_ids", "attention_mask"}
    assert run.labels.names == CLASSES
    assert run.task.with_names(run.test[""].examples, run.labels, "x") == run.test[""].examples


@pytest.mark.parametrize("model", ["several", "value", "answers", "tagger"])
def test_other_tasks_are_learned_from_labels_and_from_texts_without(arguments, model, tmp_path, log_history):
    data = {
        "several": ([{"text": text, "labels": ["good"][: n % 2]} for n, text in enumerate(TEXTS[:16])], unlabeled()),
        "value": ([{"text": text, "score": n / 8} for n, text in enumerate(TEXTS[:16])], unlabeled()),
        "answers": (
            [{"id": n, "question": "who ?", "context": text, "answers": "the"} for n, text in enumerate(TEXTS[:16])],
            [{"question": "who ?", "context": text} for text in TEXTS[-16:]],
        ),
        "tagger": (
            [
                {"tokens": text.split(), "tags": ["O", "B-PET", *["O"] * (len(text.split()) - 2)]}
                for text in TEXTS[:16]
            ],
            [{"tokens": text.split()} for text in TEXTS[-16:]],
        ),
    }
    rows, texts = data[model]
    settings = {"validation_file": rows} if model != "several" else {}
    result = distill(arguments(teacher=model, student="plain", train_file=rows, unlabeled=texts, **settings))
    losses = [entry["loss"] for entry in log_history() if "loss" in entry]
    assert losses and np.isfinite(losses).all()
    assert set(result["teacher"]) <= set(result)
    assert bool(result["teacher"]) == bool(settings)
    card = (tmp_path / "out" / "README.md").read_text()
    assert ("temperature" in card) == (model != "value") and "| weight of the data's labels | 0.5 |" in card
    assert re.search(r", 16 examples; .+, \d+ examples\n", card)


# Layers


def relation_by_hand(models_and_states, part, heads):
    """The divergence between teacher and student of how the last layer's queries, keys or values compare."""
    tables = []
    for model, states in models_and_states:
        vectors = getattr(model.base_model.encoder.layer[-1].attention.self, part)(states)[0]
        pieces = vectors.chunk(heads, dim=1)
        tables.append([softmax(piece @ piece.T / piece.shape[1] ** 0.5, -1) for piece in pieces])
    return sum((p * (p / q).log()).sum(-1).mean() / heads for p, q in zip(*tables, strict=True))


@pytest.mark.parametrize(
    ("places", "dtype", "tolerance"),
    [((0, 2), torch.float32, 1e-4), ((0, 1, 3, 4), torch.float32, 1e-4), ((0, 2), torch.float64, 1e-10)],
)
def test_layer_losses_are_those_made_by_hand(tokenizer, places, dtype, tolerance):
    """Each of the student's states learns from the teacher's nearest one: 4 / 3 is 1, and 8 / 3 is 3."""
    torch.manual_seed(0)
    sizes = ({"num_hidden_layers": places[-1]}, {"num_hidden_layers": len(places) - 1, "hidden_size": 8})
    configs = [MyBertConfig(vocab_size=len(tokenizer), **SIZE | size) for size in sizes]
    teacher, student = (MyBertForSequenceClassification(config).eval().to(dtype) for config in configs)
    batch = dict(tokenizer([*TEXTS[3:5], "the cat"], padding=True, return_tensors="pt"))
    layers = LayerLosses(teacher, 2.0, 3.0)
    layers.check(student)
    layers.attach(student, seed=0)
    assert LAYER_LOSSES not in student(**batch)
    found = student(**batch, output_hidden_states=True)[LAYER_LOSSES]
    assert found.dtype == dtype
    maps = getattr(student, PROJECTIONS)
    for row, expected in enumerate(found):
        single = {name: values[[row]][:, : batch["attention_mask"][row].sum()] for name, values in batch.items()}
        own = student(**single, output_hidden_states=True)["hidden_states"]
        right = teacher(**single, output_hidden_states=True).hidden_states
        learned = zip(maps, own, [right[place] for place in places], strict=True)
        states = sum(((map_(state) - wanted) ** 2).mean() for map_, state, wanted in learned) / len(places)
        both = ((teacher, right[-2]), (student, own[-2]))
        heads = relation_heads(teacher, student)
        relations = sum(relation_by_hand(both, name, heads) for name in ("query", "key", "value"))
        torch.testing.assert_close(expected, 2 * states + 3 * relations, atol=tolerance, rtol=tolerance)
    found.sum().backward()
    assert all(parameter.grad.abs().sum() > 0 for parameter in maps.parameters())
    assert not any(parameter.grad is not None for parameter in teacher.parameters())
    layers.detach()
    assert not hasattr(student, PROJECTIONS)
    assert LAYER_LOSSES not in student(**batch, output_hidden_states=True)


def test_relations_of_an_encoder_without_queries_like_berts_are_an_error():
    model = MPNetModel(MPNetConfig(vocab_size=30, **SIZE))
    with pytest.raises(
        ValueError, match=r"MPNetLayer has no .*query or .*q_lin; relations need models built like BERT"
    ):
        relation_heads(model, model)


def test_relations_of_a_teacher_with_fewer_heads(tokenizer):
    """Five of six heads in a width of 36: queries have a width of 30, which is not divisible by four."""
    sizes = {"num_hidden_layers": 1, "intermediate_size": 8, "vocab_size": len(tokenizer)}
    teacher = MyBertModel(MyBertConfig(hidden_size=36, num_attention_heads=5, head_dim=6, **sizes)).eval()
    student = MyBertModel(MyBertConfig(hidden_size=36, num_attention_heads=6, **sizes)).eval()
    assert relation_heads(teacher, student) == 3
    layers = LayerLosses(teacher, 0.0, 1.0)
    layers.check(student)
    layers.attach(student, seed=0)
    batch = tokenizer(TEXTS[:2], padding=True, return_tensors="pt")
    assert student(**batch, output_hidden_states=True)[LAYER_LOSSES].isfinite().all()
    layers.detach()


@pytest.mark.parametrize("layers", [{}, {"hidden_state_weight": 1.0, "relation_weight": 1.0}])
def test_accumulated_batches_give_the_gradient_of_one_large_batch(arguments, layers):
    plain = {"optim": "sgd", "learning_rate": 0.1, "warmup_steps": 0, "weight_decay": 0.0, "max_grad_norm": 0.0}
    data = {"teacher": "teacher", "student": "plain", "train_file": labeled(8), "unlabeled": unlabeled(6)}
    found = []
    for size, steps in ((14, 1), (2, 7)):
        batches = {"per_device_train_batch_size": size, "gradient_accumulation_steps": steps}
        settings = arguments(str(size), max_steps=1, dropout=0.0, **batches, **plain, **data, **layers)
        run = Distillation(settings)
        read = run.begun(prepared(run))
        plan = completed(run.plan, read.task, len(read.train.examples), read.validation)
        model, _ = run.start(read, plan, FINETUNING, 0)
        before = {name: value.clone() for name, value in model.state_dict().items()}
        run.trainer(read, plan, plan.training, model=model).train()
        found.append({name: value - before[name] for name, value in model.state_dict().items()})
    assert max(change.abs().max() for change in found[0].values()) > 1e-3
    for name, change in found[0].items():
        torch.testing.assert_close(found[1][name], change, atol=2e-5, rtol=1e-3, msg=name)


# Runs


def test_a_kill_while_the_teacher_speaks_costs_a_part(arguments, tmp_path, monkeypatch):
    monkeypatch.setattr(teacher_module, "SEQUENCES_OF_A_PART", 8)
    compute, calls = teacher_module.network_outputs, []
    settings = {"teacher": "teacher", "student": "tiny", "train_file": labeled()}

    def counted(*given):
        if len(calls) == 2:
            raise KeyboardInterrupt
        calls.append(given)
        return compute(*given)

    monkeypatch.setattr(teacher_module, "network_outputs", counted)
    with pytest.raises(KeyboardInterrupt):
        distill(arguments(**settings))
    kept = sorted((tmp_path / "out" / "teacher_outputs").iterdir())
    assert len(kept) == 2
    times = [path.stat().st_mtime_ns for path in kept]
    calls.clear()
    distill(arguments(**settings))
    assert len(calls) == 1
    assert [path.stat().st_mtime_ns for path in kept] == times
    monkeypatch.setattr(teacher_module, "network_outputs", compute)
    distill(arguments(**settings, overwrite=True))
    assert kept[0].stat().st_mtime_ns > times[0]
    kept[0].write_bytes(kept[0].read_bytes()[:5])
    with pytest.raises(ValueError, match=r"teacher_outputs.*-0000\d.safetensors is not a complete .*; delete it"):
        distill(arguments(**settings))


@pytest.mark.parametrize("layers", [{}, {"hidden_state_weight": 1.0, "relation_weight": 0.5}])
def test_a_killed_training_goes_on_bit_for_bit(arguments, tmp_path, monkeypatch, killed_at, same_weights, layers):
    settings = {"teacher": "teacher", "student": "plain", "train_file": labeled(), "unlabeled": unlabeled()}
    settings |= {"save_strategy": "steps", "save_steps": 2, **layers}
    distill(arguments("whole", **settings))
    with killed_at(2):
        distill(arguments(**settings))
    monkeypatch.setattr(teacher_module, "network_outputs", lambda *given: pytest.fail("computes again"))
    distill(arguments(**settings))
    same_weights("whole", "out")
    _, loading = AutoModelForSequenceClassification.from_pretrained(tmp_path / "out", output_loading_info=True)
    assert not loading["unexpected_keys"] and not loading["missing_keys"]


def test_a_stopped_distillation_says_so_and_compares_nothing(arguments, tmp_path, monkeypatch):
    class Stop(training_run.StopOnInterrupt):
        def on_step_begin(self, args, state, control, **kwargs):
            os.kill(os.getpid(), signal.SIGINT)

    settings = arguments(teacher="teacher", student="plain", train_file=labeled(), validation_file=labeled(9))
    with monkeypatch.context() as patch:
        patch.setattr(training_run, "StopOnInterrupt", Stop)
        assert distill(settings) == {"interrupted": True}
    assert not (tmp_path / "out" / "distillation.json").exists()
    assert distill(settings)["teacher"].keys() >= {"accuracy"}
    assert (tmp_path / "out" / "distillation.json").exists()


@pytest.mark.slow
def test_a_student_comes_near_its_teacher_on_texts_without_labels(tmp_path, tokenizer):
    pets = ("cat", "dog", "fish")
    kinds = [{"text": text, "label": "pet" if text.split()[1] in pets else "thing"} for text in TEXTS]
    torch.manual_seed(0)
    size = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 64}
    size |= {"initializer_range": 0.1}
    MyBertModel(MyBertConfig(vocab_size=len(tokenizer), **size)).save_pretrained(tmp_path / "start")
    tokenizer.save_pretrained(tmp_path / "start")
    shared = {"use_cpu": True, "disable_tqdm": True, "max_length": 16, "learning_rate": 2e-3, "num_train_epochs": 8}
    shared |= {"per_device_train_batch_size": 8, "save_strategy": "no"}
    teacher, student = tmp_path / "pets", tmp_path / "out"
    mybert.finetune(model=str(tmp_path / "start"), train_file=kinds[::2], output_dir=str(teacher), **shared)
    held_out = TEXTS[1::4]
    said = [row["label"] for row in mybert.predict(teacher, held_out)]
    assert set(said) == {"pet", "thing"}
    texts = [{"text": text} for text in TEXTS if text not in held_out]
    settings = {"unlabeled": texts, "validation_file": kinds[1::4], "output_dir": str(student)}
    result = mybert.distill(teacher=str(teacher), student=str(tmp_path / "start"), **settings, **shared)
    found = [row["label"] for row in mybert.predict(student, held_out)]
    assert np.mean([own == wanted for own, wanted in zip(found, said, strict=True)]) > 0.95
    assert result["accuracy"] == mybert.evaluate(student, kinds[1::4])["accuracy"]
    assert pipeline("text-classification", model=str(student))(held_out[0])[0]["label"] == found[0]
    assert "distilled from pets" in (student / "README.md").read_text()


def test_a_new_student_has_the_teachers_words_and_classes_and_begins_by_its_seed(
    arguments, folders, tmp_path, same_weights
):
    for name in "01":
        distill(arguments(name, teacher="bert", student="3x192", train_file=labeled(), max_steps=1))
    same_weights("0", "1")
    model = AutoModelForSequenceClassification.from_pretrained(tmp_path / "0")
    config = model.config
    assert (config.num_hidden_layers, config.hidden_size, config.num_attention_heads) == (3, 192, 3)
    assert config.intermediate_size == 768
    assert model.config.id2label == dict(enumerate(CLASSES))
    assert (
        MyBertTokenizer.from_pretrained(tmp_path / "0").get_vocab()
        == MyBertTokenizer.from_pretrained(folders["bert"]).get_vocab()
    )


@pytest.mark.parametrize("words", ["plain", "other_words"])
@pytest.mark.parametrize("width", [8, 24])
def test_words_begin_as_the_principal_components_of_the_teachers(folders, words, width):
    teacher = MyBertModel.from_pretrained(folders["teacher"])
    known, own = (MyBertTokenizer.from_pretrained(folders[name]).get_vocab() for name in ("teacher", words))
    tokenizers = [MyBertTokenizer.from_pretrained(folders[name]) for name in (words, "teacher")]
    torch.manual_seed(0)
    student = MyBertModel(MyBertConfig(vocab_size=len(own), **SIZE | {"hidden_size": width}))
    before = student.get_input_embeddings().weight.detach().clone()
    both = [piece for piece in own if piece in known]
    assert (
        init_embeddings_from_teacher(student, teacher, *tokenizers)
        == len(both)
        < (99 if words == "plain" else len(own))
    )
    after = student.get_input_embeddings().weight.detach()
    of_teacher = teacher.get_input_embeddings().weight.detach()[[known[piece] for piece in both]].numpy()
    of_teacher = of_teacher - of_teacher.mean(0)
    left, values, _ = np.linalg.svd(of_teacher, full_matrices=False)
    expected = left[:, :width] * values[:width]  # up to signs, and a scale of three times that of new weights
    found = after[[own[piece] for piece in both]].numpy()
    scale = np.linalg.norm(found, axis=1).mean() / np.linalg.norm(expected, axis=1).mean()
    assert np.allclose(found @ found.T, expected @ expected.T * scale**2, atol=1e-4)
    assert np.linalg.norm(found, axis=1).mean() == pytest.approx(3 * 0.4 * width**0.5, rel=1e-4)
    others = [number for piece, number in own.items() if piece not in known]
    assert torch.equal(after[others], before[others])


def test_words_of_a_student_that_shares_none_with_its_teacher_are_an_error(folders, user_error):
    model, known = MyBertModel.from_pretrained(folders["plain"]), MyBertTokenizer.from_pretrained(folders["plain"])
    special = {f"{name}_token": f"<{name}>" for name in ("pad", "unk", "cls", "sep", "mask")}
    other = MyBertTokenizer(vocab=[*special.values(), "horse"], **special)
    with user_error("--teacher_embeddings"):
        init_embeddings_from_teacher(model, model, other, known)


@pytest.mark.parametrize("begins", [False, True])
def test_a_new_student_may_begin_with_the_teachers_words(arguments, folders, begins):
    settings = arguments(teacher="bert", student="tiny", train_file=labeled(), teacher_embeddings=begins)
    run = Distillation(settings)
    assert ("word embeddings began as" in run.further) == begins
    found = prepared(run)
    run.begun(found)
    words = BertForSequenceClassification.from_pretrained(folders["bert"]).get_input_embeddings().weight
    for seed in (42, 43):
        weights = run.start(found, run.plan, FINETUNING, seed)[0].get_input_embeddings().weight
        ratio = (torch.cdist(weights, weights) / torch.cdist(words, words))[~torch.eye(len(words), dtype=bool)]
        assert (ratio.std() / ratio.mean() < 1e-3) == begins


def test_a_teacher_beside_its_student_runs_in_the_precision_of_the_training(arguments, monkeypatch):
    found, call = [], LayerLosses.__call__

    def watched(self, hidden_states, inputs):
        seen = self.teacher.base_model.register_forward_hook(lambda *_: found.append(torch.is_autocast_enabled("cpu")))
        losses = call(self, hidden_states, inputs)
        seen.remove()
        found.append(losses.dtype)
        return losses

    monkeypatch.setattr(LayerLosses, "__call__", watched)
    layers = {"hidden_state_weight": 1.0, "relation_weight": 1.0}
    distill(arguments(teacher="bert", student="tiny", train_file=labeled(), max_steps=1, bf16=True, **layers))
    assert found == [True, torch.float32]


@pytest.mark.parametrize("settings", [{}, {"hidden_state_weight": 1.0, "relation_weight": 1.0}])
def test_a_teacher_may_be_of_another_architecture(arguments, tmp_path, tokenizer, tiny_model, log_history, settings):
    teacher = tiny_model(tmp_path / "teacher", DistilBertForSequenceClassification, labels=CLASSES, **SIZE)
    run = training_data(arguments(teacher=str(teacher), student="plain", train_file=labeled(4)))
    model = DistilBertForSequenceClassification.from_pretrained(teacher).eval()
    with torch.no_grad():
        batch = tokenizer(TEXTS[:4], padding=True, return_tensors="pt")
        said = model(batch["input_ids"], batch["attention_mask"]).logits
    assert np.allclose(run.train.inputs["soft_targets"], said, atol=1e-5)
    distill(arguments("run", teacher=str(teacher), student="tiny", train_file=labeled(), max_steps=2, **settings))
    losses = [entry["loss"] for entry in log_history("run") if "loss" in entry]
    assert losses and np.isfinite(losses).all()


def test_a_folder_that_is_called_like_a_size_is_told_of(arguments, tmp_path, monkeypatch, caplog):
    monkeypatch.chdir(tmp_path)
    distill(arguments(teacher="bert", student="tiny", train_file=labeled(), max_steps=1, output_dir="tiny"))
    again = {"teacher": "bert", "train_file": labeled(), "max_steps": 1}
    distill(arguments(student="tiny", output_dir="tiny", **again))
    assert "a new model of that size" not in caplog.text
    arguments(student="tiny", output_dir="other", **again)
    assert "student is 'tiny', a new model of that size; to use the folder of that name write ./tiny." in caplog.text
    assert not arguments(student="./tiny", output_dir="other", **again).is_new_student


# Rejected settings


def refusals():
    rows, texts = labeled(), unlabeled()
    base = {"teacher": "teacher", "student": "tiny", "train_file": rows}
    return {
        "student is '2x100'; expected at least 1 layer, and a width": base | {"student": "2x100"},
        "--teacher": base | {"teacher": ""},
        "--student": base | {"student": ""},
        "without a head for a task": base | {"teacher": "plain"},
        "has no head for this task": base | {"teacher": "tagger", "task": "classification"},
        "was fine-tuned for regression; expected a teacher for single_label": base
        | {"teacher": "value", "task": "classification"},
        "other labels than the data has: train_file has the label 'great'; expected one of 'bad', 'fair', 'good'": base
        | {"train_file": labeled(labels=("good", "great"))},
        "there is no such folder here, .* A new student has a size: tiny, mini,": base | {"student": "tini"},
        "has another vocabulary than .*hidden_state_weight compares token with token": base
        | {"student": "other_words", "hidden_state_weight": 1.0},
        "has another vocabulary than .*the task's answers": {
            "teacher": "answers",
            "student": "other_words",
            "unlabeled": [{"question": "who ?", "context": text} for text in TEXTS[:4]],
        },
        "unlabeled.* has no columns 'premise' and 'hypothesis'": base
        | {
            "train_file": [{"premise": row["text"], "hypothesis": "a", "label": row["label"]} for row in rows],
            "unlabeled": [{"one": "a", "two": "b"}],
            "text_column": "premise",
            "text_pair_column": "hypothesis",
        },
        "relation_weight is 1.0; there is no such loss for multiple choice": {
            "teacher": "choices",
            "student": "tiny",
            "train_file": [{"text": "a", "choices": ["cat", "dog"], "label": 0}] * 4,
            "relation_weight": 1.0,
        },
        "hard_label_weight is 1, so the teacher has no effect": base | {"hard_label_weight": 1},
        "hidden_state_weight is set with fsdp": base | {"hidden_state_weight": 1.0, "fsdp": True},
        "bilstm is True but a new student": base | {"bilstm": True},
        r"train_file is not set; .*\. Or give data_dir or dataset or unlabeled": {**base, "train_file": None},
        "validation_split is set without train_file": {
            **base, "train_file": None, "unlabeled": texts, "validation_split": 0.5,
        },
        "teacher_embeddings is set and .* has its own; it is for a new student": base
        | {"student": "plain", "teacher_embeddings": True},
        "tokenizer is '.*' and .* has its own": base | {"student": "plain", "tokenizer": "other_words"},
    }  # fmt: skip


@pytest.mark.parametrize("message", refusals())
def test_distill_with_impossible_settings_raises_before_a_run(arguments, tmp_path, message, user_error):
    with user_error(message, (ValueError, OSError)) as error:
        distill(arguments(**refusals()[message]))
    assert len(str(error.value)) < 500
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(("name", "content"), [("texts.csv", "text\n"), ("texts.txt", "\n")])
def test_distill_with_a_file_without_unlabeled_texts_is_an_error(arguments, tmp_path, name, content):
    (tmp_path / name).write_text(content)
    with pytest.raises(ValueError, match=rf"{name} holds no rows\."):
        distill(arguments(teacher="teacher", student="tiny", train_file=labeled(), unlabeled=str(tmp_path / name)))
    assert not (tmp_path / "out").exists()


def test_distill_from_a_tagger_on_frozen_features_is_an_error(arguments, tmp_path, tokenizer, folders):
    fields = {"encoder": folders["plain"], "id2label": {0: "O", 1: "B-PET"}, "label2id": {"O": 0, "B-PET": 1}}
    FeatureTagger(FeatureTaggerConfig(**fields, state_size=16, lstm_size=4)).save_pretrained(tmp_path / "features")
    tokenizer.save_pretrained(tmp_path / "features")
    rows = [{"tokens": "the cat sat", "tags": "O B-PET O"}] * 4
    with pytest.raises(ValueError, match=r"features is a tagger on frozen features; expected a teacher whose encoder"):
        distill(arguments(teacher=str(tmp_path / "features"), student="tiny", train_file=rows, task="tagging"))
    assert not (tmp_path / "out").exists()


def test_only_some_tasks_can_be_distilled(arguments):
    settings = arguments(teacher="teacher", student="tiny", train_file=labeled())
    fill_mask = replace(TASKS["fill_mask"], max_length=16)
    vars(settings)["teacher_task"] = "fill_mask", fill_mask  # as if it were the teacher's
    with pytest.raises(ValueError, match="task is 'fill_mask'; distillation is for classification, regression"):
        Distillation(settings).check()


def test_only_a_student_from_scratch_may_have_no_weights(arguments, folders, tmp_path, tokenizer):
    student = tmp_path / "student"
    tokenizer.save_pretrained(student)
    MyBertConfig(vocab_size=len(tokenizer), **SIZE).save_pretrained(student)
    given = {"teacher": "teacher", "student": str(student), "train_file": labeled(8)}
    with pytest.raises(OSError, match=r"There is no model.safetensors in .*student\."):
        distill(arguments(**given))
    distill(arguments(**given, from_scratch=True, max_steps=1))
    assert (tmp_path / "out" / "model.safetensors").is_file()
