"""Text to a token store: read once, tokenized in chunks by several processes, joined to one file or several shards."""

from __future__ import annotations

import copy
import hashlib
import json
import logging
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, fields
from itertools import chain
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from ..files.documents import Cleaning, Corpus, DocumentSettings, expand_sources
from ..files.errors import SettingError
from ..files.moves import PARTIAL, discard
from ..files.options import is_given, options_of, said, settings_of
from ..files.output import check_output_files, place_to_write, reserved, written_beside
from ..files.processes import fitting_processes, map_in_processes
from ..files.progress import progress_bar
from ..files.settings import build
from ..files.source import InMemoryData, is_frame, rows_of_batch, with_columns
from ..files.text import new_digest, split_sentences
from ..tokenization import BulkEncoder, MyBertTokenizer
from .filtering import CorpusFilter, FilterReport, documents_of_lines
from .scripts import canonical_names
from .settings import REASONS, FilterSettings, StoreSettings
from .token_store import (
    FILTERS,
    FORMAT,
    LEFT_OUT,
    SHARD,
    TEXTS,
    VERSION,
    StoreSummary,
    array_length,
    array_pieces,
    check_store,
    store_filters,
    store_metadata,
    tokenizer_fingerprint,
    write_arrays,
)

if TYPE_CHECKING:
    from _typeshed import StrPath


logger = logging.getLogger(__name__)

_CHUNK_CHARACTERS = 1 << 22  # a unit of work, and the most that a process loses when killed
_STEP_CHARACTERS = 1 << 16  # between updates of the progress bar


def build_token_store(
    documents: StrPath | Iterable[StrPath] | Iterable[list[str]] | Corpus,
    tokenizer: MyBertTokenizer,
    path: str | Path,
    *,
    overwrite: bool = True,
    show_progress: bool = True,
    **settings: Any,
) -> StoreSummary:
    """Tokenize documents into a token store.

    The text is processed in chunks. Memory does not grow with the corpus, and the bytes written do not depend on the
    number of processes. Finished chunks stay in a hidden folder next to `path` until the store is complete: after any
    interruption, the same call reuses the chunks whose text is unchanged. Text that has already been appended is not
    appended again. Sentences without tokens and documents without sentences are dropped.

    Args:
        documents: Files, folders, patterns or data sets of the Hub, see `read_documents`; or documents, each a list of
            sentences; or a data frame or data set, whose `text_column` holds one document per row; or a `Corpus`.
        tokenizer: The tokenizer. No special tokens are added, and those in the text are ordinary text ("[MASK]" is
            three words, as in Google's tokenizer).
        path: The file to write, which appears when complete; with several shards, their folder.
        overwrite: Whether to replace an existing token store; other files, and links, are never replaced.
        show_progress: Whether to show a progress bar.
        settings: Options of `StoreSettings`: those of `read_documents`, `num_processes`, `shard_index`, `num_shards`
            (shards may be built on different machines), `shard_by` ("documents": every `num_shards`-th document;
            "files": a part of the files), `append`, and `filter` with its thresholds (see `CorpusFilter`). Text of
            less than four million characters uses one process by default.

    Returns:
        The contents of the store (or of this shard), in numbers.

    Raises:
        ValueError: If the documents have no tokens, the store to append to was made with another tokenizer or other
            filters, a setting is out of range, `path` is a folder or another kind of file, or a document is not a list
            of sentences; see also `read_documents`.
        OSError: If another process is writing this store.
    """
    store = build(StoreSettings, settings)
    with token_store_built(documents, tokenizer, path, store, overwrite, show_progress) as summary:
        return summary


