"""The token store: a corpus tokenized once, in one memory-mapped safetensors file, or in a folder of such shards.

Format: `tokens` (uint16 where the vocabulary fits, else uint32), `sentence_starts` (int64, number of sentences + 1:
offsets into `tokens`), `document_starts` (int64, number of documents + 1: offsets into the sentences). Metadata:
`format`, `version`, `tokenizer` (fingerprint), `documents`, `sentences`, `tokens`, `unknown_tokens`. The shards of a
folder are named `tokens-00000-of-00004.safetensors`; their documents follow one another in this order.
"""

import copy
import hashlib
import json
import os
import re
import shutil
import struct
import threading
from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ProcessPoolExecutor
from dataclasses import dataclass
from itertools import chain
from multiprocessing import connection, parent_process
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from safetensors import SafetensorError, safe_open
from tqdm.auto import tqdm

from ..tokenization import BulkEncoder, MyBertTokenizer
from .documents import expand_sources, read_lines, split_sentences

if TYPE_CHECKING:
    from _typeshed import StrPath

FORMAT = "mybert-token-store"
VERSION = "1"
ARRAYS = ("document_starts", "sentence_starts", "tokens")  # widest type first keeps every array aligned
SHARD = "tokens-{:05d}-of-{:05d}.safetensors"
_SHARD_NAME = re.compile(r"tokens-(\d{5})-of-(\d{5})\.safetensors")
_CHUNK_CHARACTERS = 1 << 22  # a unit of work, and the most that a kill loses per process
_COPIED_AT_A_TIME = 1 << 20  # entries
_SAFETENSORS_TYPES = {"uint16": "U16", "uint32": "U32", "int64": "I64"}


@dataclass(frozen=True)
class StoreSummary:
    """What a token store holds: numbers of documents, sentences, tokens and, among these, [UNK]; its size in bytes."""

    documents: int
    sentences: int
    tokens: int
    unknown_tokens: int
    size: int

    def __str__(self) -> str:
        share = self.unknown_tokens / max(self.tokens, 1)
        return (
            f"{self.documents:,} documents, {self.sentences:,} sentences, {self.tokens:,} tokens "
            f"({share:.3%} unknown), {self.size / 1e6:,.1f} MB"
        )


def tokenizer_fingerprint(tokenizer: MyBertTokenizer) -> str:
    """SHA-256 (hexadecimal) of what decides a tokenizer's ids: its vocabulary, normalizer and pre-tokenizer."""
    saved = json.loads(tokenizer.backend_tokenizer.to_str())
    parts = {name: saved[name] for name in ("added_tokens", "normalizer", "pre_tokenizer", "model")}
    return hashlib.sha256(json.dumps(parts, sort_keys=True, ensure_ascii=False).encode()).hexdigest()


