"""Safe writing: completely or not at all, never over other files, one process at a time."""

import errno
import os
import re
import subprocess
from contextlib import suppress
from functools import partial
from pathlib import Path

import pytest
import torch
from filelock import FileLock
from safetensors import SafetensorError

from mybert.files.errors import refuse_address
from mybert.files.output import (
    BusyError,
    check_output_files,
    check_output_folder,
    files_written_beside,
    final_path,
    folder_written_beside,
    locked,
    output_to,
    place_to_write,
    readable_disk_errors,
    reserved,
    write_json,
    write_text,
    written_beside,
)
from mybert.runs import RunFolder


def test_place_to_write_tilde_is_the_home_folder(tmp_path, monkeypatch):
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.chdir(tmp_path)
    write_text("~/folder/text", "words")
    with output_to(Path("~/other"), owned=()) as folder:
        (folder / "text").touch()
    assert [path.name for path in tmp_path.iterdir()] == ["home"]
    assert {path.name for path in (tmp_path / "home").iterdir()} == {"folder", "other"}
    with pytest.raises(ValueError, match=f"^{re.escape(str(tmp_path))}/home/folder exists and holds other things"):
        check_output_folder("~/folder")


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
    said = rf"^{tmp_path}/x could not be written \(the disk is full; [\d,]+ MB are free\); y\.$"
    with pytest.raises(OSError, match=said), readable_disk_errors(tmp_path / "x", kept="y"):
        raise error


@pytest.mark.parametrize(
    ("written", "named"),
    [
        (".new-0123abcd.partial/x", "x"),
        (".model.v2.new-0123abcd.partial/a/x", "model.v2/a/x"),
        (".tokens.safetensors.partial/x", "tokens.safetensors"),
        (".preparation.partial/.run.json.in-0123abcd.partial/run.json", "run.json"),
        (".x.json.in-0123abcd.partial/x.json", "x.json"),
        (".new-0123abcd.partial/.x.in-0123abcd.partial/x", "x"),
        (".x.old-0123abcd.partial", "x"),
    ],
)
def test_readable_disk_errors_of_temporary_files_name_the_final_place(tmp_path, written, named):
    with pytest.raises(OSError, match=rf"^{tmp_path}/{named} could not"), readable_disk_errors(tmp_path / written):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
    assert final_path(tmp_path / written) == tmp_path / named


def test_written_beside_in_a_folder_that_cannot_be_written_names_the_file_only(tmp_path):
    with pytest.raises(OSError, match=r"x could not be written") as caught, written_beside(tmp_path / "x") as path:
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), str(path))
    assert "partial" not in str(caught.value)


@pytest.mark.parametrize(
    "error",
    [
        *(ValueError("os error"), Exception("other things"), RuntimeError("shape"), BusyError("busy"), KeyError(28)),
        OSError(errno.ENOENT, os.strerror(errno.ENOENT), "vocab.txt"),  # read while the output is written
    ],
)
def test_other_errors_stay_as_they_are(tmp_path, error):
    with pytest.raises(type(error)) as caught, readable_disk_errors(tmp_path):
        raise error
    assert caught.value is error


def test_readable_disk_errors_of_one_without_text_name_its_number(tmp_path):
    said = r"x could not be written \(\[Errno 5\]; [\d,]+ MB are free\)\.$"
    with pytest.raises(OSError, match=said), readable_disk_errors(tmp_path / "x"):
        raise OSError(errno.EIO, "")


def test_a_lock_on_a_full_disk(tmp_path, monkeypatch):
    def full(self, *_, **__):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(Path, "write_text", full)
    with pytest.raises(OSError, match=rf"^{tmp_path}/x could not be .*disk is full"), locked(tmp_path / "x"):
        pass
    assert list(tmp_path.iterdir()) == []


def test_locked_in_a_folder_that_goes_again_and_again_raises_the_error_of_the_system(tmp_path, monkeypatch):
    def acquire(lock):
        raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), lock.lock_file)

    monkeypatch.setattr(FileLock, "acquire", acquire)
    with pytest.raises(FileNotFoundError, match=r"\.x\.lock"), locked(tmp_path / "x"):
        pass


def test_locked_by_a_process_that_has_not_written_its_name_is_busy(tmp_path):
    said = "x is being written by another process; wait"
    with FileLock(tmp_path / ".x.lock"), pytest.raises(BusyError, match=said), locked(tmp_path / "x"):
        pass


@pytest.mark.parametrize("guard", [locked, partial(locked, within=True), written_beside, folder_written_beside])
def test_folders_that_were_made_for_nothing_go_again(guard, tmp_path):
    (tmp_path / "here").mkdir()
    for wrong in (True, False):
        with suppress(ValueError), guard(tmp_path / "here" / "a" / "b" / "c") as place:
            if wrong:
                raise ValueError("the input is")
            if place is not None and guard is written_beside:
                place.write_text("what comes of it")
        assert list(tmp_path.iterdir()) == [tmp_path / "here"]
        stays = not wrong and guard in (written_beside, folder_written_beside)
        assert (tmp_path / "here" / "a" / "b" / "c").exists() == stays
        assert stays or not list((tmp_path / "here").iterdir())


