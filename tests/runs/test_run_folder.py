"""A run's folder: one run at a time, never mixed with other files, nothing lost through an error."""

import errno
import hashlib
import json
import os
import shutil
import signal
from contextlib import contextmanager
from pathlib import Path

import pytest

from mybert.files.errors import SettingError
from mybert.files.output import BusyError, locked
from mybert.files.settings import Decision
from mybert.runs import RunFolder, last_complete_checkpoint, state_of_run
from mybert.runs.trainer import seal_checkpoint

SETTINGS = {"command": "pretrain", "seed": 1, "text": ["a.txt"]}


def begin(path, settings=SETTINGS, overwrite=False, **reads):
    with RunFolder(path, overwrite) as folder:
        folder.begin(settings, **reads)
    return last_complete_checkpoint(path)


def names(folder):
    return {path.name for path in folder.iterdir()}


def make_checkpoint(folder, step):
    checkpoint = folder / f"checkpoint-{step}"
    (checkpoint / "below").mkdir(parents=True)
    for name in ("model.safetensors", "trainer_state.json", "optimizer.pt", "scheduler.pt", "rng_state.pth"):
        (checkpoint / name).write_bytes(bytes(100))
    (checkpoint / "below" / "part").write_bytes(bytes(10))
    seal_checkpoint(checkpoint)
    return checkpoint


def test_a_new_folder_is_made_and_found_again(tmp_path):
    folder = tmp_path / "a" / "b"
    assert begin(folder) is None
    assert begin(folder) is None
    newest = make_checkpoint(folder, 10)
    make_checkpoint(folder, 9)
    assert begin(folder) == str(newest)


def test_run_folder_half_written_files_are_removed(tmp_path):
    begin(tmp_path / "run")
    for name in (".new-abcd1234.partial", ".adapter.old-abcd1234.partial", "seed_1/.metrics.json.in-abcd1234.partial"):
        (tmp_path / "run" / name).mkdir(parents=True)
    begin(tmp_path / "run")
    assert {str(path.relative_to(tmp_path / "run")) for path in (tmp_path / "run").rglob("*")} == {
        "run.json",
        "seed_1",
    }


def test_digests_that_are_known_are_not_taken_again(tmp_path):
    """The record of a file: first size and time, then a digest from reading it, or one computed at the end."""
    files = [tmp_path / "a", tmp_path / "b"]
    for file in files:
        file.write_text(file.name)
    digests = {str(files[0]): "of whoever read it"}
    begin(tmp_path / "run", files=files, prepare=lambda place: digests)
    record = json.loads((tmp_path / "run" / "run.json").read_text())["files"]
    expected = ["of whoever read it", hashlib.blake2b(b"b", digest_size=16).hexdigest()]
    assert [record[str(file)]["digest"] for file in files] == expected

    def killed(place):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        begin(tmp_path / "other", files=files, prepare=killed)
    assert '"digest"' not in (tmp_path / "other" / ".preparation.partial" / "run.json").read_text()
    files[0].write_text("changed before anything was known of it")
    with pytest.raises(ValueError, match=r"holds a run on other data; .*a changed since it began"):
        begin(tmp_path / "other", files=files)
    begin(tmp_path / "other", files=files, overwrite=True)
    assert begin(tmp_path / "other", files=files) is None


def test_run_folder_overwrite_of_inputs_is_an_error(tmp_path):
    run = tmp_path / "run"
    begin(run)
    (run / "vocab.txt").write_text("days of work")
    for reads in ({"files": [run / "vocab.txt"]}, {"folders": [run / "checkpoint-1"]}, {"folders": [str(run)]}):
        with pytest.raises(ValueError, match="is already read or written"):
            begin(run, overwrite=True, **reads)
    assert (run / "vocab.txt").exists()
    (tmp_path / "run-2").mkdir()
    begin(run, overwrite=True, folders=[tmp_path / "run-2"])
    assert names(run) == {"run.json"}


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (lambda c: (c / "model.safetensors").write_bytes(bytes(60)), "model.safetensors has 60 of 100 bytes"),
        (lambda c: (c / "below" / "part").unlink(), "no below/part"),
        (lambda c: (c / "complete.json").unlink(), "no complete.json"),
        (lambda c: (c / "complete.json").write_text("[1]"), "complete.json is broken"),
        (lambda c: (c / "complete.json").write_text("{}") and (c / "rng_state.pth").unlink(), "no rng_state*.pth"),
    ],
)
def test_an_incomplete_checkpoint_is_never_taken(tmp_path, caplog, damage, message):
    damage(make_checkpoint(tmp_path, 20))
    assert last_complete_checkpoint(tmp_path) is None
    earlier = make_checkpoint(tmp_path, 10)
    assert last_complete_checkpoint(tmp_path) == str(earlier)
    assert f"checkpoint-20 is not complete ({message})" in caplog.text