def build_token_store(
    documents: "StrPath | Iterable[StrPath] | Iterable[list[str]]",
    tokenizer: MyBertTokenizer,
    path: str | Path,
    *,
    split: bool = False,
    encoding: str = "utf-8",
    text_column: str = "text",
    num_processes: int = 1,
    shard_index: int = 0,
    num_shards: int = 1,
    append: bool = False,
    show_progress: bool = True,
) -> StoreSummary:
    """Tokenize documents into a token store.

    The text is worked through in chunks; memory does not grow with the corpus, and the bytes written do not depend on
    the number of processes. Finished chunks lie in a hidden folder beside `path` until all are there: after an
    interruption, of whatever kind, the same call takes up those whose text is still the same. Sentences without tokens
    and documents without sentences are left out.

    Args:
        documents: Files, folders, patterns or data sets of the Hub, see `read_documents`; or documents, each a list of
            sentences.
        tokenizer: The tokenizer; no special tokens are added, and those that stand in the text are text like any
            other ("[MASK]" is three words, as for Google's tokenizer).
        path: The file to write; it appears when it is complete, and replaces an older one. With several shards, the
            folder for them.
        split: Whether lines (or sentences) hold running text, to be split by `split_sentences`.
        encoding: Encoding of plain text and JSON.
        text_column: Field or column of the text in JSON, Parquet and on the Hub.
        num_processes: Processes that tokenize; 1 is this one.
        shard_index: Which shard to build, from 0 to `num_shards` - 1.
        num_shards: Number of shards; each takes every `num_shards`-th document and may be built on another machine.
        append: Whether to put the documents behind those of the store at `path`, if there is one.
        show_progress: Whether to show a progress bar.

    Returns:
        What the store (or this shard) holds.

    Raises:
        ValueError: If the documents hold no token at all, the store to append to was made with another tokenizer,
            there is no such shard, `path` is a folder, a document is no list of sentences, or see `read_documents`.
        OSError: If a file cannot be read or written.
    """
    if not 0 <= shard_index < num_shards:
        raise ValueError(f"shard_index is {shard_index}; expected 0 to {num_shards - 1} (num_shards - 1).")
    if num_processes < 1:
        raise ValueError(f"num_processes is {num_processes}; expected 1 or more.")
    path = Path(path)
    if num_shards > 1:
        path = path / SHARD.format(shard_index, num_shards)
    if path.is_dir():
        raise ValueError(f"{path} is a folder; expected a file to write.")
    fingerprint = tokenizer_fingerprint(tokenizer)
    earlier = [path] if append and path.exists() else []
    for store in earlier:
        _check(_metadata(store), store, fingerprint)
    lines = _read(documents, encoding, text_column)
    if num_shards > 1:
        lines = _every_nth_document(lines, shard_index, num_shards)
    folder = path.with_name(f".{path.name}.partial")
    folder.mkdir(parents=True, exist_ok=True)
    try:
        chunks = _encode_chunks(_chunks(lines), folder, tokenizer, fingerprint, split, num_processes, show_progress)
    except BaseException:
        if not any(folder.iterdir()):
            folder.rmdir()
        raise
    if not any(_length(chunk, "tokens") for chunk in chunks):
        shutil.rmtree(folder)
        which = f"Shard {shard_index} of {num_shards}" if num_shards > 1 else "The corpus"
        raise ValueError(f"{which} is empty: it holds no text to tokenize.")
    summary = _join([*earlier, *chunks], fingerprint, folder / "store")
    (folder / "store").replace(path)
    shutil.rmtree(folder)
    return summary


class TokenStore:
    """A token store opened for reading; its arrays are memory-mapped.

    Args:
        path: The file, or the folder of shards.
        tokenizer: If given, the tokenizer that the store must have been made with.

    Attributes:
        tokens: All token ids, (tokens,).
        sentence_starts: (sentences + 1,): sentence i is `tokens[sentence_starts[i]:sentence_starts[i + 1]]`.
        document_starts: (documents + 1,): document i has the sentences from `document_starts[i]` up to
            `document_starts[i + 1]`.
        metadata: The (first) file's metadata.

    These are numpy arrays where the store is one file; those of several shards know only `len`, `dtype` and indexing
    with a number, a slice or an array of numbers.

    Raises:
        FileNotFoundError: If there is no such file or folder, or a shard is missing.
        ValueError: If a file is not a token store, or was made with another tokenizer.
    """

    def __init__(self, path: str | Path, tokenizer: MyBertTokenizer | None = None) -> None:
        self.path = Path(path)
        self._tokenizer = tokenizer
        files = _shards(self.path) if self.path.is_dir() else [self.path]
        metadata = [_metadata(file) for file in files]
        self.metadata = metadata[0]
        fingerprint = self.metadata.get("tokenizer") if tokenizer is None else tokenizer_fingerprint(tokenizer)
        for file, found in zip(files, metadata, strict=True):
            _check(found, file, fingerprint)
        self.summary = StoreSummary(
            **{
                name: sum(int(found[name]) for found in metadata)
                for name in ("documents", "sentences", "tokens", "unknown_tokens")
            },
            size=sum(file.stat().st_size for file in files),
        )
        shards = [_map(file) for file in files]
        self.tokens = _one_after_another([shard["tokens"] for shard in shards])
        self.sentence_starts = _one_after_another([shard["sentence_starts"] for shard in shards], are_starts=True)
        self.document_starts = _one_after_another([shard["document_starts"] for shard in shards], are_starts=True)

    def __reduce__(self) -> tuple:
        # Another process maps the files itself.
        return TokenStore, (self.path, self._tokenizer)


