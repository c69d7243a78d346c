"""All GPU measurements in one Markdown file: training, inference, vocabulary layer, recipe.

    make gpu                                            the tests that need a GPU, then this
    python -m mybert.benchmarks.gpu_report --output gpu_report.md
    python -m mybert.benchmarks.gpu_report --sections training --sizes large --output large.md

Every row is written as soon as it is measured, so an interrupted run keeps its rows. Every timing includes a check
that both sides compute the same; if they do not, the section ends there, and the exit status is 1.
"""

import argparse
import shlex
import sys
import time
import traceback
import xml.etree.ElementTree as ElementTree
from collections.abc import Callable
from pathlib import Path

import torch

from ..files import write_text
from ..pretraining import MODEL_SIZES
from .accelerator import GpuSettings, Section, matrix_rate
from .gpu_inference import inference_section
from .gpu_recipe import recipe_section
from .gpu_training import training_section
from .script import at_least_1, pretraining_settings, script
from .timing import describe_setting
from .vocabulary_head import vocabulary_section

TITLES = {
    "training": "Training: MLM + NSP steps in bfloat16, AdamW",
    "vocabulary": "Vocabulary layer and loss, forward and backward",
    "inference": "Inference in bfloat16",
    "recipe": "The recipe gpu_1_hour, shortened",
}


class ReportFile:
    """A Markdown file that is complete after every line."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._text = ""

    def add(self, lines: str) -> None:
        print(lines, flush=True)
        self._text += f"{lines}\n"
        write_text(self.path, self._text)


def tests_section(path: Path) -> tuple[Section, bool]:
    """The lines for pytest's JUnit file, and whether no test failed."""
    cases = list(ElementTree.parse(path).getroot().iter("testcase"))
    outcomes = {
        name: [case for case in cases if case.find(name) is not None] for name in ("failure", "error", "skipped")
    }
    bad = [*outcomes["failure"], *outcomes["error"]]
    passed = len(cases) - len(bad) - len(outcomes["skipped"])
    lines = [f"{passed} passed, {len(bad)} failed, {len(outcomes['skipped'])} skipped."]
    lines += [f"- failed: `{case.get('classname')}::{case.get('name')}`" for case in bad]
    return iter(lines), not bad


def measure_and_write(arguments: argparse.Namespace, settings: GpuSettings) -> bool:
    """Measure the requested sections, and write them line by line; return whether all succeeded."""
    report, begin, is_good = ReportFile(arguments.output), time.perf_counter(), True
    rate = matrix_rate(settings.device, torch.bfloat16)
    report.add(f"# Report of a GPU\n\n{describe_setting()}")
    report.add(f"\nA large bfloat16 matrix product runs at {rate / 1e12:.4g} TFLOP/s. `{shlex.join(sys.argv)}`")
    if arguments.tests is not None:
        lines, is_good = tests_section(arguments.tests)
        report.add("\n## Tests\n\n" + "\n".join(lines))
    sections: dict[str, Callable[[], Section]] = {
        "training": lambda: training_section(settings, rate),
        "vocabulary": lambda: vocabulary_section(settings),
        "inference": lambda: inference_section(settings),
        "recipe": lambda: recipe_section(settings, rate, arguments.recipe_changes),
    }
    for name in arguments.sections:
        report.add(f"\n## {TITLES[name]}\n")
        try:
            for line in sections[name]():
                report.add(line)
        except Exception as error:  # go on with the other sections
            traceback.print_exc()
            report.add(f"\nNot finished: {type(error).__name__}: {error}")
            is_good = False
        report.add(f"\n({time.perf_counter() - begin:.0f} seconds since the beginning.)")
    return is_good


@script
def main() -> None:
    """Read the arguments, measure and write; exit status 1 if results disagree or a section fails."""
    defaults = GpuSettings()
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--output", type=Path, default=Path("gpu_report.md"))
    parser.add_argument("--tests", type=Path, help="pytest's JUnit file, to be told of in the report")
    parser.add_argument("--sections", nargs="+", default=list(TITLES), choices=TITLES)
    parser.add_argument("--sizes", nargs="+", default=defaults.sizes, choices=MODEL_SIZES)
    parser.add_argument("--lengths", nargs="+", type=at_least_1, default=defaults.lengths)
    parser.add_argument(
        "--fills",
        nargs="+",
        type=float,
        default=defaults.fills,
        help="mean length over the longest: 1, 0.5, 0.25, ...",
    )
    parser.add_argument("--tokens", type=at_least_1, default=defaults.tokens, help="real tokens of a batch")
    parser.add_argument("--steps", type=at_least_1, default=defaults.steps, help="timed calls, after three others")
    parser.add_argument(
        "--recipe_steps", type=at_least_1, default=defaults.recipe_steps, help="of the recipe's training"
    )
    parser.add_argument("--backend", default=defaults.backend, help="of torch.compile")
    parser.add_argument("--vocabulary", type=at_least_1, default=defaults.vocabulary, help="words")
    parser.add_argument("--recipe_changes", default="{}", help="YAML: settings in place of the recipe's")
    arguments = parser.parse_args()
    if defaults.device == "cpu" and arguments.sizes == defaults.sizes:
        parser.error("there is no CUDA device; name small --sizes and --tokens to try the report on a CPU.")
    text = arguments.recipe_changes
    arguments.recipe_changes = pretraining_settings(text, f"--recipe_changes {text!r}")
    torch.set_float32_matmul_precision("high")
    settings = GpuSettings(
        sizes=tuple(arguments.sizes),
        lengths=tuple(arguments.lengths),
        fills=tuple(arguments.fills),
        tokens=arguments.tokens,
        steps=arguments.steps,
        recipe_steps=arguments.recipe_steps,
        backend=arguments.backend,
        vocabulary=arguments.vocabulary,
    )
    if not measure_and_write(arguments, settings):
        raise SystemExit(1)


if __name__ == "__main__":
    main()
