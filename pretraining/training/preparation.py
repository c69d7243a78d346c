"""What a pretraining run needs, made and checked once: tokenizer, token store, held-out documents, configuration."""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
from transformers import IntervalStrategy

from ...files import Checkpoint, check_available, files_written_beside
from ...files.documents import Corpus, DocumentSettings
from ...files.options import settings_of
from ...files.source import GivenData
from ...modeling_mybert import MyBertConfig
from ...runs import RunFolder, last_complete_checkpoint
from ...tokenization import MyBertTokenizer, VocabularyBasics, train_wordpiece
from ..initialization.cooccurrence import require_scikit_learn
from ..initialization.new_pieces import learn_new_pieces
from ..store.documents import documents_of_lines, lines_of_documents
from ..store.filtering import CorpusFilter
from ..store.store_builder import build_token_store
from ..store.store_format import StoreSummary, TokenStore, read_summary, store_files
from ..store.store_settings import CorpusSettings, FilterSettings
from .pretraining_arguments import PretrainingArguments

STORE = "tokens.safetensors"  # in the output folder
_TYPES = ("bert", MyBertConfig.model_type)  # of initial models


@dataclass(frozen=True)
class PreparedRun:
    """What a run needs in addition to its settings, made and checked once."""

    tokenizer: MyBertTokenizer  # that of the store
    store: TokenStore
    training: np.ndarray  # documents, ascending
    heldout: np.ndarray  # documents to evaluate on; fewer than 2 for none
    config: MyBertConfig
    checkpoint: str | None  # to resume from


def prepare_run(arguments: PretrainingArguments, folder: RunFolder) -> PreparedRun:
    """Begin or resume the run: make what is missing, and check everything."""
    if arguments.tokenizer:
        check_available(arguments.tokenizer, "tokenizer")
    if arguments.model:
        _check_start(arguments.model)
    if arguments.embeddings == "cooccurrence":
        require_scikit_learn()
    corpus = None
    given = {str(text): text.recorded for text in arguments.text if isinstance(text, GivenData)}
    if arguments.data:
        sources = [arguments.data]
        files = list(map(str, store_files(Path(arguments.data))))
    else:
        corpus = Corpus(arguments.text, DocumentSettings(**settings_of(DocumentSettings, arguments)))
        sources = corpus.sources
        files = _files(source for source in sources if source not in given)
    settings = arguments.decisive() | {"text": list(given.values()) or sources}
    read = [name for name in (arguments.tokenizer, arguments.model) if name]
    prepared: dict[str, Any] = {}
    digests: dict[str, str] = {}

    def documents() -> Iterator[list[str]]:
        assert corpus is not None
        return documents_of_lines(corpus.lines(digests))  # the token store splits them into sentences

    def prepare(place: Path) -> dict[str, str]:
        tokenizer = _tokenizer(arguments, documents, place)
        summary = _store(arguments, documents, tokenizer, place)
        training, heldout = _split(summary.documents, arguments)
        config = arguments.model_config(tokenizer)
        # The saved tokenizer truncates to the model's maximum length, as usual on the Hub.
        tokenizer.model_max_length = config.max_position_embeddings
        prepared.update(tokenizer=tokenizer, training=training, heldout=heldout, config=config)
        return digests

    folder.begin(settings, files, read, prepare)
    store = TokenStore(arguments.data or folder.path / STORE)
    return PreparedRun(**prepared, store=store, checkpoint=last_complete_checkpoint(folder.path))


def split_documents(count: int, heldout: float) -> tuple[np.ndarray, np.ndarray]:
    """Split documents 0 ... count - 1 into training and held-out ones (none, or 2 or more), evenly over the corpus."""
    documents = np.arange(count)
    number = round(count * heldout)
    if number < 2:
        return documents, documents[:0]
    is_heldout = np.zeros(count, dtype=bool)
    is_heldout[np.linspace(0, count - 1, number).round().astype(int)] = True
    return documents[~is_heldout], documents[is_heldout]


