"""The settings of `mybert glue`, `mybert ablation` and `mybert bench`."""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from functools import cached_property
from itertools import product
from pathlib import Path
from typing import Any

from ..files.checkpoint import Checkpoint
from ..files.errors import SettingError, worded
from ..files.options import AT_LEAST_1, Group, option, options_of
from ..files.output import check_output_files
from ..files.settings import Parts, by_keywords
from .suite_file import Suite, check_folder_names, read_suite

# Pretraining measures on held-out text, in the order of the table.
MEASURED = {
    "perplexity": "eval_perplexity",
    "MLM accuracy": "eval_mlm_accuracy",
    "NSP accuracy": "eval_nsp_accuracy",
}


@dataclass(frozen=True, kw_only=True)
class StudySettings(Parts):
    """Settings of all studies that fine-tune on several tasks."""

    # Settings with the default "{}" are maps; on the command line they are JSON.
    group = Group.TABLE
    finetuning: dict[str, Any] | str = option(
        "{}", "Settings of `mybert finetune` for every run, as a map in the YAML file or as JSON."
    )
    disable_tqdm: bool = option(False, "Show no progress bars.", group=Group.RECORDS)

    @classmethod
    def read(cls, given: dict[str, Any]) -> dict[str, Any]:
        """Values by option, JSON read."""
        given = super().read(given)
        maps = [name for name, each in options_of(cls).items() if each.default == "{}"]
        return given | {name: _map(name, given[name]) for name in maps if name in given}

    def map_of(self, name: str) -> dict[str, Any]:
        return _map(name, getattr(self, name))


def _map(name: str, value: Any) -> dict[str, Any]:
    if isinstance(value, str):
        try:
            value = json.loads(value)
        except ValueError as error:
            raise SettingError.worded(
                "{:option} is not JSON ({}); expected a map of settings.", name, error
            ) from error
    if not isinstance(value, dict):
        raise SettingError(name, value, "a map of settings")
    return value


@dataclass(frozen=True, kw_only=True)
class SuiteSettings(StudySettings):
    """What a user says to `mybert glue`."""

    group = Group.TABLE
    model: str = option(
        "",
        "Model folder or Hub name to start from, for every task.",
        group=Group.INPUT,
        required=True,
        positional=1,
        reads="model",
    )
    data_dir: str = option(
        "", "Folder with the benchmark's files as downloaded.", group=Group.INPUT, required=True, reads="file"
    )
    output_dir: str = option(
        "",
        "Folder for the fine-tuned models and the table.",
        group=Group.INPUT,
        comes_last=True,
        required=True,
        writes=True,
    )
    suite: str = option(
        "glue",
        "The tasks: glue, laptop (five of GLUE, with settings for small models), ko (Korean), short "
        "(runs of minutes, to compare settings), or a YAML file of your own (docs/suites.md).",
    )
    only: list[str] = option([], "Some of the suite's tasks (default: all).")
    train_sizes: list[int] = option(
        [],
        "Learning curves: measure each task with these numbers of training examples, drawn by the seed, e.g. 100 300 "
        "1000 (mybert curves draws them).",
        AT_LEAST_1,
    )
    num_seeds: int = option(1, "Number of runs, each with another seed; the best is kept.", group=Group.TRAINING)
    # Maps; on the command line they are JSON.
    grid: dict[str, Any] | str = option(
        "{}",
        'Settings to try, each with several values, as a map in the YAML file or as JSON, e.g. {"learning_rate": '
        '[3e-4, 1e-4], "num_train_epochs": [3, 4]}: for each task, the combination that is best on a tenth of the '
        "training data, held out, is trained on all of it and measured.",
    )
    compare_from_scratch: bool = option(
        False, "Add a row for random weights, with its own choice from the grid: what pretraining is worth."
    )

    def check(self) -> None:
        """Reject values that do not go together, and a suite that cannot be measured."""
        super().check()
        for name, values in self.map_of("grid").items():
            if not isinstance(values, list) or not values or any("/" in str(value) for value in values):
                raise SettingError.worded(
                    "{grid} has {!r} as {}; expected a list of values that name folders.", values, name
                )
        known = self.whole.tasks
        if taken := [name for name in known if name.casefold() in ("tuning", "from_scratch")]:
            raise ValueError(f"{self.suite} has a task {taken[0]!r}, a name of a folder for other models.")
        if unknown := [name for name in self.only if name not in known]:
            raise ValueError(f"There is no task {unknown[0]!r} in {self.suite}; it has {', '.join(known)}.")

    @cached_property
    def whole(self) -> Suite:
        """The suite as its file has it."""
        return read_suite(self.suite)

    @cached_property
    def sizes(self) -> dict[str, tuple[str, int]]:
        """The columns of learning curves by name: the task, and the number of training examples."""
        names = self.only or list(self.whole.tasks)
        return {f"{name}-{size}": (name, size) for name in names for size in self.train_sizes}

    @cached_property
    def measured(self) -> Suite:
        """The suite with a task for each number of training examples."""
        return self.whole.by_size(self.sizes) if self.sizes else self.whole

    @cached_property
    def tasks(self) -> dict[str, dict[str, Any]]:
        """The tasks to measure."""
        return {name: self.measured.tasks[name] for name in self.sizes or self.only or self.whole.tasks}

    def combinations(self) -> list[dict[str, Any]]:
        """Every combination of the grid; without a grid, a single empty one."""
        grid = self.map_of("grid")
        return [dict(zip(grid, values, strict=True)) for values in product(*grid.values())]