def test_folders_with_something_in_them_stay(tmp_path):
    with pytest.raises(ValueError, match="later"), locked(tmp_path / "a" / "b" / "c"):
        write_text(tmp_path / "a" / "half", "what a later call goes on with")
        raise ValueError("later")
    assert [path.name for path in tmp_path.rglob("*")] == ["a", "half"]


@pytest.mark.parametrize("within", [False, True])
def test_lock_after_a_killed_process_removes_its_files(tmp_path, within):
    place = tmp_path / "a+b.bin"
    beside = place if within else tmp_path
    beside.mkdir(exist_ok=True)
    others = [".a+b.bin.partial", ".aab.bin.in-0123abcd.partial", ".a+b.bin.old", "a+b.bin.x"]
    others.append(".a+b.bin.safetensors.partial")  # the chunks of a token store
    left, another = ".new-0123abcd.partial", ".a+b.bin.new-0123abcd.partial"
    if not within:
        left, another = another, left
    for name in others:
        (beside / name).touch()
    for name in (left, another):
        (beside / name / "files").mkdir(parents=True)
    others.append(another)
    with locked(place, within=within):
        pass
    assert {path.name for path in beside.iterdir()} == set(others)


def test_addresses_are_no_files(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    address = "s3://bucket/x"
    sentence = "^s3://bucket/x is an address; expected a file or folder to write to"
    for write in (check_output_folder, lambda path: check_output_files([path]), lambda path: write_text(path, "x")):
        for path in (address, Path(address)):
            with pytest.raises(FileNotFoundError, match=sentence):
                write(path)
    assert not list(tmp_path.iterdir())
    for path in ("C:/x", "a:b/c", "x", "http:", tmp_path):  # names of files all the same
        refuse_address(path)
    Path(address).mkdir(parents=True)
    refuse_address(address)


@pytest.mark.parametrize("settings", [{}, {"owned": ("a",)}, {"files": ("a",)}, {"files": ("a",), "new": True}])
def test_output_is_checked_locked_and_written_as_a_whole(tmp_path, settings):
    is_new = settings.pop("new", False)
    place = tmp_path / "place"
    if settings and not is_new:
        place.mkdir()
    target = place / "a" if settings else place
    file_in = lambda temporary: temporary / "a" if settings else temporary  # noqa: E731
    with pytest.raises(ValueError, match="later"), output_to(place, **settings) as temporary:
        file_in(temporary).write_text("half")
        raise ValueError("later")
    assert [path.name for path in tmp_path.rglob("*")] == (["place"] if settings and not is_new else [])
    with reserved(place, **settings) as output:
        with pytest.raises(BusyError), output_to(place, **settings):
            pass
        with output.written() as temporary:
            file_in(temporary).write_text("whole")
            assert not target.exists()
        assert target.read_text() == "whole"
    for wrong in ({}, {"overwrite": True, "read": [target]}):
        with pytest.raises(ValueError, match="place"), output_to(place, **settings, **wrong):
            raise AssertionError("it was checked")
    with output_to(place, **settings, overwrite=True) as temporary:
        file_in(temporary).write_text("new")
    assert [path.name for path in tmp_path.rglob("*")] == (["place", "a"] if settings else ["place"])
    assert target.read_text() == "new"


@pytest.mark.parametrize("settings", [{}, {"owned": ("a",)}, {"files": ("a",)}])
def test_output_that_appears_meanwhile_stays(tmp_path, settings):
    target = tmp_path / "place" / "a" if settings else tmp_path / "place"
    with pytest.raises(ValueError, match="exists"), output_to(tmp_path / "place", **settings) as temporary:
        (temporary / "a" if settings else temporary).write_text("mine")
        target.parent.mkdir(exist_ok=True)
        target.write_text("another's")
    assert target.read_text() == "another's"
    assert not [path for path in tmp_path.rglob("*") if path.name.startswith(".")]


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
@pytest.mark.parametrize(
    ("write", "place"),
    [
        (written_beside, "old"),
        (files_written_beside, ""),
        (files_written_beside, "new/deep"),
        (folder_written_beside, "new"),
        (output_to, "new"),
    ],
)
def test_every_way_to_write(disk, size, write, place):
    with pytest.raises(OSError, match=FULL), write(disk / place) as temporary:
        for name in "ab" if temporary.is_dir() else [""]:
            (temporary / name).write_text("x" * (size if name else 2 * size))
    with pytest.raises(OSError, match=FULL):
        write_json(disk / "old", ["x" * size, "x" * size])
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
    with RunFolder(disk, False) as folder:
        folder.begin({})
    with RunFolder(disk, True) as folder, pytest.raises(ValueError, match="disk is a mount point"):
        folder.begin({})


@pytest.mark.parametrize("name", ["two\nlines", "a\0b"])
def test_a_name_that_would_break_a_line_is_no_place_to_write_to(name):
    with pytest.raises(ValueError, match=r"The name of the output file, .*, contains a line break or zero byte"):
        place_to_write(name)


def test_readable_disk_errors_of_a_folder_that_another_process_has_deleted(tmp_path):
    with pytest.raises(OSError, match="x could not be written"), readable_disk_errors(tmp_path / "x"):
        torch.save({}, tmp_path / "gone" / "x")
