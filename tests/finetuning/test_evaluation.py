"""Evaluating models and prediction files without training."""

import gzip
import json
import shutil
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file
from transformers import AutoConfig, AutoTokenizer, BertConfig, BertForPreTraining, pipeline

import mybert
from mybert import MyBertForSequenceClassification
from mybert.cli import main
from mybert.conversion import to_transformers_bert
from mybert.files.checkpoint import TASK_RECORD, Checkpoint
from mybert.files.errors import SettingError
from mybert.finetuning import TASKS, EvaluateArguments, commands, evaluate_model
from mybert.finetuning.data import Labels
from mybert.finetuning.tasks.registry import task_of_model
from mybert.finetuning.tasks.steps import load_task_model

PAIRS = [("the cat sat", "a cat", "entailment"), ("a dog ate", "a tree", "not_entailment")] * 6


@pytest.fixture(scope="module")
def rte(tmp_path_factory):
    path = tmp_path_factory.mktemp("rte") / "dev.tsv"
    rows = ["index\tsentence1\tsentence2\tlabel", *("\t".join((str(n), *row)) for n, row in enumerate(PAIRS))]
    path.write_text("\n".join(rows) + "\n")
    return path


@pytest.fixture(scope="module")
def finetuned(tmp_path_factory, tune, pretrained, rte):
    folder = tmp_path_factory.mktemp("run") / "out"
    metrics = tune(folder, rte, validation_file=rte, task="rte", max_steps=3)
    assert (folder / "vocab.txt").read_bytes() == (pretrained / "vocab.txt").read_bytes()  # for Google's tools
    return folder, metrics


def named(names):
    return {"id2label": dict(enumerate(names)), "label2id": {name: number for number, name in enumerate(names)}}


def arguments(tmp_path, rte, **settings):
    defaults = {"task": "rte", "data": [str(rte)], "output": str(tmp_path / "metrics.json"), "use_cpu": True}
    return EvaluateArguments(**defaults | settings)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("model", "tuned"),
        ("batch_size", 3),
        ("dtype", "bfloat16"),
        ("engine", "torch"),
        ("threads", 1),
        ("confidence_threshold", 0.5),
        ("predictions_dir", "p"),
    ],
)
def test_evaluate_an_option_of_a_model_with_predictions_is_rejected(tmp_path, rte, name, value):
    with pytest.raises(SettingError, match="which need no model") as error:
        arguments(tmp_path, rte, predictions="p.tsv", **{name: value})
    assert sorted(error.value.options) == sorted([name, "predictions"])


def test_evaluate_predictions_of_two_data_files_is_an_error(tmp_path, rte, user_error):
    with user_error("--predictions --data"):
        arguments(tmp_path, rte, predictions="p.tsv", data=[str(rte), "other.tsv"])


def test_evaluate_two_data_files_of_one_name_is_an_error(tmp_path, rte, finetuned):
    other = tmp_path / "DEV.tsv"
    shutil.copy(rte, other)
    with pytest.raises(ValueError, match=r"The files .*dev\.tsv, .*DEV\.tsv have the same name; expected different"):
        evaluate_model(arguments(tmp_path, rte, model=str(finetuned[0]), data=[str(rte), str(other)]))


def test_evaluate_two_data_files_with_points_in_their_names(tmp_path, rte, finetuned):
    files = [str(tmp_path / name) for name in ("dev.2020.tsv", "dev.2021.tsv.gz")]
    shutil.copy(rte, files[0])
    with gzip.open(files[1], "wb") as packed:
        packed.write(rte.read_bytes())
    found = evaluate_model(arguments(tmp_path, rte, model=str(finetuned[0]), data=files))
    assert found["dev.2020_accuracy"] == found["dev.2021_accuracy"]


def test_evaluate_with_an_output_below_a_file_is_an_error_before_the_work(tmp_path, rte, finetuned, monkeypatch):
    (tmp_path / "a.b").write_text("mine")
    monkeypatch.setattr(commands, "load_finetuned_model", lambda *_: pytest.fail("ran"))
    for written in ({"output": str(tmp_path / "a.b" / "m.json")}, {"report_dir": str(tmp_path / "a.b" / "r")}):
        with pytest.raises(OSError, match=r"a\.b"):
            evaluate_model(arguments(tmp_path, rte, model=str(finetuned[0]), **written))
    assert (tmp_path / "a.b").read_text() == "mine"


