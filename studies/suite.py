"""Many fine-tunings in one table; and one model on a suite of tasks: GLUE, Korean, or a user's own (`mybert glue`)."""

import logging
import zipfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import fmean
from typing import Any, NamedTuple, TypeVar

from accelerate import PartialState

from ..files.choices import superseded
from ..files.errors import SettingError, message_of, option_names, refuse_address, worded
from ..files.options import typed, types_of
from ..files.output import output_to, write_json, write_text
from ..files.settings import build
from ..files.source import files_of
from ..files.text import file_of
from ..finetuning import FEATURES, FinetunePlan, FinetuneSettings, plan_finetuning
from ..finetuning.tasks.registry import evaluation_names
from ..finetuning.training.plan import sources
from ..finetuning.training.run import Finetuning
from ..finetuning.training.trainer import loss_in
from ..metrics import lower_is_better, metric_of
from .settings import SuiteSettings
from .suite_file import OWN_KEYS, PATHS, Suite, as_list

logger = logging.getLogger(__name__)

S = TypeVar("S")
Cell = TypeVar("Cell")
Score = tuple[float, float | None]  # with its deviation over seeds or folds
HELD_OUT = 0.1  # of the training data, on which settings of a grid are compared

MAJORITY = "Always the most frequent answer"  # a row of tables
FROM_SCRATCH = "Random weights"  # the same


def merged(kind: type[S], study: str, settings: Mapping[str, Mapping[str, Any]], **own: Any) -> dict[str, Any]:
    """The values by option in several maps; later ones take precedence, also over what contradicts them."""
    # None means the same as in a settings file: what cannot be None has its default. No map may contain a setting of
    # `own`, which `study` decides (in messages).
    chosen: dict[str, Any] = {}
    types = types_of(kind)
    for name, some in settings.items():
        if unknown := sorted(set(some) - set(types)):
            raise SettingError.worded("{:option} has unknown settings: {}.", name, ", ".join(unknown))
        if doubled := sorted(set(some) & set(own)):
            raise SettingError.worded("{:option} sets {}, which {} decides.", name, ", ".join(doubled), study)
        with prefix_errors({name: some}):
            given = typed(kind, some)
        gone = superseded(kind, given, chosen) | some.keys()
        chosen = {setting: value for setting, value in chosen.items() if setting not in gone} | given
    return chosen | own


@contextmanager
def prefix_errors(settings: Mapping[str, Mapping[str, Any]]) -> Iterator[None]:
    """Begin messages about settings with the names of the maps that they are from."""
    where = option_names(*(name for name, some in settings.items() if some), joint=" or ")
    try:
        yield
    except ValueError as error:  # whose options are keys of the maps, not flags
        raise SettingError.worded("{}: {}" if where else "{}{}", where, str(error)) from error


def plan_of(task: str, study: str, settings: Mapping[str, Mapping[str, Any]], **own: Any) -> FinetunePlan:
    """The plan of a fine-tuning that gives a table one score; find errors before hours of training."""
    # The model after the last step counts: the best epoch would be chosen on the data that it is measured on.
    values = merged(FinetuneSettings, study, settings, eval_strategy="no", dry_run=False, **own)
    with prefix_errors(settings):
        plan = plan_finetuning(build(FinetuneSettings, values))
        validation = sources(plan)["validation"]
    files, said = plan.files, plan.settings
    if not (validation or said.validation_split or said.folds):
        raise ValueError(
            f"There is no validation data for {task}; expected a validation_file, validation_split or folds."
        )
    if said.approach == "features" and said.features == "all":
        raise SettingError.worded(
            "{features} is 'all' for {}, which trains a model for each; expected one of {}.", task, ", ".join(FEATURES)
        )
    train = [files.train_file] if files.train_file else []
    for file in files_of([*train, *(files.validation_file or ()), *(files.test_file or ())]):
        refuse_address(file)
        Path(file_of(file)).stat()
    return plan


class Result(NamedTuple):
    """The plan of a fine-tuning, whose metric is known when the data is read, and the metrics."""

    plan: FinetunePlan
    metrics: dict[str, Any]


def finetune_all(cells: Mapping[Cell, tuple[str, FinetunePlan]]) -> dict[Cell, Result] | None:
    """Fine-tune each cell of a table, with a title; finished runs are read. None if Ctrl-C ended one early."""
    found = {}
    for cell, (title, plan) in cells.items():
        logger.info("\n== %s ==", title)
        run = Finetuning(plan)
        metrics = run.run()
        if metrics["interrupted"]:
            return None
        complete = replace(run.plan, task=plan.task)  # the task of the data may hold an encoder
        found[cell] = Result(complete, {name: value for name, value in metrics.items() if name != "interrupted"})
    return found


