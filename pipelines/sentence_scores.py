"""How probable a masked language model finds sentences: pseudo-log-likelihoods, and minimal pairs judged by them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import pairwise
from typing import Any, get_args

import numpy as np
import torch

from ..files.errors import SettingError
from ..files.progress import progress_bar
from ..modeling_mybert import IGNORE_INDEX, MyBertPreTrainedModel
from ..modeling_mybert.losses_mybert import full_precision
from .batching import EXAMPLES_AT_ONCE, longest_input, run_sorted
from .options import ScoringMethod

_Row = tuple[np.ndarray, np.ndarray, int]  # a text's token ids, the ends of `_word_ends`, and which token is predicted
_TIE = 1e-4  # nats
_LABELED_ONLY = "predicts_labeled_only"  # attribute of a model with such hooks
_MINIMAL_PAIRS = (("sentence_good", "sentence_bad"), ("good", "bad"), ("text", "text_pair"))


def minimal_pair_columns(names: Iterable[str]) -> tuple[str, str] | None:
    """The columns of the acceptable and the unacceptable sentence of minimal pairs, if a table has such a pair."""
    return next((pair for pair in _MINIMAL_PAIRS if set(names).issuperset(pair)), None)


def pseudo_log_likelihoods(
    model: Any,
    tokenizer: Any,
    texts: Sequence[str],
    method: ScoringMethod = "within_word_l2r",
    max_length: int | None = None,
    batch_size: int | None = None,
    shared: bool = False,
    progress: bool = False,
) -> list[np.ndarray]:
    """Score texts with a masked language model, token by token (Salazar et al., 2020, arXiv 1910.14659).

    Each token is masked in turn and predicted from all others; their log-probabilities add up to the text's
    pseudo-log-likelihood. With `"original"` only that token is masked, so that the pieces of a rare word reveal each
    other and it gets too high a score. With `"within_word_l2r"` the pieces to its right in the same word are masked,
    too (Kauf and Ivanova, 2023, arXiv 2305.10588).

    A text that is longer than the model's input is read in windows, one for each token, with that token in the middle
    (at the text's ends, with as much context as there is).

    Args:
        model: A model with a masked-LM head, MyBERT or of transformers; it is put in evaluation mode. Only the masked
            position's logits are computed.
        tokenizer: Its tokenizer, a fast one.
        texts: The texts.
        method: Which tokens are masked together.
        max_length: Longest sequence in tokens, [CLS] and [SEP] included; None for the model's maximum.
        batch_size: Sequences at a time; None for what suits their lengths and the device. A text is as many sequences
            as it has tokens.
        shared: Whether the processes of a run divide the work; each returns all results.
        progress: Whether to show a progress bar.

    Returns:
        For each text the natural logarithm of each token's probability, float64, shape (tokens,), without special
        tokens; empty for an empty text. Their sum is the score, minus their mean the logarithm of the
        pseudo-perplexity.

    Raises:
        ValueError: If the model is left-to-right, its tokenizer has no mask token, or `max_length` is below 3 or above
            the model's maximum.
    """
    if method not in get_args(ScoringMethod):
        raise SettingError("method", method, known=get_args(ScoringMethod))
    if tokenizer.mask_token_id is None or getattr(model.config, "is_decoder", False):
        what = "left-to-right" if tokenizer.mask_token_id is not None else "without a mask token"
        raise ValueError(f"The model is {what}; expected a masked language model.")
    longest = longest_input(model, tokenizer)
    if not 3 <= (max_length or longest) <= longest:
        raise SettingError("max_length", max_length, f"3 to {longest}, what the model reads")
    space = (max_length or longest) - 2

    def length_of(row: _Row) -> int:
        return min(len(row[0]), space) + 2

    def collate(rows: list[_Row]) -> dict[str, torch.Tensor]:
        lengths = np.array([length_of(row) for row in rows])
        input_ids = np.full((len(rows), lengths.max()), tokenizer.pad_token_id or 0)
        labels = np.full_like(input_ids, IGNORE_INDEX)
        for number, (ids, word_ends, place) in enumerate(rows):
            start = min(max(place - space // 2, 0), max(len(ids) - space, 0))
            window = ids[start : start + space].copy()
            window[place - start : word_ends[place] - start] = tokenizer.mask_token_id
            input_ids[number, : lengths[number]] = [tokenizer.cls_token_id, *window, tokenizer.sep_token_id]
            labels[number, 1 + place - start] = ids[place]
        is_token = np.arange(input_ids.shape[1]) < lengths[:, None]
        batch = {"input_ids": input_ids, "attention_mask": is_token.astype(np.int64), "labels": labels}
        return {name: torch.from_numpy(values) for name, values in batch.items()}

    def keep(outputs: Any, batch: Mapping[str, torch.Tensor], rows: list[_Row]) -> list[float]:
        bar.update(sum(1 / len(ids) for ids, _, _ in rows))  # a long text takes many batches
        is_predicted = batch["labels"] != IGNORE_INDEX
        logits = outputs["prediction_logits" if "prediction_logits" in outputs else "logits"]
        logits = logits if logits.ndim == 2 else logits[is_predicted]
        found = full_precision(logits).log_softmax(-1).gather(1, batch["labels"][is_predicted][:, None])
        return found[:, 0].tolist()

    model.eval()
    scores: list[np.ndarray] = []
    undo = predict_labeled_only(model)
    try:
        shown = {"unit": " texts", "unit_scale": True, "delay": 2, "disable": not progress}
        with progress_bar(desc="Score", total=len(texts), **shown) as bar:
            for first in range(0, len(texts), EXAMPLES_AT_ONCE):
                part = list(texts[first : first + EXAMPLES_AT_ONCE])
                encoded = tokenizer(part, add_special_tokens=False, truncation=False, verbose=False)
                tokens = [np.array(ids, dtype=np.int64) for ids in encoded["input_ids"]]
                rows = [
                    (ids, word_ends, place)
                    for number, ids in enumerate(tokens)
                    for word_ends in [_word_ends(encoded.word_ids(number), method)]
                    for place in range(len(ids))
                ]
                found = run_sorted(model, rows, collate, keep, batch_size, list(map(length_of, rows)), shared)
                ends = np.cumsum([0, *map(len, tokens)])
                scores += [np.array(found[start:end], dtype=np.float64) for start, end in pairwise(ends)]
                bar.update(first + len(part) - bar.n)  # empty texts, and those of other processes
    finally:
        undo()
    return scores


def predict_labeled_only(model: Any) -> Callable[[], None]:
    """Let a masked LM compute the logits of labeled tokens only, (tokens, vocabulary), and no loss; returns the undo.

    The vocabulary's layer is most of the work: XLM-RoBERTa has 250,000 words. A second call changes nothing.
    """
    if isinstance(model, MyBertPreTrainedModel):
        before, model.config.sparse_prediction = model.config.sparse_prediction, True
        return lambda: setattr(model.config, "sparse_prediction", before)
    layer = model.get_output_embeddings()
    is_known = isinstance(layer, torch.nn.Linear) and layer.out_features == model.config.vocab_size
    if not is_known or hasattr(model, _LABELED_ONLY):
        return lambda: None
    is_labeled: list[torch.Tensor] = []

    def take_labels(module: object, args: Any, inputs: dict[str, Any]) -> Any:
        is_labeled[:] = [inputs.pop("labels") != IGNORE_INDEX]
        return args, inputs

    handles = [
        model.register_forward_pre_hook(take_labels, with_kwargs=True, prepend=True),
        layer.register_forward_pre_hook(lambda module, inputs: (inputs[0][is_labeled[0]],)),
    ]
    setattr(model, _LABELED_ONLY, True)

    def undo() -> None:
        delattr(model, _LABELED_ONLY)
        for handle in handles:
            handle.remove()

    return undo


def _word_ends(words: Sequence[int], method: ScoringMethod) -> np.ndarray:
    """For each token, given its word's number, the end of the tokens that are masked with it."""
    if method == "original":
        return np.arange(1, len(words) + 1)
    return np.searchsorted(words, words, side="right")


def minimal_pair_accuracy(acceptable: Sequence[float], unacceptable: Sequence[float]) -> float:
    """The fraction of minimal pairs whose acceptable sentence has the higher score; ties count as wrong.

    A difference of less than 1e-4 is a tie: scores of equal sentences differ that much if their batches differ.
    """
    return float(np.mean(np.subtract(acceptable, unacceptable) >= _TIE))