def test_evaluate_predictions_replace_the_model_of_a_settings_file(tmp_path, rte, finetuned, capsys):
    lines = [
        f"model: {finetuned[0]}",
        f"data: {rte}",
        "task: rte",
        "batch_size: 4",
        f"predictions_dir: {tmp_path / 'p'}",
        "use_cpu: true",
    ]
    (tmp_path / "evaluate.yaml").write_text("\n".join(lines))
    predictions = tmp_path / "predictions.tsv"
    predictions.write_text("\n".join(["index\tprediction", *(f"{n}\t{row[2]}" for n, row in enumerate(PAIRS))]))
    assert main(["evaluate", "--config", str(tmp_path / "evaluate.yaml"), "--predictions", str(predictions)]) == 0
    assert json.loads(capsys.readouterr().out) == {"accuracy": 1.0} and not (tmp_path / "p").exists()


def test_every_file_is_measured_as_the_classes_of_the_model_say(tmp_path, tune):
    """Not as the file's own tags: those of the test data could be entity tags, those of the training data are not."""
    files = {"train": "the B-X\ncat P-X\nsat E-X\na S-X\n", "test": "the S-X\n\na S-X\n"}
    for name, lines in files.items():
        (tmp_path / f"{name}.conll").write_text(lines)
    data = {f"{name}_file": str(tmp_path / f"{name}.conll") for name in files}
    metrics = tune(tmp_path / "out", task="tagging", **data)
    assert {"test_accuracy", "test_f1"} <= metrics.keys() and "test_precision" not in metrics
    found = evaluate_model(EvaluateArguments(model=str(tmp_path / "out"), data=[data["test_file"]], use_cpu=True))
    assert found == {name: metrics[f"test_{name}"] for name in ("accuracy", "f1")}


def test_a_model_has_the_scores_that_finetuning_found(tmp_path, rte, finetuned, capsys):
    folder, metrics = finetuned
    printed = evaluate_model(EvaluateArguments(task="rte", data=str(rte), model=str(folder), use_cpu=True))
    assert json.loads(capsys.readouterr().out) == printed
    found = evaluate_model(arguments(tmp_path, rte, model=str(folder), predictions_dir=str(tmp_path / "p")))
    assert found == json.loads((tmp_path / "metrics.json").read_text())
    assert found.keys() == {"accuracy", "expected_calibration_error"} and found["accuracy"] == metrics["accuracy"]
    rows = [{"sentence1": one, "sentence2": other, "label": label} for one, other, label in PAIRS]
    both = evaluate_model(arguments(tmp_path, rte, model=str(folder), data={"a": rows[:4], "b": rows}, output="-"))
    assert {name.partition("_")[2] for name in both} == found.keys() and both["b_accuracy"] == found["accuracy"]
    predictions = tmp_path / "p" / "predictions.tsv"
    assert predictions.read_bytes() == (folder / "predictions.tsv").read_bytes()
    measured = evaluate_model(arguments(tmp_path, rte, predictions=str(predictions), output="-"))
    assert measured == {"accuracy": metrics["accuracy"]}  # without probabilities in the file


def test_prediction_files_of_other_tools(tmp_path, rte):
    file, data = tmp_path / "p.tsv", tmp_path / "data.csv"
    file.write_text("index\tprediction\n" + "".join(f"{n}\t{n % 2}\n" for n in range(len(PAIRS))))
    assert evaluate_model(arguments(tmp_path, rte, predictions=str(file))) == {"accuracy": 1.0}  # numbers of classes
    data.write_text("text,labels\na,x;y\nb,y\nc,x\n")
    file.write_text("index\tprediction\n0\tx,y\n1\ty\n2\tx\n")
    settings = {"task": "multilabel", "predictions": str(file), "overwrite": True}
    assert evaluate_model(arguments(tmp_path, data, **settings))["accuracy"] == 1.0


