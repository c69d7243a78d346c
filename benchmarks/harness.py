"""What all benchmarks share: flags, the machine, matched models, times in turns, tables."""

import argparse
import statistics
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial, wraps
from pathlib import Path
from typing import Any

import numpy as np
import torch
import transformers
import yaml

from .. import modeling_mybert
from ..files.errors import user_message
from ..files.options import options_of
from ..files.processes import INTERRUPTED, interruptible, only_errors, own_process
from ..files.text import expand_paths, open_text
from ..pretraining import PretrainSettings
from ..runs.model_sizes import fields_of_size
from ..studies.timing import describe_setting, heading, in_turns, ratio, row, timed
from ..tokenization.settings import SPECIAL_TOKENS

PEER = "transformers SDPA"  # the baseline of most comparisons
NO_DROPOUT: dict[str, Any] = {"hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0}
Batch = dict[str, torch.Tensor]
Flag = tuple[tuple[str, ...], dict[str, Any]]


def flag(*names: str, **settings: Any) -> Flag:
    """A flag or positional argument of a script, as in `argparse`."""
    return names, settings


def count(text: str) -> int:
    """The type of flags that are at least 1."""
    if (number := int(text)) < 1:
        raise argparse.ArgumentTypeError(f"found {number}; expected at least 1")
    return number


REPEATS = flag("--repeats", type=count, default=3, help="timed calls of each; the medians are reported")


def script(*flags: Flag) -> Callable[[Callable[[argparse.Namespace], None]], Callable[[], None]]:
    """Make a function the `main` of a script: checked flags, the machine first, a user's error as one sentence."""

    def decorate(measure: Callable[[argparse.Namespace], None]) -> Callable[[], None]:
        @wraps(measure)
        def main() -> None:
            module = measure.__globals__
            name = Path(module["__file__"]).stem
            as_it_is = argparse.RawDescriptionHelpFormatter
            parser = argparse.ArgumentParser(name, description=module["__doc__"], formatter_class=as_it_is)
            for names, settings in (*flags, flag("--threads", type=count, help="threads of PyTorch")):
                parser.add_argument(*names, **settings)
            try:
                arguments = parser.parse_args()
                with interruptible(), only_errors():
                    if arguments.threads is not None:
                        torch.set_num_threads(arguments.threads)
                    print(f"{describe_setting()}\n", flush=True)
                    measure(arguments)
            except KeyboardInterrupt:
                print(f"{name}: interrupted.", file=sys.stderr)
                sys.exit(INTERRUPTED)
            except Exception as error:
                if not (message := user_message(error)):
                    raise
                print(f"{name}: {message}", file=sys.stderr)
                sys.exit(2)

        return main

    return decorate


def text_files(paths: Sequence[str]) -> list[str]:
    """The files of a corpus, without held-out text."""
    return [file for file in expand_paths(paths) if "heldout" not in file] or list(paths)


def read_lines(files: Sequence[str], megabytes: float = float("inf")) -> list[str]:
    """The first megabytes of text files, line by line."""
    lines: list[str] = []
    left = megabytes * 1e6
    for file in files:
        for line in open_text(file):
            if left <= 0:
                return lines
            lines.append(line)
            left -= len(line.encode()) + 1
    return lines


def pretraining_settings(text: str | bytes, source: str | Path) -> dict[str, Any]:
    """Read settings of `mybert pretrain` from YAML; `source` is its name in error messages."""
    try:
        found = yaml.safe_load(text)
    except yaml.YAMLError:
        found = None
    known = options_of(PretrainSettings).keys()
    if not isinstance(found, dict) or not found.keys() <= known:
        raise ValueError(f"{source} is not a recipe; expected YAML with settings of `mybert pretrain`.")
    return found


def matched_models(
    head: str, size: str | Mapping[str, Any], options: Mapping[str, Any] | None = None, **settings: Any
) -> dict[str, Any]:
    """BERT with a head ("Model", "ForPreTraining") in transformers and here, by side, with the same random weights."""
    # `size` is a name or fields of a configuration; `settings` are further fields, `options` the classes' arguments.
    settings = {**(fields_of_size(size) if isinstance(size, str) else size), **settings}
    torch.manual_seed(0)
    bert = getattr(transformers, f"Bert{head}")(transformers.BertConfig(**settings), **options or {})
    my_bert = getattr(modeling_mybert, f"MyBert{head}")(modeling_mybert.MyBertConfig(**settings), **options or {})
    my_bert.load_state_dict(bert.state_dict())
    return {PEER: bert.eval(), "mybert": my_bert.eval()}


def made_up_vocabulary(size: int) -> list[str]:
    """A vocabulary for models that read random tokens."""
    return [*SPECIAL_TOKENS, *(f"[{index}]" for index in range(len(SPECIAL_TOKENS), size))]


def random_batch(lengths: tuple[int, ...], vocab_size: int = 30522) -> Batch:
    """A batch of random tokens; rows in mixed order."""
    generator = torch.Generator().manual_seed(0)
    shuffled = torch.tensor(lengths)[torch.randperm(len(lengths), generator=generator)]
    longest = max(lengths)
    mask = (torch.arange(longest) < shuffled[:, None]).long()
    input_ids = torch.randint(5, vocab_size, (len(lengths), longest), generator=generator) * mask
    return {"input_ids": input_ids, "attention_mask": mask}


def take_turns(
    runs: Mapping[str, Callable[[], Any]],
    repeats: int,
    clock: Callable[[], float] = time.perf_counter,
    untimed: int = 1,
) -> tuple[dict[str, list[float]], dict[str, Any]]:
    """Time all runs in turns, so that other load on the machine affects all alike, after some untimed calls of each.

    Returns:
        The seconds of each call, and what the last one returned, by name.
    """
    results: dict[str, Any] = {}

    def measure(name: str) -> float:
        seconds, results[name] = timed(runs[name], clock)
        return seconds

    for run in runs.values():
        for _ in range(untimed):
            run()
    return in_turns({name: partial(measure, name) for name in runs}, repeats), results


def median_seconds(run: Callable[[], Any], repeats: int, untimed: int = 0) -> float:
    """Median seconds of this many consecutive calls."""
    return statistics.median(take_turns({"": run}, repeats, untimed=untimed)[0][""])


def check_agreement(what: str, found: Any, expected: Any, tolerance: float, relative: bool = False) -> float:
    """Return the largest difference of arrays from expected ones, or its norm as a fraction of their norm.

    Raises:
        AssertionError: If it is above the tolerance, so that times would not be those of the same work.
    """
    found, expected = np.asarray(found), np.asarray(expected)
    if relative:
        difference = float(np.linalg.norm(found - expected) / np.linalg.norm(expected))
    else:
        difference = float(abs(found - expected).max())
    if not difference <= tolerance:
        share = " of their norm" if relative else ""
        raise AssertionError(f"{what} differ by {difference}{share}; expected at most {tolerance}")
    return difference


def run_apart(function: Callable[..., Any], *arguments: Any) -> Any:
    """The result of a call in a fresh process."""
    with own_process(function.__name__, partial, function, *arguments) as ask:
        return ask("__call__")


def speed_table(
    seconds: Mapping[str, Sequence[float]],
    peer: str,
    notes: Mapping[str, str] | None = None,
    unit: str = "seconds (median)",
) -> str:
    """Return a Markdown table of medians; ratios are medians of the ratio to the peer in the same turn."""
    lines = [heading("", unit, "times as fast", "")]
    for name, values in seconds.items():
        cells = f"{statistics.median(values):.4f}", f"{ratio(seconds[peer], values):.2f}"
        lines.append(row(name, *cells, (notes or {}).get(name, "")))
    return "\n".join(lines)