class _Shards:
    """Arrays of shards as one; those of starts count on from shard to shard."""

    def __init__(self, arrays: Sequence[np.ndarray], are_starts: bool) -> None:
        # What a shard's last start says, the next one's first repeats.
        self._arrays = [array[1:] if are_starts and number else array for number, array in enumerate(arrays)]
        lasts = [int(array[-1]) if are_starts else 0 for array in arrays]
        self._shifts = np.cumsum([0, *lasts[:-1]])
        self._ends = np.cumsum([len(array) for array in self._arrays])
        self.dtype = arrays[0].dtype

    def __len__(self) -> int:
        return int(self._ends[-1])

    def __getitem__(self, index: "int | slice | np.ndarray") -> np.ndarray:
        if isinstance(index, slice):
            begin, end, step = index.indices(len(self))
            assert step == 1
            parts = [
                self._part(number, slice(max(begin - before, 0), max(end - before, 0)))
                for number, before in enumerate(self._ends - [len(array) for array in self._arrays])
            ]
            return np.concatenate(parts)
        positions = np.asarray(index)
        positions = np.where(positions < 0, positions + len(self), positions)
        numbers = np.searchsorted(self._ends, positions, side="right")
        found = np.empty(positions.shape, self.dtype)
        for number in np.unique(numbers):
            here = numbers == number
            before = self._ends[number] - len(self._arrays[number])
            found[here] = self._part(number, positions[here] - before)
        return found[()]

    def _part(self, number: int, index: "slice | np.ndarray") -> np.ndarray:
        part = self._arrays[number][index]
        return part + self._shifts[number] if self._shifts[number] else part


def _one_after_another(arrays: Sequence[np.ndarray], are_starts: bool = False) -> "np.ndarray":
    # A `_Shards` has what users of a store need of an array.
    return arrays[0] if len(arrays) == 1 else _Shards(arrays, are_starts)  # type: ignore[return-value]


def _shards(folder: Path) -> list[Path]:
    names = sorted(entry.name for entry in folder.iterdir() if _SHARD_NAME.fullmatch(entry.name))
    if not names:
        raise FileNotFoundError(f"There is no token store in {folder}: no file {SHARD.format(0, 1)} or the like.")
    counts = {int(_SHARD_NAME.fullmatch(name)[2]) for name in names}  # type: ignore[index]
    if len(counts) > 1:
        raise ValueError(f"{folder} holds shards of several stores, of {sorted(counts)} shards; expected one store.")
    expected = [SHARD.format(index, *counts) for index in range(*counts)]
    if missing := sorted(set(expected) - set(names)):
        raise FileNotFoundError(f"{folder} lacks {len(missing)} of {len(expected)} shards: {', '.join(missing[:3])}.")
    return [folder / name for name in expected]


def _metadata(file: Path) -> dict[str, str]:
    if not file.is_file():
        raise FileNotFoundError(f"There is no token store {file}.")
    try:
        with safe_open(file, framework="numpy") as store:
            return store.metadata() or {}
    except SafetensorError as error:
        raise ValueError(f"{file} is not a token store: {error}.") from error


def _check(metadata: dict[str, str], file: Path, fingerprint: str | None) -> None:
    if metadata.get("format") != FORMAT or metadata.get("version") != VERSION:
        raise ValueError(f"{file} is not a token store of version {VERSION}.")
    if metadata.get("tokenizer") != fingerprint:
        raise ValueError(f"{file} was made with another tokenizer or vocabulary; build it again.")


def _map(file: Path) -> dict[str, np.ndarray]:
    # Tensors of torch are mapped into memory; numpy's would be copied.
    with safe_open(file, framework="pt") as store:
        return {name: store.get_tensor(name).numpy() for name in ARRAYS}


def _read(
    documents: "StrPath | Iterable[StrPath] | Iterable[list[str]]", encoding: str, text_column: str
) -> Iterator[str]:
    """Lines, and "" after each document."""
    if isinstance(documents, (str, os.PathLike)):
        documents = [documents]
    items = iter(documents)
    first = next(items, None)
    if isinstance(first, (str, os.PathLike)):
        files: Iterable = chain([first], items)
        return read_lines(expand_sources(files), encoding=encoding, text_column=text_column)
    return _lines_of_documents(chain([] if first is None else [first], items))


def _lines_of_documents(documents: Iterable) -> Iterator[str]:
    for number, document in enumerate(documents):
        if isinstance(document, str):
            raise ValueError(f"Document {number} is a str, expected a list of sentences.")
        for sentence in document:
            if not isinstance(sentence, str):
                raise ValueError(f"Document {number} holds a {type(sentence).__name__}, expected sentences (str).")
            if sentence:
                yield sentence.replace("\n", " ")
        yield ""


def _every_nth_document(lines: Iterable[str], index: int, count: int) -> Iterator[str]:
    document = 0
    for line in lines:
        if document % count == index:
            yield line
        document += not line


