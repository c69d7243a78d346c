"""Texts longer than the model's input: truncated or in windows, in training, evaluation, prediction and pipelines."""

import json
from dataclasses import replace
from functools import partial
from itertools import pairwise

import numpy as np
import pytest
import torch
from torch.nn.functional import cross_entropy
from transformers import BertConfig, BertForSequenceClassification, pipeline

import mybert
from mybert import MyBertConfig, MyBertForSequenceClassification, MyBertForTokenClassification, MyBertModel
from mybert.files.source import read_rows
from mybert.finetuning import TASKS, finetune
from mybert.finetuning.data import WINDOW_WEIGHT, Labels
from mybert.finetuning.tasks.losses import ClassLoss, LabelLoss, NumberLoss
from mybert.finetuning.tasks.registry import task_record
from mybert.finetuning.tasks.steps import network_outputs
from mybert.finetuning.tasks.tagging import TaggedSentence
from mybert.finetuning.tasks.texts import TextExample
from mybert.finetuning.training.trainer import TaskLoss, balanced_weights
from mybert.pipelines import WindowedTextClassificationPipeline, WindowedTokenClassificationPipeline

WORDS = "the cat dog sat ran on under a mat tree and slept ate fish bread it was happy sad very today".split()
SIZE = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 64}
LENGTHS = (3, 40, 14, 15, 90, 22)
TEXTS = [" ".join(WORDS[(3 * row + 5 * word) % len(WORDS)] for word in range(n)) for row, n in enumerate(LENGTHS)]
PAIRS = [(text, "a happy dog") for text in TEXTS] + [("it was a mat", text) for text in TEXTS]
TASK = replace(TASKS["classification"], max_length=16, window_pooling="mean", doc_stride=4)
CLASSES = Labels(("bad", "good"))


def model_of(model_class, tokenizer, names, **fields):
    torch.manual_seed(1)
    named = {"id2label": dict(enumerate(names)), "label2id": {name: number for number, name in enumerate(names)}}
    sizes = {"vocab_size": len(tokenizer), "max_position_embeddings": 128, "initializer_range": 0.5} | SIZE
    return model_class(MyBertConfig(**sizes, **named, **fields)).eval()


def folder_of(folder, tokenizer, model, name, task):
    model.config.finetuned_for = task_record(name, task)
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return str(folder)


def classifier(**arguments):
    chosen = WindowedTextClassificationPipeline
    return pipeline("text-classification", pipeline_class=chosen, device="cpu", **arguments)


def by_hand(model, tokenizer, text, pair=None, space=14, stride=4):
    """The logits of a text's windows, one by one."""
    cls, sep = tokenizer.cls_token_id, tokenizer.sep_token_id
    ids = tokenizer(text, add_special_tokens=False)["input_ids"]
    other = [] if pair is None else [*tokenizer(pair, add_special_tokens=False)["input_ids"], sep]
    space -= len(other)
    starts = [0] if len(ids) <= space else [*range(0, len(ids) - space, space - stride), len(ids) - space]
    found = []
    for start in starts:
        first = [cls, *ids[start : start + space], sep]
        types = [0] * len(first) + [1] * len(other)
        with torch.no_grad():
            found.append(
                model(input_ids=torch.tensor([[*first, *other]]), token_type_ids=torch.tensor([types])).logits[0]
            )
    return torch.stack(found)


@pytest.mark.parametrize("pooling", ["mean", "max"])
def test_scores_of_windows_are_pooled(tmp_path, tokenizer, pooling):
    model = model_of(MyBertForSequenceClassification, tokenizer, CLASSES.names)
    for texts, second in ((TEXTS, None), (PAIRS[: len(TEXTS)], "text_pair")):
        task = replace(TASK, window_pooling=pooling, text_pair_column=second)
        folder = folder_of(tmp_path, tokenizer, model, "classification", task)
        wanted = []
        for text in texts:
            logits = by_hand(model, tokenizer, *([text] if isinstance(text, str) else text))
            wanted.append((logits.mean(0) if pooling == "mean" else logits.max(0).values).softmax(-1))
        found = mybert.predict(folder, texts, probabilities=True)
        for row, scores in zip(found, wanted, strict=True):
            assert [row["probability_bad"], row["probability_good"]] == pytest.approx(scores.tolist(), abs=3e-6)
        classify = classifier(model=folder)
        inputs = [text if isinstance(text, str) else {"text": text[0], "text_pair": text[1]} for text in texts]
        for size in (1, 4):
            answers = classify(inputs, batch_size=size)
            assert [answer["label"] for answer in answers] == [row["label"] for row in found]
            assert [answer["score"] for answer in answers] == pytest.approx([row["score"] for row in found], abs=3e-6)
        best = [{answer["label"]: answer["score"] for answer in found} for found in classify(inputs, top_k=None)]
        assert [row["good"] for row in best] == pytest.approx([scores[1].item() for scores in wanted], abs=3e-6)


