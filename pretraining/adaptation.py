"""Adapting a pretrained BERT to a domain: new vocabulary pieces and further pretraining (`mybert adapt`)."""

import logging
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
from transformers import AutoModelForMaskedLM

from ..files.checkpoint import Checkpoint, read_json_object
from ..files.loading import load_model
from ..files.output import write_json
from ..files.settings import build
from ..metrics import MaskedWords, fitting_words, masked_words, word_loss
from ..tokenization import MyBertTokenizer
from .adapt_settings import AdaptSettings
from .plan import plan_pretraining
from .run import STORE, run_pretraining, split_documents
from .token_store import TokenStore

logger = logging.getLogger(__name__)

ADAPTATION = "adaptation.json"
_TEXTS = 1000  # held-out texts on which both models are evaluated


def AdaptArguments(**given: Any) -> AdaptSettings:  # noqa: N802  # a class in earlier versions
    """The settings of `adapt`, from the options of the command as keywords; see `PretrainingArguments`."""
    settings = build(AdaptSettings, given)
    plan_pretraining(settings)
    return settings


def adapt(arguments: AdaptSettings) -> dict[str, Any]:
    """Adapt a model to a domain: extend its vocabulary with words of the text, and continue pretraining.

    For the output folder see `pretrain`. It also contains `adaptation.json`: how well the model, before and after,
    predicts the same masked words of held-out documents (`mybert.metrics.word_loss`).

    Returns:
        What `pretrain` returns, with `before` (None for a model without a masked-LM head) and `after`.

    Raises:
        ValueError: See `pretrain`; also if the vocabulary has no free entry and none may be appended.
    """
    plan = plan_pretraining(arguments)
    metrics = run_pretraining(plan)
    if arguments.dry_run or metrics == {"interrupted": True} or not plan.training.should_save:
        return metrics
    folder = str(arguments.output_dir)
    if (report := Path(folder, ADAPTATION)).is_file():
        return metrics | read_json_object(report)
    adapted = MyBertTokenizer.from_pretrained(folder)
    store = TokenStore(arguments.token_store or Path(folder, STORE))
    _, validation = split_documents(store.summary.documents, arguments.validation_split)
    texts = masked_words(_words(store, validation, adapted), _TEXTS)
    old = MyBertTokenizer.from_pretrained(Checkpoint(str(arguments.model)).name)
    texts = fitting_words(adapted, fitting_words(old, texts))  # both can read all masked words
    if not texts:
        logger.info("There is no held-out text to evaluate on (--validation_split).")
        return metrics
    before, after = _loss(str(arguments.model), old, texts), _loss(folder, adapted, texts)
    write_json(report, {"before": before, "after": after})
    shown = "has no masked-LM head" if before is None else f"{before['nats_per_character']:.3f}"
    assert after is not None
    logger.info(
        "Masked words of held-out text, nats per character: %s before, %.3f now (%s words).",
        *(shown, after["nats_per_character"], f"{after['words']:,}"),
    )
    return metrics | {"before": before, "after": after}


def _words(store: TokenStore, documents: Any, tokenizer: MyBertTokenizer) -> Iterator[list[str]]:
    """Yield the words of documents, as the tokenizer splits them; unknown words are left out."""
    for document in documents:
        begin, end = store.document_starts[int(document)], store.document_starts[int(document) + 1]
        tokens = store.tokens[int(store.sentence_starts[int(begin)]) : int(store.sentence_starts[int(end)])]
        kept = tokens[tokens != tokenizer.unk_token_id]
        yield tokenizer.convert_tokens_to_string(tokenizer.convert_ids_to_tokens(kept.tolist())).split()


def _loss(name: str, tokenizer: MyBertTokenizer, texts: list[MaskedWords]) -> dict[str, float] | None:
    """Return a model's loss on masked words; None if it has no masked-LM head."""
    model, report = load_model(Checkpoint(name), AutoModelForMaskedLM, dtype=torch.float32)
    if any(".predictions." in missing and "decoder" not in missing for missing in report["missing_keys"]):
        return None
    return word_loss(model, tokenizer, texts)
