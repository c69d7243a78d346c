"""Writing without loss: whole or not at all, never over foreign things, one process at a time."""

import errno
import os

import pytest

from mybert.files import files_written_beside


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
