import json
import shutil
from functools import partial

import pytest
import torch
from huggingface_hub import metadata_load
from transformers import AutoModelForSequenceClassification, AutoTokenizer, BertForPreTraining, Trainer, pipeline

from mybert import MyBertForPreTraining, MyBertForSequenceClassification, MyBertModel
from mybert.finetuning import EvaluateArguments, evaluate_model, finetune
from mybert.finetuning.training.trainer import TaskTrainer
from mybert.runs import ResumableTrainer


@pytest.fixture
def arguments(short_run, reviews):
    defaults = {"num_train_epochs": 8, "learning_rate": 3e-3, "per_device_train_batch_size": 8}
    return partial(short_run, eval_strategy="no", save_strategy="no", **defaults, **reviews)


def test_test_data_that_cannot_be_measured_is_refused_before_training(arguments, tmp_path):
    rows = [{"text": "the cat", "score": score} for score in (1.0, 2.0)]
    settings = {"task": "regression", "train_file": rows, "validation_file": rows, "test_file": rows[:1]}
    with pytest.raises(ValueError, match="test_file cannot be measured: a correlation needs at least two examples"):
        finetune(arguments(**settings))
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("loads_best", [True, False])
def test_the_evaluation_of_the_last_step_is_not_repeated(arguments, tmp_path, monkeypatch, log_history, loads_best):
    settings = {
        "max_steps": 6,
        "eval_strategy": "steps",
        "save_strategy": "steps",
        "load_best_model_at_end": loads_best,
    }
    settings |= {"eval_steps": 6, "save_steps": 6}
    steps, loop = [], Trainer.evaluation_loop

    def evaluated(trainer, *args, **kwargs):
        steps.append(trainer.state.global_step)
        return loop(trainer, *args, **kwargs)

    monkeypatch.setattr(Trainer, "evaluation_loop", evaluated)
    metrics = finetune(arguments(**settings))
    assert steps == [6]
    written = {path.name: path.read_text() for path in (tmp_path / "out").glob("predictions*")}
    monkeypatch.setattr(ResumableTrainer, "evaluation_in_training", lambda *_: None)
    again = finetune(arguments("again", **settings))
    assert steps == [6, 6, 6]
    assert metrics == again
    assert written == {path.name: path.read_text() for path in (tmp_path / "again").glob("predictions*")}
    assert list(map(list, log_history("out"))) == list(map(list, log_history("again")))


def test_the_best_step_is_evaluated_if_it_is_not_the_last(arguments, monkeypatch):
    kept, evaluate = [], TaskTrainer.evaluation_in_training
    monkeypatch.setattr(TaskTrainer, "evaluation_in_training", lambda *args: kept.append(evaluate(*args)))
    settings = {"num_train_epochs": 2, "eval_strategy": "epoch", "save_strategy": "epoch", "learning_rate": 0.0}
    finetune(arguments(**settings, metric_for_best_model="accuracy"))
    assert kept == [None]  # accuracy is equal, so that the first step stays the best


def test_a_classifier_learns_and_is_written(arguments, rows, tmp_path):
    metrics = finetune(arguments(test_file=[{"text": text} for text, _ in rows[:6]]))
    out = tmp_path / "out"
    assert metrics["accuracy"] == 1.0
    assert metrics["macro_f1"] == 1.0
    labels = [label for _, label in rows[::3]]
    assert metrics["majority_accuracy"] == max(map(labels.count, labels)) / len(labels)
    assert json.loads((out / "metrics.json").read_text())["accuracy"] == 1.0
    lines = (out / "predictions.tsv").read_text().splitlines()
    assert lines[0].split("\t") == ["index", "prediction", "bad", "good"]
    for number, (line, (_, label)) in enumerate(zip(lines[1:], rows[:6], strict=True)):
        index, prediction, *probabilities = line.split("\t")
        assert (index, prediction) == (str(number), label)
        assert sum(map(float, probabilities)) == pytest.approx(1, abs=1e-5)
    classify = pipeline("text-classification", model=str(out))
    assert [classify(text)[0]["label"] for text, _ in rows] == [label for _, label in rows]
    card = (out / "README.md").read_text()
    assert "accuracy" in card
    assert "text-classification" in card
    model = MyBertForSequenceClassification.from_pretrained(out)
    assert model.config.id2label == {0: "bad", 1: "good"}
    assert not list(out.glob("*.bin"))


