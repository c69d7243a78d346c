"""Writing without loss: whole or not at all, never over foreign things, one process at a time."""

import errno
import os
from pathlib import Path

import pytest
from safetensors import SafetensorError

from mybert.files import BusyError, disk_trouble_in_words, files_written_beside, locked


def test_files_appear_when_all_are_written(tmp_path):
    (tmp_path / "a").write_text("old")
    with (
        pytest.raises(OSError, match=r"could not be written \(the disk is full; [\d,]+ MB are free\)"),
        files_written_beside(tmp_path) as folder,
    ):
        (folder / "a").write_text("new")
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
    assert [path.name for path in tmp_path.iterdir()] == ["a"]
    assert (tmp_path / "a").read_text() == "old"
    with files_written_beside(tmp_path) as folder:
        (folder / "a").write_text("new")
        (folder / "b").write_text("new")
    assert {path.name: path.read_text() for path in tmp_path.iterdir()} == {"a": "new", "b": "new"}


@pytest.mark.parametrize(
    "error",
    [
        OSError(errno.ENOSPC, "No space left on device"),
        OSError(errno.EDQUOT, "Disk quota exceeded"),
        SafetensorError("Error while serializing: I/O error: No space left on device (os error 28)"),
        Exception("No space left on device (os error 28)"),  # tokenizers'
        RuntimeError("PytorchStreamWriter failed: No space left on device"),
    ],
)
def test_a_full_disk_is_called_that_whichever_library_meets_it(tmp_path, error):
    with (
        pytest.raises(
            OSError, match=rf"^{tmp_path}/x could not be written \(the disk is full; [\d,]+ MB are free\); y\.$"
        ),
        disk_trouble_in_words(tmp_path / "x", kept="y"),
    ):
        raise error


@pytest.mark.parametrize(
    "error",
    [ValueError("os error"), Exception("other things"), RuntimeError("shape"), BusyError("busy"), KeyError(28)],
)
def test_other_errors_stay_as_they_are(tmp_path, error):
    with pytest.raises(type(error)) as caught, disk_trouble_in_words(tmp_path):
        raise error
    assert caught.value is error


def test_a_lock_on_a_full_disk(tmp_path, monkeypatch):
    def full(self, *_, **__):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(Path, "write_text", full)
    with (
        pytest.raises(OSError, match=rf"^{tmp_path}/x could not be written \(the disk is full"),
        locked(tmp_path / "x"),
    ):
        pass
    assert list(tmp_path.iterdir()) == []
