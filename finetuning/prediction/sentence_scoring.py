"""Score sentences with a pretrained model (`mybert score`): pseudo-log-likelihoods, minimal pairs, acceptability."""

from __future__ import annotations

import logging
import sys
from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np

from ...files.checkpoint import Checkpoint
from ...files.errors import SettingError
from ...files.output import check_output_files, outputs_together, write_json
from ...files.processes import leave_standard_output
from ...files.source import Source, files_of
from ...files.tables import LIBRARIES, json_line
from ...files.text import STDIN
from ...pipelines import minimal_pair_accuracy, minimal_pair_columns, pseudo_log_likelihoods
from ..data import TRUTH, DataRow, check_columns, label_name, rounded, rows_of, text_columns
from ..settings.prediction import ScoreArguments, ScoreSettings, SentenceColumns
from ..tasks.registry import TASKS, fitted_to_model
from ..tasks.task import Task
from .prediction_run import data_parts, json_rows_for, output_rows, write_rows
from .predictor import load_finetuned_model, task_for_columns

logger = logging.getLogger(__name__)

_MAX_LOGGED = 8  # groups with the lowest accuracy, and as many with the highest


def score(model: str | Path, data: Any, output: str | Path | None = None, **settings: Any) -> Any:
    """Score sentences with a pretrained model by their pseudo-log-likelihood.

        >>> mybert.score("my-bert", ["The cat sat on the mat.", "The cat sat in the mat."])
        [{"score": -21.3, "num_tokens": 7, "score_per_token": -3.0}, ...]

    Args:
        model: Folder or Hub name of a model with a masked-LM head, such as a MyBERT, BERT or RoBERTa.
        data: A file or a list of paths; a list, or other iterable, of sentences, of minimal pairs (acceptable,
            unacceptable) or of dictionaries; a `pandas.DataFrame`; or a `datasets.Dataset`.
        output: A file to write, see `score_files`; None to return the scores.
        **settings: Other options of `ScoreSettings`: `method`, `text_column`, `group_columns`, `report`, ...

    Returns:
        With `output`, the result of `score_files`. Otherwise a dictionary for each row, in the data's order: `score`,
        the sum of the natural logarithms of the tokens' probabilities (`pipelines.pseudo_log_likelihoods`),
        `num_tokens`, without [CLS] and [SEP], and `score_per_token`, the mean; for a minimal pair also the three of
        the unacceptable sentence, with the prefix `pair_`.

    Raises:
        ValueError: If the model has no masked-LM head, the data holds no sentences, or a sentence is empty.
        OSError: If a file cannot be read or written.
    """
    arguments = ScoreArguments(
        model=model, data=data_parts(data), output=STDIN if output is None else output, **settings
    )
    return score_files(arguments) if output is not None else _scored(arguments, output=None)[1]


def score_files(arguments: ScoreSettings) -> dict[str, Any]:
    """Score the sentences of files, and write their rows with the scores, and a report.

    A row of the output is a row of the data, in order, with the columns of `score`; a name that exists in the data
    gets the prefix `predicted_`. The report has the result of this function, `model` and `method`. All rows are in
    memory. Several processes share the work.

    Args:
        arguments: The settings.

    Returns:
        `rows`, the number of rows; of minimal pairs `accuracy`, the fraction whose acceptable sentence has the
        higher score (ties count as wrong); with `group_columns` also `groups`, the accuracy by column and group, and
        then `accuracy` is the mean of the first column's groups, whatever their sizes; of sentences with labels 0
        and 1 (acceptable) `roc_auc` and `roc_auc_per_token`, the areas under the ROC curves of both scores.

    Raises:
        ValueError: As `score`; also if the output exists and is not to be replaced, or is among the data.
        OSError: If a file cannot be read or written.
    """
    if arguments.output == STDIN:
        leave_standard_output()
    elif needed := LIBRARIES.get(Path(arguments.output).suffix.lower()):
        needed(arguments.output)  # an error now, not at the end
    return _scored(arguments, arguments.output)[0]


def _scored(arguments: ScoreSettings, output: str | None) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """The result of `score_files` and the scores of each row; also writes the files, all or none."""
    state, table, report = arguments.device.state, output if output != STDIN else None, arguments.report
    data = files_of(arguments.data)
    check_output_files(filter(None, [table]), arguments.overwrite, [*data, *filter(None, [report])])
    check_output_files(filter(None, [report]), arguments.overwrite, data)
    with outputs_together() as open_output:
        # Whatever prevents writing is an error now, not at the end.
        report_file, table_file = (
            open_output(path, overwrite=arguments.overwrite) if path and state.is_main_process else None
            for path in (report, table)
        )
        task = TASKS[arguments.task]
        if arguments.encoding:
            task = replace(task, encoding=arguments.encoding)
        rows = list(chain.from_iterable(rows_of(source, task, new=True) for source in arguments.data))
        if not rows:
            raise ValueError(f"{', '.join(str(Source.of(each)) for each in arguments.data)} holds no rows.")
        kept = json_rows_for(Path(output), (row.values for row in rows)) if output else []
        result, answers = _measured(arguments, _with_columns(task, arguments.columns, rows), rows)
        if report_file:
            write_json(report_file, {"model": arguments.model, "method": arguments.method} | result)
        if output and state.is_main_process:
            written = list(output_rows(zip(kept, answers, strict=True), set(chain.from_iterable(kept))))
            if table_file:
                write_rows(table_file, [lambda: written], Path(output))
            else:
                sys.stdout.writelines(f"{json_line(row)}\n" for row in written)
                sys.stdout.flush()
    return result, answers