@contextmanager
def token_store_built(
    documents: StrPath | Iterable[StrPath] | Iterable[list[str]] | Corpus,
    tokenizer: MyBertTokenizer,
    path: str | Path,
    store: StoreSettings,
    overwrite: bool,
    show_progress: bool,
) -> Iterator[StoreSummary]:
    """Build a token store, see `build_token_store`, for a block that makes more of it.

    If the block fails, the same call without `overwrite` finds the complete store and goes on with the block.
    """
    store.check_reasons()
    path = place_to_write(path)
    kept = _corpus_filter(store, store.filter, tokenizer) if store.filter else None
    if store.num_shards > 1:
        path = path / SHARD.format(store.shard_index, store.num_shards)
    fingerprint = tokenizer_fingerprint(tokenizer)
    filters = _recorded_filters(store) if store.filter else {}
    folder = path.with_name(f".{path.name}{PARTIAL}")  # it stays until everything is done
    may_exist = overwrite or store.append or folder.is_dir()
    check_output_files([path], may_exist)
    lines = _read(documents, store)  # errors in its files are reported before a folder is made
    with reserved(path, overwrite=may_exist) as output:
        texts = _texts_of(path, store.append, fingerprint, filters) if path.exists() else {}
        lines = _counted(lines, "Tokenizing", show_progress)
        lines = lines if kept is None else kept.lines(lines)
        if store.num_shards > 1 and store.shard_by == "documents":
            lines = _every_nth_document(lines, store.shard_index, store.num_shards)
        encoder = _ChunkEncoder(tokenizer, fingerprint, store.split_sentences, folder)
        files, digest = _tokenized(lines, encoder, folder, store.num_processes)
        if kept is not None:
            logger.info("What is left out:\n%s", kept.report)
        if not any(array_length(file, "tokens") for file in files):
            discard(folder)
            which = f"Shard {store.shard_index} of {store.num_shards}" if store.num_shards > 1 else "The corpus"
            left = f" ({', '.join(store.filter)} were left out)" if store.filter else ""
            raise ValueError(f"{which} is empty: it holds no text to tokenize{left}.")
        appended = texts.get("appended", [])
        if digest in appended if store.append else not overwrite and texts.get("built") == digest:
            logger.info(
                "%s already has this text: it was not %s again.", path, "appended" if store.append else "built"
            )
            summary = check_store(path, fingerprint)
        else:
            check_output_files([path], overwrite or store.append)
            texts = texts | {"appended": [*appended, digest]} if store.append else {"built": digest}
            recorded = {TEXTS: json.dumps(texts)}
            parts = [path, *files] if store.append and path.exists() else files
            with output.written() as temporary:
                if kept is not None:
                    recorded |= {
                        FILTERS: json.dumps(filters, sort_keys=True),
                        LEFT_OUT: _left_out(kept.report, parts[0]),
                    }
                summary = _join(parts, fingerprint, temporary, recorded, encoder.dtype)
        try:
            yield summary
        except (OSError, MemoryError, KeyboardInterrupt):
            logger.warning("%s is complete; the same command without --overwrite makes the rest.", path)
            raise
        except BaseException:
            discard(folder)
            raise
        discard(folder)


def _recorded_filters(store: StoreSettings) -> dict[str, Any]:
    """What a store records of its filters, in an order of its own."""
    return settings_of(FilterSettings, store.filters) | {
        "scripts": canonical_names(store.scripts),
        "filter": [reason for reason in REASONS if reason in store.filter],
    }


def _texts_of(path: Path, is_to_grow: bool, fingerprint: str, filters: dict[str, Any]) -> dict[str, Any]:
    """Digests of the texts that a store holds, by what they were read for; an error if it must not be changed."""
    metadata = store_metadata(path)
    if metadata.get("format") != FORMAT:
        raise ValueError(f"{path} is not a token store, so it is not replaced; name another place.")
    if is_to_grow:
        check_store(path, fingerprint)
        if (earlier := store_filters(path)) != filters:
            names = ", ".join(earlier.get("filter", ())) or "none"
            raise ValueError(
                f"{path} was built with other filters ({names}, and their settings); repeat them, or build a new "
                "token store."
            )
    texts: dict[str, Any] = json.loads(metadata.get(TEXTS, "{}"))
    return texts