@dataclass(frozen=True)
class AblationRow:
    """A row of the table; rows with equal settings of pretraining share the pretrained model."""

    title: str
    pretraining: dict[str, Any] = field(default_factory=dict)  # settings of `mybert pretrain`
    finetuning: dict[str, Any] = field(default_factory=dict)  # settings of `mybert finetune`
    model: str | None = None  # folder or Hub name, to fine-tune instead of one pretrained here


_BERT, _LTR = {"objective": "mlm+nsp"}, {"objective": "ltr"}
ROWS = {
    "mlm+nsp": AblationRow("BERT (MLM + NSP)", _BERT),
    "no-nsp": AblationRow("No NSP", {"objective": "mlm"}),
    "ltr": AblationRow("LTR & No NSP", _LTR),
    "ltr+bilstm": AblationRow("LTR & No NSP + BiLSTM", _LTR, {"bilstm": True}),
    "untrained": AblationRow("No pretraining", _BERT, {"from_scratch": True}),
}


@dataclass(frozen=True, kw_only=True)
class AblationSettings(StudySettings):
    """What a user says to `mybert ablation`."""

    group = Group.TABLE
    text: list[str] = option(
        [], "Text to pretrain on, as in `mybert pretrain`.", group=Group.INPUT, positional=1, reads="text"
    )
    output_dir: str = option(
        "", "Folder for all models and the table.", group=Group.INPUT, comes_last=True, required=True, writes=True
    )
    rows: list[str] = option(
        [], f"Rows of the table: those of --variants, or of the paper's, {', '.join(ROWS)} (default: all)."
    )
    variants: dict[str, Any] | str = option(
        "{}",
        "Rows of your own instead of the paper's: for each name a `title`, settings of `pretraining` and of "
        "`finetuning` that go before those of all rows, or a finished `model`, as a map in the YAML file or as "
        'JSON, e.g. {"wide": {"pretraining": {"hidden_size": 512}}}.',
    )
    tasks: dict[str, Any] | str = option(
        "{}",
        "Tasks to fine-tune on: name and settings of `mybert finetune` for each, as a map in the YAML file or as "
        'JSON, e.g. {"sst2": {"data_dir": "glue/SST-2"}}.',
        group=Group.INPUT,
        required=True,
    )
    pretraining: dict[str, Any] | str = option(
        "{}", "Settings of `mybert pretrain` for every row, as a map in the YAML file or as JSON."
    )

    def check(self) -> None:
        """Reject values that do not go together, and rows and tasks that are none."""
        super().check()
        check_folder_names(self.map_of("tasks"), "tasks has")
        for name, settings in self.map_of("tasks").items():
            if name in MEASURED:
                raise SettingError.worded("{tasks} has {!r}, a column of the table; expected another name.", name)
            if not isinstance(settings, dict):
                raise ValueError(f"The task {name} is {settings!r}; expected a map of settings.")
        if unknown := [name for name in self.row_names if name not in self.all_rows]:
            template, known = "There is no row {!r}; expected some of {}.", [*self.all_rows]
            raise ValueError(worded(template, unknown[0], ", ".join(known), known=known, unknown=unknown[:1]))

    @cached_property
    def all_rows(self) -> Mapping[str, AblationRow]:
        """The user's rows, or the paper's."""
        return self._own_rows() or ROWS

    @property
    def row_names(self) -> list[str]:
        """The rows of the table."""
        return self.rows or list(self.all_rows)

    def _own_rows(self) -> dict[str, AblationRow]:
        rows = {}
        check_folder_names(self.map_of("variants"), "variants has a row")
        for name, row in self.map_of("variants").items():
            if not isinstance(row, dict):
                raise SettingError.worded("{variants} has {!r} as {}; expected a map.", row, name)
            known = [option.name for option in fields(AblationRow)]
            if unknown := sorted(set(row) - set(known)):
                raise ValueError(f"The row {name} has {', '.join(unknown)}; expected some of {', '.join(known)}.")
            rows[name] = AblationRow(**{**row, "title": str(row.get("title", name))})  # in YAML, 128 is a number
            for part in ("pretraining", "finetuning"):
                if not isinstance(getattr(rows[name], part), dict):
                    raise ValueError(f"The row {name} has {getattr(rows[name], part)!r} as {part}; expected a map.")
            if rows[name].model and rows[name].pretraining:
                raise ValueError(
                    f"The row {name} has a model and settings of pretraining; use either model or pretraining."
                )
        return rows

    def models(self) -> dict[str, str]:
        """Return for each row, except those of finished models, the first row with the same pretraining settings."""
        chosen = [(name, self.all_rows[name]) for name in self.row_names]
        return {
            name: next(other for other, first in chosen if not first.model and first.pretraining == row.pretraining)
            for name, row in chosen
            if not row.model
        }


