"""Errors in data or settings are one sentence with exit status 2, and leave no files behind."""

import json
import sys
from pathlib import Path

import numpy as np
import pytest
from transformers import DistilBertModel, RobertaModel, Trainer, XLNetConfig

from mybert.cli import main
from mybert.files.loading import longest_sequence
from mybert.files.settings import build, flat
from mybert.files.source import HubSplit
from mybert.finetuning import (
    TASKS,
    EvaluateArguments,
    FeaturesArguments,
    distill,
    extract_features,
    finetune,
    tag_words,
)
from mybert.finetuning.data import rows_of
from mybert.finetuning.training.plan import completed, plan_finetuning

TABLE = "text\tlabel\na cat\tx\na dog\ty\n"
GOOD = {"t.tsv": TABLE, "t.conll": "a\tO\ncat\tB-A\n"}


@pytest.fixture
def table(tmp_path):
    (tmp_path / "t.tsv").write_text(TABLE)
    return str(tmp_path / "t.tsv")


@pytest.mark.parametrize(
    ("task", "files", "message"),
    [
        (
            *("classification", {"t.tsv": "text\tgold\na\tx\n"}),
            "t.tsv has no column 'label'; its columns are 'text', 'gold'",
        ),
        ("classification", {"d.tsv": "text\tlabel\na\tz\n"}, "has the label 'z'; expected one of 'x', 'y'"),
        ("classification", {"t.tsv": "text\tlabel\n"}, "t.tsv holds no rows"),
        ("classification", {"d.tsv": ""}, "d.tsv holds no rows"),
        ("classification", {"t.tsv": "text\tlabel\na\tx\nb\tx\n"}, "only one class ('x'); expected at least two"),
        ("rte", {"t.tsv": "sentence1\tsentence2\tlabel\na\tb\tyes\nc\td\tno\n"}, "the label 'no'; expected one of"),
        ("ner", {"t.conll": "a\tO\ncat\n"}, "t.conll, line 2: 'cat' has 1 fields; expected 2"),
        ("ner", {"t.conll": "a\ncat\n"}, "has no column 'tags'; its columns are 'tokens', '0'"),
        ("ner", {"t.conll": "a\tO\ncat\tO\n"}, "only one class ('O')"),
        ("ner", dict.fromkeys(["t.conll", "d.conll"], "a\tO\ncat\tBAD\n"), "tag 'BAD' is not of the form 'B-PER'"),
        ("ner", {"d.conll": "a\tB-C\n"}, "has the label 'B-C'; expected one of"),
        ("squad", {"t.json": '{"data": []}'}, "t.json holds no rows"),
        (
            *("squad", {"t.json": '{"data": [{"paragraphs": [{"qas": []}]}]}'}),
            "t.json, entry 1: a paragraph without context or qas; expected SQuAD's format: data > paragraphs",
        ),
        (
            "squad",
            {"t.json": '[{"context": "a", "qas": [{}]}]'},
            "t.json, entry 1: one of qas without a question; exp",
        ),
        ("multilabel", {"t.jsonl": '{"review": "a", "kinds": ["x"]}'}, "no columns 'text' and 'labels'"),
        (
            *("squad", {"t.csv": "q,text\na,b\n"}),
            "no columns 'question', 'answers' and 'context'; its columns are 'q', 'text'; choose which to read with "
            "--text_column NAME, --label_column NAME and --text_pair_column NAME.",
        ),
        ("regression", {"t.tsv": f"{'a' * 99}\t3\nb\t4\n"}, f"its columns are '{'a' * 40}', '3'; choose which"),
        (
            *("swag", {"t.csv": "sent1,sent2,label,ending0\na,b,0,c\n"}),
            "has no columns 'ending1', 'ending2' and 'ending3'; its columns are 'sent1', 'sent2', 'label', 'ending0'; "
            "choose which to read with --choice_columns NAME.",
        ),
        ("stsb", {"t.tsv": "sentence1\tsentence2\tscore\na\tb\tnan\n"}, "row 1: 'nan' as score; expected a number"),
        # As Prodigy and doccano write words and tags, and the SMS spam collection its columns.
        (
            *("ner", {"t.jsonl": '{"tokens": [{"text": "Ada", "start": 0}], "tags": ["O"]}'}),
            """t.jsonl, row 1: "[{'text': 'Ada', 'start': 0}]" as tokens; expected a list of words.""",
        ),
        (
            *("ner", {"t.jsonl": '{"tokens": ["Ada"], "tags": [[0, 3, "PER"]]}'}),
            """t.jsonl, row 1: "[[0, 3, 'PER']]" as tags; expected a list of tags.""",
        ),
        (
            *("classification", {"t.csv": "v1,v2,,\nham,Go until jurong point,,\n"}),
            "t.csv has no columns 'text' and 'label'; its columns are 'v1', 'v2'; choose which to read with "
            "--text_column NAME and --label_column NAME.\n",
        ),
        ("ner", {"t.txt": '{"tokens": ["Ada"]}\n'}, "t.txt holds objects of JSON; expected a file whose name ends in"),
        (
            *("squad_v2", {"t.jsonl": '{"question": "a", "context": "b", "answers": [], "is_impossible": "never"}'}),
            "t.jsonl, row 1: 'never' as is_impossible; expected true or false.",
        ),
    ],
)
def test_broken_data(tmp_path, pretrained, capsys, task, files, message):
    good = "t.conll" if task == "ner" else "t.tsv"
    if all(name.startswith("d.") for name in files):
        files = {good: GOOD[good]} | files
    flags = []
    for name, content in files.items():
        (tmp_path / name).write_text(content)
        flags += ["--train_file" if name.startswith("t.") else "--validation_file", str(tmp_path / name)]
    flags += ["--doc_stride", "8"] if task == "squad" else []
    fixed = (
        f"finetune --task {task} --model {pretrained} --output_dir {tmp_path / 'out'} --max_length 32 --max_steps 1"
    )
    assert main([*fixed.split(), "--use_cpu", "True", "--quiet", *flags]) == 2
    error = capsys.readouterr().err
    assert message in error
    assert error.count("\n") == 1


