"""Moving into place: the old result or the new one, whichever call fails, is interrupted or kills the process."""

import errno
import json
import os
import shutil
import signal
import stat
import sys
from pathlib import Path

import pytest
from filelock import FileLock

from mybert.cli import main
from mybert.files import moves, processes
from mybert.files.moves import Move, finish_all_moves, finish_moves, is_bookkeeping, make_moves, remove
from mybert.files.output import (
    check_output_files,
    folder_written_beside,
    locked,
    output_to,
    outputs_together,
    write_text,
    written_beside,
)
from mybert.files.processes import interruptible
from mybert.runs import RunFolder

# The events that Python raises before calls that change a disk, and which of their arguments are the path, of renames
# the new one, and the open folder that it is relative to.
EVENTS = {
    "open": (0, None),
    "os.mkdir": (0, 2),
    "os.rename": (1, 3),
    "os.remove": (0, 1),
    "os.rmdir": (0, 1),
    "os.chmod": (0, 2),
}


class Injected:
    """Counts the calls that change something below a folder, and lets the n-th one fail."""

    active: "Injected | None" = None

    def __init__(self, root, monkeypatch, fail=None, at=0):
        self.calls, self.root, self.fail, self.at = [], str(root), fail, at
        fsync = os.fsync  # raises no event
        monkeypatch.setattr(os, "fsync", lambda file: (self.count("fsync", file), fsync(file))[1])
        monkeypatch.setattr(Injected, "active", self)

    def count(self, name, path, folder=-1):
        path = Path(f"/proc/self/fd/{path}").readlink() if isinstance(path, int) else Path(os.fsdecode(path))
        if folder != -1:
            path = Path(f"/proc/self/fd/{folder}").readlink() / path
        if path.is_relative_to(self.root):
            self.calls.append((name, str(path.relative_to(self.root))))
            if len(self.calls) == self.at:
                self.fail()


@pytest.fixture(scope="module", autouse=True)
def calls_are_counted():
    def count(event, arguments):
        if event not in EVENTS or not Injected.active:
            return
        if event == "open" and not arguments[2] & (os.O_WRONLY | os.O_RDWR):
            return  # of a folder or file that is read
        path, folder = EVENTS[event]
        Injected.active.count(event.removeprefix("os."), arguments[path], -1 if folder is None else arguments[folder])

    sys.addaudithook(count)  # for good: it cannot be removed


def raise_error(number):
    raise OSError(number, os.strerror(number))


FAILURES = {
    "EIO": lambda: raise_error(errno.EIO),
    "full": lambda: raise_error(errno.ENOSPC),
    "memory": lambda: (_ for _ in ()).throw(MemoryError()),
    "interrupt": lambda: signal.raise_signal(signal.SIGINT),
    "kill": lambda: os.kill(os.getpid(), signal.SIGKILL),
}


def write_file(root):
    write_text(root / "a", "new")


def write_folder(root):
    with output_to(root / "model", ("a", "b", "c"), overwrite=True) as folder:
        for name in "bc":
            write_text(folder / name, "new")


def write_files(root):
    with output_to(root / "model", files=("a", "b"), overwrite=True) as folder:
        for name in "ab":
            write_text(folder / name, "new")


def write_several(root):
    with outputs_together() as open_output:
        for name in ("report", "table"):
            write_text(open_output(root / name, overwrite=True), "new")
        write_text(open_output(root / "model", ("a", "b"), overwrite=True) / "b", "new")
        write_text(open_output(root / "other", files=(), overwrite=True) / "c", "new")


def write_contents(root):
    (root / "model").mkdir(exist_ok=True)
    with folder_written_beside(root / "model", ("a", "b"), overwrite=True, stays=True) as folder:
        write_text(folder / "b", "new")


def write_run(root):
    with RunFolder(root / "run", overwrite=True) as folder:
        folder.begin({"seed": "new"}, prepare=lambda place: write_text(place / "vocab.txt", "new"))


WAYS = [write_file, write_folder, write_files, write_several, write_contents, write_run]
OLD = dict.fromkeys(
    ("a", "report", "table", "model/a", "model/b", "other/a", "run/vocab.txt", "run/metrics.json"), "old"
)
OLD |= {"mine": "mine", "run/run.json": '{"seed": "old", "files": {}}'}