def test_labels_that_hold_each_by_itself_and_numbers(tmp_path, tokenizer):
    for name, names, function in (("multilabel", "abc", torch.sigmoid), ("regression", ["value"], lambda x: x)):
        model = model_of(MyBertForSequenceClassification, tokenizer, names, problem_type=TASKS[name].problem)
        task = replace(TASKS[name], max_length=16, window_pooling="max", doc_stride=4)
        folder = folder_of(tmp_path / name, tokenizer, model, name, task)
        found = mybert.predict(folder, TEXTS, top_k=len(names))
        for text, row in zip(TEXTS, found, strict=True):
            wanted = function(by_hand(model, tokenizer, text).max(0).values).tolist()
            scores = [row["score"]] if name == "regression" else [item["score"] for item in row["best"]]
            assert scores == pytest.approx(sorted(wanted, reverse=True), abs=1e-5)
        classify = classifier(model=folder, top_k=None)
        answers = [answer[0]["score"] for answer in classify(TEXTS)]
        first = [row["score"] if name == "regression" else row["best"][0]["score"] for row in found]
        assert answers == pytest.approx(first, abs=1e-5)


def test_texts_that_fit_are_read_as_without_windows(tokenizer):
    examples = [TextExample((text,), "good") for text in TEXTS]
    whole, cut = replace(TASK, max_length=128, doc_stride=None), replace(TASKS["classification"], max_length=128)
    one, other = (task.encode(examples, CLASSES, tokenizer, "x") for task in (whole, cut))
    assert one.inputs == other.inputs
    assert (one.windowed, other.cut) == (0, 0)


def test_packed_and_padded_windows_agree(tokenizer):
    model = model_of(MyBertForSequenceClassification, tokenizer, CLASSES.names)
    data = TASK.encode([TextExample((text,), "good") for text in TEXTS], CLASSES, tokenizer, "x")
    assert len(data) > len(TEXTS) and data.windowed == 4
    found, passed = [], set()
    for packs in (True, False):
        model.config.unpad_inputs = packs
        found.append(TASK.predict(network_outputs(TASK, data, model, tokenizer, 5), data, CLASSES))
    config = BertConfig(vocab_size=len(tokenizer), max_position_embeddings=128, hidden_act="gelu", **SIZE)
    reference = BertForSequenceClassification(config).eval()
    reference.load_state_dict(model.state_dict())
    reference.register_forward_pre_hook(lambda module, args, kwargs: passed.update(kwargs), with_kwargs=True)
    found.append(TASK.predict(network_outputs(TASK, data, reference, tokenizer, 5), data, CLASSES))
    assert passed == {"input_ids", "token_type_ids", "attention_mask"}  # neither labels nor weights
    scores = [[prediction.probabilities["good"] for prediction in predictions] for predictions in found]
    assert scores[1] == pytest.approx(scores[0], abs=1e-5) and scores[2] == pytest.approx(scores[0], abs=1e-5)