def test_evaluate_never_replaces_silently(tmp_path, rte, finetuned):
    settings = {"model": str(finetuned[0]), "predictions_dir": str(tmp_path / "p")}
    (tmp_path / "p").mkdir()
    (tmp_path / "p" / "notes.txt").write_text("mine")
    for name in ("metrics.json", "p/predictions.tsv"):
        (tmp_path / name).write_text("mine")
        with pytest.raises(ValueError, match=rf"{Path(name).name} exists.*pass overwrite=True"):
            evaluate_model(arguments(tmp_path, rte, **settings))
        assert (tmp_path / name).read_text() == "mine"
        evaluate_model(arguments(tmp_path, rte, **settings, overwrite=True))
        (tmp_path / "metrics.json").unlink()
    assert (tmp_path / "p" / "predictions.tsv").read_bytes() == (finetuned[0] / "predictions.tsv").read_bytes()
    assert (tmp_path / "p" / "notes.txt").read_text() == "mine"
    with pytest.raises(ValueError, match=r"dev.tsv is already read or written"):
        evaluate_model(arguments(tmp_path, rte, model=str(finetuned[0]), output=str(rte), overwrite=True))
    for output, found in (
        (tmp_path / "p" / "predictions.tsv", r"predictions.tsv is"),
        (tmp_path / "p", r"p holds .*predictions\*, which is"),
        (finetuned[0] / "config.json", "config.json is"),
    ):
        with pytest.raises(ValueError, match=f"{found} already read or written by this call"):
            evaluate_model(arguments(tmp_path, rte, **settings, output=str(output), overwrite=True))


@pytest.mark.parametrize(
    ("fields", "found"),
    [
        ({"finetuned_for": "rte"}, r"finetuned_for in the configuration of .* is rte; expected an object"),
        ({"finetuned_for": {"task": "rte", "max_length": "16"}}, r"'16' as max_length; expected int"),
        ({"finetuned_for": {"task": "rte", "label_columns": ["a", 2]}}, r"as label_columns; expected tuple"),
        ({"finetuned_for": {"task": "multilabel", "thresholds": {"a": "b"}}}, r"as thresholds; expected .*float"),
        ({"id2label": {"0": "entailment", "2": "not_entailment"}}, r"id2label is .*; expected 0, 1, 2"),
    ],
)
def test_broken_configurations(tmp_path, rte, finetuned, changed, fields, found):
    with pytest.raises(ValueError, match=found):
        evaluate_model(arguments(tmp_path, rte, task=None, model=str(changed(finetuned[0], **fields))))


@pytest.mark.parametrize(
    ("name", "content", "settings", "found"),
    [
        ("", "", {"model": "pretrained"}, r"has no head for this task \(it is a MyBertForPreTraining\)"),
        (
            *("sts.tsv", "sentence1\tsentence2\tscore\na\tb\t1.0\n"),
            *({"model": "finetuned", "task": "stsb"}, r"fine-tuned with 2 labels .*; this task has 1"),
        ),
        (
            *("choices.jsonl", '{"text": "a", "choices": ["b", "c"], "label": 0}\n'),
            *({"model": "finetuned", "task": "multiple_choice"}, r"no head .*\(it is a MyBertForSequenceClass"),
        ),
        ("", "", {}, "model is not set; .* Or give predictions"),
        ("", "", {"model": "m", "data": []}, "--data"),
        ("short.tsv", "index\tprediction\n0\tentailment\n", {"predictions": "short.tsv"}, r"short.tsv has 1 .* 12"),
        ("", "", {"model": "m", "max_answer_length": 3}, "max_answer_length is not a setting of the task rte"),
        ("none.tsv", "index\tsentence1\tsentence2\n0\ta\tb\n", {"model": "finetuned"}, "has no column 'label'"),
    ],
)
def test_evaluate_mistakes(
    tmp_path, monkeypatch, rte, pretrained, finetuned, name, content, settings, found, user_error
):
    monkeypatch.chdir(tmp_path)
    if name:
        Path(name).write_text(content)
    folders = {"pretrained": str(pretrained), "finetuned": str(finetuned[0])}
    settings = {option: folders.get(str(value), value) for option, value in settings.items()}
    with user_error(found):
        evaluate_model(arguments(tmp_path, name if name and "predictions" not in settings else rte, **settings))


def test_a_model_knows_its_task_columns_and_length(tmp_path, rte, finetuned):
    """Also after loading, saving elsewhere and converting it."""
    folder = tmp_path / "moved"
    MyBertForSequenceClassification.from_pretrained(finetuned[0]).save_pretrained(folder)
    AutoTokenizer.from_pretrained(finetuned[0]).save_pretrained(folder)
    to_transformers_bert(folder, tmp_path / "bert")
    for model in (finetuned[0], folder, tmp_path / "bert"):
        task = arguments(tmp_path, rte, task=None, model=str(model)).resolve_task()
        assert (task.glue, task.text_pair_column, task.max_length) == ("rte", "sentence2", 16)
        assert arguments(tmp_path, rte, task=None, model=str(model), max_length=9).resolve_task().max_length == 9
        assert arguments(tmp_path, rte, model=str(model)).resolve_task() == task
        assert arguments(tmp_path, rte, model=str(model), task="qnli").resolve_task() == TASKS["qnli"]
    found = evaluate_model(arguments(tmp_path, rte, task=None, model=str(folder), output="-"))
    assert found == evaluate_model(arguments(tmp_path, rte, model=str(finetuned[0])))


