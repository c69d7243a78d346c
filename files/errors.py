"""Error messages for users, in one sentence."""

import errno
import os
import re
from pathlib import Path

from safetensors import SafetensorError

LONGEST_SENTENCE = 500  # characters; the middle of a longer message is cut out
_NO_MEMORY = re.compile("out of memory|can't allocate memory|not enough memory", re.IGNORECASE)  # torch's words

_OF_TRAIN = {"sklearn": "scikit-learn", "scipy": "scipy"}  # imported where a metric needs them


def how_to_install(extra: str) -> str:
    """The step that installs the packages of an extra, for messages; true of a package that is not on an index."""
    return f"run pip install '.[{extra}]' in the clone of mybert"


def user_message(error: Exception) -> str:
    """The message for a user error or a lack of resources; "" for any other error."""
    text = " ".join(str(error).split())
    if isinstance(error, MemoryError) or (isinstance(error, RuntimeError) and _NO_MEMORY.search(text)):
        text = f"not enough memory ({text or 'an allocation failed'})."
    elif isinstance(error, RecursionError):
        text = "the input is nested too deeply."
    elif isinstance(error, SafetensorError):
        text = f"the weights are not a complete safetensors file: {text}."
    elif isinstance(error, OSError) and error.strerror:
        cause = "the disk is full" if error.errno in (errno.ENOSPC, errno.EDQUOT) else error.strerror
        text = f"{error.filename}: {cause}." if error.filename else f"{cause}."
        if error.errno == errno.ENOENT and error.filename:
            text = f"There is no file or folder {error.filename}."
        elif error.errno == errno.EISDIR and error.filename:
            text = f"{error.filename} is a folder; expected a file."
    elif isinstance(error, ImportError) and (package := _OF_TRAIN.get(str(error.name).partition(".")[0])):
        text = f"This needs the package {package}: {how_to_install('train')} ({text})."
    elif not isinstance(error, ValueError | OSError | ImportError):
        return ""
    half = (LONGEST_SENTENCE - 5) // 2
    return text if len(text) <= LONGEST_SENTENCE else f"{text[:half]} ... {text[-half:]}"


def abbreviated(text: str, most: int = 80) -> str:
    """The beginning of a text, if it has more than `most` characters."""
    return text if len(text) <= most else f"{text[: most - 3]}..."


def first_line(error: Exception) -> str:
    """The first line of an error's message, without the full stop."""
    return (str(error).splitlines() or [type(error).__name__])[0].rstrip(".")


# A scheme has at least two letters (one letter is a drive); `Path` reduces its slashes to one.
_SCHEME = re.compile(r"^([A-Za-z][A-Za-z0-9+.-]+):/+")


def refuse_address(
    path: str | os.PathLike[str], expected: str = "a file or folder: copy or mount what an object store has"
) -> None:
    """Reject `s3://bucket/name` and the like, unless a file has that name, where a file or folder is expected."""
    if _SCHEME.match(name := os.fspath(path)) and not Path(path).exists():
        address = _SCHEME.sub(r"\1://", name)
        raise FileNotFoundError(f"{address} is an address; expected {expected}.")
