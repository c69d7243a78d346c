"""Reading text: plain or compressed files, folders, patterns and standard input.

Everything is streamed; nothing holds a whole file.
"""

import bz2
import codecs
import glob
import gzip
import hashlib
import io
import json
import logging
import lzma
import re
import sys
import zlib
from collections import Counter
from collections.abc import Callable, Generator, Iterable, Iterator
from contextlib import closing, nullcontext, suppress
from functools import partial
from itertools import islice, tee
from pathlib import Path
from typing import IO, Any, cast

from .errors import refuse_address, worded
from .moves import finish_moves

logger = logging.getLogger(__name__)

STDIN = "-"
PAIR_SEPARATOR = " ||| "  # the last one in a line divides a pair, as in Google's extract_features.py
LINE_BREAKS = "\n\r\v\f\x1c\x1d\x1e\x85\u2028\u2029"
"""The characters at which `str.splitlines` breaks lines; `open_text` does so at the first two only."""
HEADER_AGAIN = "the names of the columns again, as in joined files; expected them only in the first line"
_TEXT = "a file, a folder or a pattern: copy or mount what an object store has, or pipe it into standard input (-)"

SEPARATED_SUFFIXES = (".csv", ".tsv")
JSON_SUFFIXES = (".jsonl", ".json", ".ndjson")
PARQUET_SUFFIX = ".parquet"
SPREADSHEET_SUFFIX = ".xlsx"
TABLE_SUFFIXES = (*SEPARATED_SUFFIXES, *JSON_SUFFIXES, PARQUET_SUFFIX, SPREADSHEET_SUFFIX)
_OTHER_SPREADSHEETS = (".xls", ".xlsm", ".xlsb", ".ods", ".numbers")
COMPRESSED_SUFFIXES = (".gz", ".xz", ".bz2", ".zst")
_XZ_MEMORY = 1 << 29  # bytes of a decompressor; `xz -9` needs 65 MB

_USUAL_ENCODINGS = ("utf-8", "cp949", "cp1252")  # named if a file has another than was expected

# In folders only files with these endings are read; others must be named.
_FOLDER_SUFFIXES = ("", ".txt", ".text", ".md", ".rst", *TABLE_SUFFIXES)

# Names starting with these are no text: .DS_Store, Excel's ~$NAME.xlsx. Those with "_" (_SUCCESS) are counted.
_HIDDEN = (".", "~$")

# What other kinds of files begin with, which no text does, and the ending by which they would be read.
_SIGNATURES = {
    b"\x1f\x8b": ("gzip data", ".gz"),
    b"\xfd7zXZ\0": ("xz data", ".xz"),
    b"\x28\xb5\x2f\xfd": ("zstd data", ".zst"),
    b"PAR1\x15": ("Parquet data", PARQUET_SUFFIX),
    b"PK\3\4": ("a zip archive", f"{SPREADSHEET_SUFFIX}, if it is a spreadsheet"),
} | {f"BZh{level}1AY&SY".encode(): ("bzip2 data", ".bz2") for level in range(1, 10)}
_UTF16 = (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)


class EncodingError(ValueError):
    """A file, `path`, is not text in the expected encoding."""

    def __init__(self, path: str, message: str) -> None:
        super().__init__(message)
        self.path = path

    def __reduce__(self) -> tuple[Any, ...]:
        """What pools of processes need to hand it on."""
        return type(self), (self.path, self.args[0])


def expand_paths(paths: str | Path | Iterable[str | Path]) -> list[str]:
    """List the text files that paths, folders, patterns and "-" (standard input) name, in order, each once."""
    files: dict[str, None] = {}
    for path in [paths] if isinstance(paths, (str, Path)) else paths:
        where = Path(file_of(path))
        if not str(path):
            raise ValueError("The name of a file to read is empty; expected a file, a folder or a pattern.")
        refuse_address(path, _TEXT)
        if str(path) == STDIN:
            files[STDIN] = None
            continue
        if where.is_dir():
            # Those without an ending, and .txt, .text, .md, .rst, .csv, .tsv, .jsonl, .json, .ndjson and .parquet,
            # plain or compressed, but not names starting with `.` or `_`.
            found = _text_files(where)
        elif where.exists():
            files[str(Path(path))] = None
            continue
        elif any(c in str(path) for c in "*?["):
            found = [*map(Path, glob.glob(str(where), recursive=True))]  # noqa: PTH207 - without hidden names
        else:
            raise FileNotFoundError(f"There is no file or folder {path}.")
        found = sorted(p for p in found if p.is_file())
        if not found:
            raise FileNotFoundError(f"{path} holds no text file.")
        files.update((str(p), None) for p in found)
    return list(files)


