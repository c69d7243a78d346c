"""The token store: a corpus tokenized once, in one memory-mapped safetensors file.

Format: `tokens` (uint16 where the vocabulary fits, else uint32), `sentence_starts` (int64, number of sentences + 1:
offsets into `tokens`), `document_starts` (int64, number of documents + 1: offsets into the sentences). Metadata:
`format`, `version`, `tokenizer` (fingerprint), `documents`, `sentences`, `tokens`, `unknown_tokens`.
"""

import hashlib
import json
import shutil
import struct
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from itertools import islice
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
from safetensors import SafetensorError, safe_open
from tqdm.auto import tqdm

from ..tokenization import BulkEncoder, MyBertTokenizer

FORMAT = "mybert-token-store"
VERSION = "1"
ARRAYS = ("tokens", "sentence_starts", "document_starts")
_DOCUMENTS_AT_A_TIME = 2000
_SAFETENSORS_TYPES = {"uint16": "U16", "uint32": "U32", "int64": "I64"}


@dataclass(frozen=True)
class StoreSummary:
    """What a token store holds: numbers of documents, sentences, tokens and, among these, [UNK]."""

    documents: int
    sentences: int
    tokens: int
    unknown_tokens: int

    def __str__(self) -> str:
        share = self.unknown_tokens / max(self.tokens, 1)
        return (
            f"{self.documents:,} documents, {self.sentences:,} sentences, {self.tokens:,} tokens ({share:.3%} unknown)"
        )


def tokenizer_fingerprint(tokenizer: MyBertTokenizer) -> str:
    """SHA-256 (hexadecimal) of what decides a tokenizer's ids: its vocabulary, normalizer and pre-tokenizer."""
    saved = json.loads(tokenizer.backend_tokenizer.to_str())
    parts = {name: saved[name] for name in ("added_tokens", "normalizer", "pre_tokenizer", "model")}
    return hashlib.sha256(json.dumps(parts, sort_keys=True, ensure_ascii=False).encode()).hexdigest()


def build_token_store(
    documents: Iterable[list[str]],
    tokenizer: MyBertTokenizer,
    path: str | Path,
    *,
    show_progress: bool = True,
) -> StoreSummary:
    """Tokenize documents into a token store.

    Memory does not grow with the corpus. Sentences without tokens and documents without sentences are left out.

    Args:
        documents: Lists of sentences, see `read_documents`.
        tokenizer: The tokenizer; no special tokens are added.
        path: The file to write; it appears when it is complete.
        show_progress: Whether to show a progress bar.

    Returns:
        What the store holds.

    Raises:
        ValueError: If the documents hold no token at all.
    """
    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    token_type: np.dtype = np.dtype(np.uint16) if len(tokenizer) <= 2**16 else np.dtype(np.uint32)
    encoder = BulkEncoder(tokenizer)
    unknown_tokens = 0
    counts = {"tokens": 0, "sentence_starts": 1, "document_starts": 1}
    types: dict[str, np.dtype] = {
        "tokens": token_type,
        "sentence_starts": np.dtype(np.int64),
        "document_starts": np.dtype(np.int64),
    }
    with TemporaryDirectory(dir=path.parent, prefix=f".{path.name}.") as folder:
        parts = {name: (Path(folder) / name).open("wb") for name in counts}
        try:
            for name in ("sentence_starts", "document_starts"):
                parts[name].write(np.zeros(1, types[name]).tobytes())
            remaining = iter(documents)
            with tqdm(desc="Tokenizing", unit=" documents", disable=not show_progress) as progress:
                while batch := list(islice(remaining, _DOCUMENTS_AT_A_TIME)):
                    tokens, sentence_ends, document_ends = _encode(encoder, batch)
                    unknown_tokens += int(np.count_nonzero(tokens == tokenizer.unk_token_id))
                    parts["tokens"].write(tokens.astype(token_type, copy=False).tobytes())
                    parts["sentence_starts"].write((sentence_ends + counts["tokens"]).tobytes())
                    parts["document_starts"].write((document_ends + counts["sentence_starts"] - 1).tobytes())
                    counts["tokens"] += len(tokens)
                    counts["sentence_starts"] += len(sentence_ends)
                    counts["document_starts"] += len(document_ends)
                    progress.update(len(batch))
        finally:
            for part in parts.values():
                part.close()
        if not counts["tokens"]:
            raise ValueError("The corpus is empty: it holds no text to tokenize.")
        summary = StoreSummary(
            documents=counts["document_starts"] - 1,
            sentences=counts["sentence_starts"] - 1,
            tokens=counts["tokens"],
            unknown_tokens=unknown_tokens,
        )
        metadata = {"format": FORMAT, "version": VERSION, "tokenizer": tokenizer_fingerprint(tokenizer)}
        metadata |= {name: str(value) for name, value in asdict(summary).items()}
        complete = Path(folder) / "store"
        _join(complete, metadata, {name: (Path(folder) / name, types[name], counts[name]) for name in counts})
        complete.replace(path)
    return summary