def test_seal_checkpoint_deletes_what_safetensors_left(tmp_path):
    checkpoint = make_checkpoint(tmp_path, 1)
    for name in (".tmpAB12cd", ".eval_results"):
        (checkpoint / name).write_text("half")
    seal_checkpoint(checkpoint)
    assert ".tmpAB12cd" not in names(checkpoint)
    listed = json.loads((checkpoint / "complete.json").read_text())
    assert ".eval_results" in listed
    assert ".tmpAB12cd" not in listed


def test_changed_files_are_named(tmp_path):
    files = [tmp_path / "a.txt", tmp_path / "b.txt"]
    for file in files:
        file.write_text("text")
    folder = tmp_path / "run"
    begin(folder, files=files)
    os.utime(files[0], ns=(1, 1))  # touched, but the same
    begin(folder, files=files)
    assert json.loads((folder / "run.json").read_text())["files"][str(files[0])]["modified"] == 1
    files[1].write_text("TEXT")
    with pytest.raises(ValueError, match=r"on other data; .*What differs: [^,]*b.txt changed since it began"):
        begin(folder, files=files)
    assert begin(folder, overwrite=True, files=files) is None
    with pytest.raises(FileNotFoundError, match="nowhere"):
        begin(tmp_path / "other", files=[tmp_path / "nowhere"])
    assert not (tmp_path / "other").exists()


@pytest.mark.parametrize(
    ("foreign", "said"),
    [
        ("thesis.tex", "thesis.tex"),
        ("predictions/mine.tsv", "predictions"),
        ("seed_1/notes.txt", "seed_1/notes.txt"),
        (".git/config", ".git"),
    ],
)
def test_a_folder_with_other_things_is_never_touched(tmp_path, foreign, said):
    run = tmp_path / "run"
    for is_run in (False, True):
        if is_run:
            begin(run)
        (run / foreign).parent.mkdir(parents=True, exist_ok=True)
        (run / foreign).write_text("years of work")
        before = names(run)
        if not is_run:
            with pytest.raises(ValueError, match=rf"exists and holds other things \({said.split('/')[0]}"):
                begin(run)
        named = said if is_run else said.split("/")[0]
        with pytest.raises(ValueError, match=rf"holds files that no run wrote \({named}"):
            begin(run, overwrite=True)
        assert (run / foreign).read_text() == "years of work"
        assert names(run) == before
        shutil.rmtree(run)


def test_a_link_in_a_run_is_a_foreign_thing(tmp_path):
    run, elsewhere = tmp_path / "run", tmp_path / "elsewhere"
    begin(run)
    elsewhere.mkdir()
    (elsewhere / "metrics.json").write_text("")
    (run / "seed_1").symlink_to(elsewhere)
    with pytest.raises(ValueError, match=r"holds files that no run wrote \(seed_1\)"):
        begin(run, overwrite=True)


