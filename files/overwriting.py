"""Overwriting: only files that commands of this package write, by name, and only with `--overwrite`."""

import fnmatch
import shutil
from collections.abc import Iterable, Sequence
from contextlib import suppress
from pathlib import Path

from .addresses import refuse_address
from .hidden_names import LOCK, is_bookkeeping

# The files of a model folder, as name patterns.
MODEL_FOLDER = (
    *("config.json", "generation_config.json", "model*.safetensors", "model.safetensors.index.json"),
    *("tokenizer.json", "tokenizer_config.json", "special_tokens_map.json", "added_tokens.json", "vocab.txt"),
    *("README.md", ".eval_results/**", "*_mybert.py", "adapter_config.json", "adapter_model.safetensors"),
)


def check_output_folder(path: str | Path, owned: Sequence[str] = (), overwrite: bool = False) -> None:
    """Reject an output folder with files other than `owned` ones, or any files unless `overwrite` is set."""
    # `owned` are name patterns (as in `fnmatch`) of what commands write into such a folder: files; with a slash at the
    # end, folders that contain only such files; with `/**`, folders with any content. Nothing else is ever replaced:
    # no folder with other files, working directory or parent of it, home folder, mount point, or target of a symbolic
    # link.
    path = Path(path)
    check_can_be_folder(path)
    entries = sorted(entry.name for entry in path.iterdir() if not is_bookkeeping(entry)) if path.is_dir() else []
    if not entries:
        return
    others = _foreign(path, owned)
    if not overwrite:
        raise ValueError(
            f"{path} exists and holds other things ({_listed(others or entries)}); "
            f"name another folder{'' if others or not owned else ' or pass --overwrite'}."
        )
    if others:
        raise ValueError(
            f"{path} holds files that no run wrote ({_listed(others)}), so it is not overwritten; name another "
            "folder, or delete it yourself."
        )
    if reason := _reason_to_keep(path):
        raise ValueError(f"{path} is {reason}, so it is not overwritten; name another folder.")


def check_can_be_folder(path: str | Path) -> None:
    """Reject an output path, which need not exist, that cannot be a folder."""
    path = place_to_write(path)
    if "\n" in str(path) or "\0" in str(path):
        raise ValueError(f"The name of the output folder, {str(path)!r}, contains a line break or zero byte.")
    if path.exists() and not path.is_dir():
        raise ValueError(f"{path} is a file; expected a folder to write to.")


def check_not_read(path: str | Path, read: Iterable[str | Path]) -> None:
    """Reject an output that is an input or has one in its folder; names on the Hub are not paths."""
    if any(Path(source).resolve().is_relative_to(Path(path).resolve()) for source in read):
        raise ValueError(f"{path} would be both read and written; name another place.")


def check_output_files(paths: Iterable[str | Path], overwrite: bool = False) -> None:
    """Reject output files that exist, unless `overwrite` is set; links and folders are never replaced."""
    for path in map(place_to_write, paths):
        if "\n" in str(path) or "\0" in str(path):
            raise ValueError(f"The name of the output file, {str(path)!r}, contains a line break or zero byte.")
        if path.is_symlink() or (path.exists() and not path.is_file()):
            raise ValueError(f"{path} is a link or folder, so it is not overwritten; name another place.")
        if path.exists() and not overwrite:
            raise ValueError(f"{path} exists; name another place or pass --overwrite.")


def place_to_write(path: str | Path) -> Path:
    """The path as a `Path`; a URL is an error."""
    refuse_address(path, "a file or folder to write to; copy what is made to an object store afterwards")
    return Path(path)


def clear_folder(path: str | Path, owned: Sequence[str], keep: str = "", last: str = "") -> None:
    """Delete the contents of a folder, after `check_output_folder`; locks stay, and `last` is deleted last."""
    check_output_folder(path, owned, overwrite=True)
    if Path(path).is_dir():
        for entry in sorted(Path(path).iterdir(), key=lambda entry: (entry.name == last, entry.name)):
            if entry.name != keep and not entry.name.endswith(LOCK):
                remove(entry)


def _foreign(folder: Path, owned: Sequence[str]) -> list[str]:
    """The relative paths in a folder that are neither bookkeeping nor owned."""
    whole = [pattern.removesuffix("/**") for pattern in owned if pattern.endswith("/**")]
    folders = [pattern.removesuffix("/") for pattern in owned if pattern.endswith("/")]
    files = [pattern for pattern in owned if not pattern.endswith(("/**", "/"))]
    found: list[str] = []
    for entry in sorted(folder.iterdir()):
        is_folder = entry.is_dir() and not entry.is_symlink()
        if is_bookkeeping(entry) or _is_named(entry, whole if is_folder else files):
            continue
        if is_folder and _is_named(entry, folders):
            found += [f"{entry.name}/{name}" for name in _foreign(entry, owned)]
        else:
            found.append(entry.name)
    return found


def _is_named(entry: Path, patterns: Sequence[str]) -> bool:
    return any(fnmatch.fnmatchcase(entry.name, pattern) for pattern in patterns)


def remove(path: Path) -> None:
    """Delete a file, a link (not its target) or a folder with all its contents."""
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink()


def stays_in_place(path: str | Path) -> bool:
    """Whether a folder must not be renamed: a link, mount point, working directory or home folder."""
    return Path(path).is_dir() and bool(_reason_to_keep(Path(path)))


def _reason_to_keep(path: Path) -> str:
    resolved = path.resolve()
    if path.is_symlink():
        return "a symbolic link"
    if Path.cwd().is_relative_to(resolved):
        return "the working directory or above it"
    with suppress(RuntimeError):  # no home folder is known
        if Path.home().resolve().is_relative_to(resolved):
            return "a home folder or above it"
    if path.is_mount():
        return "a mount point"
    return ""


def _listed(names: Sequence[str]) -> str:
    return ", ".join(names[:3]) + (", ..." if len(names) > 3 else "")