class TokenStore:
    """A token store opened for reading; its arrays are memory-mapped.

    Args:
        path: The file.
        tokenizer: If given, the tokenizer that the store must have been made with.

    Attributes:
        tokens: All token ids, (tokens,).
        sentence_starts: (sentences + 1,): sentence i is `tokens[sentence_starts[i]:sentence_starts[i + 1]]`.
        document_starts: (documents + 1,): document i has the sentences from `document_starts[i]` up to
            `document_starts[i + 1]`.
        metadata: The file's metadata.

    Raises:
        FileNotFoundError: If there is no such file.
        ValueError: If the file is not a token store, or was made with another tokenizer.
    """

    def __init__(self, path: str | Path, tokenizer: MyBertTokenizer | None = None) -> None:
        self.path = Path(path)
        if not self.path.is_file():
            raise FileNotFoundError(f"There is no token store {self.path}.")
        try:
            # Tensors of torch are mapped into memory; numpy's would be copied.
            with safe_open(self.path, framework="pt") as store:
                self.metadata: dict[str, str] = store.metadata() or {}
                arrays = {name: store.get_tensor(name).numpy() for name in ARRAYS}
        except SafetensorError as error:
            raise ValueError(f"{self.path} is not a token store: {error}.") from error
        if self.metadata.get("format") != FORMAT or self.metadata.get("version") != VERSION:
            raise ValueError(f"{self.path} is not a token store of version {VERSION}.")
        self.tokens: np.ndarray = arrays["tokens"]
        self.sentence_starts: np.ndarray = arrays["sentence_starts"]
        self.document_starts: np.ndarray = arrays["document_starts"]
        if tokenizer is not None and self.metadata["tokenizer"] != tokenizer_fingerprint(tokenizer):
            raise ValueError(f"{self.path} was made with another tokenizer or vocabulary; build it again.")

    @property
    def summary(self) -> StoreSummary:
        """What the store holds."""
        return StoreSummary(
            **{name: int(self.metadata[name]) for name in ("documents", "sentences", "tokens", "unknown_tokens")}
        )


def _encode(encoder: BulkEncoder, documents: list[list[str]]) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Tokens, the end of each sentence in them, and the end of each document in the sentences."""
    tokens, offsets = encoder.encode([sentence for document in documents for sentence in document])
    has_tokens = np.diff(offsets) > 0
    sentences_so_far = np.concatenate([[0], np.cumsum(has_tokens)])
    document_ends = sentences_so_far[np.cumsum([len(document) for document in documents])]
    is_new = np.diff(document_ends, prepend=0) > 0
    return tokens, offsets[1:][has_tokens], document_ends[is_new].astype(np.int64)


def _join(path: Path, metadata: dict[str, str], parts: dict[str, tuple[Path, np.dtype, int]]) -> None:
    """Write a safetensors file from raw parts, without holding them in memory.

    Format: 8 bytes header length (little-endian), JSON header, data (safetensors documentation, "Format").
    """
    header: dict[str, object] = {"__metadata__": metadata}
    offset = 0
    # Widest type first keeps every array aligned.
    ordered = sorted(parts.items(), key=lambda part: -part[1][1].itemsize)
    for name, (_, dtype, count) in ordered:
        end = offset + count * dtype.itemsize
        header[name] = {"dtype": _SAFETENSORS_TYPES[dtype.name], "shape": [count], "data_offsets": [offset, end]}
        offset = end
    encoded = json.dumps(header).encode()
    encoded += b" " * (-len(encoded) % 8)
    with path.open("wb") as file:
        file.write(struct.pack("<Q", len(encoded)) + encoded)
        for _, (part, _, _) in ordered:
            with part.open("rb") as data:
                shutil.copyfileobj(data, file, 1 << 20)