def _text_files(folder: Path) -> list[Path]:
    """The files below a folder with a suffix of text; the number of others is logged."""
    found = [p for p in folder.rglob("*") if not any(q.startswith(_HIDDEN) for q in p.relative_to(folder).parts)]
    left = [path for path in found if any(part.startswith("_") for part in path.relative_to(folder).parts)]
    links = [path for path in found if path.is_symlink() and path.is_dir()]
    files = {path for path in found if path.is_file()} - {*left}
    texts = [path for path in files if content_suffix(path) in _FOLDER_SUFFIXES]
    others = Counter(content_suffix(path) for path in files if content_suffix(path) not in _FOLDER_SUFFIXES)
    most = sorted(others.items(), key=lambda each: (-each[1], each[0]))[:5]
    endings = ", ".join(f"{count} {suffix}" for suffix, count in most) + (", ..." if len(others) > 5 else "")
    counts = {
        f"that {'does' if others.total() == 1 else 'do'} not end like text ({endings})": others.total(),
        "with a name, or a folder's, that begins with _": sum(map(Path.is_file, left)),
    }
    parts = [f"{count} file{'s' * (count > 1)} {what}" for what, count in counts.items() if count]
    parts += [f"{len(links)} linked folder{'s' * (len(links) > 1)}"] if links else []
    skipped = " and ".join(parts)
    if skipped and not texts:
        raise FileNotFoundError(f"{folder} holds no text file, but {skipped}; name files or a pattern.")
    if skipped:
        logger.info("%s: left out: %s; to read them, name them one by one.", folder, skipped)
    return texts


def file_of(name: str | Path) -> str:
    """The file that a name means: a sheet of a spreadsheet is named by `FILE.xlsx:Sheet`."""
    file, _, _ = str(name).rpartition(":")
    return file if file.lower().endswith(SPREADSHEET_SUFFIX) else str(name)


def content_suffix(path: str | Path) -> str:
    """The suffix of a file's format, in lower case, without that of a compression."""
    path = Path(file_of(path))
    if path.suffix.lower() in COMPRESSED_SUFFIXES:
        path = path.with_suffix("")
    return path.suffix.lower()


def content_name(path: str | Path) -> str:
    """The name of a file without the suffixes of format and compression, or of a sheet in it."""
    if file_of(path) != str(path):
        return str(path).rpartition(":")[2]
    path = Path(path)
    return Path(path.stem).stem if path.suffix.lower() in COMPRESSED_SUFFIXES else path.stem


def open_text(path: str | Path, encoding: str = "utf-8", digests: dict[str, str] | None = None) -> Iterator[str]:
    """Iterate over the lines, without their ends, of a text file, plain or compressed; "-" is standard input."""
    # `digests` gets the file's digest once it has been read completely, so that it need not be read again; see
    # `new_digest`. A byte-order mark is dropped; that of UTF-16 takes precedence over UTF-8. Errors name the byte's
    # offset in the decompressed stream.
    for block in read_blocks(path, encoding, digests=digests):
        yield from block.split("\n")


def text_lines(
    path: str | Path, encoding: str = "utf-8", digests: dict[str, str] | None = None, column: str = ""
) -> Iterator[str]:
    """The lines of plain text, see `open_text`; objects of JSON are no text, nor is a table with such a column."""
    lines, head = tee(open_text(path, encoding, digests))
    first = next(filter(str.strip, head), "")
    source = "Standard input" if path == STDIN else path
    if first.lstrip().startswith("{") and is_object(first):
        raise ValueError(f"{source} holds objects of JSON; expected a file whose name ends in {JSON_SUFFIXES[0]}.")
    if column and column in first:
        refuse_header(source, first, column)
    return lines


def refuse_header(source: object, line: str, column: str) -> None:
    """Reject text whose first line names a column, and others without spaces: its lines would be rows, labels too."""
    names = [name.strip('"') for name in re.split(r"[\t,;|]", line)]
    if len(names) > 1 and column in names and not any(" " in name for name in names):
        expected = f"lines of text, or a file whose name ends in {' or '.join(SEPARATED_SUFFIXES)}"
        raise ValueError(f"{source} begins with names of columns, {line.strip()[:60]!r}; expected {expected}.")


def is_object(line: str) -> bool:
    """Whether a line alone is a JSON object."""
    try:
        return isinstance(json.loads(line), dict)
    except (ValueError, RecursionError) as error:  # which are reported when the line is read
        return not isinstance(error, json.JSONDecodeError)


