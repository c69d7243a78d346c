"""Fine-tuning and measuring on data frames, data sets and iterables gives what files of the same rows give."""

import json
import pickle
from collections import namedtuple

import numpy as np
import pytest
import torch
from transformers import TrainingArguments

import mybert
from mybert.files.source import InMemoryData, frame_rows
from mybert.finetuning import TASKS, EvaluateArguments, FinetuningArguments, evaluate_model
from mybert.finetuning.data import rows_of
from mybert.finetuning.tasks.steps import read_task_rows

ROWS = [
    {"text": f"the {noun} was {word} {end}", "label": "good" if word in ("happy", "fish") else "bad"}
    for noun in ("cat", "dog", "tree", "mat")
    for word in ("happy", "sad", "fish", "under")
    for end in ("today", "very", "and")
]
TWO_EPOCHS = {"max_steps": -1, "num_train_epochs": 2, "per_device_train_batch_size": 8}


def frames(rows):
    pandas = pytest.importorskip("pandas", reason="a data frame is pandas'")
    datasets = pytest.importorskip("datasets", reason="a data set is datasets'")
    return {
        "frame": pandas.DataFrame(rows),
        "dataset": datasets.Dataset.from_list(rows),
        "rows": rows,
        "tuples": (tuple(row.values()) for row in rows),
        "map_style": MapStyle(rows),
    }


class MapStyle(torch.utils.data.Dataset):
    """A data set that has no end for Python's protocol of sequences."""

    def __init__(self, rows):
        self.rows = rows

    def __len__(self):
        return len(self.rows)

    def __getitem__(self, index):
        return self.rows[index % len(self.rows)]


@pytest.fixture(scope="module")
def from_file(tmp_path_factory, tune):
    """The result of fine-tuning on a file, its folder, and the metrics of its validation file."""
    folder = tmp_path_factory.mktemp("file")
    files = {"train_file": folder / "train.jsonl", "validation_file": folder / "dev.jsonl"}
    for path, rows in zip(files.values(), (ROWS, ROWS[::3]), strict=True):
        path.write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    metrics = tune(folder / "out", **files, **TWO_EPOCHS)
    return metrics, folder / "out", mybert.evaluate(folder / "out", str(files["validation_file"]), use_cpu=True)


def test_card_has_no_example_of_pages(tmp_path, tune):
    long = [{"text": "the cat sat " * 400, "label": "good"}, {"text": "the dog ran " * 400, "label": "bad"}]
    for name, rows, count in (("a", [*ROWS[:4], *long], 3), ("b", long, 0)):
        tune(tmp_path / name, rows, card_examples=True)
        card = (tmp_path / name / "README.md").read_text()
        assert card.count("(the data says:") == count and len(card) < 10_000


@pytest.mark.parametrize("kind", ["frame", "dataset", "rows", "tuples", "map_style"])
def test_every_kind_of_data_teaches_as_a_file_does(tmp_path, tune, from_file, kind):
    metrics, folder, expected = from_file
    out = tmp_path / "out"
    found = tune(out, frames(ROWS)[kind], validation_file=frames(ROWS[::3])[kind], **TWO_EPOCHS)
    assert found == metrics
    assert (out / "model.safetensors").read_bytes() == (folder / "model.safetensors").read_bytes()
    assert mybert.evaluate(out, frames(ROWS[::3])[kind], use_cpu=True) == expected
    assert expected["accuracy"] == metrics["accuracy"]
    assert "in memory" in (out / "README.md").read_text()


def test_other_data_is_refused_and_the_same_goes_on(tmp_path, tune):
    pandas = pytest.importorskip("pandas", reason="a data frame is pandas'")
    frame = pandas.DataFrame(ROWS)

    def finetune(frame, **settings):
        return tune(tmp_path / "out", frame, validation_file={"dev": frame[:6]}, save_strategy="epoch", **settings)

    first = finetune(frame)
    record = json.loads((tmp_path / "out" / "run.json").read_text())
    assert record["train_file"].startswith("DataFrame ")
    assert finetune(frame.copy())["accuracy"] == first["accuracy"]
    other = frame.copy()
    other.loc[7, "label"] = "bad" if other.loc[7, "label"] == "good" else "good"
    with pytest.raises(ValueError, match=r"differs: train_file was 'DataFrame \w+', is 'DataFrame \w+'\.$"):
        finetune(other)
    assert finetune(other, overwrite=True).keys() >= {"accuracy"}
    checkpoint = next((tmp_path / "out").glob("checkpoint-*"))
    arguments = torch.load(checkpoint / "training_args.bin", weights_only=False)
    assert type(arguments) is TrainingArguments  # which every script can load, and which has no rows


