"""The folder of a run: one run at a time, never mixed with other files, resumed; and the processes of a run."""

import json
import logging
import os
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import ExitStack
from datetime import timedelta
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import torch
import torch.distributed as dist
from accelerate.utils import parse_flag_from_env

from ..files.checkpoint import read_json_object
from ..files.errors import SettingError
from ..files.moves import (
    PREPARATION,
    Move,
    discard,
    finish_all_moves,
    finish_moves,
    is_bookkeeping,
    make_moves,
    temporary_path,
)
from ..files.output import (
    MODEL_FOLDER,
    check_not_read,
    check_output_folder,
    locked,
    place_to_write,
    readable_disk_errors,
    write_json,
)
from ..files.progress import progress_bar
from ..files.settings import Decision
from ..files.text import file_of, new_digest
from ..visualization import training_curves
from .plan_report import shown_decisions

if TYPE_CHECKING:
    from transformers import TrainingArguments

logger = logging.getLogger(__name__)

RUN_FILE = "run.json"
_FILES, _DECISIONS = "files", "decisions"  # keys in run.json, next to the settings
# What runs write into their folders, as `check_output_folder` takes it.
RUN_FOLDER = (
    *(*MODEL_FOLDER, RUN_FILE, "checkpoint-*/**", "trainer_state.json", "training_args.bin", "training_curves.png"),
    *("tokens.safetensors", "metrics.json", "adaptation.json", "distillation.json"),
    *("predictions*", "nbest_predictions*.json", "null_odds*.json"),
    "chat_template.jinja",  # of a tokenizer
    *("class_report*.json", "class_report*.txt", "confusion_matrix*.png", "errors*.tsv", "fold_outputs.safetensors"),
    *("seed_*/", "fold_*/", "all_examples/", "adapter/**", "teacher_outputs/**", "runs/", "events.out.tfevents.*"),
    *("embeddings/", "second_to_last/", "last/", "weighted_last_four/", "concat_last_four/", "weighted_all/"),
)
# Errors that would recur without a change by the user; others, such as network errors or a full disk, may not.
_USER_ERRORS = (ValueError, FileNotFoundError, PermissionError, IsADirectoryError, NotADirectoryError)


