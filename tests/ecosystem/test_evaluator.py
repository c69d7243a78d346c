"""`evaluate.evaluator` with MyBERT folders and metrics that need no network.

It gets the folder or the model: given a pipeline, evaluate 0.4.6 looks for `transformers.TFPreTrainedModel`, which
no longer exists.
"""

import pytest
from transformers import pipeline

from mybert import MyBertForSequenceClassification
from mybert.metrics import load

evaluate = pytest.importorskip("evaluate")
datasets = pytest.importorskip("datasets")

SENTENCES = ["the cat sat on a mat .", "a dog ran", "it was a very happy tree", "fish slept under it"]
LABELS = ["B-PER", "I-PER", "O"]


def test_text_classification(model_dir, tokenizer):
    """By a folder, and by a model with several metrics."""
    folder = str(model_dir("MyBertForSequenceClassification"))
    classify = pipeline("text-classification", model=folder, device="cpu")
    predicted = [LABELS.index(answer["label"]) for answer in classify(SENTENCES)]
    data = datasets.Dataset.from_dict({"text": SENTENCES, "label": [(predicted[0] + 1) % 3, *predicted[1:]]})
    numbers = {name: number for number, name in enumerate(LABELS)}
    several = evaluate.combine([load("accuracy"), load("matthews_correlation")])
    model = MyBertForSequenceClassification.from_pretrained(folder)
    for given, metric, more in ((folder, load("accuracy"), {}), (model, several, {"tokenizer": tokenizer})):
        evaluator = evaluate.evaluator("text-classification")
        found = evaluator.compute(given, data, metric=metric, label_mapping=numbers, **more)
        assert found["accuracy"] == 0.75 and found["latency_in_seconds"] > 0
    assert "matthews_correlation" in found


def test_token_classification(model_dir):
    folder = str(model_dir("MyBertForTokenClassification"))
    tag = pipeline("token-classification", model=folder, device="cpu")
    words = [sentence.split() for sentence in SENTENCES]
    answers = tag(SENTENCES, ignore_labels=[])
    tags = [[token["entity"] for token in answer] for answer in answers]
    assert {name for row in tags for name in row} - {"O"}, "there are entities to be found"
    data = datasets.Dataset.from_dict({"tokens": words, "ner_tags": tags})
    evaluator = evaluate.evaluator("token-classification")
    assert evaluator.compute(folder, data, metric=load("seqeval"))["overall_f1"] == 1.0
    data = datasets.Dataset.from_dict({"tokens": words, "ner_tags": [["O"] * len(row) for row in tags]})
    assert evaluator.compute(folder, data, metric=load("seqeval"))["overall_f1"] == 0.0


def test_question_answering(model_dir):
    folder = str(model_dir("MyBertForQuestionAnswering"))
    answer = pipeline("question-answering", model=folder, device="cpu")
    question, contexts = "was the cat happy", SENTENCES[:2]
    found = [answer(question=question, context=context) for context in contexts]
    data = datasets.Dataset.from_dict(
        {
            "id": ["a", "b"],
            "question": [question] * 2,
            "context": contexts,
            "answers": [
                {"text": [found[0]["answer"]], "answer_start": [found[0]["start"]]},
                {"text": ["nothing of the kind"], "answer_start": [0]},
            ],
        }
    )
    metrics = evaluate.evaluator("question-answering").compute(folder, data, metric=load("squad"))
    assert metrics["exact_match"] == 50.0
