"""The `evaluate` modules: same numbers as the functions, batch by batch, combined, by name, without network."""

import sys

import evaluate
import pytest

from mybert import metrics

PREDICTIONS = [1, 0, 1, 1]
REFERENCES = [1, 1, 0, 1]


@pytest.fixture
def load(tmp_path):
    """`mybert.metrics.load` that keeps its files in the test's folder."""
    return lambda *arguments: metrics.load(*arguments, cache_dir=str(tmp_path))


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("accuracy", {"accuracy": 0.5}),
        ("f1", {"f1": metrics.f1(PREDICTIONS, REFERENCES)}),
        ("matthews_correlation", {"matthews_correlation": metrics.matthews_correlation(PREDICTIONS, REFERENCES)}),
        ("pearsonr", {"pearsonr": metrics.pearson(PREDICTIONS, REFERENCES)}),
        ("spearmanr", {"spearmanr": metrics.spearman(PREDICTIONS, REFERENCES)}),
        ("pearson_spearman", metrics.pearson_spearman(PREDICTIONS, REFERENCES)),
    ],
)
def test_batches_give_the_function_of_all_examples(load, name, expected):
    module = load(name)
    assert isinstance(module, evaluate.EvaluationModule)
    for start in (0, 2):
        module.add_batch(predictions=PREDICTIONS[start : start + 2], references=REFERENCES[start : start + 2])
    assert module.compute() == expected
    assert module.compute(predictions=PREDICTIONS, references=REFERENCES) == expected  # and it starts afresh


@pytest.mark.parametrize("task", metrics.GLUE_METRICS)
def test_glue_by_task(load, task):
    result = load("glue", task).compute(predictions=PREDICTIONS, references=REFERENCES)
    assert result == metrics.glue_metrics(task, PREDICTIONS, REFERENCES)


def test_glue_regression_keeps_fractions(load):
    result = load("glue", "STS-B").compute(predictions=[0.1, 0.4, 0.2], references=[0.5, 5.0, 2.5])
    assert result["spearmanr"] == pytest.approx(1.0)


def test_f1_options(load):
    result = load("f1").compute(predictions=[0, 1, 2], references=[0, 2, 2], average="macro")
    assert result == {"f1": metrics.f1([0, 1, 2], [0, 2, 2], average="macro")}
    rows = {"predictions": [[1, 0], [1, 1]], "references": [[1, 0], [1, 0]]}
    assert load("accuracy", "multilabel").compute(**rows) == {"accuracy": 0.5}


def test_squad_modules(load):
    references = [
        {"id": "1", "answers": {"text": ["the cat"], "answer_start": [0]}},
        {"id": "2", "answers": {"text": [], "answer_start": []}},
    ]
    predictions = [{"id": "1", "prediction_text": "a cat"}, {"id": "2", "prediction_text": "dog"}]
    assert load("squad").compute(predictions=predictions[:1], references=references[:1]) == {
        "exact_match": 100.0,
        "f1": 100.0,
    }
    module = load("squad_v2")
    for prediction, reference, probability in zip(predictions, references, (0.1, 1 / 3), strict=True):
        module.add(prediction={**prediction, "no_answer_probability": probability}, reference=reference)
    assert module.compute(no_answer_threshold=0.2) == metrics.squad_v2_metrics(
        {"1": "a cat", "2": "dog"}, {"1": ["the cat"], "2": []}, {"1": 0.1, "2": 1 / 3}, 0.2
    )


@pytest.mark.parametrize("name", ["seqeval", "entity_f1"])
def test_entity_module(load, name):
    predictions, references = [["B-X", "I-Y"], ["O"]], [["B-X", "I-X"], ["O"]]
    result = load(name).compute(predictions=predictions, references=references, mode="strict", scheme="IOB2")
    assert result == metrics.entity_metrics(predictions, references, "IOB2", "strict")


def test_perplexity_module(load):
    module = load("perplexity")
    module.add_batch(predictions=[1.0, 2.0])
    assert module.compute() == {"perplexity": metrics.perplexity([1.0, 2.0])}


def test_combine(load):
    combined = evaluate.combine([load("accuracy"), load("f1")])
    combined.add_batch(predictions=PREDICTIONS, references=REFERENCES)
    assert combined.compute() == {"accuracy": 0.5, "f1": metrics.f1(PREDICTIONS, REFERENCES)}


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["bleu"], "unknown metric 'bleu'; expected one of accuracy, f1, "),
        (["glue"], "glue needs the task as config name, one of cola, "),
        (["glue", "snli"], "unknown GLUE task 'snli'"),
        (["accuracy", "binary"], "unknown config name 'binary'"),
    ],
)
def test_unknown_names(load, arguments, message):
    with pytest.raises(ValueError, match=message):
        load(*arguments)


@pytest.mark.parametrize("name", ["squad", "squad_v2"])
def test_questions_with_one_id(load, name):
    prediction = {"id": "1", "prediction_text": "a"} | ({"no_answer_probability": 0.1} if name == "squad_v2" else {})
    reference = {"id": "1", "answers": {"text": ["a"], "answer_start": [0]}}
    with pytest.raises(ValueError, match="predictions hold 2 questions with 1 ids"):
        load(name).compute(predictions=[prediction] * 2, references=[reference] * 2)


def test_missing_values(load):
    with pytest.raises(ValueError, match="predictions are not labels or numbers"):
        load("accuracy").compute(predictions=[None], references=[1])
    with pytest.raises(ValueError, match="predictions are not lists of tags"):
        load("seqeval").compute(predictions=[None], references=[["O"]])


def test_metric_modules_without_evaluate_name_the_packages(monkeypatch):
    monkeypatch.delitem(sys.modules, "mybert.metrics.evaluate_modules", raising=False)
    monkeypatch.setitem(sys.modules, "evaluate", None)
    with pytest.raises(ImportError, match=r"needs the packages evaluate and datasets: pip install evaluate datasets"):
        metrics.load("accuracy")