def contents(root):
    """Text by name, without bookkeeping."""
    files = [path for path in root.rglob("*") if path.is_file()]
    return {
        str(path.relative_to(root)): path.read_text()
        for path in files
        if not any(is_bookkeeping(Path(name)) for name in path.relative_to(root).parts)
    }


def make_old(root):
    shutil.rmtree(root, ignore_errors=True)
    for name, text in OLD.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)


def settle(root):
    """Whatever next writes to these places."""
    for name in ("a", "report", "table", "model", "other", "run"):
        for within in {False, (root / name).is_dir()}:
            with locked(root / name, within):
                pass


def fails_at(root, write, failure, at):
    """Write with a failure at a call, in a process if it is killed; returns whether the call succeeded."""
    with pytest.MonkeyPatch.context() as patch:
        if failure == "kill":
            child = os.fork()
            if child == 0:
                Injected(root, patch, FAILURES[failure], at)
                write(root)
                os._exit(0)
            return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
        Injected(root, patch, FAILURES[failure], at)
        try:
            write(root)
        except (OSError, MemoryError, KeyboardInterrupt):
            return False
        return True


def count_calls(root, write):
    make_old(root)
    with pytest.MonkeyPatch.context() as patch:
        calls = Injected(root, patch).calls
        write(root)
    return calls, contents(root)


def check_failing_at(root, write, failure, at, new):
    make_old(root)
    succeeded = fails_at(root, write, failure, at)
    if failure in ("EIO", "full", "interrupt") or succeeded:  # nothing is left to be done by others
        assert contents(root) in ([new] if succeeded else [OLD, new])
    if failure not in ("interrupt", "kill"):
        assert succeeded or contents(root) == OLD
    finish_moves(root / "table")
    settle(root)
    assert contents(root) in (OLD, new)
    assert not succeeded or contents(root) == new
    write(root)
    assert contents(root) == new
    if failure == "kill":
        assert not list(root.rglob(".*"))


@pytest.mark.parametrize("failure", FAILURES)
@pytest.mark.parametrize("write", WAYS)
def test_make_moves_failing_at_a_call_leaves_the_old_or_the_new_result(tmp_path, write, failure):
    calls, new = count_calls(tmp_path / "root", write)
    for at in range(1 + len(failure) % 3, len(calls) + 1, 5):
        check_failing_at(tmp_path / "root", write, failure, at, new)


@pytest.mark.slow
@pytest.mark.parametrize("failure", FAILURES)
@pytest.mark.parametrize("write", WAYS)
def test_make_moves_failing_at_every_call_leaves_the_old_or_the_new_result(tmp_path, write, failure):
    calls, new = count_calls(tmp_path / "root", write)
    for at in range(1, len(calls) + 1):
        check_failing_at(tmp_path / "root", write, failure, at, new)


@pytest.fixture
def handlers(monkeypatch):
    """Signal handlers are restored: those of `interruptible` stay after a signal."""
    monkeypatch.setattr(processes, "_TIME_TO_END", 60)
    previous = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    yield
    for number, handler in previous.items():
        signal.signal(number, handler)


def check_interrupted_at(root, write, at, new):
    make_old(root)
    with pytest.MonkeyPatch.context() as patch, interruptible() as interrupts:
        Injected(root, patch, FAILURES["interrupt"], at)
        try:
            write(root)
        except KeyboardInterrupt:
            assert contents(root) == OLD
        else:
            assert contents(root) == new and interrupts.held == signal.SIGINT
            assert not list(root.rglob(".*"))


@pytest.mark.parametrize("write", WAYS)
def test_make_moves_interrupted_call_ends_if_the_result_is_complete(tmp_path, write, handlers):
    calls, new = count_calls(tmp_path / "root", write)
    for at in range(1 + len(calls) % 3, len(calls) + 1, 3):
        check_interrupted_at(tmp_path / "root", write, at, new)


@pytest.mark.slow
@pytest.mark.parametrize("write", WAYS)
def test_make_moves_call_interrupted_anywhere_ends_if_the_result_is_complete(tmp_path, write, handlers):
    calls, new = count_calls(tmp_path / "root", write)
    for at in range(1, len(calls) + 1):
        check_interrupted_at(tmp_path / "root", write, at, new)


