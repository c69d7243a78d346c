import errno
import os

import pytest

from mybert.runs import last_complete_checkpoint, nothing_left_behind, open_run_folder
from mybert.runs.checkpoints import seal_checkpoint

SETTINGS = {"command": "pretrain", "seed": 1, "text": ["a.txt"]}


def make_checkpoint(folder, step):
    checkpoint = folder / f"checkpoint-{step}"
    (checkpoint / "below").mkdir(parents=True)
    (checkpoint / "model.safetensors").write_bytes(bytes(100))
    (checkpoint / "below" / "part").write_bytes(bytes(10))
    seal_checkpoint(checkpoint)
    return checkpoint


def test_a_new_folder_is_made_and_found_again(tmp_path):
    folder = tmp_path / "a" / "b"
    assert open_run_folder(folder, SETTINGS) is None
    assert open_run_folder(folder, SETTINGS) is None
    newest = make_checkpoint(folder, 10)
    make_checkpoint(folder, 9)
    assert open_run_folder(folder, SETTINGS) == str(newest)


def test_what_the_run_reads_is_not_overwritten(tmp_path):
    run = tmp_path / "run"
    open_run_folder(run, SETTINGS)
    (run / "text.txt").write_text("years of work")
    for reads in ({"files": [run / "text.txt"]}, {"folders": [run / "checkpoint-1"]}, {"folders": [str(run)]}):
        with pytest.raises(ValueError, match="which the run reads, and is to be overwritten"):
            open_run_folder(run, SETTINGS, overwrite=True, **reads)
    assert (run / "text.txt").exists()
    (tmp_path / "run-2").mkdir()
    open_run_folder(run, SETTINGS, overwrite=True, folders=[tmp_path / "run-2"])
    assert not (run / "text.txt").exists()


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (lambda c: (c / "model.safetensors").write_bytes(bytes(60)), "model.safetensors has 60 of 100 bytes"),
        (lambda c: (c / "below" / "part").unlink(), "no below/part"),
        (lambda c: (c / "complete.json").unlink(), "no complete.json"),
    ],
)
def test_an_incomplete_checkpoint_is_never_taken(tmp_path, caplog, damage, message):
    damage(make_checkpoint(tmp_path, 20))
    assert last_complete_checkpoint(tmp_path) is None
    earlier = make_checkpoint(tmp_path, 10)
    assert last_complete_checkpoint(tmp_path) == str(earlier)
    assert f"checkpoint-20 is not complete ({message})" in caplog.text


def test_changed_files_are_named(tmp_path):
    files = [tmp_path / "a.txt", tmp_path / "b.txt"]
    for file in files:
        file.write_text("text")
    folder = tmp_path / "run"
    open_run_folder(folder, SETTINGS, files=files)
    os.utime(files[0], ns=(1, 1))  # touched, but the same
    open_run_folder(folder, SETTINGS, files=files)
    files[1].write_text("TEXT")
    with pytest.raises(ValueError, match=r"on other data: [^,]*b.txt changed since it began"):
        open_run_folder(folder, SETTINGS, files=files)
    assert open_run_folder(folder, SETTINGS, overwrite=True, files=files) is None
    with pytest.raises(FileNotFoundError, match="nowhere"):
        open_run_folder(tmp_path / "other", SETTINGS, files=[tmp_path / "nowhere"])
    assert not (tmp_path / "other").exists()


def test_other_things_are_left_alone(tmp_path):
    (tmp_path / "thesis.tex").write_text("years of work")
    with pytest.raises(ValueError, match=r"exists and holds other things \(thesis.tex\)"):
        open_run_folder(tmp_path, SETTINGS)
    assert (tmp_path / "thesis.tex").exists()
    assert open_run_folder(tmp_path, SETTINGS, overwrite=True) is None
    assert not (tmp_path / "thesis.tex").exists()


def test_changed_settings_are_named(tmp_path):
    open_run_folder(tmp_path, SETTINGS)
    with pytest.raises(ValueError, match="seed was 1, is 2"):
        open_run_folder(tmp_path, SETTINGS | {"seed": 2})


def test_a_file_is_no_folder(tmp_path):
    path = tmp_path / "file"
    path.write_text("")
    with pytest.raises(ValueError, match="is a file; expected a folder"):
        open_run_folder(path, SETTINGS)
    with pytest.raises(OSError, match="Not a directory"):
        open_run_folder(path / "below", SETTINGS)


FULL_DISK = OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


@pytest.mark.parametrize(
    ("error", "before", "since", "stays"),
    [
        (ValueError("The corpus is empty."), [], [], False),
        (ValueError("corpus.jsonl, line 9 is not JSON."), [], ["vocab.txt", ".tokens.parts"], False),
        (FileNotFoundError(errno.ENOENT, "No such file"), [], ["vocab.txt"], False),
        (ValueError("There is no tokenizer.json."), ["model.safetensors", "README.md"], [], True),  # a finished run
        (FileNotFoundError(errno.ENOENT, "No such file"), ["checkpoint-1"], [], True),
        (ConnectionError("The Hub does not answer."), [], [], False),
        (ConnectionError("The Hub does not answer."), [], ["vocab.txt", ".tokens.parts"], True),
        (FULL_DISK, [], ["tokens"], True),
        (FULL_DISK, ["vocab.txt"], [], True),
    ],
)
def test_only_the_folder_of_a_mistake_is_removed(tmp_path, error, before, since, stays):
    run = tmp_path / "run"
    open_run_folder(run, SETTINGS)
    for name in before:
        (run / name).mkdir()
    with pytest.raises(type(error)), nothing_left_behind(run):
        for name in since:
            (run / name).mkdir()
        raise error
    assert run.exists() is stays
    if stays:
        assert {path.name for path in run.iterdir()} == {"run.json", *before, *since}
