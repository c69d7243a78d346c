"""Batches of similar length, and the base class of the pipelines that use them."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import islice
from numbers import Integral
from operator import itemgetter
from typing import Any

import numpy as np
import torch
from torch.utils.data import Dataset
from transformers.pipelines.base import Pipeline

from ..files.errors import SettingError
from ..files.loading import check_tokenizer, longest_sequence
from ..files.progress import progress_bar

EXAMPLES_AT_ONCE = 512
"""Number of examples tokenized and sorted together: enough for little padding, few enough for memory."""


_ACCELERATOR_TOKENS = 16384  # keep an accelerator busy
# The hidden states of a CPU's batch are 4 MB, which fits its cache; a small network needs many tokens to be busy.
_CPU_STATES, _MIN_CPU_TOKENS = 2**20, 1024


def batches_by_length(
    lengths: Sequence[int], model: Any, batch_size: int | None = None, max_rows: int = sys.maxsize
) -> Iterator[list[int]]:
    """Yield the indices of rows in batches of similar length, the longest first, so that memory errors come early.

    Without a batch size, a batch has at most `max_rows` rows and the tokens, padding included, that suit the size of
    the model and its device, or one longer row.
    """
    budget = _ACCELERATOR_TOKENS
    if model.device.type == "cpu":
        config = getattr(model, "config", None)  # graphs of other runtimes have none
        budget = max(_MIN_CPU_TOKENS, _CPU_STATES // getattr(config, "hidden_size", _CPU_STATES))
    order = np.argsort(-np.asarray(lengths), kind="stable").tolist()
    start = 0
    while start < len(order):
        size = batch_size or max(1, min(max_rows, budget // max(1, lengths[order[start]])))
        yield order[start : start + size]
        start += size


def check_at_least_one(**numbers: int) -> None:
    """Raise a ValueError that names the first number that is not an integer or is below 1."""
    for name, number in numbers.items():
        if not isinstance(number, Integral) or isinstance(number, bool) or number < 1:
            raise ValueError(f"{name} is {number!r:.80}; expected at least 1 (a whole number).")


def run_sorted(
    model: Any,
    rows: Sequence[Any],
    collate: Callable[[list[Any]], Mapping[str, Any]],
    keep: Callable[[Any, Mapping[str, Any], list[Any]], Iterable[Any]],
    batch_size: int | None = None,
    lengths: Sequence[int] | None = None,
    shared: bool = False,
    progress: bool = False,
    max_rows: int = sys.maxsize,
) -> list[Any]:
    """Run rows through a model in batches of similar length, and return what `keep` keeps, in the rows' order.

    `collate` makes the model's arguments of rows; `keep` gets its outputs, these arguments and the rows. `lengths` are
    those of the rows in tokens, by default of their `input_ids`. If the work is `shared`, the processes of a run
    divide it, and each returns all results. Without a batch size, a batch has at most `max_rows` rows.
    """
    lengths = [len(row["input_ids"]) for row in rows] if lengths is None else lengths
    batches = list(batches_by_length(lengths, model, batch_size, max_rows))
    if shared:
        from accelerate import PartialState
        from accelerate.utils import gather_object

        state = PartialState()
        batches = batches[state.process_index :: state.num_processes]
    found: list[tuple[int, Any]] = []
    with torch.inference_mode():
        for places in progress_bar(batches, desc="Batches", delay=2, disable=None) if progress else batches:
            chosen = [rows[place] for place in places]
            batch = {
                name: value.to(model.device) if isinstance(value, torch.Tensor) else value
                for name, value in collate(chosen).items()
            }
            found += zip(places, keep(model(**batch), batch, chosen), strict=True)
    if shared:
        found = gather_object(found)
    return [kept for _, kept in sorted(found, key=itemgetter(0))]


def logits_of(outputs: Any, *_: Any) -> np.ndarray:
    """What `run_sorted` keeps of a model's outputs: its logits."""
    return outputs.logits.float().cpu().numpy()