def test_main_interrupted_in_the_last_move_returns_0_and_says_so(tmp_path, handlers, capsys):
    (tmp_path / "text").write_text("a cat\na dog\n" * 20)
    command = ["vocab", str(tmp_path / "text"), "--vocab_size", "200", "--vocab_layout", "compact", "--overwrite"]
    command += ["--output_dir", str(tmp_path / "model"), "--report", str(tmp_path / "report.json")]
    assert main(command) == 0
    before = contents(tmp_path).keys()
    (tmp_path / "report.json").unlink()
    capsys.readouterr()
    with pytest.MonkeyPatch.context() as patch:
        replace = os.replace

        def replace_and_interrupt(path, to):
            replace(path, to)
            if Path(to).name == "report.json":
                signal.raise_signal(signal.SIGINT)

        patch.setattr(os, "replace", replace_and_interrupt)
        assert main(command) == 0
    assert capsys.readouterr().err.splitlines()[-1] == "mybert: interrupted when the result was complete."
    assert contents(tmp_path).keys() == before and not list(tmp_path.rglob(".*"))


@pytest.mark.parametrize("call", ["unlink", "fsync"])
def test_make_moves_failing_after_the_last_move_warns_and_succeeds(tmp_path, monkeypatch, caplog, call):
    make_old(tmp_path)
    has_moved = []
    replace, failing = Path.replace, getattr(os, call)

    def fail_then(path, *args, **kwargs):
        if has_moved:
            raise_error(errno.EIO)
        return failing(path, *args, **kwargs)

    with monkeypatch.context() as patch:
        patch.setattr(Path, "replace", lambda path, to: replace(path, to) and path.name == "b" and has_moved.append(1))
        patch.setattr(os, call, fail_then)
        write_files(tmp_path)
    assert contents(tmp_path / "model") == {"a": "new", "b": "new"}
    left = {"unlink": "model/.moves could not be deleted", "fsync": "model is complete, but could not be synced"}
    assert left[call] in caplog.text and "(Input/output error)" in caplog.text
    finish_moves(tmp_path / "model" / "a")
    with locked(tmp_path / "model", within=True):
        pass
    assert contents(tmp_path / "model") == {"a": "new", "b": "new"} and not list(tmp_path.rglob(".*"))


def write_new_file(root):
    with output_to(root / "report") as path:
        write_text(path, "new")


def write_new_folder(root):
    with output_to(root / "model", ("a",)) as folder:
        write_text(folder / "a", "new")


def write_new_files(root):
    with output_to(root / "model", files=("b", "c")) as folder:
        write_text(folder / "b", "new")
        write_text(folder / "c", "new")


def write_new_outputs(root):
    with outputs_together() as open_output:
        for name in ("report", "table"):
            write_text(open_output(root / name), "new")


@pytest.mark.parametrize("write", [write_new_file, write_new_folder, write_new_files, write_new_outputs])
def test_output_to_of_a_killed_call_is_tidied_by_one_that_may_not_overwrite(tmp_path, write):
    root = tmp_path / "root"

    def make_start():
        shutil.rmtree(root, ignore_errors=True)
        (root / "model").mkdir(parents=True)
        if write is write_new_files:
            (root / "model" / "mine").touch()

    make_start()
    with pytest.MonkeyPatch.context() as patch:
        calls = Injected(root, patch).calls
        write(root)
    new, refusals = contents(root), 0
    for at in range(1, len(calls) + 1):
        make_start()
        assert not fails_at(root, write, "kill", at)
        try:
            write(root)
        except ValueError as error:
            assert "exists" in str(error)
            refusals += 1
        assert contents(root) == new and not list(root.rglob(".*"))
    assert refusals


def test_check_output_files_leaves_what_a_run_in_that_folder_writes(tmp_path):
    write_text(tmp_path / "metrics.json", "old")
    with locked(tmp_path, within=True), written_beside(tmp_path / "metrics.json") as path:
        path.write_text("new")
        with pytest.raises(ValueError, match="exists"):
            check_output_files([tmp_path / "metrics.json"])
    assert (tmp_path / "metrics.json").read_text() == "new"