def test_a_run_into_the_current_folder_has_its_name_on_the_card(arguments, tmp_path, monkeypatch):
    (tmp_path / "my-model").mkdir()
    monkeypatch.chdir(tmp_path / "my-model")
    finetune(arguments(output_dir=".", max_steps=1))
    assert "\n# my-model\n" in (tmp_path / "my-model" / "README.md").read_text()


def test_pairs_and_other_columns(arguments, rows):
    pairs = [{"one": text, "two": "the mat", "gold": label} for text, label in rows]
    columns = {"text_column": "one", "text_pair_column": "two", "label_column": "gold"}
    assert finetune(arguments(train_file=pairs, validation_file=pairs, **columns))["accuracy"] > 0.9


def test_regression(arguments, rows, tmp_path):
    values = [(text, "the mat", 5.0 if label == "good" else 0.0) for text, label in rows]
    files = {}
    for name, some in (("train", values), ("validation", values), ("test", values[:2])):
        lines = "\n".join("\t".join(map(str, row)) for row in (("sentence1", "sentence2", "score"), *some))
        (tmp_path / f"{name}.tsv").write_text(lines)
        files[f"{name}_file"] = str(tmp_path / f"{name}.tsv")
    assert finetune(arguments(task="stsb", num_train_epochs=20, **files))["pearson"] > 0.9
    found = metadata_load(tmp_path / "out" / "README.md")["model-index"][0]["results"]
    by_file = {part["dataset"]["name"]: {metric["type"] for metric in part["metrics"]} for part in found}
    assert "test_pearson" in by_file["test.tsv"] and "test_pearson" not in by_file["validation.tsv"]
    lines = (tmp_path / "out" / "predictions.tsv").read_text().splitlines()
    assert lines[0] == "index\tprediction"
    assert len(lines) == 3


def test_values_of_a_regression_are_not_rounded_in_half_precision(arguments, rows, log_history):
    """bfloat16 has no 70.9: neither labels nor values may be rounded to 71 in half precision."""
    settings = {"task": "regression", "max_steps": 1, "logging_steps": 1, "per_device_train_batch_size": 48}
    settings |= {"train_file": [(text, 70.9) for text, _ in rows], "validation_file": None}
    losses = []
    for bf16 in (False, True):
        finetune(arguments(f"out{bf16}", **settings, bf16=bf16))
        losses.append(log_history(f"out{bf16}")[0]["loss"])
    assert losses[1] == pytest.approx(losses[0], abs=1e-3)  # rounded to 71 it would be larger by 1e-2
    assert losses[0] < 1e-2  # the model begins at the mean


LONG = "the cat sat on the mat and the dog ran " * 9  # more than the 32 tokens that the network reads
LONG_DATA = {
    "classification": [{"text": LONG, "label": "x"}, {"text": LONG, "label": "y"}],
    "tagging": [{"tokens": LONG.split(), "tags": ["DET", *["NOUN"] * (len(LONG.split()) - 1)]}],
    "multiple_choice": [{"text": LONG, "choices": [LONG, "fish"], "label": 1}],
    "question_answering": [{"question": LONG, "context": LONG, "answers": "the dog"}],
}


@pytest.mark.parametrize("task", LONG_DATA)
def test_texts_longer_than_the_network_reads(arguments, tmp_path, tiny_model, task):
    """They are truncated in training, and so are those on the card, although the tokenizer has no limit."""
    short = tiny_model(tmp_path / "short", MyBertModel, max_position_embeddings=32)
    AutoTokenizer.from_pretrained(short, model_max_length=int(1e30)).save_pretrained(short)
    settings = {"task": task, "train_file": LONG_DATA[task], "validation_file": LONG_DATA[task], "max_length": 32}
    if task == "question_answering":
        settings |= {"max_question_length": 8}
    finetune(arguments(model=str(short), max_steps=1, card_examples=True, **settings))
    assert "(the data says:" in (tmp_path / "out" / "README.md").read_text()


