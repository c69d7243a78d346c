"""Several numbers of one text (`--task scores`), some of which may be missing."""

import csv
import json

import numpy as np
import pytest
import torch
from transformers import AutoModelForSequenceClassification

import mybert
from mybert.cli import main
from mybert.finetuning import TASKS
from mybert.finetuning.heads import fold_target_scale, learn_standardized
from mybert.finetuning.tasks.number import value_scores
from mybert.finetuning.tasks.scores import CellLoss, Scores
from mybert.finetuning.tasks.steps import read_predictions, write_predictions
from mybert.finetuning.tasks.texts import LabelPrediction, TextExample
from mybert.finetuning.training.trainer import TaskLoss

NAN = float("nan")
WORDS = {"happy": (5.0, 900.0), "sad": (1.0, 300.0), "fish": (3.0, 900.0), "under": (2.0, 100.0)}
ROWS = [
    {"text": f"the {noun} was {word} {end}", "content": content, "style": style}
    for noun in ("cat", "dog", "tree", "mat")
    for word, (content, style) in WORDS.items()
    for end in ("today", "very", "and")
]
HOLES = [
    row | {name: None for number, name in enumerate(("content", "style")) if place % 4 == number}
    for place, row in enumerate(ROWS)
]
SCORES = {"task": "scores", "label_columns": ["content", "style"]}
TUNED = SCORES | {"max_steps": 60, "learning_rate": 3e-3, "per_device_train_batch_size": 8, "dropout": 0.0}


@pytest.fixture(scope="module")
def folder(tmp_path_factory, tune):
    """A model that was fine-tuned on data with holes."""
    folder = tmp_path_factory.mktemp("scores") / "model"
    tune(folder, HOLES, validation_file=HOLES[::3], **TUNED)
    return folder


def test_loss_of_cells_leaves_out_missing_ones_and_is_the_stock_loss_without_any():
    logits, labels = torch.randn(4, 3), torch.randn(4, 3)
    loss = TaskLoss(CellLoss())
    assert loss({"logits": logits}, {"labels": labels}) == pytest.approx(torch.nn.MSELoss()(logits, labels).item())
    labels[0, 1] = labels[2] = NAN
    there = ~labels.isnan()
    expected = (logits[there] - labels[there]).square().mean()
    assert loss({"logits": logits}, {"labels": labels}) == pytest.approx(expected.item())


def test_learn_standardized_of_columns_is_that_of_each_column(pretrained):
    targets = np.array([[1.0, 500.0], [3.0, NAN], [NAN, 900.0], [2.0, 700.0]])
    model = AutoModelForSequenceClassification.from_pretrained(pretrained, num_labels=2)
    before = {name: value.clone() for name, value in model.state_dict().items()}
    hook = learn_standardized(model, targets, has_new_head=True)
    assert model.config.target_scale == [[2.0, 700.0], [np.std([1, 2, 3]), np.std([500, 700, 900])]]
    model.eval()
    outputs = model(**model.dummy_inputs).logits
    hook.remove()
    fold_target_scale(model)
    assert not hasattr(model.config, "target_scale")
    assert torch.allclose(model(**model.dummy_inputs).logits, outputs, rtol=1e-5)
    learn_standardized(model, targets, has_new_head=False).remove()
    for name in ("classifier.weight", "classifier.bias"):
        assert torch.allclose(model.state_dict()[name], before[name], atol=1e-5)


def test_learn_standardized_leaves_a_column_without_numbers_and_a_layer_without_bias_as_they_are(pretrained):
    model = AutoModelForSequenceClassification.from_pretrained(pretrained, num_labels=2)
    learn_standardized(model, [[1.0, NAN], [5.0, NAN]], has_new_head=True).remove()
    assert model.config.target_scale == [[3.0, 0.0], [2.0, 1.0]]
    del model.config.target_scale
    model.classifier = torch.nn.Linear(32, 2, bias=False)
    assert learn_standardized(model, [[1.0, 2.0], [5.0, 3.0]], has_new_head=True) is None
    assert not hasattr(model.config, "target_scale")


