"""Find the checkpoint, the configuration and the vocabulary in a source.

A source is a folder, a checkpoint prefix, a zip or tar archive, or a SavedModel folder.

Archives may be malicious: names that lead outside, links, encrypted members and absurd expansion are rejected, and
only the files that a conversion needs are unpacked, into a temporary folder.
"""

import gzip
import lzma
import os
import re
import shutil
import stat
import tarfile
import tempfile
import zipfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import IO, Any

from ..files import refuse_address
from .tensorflow import MalformedError, naming, refuse_old_format

# Names that start with `._` are macOS's metadata files.
_NEEDED = re.compile(r"(?!\._)(bert_config\.json|vocab\.txt|checkpoint|.+\.index|.+\.data-\d{5}-of-\d{5})")
_STATE = re.compile(r'^model_checkpoint_path:\s*"([^"\n]+)"', re.MULTILINE)
_MOST_EXPANSION = 100  # weights hardly compress; Google's archives expand by a factor below 1.2
_LEAST_LIMIT = 1 << 20  # a tiny archive of a tiny model may expand more
_BROKEN = (
    zipfile.BadZipFile, tarfile.TarError, zlib.error, lzma.LZMAError, EOFError, OSError, NotImplementedError,
    RuntimeError, ValueError, OverflowError, IndexError,
)  # fmt: skip


@dataclass(frozen=True)
class GoogleSource:
    name: str  # as the user gave it; "cased" or "uncased" in it is a hint
    prefix: Path
    config_file: Path | None
    vocab_file: Path | None


@contextmanager
def open_source(source: str | os.PathLike[str]) -> Iterator[GoogleSource]:
    """Locate a checkpoint and its files; an archive is unpacked until the `with` block ends."""
    refuse_address(source, "a folder, an archive or a checkpoint prefix: copy or mount what an object store has")
    path = Path(source)
    if path.is_file() and (unpack := _archive_kind(path)):
        with tempfile.TemporaryDirectory(prefix="mybert-") as scratch:
            folder = Path(scratch) / "archive"
            folder.mkdir()
            with naming(path):
                try:
                    unpack(path, folder)
                except MalformedError:
                    raise
                except _BROKEN as error:
                    raise MalformedError(f"the archive cannot be read: {type(error).__name__}: {error}") from error
            yield _describe(str(source), _find_prefix(folder, path))
    else:
        yield _describe(str(source), _find_prefix(path, path) if path.is_dir() else path)


def _describe(name: str, prefix: Path) -> GoogleSource:
    folders = [prefix.parent, prefix.parent / "assets", prefix.parent.parent, prefix.parent.parent / "assets"]

    def beside(file: str) -> Path | None:
        return next((folder / file for folder in folders if (folder / file).is_file()), None)

    return GoogleSource(name, prefix, beside("bert_config.json"), beside("vocab.txt"))


def _find_prefix(folder: Path, shown: Path) -> Path:
    for pattern in ("*.index", "*/*.index", "*/*/*.index"):
        prefixes = sorted(path.with_suffix("") for path in folder.glob(pattern) if _NEEDED.fullmatch(path.name))
        states = {path.parent / "checkpoint" for path in prefixes}
        named = [prefix for state in states if state.is_file() for prefix in prefixes if prefix == _latest(state)]
        prefixes = named or prefixes
        if len(prefixes) == 1:
            return prefixes[0]
        if prefixes:
            names = ", ".join(str(prefix.relative_to(folder)) for prefix in prefixes[:8])
            raise ValueError(f"{shown}: holds {len(prefixes)} checkpoints ({names}); name one of them")
    for path in sorted(folder.glob("*")):
        refuse_old_format(path)
    raise ValueError(f"{shown}: holds no TensorFlow checkpoint (a file PREFIX.index with PREFIX.data-*)")


def _latest(state: Path) -> Path | None:
    """Read the latest checkpoint's name from a `checkpoint` state file; it may be a path to another folder."""
    with state.open("rb") as stream:
        found = _STATE.search(stream.read(1 << 16).decode(errors="replace"))
    return state.parent / PurePosixPath(found[1]).name if found else None