def test_a_text_weighs_one_however_many_windows_it_has(tokenizer):
    examples = [TextExample((text,), "good" if row % 2 else "bad") for row, text in enumerate(TEXTS)]
    data = TASK.encode(examples, CLASSES, tokenizer, "x")
    weights, owners = np.array(data.inputs["window_weight"]), data.layout
    assert np.bincount(owners, weights).tolist() == pytest.approx([1.0] * len(TEXTS))
    assert data.inputs["labels"] == [owner % 2 for owner in owners]
    # Classes are counted by texts, too: three of each.
    assert balanced_weights(data, 2).tolist() == pytest.approx([1.0, 1.0])
    logits, labels = torch.randn(len(data), 2), torch.tensor(data.inputs["labels"])
    shares = torch.tensor(data.inputs["window_weight"])
    wanted = (cross_entropy(logits, labels, reduction="none") * shares).sum() / len(TEXTS)
    loss = TaskLoss(ClassLoss())
    assert torch.allclose(loss({"logits": logits}, {"labels": labels, WINDOW_WEIGHT: shares}), wanted)
    parts = [slice(0, 7), slice(7, None)]
    batches = [{"labels": labels[part], WINDOW_WEIGHT: shares[part]} for part in parts]
    total = sum(loss({"logits": logits[part]}, batch, len(TEXTS)) for part, batch in zip(parts, batches, strict=True))
    assert torch.allclose(total, wanted)
    several, values = torch.randn(4, 3), torch.rand(4, 3)
    some = torch.tensor([0.5, 0.5, 1.0, 1.0])
    found = TaskLoss(LabelLoss())({"logits": several}, {"labels": values, WINDOW_WEIGHT: some})
    each = torch.nn.functional.binary_cross_entropy_with_logits(several, values, reduction="none").mean(-1)
    assert torch.allclose(found, (each * some).sum() / 3)
    batch = {"labels": values[:, 0], WINDOW_WEIGHT: some}
    found = TaskLoss(NumberLoss())({"logits": several[:, :1]}, batch)
    assert torch.allclose(found, ((several[:, 0] - values[:, 0]).square() * some).sum() / 3)


# The word that decides the label comes after the point of truncation.
ROWS = [
    {"text": " ".join([*(WORDS[(row + k) % 8] for k in range(14)), *[end] * (20 + row % 5)]), "label": name}
    for row in range(12)
    for end, name in (("happy", "good"), ("sad", "bad"))
]


@pytest.fixture
def arguments(tmp_path, tiny_model, short_run):
    (tmp_path / "train.json").write_text(json.dumps(ROWS))
    data = {name: str(tmp_path / "train.json") for name in ("train_file", "validation_file")}
    model = str(tiny_model(tmp_path / "encoder", MyBertModel, **SIZE))
    rates = {"num_train_epochs": 6, "learning_rate": 3e-3, "per_device_train_batch_size": 8}
    return partial(short_run, model=model, **data, **rates)


def test_finetune_with_windows_learns_from_the_end_of_texts(tmp_path, arguments, caplog):
    caplog.set_level("INFO", "mybert")
    metrics = finetune(arguments(window_pooling="mean", doc_stride=4))
    assert metrics["accuracy"] == 1.0 and metrics["loss"] < 0.69
    assert "24 of 24 texts are longer than 16 tokens: read in windows." in caplog.text
    assert "Training data: 24 examples in 90 sequences." in caplog.text
    out = str(tmp_path / "out")
    record = json.loads((tmp_path / "out" / "config.json").read_text())["finetuned_for"]
    assert (record["window_pooling"], record["doc_stride"]) == ("mean", 4)
    # Everything else does the same by default.
    data = str(tmp_path / "train.json")
    assert mybert.evaluate(out, data, use_cpu=True)["accuracy"] == 1.0
    result = mybert.predict(out, data, output=tmp_path / "o.csv", use_cpu=True)
    assert result == {"rows": 24, "cut": 0, "windowed": 24, "empty": 0}
    written = read_rows(tmp_path / "o.csv")
    assert [row["predicted_label"] for row in written] == [row["label"] for row in ROWS]
    found = classifier(model=out)([row["text"] for row in ROWS])
    assert [answer["label"] for answer in found] == [row["label"] for row in ROWS]
    assert len((tmp_path / "out" / "predictions.tsv").read_text().splitlines()) == 25
    card = (tmp_path / "out" / "README.md").read_text()
    assert "truncation" not in card and "pipeline_class=WindowedTextClassificationPipeline)" in card


def test_finetune_long_texts_in_the_test_data_alone(arguments):
    short = [{"text": " ".join(row["text"].split()[:4]), "label": row["label"]} for row in ROWS]
    settings = {"train_file": short, "validation_file": short[:4], "test_file": ROWS[:4], "max_steps": 1}
    metrics = finetune(arguments(window_pooling="mean", **settings))
    assert {"test_loss", "test_accuracy"} <= metrics.keys()


def test_truncated_texts_are_counted_with_the_flag_that_reads_them(tmp_path, arguments, caplog):
    caplog.set_level("INFO", "mybert")
    finetune(arguments(max_steps=1))
    mybert.evaluate(tmp_path / "out", tmp_path / "train.json", use_cpu=True)
    said = "24 of 24 texts are longer than 16 tokens: truncated (--window_pooling mean"
    assert caplog.text.count(said) == 3 and f"train.json: {said}" in caplog.text


