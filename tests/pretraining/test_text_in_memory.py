"""Pretraining on data frames, data sets and documents gives what a file of the same text gives."""

import json

import pytest

import mybert
from mybert.pretraining import PretrainingArguments

SETTINGS = {
    "vocab_size": 60,
    "layout": "compact",
    "model_size": "tiny",
    "hidden_size": 32,
    "num_hidden_layers": 1,
    "max_length": 32,
    "max_steps": 2,
    "per_device_train_batch_size": 8,
    "num_processes": 1,
    "disable_tqdm": True,
    "use_cpu": True,
}


def kinds_of_text(documents):
    pandas = pytest.importorskip("pandas", reason="a data frame is pandas'")
    datasets = pytest.importorskip("datasets", reason="a data set is datasets'")
    texts = ["\n".join(document) for document in documents]
    return {
        "frame": pandas.DataFrame({"text": texts}),
        "dataset": datasets.Dataset.from_dict({"text": documents}),
        "documents": documents,
        "texts": iter(texts),
    }


@pytest.fixture(scope="module")
def from_file(tmp_path_factory, documents):
    folder = tmp_path_factory.mktemp("file")
    path = folder / "text.txt"
    path.write_text("\n\n".join("\n".join(document) for document in documents) + "\n")
    mybert.pretrain(text=path, output_dir=folder / "out", **SETTINGS)
    return folder / "out"


@pytest.mark.parametrize("kind", ["frame", "dataset", "documents", "texts"])
def test_every_kind_of_text_teaches_as_a_file_does(tmp_path, documents, from_file, kind, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "text").write_text("A file that has the argument's name.")
    mybert.pretrain(text=kinds_of_text(documents)[kind], output_dir=tmp_path / "out", **SETTINGS)
    for name in ("vocab.txt", "tokens.safetensors", "model.safetensors"):
        assert (tmp_path / "out" / name).read_bytes() == (from_file / name).read_bytes(), name
    assert "in memory" in (tmp_path / "out" / "README.md").read_text()
    assert json.loads((tmp_path / "out" / "run.json").read_text())["files"] == {}


@pytest.mark.slow
def test_other_text_is_refused(tmp_path, documents):
    def pretrain(text):
        mybert.pretrain(text=text, output_dir=tmp_path / "out", **SETTINGS)

    pretrain(documents)
    (recorded,) = json.loads((tmp_path / "out" / "run.json").read_text())["text"]
    assert recorded.startswith("list ")
    pretrain([list(document) for document in documents])
    with pytest.raises(ValueError, match="holds a run with other settings"):
        pretrain(documents[::-1])


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (3, "^text is a int; expected files, a table"),
        ({"text": ["a"]}, "^text is a dict; expected files, a table"),
        ([["a cat"], 3], "^text, row 2: .* is int, expected text or a list of texts"),
        ([[]], "^The corpus is empty: there is no text in text"),
    ],
)
def test_mistakes_name_the_argument(tmp_path, text, message):
    with pytest.raises(ValueError, match=message):
        mybert.pretrain(text=text, output_dir=tmp_path / "out", **SETTINGS)
    assert not (tmp_path / "out").exists()


def test_settings_with_text_are_json(tmp_path, documents):
    arguments = PretrainingArguments(text=documents, output_dir=str(tmp_path), use_cpu=True)
    assert json.loads(arguments.to_json_string())["text"] == ["text"]
    assert PretrainingArguments(text=["a", "b"], output_dir=str(tmp_path), use_cpu=True).text == ["a", "b"]
