"""Write errors in one sentence; a full disk is named as such, whichever library raised the error."""

import errno
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from safetensors import SafetensorError

from .hidden_names import final_place

# torch.save reports a full disk as a RuntimeError of its writer.
_MARKS_OF_TORCH_SAVE = ("PytorchStreamWriter", "inline_container", "iostream error")
# safetensors and tokenizers, which raises bare `Exception`s, report errors of the operating system as text.
_MARKS_OF_RUST = ("os error", "I/O error")
_NO_SPACE = "No space left"
_TORCHS_TROUBLE = "torch could not write to the disk"
_DISK_FULL = (errno.ENOSPC, errno.EDQUOT)


@contextmanager
def disk_trouble_in_words(path: str | Path, kept: str = "") -> Iterator[None]:
    """Report write errors, whichever library raised them, in one sentence; `kept` says what is still there."""
    try:
        yield
    except Exception as error:
        if not (cause := _disk_trouble(error)):
            raise
        folder = next(parent for parent in (Path(path), *Path(path).absolute().parents) if parent.is_dir())
        free = shutil.disk_usage(folder).free
        if cause == _TORCHS_TROUBLE and free < 1 << 20:  # torch does not report the cause
            cause = "the disk is full"
        what = f"{final_place(Path(path))} could not be written ({cause}; {free / 1e6:,.0f} MB are free)"
        raise OSError(f"{what}; {kept}." if kept else f"{what}.") from error


def _disk_trouble(error: Exception) -> str:
    """The cause of a write error; empty if it is another error, or explains itself."""
    cause = " ".join(str(error).split())
    if isinstance(error, OSError):
        if error.errno is None:
            return ""
        if error.strerror:
            cause = f"{error.filename}: {error.strerror}" if error.filename else error.strerror
    elif isinstance(error, RuntimeError):
        if not any(mark in cause for mark in _MARKS_OF_TORCH_SAVE):
            return ""
        cause = cause if _NO_SPACE in cause else _TORCHS_TROUBLE
    elif type(error) not in (SafetensorError, Exception) or not any(mark in cause for mark in _MARKS_OF_RUST):
        return ""
    is_full = _NO_SPACE in cause or (isinstance(error, OSError) and error.errno in _DISK_FULL)
    return "the disk is full" if is_full else cause