def write_report(folder: Path, name: str, report: Mapping[str, Any], table: str) -> None:
    """Write a study's metrics as JSON and its table as Markdown, and show the table."""
    write_json(folder / f"{name}.json", report)
    write_text(folder / f"{name}.md", table)
    logger.info("\n%s", table)


def main_score(metrics: Mapping[str, Any], plan: FinetunePlan, metric: str | None = None) -> Score:
    """Return a run's main score, or another metric, as a fraction; with several seeds, mean and deviation.

    Errors (`lower_is_better`) stay in their unit.
    """
    name = metric or plan.metric
    full = 1.0 if lower_is_better(name) else plan.task.full_score
    deviation = metrics.get("deviation", {}).get(name)
    return metrics.get("mean", metrics)[name] / full, None if deviation is None else deviation / full


def majority_score(metrics: Mapping[str, Any], metric: str, data: str = "") -> float | None:
    """Return the score of always predicting the most frequent answer on some validation data, or None."""
    return metrics.get(metric_of(data, f"majority_{metric}"))


def cell_of(metric: str, value: float, spread: float | None = None) -> str:
    """Return a score as text, in percent; an error (`lower_is_better`) in its unit."""
    if lower_is_better(metric):
        return f"{value:.5g}" + (f" ± {spread:.2g}" if spread is not None else "")
    return f"{100 * value:.1f}" + (f" ± {100 * spread:.1f}" if spread is not None else "")


def markdown_table(rows: list[list[str]]) -> str:
    """Return a table whose first row is the heading, and whose first column is text."""
    heading, *others = ([" ".join(cell.split()).replace("|", "\\|") for cell in row] for row in rows)
    rule = ["---", *("---:" for _ in heading[1:])]
    return "\n".join(f"| {' | '.join(row)} |" for row in (heading, rule, *others)) + "\n"


def task_plan(
    arguments: SuiteSettings, task: str, chosen: Mapping[str, Any], from_scratch: bool = False
) -> FinetunePlan:
    """Return the plan of one run; `chosen` is one of `combinations`."""
    settings = {name: value for name, value in arguments.tasks[task].items() if name not in OWN_KEYS}
    settings |= {
        name: _first_existing(arguments.data_dir, task, name, settings[name]) for name in PATHS if name in settings
    }
    settings |= {name: [settings[name]] for name in ("validation_file", "test_file") if name in settings}
    return _plan(
        arguments,
        task,
        {f"{arguments.suite}, {task}": {"task": task} | settings, "finetuning": arguments.map_of("finetuning")},
        chosen,
        from_scratch,
        _folder(arguments, from_scratch, task),
        arguments.num_seeds,
    )


def trial_plan(
    arguments: SuiteSettings, task: str, chosen: Mapping[str, Any], from_scratch: bool = False
) -> FinetunePlan:
    """Return the plan of a run that tries a combination on a part held out from the training data."""
    final = task_plan(arguments, task, chosen, from_scratch)
    if not final.files.validation_file:
        raise SettingError.worded(
            "{grid} is set and {} has no {validation_file}; expected one, since settings are chosen on a "
            "part of the training data and measured on other data.",
            task,
        )
    settings = {name: value for name, value in arguments.tasks[task].items() if name not in (*OWN_KEYS, *PATHS)}
    held_out = {"train_file": final.files.train_file, "validation_split": HELD_OUT}
    values = ",".join(f"{name}={value}" for name, value in chosen.items())
    return _plan(
        arguments,
        task,
        {
            f"{arguments.suite}, {task}": {"task": task} | settings,
            "finetuning": arguments.map_of("finetuning") | held_out,
        },
        chosen,
        from_scratch,
        _folder(arguments, from_scratch, "tuning", task, values),
        1,
    )


def _folder(arguments: SuiteSettings, from_scratch: bool, *names: str) -> Path:
    return Path(arguments.output_dir, *(["from_scratch"] if from_scratch else []), *names)


def _plan(
    arguments: SuiteSettings,
    task: str,
    maps: Mapping[str, Mapping[str, Any]],
    chosen: Mapping[str, Any],
    from_scratch: bool,
    folder: Path,
    num_seeds: int,
) -> FinetunePlan:
    samples = {"max_train_samples": arguments.sizes[task][1]} if arguments.sizes else {}
    return plan_of(
        task,
        "the suite",
        {**maps, "grid": dict(chosen) | ({"from_scratch": True} if from_scratch else {})},
        **samples,
        model=arguments.model,
        output_dir=str(folder),
        num_seeds=num_seeds,
        disable_tqdm=arguments.disable_tqdm,
    )


