"""The format of a token store: a corpus tokenized once, in one memory-mapped file, or in a folder of shards.

Format: safetensors with `tokens` (uint16 where the vocabulary fits, else uint32), `sentence_starts` (int64, number of
sentences + 1: offsets into `tokens`), `document_starts` (int64, number of documents + 1: offsets into the sentences).
Metadata: `format`, `version`, `tokenizer` (fingerprint), `documents`, `sentences`, `tokens`, `unknown_tokens`, and as
JSON `texts` (digests of the text that the store was built of, and of each text appended) and, if text was filtered,
`filters` (the settings) and `left_out` (what was read, and what was dropped by reason).
The shards of a folder are named `tokens-00000-of-00004.safetensors`; their documents follow one another in this order.
"""

import hashlib
import json
import logging
import re
import struct
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import astuple, dataclass
from pathlib import Path
from typing import Any

import numpy as np
from safetensors import SafetensorError

from ..files.checkpoint import open_safetensors
from ..files.errors import refuse_address
from ..files.moves import finish_moves
from ..tokenization import MyBertTokenizer, unknown_warning

logger = logging.getLogger(__name__)

FORMAT = "mybert-token-store"
VERSION = "1"
FILTERS, LEFT_OUT, TEXTS = "filters", "left_out", "texts"
ARRAYS = ("document_starts", "sentence_starts", "tokens")  # the widest dtype first keeps every array aligned
SHARD = "tokens-{:05d}-of-{:05d}.safetensors"
_SHARD_NAME = re.compile(r"tokens-(\d{5})-of-(\d{5})\.safetensors")
_COPIED_AT_A_TIME = 1 << 20  # entries
_SAFETENSORS_TYPES = {"uint16": "U16", "uint32": "U32", "int64": "I64"}
_MIN_SENTENCES = 3  # of a document on average; with fewer a warning is logged


@dataclass(frozen=True)
class StoreSummary:
    """Contents of a token store: numbers of documents, sentences, tokens and [UNK] tokens; size in bytes."""

    documents: int
    sentences: int
    tokens: int
    unknown_tokens: int
    size: int

    def __str__(self) -> str:
        return (
            f"{self.documents:,} documents, {self.sentences:,} sentences, {self.tokens:,} tokens "
            f"({self.unknown_tokens / max(self.tokens, 1):.3%} unknown), {self.size / 1e6:,.1f} MB"
        )

    def log(self, name: str) -> None:
        """Log the contents of the store called `name`, and warn if vocabulary or documents do not fit the text."""
        logger.info("%s: %s.", name, self)
        advice = "mybert vocab learns one from the text."
        if warning := unknown_warning(self.unknown_tokens, self.tokens, advice):
            logger.warning("%s", warning)
        if self.sentences < _MIN_SENTENCES * self.documents:
            logger.warning(
                "Documents have %.1f sentences on average, so most pairs of next sentence prediction are random. If "
                "blank lines separate paragraphs, --document_end file makes each file one document; if lines hold "
                "several sentences, --split_sentences divides them.",
                self.sentences / self.documents,
            )