def test_several_validation_sets_have_names(tmp_path, tune):
    datasets = pytest.importorskip("datasets", reason="a data set is datasets'")
    sets = datasets.DatasetDict(easy=datasets.Dataset.from_list(ROWS[:6]), hard=datasets.Dataset.from_list(ROWS[6:]))
    metrics = tune(tmp_path / "out", ROWS, validation_file=sets)
    assert {"easy_accuracy", "hard_accuracy"} <= metrics.keys()
    found = mybert.evaluate(tmp_path / "out", sets, use_cpu=True)
    assert found["hard_accuracy"] == metrics["hard_accuracy"]


@pytest.mark.parametrize(
    ("name", "message"),
    [("test", "Validation data is named 'test'"), ("a/b", "'a/b' names a data set"), ("", "'' names a data set")],
)
def test_finetune_with_names_that_results_cannot_have_raises(tmp_path, tune, name, message):
    with pytest.raises(ValueError, match=message):
        tune(tmp_path / "out", ROWS, validation_file={name: ROWS[:6], "dev": ROWS[6:]}, test_file=ROWS[:3])
    assert not (tmp_path / "out").exists()


def test_classes_of_a_data_set_have_its_names(tmp_path, tune):
    datasets = pytest.importorskip("datasets", reason="a data set is datasets'")
    data = datasets.Dataset.from_list(ROWS).cast_column("label", datasets.ClassLabel(names=["bad", "good"]))
    tune(tmp_path / "out", data)
    assert json.loads((tmp_path / "out" / "config.json").read_text())["label2id"] == {"bad": 0, "good": 1}

    tags = datasets.Sequence(datasets.ClassLabel(names=["O", "B-X"]))
    features = datasets.Features({"tokens": datasets.Sequence(datasets.Value("string")), "tags": tags})
    columns = {"tokens": [["a", "cat"], ["fish"]], "tags": [[0, 1], None]}
    source = InMemoryData("train_file", datasets.Dataset.from_dict(columns, features=features))
    assert [row.values["tags"] for row in read_task_rows(TASKS["ner"], source, labeled=True)] == [["O", "B-X"], None]


@pytest.mark.parametrize("names", [("LABEL_0", "LABEL_1"), ("LABEL_bad", "LABEL_good")])
@pytest.mark.parametrize("task", ["classification", "tagging"])
def test_classes_may_be_called_as_transformers_calls_those_without_a_name(tmp_path, tune, task, names):
    rows = [("a cat", names[0]), ("a dog", names[1])] * 4
    if task == "tagging":
        rows = [(text.split(), [name, names[0]]) for text, name in rows]
    tune(tmp_path / "out", rows, task=task)
    metrics = mybert.evaluate(tmp_path / "out", rows, use_cpu=True, predictions_dir=tmp_path)
    (file,) = tmp_path.glob("predictions.*")
    again = evaluate_model(EvaluateArguments(task=task, data=rows, predictions=str(file)))
    assert again["accuracy"] == metrics["accuracy"]


def test_test_data_has_labels_in_all_rows_or_in_none(tmp_path, tune):
    for lacking in (0, 3):
        rows = [dict(row) for row in ROWS]
        rows[lacking]["label"] = None
        with pytest.raises(ValueError, match=f"test_file has no label in row {lacking + 1}"):
            tune(tmp_path / "out", ROWS, test_file=rows)


def test_pairs_and_tags_as_tuples(tmp_path, tune):
    tune(tmp_path / "pairs", [((row["text"], "the mat"), row["label"]) for row in ROWS])
    assert json.loads((tmp_path / "pairs" / "config.json").read_text())["finetuned_for"]["text_pair_column"]
    (answer,) = mybert.predict(tmp_path / "pairs", [("the cat", "a dog")], use_cpu=True)
    assert answer["label"] in ("good", "bad")
    tagged = [(row["text"].split(), ["O", "B-X", "O", "O", "O"]) for row in ROWS]
    tune(tmp_path / "tags", tagged, task="tagging")
    assert "f1" in mybert.evaluate(tmp_path / "tags", tagged, use_cpu=True)