def _first_existing(data_dir: str, task: str, setting: str, names: str | list[str]) -> str:
    """Return the first existing file or folder of several names."""
    if not Path(data_dir).is_dir():
        refuse_address(data_dir)
        raise FileNotFoundError(worded("{data_dir} is {!r}, which is not a folder.", data_dir))
    names = as_list(names)
    for name in names:
        for place in (Path(data_dir, name), Path(data_dir, f"{name}.gz")):
            if place.exists():
                return str(place)
            root = Path(Path(name).anchor or data_dir)  # whose own name is no pattern
            if found := sorted(root.glob(str(place.relative_to(root)))):
                return str(found[0])
    raise FileNotFoundError(
        worded(
            "{} has no {}, the {} of {}; put it there, or name the tasks to measure with {only}.",
            data_dir,
            " or ".join(names),
            setting,
            task,
        )
    )


@dataclass(frozen=True)
class TaskOutcome:
    # The main metric: the one that selects the best model, or, with several validation sets, the task's.
    metric: str
    scores: list[Score]  # for each validation set, with the standard error of its mean over seeds or folds
    majority: list[float | None]  # the metric of always predicting the most frequent answer
    chosen: dict[str, Any]  # the settings from the grid
    tried: list[dict[str, Any]]  # settings and score of each combination on the held-out part of the training data
    folder: Path  # of the model
    metrics: dict[str, Any]  # of the model
    seeds: dict[str, float]  # score by seed, the mean over the data sets; empty for one seed

    @property
    def score(self) -> float:
        """The mean over the task's data sets."""
        return fmean(value for value, _ in self.scores)

    @property
    def standard_error(self) -> float | None:
        """Over seeds or folds, the largest of the task's data sets; None for one training."""
        return max((error for _, error in self.scores if error is not None), default=None)


def run_suite(arguments: SuiteSettings) -> dict[str, Any]:
    """Fine-tune a model on every task of a suite, and print one table.

    With a grid, the settings of each task are chosen on a tenth of its training data, held out by the seed; then the
    model is trained with them on all of the training data, with each seed. It is measured once, after the last step.
    The same call resumes an interrupted one. The output folder contains a model folder with a card for each task,
    `tuning/<task>/<settings>` for each combination of a grid, the same for random weights in `from_scratch`,
    `suite.json`, `suite.md` (the table, with published scores and the chosen settings) and, if there is test data for
    every task of a benchmark with a server, `submission.zip`.

    Args:
        arguments: The settings.

    Returns:
        `average`, the mean of the tasks' scores as fractions (each the mean over its data sets), without tasks
        measured by an error such as `mae`, None if there are no others; and `tasks`: for each name `metric`, `score`,
        `standard_error` (over seeds or folds, the largest of its data sets; None for one training), `chosen`, `tried`
        (settings and held-out score) and `metrics`; with `compare_from_scratch` the same of random weights as
        `from_scratch`; with `train_sizes` also `learning_curves`: for each task and row of the table, a list of
        number of training examples, score and standard error; and `titles`, with the metric, of the tasks; or only
        `interrupted`, if Ctrl-C ended it early.

    Raises:
        ValueError: If a setting is wrong, a file does not fit its task, or training diverges.
        OSError: If a file cannot be read or written.
    """
    _check_plan(arguments)
    suite = arguments.measured
    rows = {Path(arguments.model).name or arguments.model: False}
    rows |= {FROM_SCRATCH: True} if arguments.compare_from_scratch else {}
    outcomes: dict[str, dict[str, TaskOutcome]] = {}
    for title, from_scratch in rows.items():
        found = _outcomes(arguments, suite, title, from_scratch)
        if found is None:
            return {"interrupted": True}
        outcomes[title] = found
    (report, average), *others = (_report(found) for found in outcomes.values())
    if others:
        report["from_scratch"] = others[0][0]
    if arguments.sizes:
        report |= _learning_curves(arguments, outcomes)
    averages = [average, *(other for _, other in others)]
    if PartialState().is_main_process:
        with output_to(arguments.output_dir, files=(), overwrite=True) as folder:
            write_report(folder, "suite", report, _table(suite, arguments, outcomes, averages))
            _write_submission(suite, arguments, next(iter(outcomes.values())), folder)
    return report