def _chunks(lines: Iterable[str]) -> Iterator[str]:
    """Text of whole lines, each ended by a line break."""
    chunk: list[str] = []
    size = 0
    for line in lines:
        chunk.append(line)
        size += len(line) + 1
        if size >= _CHUNK_CHARACTERS:
            yield "\n".join((*chunk, ""))
            chunk, size = [], 0
    if chunk:
        yield "\n".join((*chunk, ""))


def _encode_chunks(
    chunks: Iterable[str],
    folder: Path,
    tokenizer: MyBertTokenizer,
    fingerprint: str,
    split: bool,
    num_processes: int,
    show_progress: bool,
) -> list[Path]:
    """Encode chunks to files of their own in the folder, named by their content; those that are there stay."""
    files: list[Path] = []
    running: deque[tuple[int, Future[None]]] = deque()
    pool = None
    if num_processes > 1:
        pool = ProcessPoolExecutor(num_processes, initializer=_start_worker, initargs=(tokenizer, split))
    else:
        encoder = _ChunkEncoder(tokenizer, split)
    try:
        with tqdm(
            desc="Tokenizing", unit=" characters", unit_scale=True, disable=not show_progress, delay=2
        ) as progress:

            def finish(most: int) -> None:
                while len(running) > most:
                    size, future = running.popleft()
                    future.result()
                    progress.update(size)

            for chunk in chunks:
                text = chunk.encode("utf-8", "surrogatepass")
                key = f"{VERSION} {fingerprint} {split} ".encode()
                file = folder / hashlib.blake2b(key + text, digest_size=20).hexdigest()
                files.append(file)
                if _is_complete(file):
                    progress.update(len(chunk))
                elif pool is None:
                    encoder(text, file)
                    progress.update(len(chunk))
                else:
                    running.append((len(chunk), pool.submit(_encode_in_worker, text, file)))
                    finish(2 * num_processes)
            finish(0)
    finally:
        if pool is not None:
            pool.shutdown(cancel_futures=True)
    return files


def _is_complete(file: Path) -> bool:
    try:
        return bool(_metadata(file))
    except (FileNotFoundError, ValueError):
        return False


class _ChunkEncoder:
    """Encodes a chunk of text to a file like a token store.

    The file's `document_starts` are 0 and the number of sentences before each end of a document; documents may be
    empty, and the last one may go on in the next chunk.
    """

    def __init__(self, tokenizer: MyBertTokenizer, split: bool) -> None:
        tokenizer = copy.deepcopy(tokenizer)
        tokenizer.backend_tokenizer.encode_special_tokens = True
        self._encoder = BulkEncoder(tokenizer)
        self._unknown = tokenizer.unk_token_id
        self._split = split

    def __call__(self, text: bytes, file: Path) -> None:
        lines = text.decode("utf-8", "surrogatepass").split("\n")[:-1]
        if self._split:
            # "" has no sentences, but still ends a document.
            lines = [sentence for line in lines for sentence in (split_sentences(line) if line else [line])]
        tokens, offsets = self._encoder.encode(lines)
        lengths = np.diff(offsets)
        ends_document = np.fromiter(map(len, lines), np.int64, len(lines)) == 0
        document_ends = np.cumsum(lengths > 0)[ends_document]
        arrays = {
            "document_starts": np.concatenate([[0], document_ends]),
            "sentence_starts": np.concatenate([[0], offsets[1:][lengths > 0]]),
            "tokens": tokens.astype(self._encoder.dtype, copy=False),
        }
        metadata = {"unknown_tokens": str(np.count_nonzero(tokens == self._unknown))}
        partial = file.with_name(f"{file.name}.{os.getpid()}")
        try:
            pieces = {name: (len(array), [array]) for name, array in arrays.items()}
            _write(partial, metadata, pieces, self._encoder.dtype)
            partial.replace(file)
        finally:
            partial.unlink(missing_ok=True)


_worker: _ChunkEncoder


def _start_worker(tokenizer: MyBertTokenizer, split: bool) -> None:
    global _worker
    _worker = _ChunkEncoder(tokenizer, split)
    threading.Thread(target=_end_with_parent, daemon=True).start()


def _encode_in_worker(text: bytes, file: Path) -> None:
    _worker(text, file)


def _end_with_parent() -> None:
    """End this process when its parent is killed: a pool's workers would wait for work for ever."""
    parent = parent_process()
    assert parent is not None
    connection.wait([parent.sentinel])
    os._exit(1)


