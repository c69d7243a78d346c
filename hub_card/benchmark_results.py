"""Results on the Hub's benchmarks: the files in `.eval_results` from which the Hub builds leaderboards.

The Hub accepts them only for data sets registered as benchmarks (https://huggingface.co/docs/hub/eval-results); all
other results are in the card's `model-index`.
"""

from collections.abc import Sequence
from pathlib import Path

import yaml
from huggingface_hub import EvalResultEntry, eval_result_entries_to_yaml, parse_eval_result_entries
from huggingface_hub.utils import validate_repo_id

from ..files import check_output_files, output_to, write_text
from .card import is_finite_number

FOLDER = ".eval_results"


def write_benchmark_results(
    model_dir: str | Path, entries: Sequence[EvalResultEntry], overwrite: bool = False
) -> list[Path]:
    """Write a file for each benchmark: `.eval_results/<name of the data set>.yaml`.

    Args:
        model_dir: The model folder.
        entries: The results.
        overwrite: Whether existing files may be replaced.

    Returns:
        The files.

    Raises:
        ValueError: See `check_benchmark_results`.
        OSError: If a file cannot be written.
    """
    by_file = check_benchmark_results(model_dir, entries, overwrite)
    place = Path(model_dir) / FOLDER
    if not by_file:
        return []
    with output_to(place, files=[path.name for path in by_file], overwrite=overwrite) as folder:
        for path, results in by_file.items():
            text = yaml.safe_dump(eval_result_entries_to_yaml(results), sort_keys=False, allow_unicode=True)
            write_text(folder / path.name, text)
    return list(by_file)


def check_benchmark_results(
    model_dir: str | Path, entries: Sequence[EvalResultEntry], overwrite: bool = False
) -> dict[Path, list[EvalResultEntry]]:
    """Check what `write_benchmark_results` will write with these arguments; return the results of each file."""
    by_file: dict[Path, list[EvalResultEntry]] = {}
    for entry in entries:
        owner, _, name = str(entry.dataset_id).partition("/")
        if not owner or not name or "/" in name:
            raise ValueError(f"dataset_id is {entry.dataset_id!r}; expected the name of a benchmark: 'owner/name'.")
        validate_repo_id(entry.dataset_id)
        if not is_finite_number(entry.value):
            raise ValueError(f"The value of {entry.dataset_id} is {entry.value!r}; expected a finite number.")
        by_file.setdefault(Path(model_dir) / FOLDER / f"{name}.yaml", []).append(entry)
    check_output_files(by_file, overwrite)
    return by_file


def benchmark_result_files(model_dir: str | Path) -> dict[str, Path]:
    """Return the files of benchmark results of a model folder by their names in a repository."""
    found = {f"{FOLDER}/{path.name}": path for path in sorted((Path(model_dir) / FOLDER).glob("*.yaml"))}
    for path in found.values():
        try:
            parse_eval_result_entries(yaml.safe_load(path.read_text(encoding="utf-8")))
        except (yaml.YAMLError, KeyError, TypeError, AttributeError, ValueError, RecursionError) as error:
            reason = " ".join(f"{type(error).__name__}: {error}".split())[:200]
            raise ValueError(f"{path} holds no results with dataset (id, task_id) and value ({reason}).") from error
    return found