def _measured(
    arguments: ScoreSettings, task: Task, rows: Sequence[DataRow]
) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """The result of `score_files`, and the scores of each row."""
    texts = [[row.text(name) for row in rows] for name in text_columns(task)]
    groups = _groups(arguments.group_columns or [], rows, is_of_pairs=len(texts) > 1)
    labels = _labels(task.label_column, rows, is_wanted=arguments.label_column is not None)
    if labels:
        import sklearn.metrics  # before the work, which takes time
    state, checkpoint = arguments.device.state, Checkpoint(arguments.model).check()
    fill_mask = fitted_to_model(TASKS["fill_mask"], checkpoint.config)
    model = load_finetuned_model(fill_mask, checkpoint, state.device, arguments.dtype)
    for row, text in zip([*rows, *rows], chain(*texts), strict=False):  # before the work
        if not model.tokenizer.tokenize(text):
            raise row.invalid(f"{text[:40]!r} has no tokens; expected a sentence")
    tokens = pseudo_log_likelihoods(
        *(model.model, model.tokenizer, list(chain(*texts)), arguments.method),
        *(arguments.max_length, arguments.batch_size),
        shared=True,
        progress=state.is_main_process,
    )
    answers: list[dict[str, Any]] = [{} for _ in rows]
    for place, scores in enumerate(tokens):
        found = {"score": rounded(scores.sum()), "num_tokens": len(scores), "score_per_token": rounded(scores.mean())}
        prefix = "" if place < len(rows) else "pair_"
        answers[place % len(rows)] |= {f"{prefix}{name}": value for name, value in found.items()}

    def column(name: str) -> list[float]:
        return [answer[name] for answer in answers]

    metrics: dict[str, Any] = {}
    if len(texts) > 1:
        metrics = _accuracies(np.array([column("score"), column("pair_score")]), groups)
    elif labels:
        metrics["roc_auc"] = float(sklearn.metrics.roc_auc_score(labels, column("score")))
        metrics["roc_auc_per_token"] = float(sklearn.metrics.roc_auc_score(labels, column("score_per_token")))
    if metrics:
        logger.info("%s", ", ".join(f"{name} {value:.4f}" for name, value in metrics.items() if name != "groups"))
    return {"rows": len(rows)} | metrics, answers


def _accuracies(scores: np.ndarray, groups: Mapping[str, Sequence[str]]) -> dict[str, Any]:
    """The metrics of minimal pairs from their scores (2, pairs), and the groups of each pair by column."""
    if not groups:
        return {"accuracy": minimal_pair_accuracy(*scores)}
    by_column: dict[str, dict[str, float]] = {}
    for column, names in groups.items():
        _, first, index = np.unique(names, return_index=True, return_inverse=True)
        accuracies = {names[pair]: minimal_pair_accuracy(*scores[:, index == index[pair]]) for pair in sorted(first)}
        by_column[column] = accuracies
        ordered = sorted(accuracies, key=accuracies.__getitem__)
        low, high = ordered[:_MAX_LOGGED], ordered[_MAX_LOGGED:][-_MAX_LOGGED:]
        more = [f"... {len(ordered) - 2 * _MAX_LOGGED:,} more"] if len(ordered) > 2 * _MAX_LOGGED else []
        low, high = ([f"{100 * accuracies[name]:5.1f} {name}" for name in part] for part in (low, high))
        logger.info("Accuracy by %s, in %%:\n%s", column, "\n".join([*low, *more, *high]))
    return {"accuracy": float(np.mean(list(next(iter(by_column.values())).values()))), "groups": by_column}


def _groups(columns: Sequence[str], rows: Sequence[DataRow], is_of_pairs: bool) -> dict[str, list[str]]:
    """The group of each minimal pair, by column."""
    if columns and not is_of_pairs:
        raise SettingError("group_columns", list(columns), "minimal pairs, but the data has single sentences")
    check_columns(rows, dict.fromkeys(columns, "group_columns"))
    return {column: [row.text(column) for row in rows] for column in columns}


def _with_columns(task: Task, columns: SentenceColumns, rows: Sequence[DataRow]) -> Task:
    """The task with the columns of the sentences: those given, of minimal pairs, or of single texts."""
    names = ("text_column", "text_pair_column", "label_column")
    given: dict[str, Any] = {name: value for name in names if (value := getattr(columns, name))}
    pair = minimal_pair_columns({name for row in rows for name in row.values})
    if pair and "text_column" not in given:
        given |= dict(zip(names, pair, strict=False))
    task = task_for_columns(replace(task, is_recorded=True, **given), rows[0], list(given))
    check_columns(rows, task.columns(labeled=False))
    return task


def _labels(column: str, rows: Sequence[DataRow], is_wanted: bool) -> list[str] | None:
    """The labels 0 and 1 in a column; None if it is not wanted and holds others, or only one of them."""
    found = [label_name(row.value(column)) if row.has(column) else "" for row in rows]
    labels = [f"{TRUTH[label]:d}" if label in TRUTH else label for label in found]
    if set(labels) == {"0", "1"}:
        return labels
    if is_wanted:
        row, label = next(((r, x) for r, x in zip(rows, labels, strict=True) if x not in ("0", "1")), (rows[0], ""))
        raise row.invalid(f"{label!r} as {column}; expected 0 and 1 (acceptable), and both in the data")
    return None