def test_measures_of_scores_are_those_of_each_column_where_it_has_numbers():
    task = Scores(main_metric="pearson", label_columns=("a", "b"))
    generator = np.random.default_rng(0)
    examples, predictions = [], []
    for place in range(12):
        numbers = {"a": float(generator.normal()), "b": float(generator.normal())}
        examples.append(TextExample(("x",), {name: numbers[name] for name in ("ab" if place % 3 else "a")}))
        predictions.append(
            LabelPrediction({name: value + float(generator.normal()) for name, value in numbers.items()})
        )
    found = task.measures(predictions, examples).scores()
    for name in "ab":
        pairs = [
            (prediction.label[name], example.label[name])
            for prediction, example in zip(predictions, examples, strict=True)
            if name in example.label
        ]
        expected = value_scores(*map(np.array, zip(*pairs, strict=True)))
        assert {metric: found[f"{name}_{metric}"] for metric in expected} == expected
    assert found["pearson"] == pytest.approx((found["a_pearson"] + found["b_pearson"]) / 2)
    weights = np.array([[1] * 12, [2] * 6 + [0] * 6])
    resampled = task.measures(predictions, examples).resampled()(weights)
    twice = [place for place in range(6) for _ in range(2)]
    half = task.measures([predictions[place] for place in twice], [examples[place] for place in twice]).scores()
    assert {name: values[0] for name, values in resampled.items()} == pytest.approx(found)
    assert {name: values[1] for name, values in resampled.items()} == pytest.approx(half)
    assert set(task.measures(predictions, examples).baseline()) >= {"mean_value_mae", "b_mean_value_rmse"}


def test_finetune_on_scores_with_holes_learns_each_column(folder):
    metrics = json.loads((folder / "metrics.json").read_text())
    assert metrics["content_pearson"] > 0.8
    assert metrics["style_pearson"] > 0.8
    assert metrics["style_rmse"] > 5 * metrics["content_rmse"]  # in the unit of the data
    with (folder / "predictions.tsv").open(encoding="utf-8") as file:
        rows = list(csv.DictReader(file, delimiter="\t"))
    assert list(rows[0]) == ["index", "prediction", "content", "style"]
    assert rows[0]["prediction"] == f"content {rows[0]['content']}, style {rows[0]['style']}"
    assert "pipeline_tag: text-classification" in (folder / "README.md").read_text()
    model = AutoModelForSequenceClassification.from_pretrained(folder)
    assert (model.config.problem_type, model.config.num_labels) == ("regression", 2)
    assert model.config.id2label == {0: "content", 1: "style"}


def test_predict_evaluate_and_compare_read_a_model_of_scores(folder, tmp_path, capsys):
    (answer,) = mybert.predict(folder, [ROWS[0]["text"]])
    assert list(answer) == ["content", "style"]
    assert answer["content"] == pytest.approx(5, abs=1.5)
    assert mybert.predict(folder, [ROWS[0]]) == [answer]
    metrics = mybert.evaluate(folder, HOLES)
    table = ["\t".join(ROWS[0])]
    table += ["\t".join("" if value is None else str(value) for value in row.values()) for row in HOLES[::3]]
    data = tmp_path / "dev.tsv"
    data.write_text("\n".join(table) + "\n")
    assert main(["predict", str(folder), str(data), "--use_cpu", "--output", str(tmp_path / "out.jsonl")]) == 0
    first = json.loads((tmp_path / "out.jsonl").read_text().splitlines()[0])
    assert first["predicted_content"] == answer["content"]
    flags = [
        "--predictions",
        str(folder / "predictions.tsv"),
        "--task",
        "scores",
        "--label_columns",
        "content",
        "style",
    ]
    capsys.readouterr()
    assert main(["evaluate", str(data), *flags]) == 0
    assert json.loads(capsys.readouterr().out).keys() == metrics.keys()
    report = mybert.compare(folder, folder, HOLES, num_resamples=20)
    assert report["differing_rows"] == 0
    assert report["metrics"]["style_pearson"]["difference"]["value"] == 0