@pytest.mark.parametrize(
    ("settings", "is_said"),
    [
        ({}, False),
        ({"eval_strategy": "steps", "eval_steps": 5}, True),
        ({"eval_strategy": "steps", "eval_steps": 5, "save_strategy": "steps"}, False),
        ({"eval_strategy": "steps", "eval_steps": 5, "load_best_model_at_end": False}, False),
        ({"save_strategy": "no"}, False),
    ],
)
def test_it_is_said_if_the_last_model_is_kept_and_not_the_best(short_run, table, caplog, settings, is_said):
    plan = plan_finetuning(short_run(train_file=table, validation_file=[table], **settings))
    said = "eval_strategy is 'steps' and save_strategy 'epoch': the last model is kept, not the best"
    assert said not in caplog.text
    completed(plan, plan.task, 1, {"": None})  # once, when the data is read
    assert caplog.text.count(said) == is_said


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"max_length": 600}, "max_length is 600; .* reads at most 512 tokens"),
        ({"freeze_layers": 2}, "freeze_layers is 2; expected 0 to 1, the layers of the encoder"),
        ({"reinitialize_layers": 2}, "reinitialize_layers is 2; expected 0 to 1"),
        ({"reinitialize_layers": 1, "freeze_layers": 1}, "some would be random and never trained; expected less"),
        ({"dataloader_drop_last": True}, "there are 2 sequences to train on, less than a batch of 32"),
        ({"folds": 3}, "--folds"),
        ({"text_column": "label"}, "text_column and label_column are 'label'; expected different columns"),
        ({"text_pair_column": "text"}, "text_column and text_pair_column are 'text'; expected different columns"),
        (
            {"task": "multilabel", "label_columns": ["label", "text"]},
            "text_column and label_columns are 'text'; expected different columns",
        ),
    ],
)
def test_settings_that_the_model_cannot_do(tmp_path, short_run, table, settings, message, user_error):
    with user_error(message):
        finetune(short_run(train_file=table, **settings))
    assert not (tmp_path / "out").exists()