# --- archives --------------------------------------------------------------------------------------------------------


def _archive_kind(path: Path) -> Any:
    with path.open("rb") as stream:
        start = stream.read(265)
    if start[:4] in (b"PK\x03\x04", b"PK\x05\x06"):
        return _unpack_zip
    if start[:2] == b"\x1f\x8b" or start[257:262] == b"ustar":
        return _unpack_tar
    if path.suffix in (".zip", ".tgz", ".gz", ".tar"):
        problem = f"it begins with {start[:4].hex()}, which is not zip, gzip or tar"
        raise ValueError(f"{path}: the archive cannot be read: {problem}")
    return None


def _limit(compressed_size: int) -> int:
    return max(_LEAST_LIMIT, _MOST_EXPANSION * compressed_size)


def _expands_too_much(limit: int) -> MalformedError:
    allowed = f"at most {_MOST_EXPANSION} times the compressed size is unpacked"
    return MalformedError(f"expands to more than {limit} bytes; {allowed}")


def _target(folder: Path, name: str, plain: bool, seen: set[Path]) -> Path | None:
    """Check a member of an archive; return the path to unpack it to, or None if the conversion does not need it."""

    def unsafe(problem: str) -> MalformedError:
        return MalformedError(f"member {name!r} is refused: {problem}")

    parts = PurePosixPath(name).parts
    if "\\" in name or "\0" in name or ":" in name or name.startswith("/") or ".." in parts:
        raise unsafe("its name leads outside the folder")
    if not plain:
        raise unsafe("it is not a plain, unencrypted file")
    if not parts or not _NEEDED.fullmatch(parts[-1]):
        return None
    target = folder.joinpath(*parts)
    if target in seen:
        raise unsafe("the name occurs twice")
    seen.add(target)
    target.parent.mkdir(parents=True, exist_ok=True)
    return target


def _unpack_zip(path: Path, folder: Path) -> None:
    with zipfile.ZipFile(path) as archive:
        members = archive.infolist()
        sizes = [(sum(m.file_size for m in members), _limit(path.stat().st_size))]
        sizes += [(member.file_size, _limit(member.compress_size)) for member in members]
        for size, limit in sizes:
            if size > limit:
                raise _expands_too_much(limit)
        targets = []
        seen: set[Path] = set()
        for member in members:
            kind = stat.S_IFMT(member.external_attr >> 16)
            plain = kind in (0, stat.S_IFREG, stat.S_IFDIR) and not member.flag_bits & 1
            target = _target(folder, member.filename, plain, seen)
            if target and not member.is_dir():
                targets.append((member, target))
        for member, target in targets:
            with archive.open(member) as content:
                _copy(content, target)


class _CountingReader:
    """A stream that yields at most `limit` bytes, however they are compressed."""

    def __init__(self, stream: Any, path: Path) -> None:
        self._stream = stream
        self._limit = self._left = _limit(path.stat().st_size)

    def read(self, size: int = -1) -> bytes:
        data = self._stream.read(size)
        self._left -= len(data)
        if self._left < 0:
            raise _expands_too_much(self._limit)
        return data


def _unpack_tar(path: Path, folder: Path) -> None:
    with path.open("rb") as raw:
        gzipped = raw.read(2) == b"\x1f\x8b"
        raw.seek(0)
        stream: Any = _CountingReader(gzip.GzipFile(fileobj=raw) if gzipped else raw, path)
        seen: set[Path] = set()
        with tarfile.open(fileobj=stream, mode="r|") as archive:
            for member in archive:
                plain = (member.isreg() and not member.issparse()) or member.isdir()
                target = _target(folder, member.name, plain, seen)
                if target and member.isreg():
                    content = archive.extractfile(member)
                    assert content is not None, "a regular member has content"
                    _copy(content, target, member.size)
        while stream.read(1 << 16):  # gzip's checksum comes at the very end
            pass


def _copy(content: IO[bytes], target: Path, size: int | None = None) -> None:
    with target.open("xb") as stream:
        shutil.copyfileobj(content, stream)
        if size is not None and stream.tell() != size:
            raise EOFError(f"{target.name} has {stream.tell()} bytes, {size} were announced")