def _join(files: Sequence[Path], fingerprint: str, path: Path) -> StoreSummary:
    """Join a store (first, if there is one) and chunks to a store, piece by piece."""
    documents = sum(map(len, _document_ends(files)))
    sentences = sum(_length(file, "sentence_starts") - 1 for file in files)
    tokens = sum(_length(file, "tokens") for file in files)
    counts = {
        "documents": documents,
        "sentences": sentences,
        "tokens": tokens,
        "unknown_tokens": sum(int(_metadata(file)["unknown_tokens"]) for file in files),
    }
    metadata = {"format": FORMAT, "version": VERSION, "tokenizer": fingerprint}
    metadata |= {name: str(count) for name, count in counts.items()}
    zero = [np.zeros(1, np.int64)]
    arrays: dict[str, tuple[int, Iterable[np.ndarray]]] = {
        "document_starts": (documents + 1, chain(zero, _document_ends(files))),
        "sentence_starts": (sentences + 1, chain(zero, _sentence_ends(files))),
        "tokens": (tokens, chain.from_iterable(_pieces(file, "tokens") for file in files)),
    }
    _write(path, metadata, arrays, _array(files[0], "tokens")[0])
    return StoreSummary(**counts, size=path.stat().st_size)


def _document_ends(files: Iterable[Path]) -> Iterator[np.ndarray]:
    """Where documents end among all sentences, without the documents that hold none."""
    sentences = last = 0
    for file in files:
        for piece in _pieces(file, "document_starts", skip=1):
            ends = piece + sentences
            ends = ends[np.diff(ends, prepend=last) > 0]
            if len(ends):
                last = ends[-1]
                yield ends
        sentences += _length(file, "sentence_starts") - 1


def _sentence_ends(files: Iterable[Path]) -> Iterator[np.ndarray]:
    tokens = 0
    for file in files:
        yield from (piece + tokens for piece in _pieces(file, "sentence_starts", skip=1))
        tokens += _length(file, "tokens")


def _array(file: Path, name: str) -> tuple[np.dtype, int, int]:
    """Type, length and place (in bytes) of an array in a file of ours."""
    with file.open("rb") as data:
        (size,) = struct.unpack("<Q", data.read(8))
        entry = json.loads(data.read(size))[name]
    dtype = next(np.dtype(dtype) for dtype, code in _SAFETENSORS_TYPES.items() if code == entry["dtype"])
    return dtype, entry["shape"][0], 8 + size + entry["data_offsets"][0]


def _length(file: Path, name: str) -> int:
    return _array(file, name)[1]


def _pieces(file: Path, name: str, skip: int = 0) -> Iterator[np.ndarray]:
    """Read an array piece by piece. Not mapped: pages of a large mapped file would count as this process's memory."""
    dtype, length, offset = _array(file, name)
    with file.open("rb") as data:
        data.seek(offset + skip * dtype.itemsize)
        for begin in range(skip, length, _COPIED_AT_A_TIME):
            yield np.fromfile(data, dtype, min(_COPIED_AT_A_TIME, length - begin))


def _write(
    path: Path, metadata: dict[str, str], arrays: Mapping[str, tuple[int, Iterable[np.ndarray]]], token_type: np.dtype
) -> None:
    """Write a safetensors file of `ARRAYS`, each given as its length and its pieces.

    Format: 8 bytes header length (little-endian), JSON header, data (safetensors documentation, "Format").
    """
    header: dict[str, object] = {"__metadata__": metadata}
    offset = 0
    for name in ARRAYS:
        count, _ = arrays[name]
        dtype = token_type if name == "tokens" else np.dtype(np.int64)
        end = offset + count * dtype.itemsize
        header[name] = {"dtype": _SAFETENSORS_TYPES[dtype.name], "shape": [count], "data_offsets": [offset, end]}
        offset = end
    encoded = json.dumps(header).encode()
    encoded += b" " * (-len(encoded) % 8)
    try:
        with path.open("wb") as file:
            file.write(struct.pack("<Q", len(encoded)) + encoded)
            for name in ARRAYS:
                for piece in arrays[name][1]:
                    file.write(np.ascontiguousarray(piece).data)
            assert file.tell() == 8 + len(encoded) + offset
    except OSError as error:  # a full disk, which the error does not name
        raise OSError(error.errno, error.strerror, str(path)) from error
