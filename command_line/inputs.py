"""What a command reads is looked at before its libraries are loaded: models, files, columns."""

import errno
import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from ..files.checkpoint import TASK_RECORD, Checkpoint
from ..files.conll import layout_of
from ..files.documents import Corpus, DocumentSettings, expand_sources
from ..files.errors import refuse_address
from ..files.moves import finish_moves
from ..files.options import options_of
from ..files.source import FileSource
from ..files.tables import Reading, lacking_columns
from ..files.text import SEPARATED_SUFFIXES, STDIN, content_suffix, file_of
from ..finetuning.tasks.task_names import OWN_DATA
from .console import without_warnings


def check_files_and_models(settings: Any) -> None:
    """Reject models and files that are missing or broken, and tables without a column that is certainly read.

    What only the command can know, such as the columns of a benchmark's files, is not looked at.

    Args:
        settings: The settings of a command.
    """
    named = list(_inputs(settings))
    with without_warnings():  # the command says it again
        for option, name in named:
            if option.reads == "model":
                Checkpoint(name).check(option.name, ask_hub=False, needs_weights=False)
            elif option.reads == "model folder":
                if not Path(name).is_dir():
                    Checkpoint(name).check_folder()
            elif option.reads in ("text", "text file") and hasattr(settings, "text_column"):
                Corpus(name, DocumentSettings(encoding=settings.encoding, text_column=settings.text_column))
            elif option.reads in ("text", "text file"):
                expand_sources(name)
            elif name != STDIN:
                _check_file(name, is_table=option.reads != "file")
        for option, name in named:
            if option.reads in ("rows", "examples") and content_suffix(name) in SEPARATED_SUFFIXES:
                _check_columns(name, settings, is_labeled=option.reads == "examples")


def _inputs(settings: Any) -> Iterator[tuple[Any, str]]:
    """What an option names that is read, with the option."""
    for option in options_of(type(settings)).values():
        value = getattr(settings, option.name)
        if getattr(option, "reads", None) and value:
            yield from ((option, name) for name in ([value] if isinstance(value, str) else value))


def _check_file(name: str, is_table: bool) -> None:
    refuse_address(name)
    path = Path(file_of(name))
    finish_moves(path)
    if not path.exists():
        raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), str(path))
    if is_table and path.is_dir():
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), str(path))


def _check_columns(name: str, settings: Any, is_labeled: bool) -> None:
    """Reject a CSV or TSV file that lacks a column which is given or, in labeled data, is the task's."""
    given = {setting: value for setting in _COLUMNS if (value := getattr(settings, setting, None))}
    columns = (_columns_of_task(settings) if is_labeled else {}) | given
    if getattr(settings, "label_columns", None) or not is_labeled:
        columns.pop("label_column", None)
    if not columns or not Path(name).is_file():  # a pipe can be read only once
        return
    encoding = getattr(settings, "encoding", None) or "utf-8"
    if layout_of(name, encoding, tuple(columns.values())) is not None:  # tagged words, whose first line is no header
        return
    row = next(FileSource(name).rows(Reading(encoding=encoding)))
    if missing := {column: setting for setting, column in columns.items() if column not in row}:
        raise ValueError(lacking_columns(name, row, missing))


_COLUMNS = ("text_column", "text_pair_column", "label_column")


def _columns_of_task(settings: Any) -> dict[str, str]:
    """The columns of labeled data by setting, if the task is one for a user's own data: as the model records them."""
    task, record = getattr(settings, "task", None), dict[str, Any]()
    model = getattr(settings, "teacher", None) or getattr(settings, "model", None)
    if task is None and isinstance(model, str) and Path(model, "config.json").is_file():
        record = Checkpoint(model).fields.get(TASK_RECORD) or {}
        task = record.get("task") if isinstance(record, Mapping) else None
    columns = {setting: column for column, setting in OWN_DATA.get(str(task), {}).items()}
    columns |= {setting: str(record[setting]) for setting in columns if record.get(setting)}
    return {setting: column for setting, column in columns.items() if setting in _COLUMNS}