def _tokenized(
    lines: Iterable[str], encoder: _ChunkEncoder, folder: Path, num_processes: int | None
) -> tuple[list[Path], str]:
    """Encode lines to files in a folder, one for each chunk; return these and the digest of the text."""
    try:
        folder.mkdir(exist_ok=True)
        text = new_digest()
        processes, chunks = fitting_processes(_chunks(lines, text), num_processes)
        with map_in_processes(encoder, processes) as encoded:
            return list(encoded(chunks)), text.hexdigest()
    except BaseException as error:
        if folder.is_dir() and not any(folder.iterdir()):
            folder.rmdir()
        elif isinstance(error, (OSError, MemoryError, KeyboardInterrupt)):
            logger.warning("What was tokenized is kept; the same command continues from there.")
        raise


def inspect_corpus(
    documents: StrPath | Iterable[StrPath] | Iterable[list[str]],
    tokenizer: MyBertTokenizer | None = None,
    *,
    show_progress: bool = True,
    **settings: Any,
) -> FilterReport:
    """Examine a corpus: what would be dropped, and why. Nothing is written.

    Arguments and errors are those of `build_token_store`. If `filter` is empty, all possible reasons are checked, each
    as if it were the only one; without a tokenizer `many_tokens` is not.
    """
    return inspected(documents, tokenizer, build(StoreSettings, settings), show_progress)


def inspected(
    documents: StrPath | Iterable[StrPath] | Iterable[list[str]],
    tokenizer: MyBertTokenizer | None,
    store: StoreSettings,
    show_progress: bool,
) -> FilterReport:
    """As `inspect_corpus`, with settings of a store."""
    each_alone = not store.filter
    if each_alone:
        if tokenizer is None:
            logger.info("Tokens are not counted: that needs a tokenizer (--tokenizer).")
    else:
        store.check_reasons()
        if tokenizer is None and "many_tokens" in store.filter:
            raise SettingError.worded(
                "{filter} has many_tokens but {tokenizer} is not set; give the tokenizer that counts them."
            )
    kept = _corpus_filter(store, store.filter or REASONS, tokenizer, each_alone)
    for _ in kept.lines(_counted(_read(documents, store), "Reading", show_progress)):
        pass
    return kept.report


def _corpus_filter(
    store: StoreSettings, reasons: Sequence[str], tokenizer: MyBertTokenizer | None, each_alone: bool = False
) -> CorpusFilter:
    counts_tokens = tokenizer is not None and "many_tokens" in reasons
    encoder = _text_encoder(tokenizer) if tokenizer is not None and counts_tokens else None
    shard = (store.shard_index, store.num_shards) if store.shard_by == "documents" else (0, 1)
    return CorpusFilter(reasons, store.filters, encoder, shard, each_alone)


def _left_out(report: FilterReport, first: Path) -> str:
    """Return what was read and dropped, with that of the store to append to if it is the first file."""
    earlier = json.loads(store_metadata(first).get(LEFT_OUT, "{}"))
    counts = {
        reason: {name: value + earlier.get(reason, {}).get(name, 0) for name, value in amount.items()}
        for reason, amount in report.counts().items()
    }
    return json.dumps(counts)


