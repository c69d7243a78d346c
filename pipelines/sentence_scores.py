"""How probable a masked language model finds sentences: pseudo-log-likelihoods, and minimal pairs judged by them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from itertools import chain
from numbers import Integral
from typing import Any, get_args

import numpy as np
import torch

from ..files.errors import SettingError
from ..files.progress import progress_bar
from ..modeling_mybert import IGNORE_INDEX, MyBertPreTrainedModel
from ..modeling_mybert.losses_mybert import full_precision
from .batching import EXAMPLES_AT_ONCE, longest_input, run_sorted
from .options import ScoringMethod

_CPU_LOGITS, _ACCELERATOR_LOGITS = 2**22, 2**27  # of a batch; from 32 MB on, each allocation gets new pages from Linux
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
        batch_size: Sequences at a time; None for what suits their lengths, the model and the device. A text is as many
            sequences as it has tokens; of equal texts, one is computed.
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
    max_length = longest if max_length is None else max_length
    if not (isinstance(max_length, Integral) and 3 <= max_length <= longest):
        raise SettingError("max_length", max_length, f"3 to {longest}, what the model reads")
    space = max_length - 2

    def keep(fractions: np.ndarray, outputs: Any, batch: Mapping[str, torch.Tensor], rows: list[int]) -> list[float]:
        bar.update(float(fractions[rows].sum()))  # a long text takes many batches
        return _log_probabilities(outputs, batch["labels"])

    model.eval()
    max_logits = _CPU_LOGITS if model.device.type == "cpu" else _ACCELERATOR_LOGITS
    max_rows = max(1, max_logits // model.config.vocab_size)
    scores: dict[str, np.ndarray] = {}
    distinct = list(dict.fromkeys(texts))
    undo = predict_labeled_only(model)
    try:
        shown = {"unit": " texts", "unit_scale": True, "delay": 2, "disable": not progress}
        with progress_bar(desc="Score", total=len(distinct), **shown) as bar:
            for first in range(0, len(distinct), EXAMPLES_AT_ONCE):
                part = distinct[first : first + EXAMPLES_AT_ONCE]
                copies = _MaskedCopies(tokenizer, part, method, space)
                found = run_sorted(
                    *(model, range(len(copies.ids)), copies.collate, partial(keep, copies.fractions)),
                    *(batch_size, copies.lengths, shared),
                    max_rows=max_rows,
                )
                scores |= zip(part, np.split(np.array(found, dtype=np.float64), copies.text_ends[:-1]), strict=True)
                bar.update(first + len(part) - bar.n)  # empty texts, and those of other processes
    finally:
        undo()
    return [scores[text] for text in texts]


class _MaskedCopies:
    """Copies of texts as arrays, one for each token: it is predicted, and masked with the rest of its word if wanted.

    A text that is longer than `space` has a window of it in each copy.
    """

    def __init__(self, tokenizer: Any, texts: list[str], method: ScoringMethod, space: int) -> None:
        encoded = tokenizer(texts, add_special_tokens=False, truncation=False, verbose=False)
        tokens = encoded["input_ids"]
        counts = np.array([len(ids) for ids in tokens])
        self.text_ends = counts.cumsum()
        text = np.arange(len(texts)).repeat(counts)
        begin, count = (self.text_ends - counts)[text], counts[text]
        self.ids = np.fromiter(chain.from_iterable(tokens), np.int64, len(text))
        token = np.arange(len(text))
        self._masked_ends = token + 1
        if method == "within_word_l2r":
            words = np.fromiter(chain.from_iterable(map(encoded.word_ids, range(len(texts)))), np.int64, len(text))
            self._masked_ends = np.searchsorted(begin + words, begin + words, side="right")
        self._starts = begin + (token - begin - space // 2).clip(0, (count - space).clip(0))
        self.lengths = (count.clip(max=space) + 2).tolist()
        self.fractions = 1 / count  # of its text
        names = ("pad", "cls", "sep", "mask")
        self._pad, self._cls, self._sep, self._mask = (getattr(tokenizer, f"{name}_token_id") or 0 for name in names)

    def collate(self, rows: list[int]) -> dict[str, torch.Tensor]:
        token, place = np.array(rows), np.arange(len(rows))
        lengths = np.array([self.lengths[row] for row in rows])
        column = np.arange(lengths.max())
        positions = self._starts[token][:, None] + column - 1
        is_masked = (positions >= token[:, None]) & (positions < self._masked_ends[token][:, None])
        input_ids = np.where(is_masked, self._mask, self.ids[positions.clip(0, len(self.ids) - 1)])
        input_ids[:, 0], input_ids[place, lengths - 1] = self._cls, self._sep
        is_token = column < lengths[:, None]
        input_ids[~is_token] = self._pad
        labels = np.full_like(input_ids, IGNORE_INDEX)
        labels[place, 1 + token - self._starts[token]] = self.ids[token]
        batch = {"input_ids": input_ids, "attention_mask": is_token.astype(np.int64), "labels": labels}
        return {name: torch.from_numpy(values) for name, values in batch.items()}


def _log_probabilities(outputs: Any, labels: torch.Tensor) -> list[float]:
    """Of the labeled tokens, from a masked LM's logits of all tokens or of these."""
    is_labeled = labels != IGNORE_INDEX
    logits = outputs["prediction_logits" if "prediction_logits" in outputs else "logits"]
    logits = full_precision(logits if logits.ndim == 2 else logits[is_labeled])
    return logits.log_softmax(-1).gather(1, labels[is_labeled][:, None])[:, 0].tolist()


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


def minimal_pair_accuracy(acceptable: Sequence[float], unacceptable: Sequence[float]) -> float:
    """The fraction of minimal pairs whose acceptable sentence has the higher score; ties count as wrong.

    A difference of less than 1e-4 is a tie: scores of equal sentences differ that much if their batches differ.
    """
    return float(np.mean(np.subtract(acceptable, unacceptable) >= _TIE))