def read_blocks(
    path: str | Path, encoding: str = "utf-8", block_bytes: int = 1 << 20, digests: dict[str, str] | None = None
) -> Iterator[str]:
    """Read the lines of `open_text` in large blocks, joined by line breaks, the fastest way to read a corpus."""
    path = str(path)
    if (suffix := content_suffix(path)) in _OTHER_SPREADSHEETS:
        raise ValueError(f"{path} ends in {suffix}; save the spreadsheet as .xlsx or .csv.")
    try:
        "".encode(encoding)  # raises an error for codecs that are not for text
        decoder = codecs.getincrementaldecoder(encoding)()
    except (LookupError, UnicodeError) as error:
        raise ValueError(f"Unknown encoding {encoding!r} (expected the name of a Python codec of text).") from error
    newlines = io.IncrementalNewlineDecoder(None, translate=True)
    tail: list[str] = []  # parts of an incomplete line
    start = True
    for offset, data in _read_bytes(path, block_bytes, digests):
        if start and (kind := next(filter(data.startswith, _SIGNATURES), None)):
            what, suffix = _SIGNATURES[kind]
            raise ValueError(f"{path} holds {what}; expected text, or a name that ends in {suffix}.")
        if start and encoding.lower().replace("_", "-") in ("utf-8", "utf8"):
            if data.startswith(_UTF16) and not data.startswith(codecs.BOM_UTF32_LE):
                encoding, decoder = "utf-16", codecs.getincrementaldecoder("utf-16")()
            elif data.count(b"\0") * 100 > len(data):
                order = "le" if data.index(0) % 2 else "be"
                template = (
                    "{} looks like a binary file or UTF-16 (zero byte at offset {}); if it is text, save it as UTF-8"
                    "[ or pass {encoding=}]."
                )
                raise EncodingError(path, worded(template, path, data.index(0), f"utf-16-{order}"))
        pending = decoder.getstate()[0]
        try:
            text = decoder.decode(data, final=not data)
        except UnicodeDecodeError as error:
            valid = _encodings_of(pending + data, encoding)
            first = offset - len(pending) + error.start
            advice = "{encoding=}" + " or {}" * (len(valid) - 1) if valid else "{encoding}"
            template = f"{{}} is not {{}} text: bad byte at offset {{}} ({{}}); save it as UTF-8[ or pass {advice}]."
            raise EncodingError(path, worded(template, path, encoding, first, error.reason, *valid)) from error
        text = newlines.decode(text, final=not data)
        if start and text:
            text = text.removeprefix("\ufeff")
            start = False
        lines, newline, rest = text.rpartition("\n")
        if newline:
            yield "".join((*tail, lines))
            tail = []
        if rest:
            tail.append(rest)
    if tail:
        yield "".join(tail)


def is_encoded(path: str | Path, encoding: str) -> bool:
    """Whether the beginning of a file, at most 64 MB, is text in an encoding."""
    try:
        for _ in islice(read_blocks(path, encoding), 64):
            pass
    except EncodingError:
        return False
    except (OSError, ValueError):  # which are reported when it is read
        pass
    return True


def has_byte_order_mark(path: str | Path) -> bool:
    """Whether a file, plain or compressed, begins with the byte-order mark of UTF-8 or UTF-16."""
    with closing(_read_bytes(str(path), 4, None)) as blocks:
        return next(blocks)[1].startswith((codecs.BOM_UTF8, *_UTF16))


def _encodings_of(data: bytes, encoding: str) -> list[str]:
    """The usual encodings in which this part of a text is valid."""
    valid = []
    for other in _USUAL_ENCODINGS:
        with suppress(UnicodeDecodeError):
            codecs.getincrementaldecoder(other)().decode(data)
            valid += [other] if other != encoding else []
    return valid


def new_digest() -> "hashlib.blake2b":
    """The digest that identifies a file's contents: BLAKE2b, 128 bits, of the bytes on the disk."""
    return hashlib.blake2b(digest_size=16)


class _Digesting:
    """A binary input stream that computes the digest of what is read."""

    def __init__(self, stream: IO[bytes]) -> None:
        self._stream = stream
        self._digest = new_digest()

    def read(self, size: int = -1) -> bytes:
        data = self._stream.read(size)
        self._digest.update(data)
        return data

    def at_end(self) -> str:
        """Read the rest that a decompressor has left, and return the digest."""
        while self.read(1 << 20):
            pass
        return self._digest.hexdigest()


def _read_bytes(path: str, block_bytes: int, digests: dict[str, str] | None) -> Generator[tuple[int, bytes]]:
    """Yield (offset, bytes) of the decompressed stream; the last pair has no bytes."""
    refuse_address(path)
    finish_moves(path)
    with nullcontext(sys.stdin.buffer) if path == STDIN else Path(path).open("rb") as file:
        raw = file if digests is None else _Digesting(file)
        stream = raw if path == STDIN else _decompressed(path, cast(IO[bytes], raw))
        broken: tuple[type[Exception], ...] = (OSError, EOFError, zlib.error, lzma.LZMAError)
        if "zstandard" in sys.modules:
            broken += (sys.modules["zstandard"].ZstdError,)
        offset = 0
        while True:
            try:
                data = stream.read(block_bytes)
            except broken as error:
                if isinstance(error, OSError) and error.errno is not None:
                    raise  # an error of the system; those of gzip and bz2 have no errno
                raise OSError(f"{path}: the compressed data is broken or cut off ({error}).") from error
            if not data and isinstance(raw, _Digesting):
                assert digests is not None
                digests[path] = raw.at_end()
            yield offset, data
            if not data:
                return
            offset += len(data)