def _outcomes(arguments: SuiteSettings, suite: Suite, title: str, from_scratch: bool) -> dict[str, TaskOutcome] | None:
    """Choose the settings of each task, and measure them; None if Ctrl-C ended it early."""
    chosen: dict[str, dict[str, Any]] = {task: {} for task in arguments.tasks}
    tried: dict[str, list[dict[str, Any]]] = {task: [] for task in arguments.tasks}
    for task in arguments.tasks if arguments.map_of("grid") else ():
        ranks = []
        for settings in arguments.combinations():
            trial = trial_plan(arguments, task, settings, from_scratch)
            values = ", ".join(f"{name} {value}" for name, value in settings.items())
            if (found := finetune_all({task: (f"{title}, {suite.title_of(task)}: {values}", trial)})) is None:
                return None
            trial, metrics = found[task]
            score, _ = main_score(metrics, trial)
            ranks.append((-score if trial.training.greater_is_better else score, loss_in(metrics)))
            tried[task].append({"settings": settings, "score": score})
        chosen[task] = tried[task][ranks.index(min(ranks))]["settings"]
    runs = {task: task_plan(arguments, task, chosen[task], from_scratch) for task in arguments.tasks}
    tuned = finetune_all({task: (f"{title}, {suite.title_of(task)}", run) for task, run in runs.items()})
    if tuned is None:
        return None
    return {task: _outcome(result, chosen[task], tried[task]) for task, result in tuned.items()}


def _check_plan(arguments: SuiteSettings) -> None:
    """Find errors in the settings and files of all runs before hours of training."""
    complete: list[str] = []
    errors: list[Exception] = []
    for task in arguments.tasks:
        try:
            for chosen in arguments.combinations():
                make = trial_plan if chosen else task_plan
                make(arguments, task, chosen)
                if arguments.compare_from_scratch:
                    make(arguments, task, chosen, True)
            complete.append(task)
        except (ValueError, OSError) as error:
            errors.append(error)
    if not errors:
        return
    if not complete:
        raise errors[0]
    # also says which tasks can be measured
    message = worded("{} Nothing is missing for {}.", message_of(errors[0]), ", ".join(complete))
    raise type(errors[0])(message) from errors[0]


def _report(outcomes: Mapping[str, TaskOutcome]) -> tuple[dict[str, Any], float | None]:
    """The entries of `suite.json` for a row of the table, and its average."""
    fractions = [outcome.score for outcome in outcomes.values() if not lower_is_better(outcome.metric)]
    average = fmean(fractions) if fractions else None
    tasks = {}
    for task, outcome in outcomes.items():
        tasks[task] = {
            "metric": outcome.metric,
            "score": outcome.score,
            "standard_error": outcome.standard_error,
            "seeds": outcome.seeds,
            "chosen": outcome.chosen,
            "tried": outcome.tried,
            "metrics": outcome.metrics,
        }
    return {"average": average, "tasks": tasks}, average


def _learning_curves(arguments: SuiteSettings, rows: Mapping[str, Mapping[str, TaskOutcome]]) -> dict[str, Any]:
    """The entries of `suite.json` for scores by the number of training examples."""
    curves: dict[str, Any] = {}
    titles = {}
    for name, (task, size) in arguments.sizes.items():
        for row, outcomes in rows.items():
            titles[task] = f"{arguments.whole.title_of(task)}, {outcomes[name].metric}"
            points = curves.setdefault(task, {}).setdefault(row, [])
            points.append([size, outcomes[name].score, outcomes[name].standard_error])
    return {"learning_curves": curves, "titles": titles}


def _outcome(result: Result, chosen: dict[str, Any], tried: list[dict[str, Any]]) -> TaskOutcome:
    plan, metrics = result
    names = list(sources(plan)["validation"])
    if len(names) > 1:
        metric = plan.task.main_metric
    else:
        names, metric = [""], plan.metric
    keys = [metric_of(name, metric) for name in names]
    scores = [main_score(metrics, plan, key) for key in keys]
    count = plan.settings.folds or plan.settings.num_seeds
    scores = [(mean, None if spread is None else spread / count**0.5) for mean, spread in scores]
    majority = [majority_score(metrics, metric, name) for name in names]
    seeds = {
        seed: fmean(main_score(found, plan, key)[0] for key in keys)
        for seed, found in metrics.get("seeds", {}).items()
    }
    return TaskOutcome(metric, scores, majority, chosen, tried, Path(plan.settings.output_dir), metrics, seeds)