@pytest.mark.parametrize(
    ("data", "message"),
    [
        ([{"text": "a cat", "gold": "x"}], r"^train_file has no column 'label'; .* 'text', 'gold'; .* label_column="),
        ([3], r"^train_file, row 1: '3'; expected a tuple of a text or a pair of texts"),
        (3, r"^train_file is 3; expected a file, a table"),
        (np.array("cat"), r"^train_file is array\('cat', dtype='<U3'\); expected a file, a table"),
        ({}, r"^train_file is \{\}; expected a file, a table"),
        ({"text": ["a"], "label": ["b"]}, r"^train_file is a dict of 'text', 'label'; expected a file, a table"),
        (["a.tsv", "b.tsv"], r"^train_file is a\.tsv, b\.tsv; expected one file\."),
        (iter(()), r"^train_file holds no rows"),
    ],
)
def test_mistakes_name_the_argument(tmp_path, tune, data, message):
    with pytest.raises(ValueError, match=message) as found:
        tune(tmp_path / "out", data)
    assert len(str(found.value)) < 500
    assert not (tmp_path / "out").exists()


def test_mistakes_in_what_is_measured(from_file):
    for data, found in (([{"text": "a cat", "label": None}], "^data has no label in row 1"), (3, "^data is 3; exp")):
        with pytest.raises(ValueError, match=found):
            mybert.evaluate(from_file[1], data, use_cpu=True)
    with pytest.raises(TypeError, match="use either an object or keywords"):
        mybert.finetune(FinetuningArguments(model="x", train_file="y", output_dir="z", use_cpu=True), task="cola")


def test_settings_with_data_pickle_without_it(tmp_path, from_file):
    arguments = FinetuningArguments(
        model=str(from_file[1]), train_file=ROWS, validation_file=ROWS[:3], output_dir=str(tmp_path), use_cpu=True
    )
    assert pickle.loads(pickle.dumps(arguments)).train_file == "train_file"
    assert EvaluateArguments(model=str(from_file[1]), data=["a.tsv", "b.tsv"], use_cpu=True).data == ["a.tsv", "b.tsv"]


def test_read_task_rows_of_named_tuples_reads_their_fields():
    """As `DataFrame.itertuples` and rows of databases have them: in another order they were text and label."""
    row = namedtuple("Row", ["label", "text"])
    task = TASKS["classification"]
    rows = read_task_rows(task, InMemoryData("data", [row("x", "a cat"), row("y", "a dog")]), labeled=True)
    assert [(example.texts, example.label) for example in task.examples(rows, labeled=True)] == [
        (("a cat",), "x"),
        (("a dog",), "y"),
    ]


def test_read_task_rows_of_a_list_with_the_name_of_a_file_is_an_error(tmp_path, monkeypatch):
    (tmp_path / "new.txt").write_text("a cat\n")
    monkeypatch.chdir(tmp_path)
    with pytest.raises(
        ValueError, match=r"data, row 2: 'new\.txt' is the name of a file; expected a text, or its path"
    ):
        list(rows_of(["a dog", "new.txt"], TASKS["classification"], new=True))
    texts = ["old.txt", 99 * "see " + "new.txt", "new\0.txt"]
    assert len(list(rows_of(texts, TASKS["classification"], new=True))) == 3


def test_values_of_frames_are_those_of_python():
    pandas = pytest.importorskip("pandas", reason="a data frame is pandas'")
    numpy = pytest.importorskip("numpy")
    frame = pandas.DataFrame({"a": [1, 2], "b": [numpy.array(["x", "y"]), None], "c": [{"d": numpy.array([1])}, None]})
    assert list(frame_rows(frame)) == [{"a": 1, "b": ["x", "y"], "c": {"d": [1]}}, {"a": 2, "b": None, "c": None}]

    class Polars:  # only the used part of its interface
        columns = ("a",)

        def iter_rows(self, named):
            return iter([{"a": 1}])

    assert list(frame_rows(Polars())) == [{"a": 1}]
    assert InMemoryData("x", frame).recorded == InMemoryData("y", frame.copy()).recorded
    assert InMemoryData("x", frame).recorded != InMemoryData("x", frame[::-1]).recorded
    items = [
        {"text": "a", "label": numpy.bool_(True)},
        ("b", torch.tensor(0)),
        {"text": "c", "label": numpy.float32("nan")},
    ]
    values = [row.values for row in read_task_rows(TASKS["classification"], InMemoryData("data", items), labeled=True)]
    expected = [{"text": "a", "label": True}, {"text": "b", "label": 0}, {"text": "c", "label": None}]
    assert repr(values) == repr(expected)
    row = {"question": "q", "context": "c"}
    assert read_task_rows(TASKS["squad"], InMemoryData("data", [row]), labeled=False)[0].values == row