@pytest.mark.parametrize("write", WAYS)
def test_make_moves_syncs_files_before_and_folders_after_a_rename(tmp_path, write):
    calls, _ = count_calls(tmp_path / "root", write)
    names = [name for name, _ in calls]
    assert "fsync" in names[: names.index("rename")]
    assert "fsync" in names[len(names) - names[::-1].index("rename") :]
    synced = [place for name, place in calls if name == "fsync"]
    files = [place for place in synced if "partial" in place and not place.endswith("partial")]
    assert len(files) == len(set(files))  # each file once


def test_make_moves_records_the_moves_before_the_first_and_the_first_place_last(tmp_path):
    calls, _ = count_calls(tmp_path / "root", write_several)
    records = [".report.moves", ".table.moves", ".model.moves", "other/.moves"]
    renamed = [place for name, place in calls if name == "rename"]
    assert renamed[:4] == records[::-1] and not any(place.endswith(".moves") for place in renamed[4:])
    assert [place for name, place in calls if name == "remove" and place.endswith(".moves")] == records


def test_finish_moves_of_a_foreign_record_touches_nothing_elsewhere(tmp_path):
    folder = tmp_path / "downloaded"
    folder.mkdir()
    (tmp_path / "mine").write_text("mine")
    state = {"old": ".old-0123abcd.partial", "first": ".moves", "places": [["../mine", False], [".", True]]}
    (folder / ".moves").write_text(json.dumps(state | {"source": "..", "entries": ["mine"], "removed": []}))
    with pytest.raises(ValueError, match=r"\.moves names files that are not its own; delete it"):
        finish_moves(folder)
    (folder / ".new-0123abcd.partial").symlink_to(tmp_path)
    source = {"source": ".new-0123abcd.partial"}
    for entries, removed in ((["mine"], []), ([], ["../mine"]), (None, ["a"])):
        (folder / ".moves").write_text(json.dumps(state | source | {"entries": entries, "removed": removed}))
        with pytest.raises(ValueError, match="names files that are not its own"):
            finish_moves(folder)
    for broken in ("", "[]", "{}", '{"first": 1}'):
        (folder / ".moves").write_text(broken)
        with pytest.raises(ValueError, match=r"\.moves is no record of moves"):
            finish_moves(folder)
    (tmp_path / "mine.lock").write_text("mine")
    (folder / ".moves").write_text(json.dumps(state | source | {"entries": [], "removed": [], "first": "../mine"}))
    with pytest.raises(ValueError, match="its first one is no record"):
        finish_moves(folder)
    for wrong, message in (
        ({"places": []}, "names no place with one"),
        ({"places": [["", False]]}, "a place without a name"),
        ({"removed": ["a\0b"]}, "a name with a zero byte"),
    ):
        record = state | source | {"entries": [], "removed": []} | wrong
        (folder / ".moves").write_text(json.dumps(record))
        with pytest.raises(ValueError, match=message):
            finish_moves(folder)
    assert (tmp_path / "mine").read_text() == (tmp_path / "mine.lock").read_text() == "mine"


def write_record(folder, first=".moves", places=(".",)):
    """A move within a folder, of its file `new`, that has not been made."""
    (folder / ".new-0123abcd.partial").mkdir(parents=True)
    (folder / ".new-0123abcd.partial" / "new").touch()
    state = {"old": ".old-0123abcd.partial", "first": first, "places": [[name, True] for name in places]}
    state |= {"source": ".new-0123abcd.partial", "entries": ["new"], "removed": []}
    (folder / ".moves").write_text(json.dumps(state))


@pytest.mark.parametrize("takes_part", [True, False])
def test_finish_moves_makes_those_of_other_places_whose_records_name_the_first(tmp_path, takes_part):
    write_record(tmp_path / "a", places=[".", "../b"])
    write_record(tmp_path / "b", first="../a/.moves" if takes_part else ".moves")
    finish_moves(tmp_path / "a")
    assert (tmp_path / "a" / "new").exists() and (tmp_path / "b" / "new").exists() == takes_part


def test_finish_moves_without_permission_to_write_says_so(tmp_path, monkeypatch):
    write_record(tmp_path / "a")
    monkeypatch.setattr(os, "access", lambda path, mode: mode != os.W_OK)
    with pytest.raises(PermissionError, match=f"cannot be moved without permission to write to {tmp_path}/a"):
        finish_moves(tmp_path / "a")
    assert not (tmp_path / "a" / "new").exists()