def test_overwriting_deletes_what_runs_write(tmp_path):
    begin(tmp_path)
    make_checkpoint(tmp_path, 5)
    for name in ("model.safetensors", "predictions_mm.tsv", "seed_7/metrics.json", "last/seed_7/metrics.json"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text("")
    assert begin(tmp_path, SETTINGS | {"seed": 2}, overwrite=True) is None
    assert names(tmp_path) == {"run.json"}
    assert json.loads((tmp_path / "run.json").read_text())["seed"] == 2


def test_links_homes_and_working_directories_are_not_overwritten(tmp_path, monkeypatch):
    run = tmp_path / "run"
    begin(run)
    (tmp_path / "link").symlink_to(run)
    with pytest.raises(ValueError, match="is a symbolic link"):
        begin(tmp_path / "link", overwrite=True)
    assert begin(tmp_path / "link") is None  # resuming is allowed
    monkeypatch.setenv("HOME", str(run / "below"))
    with pytest.raises(ValueError, match="is a home folder or above it"):
        begin(run, overwrite=True)
    (run / "runs").mkdir()
    monkeypatch.chdir(run / "runs")
    with pytest.raises(ValueError, match="is the working directory or above it"):
        begin(run, overwrite=True)


def test_nothing_is_deleted_before_all_is_prepared(tmp_path):
    run = tmp_path / "run"
    begin(run)
    (run / "model.safetensors").write_text("old")
    before = names(run)

    def fails(place):
        (place / "vocab.txt").write_text("new")
        assert names(run) == {*before, ".lock", place.name}
        raise ValueError("vocab_size is 9, but ...")

    def prepares(place):
        assert (run / "model.safetensors").exists()
        (place / "vocab.txt").write_text("new")

    with pytest.raises(ValueError, match="vocab_size is 9"):
        begin(run, SETTINGS | {"seed": 2}, overwrite=True, prepare=fails)
    assert names(run) == before
    assert json.loads((run / "run.json").read_text())["seed"] == 1
    begin(run, SETTINGS | {"seed": 2}, overwrite=True, prepare=prepares)
    assert names(run) == {"run.json", "vocab.txt"}
    assert json.loads((run / "run.json").read_text())["seed"] == 2


def in_a_process_that_is_killed(do):
    """Call a function in a separate process, which `kill` ends; returns whether it did."""
    child = os.fork()
    if child == 0:
        do()
        os._exit(0)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == -signal.SIGKILL


def kill(*args, **kwargs):
    os.kill(os.getpid(), signal.SIGKILL)


@pytest.mark.parametrize("moment", [".old", "run.json", "vocab.txt", "config.json", ".lock"])
def test_begin_killed_while_it_replaces_a_run_leaves_the_new_one(tmp_path, moment):
    run = tmp_path / "run"
    begin(run, {"seed": "old"})
    for name in ("vocab.txt", "model.safetensors"):
        (run / name).write_text("old")
    rename, replace, rmtree = Path.rename, Path.replace, shutil.rmtree

    def prepare(place):
        for name in ("config.json", "vocab.txt"):
            (place / name).write_text("new")

    def killed():
        is_last = lambda path: path.name == moment and path.parent.name == ".preparation.partial"  # noqa: E731
        Path.replace = lambda path, to: kill() if is_last(path) else replace(path, to)
        Path.rename = lambda path, to: kill() if moment == ".old" and ".old-" in str(to) else rename(path, to)
        if moment == ".lock":
            shutil.rmtree = lambda path: kill() if ".old-" in str(path) else rmtree(path)
        begin(run, {"seed": "new"}, overwrite=True, prepare=prepare)

    assert in_a_process_that_is_killed(killed)
    with pytest.raises(ValueError, match="seed was 'new', is 'old'"):  # whoever comes makes the moves that are left
        begin(run, {"seed": "old"})
    assert names(run) == {"run.json", "config.json", "vocab.txt"}
    assert (run / "vocab.txt").read_text() == "new"
    assert begin(run, {"seed": "new"}) is None


def test_begin_killed_while_it_prepares_keeps_the_old_run(tmp_path):
    run = tmp_path / "run"
    begin(run, {"seed": "old"})
    (run / "vocab.txt").write_text("old")

    def prepare(place):
        found.append((place / "vocab.txt").exists())
        (place / "vocab.txt").write_text("new")
        if not found[-1]:
            kill()

    found = []
    assert in_a_process_that_is_killed(lambda: begin(run, {"seed": "new"}, overwrite=True, prepare=prepare))
    assert (run / "vocab.txt").read_text() == "old"
    assert json.loads((run / "run.json").read_text())["seed"] == "old"
    begin(run, {"seed": "new"}, overwrite=True, prepare=prepare)
    assert found == [True]
    assert (run / "vocab.txt").read_text() == "new"


def test_run_folder_files_that_appear_before_the_lock_are_kept(tmp_path, monkeypatch):
    @contextmanager
    def late(path, within):
        (path / "thesis.tex").write_text("years of work")
        with locked(path, within):
            yield

    begin(tmp_path)
    monkeypatch.setattr("mybert.runs.run_folder.locked", late)
    with pytest.raises(ValueError, match=r"holds files that no run wrote \(thesis.tex\)"):
        begin(tmp_path, overwrite=True, prepare=lambda place: pytest.fail("prepares in vain"))
    assert names(tmp_path) == {"run.json", "thesis.tex"}


def test_one_run_at_a_time(tmp_path):
    run = tmp_path / "run"
    with RunFolder(run) as first:
        first.begin(SETTINGS)
        (run / "model.safetensors").write_text("")
        for overwrite in (False, True):
            with pytest.raises(BusyError, match=rf"run is being written by process {os.getpid()} on .*; wait until"):
                begin(run, SETTINGS, overwrite)
        assert names(run) == {"run.json", "model.safetensors", ".lock"}
    assert names(run) == {"run.json", "model.safetensors"}
    begin(run)


@pytest.mark.parametrize(
    ("said", "is_warned"), [("full", True), ("full; the same command continues from there", False)]
)
def test_run_folder_after_an_error_that_may_pass_says_once_that_it_continues(tmp_path, caplog, said, is_warned):
    with pytest.raises(OSError, match="full"), RunFolder(tmp_path) as folder:
        folder.begin(SETTINGS)
        (tmp_path / "checkpoint-1").mkdir()
        raise OSError(said)
    assert ("What was trained is kept; the same command continues from there." in caplog.text) == is_warned


def test_changed_settings_are_named(tmp_path):
    begin(tmp_path)
    with pytest.raises(ValueError, match=r"What differs: seed was 1, is 2\.$"):
        begin(tmp_path, SETTINGS | {"seed": 2})
    with pytest.raises(ValueError, match=r"seed was 1, is 2, delay was None, is 3\.$"):  # what both record first
        begin(tmp_path, SETTINGS | {"delay": 3, "seed": 2})


def test_begin_logs_decisions_that_have_a_reason(tmp_path, caplog):
    decisions = {"bf16": Decision(False, "this machine is old"), "greater_is_better": Decision(True, "")}
    with caplog.at_level("INFO", "mybert"):
        begin(tmp_path, decisions=decisions)
    assert caplog.messages == ["Decided:\n  bf16  False  (this machine is old)"]


def test_state_of_run_with_other_settings_raises_the_error_of_begin(tmp_path):
    begin(tmp_path)
    errors = []
    for call in (begin, state_of_run):
        with pytest.raises(SettingError) as error:
            call(tmp_path, SETTINGS | {"seed": 2})
        errors.append(str(error.value))
    assert errors[0] == errors[1]


def test_a_file_is_no_folder(tmp_path):
    path = tmp_path / "file"
    path.write_text("")
    with pytest.raises(ValueError, match="is a file; expected a folder"):
        begin(path)
    with pytest.raises(OSError, match="Not a directory"):
        begin(path / "below")


@pytest.mark.parametrize("record", ["[]", "null", "{", "[" * 100_000, '{"files": 3}', "\xff"])
def test_a_broken_record_is_said(tmp_path, record):
    (tmp_path / "run.json").write_text(record, encoding="latin-1")
    with pytest.raises(ValueError, match=r"run.json (is not JSON|is nested too|holds no settings|holds a JSON)"):
        begin(tmp_path)
    assert begin(tmp_path, overwrite=True) is None


FULL_DISK = OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
NOT_FOUND = FileNotFoundError(errno.ENOENT, "No such file")


@pytest.mark.parametrize(
    ("error", "before", "since", "stays"),
    [
        (ValueError("The corpus is empty."), False, [], False),
        (ValueError("corpus.jsonl, line 9 is not JSON."), False, ["vocab.txt", ".tokens.partial"], False),
        (NOT_FOUND, False, ["vocab.txt"], False),
        (NOT_FOUND, True, [], True),  # an earlier call prepared something
        (ConnectionError("The Hub does not answer."), False, [], False),
        (ConnectionError("The Hub does not answer."), False, ["vocab.txt", ".tokens.partial"], True),
        (FULL_DISK, False, ["tokens"], True),
        (FULL_DISK, True, [], True),
    ],
)
def test_only_what_a_mistake_left_is_removed(tmp_path, error, before, since, stays):
    def fail(place):
        for name in since:
            (place / name).mkdir()
        raise error

    def prepare_and_lose_the_hub(place):
        (place / "earlier").mkdir()
        raise ConnectionError

    run = tmp_path / "run"
    if before:
        with pytest.raises(ConnectionError):
            begin(run, prepare=prepare_and_lose_the_hub)
    with pytest.raises(type(error)):
        begin(run, prepare=fail)
    assert run.exists() is stays
    if stays:
        begin(run)
        assert names(run) == {"run.json", *(["earlier"] if before else []), *(n for n in since if n[0] != ".")}


def test_a_finished_run_outlives_every_mistake(tmp_path):
    begin(tmp_path)
    (tmp_path / "model.safetensors").write_text("")

    def fail(place):
        raise ValueError("There is no tokenizer.json.")

    for overwrite in (False, True):
        with pytest.raises(ValueError, match=r"no tokenizer\.json"):
            begin(tmp_path, overwrite=overwrite, prepare=fail)
    assert names(tmp_path) == {"run.json", "model.safetensors"}


def test_begin_continues_a_run_with_removed_settings_at_their_defaults(tmp_path):
    """With other values, their computations are gone."""
    run = tmp_path / "out"
    begin(run, SETTINGS | {"relations": ["qq", "kk", "vv"], "relation_heads": None, "mlm_probability_end": None})
    begin(run, SETTINGS)
    for name, value in (("relations", ["vv"]), ("relation_heads", 2), ("mlm_probability_end", 0.15)):
        begin(tmp_path / name, SETTINGS | {name: value})
        with pytest.raises(ValueError, match=rf"other settings.*{name} was .*, is None"):
            begin(tmp_path / name, SETTINGS)
