"""Text to documents: lists of sentences in the order of the text."""

from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from ...files.documents import Corpus, DocumentSettings
from ...files.source import GivenData, has_items
from ...files.text import split_sentences


def read_documents(
    files: str | Path | Iterable[str | Path], *, digests: dict[str, str] | None = None, **settings: Any
) -> Iterator[list[str]]:
    """Read documents from files or from the Hub, one after the other, with one document in memory at a time.

    Plain text has one sentence a line and a blank line between documents, unless its lines look wrapped or the
    settings say otherwise. In tables (`.csv`, `.tsv`, JSON lines, Parquet) and on the Hub, a row is a document. See
    `mybert.files.documents.Corpus`.

    Args:
        files: Files, folders or patterns; "-" is standard input; `hf:owner/name` is a data set of the Hub.
        digests: Filled with the digests of completely read files, see `mybert.files.open_text`; not for Parquet.
        settings: Those of `DocumentSettings`: `split_sentences`, `encoding`, `text_column`, `join_lines`,
            `document_end`, `heading_pattern`.

    Yields:
        Documents, each a list of at least one sentence without surrounding white space.

    Raises:
        OSError: A file is missing, broken or cannot be read, or there is no such data set.
        ValueError: A file does not have the format its name suggests, or lacks the column; the message names the file
            and the byte offset, line or row (counted from 1).
        ImportError: The package that reads this kind of file is missing.
        TypeError: A setting does not exist.
    """
    text = DocumentSettings(**settings)  # here, not when the first document is requested
    return documents_of_lines(Corpus(files, text).lines(digests), text.split_sentences)


def lines_of_documents(documents: Iterable) -> Iterator[str]:
    """Yield the lines of documents, lists of sentences, with "" after each document."""
    for number, document in enumerate(documents):
        if isinstance(document, str):
            raise ValueError(f"Document {number} is a str, expected a list of sentences.")
        for sentence in document:
            if not isinstance(sentence, str):
                raise ValueError(f"Document {number} holds a {type(sentence).__name__}, expected sentences (str).")
            if sentence:
                yield sentence.replace("\n", " ")
        yield ""


def documents_of_lines(lines: Iterable[str], split: bool = False) -> Iterator[list[str]]:
    """Group lines, with "" after each document, into documents; with `split`, split lines into sentences."""
    document: list[str] = []
    for line in lines:
        if line:
            document.extend(split_sentences(line) if split else [line])
        elif document:
            yield document
            document = []


def named_or_given(text: Any) -> list[Any]:
    """Return file names as they are; a table, or an iterable of documents that is no list of names, as `GivenData`."""
    if isinstance(text, (str, Path, GivenData)) or text is None:
        text = [] if text is None else [text]
    is_list = isinstance(text, (list, tuple, set, frozenset))
    if is_list and all(isinstance(item, (str, Path, GivenData)) for item in text):
        return [str(item) if isinstance(item, Path) else item for item in text]
    if isinstance(text, Mapping) or not has_items(text):
        raise ValueError(
            f"text is a {type(text).__name__}; expected files, a table (DataFrame, Dataset) or an iterable of texts."
        )
    return [GivenData("text", text)]