def _read(
    documents: StrPath | Iterable[StrPath] | Iterable[list[str]] | Corpus, settings: StoreSettings
) -> Iterator[str]:
    """Yield all lines, or those of a shard's files, and "" after each document."""
    if isinstance(documents, (str, PathLike)):
        documents = [documents]
    in_memory = not isinstance(documents, Corpus) and is_frame(documents)
    items: Iterator = iter(() if in_memory or isinstance(documents, Corpus) else documents)
    first = next(items, None)
    given: Iterable = chain([] if first is None else [first], items)
    if isinstance(first, (str, PathLike)):
        return Corpus(_files_of_shard(given, settings), settings.corpus).lines()
    if settings.num_shards > 1 and settings.shard_by == "files":
        raise SettingError.worded(
            "{shard_by} is files and the documents are {}; expected files, or {shard_by} documents.",
            "a Corpus" if isinstance(documents, Corpus) else "in memory",
        )
    if isinstance(documents, Corpus):
        return documents.lines()
    if in_memory:
        return Corpus(InMemoryData(type(documents).__name__, documents), settings.corpus).lines()
    for name in ("join_lines", "heading_pattern", "document_end"):
        if is_given(settings, options_of(StoreSettings)[name]):
            raise SettingError.worded(
                "{} and the documents are lists of sentences; expected files or a table, whose lines it divides.",
                said(name, getattr(settings, name)),
            )
    return lines_of_documents(given, settings.clean)