def test_finish_moves_that_another_process_makes_meanwhile_leaves_them_to_it(tmp_path, monkeypatch):
    write_record(tmp_path / "a")
    monkeypatch.setattr(moves, "_PATIENCE", 0.01)
    said = f"Another process is moving files into place in {tmp_path}/a; wait until it ends"
    with FileLock(tmp_path / "a" / ".moves.lock"), pytest.raises(OSError, match=said):
        finish_moves(tmp_path / "a")
    acquire = FileLock.acquire

    def acquire_late(lock):
        (tmp_path / "a" / ".moves").unlink()  # its moves are made
        return acquire(lock)

    monkeypatch.setattr(FileLock, "acquire", acquire_late)
    finish_moves(tmp_path / "a")
    assert [path.name for path in (tmp_path / "a").iterdir()] == [".new-0123abcd.partial"]


def test_finish_all_moves_makes_those_of_folders_within_and_beside_their_place(tmp_path):
    write_record(tmp_path / "run" / "a")
    source = tmp_path / "run" / ".b.new-0123abcd.partial"
    source.mkdir()
    (source / "new").touch()
    state = {"source": source.name, "old": ".b.old-0123abcd.partial", "entries": ["new"], "removed": []}
    state |= {"first": ".b.moves", "places": [["b", False]]}
    (tmp_path / "run" / ".b.moves").write_text(json.dumps(state))
    finish_all_moves(tmp_path)
    found = {path.relative_to(tmp_path).as_posix() for path in tmp_path.rglob("*")}
    assert found == {"run", "run/a", "run/a/new", "run/b", "run/b/new"}


def test_make_moves_whose_first_record_cannot_be_deleted_after_an_error_are_made(tmp_path, monkeypatch):
    make_old(tmp_path)
    replace, unlink, fsync = Path.replace, Path.unlink, os.fsync
    failing = []

    def replace_then_fail(path, to):
        replace(path, to)
        if Path(to).name == ".moves":
            failing.append("fsync")

    def fail_once(file):
        if "fsync" in failing:
            failing[:] = ["unlink"]
            raise_error(errno.EIO)
        fsync(file)

    def unlink_unless(path, missing_ok=False):
        if "unlink" in failing and path.name == ".moves":
            raise_error(errno.EIO)
        unlink(path, missing_ok)

    with monkeypatch.context() as patch:
        for target, name, call in ((Path, "replace", replace_then_fail), (os, "fsync", fail_once)):
            patch.setattr(target, name, call)
        patch.setattr(Path, "unlink", unlink_unless)
        write_files(tmp_path)
    assert failing == ["unlink"] and contents(tmp_path / "model") == {"a": "new", "b": "new"}


@pytest.mark.parametrize(("number", "is_said"), [(errno.EINVAL, False), (errno.EIO, True)])
def test_written_beside_where_folders_cannot_be_synced_says_other_errors_only(
    tmp_path, monkeypatch, caplog, number, is_said
):
    fsync = os.fsync
    monkeypatch.setattr(
        os, "fsync", lambda file: raise_error(number) if stat.S_ISDIR(os.fstat(file).st_mode) else fsync(file)
    )
    write_text(tmp_path / "a", "new")
    assert (tmp_path / "a").read_text() == "new" and ("could not be synced" in caplog.text) is is_said


def test_output_to_leaves_where_a_link_leads_alone(tmp_path):
    with output_to(tmp_path / "model", ("a",)) as folder:
        (folder / "a").symlink_to(tmp_path / "gone")
    assert (tmp_path / "model" / "a").readlink() == tmp_path / "gone" and not (tmp_path / "gone").exists()


@pytest.mark.parametrize("names", [("model",), ("model", "a")])
@pytest.mark.parametrize("number", [errno.EXDEV, errno.EBUSY])
def test_make_moves_of_a_folder_that_cannot_be_renamed_moves_its_entries(tmp_path, monkeypatch, number, names):
    """As in a container, where folders of the image cannot be renamed, nor files that are mounted."""
    make_old(tmp_path)
    rename = Path.rename
    monkeypatch.setattr(
        Path, "rename", lambda path, to: raise_error(number) if path.name in names else rename(path, to)
    )
    write_folder(tmp_path)
    assert contents(tmp_path / "model") == {"b": "new", "c": "new"}
    assert not list(tmp_path.rglob(".*"))