class RunFolder(ExitStack):
    """A run's folder, locked against other processes until the `with` block ends.

        with RunFolder(arguments.output_dir, arguments.overwrite) as folder:
            prepare_once(arguments.should_save, lambda: folder.begin(settings, files, folders, prepare))
            ...  # train, from `last_complete_checkpoint`

    User errors are found before or in `prepare`; nothing is deleted until it has returned. Settings and digests of the
    files are stored in `run.json`, which marks the folder as a run's.

    Args:
        path: The folder.
        overwrite: Whether an earlier run in it may be deleted, with everything that runs write (`RUN_FOLDER`). A
            folder with anything else in it is never touched.
        kept: What a call that fails leaves to the next one, for a message; none if it is empty.
    """

    def __init__(self, path: str | Path, overwrite: bool = False, kept: str = "What was trained") -> None:
        super().__init__()
        self.path = place_to_write(path, "folder")
        self.overwrite = overwrite
        self._kept, self._is_begun = kept, False

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: Any) -> None:
        """Release the folder; after an error that may pass, log that the run can be continued."""
        if isinstance(error, (OSError, MemoryError, KeyboardInterrupt)) and self._is_begun and self._kept:
            there = [*self.path.iterdir()] if self.path.is_dir() else []
            has_more = any(not is_bookkeeping(entry) and entry.name != RUN_FILE for entry in there)
            if has_more and "the same command" not in str(error):
                without = " without --overwrite" if self.overwrite else ""
                logger.warning("%s is kept; the same command%s continues from there.", self._kept, without)
        super().__exit__(kind, error, trace)

    def begin(
        self,
        settings: Mapping[str, Any],
        files: Sequence[str | Path] = (),
        folders: Sequence[str | Path] = (),
        prepare: Callable[[Path], Mapping[str, str] | None] | None = None,
        decisions: Mapping[str, Decision] | None = None,
    ) -> None:
        """Begin a run, or resume an interrupted one with the same settings and files.

        Settings (as JSON values) and contents of the files determine the result; `folders` are other inputs, such as
        model folders. Decisions are logged, stored with the settings, and not compared. A file is read once;
        afterwards it counts as unchanged as long as its size and modification time are. `prepare` makes what is
        missing in the folder that it is given, and raises an error if the run is impossible; it may return the
        digests of files that it has read completely (`open_text`). After a user error (ValueError, a missing file)
        what it made for a new run is removed; after others the next call uses it. A ValueError says why the folder
        cannot be used, a `BusyError` which process works in it.
        """
        files = list(dict.fromkeys(map(file_of, files)))
        finish_moves(self.path)
        self._check(files, folders)
        self.enter_context(locked(self.path, within=True))
        self._check(files, folders)  # again, now that no other process writes
        finish_all_moves(self.path)
        preparation = self.path / PREPARATION
        if not (preparation / RUN_FILE).is_file():
            discard(preparation)  # its files have been moved
        goes_on = (self.path / RUN_FILE).is_file() and not self.overwrite
        place = self.path if goes_on else preparation
        record, is_new = self._take_up(place / RUN_FILE, settings, files, decisions or {})
        digests: Mapping[str, str] = {}
        if prepare is not None:
            try:
                digests = prepare(place) or {}
            except (ValueError, OSError, MemoryError, KeyboardInterrupt) as error:
                has_prepared = [entry.name for entry in place.iterdir()] != [RUN_FILE]
                is_lasting = isinstance(error, _USER_ERRORS)
                if is_new and (is_lasting or (isinstance(error, OSError) and not has_prepared)):
                    discard(place, temporary_path(place, "old"))
                elif has_prepared and not is_lasting:
                    logger.warning("What was prepared is kept; the same command continues from there.")
                raise
        without = {name: state for name, state in record[_FILES].items() if "digest" not in state}
        if without:
            digests = {**_digests_of([name for name in without if name not in digests]), **digests}
            for name, state in without.items():
                state["digest"] = digests[name]
            write_json(place / RUN_FILE, record)
        if not goes_on:
            check_output_folder(self.path, RUN_FOLDER, overwrite=True)  # something may have appeared there meanwhile
            with readable_disk_errors(self.path):
                make_moves([Move.of(preparation, self.path, within=True, clear=True)])
        self._is_begun = True
        if chosen := {name: each for name, each in (decisions or {}).items() if each.reason}:
            logger.info("Decided:\n%s", shown_decisions(chosen))

    def _check(self, files: Sequence[str | Path], folders: Sequence[str | Path]) -> None:
        """Reject a folder with other files, or one to be overwritten that contains an input of the run."""
        is_run = any((self.path / place / RUN_FILE).is_file() for place in ("", PREPARATION))
        if not is_run or self.overwrite:
            check_output_folder(self.path, RUN_FOLDER if is_run else (), self.overwrite)
        if self.overwrite:
            check_not_read(self.path, [*files, *folders])

    def _take_up(
        self,
        run_file: Path,
        settings: Mapping[str, Any],
        files: Sequence[str | Path],
        decisions: Mapping[str, Decision],
    ) -> tuple[dict[str, Any], bool]:
        """The record of the run, and whether it is new; another run there is an error, or replaced."""
        record: dict[str, Any] = json.loads(json.dumps(settings))  # as when read back: tuples become lists
        is_new, changes, known = not run_file.is_file(), "", dict[str, Any]()
        if not is_new:
            earlier, known = _read_record(run_file)
            changes = _changed_settings(earlier, record) or _other_files(known, set(map(str, files)))
        other = _WITH_OTHER_SETTINGS
        if not changes:
            states = _file_states(files, known)
            changed = [name for name in states if states[name].get("digest") != known.get(name, {}).get("digest")]
            if changed:
                other, changes = "on other data; restore it", f"{', '.join(sorted(changed))} changed since it began"
        if changes:
            if not self.overwrite:
                raise _other_run_error(self.path, changes, other)
            aside = temporary_path(self.path, "old", within=True)
            run_file.parent.rename(aside)  # half deleted, it could be taken for prepared files
            discard(aside)
            is_new, states = True, _file_states(files, {})
        record |= {_DECISIONS: {name: each._asdict() for name, each in decisions.items()}} if decisions else {}
        record[_FILES] = states
        if is_new or states != known:
            write_json(run_file, record)
        return record, is_new


# Settings that the first builds recorded and that are gone, with the values that are still computed.
_REMOVED = {"relations": ["qq", "kk", "vv"]}


def state_of_run(path: str | Path, settings: Mapping[str, Any], overwrite: bool = False) -> str:
    """What a run would be in its folder: "new", "continued" or "replaced"; a ValueError if it could not be there."""
    folder = Path(path)
    is_run = (folder / RUN_FILE).is_file()
    if not is_run or overwrite:
        check_output_folder(folder, RUN_FOLDER if is_run else (), overwrite)
        return "replaced" if is_run else "new"
    earlier, _ = _read_record(folder / RUN_FILE)
    if changes := _changed_settings(earlier, json.loads(json.dumps(settings))):
        raise _other_run_error(folder, changes)
    return "continued"


def _read_record(run_file: Path) -> tuple[dict[str, Any], dict[str, Any]]:
    """The settings of the run that a file records, and the states of its files."""
    record = read_json_object(run_file)
    files = record.pop(_FILES, {})
    record.pop(_DECISIONS, None)
    if not isinstance(files, dict):
        raise ValueError(f"{run_file} holds no settings; expected the record of a run.")
    return record, files


_WITH_OTHER_SETTINGS = "with other settings; repeat those"


def _other_run_error(folder: Path, changes: str, other: str = _WITH_OTHER_SETTINGS) -> SettingError:
    template = "{} holds a run {}, name another folder[, or pass {overwrite=True}]. What differs: {}."
    return SettingError.worded(template, folder, other, changes)


