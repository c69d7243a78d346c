"""Classes of sentences by compiled models: a section of `gpu_report`.

transformers is compiled for any shape and reads padded batches, as they come and sorted by length. mybert reads rows
of one length with a constant number of sequences in their order, so that there is one graph. The last sequences of a
row are filler.
"""

import argparse
import statistics
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import torch
import torch.nn.functional as F
from accelerate.utils import send_to_device

from ..studies.timing import heading, row
from .harness import Batch, check_agreement, matched_models, take_turns
from .model_speed import SENTENCES

STATES_TOLERANCE = 0.02  # mean difference of logits: bfloat16 has a precision of 0.004, and every layer rounds
_SORTED = "transformers, compiled, sorted"
# Batches, each with its number of real sequences.
Batches = Callable[[], Iterator[tuple[dict[str, Any], int]]]


def padded_batches(sequences: list[torch.Tensor], tokens: int) -> Iterator[tuple[Batch, int]]:
    """Batches of consecutive sequences, padded to a multiple of 8, and their numbers of sequences."""
    size = max(1, tokens // max(map(len, sequences)))
    for start in range(0, len(sequences), size):
        rows = sequences[start : start + size]
        longest = -(-max(map(len, rows)) // 8) * 8
        ids = torch.stack([F.pad(each, (0, longest - len(each))) for each in rows])
        yield {"input_ids": ids, "attention_mask": (ids > 0).long()}, len(rows)


def packed_batches(sequences: list[torch.Tensor], tokens: int, longest: int) -> Iterator[tuple[dict[str, Any], int]]:
    """Rows of this many tokens with a constant number of sequences, and how many of these are real."""
    most = max(2, 5 * tokens * len(sequences) // (4 * sum(map(len, sequences))))  # more than the mean
    left = sequences[::-1]
    while left:
        rows: list[torch.Tensor] = []
        used = 0
        while left and len(rows) < most - 1 and used + len(left[-1]) + most - len(rows) - 1 <= tokens:
            rows.append(left.pop())
            used += len(rows[-1])
        fillers = most - len(rows)
        fill = used + (tokens - used) * torch.arange(1, fillers + 1) // fillers
        limits = torch.cat([torch.tensor([0, *map(len, rows)]).cumsum(0), fill])
        lengths = limits.diff()
        positions = torch.arange(tokens) - limits[:-1].repeat_interleave(lengths)
        cu_seqlens, ids = limits.int(), torch.cat(rows)
        yield (
            {
                "input_ids": F.pad(ids, (0, tokens - used), value=1)[None],
                "position_ids": (positions % longest)[None],
                **{f"cu_seq_lens_{side}": cu_seqlens for side in "qk"},
                **{f"max_length_{side}": longest for side in "qk"},
            },
            len(rows),
        )


def prediction_section(settings: argparse.Namespace, network: Callable[[str], dict[str, Any]]) -> Iterator[str]:
    """Yield a row for every size and side; different logits are an error."""
    yield heading("size", "", "rows/s", "times as fast")
    generator = torch.Generator().manual_seed(0)
    lengths = [SENTENCES[place % len(SENTENCES)] for place in range(settings.sentences)]
    order = torch.randperm(len(lengths), generator=generator).tolist()
    sequences = [torch.randint(5, settings.vocabulary, (lengths[i],), generator=generator) for i in order]
    ordered = sorted(range(len(order)), key=lambda place: -len(sequences[place]))
    by_length = [sequences[place] for place in ordered]
    longest, tokens = max(SENTENCES), max(settings.tokens // 2, 4 * max(SENTENCES))
    for size in settings.sizes:
        models = matched_models("ForSequenceClassification", network(size)).values()
        bert, my_bert = (model.to(settings.device, torch.bfloat16) for model in models)
        torch.compiler.reset()
        compiled = torch.compile(bert, backend=settings.backend, dynamic=True)
        packed = torch.compile(my_bert, backend=settings.backend, dynamic=False)
        pack = partial(packed_batches, sequences, tokens, longest)
        sides: dict[str, tuple[Any, Batches]] = {
            "transformers, compiled": (compiled, partial(padded_batches, sequences, tokens)),
            _SORTED: (compiled, partial(padded_batches, by_length, tokens)),
            "mybert, packed": (my_bert, pack),
            "mybert, packed and compiled": (packed, pack),
        }
        runs = {name: partial(_logits, *side, settings.device) for name, side in sides.items()}
        seconds, logits = take_turns(runs, 3)
        expected = logits["transformers, compiled"]
        logits[_SORTED] = logits[_SORTED][torch.tensor(ordered).argsort()]
        for name, values in seconds.items():
            difference = (logits[name] - expected).abs().mean()
            check_agreement(f"the logits of {name}", difference, 0, STATES_TOLERANCE)
            median = statistics.median(values)
            peer = statistics.median(seconds["transformers, compiled"])
            yield row(size, name, f"{len(sequences) / median:,.0f}", f"{peer / median:.2f}")


@torch.inference_mode()
def _logits(model: Any, batches: Batches, device: str) -> torch.Tensor:
    """The logits (sentences, classes) of all batches; nothing is read before the last."""
    parts = [model(**send_to_device(batch, device)).logits[:rows].clone() for batch, rows in batches()]
    return torch.cat(parts).float().cpu()
