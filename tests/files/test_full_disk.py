"""A real file system that is full: one sentence, the old thing stays, nothing half-written is left."""

import os
import subprocess

import pytest
import torch

from mybert.files import (
    files_written_beside,
    folder_written_beside,
    readable_disk_errors,
    write_json,
    write_text,
    written_beside,
)
from mybert.runs import RunFolder

FULL = r"could not be written \(the disk is full; 0 MB are free\)"


@pytest.fixture
def disk(tmp_path):
    """A file system of 100 KB, with a file in it."""
    folder = tmp_path / "disk"
    folder.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", "size=100k", "tmpfs", str(folder)]
    try:
        subprocess.run(command, check=True, capture_output=True)
    except (OSError, subprocess.CalledProcessError):
        pytest.skip("a file system can be mounted by root only")
    (folder / "old").write_text("old")
    yield folder
    subprocess.run(["umount", "-l", str(folder)], check=True)


def files_of(disk):
    return {str(path.relative_to(disk)) for path in disk.rglob("*")}


@pytest.mark.parametrize("size", [101_000, 90_000])  # a file that does not fit; a second one that does not
def test_every_way_to_write(disk, size):
    text = "x" * size

    def fill(folder):
        for name in ("a", "b"):
            (folder / name).write_text(text)

    with pytest.raises(OSError, match=FULL):
        write_text(disk / "old", text * 2)
    with pytest.raises(OSError, match=FULL):
        write_json(disk / "old", [text, text])
    with pytest.raises(OSError, match=FULL), written_beside(disk / "old") as temporary:
        temporary.write_text(text * 2)
    with pytest.raises(OSError, match=FULL), files_written_beside(disk) as folder:
        fill(folder)
    with pytest.raises(OSError, match=FULL), files_written_beside(disk / "new" / "deep") as folder:
        fill(folder)
    with pytest.raises(OSError, match=FULL), folder_written_beside(disk / "new") as folder:
        fill(folder)
    with pytest.raises(OSError, match=FULL), readable_disk_errors(disk / "weights.pt"):
        torch.save(torch.zeros(size), disk / "weights.pt")
    (disk / "weights.pt").unlink()
    assert files_of(disk) == {"old"}
    assert (disk / "old").read_text() == "old"


def test_a_run_that_cannot_begin_leaves_nothing(disk):
    (disk / "filler").write_bytes(bytes(4096 * 20))
    free = os.statvfs(disk).f_bavail * 4096
    (disk / "more").write_bytes(bytes(free - 4096))
    with pytest.raises(OSError, match=FULL), RunFolder(disk / "run") as folder:
        folder.begin({"text": "x" * 8000})
    assert files_of(disk) == {"old", "filler", "more"}


def test_a_mount_point_is_not_overwritten(disk):
    (disk / "old").unlink()
    for overwrite in (False, True):
        with RunFolder(disk, overwrite) as folder:
            if overwrite:
                with pytest.raises(ValueError, match="disk is a mount point, so it is not overwritten"):
                    folder.begin({})
            else:
                folder.begin({})