def _decompressed(path: str, stream: IO[bytes]) -> IO[bytes]:
    match Path(path).suffix.lower():
        case ".gz":
            return cast(IO[bytes], gzip.open(stream, "rb"))
        case ".xz":
            return cast(
                IO[bytes], _Frames(stream, partial(lzma.LZMADecompressor, lzma.FORMAT_XZ, _XZ_MEMORY), 1 << 10)
            )
        case ".bz2":
            return bz2.open(stream, "rb")
        case ".zst":
            try:
                import zstandard
            except ImportError as error:
                raise ValueError(f"Reading {path} needs the zstandard package: pip install zstandard.") from error
            return cast(IO[bytes], _Frames(stream, zstandard.ZstdDecompressor().decompressobj, 1 << 8))
    return stream


class _Frames:
    """An input stream of frames of zstd or xz: the libraries' own read truncated files, or take any memory."""

    # A decompressor returns all that its input expands to, so the input is small: 4 bytes may be a block of zstd
    # that expands to 128 KB, so `read` returns up to 8 MB too much.
    def __init__(self, stream: IO[bytes], decompressor: Callable[[], Any], bytes_at_a_time: int) -> None:
        self._stream = stream
        self._decompressor = decompressor
        self._bytes_at_a_time = bytes_at_a_time
        self._frame: Any = None
        self._is_past_first = False
        self._left = b""  # after the last frame

    def read(self, size: int) -> bytes:
        found = bytearray()
        while len(found) < size:
            data = self._left or self._stream.read(self._bytes_at_a_time)
            self._left = b""
            if not data:
                if self._frame is not None:
                    raise EOFError("it ends within a frame")
                break
            if self._frame is None:
                if self._is_past_first and not (data := data.lstrip(b"\0")):  # padding of xz
                    continue
                self._frame, self._is_past_first = self._decompressor(), True
            found += self._frame.decompress(data)
            if self._frame.eof:
                self._left, self._frame = self._frame.unused_data, None
        return bytes(found)


# A full stop after these is rarely the end of a sentence. Single letters are treated alike ("J. Smith", "e.g.").
_ABBREVIATIONS = frozenset(
    "al approx cf dr etc fig figs inc jr ltd mr mrs ms no nos prof resp sr st viz vol vs".split()
)
_FULL_WIDTH = "。！？｡"  # no space is needed after these
_TERMINATOR = re.compile(
    rf"""([.!?…{_FULL_WIDTH}]+["'”’»)\]」』）]*)"""  # terminators, closing quotes and brackets
    r"""(\s*)(?=["'“‘«(\[]*([^\W_])?)"""  # a space, the first letter or digit of what follows
)
_LAST_WORD = re.compile(r"[^\W\d_]+$")
_SENTENCE_END = re.compile(rf"""[.!?:;…{_FULL_WIDTH}]["'”’»)\]」』）]*$""")


def split_sentences(text: str) -> list[str]:
    """Split running text at sentence ends, by language-independent rules.

    A sentence ends at `. ! ? …` with closing quotes or brackets, before white space and a word that does not start
    with a lower-case letter, and at a full-width terminator. A full stop does not end one after a single letter or a
    common abbreviation.

    Args:
        text: One or more sentences; line breaks count as spaces.

    Returns:
        The sentences without surrounding white space; none is empty.
    """
    text = " ".join(text.split())
    sentences, start = [], 0
    for match in _TERMINATOR.finditer(text):
        end, space, following = match.groups()
        if not any(mark in end for mark in _FULL_WIDTH):
            if not space or not following or following.islower():
                continue
            if end == "." and (word := _LAST_WORD.search(text[max(start, match.start() - 20) : match.start()])):
                last_word = word[0].lower()
                if len(last_word) == 1 or last_word in _ABBREVIATIONS:
                    continue
        sentences.append(text[start : match.end()].strip())
        start = match.end()
    sentences.append(text[start:].strip())
    return [sentence for sentence in sentences if sentence]


def ends_sentence(line: str) -> bool:
    """Whether a line ends as a sentence or clause does: with a terminator, colon or semicolon, and closing quotes."""
    return _SENTENCE_END.search(line) is not None
