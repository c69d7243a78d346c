"""MLM + NSP training on a GPU: rows without padding, compiled, in bf16, beside transformers with real padding.

    python -m mybert.benchmarks.gpu_training
    python -m mybert.benchmarks.gpu_training --sizes base --lengths 512 --fill 1.0
    python -m mybert.benchmarks.gpu_training --sizes tiny --lengths 32 --tokens 256 --steps 2 --no-compile

Both sides train on the same sequences. transformers gets them padded, one a row; mybert gets rows of the full length
that hold several, with their borders (`cu_seq_lens_q`), so that nothing is padding and no shape changes. Tokens are
real tokens. Utilisation is the work the model needs for them (no recomputation, vocabulary layer at masked positions)
over the rate of a large matrix product on the same device.
"""

import argparse
import statistics
from typing import Any

import torch
from transformers import BertConfig, BertForPreTraining

from ..modeling_mybert import IGNORED_LABEL, MyBertConfig, MyBertForPreTraining
from ..pretraining import MODEL_SIZES
from .timing import describe_setting, timed

MASKED = 0.15
VOCABULARY = 30592  # a multiple of 64 above 30,522: the same for both sides


def draw_lengths(length: int, tokens: int, fill: float, generator: torch.Generator) -> list[int]:
    """Lengths of sequences with about so many tokens altogether, on average `fill` of the longest."""
    if fill >= 1:
        return [length] * max(1, tokens // length)
    lengths: list[int] = []
    while sum(lengths) < tokens:
        share = fill + (min(fill, 1 - fill) * 0.9) * (2 * float(torch.rand((), generator=generator)) - 1)
        lengths.append(max(4, round(share * length)))
    return lengths


def make_batches(lengths: list[int], length: int, device: str) -> tuple[dict[str, Any], dict[str, Any]]:
    """The same sequences padded, and in full rows (cut at a row's end; the rest starts a sequence of its own)."""
    generator = torch.Generator().manual_seed(1)
    pieces, room = [], length
    for wanted in lengths:  # where a row ends a sequence ends, on both sides
        while wanted:
            piece = min(wanted, room)
            pieces.append(piece)
            wanted -= piece
            room = length if piece == room else room - piece
    if room < length:
        pieces.append(room)
    ids = torch.randint(1000, VOCABULARY, (sum(pieces),), generator=generator)
    labels = ids.where(torch.rand(ids.shape, generator=generator) < MASKED, IGNORED_LABEL)
    next_sentence = torch.randint(0, 2, (len(pieces),), generator=generator)

    def pad(tensor: torch.Tensor, value: int) -> torch.Tensor:
        return torch.nn.utils.rnn.pad_sequence(tensor.split(pieces), batch_first=True, padding_value=value)

    padded = {
        "input_ids": pad(ids, 0),
        "attention_mask": pad(torch.ones_like(ids), 0),
        "labels": pad(labels, IGNORED_LABEL),
        "next_sentence_label": next_sentence,
    }
    borders = torch.tensor([0, *pieces]).cumsum(0)
    rows = {
        "input_ids": ids.view(-1, length),
        "position_ids": torch.cat([torch.arange(piece) for piece in pieces]).view(-1, length),
        "labels": labels.view(-1, length),
        "next_sentence_label": next_sentence,
        "cu_seq_lens_q": borders.int(),
        "max_length_q": length,
    }
    return tuple(  # type: ignore[return-value]
        {name: value.to(device) if isinstance(value, torch.Tensor) else value for name, value in batch.items()}
        for batch in (padded, rows)
    )


def needed_work(size: str, lengths: torch.Tensor, masked: int) -> float:
    """Floating point operations of a step: three times the forward products (Kaplan et al., 2020, without remat)."""
    layers, width, _ = MODEL_SIZES[size]
    tokens = float(lengths.sum())
    products = layers * 12 * width * width * tokens + masked * (width * width + width * VOCABULARY)
    attention = layers * 2 * width * float((lengths.double() ** 2).sum())
    return 3 * 2 * (products + attention)


def matrix_rate(device: str, dtype: torch.dtype) -> float:
    """Operations a second of a large matrix product."""
    edge = 8192 if device == "cuda" else 512
    one, other = torch.randn(2, edge, edge, device=device).to(dtype)
    times = [timed(lambda: one @ other)[0] for _ in range(12)][2:]
    return 2 * edge**3 / statistics.median(times)


def measure_steps(
    model: Any, batch: dict[str, Any], steps: int, device: str, compiled: bool
) -> tuple[float, float, float]:
    """Median seconds of a step, peak memory in GB, and the loss of the first step."""
    model.to(device).train()
    if compiled:
        model.bert.compile(dynamic=None)  # the heads stay as they are: they run on labelled positions only
    if device == "cuda":
        torch.cuda.reset_peak_memory_stats()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-5, fused=True)
    losses: list[float] = []

    def step() -> None:
        with torch.autocast(device, dtype=torch.bfloat16):
            loss = model(**batch).loss
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        losses.append(float(loss.detach()))

    for _ in range(3):
        step()
    seconds = [timed(step)[0] for _ in range(steps)]
    peak = torch.cuda.max_memory_allocated() / 1e9 if device == "cuda" else float("nan")
    return statistics.median(seconds), peak, losses[0]