def test_written_beside_files_have_the_mode_of_the_umask(tmp_path):
    previous = os.umask(0o027)
    try:
        with written_beside(tmp_path / "a") as path:
            os.close(os.open(path, os.O_CREAT | os.O_WRONLY, 0o600))
        with output_to(tmp_path / "model", ()) as folder:
            os.close(os.open(folder / "b", os.O_CREAT | os.O_WRONLY, 0o600))
    finally:
        os.umask(previous)
    modes = {path.name: oct(path.stat().st_mode & 0o777) for path in tmp_path.rglob("*")}
    assert modes == {"a": "0o640", "model": "0o750", "b": "0o640"}


def test_output_to_failing_to_tidy_warns_and_succeeds(tmp_path, monkeypatch, caplog):
    make_old(tmp_path)
    monkeypatch.setattr(shutil, "rmtree", lambda path, **_: raise_error(errno.EIO))
    write_folder(tmp_path)
    assert contents(tmp_path / "model") == {"b": "new", "c": "new"}
    assert "old-" in caplog.text and "could not be deleted (Input/output error)" in caplog.text


def test_a_call_that_finds_a_result_tidies_the_other_outputs_in_its_folder(tmp_path, monkeypatch, caplog):
    unlink = Path.unlink
    with monkeypatch.context() as patch:
        patch.setattr(
            Path,
            "unlink",
            lambda path, **said: raise_error(errno.EIO) if path.name == ".report.moves" else unlink(path, **said),
        )
        write_several(tmp_path)
    assert ".report.moves could not be deleted" in caplog.text
    assert [path.name for path in tmp_path.glob(".*")] == [".report.moves"]
    with pytest.raises(ValueError, match="table exists"):
        check_output_files([tmp_path / "table"])
    assert not list(tmp_path.glob(".*"))


def test_make_moves_in_vain_leaves_them_to_the_next_reader(tmp_path, monkeypatch):
    make_old(tmp_path)
    replace = Path.replace
    with monkeypatch.context() as patch:
        patch.setattr(
            Path, "replace", lambda path, to: raise_error(errno.EIO) if path.name == "b" else replace(path, to)
        )
        with pytest.raises(OSError, match=r"model is complete but not all of it could be moved .*Input/output error"):
            write_files(tmp_path)
    assert contents(tmp_path / "model") == {"a": "new", "b": "old"}
    finish_moves(tmp_path / "model" / "b")
    assert contents(tmp_path / "model") == {"a": "new", "b": "new"}
    assert not list(tmp_path.rglob(".*"))


def test_make_moves_of_a_folder_in_vain_leaves_them_to_the_next_reader_of_a_file(tmp_path, monkeypatch):
    make_old(tmp_path)
    rename = Path.rename
    with monkeypatch.context() as patch:
        patch.setattr(
            Path, "rename", lambda path, to: raise_error(errno.EIO) if to.name == "model" else rename(path, to)
        )
        with pytest.raises(OSError, match="model is complete but not all of it could be moved"):
            write_folder(tmp_path)
    finish_moves(tmp_path / "model" / "b")
    assert contents(tmp_path / "model") == {"b": "new", "c": "new"}


def test_remove_failing_names_the_whole_path(tmp_path, monkeypatch):
    (tmp_path / "folder" / "below").mkdir(parents=True)
    monkeypatch.setattr(os, "rmdir", lambda path, **_: raise_error(errno.EIO))
    with pytest.raises(OSError, match="Input/output error") as caught:
        remove(tmp_path / "folder")
    assert caught.value.filename == str(tmp_path / "folder")


def test_move_marks_of_a_result_leave_first_and_arrive_last(tmp_path):
    for folder, names in (
        ("there", ("b", "run.json", "metrics.json")),
        ("there/.new-0123abcd.partial", ("run.json", "a", "vocab.txt", "z")),
    ):
        (tmp_path / folder).mkdir()
        for name in names:
            (tmp_path / folder / name).touch()
    move = Move.of(tmp_path / "there" / ".new-0123abcd.partial", tmp_path / "there", within=True, clear=True)
    assert move.entries == ("a", "z", "vocab.txt", "run.json")
    assert move.removed == ("metrics.json", "b")
    make_moves([move])
    assert sorted(path.name for path in (tmp_path / "there").iterdir()) == ["a", "run.json", "vocab.txt", "z"]
