"""Errors of writing in one sentence: a full disk is called that, whichever library met it."""

import errno
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from safetensors import SafetensorError

from .hidden_names import final_place

# torch.save reports a full disk as a RuntimeError of its writer.
_MARKS_OF_TORCH_SAVE = ("PytorchStreamWriter", "inline_container", "iostream error")
# safetensors and tokenizers, which raises bare `Exception`s, pass on errors of the operating system as text.
_MARKS_OF_RUST = ("os error", "I/O error")
_NO_SPACE = "No space left"
_TORCHS_TROUBLE = "torch could not write to the disk"
_DISK_FULL = (errno.ENOSPC, errno.EDQUOT)


@contextmanager
def disk_trouble_in_words(path: str | Path, kept: str = "") -> Iterator[None]:
    """Report in one sentence that something could not be written, whichever library failed.

    Args:
        path: What is written.
        kept: What the message says about what was kept.

    Raises:
        OSError: In place of errors of the operating system that name no file or tell of a full disk, and of those of
            safetensors, tokenizers and torch's serialization.
    """
    try:
        yield
    except Exception as error:
        if not (cause := _disk_trouble(error)):
            raise
        folder = next(parent for parent in (Path(path), *Path(path).absolute().parents) if parent.is_dir())
        free = shutil.disk_usage(folder).free
        if cause == _TORCHS_TROUBLE and free < 1 << 20:  # torch does not tell which
            cause = "the disk is full"
        what = f"{final_place(Path(path))} could not be written ({cause}; {free / 1e6:,.0f} MB are free)"
        raise OSError(f"{what}; {kept}." if kept else f"{what}.") from error


def _disk_trouble(error: Exception) -> str:
    """Why something could not be written; nothing if the error is another one, or explains itself."""
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