def main() -> None:
    """Print a table row for every size, length and fill."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sizes", nargs="+", default=["base", "large"], choices=MODEL_SIZES)
    parser.add_argument("--lengths", nargs="+", type=int, default=[128, 512])
    parser.add_argument("--fill", nargs="+", type=float, default=[0.5, 1.0], help="mean length over the longest")
    parser.add_argument("--tokens", type=int, default=65536, help="real tokens of a batch, about")
    parser.add_argument("--steps", type=int, default=20)
    parser.add_argument("--no-compile", action="store_true")
    arguments = parser.parse_args()
    device = "cuda" if torch.cuda.is_available() else "cpu"
    torch.set_float32_matmul_precision("high")
    suffix = "" if arguments.no_compile else ", compiled"
    rate = matrix_rate(device, torch.bfloat16)
    print(f"{describe_setting()} A large bf16 matrix product runs at {rate / 1e12:.1f} TFLOP/s.\n")
    print("| size | length | full | | tokens/s | utilisation | peak memory, GB | times as fast |")
    print("|---|---|---|---|---|---|---|---|")
    for size in arguments.sizes:
        layers, width, heads = MODEL_SIZES[size]
        settings = {
            "vocab_size": VOCABULARY,
            "num_hidden_layers": layers,
            "hidden_size": width,
            "num_attention_heads": heads,
            "intermediate_size": 4 * width,
            "hidden_dropout_prob": 0.0,
            "attention_probs_dropout_prob": 0.0,
        }
        for length in arguments.lengths:
            for fill in arguments.fill:
                lengths = draw_lengths(length, arguments.tokens, fill, torch.Generator().manual_seed(0))
                padded, rows = make_batches(lengths, length, device)
                work = needed_work(
                    size, rows["cu_seq_lens_q"].diff().cpu(), int((rows["labels"] != IGNORED_LABEL).sum())
                )
                speeds, losses = [], []
                for name, model_class, config_class, batch in (
                    ("transformers SDPA" + suffix, BertForPreTraining, BertConfig, padded),
                    ("mybert, packed rows" + suffix, MyBertForPreTraining, MyBertConfig, rows),
                ):
                    torch.manual_seed(0)
                    torch._dynamo.reset()
                    model = model_class(config_class(**settings))
                    seconds, peak, loss = measure_steps(
                        model, batch, arguments.steps, device, not arguments.no_compile
                    )
                    del model
                    speeds.append(rows["input_ids"].numel() / seconds)
                    losses.append(loss)
                    full = float(padded["attention_mask"].float().mean())
                    cells = (size, length, f"{full:.0%}", name, f"{speeds[-1]:,.0f}", f"{work / seconds / rate:.0%}")
                    print(
                        *("", *cells),
                        f"{peak:.1f}",
                        f"{speeds[-1] / speeds[0]:.2f}",
                        sep=" | ",
                        end=" |\n",
                        flush=True,
                    )
                assert abs(losses[0] - losses[1]) < 0.02 * losses[0], f"the first losses differ: {losses}"


if __name__ == "__main__":
    main()