def test_a_configuration_that_disagrees_with_the_weights(tmp_path, pretrained, changed, short_run, table):
    """Every way in reports it before anything is loaded or written."""
    model = str(changed(pretrained, hidden_size=64))
    for call in (
        lambda: finetune(short_run(model=model, train_file=table)),
        lambda: EvaluateArguments(model=model, data=[table]),
        lambda: FeaturesArguments(model=model, text=[table], output=str(tmp_path / "out.jsonl")),
        lambda: tag_words(model, [["a"]]),
    ):
        with pytest.raises(ValueError, match=r"word_embeddings.weight in .* \(28, 32\); expected \(28, 64\)"):
            call()
    assert not list(tmp_path.glob("out*"))


def test_models_of_other_types_whose_encoder_does_not_fit(tmp_path, tiny_model, changed, short_run, table):
    """Their parameter names are unknown before they are loaded."""
    right = tiny_model(tmp_path / "model", DistilBertModel, hidden_size=8, hidden_dim=16)
    features = {"text": [table], "output": str(tmp_path / "out.jsonl"), "max_length": 16}
    for change, message in (
        ({"hidden_dim": 32}, r"distilbert.transformer.layer.0.ffn.lin1.bias in .* shape \(16,\); expected \(32,\)"),
        ({"n_layers": 2}, r"lack 16 of the encoder's, such as distilbert.transformer.layer.1.attention.k_lin.bias"),
    ):
        model = str(changed(right, **change))
        with pytest.raises(ValueError, match=message) as training:
            finetune(short_run(model=model, train_file=table, max_steps=1))
        with pytest.raises(ValueError, match=message.replace("distilbert.", "")) as extraction:
            extract_features(FeaturesArguments(model=model, **features))
        assert ("from_scratch=True" in str(training.value)) == ("n_layers" in change)
        assert "--from_scratch" not in str(extraction.value)  # which has no such flag
        assert not list(tmp_path.glob("out*"))


def test_evaluate_without_scikit_learn_names_what_installs_it(models, monkeypatch, capsys, tmp_path):
    (tmp_path / "t.tsv").write_text("text\tlabel\na cat\t0\nit\t1\n")
    monkeypatch.setitem(sys.modules, "sklearn.metrics", None)
    task = ["--task", "classification", "--max_length", "16"]
    assert main(["evaluate", str(tmp_path / "t.tsv"), "--model", str(models / "sst2"), "--use_cpu", *task]) == 2
    assert (
        "needs the package scikit-learn: run pip install '.[train]' in the clone of mybert (import of"
        in capsys.readouterr().err
    )


@pytest.mark.parametrize("settings", [{"validation_file": "t.tsv"}, {"approach": "linear_probe"}])
def test_finetune_without_scipy_or_scikit_learn_is_an_error_before_training(
    settings, models, monkeypatch, short_run, tmp_path
):
    monkeypatch.chdir(tmp_path)
    Path("t.tsv").write_text("text\tlabel\n" + "a cat\t0\nit\t1\n" * 8)
    for name in ("scipy.optimize", "sklearn.linear_model"):
        monkeypatch.setitem(sys.modules, name, None)
    monkeypatch.setattr(Trainer, "train", lambda *_, **__: pytest.fail("trained"))
    monkeypatch.setattr("mybert.finetuning.training.trainer.network_outputs", lambda *_, **__: pytest.fail("computed"))
    with pytest.raises(ImportError, match=r"scipy|scikit-learn"):
        finetune(
            short_run(model=str(models / "sst2"), train_file="t.tsv", task="sst2", text_column="text", **settings)
        )


