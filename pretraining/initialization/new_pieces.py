"""New pieces for the initial model's vocabulary, learned from the text; their embeddings come from old ones."""

import logging
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal, TypeVar

import torch
from transformers import PreTrainedModel

from ...files.options import AT_LEAST_0, AT_LEAST_1, Group, check_options, option
from ...tokenization import Extension, MyBertTokenizer, count_corpus_words, extend_vocabulary, spell

logger = logging.getLogger(__name__)

_SHOWN = 12  # pieces

Model = TypeVar("Model", bound=PreTrainedModel)


@dataclass
class NewPiecesSettings:
    """How a vocabulary is extended from a text."""

    group = Group.MODEL
    decides = True
    new_pieces: int = option(
        1000,
        "Pieces to learn from the text, those that save most tokens; they replace [unused] entries, then are "
        "appended. 0: keep the vocabulary.",
        AT_LEAST_0,
    )
    new_piece_frequency: int = option(5, "How often a new piece must occur in the text.", AT_LEAST_1)
    append_pieces: bool = option(True, "Append new pieces to the old ones once all [unused] entries are taken.")
    new_rows: Literal["mean", "random"] = option(
        "mean", "Initial embedding of a new piece: mean of the old pieces it was split into, or random."
    )

    __post_init__ = check_options


def learn_new_pieces(
    tokenizer: MyBertTokenizer,
    documents: Iterable[list[str]],
    settings: NewPiecesSettings,
    num_processes: int | None = None,
    show_progress: bool = True,
) -> Extension:
    """Return a tokenizer extended with pieces from documents, lists of sentences, and log what they save."""
    words = count_corpus_words(documents, tokenizer, num_processes, show_progress)
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