def test_tags_are_those_of_the_window_with_most_context(tmp_path, tokenizer, caplog):
    names = ("O", "B-PER", "I-PER")
    model = model_of(MyBertForTokenClassification, tokenizer, names)
    task = replace(TASKS["ner"], max_length=16, doc_stride=6)
    folder = folder_of(tmp_path, tokenizer, model, "ner", task)
    text = TEXTS[4]
    data = task.encode([TaggedSentence(tuple(text.split()), None)], Labels(names), tokenizer, "x")
    assert (data.windowed, len(data)) == (1, 11)
    # Windows of 14 words that share 6: 0-14, 8-22, ..., 72-86, 76-90; borders lie in the middle of what they share.
    starts = [*range(0, 76, 8), 76]
    borders = [0, *((a + 14 + b) // 2 for a, b in pairwise(starts)), 90]
    wanted = []
    ids = tokenizer(text, add_special_tokens=False)["input_ids"]
    for start, first, last in zip(starts, borders, borders[1:], strict=False):
        window = [tokenizer.cls_token_id, *ids[start : start + 14], tokenizer.sep_token_id]
        with torch.no_grad():
            logits = model(input_ids=torch.tensor([window])).logits[0, 1:-1]
        wanted += logits[first - start : last - start].softmax(-1).max(-1).values.tolist()
    (found,) = mybert.predict(folder, [text.split()])
    assert "1 of 1 texts is longer than 16 tokens: read in windows." in caplog.text
    assert found["score"] == pytest.approx(wanted, abs=3e-6)
    # The pipeline gives the same words and entities with every aggregation.
    tag = pipeline(
        "token-classification", model=folder, device="cpu", pipeline_class=WindowedTokenClassificationPipeline
    )
    answers = tag(text, ignore_labels=[])
    assert [answer["entity"] for answer in answers] == found["label"]
    assert [answer["score"] for answer in answers] == pytest.approx(wanted, abs=3e-6)
    assert [text[answer["start"] : answer["end"]] for answer in answers] == text.split()
    grouped = tag([text, "the cat", text], aggregation_strategy="first", batch_size=2)
    assert grouped[0] == grouped[2]
    tag.tokenizer.padding_side = "left"
    assert tag(["the cat", text], aggregation_strategy="first", batch_size=2) == grouped[1:]
    tag.tokenizer.padding_side = "right"
    assert [(item["start"], item["end"]) for item in grouped[0]] == [
        (item["start"], item["end"]) for item in found["entities"]
    ]
    assert tag(text, stride=2, ignore_labels=[]) != answers


def test_windowed_pipeline_of_a_model_without_windows_is_transformers_own(tokenizer, user_error):
    model = model_of(MyBertForSequenceClassification, tokenizer, CLASSES.names)
    classify = classifier(model=model, tokenizer=tokenizer)
    with torch.no_grad():
        scores = [model(**tokenizer(text, return_tensors="pt")).logits.softmax(-1).max().item() for text in TEXTS]
    assert [answer["score"] for answer in classify(TEXTS)] == pytest.approx(scores, abs=1e-5)
    # Any model reads windows on request.
    wanted = [by_hand(model, tokenizer, text).mean(0).softmax(-1).max().item() for text in TEXTS]
    found = classify(TEXTS, window_pooling="mean", max_length=16, doc_stride=4)
    assert [answer["score"] for answer in found] == pytest.approx(wanted, abs=1e-5)
    with user_error("--window_pooling"):
        classify(TEXTS, window_pooling="sum")
    with pytest.raises(ValueError, match=r"doc_stride is set without windows"):
        classify(TEXTS, doc_stride=4)
    # Arguments of the call override the settings of fine-tuning.
    model.config.finetuned_for = task_record("classification", TASK)
    cut = classify(TEXTS, truncation=True, max_length=16)
    with torch.no_grad():
        batches = [tokenizer(text, return_tensors="pt", truncation=True, max_length=16) for text in TEXTS]
        scores = [model(**batch).logits.softmax(-1).max().item() for batch in batches]
    assert [answer["score"] for answer in cut] == pytest.approx(scores, abs=1e-5)