@pytest.mark.parametrize("how", [{"validation_split": 0.5}, {"folds": 2}, {"max_train_samples": 2}])
def test_finetune_on_drawn_examples_without_scikit_learn_names_what_installs_it(short_run, monkeypatch, tmp_path, how):
    monkeypatch.setitem(sys.modules, "sklearn", None)
    rows = [("a cat", "x"), ("a dog", "y"), ("a fish", "x"), ("a tree", "y")]
    with pytest.raises(ImportError, match=r"Drawing examples needs scikit-learn: run pip install '\.\[train\]' in"):
        finetune(short_run(train_file=rows, **how))
    assert not (tmp_path / "out").exists()


def test_longest_sequence_of_a_model_without_limit_is_none():
    assert longest_sequence(XLNetConfig()) is None  # whose max_position_embeddings is -1


@pytest.mark.parametrize(("max_length", "fits"), [(16, True), (17, False), (18, False)])
def test_positions_that_begin_behind_the_paddings_number(
    tmp_path, tiny_model, short_run, max_length, fits, user_error
):
    """RoBERTa's 514 positions read 512 tokens."""
    model = tiny_model(tmp_path / "model", RobertaModel, max_position_embeddings=18, pad_token_id=1)
    rows = [("a cat " * 20, label) for label in "xy"]
    settings = {"model": str(model), "train_file": rows, "max_length": max_length, "max_steps": 1}
    if fits:
        assert not finetune(short_run(**settings, save_strategy="no"))["interrupted"]
    else:
        with user_error("--max_length"):
            finetune(short_run(**settings))


def test_a_benchmarks_folder_without_its_files(tmp_path, short_run):
    with pytest.raises(ValueError, match=r"has no train.tsv; it holds nothing"):
        short_run(task="rte", data_dir=str(tmp_path))
    for number in range(9):
        (tmp_path / f"{number}.txt").write_text("")
    with pytest.raises(ValueError, match=rf"; it holds {', '.join(f'{number}.txt' for number in range(8))}\."):
        short_run(task="rte", data_dir=str(tmp_path))
    with pytest.raises(ValueError, match="has no benchmark files to look for in data_dir; use train_file"):
        short_run(task="classification", data_dir=str(tmp_path))


def test_a_data_set_without_network(short_run):
    message = r"The data set 'nobody/nothing' could not be loaded .*; check its name and the network"
    with pytest.raises(OSError, match=message):
        finetune(short_run(task="rte", dataset="nobody/nothing"))


def write_split(folder, split, rows, names=None):
    """Write a split of a data set, of which `label` has names if it is one of classes."""
    datasets = pytest.importorskip("datasets")
    (folder / "data").mkdir(parents=True, exist_ok=True)
    data = datasets.Dataset.from_dict(rows)
    data = data.cast_column("label", datasets.ClassLabel(names=names)) if names else data
    data.to_parquet(folder / "data" / f"{split}-00000-of-00001.parquet")


def test_data_sets_as_on_the_hub(tmp_path, short_run):
    """Splits; classes by name, or by number where GLUE's server expects that; -1 for a missing label or score."""
    texts = {name: ["a cat", "a dog"] for name in ("sentence", "sentence1", "sentence2")}
    for task, names, written, metric in (
        ("rte", ["entailment", "not_entailment"], {"entailment", "not_entailment"}, "accuracy"),
        ("sst2", ["negative", "positive"], {"0", "1"}, "accuracy"),
        ("stsb", None, None, "pearson"),
    ):
        for split, labels in (("train", [0, 1]), ("validation", [1, 0]), ("test", [-1, -1])):
            labels = labels if names else np.array(labels, dtype=np.float32)
            write_split(tmp_path / task, split, texts | {"label": labels}, names)
        settings = {"task": task, "dataset": str(tmp_path / task), "max_steps": 1, "save_strategy": "no"}
        metrics = finetune(short_run(f"out_{task}", **settings))
        assert metric in metrics and not [name for name in metrics if name.startswith("test")]
        lines = (tmp_path / f"out_{task}" / "predictions.tsv").read_text().splitlines()[1:]
        assert len(lines) == 2 and (written is None or {line.split("\t")[1] for line in lines} <= written)
    read = rows_of(HubSplit(str(tmp_path / "rte"), None, "validation"), TASKS["classification"])
    assert [row.values["label"] for row in read] == ["not_entailment", "entailment"]