def _files_of_shard(files: Iterable[str | Path], settings: StoreSettings) -> list[str]:
    """Return the files that a shard reads: consecutive ones, so that the text stays in order."""
    sources, count = expand_sources(files), settings.num_shards
    if settings.shard_by == "documents":
        return sources
    if len(sources) < count:
        raise SettingError.worded(
            "{shard_by} is files and there are {} of them; expected at least {}, one per shard.", len(sources), count
        )
    return sources[settings.shard_index * len(sources) // count : (settings.shard_index + 1) * len(sources) // count]


def _counted(lines: Iterable[str], what: str, is_shown: bool) -> Iterator[str]:
    """Yield lines, and show how many characters have been read, whatever is dropped of them later."""
    with progress_bar(desc=what, unit=" characters", unit_scale=True, disable=not is_shown, delay=2) as progress:
        size = 0
        for line in lines:
            size += len(line) + 1
            if size >= _STEP_CHARACTERS:
                progress.update(size)
                size = 0
            yield line
        progress.update(size)


def _every_nth_document(lines: Iterable[str], index: int, count: int) -> Iterator[str]:
    document = 0
    for line in lines:
        if document % count == index:
            yield line
        document += not line


def _chunks(lines: Iterable[str], digest: Any) -> Iterator[list[str]]:
    """Yield lines in chunks, and add each line to the digest of the text."""
    chunk: list[str] = []
    size = 0
    for line in lines:
        digest.update(f"{line}\n".encode("utf-8", "surrogatepass"))
        chunk.append(line)
        size += len(line) + 1
        if size >= _CHUNK_CHARACTERS:
            yield chunk
            chunk, size = [], 0
    if chunk:
        yield chunk


def _text_encoder(tokenizer: MyBertTokenizer) -> BulkEncoder:
    """Return an encoder that treats special tokens in text as ordinary text."""
    tokenizer = copy.copy(tokenizer)
    tokenizer.split_special_tokens = True
    return BulkEncoder(tokenizer)


class _ChunkEncoder:
    """Encodes a chunk of lines to a file like a token store, named by the chunk's content, unless it exists."""

    def __init__(self, tokenizer: MyBertTokenizer, fingerprint: str, split: bool, folder: Path) -> None:
        self._encoder = _text_encoder(tokenizer)
        self.dtype = self._encoder.dtype
        self._unknown = tokenizer.unk_token_id
        self._key = f"{VERSION} {fingerprint} {split} ".encode()
        self._split = split
        self._folder = folder

    # The file's `document_starts` are 0 and the number of sentences up to the end of each document; documents may be
    # empty, and the last one may continue in the next chunk.
    def __call__(self, lines: list[str]) -> Path:
        """Return the file."""
        text = "\n".join((*lines, ""))
        name = hashlib.blake2b(self._key + text.encode("utf-8", "surrogatepass"), digest_size=20).hexdigest()
        file = self._folder / name
        try:
            if store_metadata(file):
                return file
        except (FileNotFoundError, ValueError):
            pass  # not there, or not complete
        if self._split:
            # "" has no sentences, but still ends a document.
            lines = [sentence for line in lines for sentence in (split_sentences(line) if line else [line])]
        tokens, offsets = self._encoder.encode(lines)
        lengths = np.diff(offsets)
        ends_document = np.fromiter(map(len, lines), np.int64, len(lines)) == 0
        arrays = {
            "document_starts": np.concatenate([[0], np.cumsum(lengths > 0)[ends_document]]),
            "sentence_starts": np.concatenate([[0], offsets[1:][lengths > 0]]),
            "tokens": tokens.astype(self.dtype, copy=False),
        }
        metadata = {"unknown_tokens": str(np.count_nonzero(tokens == self._unknown))}
        pieces = {name: (len(array), [array]) for name, array in arrays.items()}
        with written_beside(file) as temporary:
            write_arrays(temporary, metadata, pieces, self.dtype)
        return file


def _join(
    files: Sequence[Path], fingerprint: str, path: Path, filters: dict[str, str], token_type: np.dtype
) -> StoreSummary:
    """Join an existing store (first, if any) and chunks into a store, piece by piece."""
    documents = sum(map(len, _document_ends(files)))
    sentences = sum(array_length(file, "sentence_starts") - 1 for file in files)
    tokens = sum(array_length(file, "tokens") for file in files)
    counts = {
        "documents": documents,
        "sentences": sentences,
        "tokens": tokens,
        "unknown_tokens": sum(int(store_metadata(file)["unknown_tokens"]) for file in files),
    }
    metadata = {"format": FORMAT, "version": VERSION, "tokenizer": fingerprint}
    metadata |= {name: str(count) for name, count in counts.items()} | filters
    zero = [np.zeros(1, np.int64)]
    arrays: dict[str, tuple[int, Iterable[np.ndarray]]] = {
        "document_starts": (documents + 1, chain(zero, _document_ends(files))),
        "sentence_starts": (sentences + 1, chain(zero, _ends(files, "sentence_starts", "tokens"))),
        "tokens": (tokens, chain.from_iterable(array_pieces(file, "tokens") for file in files)),
    }
    write_arrays(path, metadata, arrays, token_type)
    return StoreSummary(**counts, size=path.stat().st_size)


def _document_ends(files: Iterable[Path]) -> Iterator[np.ndarray]:
    """Yield the index of the last sentence of each document, plus 1, without documents that have no sentences."""
    last = 0
    for ends in _ends(files, "document_starts", "sentence_starts"):
        ends = ends[np.diff(ends, prepend=last) > 0]
        if len(ends):
            last = ends[-1]
            yield ends


def _ends(files: Iterable[Path], name: str, of: str) -> Iterator[np.ndarray]:
    """Yield offsets into `of` without the first 0, continued from file to file."""
    before = 0
    for file in files:
        yield from (piece + before for piece in array_pieces(file, name, skip=1))
        before += array_length(file, of) - (of != "tokens")


def read_documents(files: str | Path | Iterable[str | Path], **settings: Any) -> Iterator[list[str]]:
    """Read documents from files or from the Hub, one after the other, with one document in memory at a time.

    Plain text has one sentence a line and a blank line between documents, unless its lines look wrapped or the
    settings say otherwise. In tables (`.csv`, `.tsv`, JSON lines, Parquet) and on the Hub, a row is a document. See
    `mybert.files.documents.Corpus`.

    Args:
        files: Files, folders or patterns; "-" is standard input; `hf:owner/name` is a data set of the Hub.
        settings: Those of `DocumentSettings`: `split_sentences`, `encoding`, `text_column`, `join_lines`,
            `document_end`, `heading_pattern`.

    Yields:
        Documents, each a list of at least one sentence without surrounding white space.

    Raises:
        ValueError: There is no text, or a file does not have the format its name suggests, or lacks the column; the
            message names the file and the byte offset, line or row (counted from 1).
        ImportError: The package that reads this kind of file is missing.
    """
    text = build(DocumentSettings, settings)  # here, not when the first document is requested
    documents = filter(None, documents_of_lines(Corpus(files, text).lines()))
    if not text.split_sentences:
        return documents
    return ([sentence for line in document for sentence in split_sentences(line)] for document in documents)


def lines_of_documents(documents: Iterable, clean: Sequence[str] = ()) -> Iterator[str]:
    """Yield the lines of documents, lists of sentences, cleaned if asked, with "" after each document."""
    cleaning = Cleaning(clean)
    for number, document in enumerate(documents):
        if isinstance(document, str):
            raise ValueError(f"Document {number} is a str; expected a list of sentences.")
        for sentence in document:
            if not isinstance(sentence, str):
                raise ValueError(f"Document {number} holds a {type(sentence).__name__}; expected sentences (str).")
            sentence = sentence.replace("\n", " ")
            if line := cleaning.text(sentence).replace("\n", " ").strip() if clean else sentence:
                yield line
        yield ""


_NUMBER = "id"  # the column in `ray.data.range` and Spark's `range`


class StoreShards:
    """Builds the shards of a token store whose numbers come in batches, on the workers of an engine.

        ray.data.range(8, override_num_blocks=8).map_batches(shards, batch_size=1).take_all()  # Ray Data
        spark.range(0, 8, numPartitions=8).mapInPandas(shards, shards.schema).collect()  # Spark

    Shards are byte for byte those of `build_token_store` with the same `shard_index`, whichever worker builds them. If
    a worker is lost, its tokenized chunks remain next to the shard, and the next worker continues from there.

    Args:
        files: Files, folders, patterns or data sets of the Hub, under names valid on every machine.
        tokenizer: The tokenizer.
        path: The folder of the shards, valid on every machine.
        num_shards: Total number of shards.
        settings: Other settings of `build_token_store`; `num_processes` is 1 unless it is given.

    Raises:
        ValueError: If a setting is out of range, or `append` is set, which would not be safe to repeat.
    """

    schema = ", ".join(f"{name} long" for name in (_NUMBER, *(item.name for item in fields(StoreSummary))))
    """Schema of the returned batches, for Spark."""

    def __init__(
        self,
        files: StrPath | Iterable[StrPath],
        tokenizer: MyBertTokenizer,
        path: str | Path,
        *,
        num_shards: int,
        **settings: Any,
    ) -> None:
        self.files = files if isinstance(files, (str, PathLike)) else list(files)
        self.tokenizer = tokenizer
        self.path = path
        self.settings = {"num_processes": 1, "num_shards": num_shards} | settings
        if build(StoreSettings, self.settings).append:
            raise SettingError.worded(
                "{append} is set; an engine may build a shard more than once and would append the text each "
                "time. Expected a new store, or build_token_store."
            )

    def __call__(self, batch: Any) -> Any:
        """Build the shards whose numbers are in the column `id` of a batch, or of each in an iterator.

        A batch is column -> values (a dictionary of NumPy arrays or lists), a `pandas.DataFrame` or a `pyarrow.Table`;
        the result is one of the same kind: `id`, and the counts of each shard as columns, see `StoreSummary`.
        """
        if isinstance(batch, Iterator):
            return map(self, batch)
        rows = rows_of_batch(batch)
        if rows and _NUMBER not in rows[0]:
            there = ", ".join(map(repr, rows[0]))
            raise ValueError(f"The batch has no column {_NUMBER!r}, the numbers of shards; its columns are {there}.")
        built = []
        for row in rows:
            settings = self.settings | {"shard_index": row[_NUMBER], "show_progress": False}
            built.append(asdict(build_token_store(self.files, self.tokenizer, self.path, **settings)))
        columns = {item.name: [summary[item.name] for summary in built] for item in fields(StoreSummary)}
        return with_columns(batch, [_NUMBER], columns)
