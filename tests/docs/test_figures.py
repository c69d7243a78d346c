"""Figures that stand on several pages are those of their sources."""

import runpy
from pathlib import Path

import pytest

SCRIPT = runpy.run_path(str(Path(__file__).parents[2] / "docs" / "figures.py"))
PAGES = SCRIPT["read_pages"]()
SPEED = "benchmarks/results/speed_2core-amd-epyc_2026-11-23.md"
FINETUNING = "benchmarks/results/finetuning_compared_2core-amd-epyc_2026-11-22.md"
TRANSFER = "benchmarks/results/transfer_2core-amd-epyc_2026-11-26.md"


def test_compare_pages_as_they_are_finds_nothing():
    assert SCRIPT["compare"](PAGES) == []


@pytest.mark.parametrize(
    ("page", "old", "new", "expected"),
    [
        pytest.param("README.md", "| 96 rows", "| 48 rows", "README.md has 48, 164, 292", id="quote"),
        pytest.param(TRANSFER, "| 49.8 ± 0.1 |", "| 41.7 ± 3.2 |", "laptop_10_minutes", id="source"),
        pytest.param(FINETUNING, "| 1.76 |", "| 1.86 |", "README.ko.md has 1.8, 1.3, 2.6", id="median"),
        pytest.param(
            SPEED,
            "Out of the box: ",
            "Unprepared: ",
            "expected the words",
            id="other words",
        ),
        pytest.param("docs/graphs.md", "# ", "# STS-B 49.8 ", "docs/graphs.md has 49.8", id="one more page"),
        pytest.param("docs/graphs.md", "## ", "## Out of the box: 1, 2, 3, 4 and 5. ", "has 1, 2", id="words"),
    ],
)
def test_compare_one_changed_page_names_it(page, old, new, expected):
    assert old in PAGES[page]
    wrong = SCRIPT["compare"](PAGES | {page: PAGES[page].replace(old, new, 1)})
    assert wrong and any(expected in line for line in wrong), wrong
