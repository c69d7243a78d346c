"""The errors of conversions. Each sentence names the file, what was found and what was expected."""

from collections.abc import Iterator
from contextlib import contextmanager


class ConversionError(ValueError):
    """A checkpoint, archive or model folder cannot be converted."""


class ArchiveError(ConversionError):
    """An archive is broken or malicious."""


class TensorBundleError(ConversionError):
    """A TensorFlow checkpoint file is broken, or uses an unsupported feature."""


class MissingFileError(TensorBundleError, FileNotFoundError):
    """A file of a TensorFlow checkpoint is missing."""


class MalformedError(TensorBundleError):
    """Malformed bytes; raised where the file's name is unknown, which `naming` adds."""


@contextmanager
def naming(path: object) -> Iterator[None]:
    """Put the file's name in front of errors about its bytes."""
    try:
        yield
    except MalformedError as error:
        raise TensorBundleError(f"{path}: {error}") from None