@pytest.mark.parametrize(
    ("fields", "name"),
    [
        ({}, "classification"),
        ({"problem_type": "regression", "num_labels": 1}, "regression"),
        ({"num_labels": 1}, "regression"),
        ({"problem_type": "multi_label_classification"}, "multilabel"),
        ({"architectures": ["BertForTokenClassification"]}, "tagging"),
        ({"architectures": ["BertForQuestionAnswering"]}, "question_answering"),
        ({"architectures": ["BertForMultipleChoice"]}, "multiple_choice"),
    ],
)
def test_the_task_of_a_model_without_record_is_that_of_its_head(fields, name, tmp_path):
    BertConfig(**{"architectures": ["BertForSequenceClassification"], **fields}).save_pretrained(tmp_path)
    found, task = task_of_model(Checkpoint(tmp_path))
    assert (found, task.max_length) == (name, 512)
    (tmp_path / "tokenizer_config.json").write_text('{"model_max_length": 16}')
    assert task_of_model(Checkpoint(tmp_path))[1].max_length == 16
    BertConfig(architectures=["BertModel"]).save_pretrained(tmp_path)
    with pytest.raises(ValueError, match=r"is BertModel, without a head for a task; expected a fine-tuned"):
        task_of_model(Checkpoint(tmp_path))


@pytest.mark.parametrize("names", [("negative", "positive"), ("0", "1"), ("1", "0"), ("LABEL_0", "LABEL_1")])
def test_a_models_names_for_classes_that_the_benchmark_numbers(tmp_path, rte, finetuned, changed, names):
    folder = str(changed(finetuned[0], **named(names)))
    if names[0] == "LABEL_0":  # those of the benchmark
        assert evaluate_model(arguments(tmp_path, rte, model=folder))["accuracy"] == finetuned[1]["accuracy"]
    texts = ["the cat sat", "a dog ate", "a very happy fish", "the tree"]
    classify = pipeline("text-classification", model=folder)
    wanted = [
        int(names.index(answer["label"]) if names != ("1", "0") else answer["label"]) for answer in classify(texts)
    ]
    lines = ["sentence\tlabel", *(f"{text}\t{label}" for text, label in zip(texts, wanted, strict=True))]
    (tmp_path / "dev.tsv").write_text("\n".join(lines) + "\n")
    settings = {"task": "sst2", "model": folder, "overwrite": True}
    assert evaluate_model(arguments(tmp_path, tmp_path / "dev.tsv", **settings))["accuracy"] == 1.0


MNLI = ("entailment", "neutral", "contradiction")
GOOGLES_MNLI = ("contradiction", "entailment", "neutral")


@pytest.fixture(scope="module")
def mnli(tmp_path_factory, pretrained):
    """A model with three classes, and data with its correct answers."""
    folder = tmp_path_factory.mktemp("mnli")
    torch.manual_seed(0)
    model = MyBertForSequenceClassification.from_pretrained(pretrained, num_labels=3)
    tokenizer = AutoTokenizer.from_pretrained(pretrained)
    tokenizer.save_pretrained(folder)
    texts = ["the cat sat", "a dog ate", "a very happy fish", "the tree", "sad bread", "it was under the mat"]
    with torch.no_grad():
        batch = tokenizer(texts, texts[::-1], padding=True, return_tensors="pt")
        model.classifier.bias -= model.eval()(**batch).logits.mean(0)
        answers = model(**batch).logits.argmax(-1).tolist()
    assert len(set(answers)) > 1
    model.save_pretrained(folder)
    return folder, list(zip(texts, texts[::-1], answers, strict=True))


def mnli_data(mnli, tmp_path, names):
    rows = [{"sentence1": a, "sentence2": b, "gold_label": names[answer]} for a, b, answer in mnli[1]]
    (tmp_path / "dev.json").write_text(json.dumps(rows))
    return tmp_path / "dev.json"


