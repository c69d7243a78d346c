"""Texts that are longer than the model's input: overlapping windows, and the pipelines that read them.

Where windows start, which window decides about a token, and how the logits of windows become those of the text. Shared
by fine-tuning and pipelines. (The windows of question answering follow Google's code, see `spans`.)
"""

from __future__ import annotations

import copy
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from itertools import pairwise
from typing import Any, Literal

import numpy as np
import torch
from transformers import TextClassificationPipeline, TokenClassificationPipeline
from transformers.pipelines.base import Pipeline
from transformers.tokenization_utils_base import VERY_LARGE_INTEGER

from ..files.checkpoint import TASK_RECORD
from ..files.errors import SettingError
from .batching import check_at_least_one, logits_of, longest_input, pad_rows, run_sorted
from .word_cut import WordCut

WindowPooling = Literal["mean", "max"]

_SIDES = "window_sides"  # for each token: 1 in the first text, 2 in the second, 0 for special tokens and padding


def default_stride(space: int) -> int:
    """Tokens that neighboring windows share by default: 128, or half of a window if that is fewer."""
    return min(128, space // 2)


def window_starts(tokens: int, space: int, stride: int | None = None) -> list[int]:
    """The index of the first token of each window of a text.

    Args:
        tokens: Length of the text, in tokens.
        space: Tokens of the text in a window.
        stride: Tokens that neighboring windows share, in [0, `space`); None for `default_stride`. The last two
            windows may share more, so that all windows of a long text are full.

    Raises:
        ValueError: If a window has no space for text, or `stride` is not less than `space`.
    """
    if space < 1:
        raise SettingError.worded(
            "a window has space for {} tokens of the text; expected a larger {max_length}.", space
        )
    if tokens <= space:
        return [0]
    stride = default_stride(space) if stride is None else stride
    if not 0 <= stride < space:
        raise SettingError("doc_stride", stride, f"0 to {space - 1}: a window holds {space} of the text")
    return [*range(0, tokens - space, space - stride), tokens - space]


def own_tokens(starts: Sequence[int], space: int, tokens: int) -> list[tuple[int, int]]:
    """The tokens each window decides about: those with the most context there, on their shorter side.

    Args:
        starts: The result of `window_starts`.
        space: Tokens of the text in a window.
        tokens: Length of the text, in tokens.

    Returns:
        For each window its range of tokens, (first, end); ties go to the first window.
    """
    borders = [(before + space + after + 1) // 2 for before, after in pairwise(starts)]
    return list(pairwise([0, *borders, tokens]))


def window_places(sides: Sequence[int | None], max_length: int, stride: int | None = None) -> list[list[int]]:
    """Split a tokenized text, or a pair, into windows, each with its special tokens.

    For a pair the windows slide over the longer text (over the second if they are equally long); the other is in every
    window, truncated to half of it.

    Args:
        sides: For each token, 0 in the first text, 1 in the second, and None for special tokens.
        max_length: Maximum length of a window in tokens, special tokens included.
        stride: See `window_starts`.

    Returns:
        For each window, the indices of its tokens.

    Raises:
        ValueError: If there is no space for windows.
    """
    texts = [[place for place, side in enumerate(sides) if side == number] for number in (0, 1)]
    kept, slid = sorted(texts, key=len)
    if len(kept) == len(slid):
        kept, slid = texts
    space = max_length - (len(sides) - len(kept) - len(slid))
    kept = kept[: max(space, 0) // 2]
    space -= len(kept)
    fixed = {place for place, side in enumerate(sides) if side is None} | set(kept)
    return [sorted(fixed | set(slid[start : start + space])) for start in window_starts(len(slid), space, stride)]


def pool_windows(logits: np.ndarray, owners: Sequence[int], pooling: WindowPooling) -> np.ndarray:
    """The logits of texts from those of their windows.

    Logits and not probabilities are pooled, so the result is again logits: single labels, multiple labels, regression,
    thresholds and calibration work as without windows.

    Args:
        logits: Logits of the windows (windows, C).
        owners: Index of the text of each window (windows,), from 0; every text has at least one.
        pooling: `"mean"` over a text's windows, or `"max"` for each class.

    Returns:
        Logits of the texts (texts, C).
    """
    texts = np.asarray(owners)
    shape = (texts.max() + 1, logits.shape[1])
    if pooling == "mean":
        total = np.zeros(shape)
        np.add.at(total, texts, logits)
        return total / np.bincount(texts)[:, None]
    highest = np.full(shape, -np.inf)
    np.maximum.at(highest, texts, logits)
    return highest


def _recorded(pipeline: Pipeline, setting: str) -> dict[str, Any]:
    """A window setting with which the model was fine-tuned, if its configuration has it."""
    record = getattr(pipeline.model.config, TASK_RECORD, None)
    return record if isinstance(record, dict) and record.get(setting) is not None else {}


def windowed_pipeline(task: str, config: Mapping[str, Any]) -> type[Pipeline] | None:
    """The pipeline class that reads a model's texts in windows, if its configuration says that it was trained so.

    Args:
        task: Name of transformers' pipeline.
        config: Content of the model's `config.json`.
    """
    setting, pipeline_class = {
        "text-classification": ("window_pooling", WindowedTextClassificationPipeline),
        "token-classification": ("doc_stride", WindowedTokenClassificationPipeline),
    }.get(task, ("", None))
    record = config.get(TASK_RECORD)
    return pipeline_class if isinstance(record, dict) and record.get(setting) is not None else None


def _window_logits(
    pipeline: Pipeline, inputs: Mapping[str, torch.Tensor], windows: Sequence[tuple[int, Sequence[int]]]
) -> list[np.ndarray]:
    """The logits of windows, (text, indices of its tokens): (C,) or (tokens, C) each."""
    values = {name: tensor.cpu().numpy() for name, tensor in inputs.items()}
    rows = [{name: array[text, list(places)] for name, array in values.items()} for text, places in windows]

    def keep(outputs: Any, batch: object, chosen: list[dict[str, np.ndarray]]) -> list[np.ndarray]:
        logits = logits_of(outputs)
        pairs = zip(logits, chosen, strict=True)
        return [one[: len(row["input_ids"])] for one, row in pairs] if logits.ndim == 3 else list(logits)

    return run_sorted(pipeline.model, rows, partial(pad_rows, pipeline.tokenizer), keep)


class WindowedTextClassificationPipeline(TextClassificationPipeline):
    """`pipeline("text-classification")` that can read long texts in windows and pool their logits.

    Example:
        >>> from mybert.pipelines import WindowedTextClassificationPipeline
        >>> from transformers import pipeline
        >>> classify = pipeline(
        ...     "text-classification", model="path/to/model", pipeline_class=WindowedTextClassificationPipeline
        ... )

    Args:
        window_pooling: `"mean"` or `"max"`; by default as in fine-tuning, or no windows.
        max_length: Maximum length of a window in tokens; by default as in fine-tuning, or the model's maximum.
        doc_stride: Number of tokens that neighboring windows share.
        truncation: True truncates texts, even if the model was fine-tuned with windows.
    """

    def _sanitize_parameters(self, *args: Any, **parameters: Any) -> tuple[dict[str, Any], ...]:
        given = {name: parameters.pop(name) for name in ("window_pooling", "doc_stride") if name in parameters}
        for_preprocess, for_forward, for_postprocess = super()._sanitize_parameters(*args, **parameters)
        if given.get("window_pooling") not in (None, "mean", "max"):
            raise SettingError.worded(
                "{window_pooling} is {!r:.60}; expected 'mean' or 'max'.", given["window_pooling"]
            )
        longest = {"max_length": parameters["max_length"]} if "max_length" in parameters else {}
        if longest.get("max_length") is not None:
            check_at_least_one(**longest)
        return for_preprocess | given, for_forward | given | longest, for_postprocess

    def preprocess(
        self,
        inputs: Any,
        window_pooling: WindowPooling | None = None,
        doc_stride: int | None = None,
        **tokenizer_kwargs: Any,
    ) -> Any:
        """Tokenize a text or a pair, without truncation if windows are used."""
        has_windows = window_pooling or _recorded(self, "window_pooling")
        if not has_windows or tokenizer_kwargs.get("truncation"):
            if doc_stride is not None:
                raise SettingError.worded(
                    "{doc_stride} is set without windows; expected {window_pooling} 'mean' or 'max'."
                )
            return super().preprocess(inputs, **tokenizer_kwargs)
        tokenizer_kwargs.pop("max_length", None)
        encoded = super().preprocess(inputs, **tokenizer_kwargs | {"truncation": False, "verbose": False})
        sides = [0 if side is None else side + 1 for side in encoded.sequence_ids(0)]
        return {**encoded, _SIDES: torch.tensor([sides])}

    def _forward(
        self,
        model_inputs: Any,
        window_pooling: WindowPooling | None = None,
        doc_stride: int | None = None,
        max_length: int | None = None,
    ) -> Any:
        if _SIDES not in model_inputs:
            return super()._forward(model_inputs)
        record = _recorded(self, "window_pooling")
        doc_stride = record.get("doc_stride") if doc_stride is None else doc_stride
        if max_length is None:  # also of a model that was fine-tuned without windows
            max_length = _recorded(self, "max_length").get("max_length") or longest_input(self.model, self.tokenizer)
        inputs = dict(model_inputs)
        all_sides = inputs.pop(_SIDES).tolist()
        windows: list[tuple[int, Sequence[int]]] = []
        for text, mask in enumerate(inputs["attention_mask"].tolist()):
            there = [place for place, value in enumerate(mask) if value]
            sides = [(side - 1 if side else None) for side in (all_sides[text][place] for place in there)]
            if len(there) <= max_length:
                windows.append((text, there))
                continue
            cut = window_places(sides, max_length, doc_stride)
            windows += [(text, [there[place] for place in places]) for places in cut]
        logits = np.stack(_window_logits(self, inputs, windows))
        pooled = pool_windows(logits, [text for text, _ in windows], window_pooling or record["window_pooling"])
        return {"logits": torch.from_numpy(pooled)}


class WindowedTokenClassificationPipeline(TokenClassificationPipeline):
    """`pipeline("token-classification")` for models that were fine-tuned with windows (`--doc_stride`).

    A text of any length is read in windows as by `mybert predict`: a token has the scores of the window in which it
    has most context, and words and entities follow from these as for a short text. Texts are cut into words as the
    training data was. `stride` replaces the number of shared tokens used in fine-tuning. For any other model this is
    transformers' own pipeline.
    """

    tokenizer: Any

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        if _recorded(self, "doc_stride"):  # transformers truncates at the tokenizer's maximum length
            self.tokenizer = copy.deepcopy(self.tokenizer)
            self.tokenizer.model_max_length = VERY_LARGE_INTEGER

    def _sanitize_parameters(self, stride: int | None = None, **parameters: Any) -> tuple[dict[str, Any], ...]:
        if stride is None or not _recorded(self, "doc_stride"):
            return super()._sanitize_parameters(stride=stride, **parameters)
        for_preprocess, for_forward, for_postprocess = super()._sanitize_parameters(**parameters)
        return for_preprocess, for_forward | {"stride": stride}, for_postprocess

    def preprocess(self, sentence: Any, offset_mapping: Any = None, **parameters: Any) -> Iterator[dict[str, Any]]:
        """Tokenize the words of a text."""
        word_cut = _recorded(self, "doc_stride").get("word_cut")
        spans = WordCut.from_record(word_cut).spans(sentence) if word_cut and isinstance(sentence, str) else []
        if not spans:
            yield from super().preprocess(sentence, offset_mapping, **parameters)
            return
        words = [sentence[start:end] for start, end in spans]
        parameters |= {"is_split_into_words": True, "delimiter": " "}
        for inputs in super().preprocess(words, offset_mapping, **parameters):
            yield inputs | {"sentence": sentence, "word_to_chars_map": spans}

    def gather_pre_entities(self, *args: Any, word_ids: Sequence[int | None] | None = None, **named: Any) -> Any:
        """The pieces of a text; those of a word after the first are marked as such, marks included."""
        found = super().gather_pre_entities(*args, word_ids=word_ids, **named)
        words = [word for word in word_ids or () if word is not None]
        if len(words) == len(found):
            for piece, (before, word) in zip(found[1:], pairwise(words), strict=True):
                piece["is_subword"] = before == word
        return found

    def _forward(self, model_inputs: Any, stride: int | None = None) -> Any:
        record = _recorded(self, "doc_stride")
        if not record:
            return super()._forward(model_inputs)
        own = ("special_tokens_mask", "offset_mapping", "sentence", "is_last", "word_ids", "word_to_chars_map")
        kept = {name: model_inputs.pop(name, None) for name in own}
        stride = record["doc_stride"] if stride is None else stride
        max_length = record.get("max_length") or longest_input(self.model, self.tokenizer)
        windows: list[tuple[int, Sequence[int]]] = []
        # for each window: its text, its own tokens' indices there, and in the window
        taken: list[tuple[int, list[int], slice]] = []
        masks = (kept["special_tokens_mask"].tolist(), model_inputs["attention_mask"].tolist())
        for text, (is_special, is_token) in enumerate(zip(*masks, strict=True)):
            there = [place for place, value in enumerate(is_token) if value]  # padding may be on either side
            length = len(there)
            inside = [number for number, place in enumerate(there) if not is_special[place]] or [0]
            first, tokens = inside[0], inside[-1] + 1 - inside[0]
            space = max_length - (length - tokens)
            starts = window_starts(tokens, space, stride)
            for start, (begin, end) in zip(starts, own_tokens(starts, space, tokens), strict=True):
                held = range(first + start, first + start + min(space, tokens))
                numbers = [*range(first), *held, *range(first + tokens, length)]
                windows.append((text, [there[number] for number in numbers]))
                in_window = slice(first + begin - start, first + end - start)
                taken.append((text, there[first + begin : first + end], in_window))
        logits = torch.zeros(*kept["special_tokens_mask"].shape, self.model.config.num_labels)
        found = _window_logits(self, model_inputs, windows)
        for values, (text, in_text, in_window) in zip(found, taken, strict=True):
            logits[text, in_text] = torch.from_numpy(values[in_window])
        return {"logits": logits, **kept, **model_inputs}