def tokenizer_fingerprint(tokenizer: MyBertTokenizer) -> str:
    """Return the SHA-256 (hexadecimal) of a tokenizer's vocabulary, normalizer and pre-tokenizer."""
    saved = json.loads(tokenizer.backend_tokenizer.to_str())
    parts = {name: saved[name] for name in ("added_tokens", "normalizer", "pre_tokenizer", "model")}
    return hashlib.sha256(json.dumps(parts, sort_keys=True, ensure_ascii=False).encode()).hexdigest()


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

    These are numpy arrays if the store is one file. Those of several shards support only `len`, `dtype` and indexing
    with an integer, a slice or an array of integers.

    Raises:
        FileNotFoundError: If there is no such file or folder, or a shard is missing.
        ValueError: If a file is not a token store, or was made with another tokenizer.
    """

    tokens: np.ndarray
    sentence_starts: np.ndarray
    document_starts: np.ndarray

    def __init__(self, path: str | Path, tokenizer: MyBertTokenizer | None = None) -> None:
        self.path = Path(path)
        self.summary = read_summary(self.path, tokenizer)
        files = store_files(self.path)
        self.metadata = store_metadata(files[0])
        shards = [_map(file) for file in files]
        for name in ARRAYS:
            arrays = [shard[name] for shard in shards]
            setattr(self, name, arrays[0] if len(arrays) == 1 else _Shards(arrays, are_starts=name != "tokens"))

    def __reduce__(self) -> tuple:
        # A copy in another process maps the files itself; the tokenizer has been checked already.
        return TokenStore, (self.path,)


class _Shards:
    """Arrays of several shards as one, with what users of a store need; offsets continue from shard to shard."""

    def __init__(self, arrays: Sequence[np.ndarray], are_starts: bool) -> None:
        # The last offset of a shard is also the first of the next one.
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


def store_files(path: Path) -> list[Path]:
    """Return the files of a token store: the file itself, or the shards of a folder in their order."""
    finish_moves(path)
    if not path.is_dir():
        if not path.is_file():
            refuse_address(path)
            raise FileNotFoundError(f"There is no token store {path}.")
        return [path]
    names = sorted(entry.name for entry in path.iterdir() if _SHARD_NAME.fullmatch(entry.name))
    if not names:
        raise FileNotFoundError(f"There is no token store in {path}: no file {SHARD.format(0, 1)} or the like.")
    counts = {int(_SHARD_NAME.fullmatch(name)[2]) for name in names}  # type: ignore[index]
    if len(counts) > 1:
        raise ValueError(
            f"{path} holds shards of several stores (of {', '.join(map(str, sorted(counts)))} shards); "
            "expected one store."
        )
    expected = [SHARD.format(index, *counts) for index in range(*counts)]
    if missing := sorted(set(expected) - set(names)):
        raise FileNotFoundError(f"{path} lacks {len(missing)} of {len(expected)} shards: {', '.join(missing[:3])}.")
    return [path / name for name in expected]


def store_metadata(file: Path) -> dict[str, str]:
    """Read the metadata of a safetensors file, which should be a token store or a shard."""
    if not file.is_file():
        raise FileNotFoundError(f"There is no token store {file}.")
    try:
        with open_safetensors(file, "numpy") as store:
            return store.metadata() or {}
    except SafetensorError as error:
        raise ValueError(f"{file} is not a token store: {error}.") from error


def store_filters(file: Path) -> dict[str, Any]:
    """The filters of a token store and their settings; {} if it has none."""
    filters = json.loads(store_metadata(file).get(FILTERS, "{}"))
    if "near_duplicates" not in filters.get("filter", ()):
        filters.pop("near_duplicate_similarity", None)  # the first builds recorded it with every filter
    return filters


def check_store(file: Path, fingerprint: str | None) -> StoreSummary:
    """Check that a file is a token store made with a tokenizer; return its contents in numbers."""
    metadata = store_metadata(file)
    if metadata.get("format") != FORMAT or metadata.get("version") != VERSION:
        raise ValueError(f"{file} is not a token store of version {VERSION}; build it again with mybert data.")
    if metadata.get("tokenizer") != fingerprint:
        raise ValueError(f"{file} was made with another tokenizer or vocabulary; build it again.")
    counts = {name: metadata.get(name, "") for name in ("documents", "sentences", "tokens", "unknown_tokens")}
    if not all(re.fullmatch(r"\d{1,18}", count) for count in counts.values()):
        raise ValueError(f"{file} is not a complete token store: its metadata lacks the counts of its contents.")
    return StoreSummary(**{name: int(count) for name, count in counts.items()}, size=file.stat().st_size)


def read_summary(path: Path, tokenizer: MyBertTokenizer | None = None) -> StoreSummary:
    """Summarize a token store, after checking that the tokenizer made it, and that its shards have equal filters."""
    files = store_files(path)
    fingerprint = store_metadata(files[0]).get("tokenizer") if tokenizer is None else tokenizer_fingerprint(tokenizer)
    summaries = [check_store(file, fingerprint) for file in files]
    if any(store_filters(file) != store_filters(files[0]) for file in files[1:]):
        raise ValueError(f"{path} holds shards that were built with different filters (filter and its settings).")
    return StoreSummary(*(sum(values) for values in zip(*map(astuple, summaries), strict=True)))


def _map(file: Path) -> dict[str, np.ndarray]:
    try:
        # torch tensors are memory-mapped; numpy arrays would be copied.
        with open_safetensors(file, "pt") as store:
            arrays = {name: store.get_tensor(name).numpy() for name in ARRAYS}
    except SafetensorError as error:
        raise ValueError(f"{file} is not a complete token store: {error}.") from error
    for name, end in (
        ("sentence_starts", len(arrays["tokens"])),
        ("document_starts", len(arrays["sentence_starts"]) - 1),
    ):
        if not len(arrays[name]) or arrays[name][0] != 0 or arrays[name][-1] != end:
            raise ValueError(f"{file} is not a complete token store: {name} do not run from 0 to {end:,}.")
    return arrays


def array_length(file: Path, name: str) -> int:
    with open_safetensors(file, "numpy") as store:
        return store.get_slice(name).get_shape()[0]


def array_pieces(file: Path, name: str, skip: int = 0) -> Iterator[np.ndarray]:
    """Read an array in chunks."""
    length = array_length(file, name)
    for begin in range(skip, length, _COPIED_AT_A_TIME):
        # opened each time: the pages that were read of a large file would stay in this process's memory
        with open_safetensors(file, "numpy") as store:
            piece = store.get_slice(name)[begin : min(begin + _COPIED_AT_A_TIME, length)]
        yield piece


def write_arrays(
    path: Path, metadata: dict[str, str], arrays: Mapping[str, tuple[int, Iterable[np.ndarray]]], token_type: np.dtype
) -> None:
    """Write a safetensors file of `ARRAYS`, each given by its length and its chunks."""
    # 8 bytes header length (little-endian), JSON header, data (safetensors documentation, "Format")
    header: dict[str, Any] = {"__metadata__": metadata}
    offset = 0
    for name in ARRAYS:
        count, _ = arrays[name]
        dtype = token_type if name == "tokens" else np.dtype(np.int64)
        end = offset + count * dtype.itemsize
        header[name] = {"dtype": _SAFETENSORS_TYPES[dtype.name], "shape": [count], "data_offsets": [offset, end]}
        offset = end
    encoded = json.dumps(header).encode()
    encoded += b" " * (-len(encoded) % 8)
    with path.open("wb") as file:
        file.write(struct.pack("<Q", len(encoded)) + encoded)
        for name in ARRAYS:
            for piece in arrays[name][1]:
                file.write(np.ascontiguousarray(piece).data)
        assert file.tell() == 8 + len(encoded) + offset