@pytest.mark.parametrize("names", [MNLI, GOOGLES_MNLI])
def test_the_classes_of_mnli_go_by_their_names(tmp_path, tune, mnli, changed, names):
    data, model = mnli_data(mnli, tmp_path, names), str(changed(mnli[0], **named(names)))
    assert evaluate_model(arguments(tmp_path, data, task="mnli", model=model))["accuracy"] == 1.0
    tune(tmp_path / "out", data, task="mnli", model=model, learning_rate=0.0)
    assert AutoConfig.from_pretrained(tmp_path / "out").id2label == dict(enumerate(names))


@pytest.mark.parametrize("names", [("LABEL_0", "LABEL_1", "LABEL_2"), ("0", "1", "2")])
def test_classes_of_mnli_without_names_are_nobodys(tmp_path, tune, mnli, changed, names):
    data, model = mnli_data(mnli, tmp_path, MNLI), str(changed(mnli[0], **named(names)))
    message = r"The classes of .*changed have no names .*id2label"
    with pytest.raises(ValueError, match=message):
        evaluate_model(arguments(tmp_path, data, task="mnli", model=model))
    with pytest.raises(ValueError, match=message):
        tune(tmp_path / "out", data, task="mnli", model=model)
    assert not (tmp_path / "out").exists()
    tune(tmp_path / "out", data, task="mnli", model=model, new_head=True)
    data = mnli_data(mnli, tmp_path, ("0", "1", "2"))
    with pytest.raises(ValueError, match=r"row 1: '\d' as gold_label; expected entailment, neutral"):
        evaluate_model(arguments(tmp_path, data, task="mnli", model=str(tmp_path / "out")))


def test_a_model_without_a_record_is_measured_on_both_texts(mnli):
    """As `predict` reads them: the first text alone gives other classes."""
    assert not hasattr(AutoConfig.from_pretrained(mnli[0]), TASK_RECORD)
    rows = [{"text": first, "text_pair": second} for first, second, _ in mnli[1]]
    labels = [answer["label"] for answer in mybert.predict(str(mnli[0]), rows, use_cpu=True)]
    labeled = [row | {"label": label} for row, label in zip(rows, labels, strict=True)]
    assert mybert.evaluate(str(mnli[0]), labeled, use_cpu=True)["accuracy"] == 1.0
    pairs = [((row["text"], row["text_pair"]), label) for row, label in zip(rows, labels, strict=True)]
    assert mybert.evaluate(str(mnli[0]), pairs, use_cpu=True)["accuracy"] == 1.0


@pytest.mark.parametrize(("value", "name"), [("nan", "NaN"), ("inf", "infinity"), ("-inf", "infinity")])
def test_evaluate_and_predict_a_model_that_computes_no_numbers_raise(tmp_path, tiny_model, value, name):
    model = tiny_model(
        tmp_path / "model",
        MyBertForSequenceClassification,
        labels=("a", "b"),
        change=lambda model: model.classifier.bias.data[:1].fill_(float(value)),
    )
    for command in (mybert.evaluate, mybert.predict):
        with pytest.raises(ValueError, match=f"The model computes {name} for data; expected numbers"):
            command(model, [{"text": "a cat", "label": "a"}, {"text": "it", "label": "b"}], use_cpu=True)


def test_a_model_that_lacks_its_pooler_is_not_given_a_random_one(tmp_path, rte, finetuned):
    folder = shutil.copytree(finetuned[0], tmp_path / "model")
    weights = load_file(folder / "model.safetensors")
    kept = {name: weight for name, weight in weights.items() if "pooler" not in name}
    save_file(kept, folder / "model.safetensors", metadata={"format": "pt"})
    with pytest.raises(ValueError, match=r"no head for this task \(it lacks bert.pooler.dense.bias, bert.pooler"):
        evaluate_model(arguments(tmp_path, rte, model=str(folder)))


def test_starting_from_a_finetuned_model(tmp_path, finetuned, capsys):
    rows = ["text\tlabel", "a cat\tx", "a dog\ty", "a tree\tz"]
    (tmp_path / "three.tsv").write_text("\n".join(rows) + "\n")
    flags = ["finetune", "--model", str(finetuned[0]), "--train_file", str(tmp_path / "three.tsv"), "--output_dir"]
    flags += [str(tmp_path / "out"), "--max_steps", "1", "--max_length", "16", "--use_cpu", "--quiet"]
    assert main(flags) == 2
    message = capsys.readouterr().err
    assert "was fine-tuned with 2 labels (entailment, not_entailment); the data has 3 (x, y, z)" in message
    assert "pass --new_head to give" in message
    assert not (tmp_path / "out").exists()
    assert main([*flags, "--new_head", "True"]) == 0
    assert MyBertForSequenceClassification.from_pretrained(tmp_path / "out").config.id2label == dict(enumerate("xyz"))