SHOWN = [  # task, data, settings, what the card's calls say of it
    (
        "squad_v2",
        [{"id": n, "question": "who sat", "context": "the cat sat", "answers": []} for n in "ab"],
        {},
        [
            "Question answering (the data says: no answer)",
            "handle_impossible_answer=True",
        ],
    ),
    (
        "scores",
        [{"text": f"the {noun}", "a": n, "b": 0.5} for n, noun in enumerate(("cat", "dog"))],
        {
            "label_columns": ["a", "b"],
        },
        ["(the data says: a 1, b 0.5)", "print(run(text, top_k=None, "],
    ),
    (
        "next_sentence",
        [(("the cat", "sat"), "is_next"), (("a dog", "ate"), "not_next")],
        {},
        [
            "(the data says: is_next)",
            "print(run('the cat', 'sat'))",
        ],
    ),
    (
        "ner",
        [(["the", "cat"], ["O", "B-A"]), (["a", "dog"], ["O", "B-A"])],
        {"approach": "features", "lstm_size": 8},
        [
            "Tagging (the data says: O B-A)",
            "words = ['the', 'cat']\n(tags,) = tag_words(",
        ],
    ),
]


@pytest.mark.parametrize(("task", "data", "settings", "parts"), SHOWN)
def test_calls_on_the_card_are_those_of_the_task(arguments, tmp_path, task, data, settings, parts):
    settings = settings | {"task": task, "train_file": data, "validation_file": data}
    finetune(arguments(max_steps=1, card_examples=True, **settings))
    card = (tmp_path / "out" / "README.md").read_text()
    assert all(part in card for part in parts), card


@pytest.mark.parametrize("from_scratch", [False, True])
@pytest.mark.parametrize("keep_model_type", [False, True])
def test_a_half_precision_checkpoint_learns_in_full_precision(
    arguments, tmp_path, pretrained, from_scratch, keep_model_type
):
    model = tmp_path / "half"
    kind = BertForPreTraining if keep_model_type else MyBertForPreTraining
    kind.from_pretrained(pretrained, dtype=torch.float16).save_pretrained(model)
    AutoTokenizer.from_pretrained(pretrained).save_pretrained(model)
    if from_scratch:  # which needs no weights
        (model / "model.safetensors").unlink()
    settings = {"from_scratch": from_scratch, "keep_model_type": keep_model_type}
    finetune(arguments(model=str(model), max_steps=1, **settings))
    trained = AutoModelForSequenceClassification.from_pretrained(tmp_path / "out", dtype="auto")
    assert {parameter.dtype for parameter in trained.parameters()} == {torch.float32}


def test_a_vocabulary_with_holes_has_no_file_of_lines(arguments, tmp_path, pretrained):
    """In `vocab.txt` the line is the id."""
    model = shutil.copytree(pretrained, tmp_path / "holes")
    (model / "vocab.txt").unlink()
    file = model / "tokenizer.json"
    content = json.loads(file.read_text())
    del content["model"]["vocab"]["tree"]
    file.write_text(json.dumps(content))
    finetune(arguments(model=str(model), max_steps=1))
    assert (tmp_path / "out" / "tokenizer.json").is_file() and not (tmp_path / "out" / "vocab.txt").exists()


def test_a_checkpoint_that_gives_more_than_logits(arguments, tmp_path, pretrained, changed, change_config):
    model = changed(pretrained, output_hidden_states=True)
    metrics = finetune(arguments(model=str(model), max_steps=1))
    model = str(change_config(tmp_path / "out", output_hidden_states=True))
    evaluated = evaluate_model(EvaluateArguments(model=model, data=[str(tmp_path / "dev.tsv")], use_cpu=True))
    assert evaluated["accuracy"] == metrics["accuracy"]