def _changed_settings(earlier: Mapping[str, Any], current: Mapping[str, Any]) -> str:
    """Name what differs; first what both record, for it decides what else is recorded."""
    earlier = {name: value for name, value in earlier.items() if name in current or value != _REMOVED.get(name)}
    names = [name for name in {*earlier, *current} if earlier.get(name) != current.get(name)]
    names.sort(key=lambda name: (name not in earlier or name not in current, name))
    return ", ".join(f"{name} was {earlier.get(name)!r}, is {current.get(name)!r}" for name in names)


def _other_files(earlier: Collection[str], current: Collection[str]) -> str:
    """Files that are only in the current or only in the earlier run, for a message."""
    new = [f"{name} is new" for name in sorted(set(current) - set(earlier))]
    gone = [f"{name} is no longer read" for name in sorted(set(earlier) - set(current))]
    return ", ".join([*new[:5], *gone[:5]])


def _file_states(files: Sequence[str | Path], known: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    """Size, modification time and digest of files; entries of `known` are reused."""
    states: dict[str, dict[str, Any]] = {}
    for name in map(str, files):
        stat = Path(name).stat()
        states[name] = {"size": stat.st_size, "modified": stat.st_mtime_ns}
        if states[name].items() <= known.get(name, {}).items():
            states[name] = known[name]
    # A file whose modification time has changed is read again; a new file has no digest yet.
    changed = [name for name in states if name in known and states[name] is not known[name]]
    for name, digest in _digests_of(changed).items():
        states[name]["digest"] = digest
    return states


def _digests_of(files: Sequence[str]) -> dict[str, str]:
    total = sum(Path(name).stat().st_size for name in files)
    digests: dict[str, str] = {}
    with progress_bar(desc="Fingerprint of the data", total=total, unit="B", unit_scale=True, delay=2) as progress:
        for name in files:
            digest = new_digest()
            with Path(name).open("rb") as content:
                while block := content.read(1 << 22):
                    digest.update(block)
                    progress.update(len(block))
            digests[name] = digest.hexdigest()
    return digests


def draw_curves(log_history: list[dict[str, float]], output_dir: Path) -> None:
    """Draw `training_curves.png`; only warn if matplotlib is missing or there are no log entries."""
    try:
        training_curves(log_history, output_dir / "training_curves.png")
    except (ImportError, ValueError) as error:
        logger.warning(str(error))


T = TypeVar("T")

# the default timeout of collectives, half an hour, is too short for a large corpus
_LONGEST_PREPARATION = timedelta(days=30)


def started_on_cpus() -> bool:
    """Whether a launcher (torchrun) started several processes on a machine without accelerators for them.

    They form one run only with `use_cpu` in `TrainingArguments`. Without it each would train separately.
    """
    if int(os.environ.get("WORLD_SIZE", "1")) < 2:
        return False
    accelerator = torch.accelerator.current_accelerator() if torch.accelerator.is_available() else None
    return accelerator is None or accelerator.type == "mps"  # a machine has only one


def is_sharded(arguments: "TrainingArguments") -> bool:
    """Whether a run is to be sharded by FSDP, by its settings or by those of `accelerate launch`."""
    return arguments.fsdp_plugin_args is not None or parse_flag_from_env("ACCELERATE_USE_FSDP")


@cache
def _on_the_hosts(processes: Any) -> Any:
    """The run's processes as a group that communicates on the CPU, without waiting for accelerators."""
    return processes if dist.get_backend(processes) == "gloo" else dist.new_group(backend="gloo")


def broadcast_value(value: float, arguments: "TrainingArguments", largest: bool = False) -> float:
    """Return the first process's value, or the largest, in every process of a run; all must call this."""
    if arguments.world_size == 1:
        return value
    group, shared = _on_the_hosts(dist.group.WORLD), torch.tensor(value, dtype=torch.float64)
    if largest:
        dist.all_reduce(shared, op=dist.ReduceOp.MAX, group=group)
    else:
        dist.broadcast(shared, src=0, group=group)
    return float(shared)


def prepare_once(writes: bool, prepare: Callable[[], T]) -> T:
    """Prepare files in one process of the run, or of each node, while the others wait; all return its result.

    `writes` is `should_save` of `TrainingArguments`: with `save_on_each_node`, nodes without a shared file system
    prepare their own files. The result is pickled. Where `prepare` raises an error, the others exit with status 2.
    """
    if not dist.is_available() or not dist.is_initialized():
        return prepare()
    error: Exception | None = None
    result: Any = None
    if writes:
        try:
            result = prepare()
        except Exception as found:
            error = found
    group = dist.new_group(backend="gloo", timeout=_LONGEST_PREPARATION)
    failures = [False] * dist.get_world_size()
    dist.all_gather_object(failures, error is not None, group=group)
    received = [result]
    if not any(failures):
        dist.broadcast_object_list(received, src=0, group=group)
    dist.destroy_process_group(group)
    if error is not None:
        raise error
    if any(failures):
        raise SystemExit(2)
    return received[0]


def log_on_main_process(arguments: "TrainingArguments") -> None:
    """Let only the first process of a run log and show progress."""
    if arguments.process_index != 0:
        arguments.disable_tqdm = True
        logging.getLogger(__package__.partition(".")[0]).setLevel(logging.ERROR)