def test_a_head_of_another_kind_with_layers_of_the_same_name_is_left_out(finetuned):
    """A tagger's classifier has the same name as that of sentences, and may have the same size."""
    _, new = load_task_model(TASKS["question_answering"], str(finetuned[0]), None)
    assert new == ["qa_outputs.bias", "qa_outputs.weight"]
    model, new = load_task_model(TASKS["ner"], str(finetuned[0]), Labels(("B-A", "O")))
    assert new == ["classifier.bias", "classifier.weight"]
    before = MyBertForSequenceClassification.from_pretrained(finetuned[0])
    assert not torch.equal(model.classifier.weight, before.classifier.weight)
    assert torch.equal(model.bert.embeddings.word_embeddings.weight, before.bert.embeddings.word_embeddings.weight)


@pytest.mark.parametrize(("keep", "model_type"), [(False, "mybert"), (True, "bert")])
def test_a_bert_checkpoint_becomes_mybert_unless_it_is_to_stay(
    tmp_path, tokenizer, tiny_model, tune, rte, keep, model_type
):
    model = tiny_model(tmp_path / "bert", BertForPreTraining)
    metrics = tune(tmp_path / "out", rte, validation_file=rte, task="rte", model=model, keep_model_type=keep)
    assert AutoConfig.from_pretrained(tmp_path / "out").model_type == model_type
    assert len(AutoTokenizer.from_pretrained(tmp_path / "out")) == len(tokenizer)
    assert evaluate_model(arguments(tmp_path, rte, model=str(tmp_path / "out")))["accuracy"] == metrics["accuracy"]


def test_the_settings_of_a_training_say_what_is_measured(tmp_path, rte, finetuned, capsys):
    folder, metrics = finetuned
    recipe = tmp_path / "training.yaml"
    lines = ["task: rte", "model: nowhere", "train_file: gone.tsv", "learning_rate: 3.0e-5", "overwrite: true"]
    gappy = tmp_path / "gappy.tsv"
    gappy.write_text(rte.read_text() + "12\t\t\tentailment\n")
    lines += [f"validation_file: [{gappy}]", f"output_dir: {folder}", "max_length: 16", "use_cpu: true"]
    lines += ["skip_empty: true"]
    recipe.write_text("\n".join(lines) + "\n")
    assert main(["evaluate", "--config", str(recipe)]) == 0
    assert json.loads(capsys.readouterr().out)["accuracy"] == metrics["accuracy"]
    (tmp_path / "metrics.json").write_text("mine")
    assert main(["evaluate", "--config", str(recipe), "--output", str(tmp_path / "metrics.json")]) == 2
    assert "metrics.json" in capsys.readouterr().err  # `overwrite` is the run's
    assert main(["predict", "--config", str(recipe), "--data", str(rte), "--keep_columns", "index"]) == 0
    assert len(capsys.readouterr().out.splitlines()) == len(PAIRS)
    benchmark = tmp_path / "RTE"
    benchmark.mkdir()
    shutil.copy(rte, benchmark / "dev.tsv")
    recipe.write_text(f"task: rte\noutput_dir: {folder}\ndata_dir: {benchmark}\nuse_cpu: true\n")
    assert main(["evaluate", "--config", str(recipe), "--max_length", "16"]) == 0
    assert json.loads(capsys.readouterr().out)["accuracy"] == metrics["accuracy"]
    recipe.write_text(f"task: rte\noutput_dir: {folder}\nvalidation_fil: {rte}\n")
    assert main(["evaluate", "--config", str(recipe)]) == 2
    assert "unknown settings: validation_fil. Did you mean validation_file?" in capsys.readouterr().err
    recipe.write_text(f"output_dir: {folder}\nlearning_rate: fast\n")
    assert main(["evaluate", "--config", str(recipe)]) == 2
    assert "--learning_rate is 'fast'; expected a number." in capsys.readouterr().err
    recipe.write_text(f"output_dir: {folder}\nlearning_rate: 1\n")
    assert main(["evaluate", "--config", str(recipe)]) == 2
    assert "data is not set" in capsys.readouterr().err