def _table(
    suite: Suite,
    arguments: SuiteSettings,
    rows_of_outcomes: Mapping[str, Mapping[str, TaskOutcome]],
    averages: Sequence[float | None],
) -> str:
    """Return the table: the model's rows and published ones, with each task's main score; and the chosen settings."""
    outcomes = next(iter(rows_of_outcomes.values()))
    heading = ["", *(suite.title_of(task) for task in outcomes)]
    rows = [[*heading, "average"]]
    for (name, found), average in zip(rows_of_outcomes.items(), averages, strict=True):
        scores = [[cell_of(each.metric, *score) for score in each.scores] for each in found.values()]
        rows.append([name, *map(" / ".join, scores), "" if average is None else cell_of("average", average)])
    majority = [
        " / ".join("" if value is None else cell_of(outcome.metric, value) for value in outcome.majority)
        for outcome in outcomes.values()
    ]
    if any(majority):
        rows.append([MAJORITY, *majority, ""])
    for name, values in suite.published.items():
        given = {task: as_list(values[task]) if values.get(task) is not None else [] for task in outcomes}
        cells = [" / ".join(f"{part:.1f}" for part in parts) for parts in given.values()]
        averaged = [given[task] for task, outcome in outcomes.items() if not lower_is_better(outcome.metric)]
        is_whole = bool(averaged) and all(averaged)
        rows.append([name, *cells, f"{fmean(map(fmean, averaged)):.1f}" if is_whole else ""])
    note = _caption(arguments, outcomes)
    if suite.published:
        note += " Published scores are of the test data, each in its own settings."
    if arguments.num_seeds > 1:
        note += f" ± is the standard error of the mean over {arguments.num_seeds} seeds."
    if folded := [suite.title_of(task) for task, outcome in outcomes.items() if "folds" in outcome.metrics]:
        note += f" Cross-validation ({', '.join(folded)}): ± is the standard error of the mean over the folds."
    note += " The model after the last step is measured."
    if not arguments.map_of("grid"):
        return f"{markdown_table(rows)}\n{note}\n"
    note += f" Settings were chosen on {HELD_OUT:.0%} of the training data."
    settings = [
        [name, *(", ".join(f"{key} {value}" for key, value in each.chosen.items()) for each in found.values())]
        for name, found in rows_of_outcomes.items()
    ]
    return f"{markdown_table(rows)}\n{note}\n\n{markdown_table([['Chosen', *heading[1:]], *settings])}"


def _caption(arguments: SuiteSettings, outcomes: Mapping[str, TaskOutcome]) -> str:
    """The first sentences below the table: the data and metrics of its columns."""
    whole = arguments.whole
    columns = {arguments.sizes[name][0] if arguments.sizes else name: name for name in outcomes}
    metrics = ", ".join(f"{whole.title_of(task)} {outcomes[name].metric}" for task, name in columns.items())
    selection = f", {len(columns)} of its {len(whole.tasks)} tasks" if len(columns) < len(whole.tasks) else ""
    caption = f"{whole.title}{selection}, validation data: {metrics}."
    if errors := [whole.title_of(task) for task, name in columns.items() if lower_is_better(outcomes[name].metric)]:
        caption += f" The average does not include {', '.join(errors)}."
    if arguments.sizes:
        caption += " Each column title ends with the number of training examples; the average is over all columns."
    return caption


def _write_submission(
    suite: Suite, arguments: SuiteSettings, outcomes: Mapping[str, TaskOutcome], folder: Path
) -> None:
    """Write the zip file for the benchmark's server, if all of its tasks were run and have test data."""
    wanted = {task: as_list(own["submission"]) for task, own in suite.tasks.items() if "submission" in own}
    if not wanted.keys() <= outcomes.keys():
        if not wanted.keys().isdisjoint(outcomes):
            logger.info(
                "There is no submission.zip: it needs all %d tasks, and only some were asked for.", len(wanted)
            )
        return
    parts: dict[str, Path] = {}
    missing = []
    for task, names in wanted.items():
        plan = task_plan(arguments, task, outcomes[task].chosen)
        tests = evaluation_names(plan.task, plan.files.test_file or ())
        if len(tests) != len(names):
            missing.append(suite.title_of(task))
            continue
        files = [outcomes[task].folder / f"predictions{f'_{test}' if test else ''}.tsv" for test in tests]
        parts |= dict(zip(names, files, strict=True))
    if missing:
        logger.info("There is no submission.zip: test data of %s is missing.", ", ".join(missing))
    elif parts:
        with zipfile.ZipFile(folder / "submission.zip", "w", zipfile.ZIP_DEFLATED) as archive:
            for name, file in parts.items():
                archive.write(file, name)
        logger.info("submission.zip is what the benchmark's server takes.")