@pytest.mark.parametrize(
    "settings",
    [
        {"approach": "linear_probe"},
        {"folds": 3},
        {"num_seeds": 2},
        {"lora": True},
        {"window_pooling": "max", "max_length": 6},
    ],
)
def test_finetune_on_scores_works_with_every_approach(tune, tmp_path, settings):
    validation = {} if "folds" in settings else {"validation_file": HOLES[::3]}
    result = tune(tmp_path / "out", HOLES, **SCORES | validation | settings)
    assert {"pearson", "content_pearson", "style_rmse"} <= result.keys()
    assert len(mybert.predict(tmp_path / "out", ROWS[:2])) == 2


def test_distill_teaches_each_column(folder, tmp_path, tune):
    settings = {"max_steps": 2, "use_cpu": True, "disable_tqdm": True, "output_dir": str(tmp_path / "out")}
    result = mybert.distill(teacher=str(folder), student="1x64", train_file=HOLES, unlabeled=ROWS, **settings)
    assert not result["interrupted"]
    assert list(mybert.predict(tmp_path / "out", ["the cat"])[0]) == ["content", "style"]


@pytest.mark.parametrize(
    ("rows", "settings", "message"),
    [
        (
            [*HOLES, {"text": "a", "content": None, "style": ""}],
            {},
            "row 49: no number in content, style; expected one",
        ),
        ([*HOLES, {"text": "a", "content": "high"}], {}, "row 49: 'high' as content; expected a number"),
        ([row | {"style": None} for row in HOLES if row["content"]], {}, "has no number in the column 'style'"),
        (HOLES, {"label_columns": None}, "label_columns is not set"),
        (HOLES, {"label_columns": ["content", "grade"]}, "has no column 'grade'"),
        (HOLES, {"class_weights": "balanced"}, "class_weights is 'balanced'; expected a task in which"),
    ],
)
def test_finetune_on_scores_rejects_mistakes(tune, tmp_path, rows, settings, message):
    with pytest.raises(ValueError, match=message):
        tune(tmp_path / "out", rows, **SCORES | settings)


def test_evaluate_scores_of_other_columns_is_an_error(folder, user_error):
    with user_error("--label_columns") as error:
        mybert.evaluate(folder, HOLES, label_columns=["content"], skip_empty=True, use_cpu=True)
    assert "is content; expected content, style, as in training." in str(error.value)


def test_finetune_on_scores_skips_rows_without_any_number(tune, tmp_path, caplog):
    caplog.set_level("INFO")
    tune(tmp_path / "out", [*HOLES, {"text": "a", "content": None, "style": ""}], skip_empty=True, **SCORES)
    assert "1 of 49 rows have no text or no label and are left out" in caplog.text


def test_scores_of_a_model_without_record_are_named_by_its_outputs(folder, tmp_path):
    for file in folder.iterdir():
        if file.is_file():
            (tmp_path / file.name).write_bytes(file.read_bytes())
    config = json.loads((folder / "config.json").read_text())
    (record,) = [name for name, value in config.items() if isinstance(value, dict) and value.get("task") == "scores"]
    del config[record]
    (tmp_path / "config.json").write_text(json.dumps(config))
    assert mybert.predict(tmp_path, ["the cat"]) == mybert.predict(folder, ["the cat"])
    assert mybert.evaluate(tmp_path, HOLES) == mybert.evaluate(folder, HOLES)
    assert TASKS["scores"].label_columns == ()


@pytest.mark.parametrize("name", ["index", "prediction"])
def test_read_predictions_of_a_column_whose_name_is_taken_in_their_file(tmp_path, name):
    task = Scores(main_metric="pearson", label_columns=(name, "style"))
    numbers = [{name: 5.0 - row, "style": float(row)} for row in range(3)]
    predictions, examples = list(map(LabelPrediction, numbers)), [TextExample((str(row),), row) for row in numbers]
    write_predictions(task, predictions, examples, tmp_path)
    assert read_predictions(task, tmp_path / "predictions.tsv", examples) == predictions