def pad_rows(tokenizer: Any, rows: Sequence[Mapping[str, np.ndarray]]) -> dict[str, torch.Tensor]:
    """Pad rows at their end, to the length of the first, which is the longest."""
    padding = {"input_ids": tokenizer.pad_token_id or 0, "token_type_ids": tokenizer.pad_token_type_id}
    inputs = {}
    for name in rows[0]:
        padded = np.full((len(rows), len(rows[0][name])), padding.get(name, 0), dtype=np.int64)
        for target, row in zip(padded, rows, strict=True):
            target[: len(row[name])] = row[name]
        inputs[name] = torch.from_numpy(padded)
    return inputs


class BatchedPipeline(Pipeline):
    """A pipeline whose `preprocess`, `_forward` and `postprocess` take a list of examples at once."""

    # One example may have several rows of model input (windows of a context, choices). Rows of all examples share
    # batches, so that long and short examples run in full batches with little padding.
    _load_tokenizer = True
    _load_processor = False
    _load_image_processor = False
    _load_video_processor = False
    _load_feature_extractor = False

    supported_models: dict[str, str]
    """The model classes of the task's Auto class, by model type."""

    expected_example: str
    """Description of an example, for messages."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.check_model_type(self.supported_models)
        if self.tokenizer is None:
            raise SettingError("tokenizer", None, "the tokenizer that the model was trained with")
        config = self.model.config
        check_tokenizer(self.tokenizer, config, self.tokenizer.name_or_path or config.name_or_path or "the pipeline")
        self.model.eval()  # a model just trained or built from a configuration may be in training mode

    def is_example(self, inputs: Any) -> bool:
        """Whether the input is one example and not a collection of them."""
        raise NotImplementedError

    def run_examples(
        self, inputs: Any, batch_size: int | None = None, num_workers: int | None = None, **parameters: Any
    ) -> Any:
        """Run one example, a list, or any other iterable or data set of them, which gives a generator."""
        # `num_workers` is accepted for compatibility; fast tokenizers have their own threads.
        batch_size = self._batch_size if batch_size is None else batch_size
        if batch_size is not None:
            check_at_least_one(batch_size=batch_size)
        if isinstance(inputs, Dataset) and not isinstance(inputs, Iterable):
            inputs = map(inputs.__getitem__, range(len(inputs)))  # type: ignore[arg-type]
        if not self.is_example(inputs) and (isinstance(inputs, (str, bytes)) or not isinstance(inputs, Iterable)):
            raise self.unexpected(inputs)
        for_preprocess, for_forward, for_postprocess = (
            {**fixed, **given}
            for fixed, given in zip(
                (self._preprocess_params, self._forward_params, self._postprocess_params),
                self._sanitize_parameters(**parameters),
                strict=True,
            )
        )
        for_forward["batch_size"] = batch_size

        def run(examples: Iterable[Any]) -> Iterator[Any]:
            remaining = iter(examples)
            while chunk := list(islice(remaining, EXAMPLES_AT_ONCE)):
                yield from self.run_single(chunk, for_preprocess, for_forward, for_postprocess)

        if self.is_example(inputs):
            return next(run([inputs]))
        if isinstance(inputs, (list, tuple)):
            return list(run(inputs))
        return run(inputs)

    def unexpected(self, found: Any) -> ValueError:
        """The error for an input or an example of the wrong kind."""
        return ValueError(f"found {str(found)[:80]!r}; expected {self.expected_example}.")

    def collate(self, rows: Sequence[dict[str, np.ndarray]]) -> dict[str, torch.Tensor]:
        """The model's inputs of rows, the longest first."""
        return pad_rows(self.tokenizer, rows)

    def pair_rows(self, texts: Sequence[str], pairs: Sequence[str]) -> list[dict[str, np.ndarray]]:
        """Tokenize text pairs, truncated to the model's maximum length, the longer text first."""
        batch = self.tokenizer(
            list(texts),
            list(pairs),
            truncation=True,
            max_length=longest_input(self.model, self.tokenizer),
            padding=False,
        )
        names = [name for name in self.tokenizer.model_input_names if name in batch]
        return [{name: np.array(batch[name][number]) for name in names} for number in range(len(texts))]


def longest_input(model: Any, tokenizer: Any) -> int:
    """Maximum input length of model and tokenizer in tokens, special tokens included, or `sys.maxsize`."""
    limit = min(tokenizer.model_max_length, sys.maxsize)  # its 1e30 for "no limit" fits no integer type
    return min(longest_sequence(model.config) or limit, limit)