@pytest.mark.parametrize(
    ("splits", "metrics"),
    [
        (("train", "validation_matched", "validation_mismatched"), {"matched_accuracy", "mismatched_accuracy"}),
        (("train", "validation"), {"accuracy"}),
        (("train", "dev"), {"accuracy"}),
        (("train",), set()),
    ],
)
def test_the_best_checkpoint_of_a_data_set(tmp_path, short_run, splits, metrics):
    """MNLI has two validation splits on the Hub, some data sets none."""
    rows = {"premise": ["a cat"] * 3, "hypothesis": ["a dog"] * 3, "label": [0, 1, 2]}
    for split in splits:
        write_split(tmp_path / "mnli", split, rows, ["entailment", "neutral", "contradiction"])
    arguments = short_run(task="mnli", dataset=str(tmp_path / "mnli"), max_steps=1)
    assert finetune(arguments).keys() >= metrics
    record = json.loads((tmp_path / "out" / "run.json").read_text())
    assert record["load_best_model_at_end"] == bool(metrics)
    if not metrics:
        with pytest.raises(ValueError, match="num_seeds is 2 without validation data"):
            finetune(build(type(arguments), flat(arguments) | {"num_seeds": 2}))


@pytest.mark.parametrize("how", [{"validation_split": 0.5}, {"folds": 2}])
def test_a_data_set_without_validation_data_is_measured_on_a_part(tmp_path, short_run, how):
    write_split(tmp_path / "data", "train", {"text": ["a cat", "a dog", "a fish", "a tree"], "label": ["x", "y"] * 2})
    assert "accuracy" in finetune(short_run(dataset=str(tmp_path / "data"), max_steps=1, **how))


def test_a_model_folder_that_is_not_there(tmp_path, short_run, table):
    """Settings of a training may be created before the model exists."""
    training = short_run(model=str(tmp_path / "nowhere"), train_file=table)
    makes = (
        lambda model: EvaluateArguments(model=model, data=["t.tsv"]),
        lambda model: FeaturesArguments(model=model, text=["t.txt"], output="f.jsonl"),
    )
    for call in (*makes, lambda model: finetune(training)):
        with pytest.raises(FileNotFoundError, match=r"There is no model folder .*nowhere\."):
            call(str(tmp_path / "nowhere"))
    assert not (tmp_path / "out").exists()
    for make in makes:
        make("owner/name")


@pytest.mark.parametrize("from_scratch", [False, True])
def test_finetune_quantized_model_is_rejected(tmp_path, pretrained, changed, short_run, table, from_scratch):
    model = changed(pretrained, quantization_config={"quant_method": "gptq"})
    with pytest.raises(ValueError, match=r"changed: its weights are quantized \('gptq'\)"):
        finetune(short_run(model=str(model), train_file=table, from_scratch=from_scratch))
    assert not (tmp_path / "out").exists()


def test_sequences_are_no_longer_than_a_model_reads(tmp_path, tiny_model, short_run, user_error):
    """By default; a length that is given is an error."""
    model = str(tiny_model(tmp_path / "short", max_position_embeddings=32))
    settings = {"train_file": [("a cat " * 40, "x"), ("a dog", "y")], "max_steps": 1}
    finetune(short_run(model=model, max_length=None, **settings))
    with user_error("--max_length"):
        finetune(short_run("a", model=model, max_length=128, **settings))
    student = {"teacher": str(tmp_path / "out"), "student": model, "task": "classification"}
    distill(**student, output_dir=str(tmp_path / "student"), use_cpu=True, disable_tqdm=True, **settings)
