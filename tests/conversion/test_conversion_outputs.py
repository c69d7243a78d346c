"""Outputs of conversions are complete or absent, locked meanwhile, and never replace other files."""

import errno
import os
import shutil
from pathlib import Path

import pytest

from mybert.conversion import convert_google_checkpoint, export_google_checkpoint, export_onnx, to_transformers_bert
from mybert.conversion.tensorflow import tensor_bundle
from mybert.files.output import BusyError, locked

CLASSIFIER = Path(__file__).parents[1] / "fixtures" / "google_tf1" / "classifier"


@pytest.fixture(scope="module")
def model_dir(tmp_path_factory, save_model):
    folder = tmp_path_factory.mktemp("source") / "model"
    save_model(folder, "encoder")
    return folder


def contents(folder):
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


CONVERSIONS = {
    "google": lambda model, place, **options: convert_google_checkpoint(CLASSIFIER, place / "out", **options),
    "to-google": lambda model, place, **options: export_google_checkpoint(model, place / "out" / "m", **options),
    "to-bert": lambda model, place, **options: to_transformers_bert(model, place / "out", **options),
}


@pytest.mark.parametrize("name", CONVERSIONS)
def test_a_place_in_use_and_what_is_there_are_left_alone(model_dir, tmp_path, name):
    convert = CONVERSIONS[name]
    (tmp_path / "out").mkdir()
    in_use = locked(tmp_path / "out", within=name == "to-google")
    with in_use, pytest.raises(BusyError, match=f"process {os.getpid()}"):
        convert(model_dir, tmp_path, verify=False)
    assert contents(tmp_path) == {}
    convert(model_dir, tmp_path, verify=False)
    before = contents(tmp_path)
    with pytest.raises(ValueError, match="pass overwrite=True"):
        convert(model_dir, tmp_path, verify=False)
    assert contents(tmp_path) == before
    convert(model_dir, tmp_path, verify=False, overwrite=True)
    assert contents(tmp_path).keys() == before.keys()


def test_a_model_is_not_replaced_by_what_is_made_of_it(model_dir, tmp_path):
    shutil.copytree(model_dir, tmp_path / "own" / "model")
    before = contents(tmp_path)
    for output in (tmp_path / "own" / "model", tmp_path / "own"):
        for convert in (to_transformers_bert, export_onnx):
            with pytest.raises(ValueError, match="is already read or written by this call; name another place"):
                convert(tmp_path / "own" / "model", output, overwrite=True)
    assert contents(tmp_path) == before


@pytest.mark.parametrize("existing", [False, True])
def test_a_full_disk_is_named_and_leaves_nothing(model_dir, tmp_path, monkeypatch, existing):
    if existing:
        (tmp_path / "out").mkdir()
        (tmp_path / "out" / "thesis.tex").write_text("mine")

    def fail(*_):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(tensor_bundle, "write_sorted_table", fail)
    with pytest.raises(OSError, match=r"out/m\.[^ ]* could not be written \(the disk is full") as caught:
        export_google_checkpoint(model_dir, tmp_path / "out" / "m")
    assert "partial" not in str(caught.value)
    assert contents(tmp_path) == ({"out/thesis.tex": b"mine"} if existing else {})
    assert (tmp_path / "out").exists() == existing


def test_files_beside_foreign_ones(model_dir, tmp_path):
    for name in ("thesis.tex", "bert_config.json"):
        (tmp_path / name).write_text("mine")
    with pytest.raises(ValueError, match=r"bert_config\.json exists"):
        export_google_checkpoint(model_dir, tmp_path / "m")
    assert {path.name for path in tmp_path.iterdir()} == {"thesis.tex", "bert_config.json"}
    export_google_checkpoint(model_dir, tmp_path / "m", overwrite=True)
    assert (tmp_path / "thesis.tex").read_text() == "mine"
    (tmp_path / "vocab.txt").unlink()
    (tmp_path / "vocab.txt").symlink_to(tmp_path / "thesis.tex")
    with pytest.raises(ValueError, match="a link or folder"):
        export_google_checkpoint(model_dir, tmp_path / "m", overwrite=True)


def test_the_working_directory_takes_a_model_where_it_is_empty(model_dir, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    to_transformers_bert(model_dir, ".", verify=False)
    assert Path("config.json").is_file() and Path.cwd() == tmp_path
    before = contents(tmp_path)
    with pytest.raises(ValueError, match="the working directory"):
        to_transformers_bert(model_dir, ".", verify=False, overwrite=True)
    assert contents(tmp_path) == before


@pytest.mark.parametrize("prefix", ['a"b', "a\\b", "a\nb"])
def test_prefixes_that_no_state_file_can_hold(model_dir, tmp_path, prefix):
    with pytest.raises(ValueError, match=r"prefix|line break"):
        export_google_checkpoint(model_dir, tmp_path / "out" / prefix)
    assert list(tmp_path.iterdir()) == []
