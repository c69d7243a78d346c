"""Initial weights other than random ones: word embeddings from counts, rows of new pieces, repeated positions.

Co-occurrence counts contain most of what the first millions of tokens teach the embeddings by gradient descent, and
counting takes seconds. Sources: Levy and Goldberg (2014), "Neural Word Embedding as Implicit Matrix Factorization";
for the smoothed distribution of contexts and the root of the singular values Levy, Goldberg and Dagan (2015),
"Improving Distributional Similarity with Lessons Learned from Word Embeddings".
"""

import logging
from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, TypeVar

import numpy as np
import torch
from torch.distributed.tensor import DTensor, distribute_tensor
from transformers import PreTrainedModel

from ..files.errors import how_to_install
from ..tokenization import Extension, MyBertTokenizer, count_corpus_words, extend_vocabulary, spell
from .settings import NewPiecesSettings
from .token_store import TokenStore

if TYPE_CHECKING:
    from scipy.sparse import csr_array

logger = logging.getLogger(__name__)

Model = TypeVar("Model", bound=PreTrainedModel)

WINDOW = 5  # pieces to each side; the k-th has weight 1 / k
_CONTEXTS = 8192  # the most frequent pieces are counted as neighbors: a matrix of 1 GB for 30,000 pieces
_MAX_TOKENS = 100_000_000  # in a longer text every n-th document is counted
_TOKENS_AT_A_TIME = 2_000_000
_SMOOTHING = 0.75  # power of the contexts' frequencies
_POWER_ITERATIONS = 4
_SHOWN = 12  # new pieces that are logged
_DEVIATION = 3  # times that of random weights, so that words outweigh the position embeddings added to them


@torch.no_grad()
def begin_with_statistics(model: PreTrainedModel, store: TokenStore, documents: np.ndarray) -> None:
    """Initialize word embeddings from co-occurrences, and the output layer's bias from frequencies."""
    weights = model.get_input_embeddings().weight
    embeddings, counts = map(torch.from_numpy, piece_statistics(store, documents, *weights.shape))
    seen = counts > 0  # embeddings of pieces that do not occur are not changed
    length = _DEVIATION * model.config.initializer_range * weights.shape[1] ** 0.5
    weights[seen] = length * embeddings[seen]
    shares = (counts + 1.0) / (counts + 1.0).sum()
    model.get_output_embeddings().bias.copy_(shares.log())
    logger.info("Word embeddings of %s pieces start from counts of their neighbors.", f"{int(seen.sum()):,}")


def piece_statistics(
    store: TokenStore, documents: np.ndarray, vocab_size: int, width: int
) -> tuple[np.ndarray, np.ndarray]:
    """Return embeddings that factor the positive pointwise mutual information of pieces (PPMI), and their counts."""
    randomized_svd = require_scikit_learn()
    counts = np.zeros(vocab_size, dtype=np.int64)
    for tokens, _ in _chunks(store, documents):
        counts += np.bincount(tokens, minlength=vocab_size)
    contexts = np.argsort(-counts, kind="stable")[: min(_CONTEXTS, np.count_nonzero(counts))]
    information = _positive_information(_neighbors(store, documents, vocab_size, contexts))
    # Dimensions beyond the rank of the text are 0. The result is reproducible to the byte on the same machine.
    rank = min(width, len(contexts))
    left, values, _ = randomized_svd(information, rank, n_iter=_POWER_ITERATIONS, random_state=0)
    embeddings = np.zeros((vocab_size, width), dtype=np.float32)
    seen = counts > 0
    found = (left * np.sqrt(values))[seen]
    found -= found.mean(0)
    embeddings[seen, :rank] = found / max(np.linalg.norm(found, axis=1).mean(), np.finfo(np.float32).tiny)
    # (vocab_size, width), float32: mean 0 and mean length 1 over the pieces that occur, 0 for others; (vocab_size,)
    return embeddings @ _rotation(width), counts


def require_scikit_learn() -> Callable:
    """Import scikit-learn's truncated SVD; also called before a run, which would otherwise fail minutes later."""
    try:
        from sklearn.utils.extmath import randomized_svd
    except ImportError as error:
        raise ImportError(
            f"Embeddings from counts of neighbors need scikit-learn: {how_to_install('train')} ({error})."
        ) from error
    return randomized_svd