def _files(sources: Iterable[str]) -> list[str]:
    """Return those sources that are files; the others are on the Hub."""
    files = [source for source in sources if Path(source).exists()]
    for file in files:
        if not Path(file).is_file():
            raise ValueError(f"{file} is a pipe, which can be read only once; give files or a token store.")
    return files


def _check_start(model: str) -> None:
    """Reject an unsuitable initial model before the text is processed."""
    checkpoint = Checkpoint(model).check()
    model_type = checkpoint.fields.get("model_type", "bert")  # Google's have no type
    if model_type not in _TYPES:
        raise ValueError(
            f"model is {model!r}, of type {model_type!r}; pretraining can continue with {' or '.join(_TYPES)} only."
        )
    checkpoint.refuse_quantized_weights()


def _tokenizer(
    arguments: PretrainingArguments, documents: Callable[[], Iterator[list[str]]], place: Path
) -> MyBertTokenizer:
    """Return the given tokenizer, that of the initial model or of the token store, or one trained in `place`."""
    wanted = arguments.new_pieces_settings()
    if (named := arguments.tokenizer or arguments.model) and not wanted:
        return MyBertTokenizer.from_pretrained(named)
    if arguments.data is not None:
        store = Path(arguments.data)
        folder = store if store.is_dir() else store.parent
        if not (folder / "tokenizer.json").is_file():
            raise ValueError(f"There is no tokenizer.json beside {store}; give its tokenizer with --tokenizer.")
        return MyBertTokenizer.from_pretrained(folder)
    # vocab.txt is the last of a tokenizer's files to be moved into place.
    if (place / "vocab.txt").exists():
        return MyBertTokenizer.from_pretrained(place)
    text = documents()
    if arguments.drop:  # except many_tokens, which needs the vocabulary that is still to be learned
        text = documents_of_lines(CorpusFilter(arguments.drop, FilterSettings()).lines(lines_of_documents(text)))
    first = next(text, None)
    if first is None:
        raise ValueError(f"The corpus is empty: there is no text in {', '.join(map(str, arguments.text))}.")
    work: dict[str, Any] = {"num_processes": arguments.num_processes, "show_progress": not arguments.disable_tqdm}
    if wanted:
        old = MyBertTokenizer.from_pretrained(str(named))
        tokenizer = learn_new_pieces(old, chain([first], text), wanted, **work).tokenizer
    else:
        tokenizer = train_wordpiece(texts=chain([first], text), **work, **settings_of(VocabularyBasics, arguments))
    with files_written_beside(place) as folder:
        tokenizer.save_pretrained(folder)
    return tokenizer


def _store(
    arguments: PretrainingArguments,
    documents: Callable[[], Iterator[list[str]]],
    tokenizer: MyBertTokenizer,
    place: Path,
) -> StoreSummary:
    """Check the given token store, or the one of an earlier call, or build it in `place`."""
    path = Path(arguments.data) if arguments.data else place / STORE
    if arguments.data or path.exists():
        return read_summary(path, tokenizer)
    settings = settings_of(CorpusSettings, arguments)
    return build_token_store(documents(), tokenizer, path, show_progress=not arguments.disable_tqdm, **settings)


def _split(count: int, arguments: PretrainingArguments) -> tuple[np.ndarray, np.ndarray]:
    needed = 2 if arguments.objective == "mlm+nsp" else 1
    if count < needed:
        raise ValueError(
            f"{', '.join(map(str, arguments.text)) or arguments.data}: only one document; next sentence prediction "
            "draws random sentences from another document. Put a blank line between documents."
        )
    training, heldout = split_documents(count, arguments.heldout)
    if len(training) < needed:
        raise ValueError(f"heldout is {arguments.heldout}; too few of the {count} documents are left for training.")
    if not len(heldout) and arguments.eval_strategy != IntervalStrategy.NO:
        raise ValueError(
            f"heldout is {arguments.heldout}; of {count} documents that is less than the 2 that an "
            "evaluation needs. Hold out more, or pass --eval_strategy no."
        )
    return training, heldout
