"""Whether two ways to fine-tune have equal scores: two suites over the same seeds, and a paired test.

    mybert glue all-MiniLM-L6-v2 --suite short --only cola sst2 --num_seeds 5 --data_dir data --output_dir first
    mybert glue all-MiniLM-L6-v2 --suite short --only cola sst2 --num_seeds 5 --data_dir data --output_dir second \
        --finetuning '{"keep_model_type": true}'
    python -m mybert.benchmarks.scores_over_seeds first second

Scores are the tasks' main metrics in percent, "±" is the standard error over the seeds. p is the p-value of a
t-test of the differences, paired by seed: how often chance alone makes a difference as large. In the last row, the
difference of a seed is the mean over the tasks.
"""

import argparse
from pathlib import Path

import numpy as np
from scipy.stats import sem, ttest_1samp

from ..files.checkpoint import read_json_object
from ..studies.timing import heading, row
from .harness import flag, script

Scores = dict[str, tuple[str, dict[str, float]]]  # by task: metric, and percent by seed


def scores_of(folder: str) -> Scores:
    """The main scores of a suite in each seed."""
    path = Path(folder) / "suite.json"
    tasks = read_json_object(path).get("tasks")
    if not isinstance(tasks, dict) or not tasks:
        raise ValueError(f"{path} has no tasks; expected the report of `mybert glue`.")
    scores = {}
    for task, report in tasks.items():
        if len(report.get("seeds", {})) < 2:
            raise ValueError(f"{path} has one seed for {task}; expected several, by `mybert glue --num_seeds`.")
        scores[task] = report["metric"], {seed: 100 * score for seed, score in report["seeds"].items()}
    return scores


def with_error(values: np.ndarray) -> str:
    return f"{values.mean():.2f} ± {sem(values):.2f}"


def p_value(differences: np.ndarray) -> str:
    """Of a t-test; empty if all are equal, which no test decides."""
    return f"{ttest_1samp(differences, 0).pvalue:.2f}" if np.ptp(differences) else ""


@script(
    flag("first", help="folder of `mybert glue --num_seeds`"),
    flag("second", help="folder of the same tasks and seeds, with which the first is compared"),
)
def main(arguments: argparse.Namespace) -> None:
    """Print the table."""
    first, second = scores_of(arguments.first), scores_of(arguments.second)
    if {task: seeds.keys() for task, (_, seeds) in first.items()} != {
        task: seeds.keys() for task, (_, seeds) in second.items()
    }:
        raise ValueError(f"{arguments.first} and {arguments.second} differ in tasks or seeds; expected the same.")
    print(heading("task", "metric", "seeds", "first", "second", "difference", "p"))
    differences = []
    for task, (metric, seeds) in first.items():
        both = np.array([[seeds[seed], second[task][1][seed]] for seed in seeds])
        differences.append(both[:, 0] - both[:, 1])
        columns = [*map(with_error, (both[:, 0], both[:, 1], differences[-1])), p_value(differences[-1])]
        print(row(task, metric, len(both), *columns))
    if len({len(each) for each in differences}) == 1:
        whole = np.mean(differences, axis=0)
        print(row("mean", "", len(whole), "", "", with_error(whole), p_value(whole)))


if __name__ == "__main__":
    main()
