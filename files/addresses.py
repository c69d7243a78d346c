"""Addresses of object stores and the web, which are neither files nor folders here."""

import os
import re
from pathlib import Path

# A scheme has two letters at least (one is a drive's); of its slashes `Path` leaves one.
_SCHEME = re.compile(r"^([A-Za-z][A-Za-z0-9+.-]+):/+")


def refuse_address(
    path: str | os.PathLike[str], expected: str = "a file or folder: copy or mount what an object store has"
) -> None:
    """Refuse `s3://bucket/name` and the like where a file or folder is wanted.

    Args:
        path: As it was given, or as a `Path`.
        expected: What is.

    Raises:
        FileNotFoundError: If it is an address, and no file or folder has that name.
    """
    if _SCHEME.match(name := os.fspath(path)) and not Path(path).exists():
        address = _SCHEME.sub(r"\1://", name)
        raise FileNotFoundError(f"{address} is an address; expected {expected}.")