@dataclass(frozen=True, kw_only=True)
class BenchSettings(Parts):
    """What a user says to `mybert bench`."""

    group = Group.INPUT
    model: str | None = option(
        None, "The fine-tuned model, a folder.", required=True, positional=1, reads="model folder"
    )
    data: list[str] = option([], "Texts, as predict reads them.", required=True, positional=2, reads="rows")
    task: str | None = option(None, "The task (default: what the model was fine-tuned for).")
    text_column: str | None = option(None, "Column of the text (default: as in predict).")
    text_pair_column: str | None = option(None, "Column of the second text.")
    num_sentences: int = option(640, "How many rows of the data.", AT_LEAST_1, group=Group.MEASUREMENT)
    repeats: int = option(3, "Timed calls of each; the medians are reported.", AT_LEAST_1, group=Group.MEASUREMENT)
    threads: int | None = option(
        None, "Threads on a CPU, of PyTorch and other runtimes.", AT_LEAST_1, group=Group.MEASUREMENT
    )
    output: str | None = option(None, "Markdown file for the table.", comes_last=True, writes=True)
    overwrite: bool = option(False, "Replace the file that --output names.", comes_last=True)

    def check(self) -> None:
        """Find errors before minutes of measuring."""
        super().check()
        assert self.model is not None
        Checkpoint(self.model).check_folder()
        if self.output is not None:
            check_output_files([self.output], self.overwrite, [*self.data, self.model])
            if not Path(self.output).parent.is_dir():
                raise SettingError("output", self.output, "a file in a folder that is there")


SuiteArguments = by_keywords(SuiteSettings)