def _chunks(store: TokenStore, documents: np.ndarray) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Yield the tokens of several whole documents at a time, and the document of each token."""
    begin = store.sentence_starts[store.document_starts[documents]]
    end = store.sentence_starts[store.document_starts[documents + 1]]
    every = -(-int((end - begin).sum()) // _MAX_TOKENS) or 1
    begin, end = begin[::every], end[::every]
    number = np.cumsum(end - begin) // _TOKENS_AT_A_TIME
    for part in np.unique(number):
        here = np.flatnonzero(number == part)
        texts = [store.tokens[begin[i] : end[i]] for i in here]
        yield np.concatenate(texts).astype(np.int64), np.repeat(here, end[here] - begin[here])


def _neighbors(store: TokenStore, documents: np.ndarray, vocab_size: int, contexts: np.ndarray) -> "csr_array":
    """Return the weighted count of each context near each piece in the same document, (vocab_size, contexts)."""
    from scipy.sparse import coo_array, csr_array

    shape = (vocab_size, len(contexts))
    column = np.full(vocab_size, -1)
    column[contexts] = np.arange(len(contexts))
    near = csr_array(shape, dtype=np.float32)
    for tokens, document in _chunks(store, documents):
        for distance in range(1, WINDOW + 1):
            together = document[distance:] == document[:-distance]
            first, second = tokens[:-distance][together], tokens[distance:][together]
            for rows, columns in ((first, column[second]), (second, column[first])):
                known = columns >= 0
                ones = np.full(np.count_nonzero(known), 1 / distance, dtype=np.float32)
                near += coo_array((ones, (rows[known], columns[known])), shape).tocsr()
    return near


def _positive_information(near: "csr_array") -> np.ndarray:
    """Return max(log(p(context | piece) / p(context)), 0), dense, with smoothed context probabilities."""
    of_piece = np.asarray(near.sum(axis=1), dtype=np.float64)
    of_context = np.asarray(near.sum(axis=0), dtype=np.float64) ** _SMOOTHING
    of_context /= of_context.sum()
    pairs = near.tocoo()
    rows, columns = pairs.coords
    pairs.data = np.maximum(np.log(pairs.data / (of_piece[rows] * of_context[columns])), 0).astype(np.float32)
    return pairs.toarray()


def _rotation(width: int) -> np.ndarray:
    """Return a rotation that spreads the strongest components over all coordinates, and so over all heads."""
    random = np.random.default_rng(0).standard_normal((width, width))
    return np.linalg.qr(random)[0].astype(np.float32)


@torch.no_grad()
def repeat_positions(weight: torch.Tensor, known: int) -> None:
    """Initialize positions (P, D), in place, from `known` >= 2 on by repeating the earlier ones without [CLS]'s."""
    whole = weight.full_tensor() if isinstance(weight, DTensor) else weight  # sharded by rows (FSDP 2)
    # relative positions keep their meaning there (as in Longformer, Beltagy et al., 2020, section 5)
    rows = 1 + torch.arange(len(whole) - known, device=whole.device) % (known - 1)
    whole = torch.cat([whole[:known], whole[rows]])
    if isinstance(weight, DTensor):
        whole = distribute_tensor(whole, weight.device_mesh, weight.placements)
    weight.copy_(whole)


def learn_new_pieces(
    tokenizer: MyBertTokenizer,
    lines: Iterable[str],
    settings: NewPiecesSettings,
    num_processes: int | None = None,
    show_progress: bool = True,
) -> Extension:
    """Return a tokenizer extended with pieces from the lines of a text, and log what they save."""
    words = count_corpus_words(lines, tokenizer, num_processes, show_progress)
    number = settings.new_pieces
    extension = extend_vocabulary(tokenizer, words, number, settings.new_piece_frequency, settings.append_pieces)
    pieces = list(extension.spellings)
    before, after = extension.tokens_per_word
    if pieces:
        logger.info(
            "%s new pieces, %s of them in [unused] entries: %s%s",
            *(f"{len(pieces):,}", f"{extension.in_place:,}", ", ".join(pieces[:_SHOWN])),
            ", ..." if len(pieces) > _SHOWN else ".",
        )
    logger.info("Tokens per word of this text: %.3f before, %.3f now.", before, after)
    if len(pieces) < number:
        logger.warning(
            "The text gives %d new pieces instead of %d: no others occur often enough.", len(pieces), number
        )
    return extension


@torch.no_grad()
def add_rows(model: Model, old: MyBertTokenizer, new: MyBertTokenizer, rows: str = "mean") -> Model:
    """Add new pieces, in place, to the embeddings and masked-LM output layer of a model with the old tokenizer."""
    vocab = old.get_vocab()
    if len(new) > model.get_input_embeddings().weight.shape[0]:
        model.resize_token_embeddings(len(new), mean_resizing=False)
    embeddings = model.get_input_embeddings().weight
    decoder = model.get_output_embeddings()
    bias = None if decoder is None else decoder.bias
    matrices = [embeddings] if decoder is None or decoder.weight is embeddings else [embeddings, decoder.weight]
    generator = torch.Generator().manual_seed(0)
    deviation = model.config.initializer_range
    for piece, index in sorted(new.get_vocab().items(), key=lambda item: item[1]):
        if piece in vocab:
            continue
        # "mean": a new piece starts as the mean of the pieces that spelled it so far (embedding, output weights if not
        # shared, and output bias; IndoBERTweet, Koto et al., 2021, arXiv 2109.04607). Pieces that were unknown, and
        # all pieces with "random", are initialized like a new model's.
        parts = [vocab[part] for part in spell(piece, vocab) or []] if rows == "mean" else []
        for matrix in matrices:
            if parts:
                matrix[index] = matrix[parts].mean(0)
            else:
                matrix[index] = deviation * torch.randn(matrix.shape[1], generator=generator)
        if bias is not None:
            bias[index] = bias[parts].mean() if parts else 0.0
    return model
