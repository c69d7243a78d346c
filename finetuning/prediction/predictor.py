"""A fine-tuned model: it predicts rows, for `predict` and the workers of a cluster's engine, and is evaluated."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from itertools import chain, compress
from pathlib import Path
from typing import Any, ClassVar, NamedTuple
from uuid import uuid4

import torch
from transformers import PreTrainedTokenizerBase

from ...files.checkpoint import OPENVINO_FILE, Checkpoint
from ...files.errors import SettingError
from ...files.loading import load_tokenizer
from ...files.options import options_of
from ...files.output import write_json, write_lines
from ...files.processes import torch_threads
from ...files.settings import build
from ...files.source import Source, check_kept_columns, rows_of_batch, with_columns
from ...files.text import PAIR_SEPARATOR, SEPARATED_SUFFIXES, SPREADSHEET_SUFFIX, content_suffix
from ...metrics import ClassReport, metric_of
from ...pipelines import predict_labeled_only
from ...pipelines.openvino_model import OpenVinoModel, runs_in_openvino
from ...pipelines.options import Engine
from ...visualization import confusion_picture
from ..data import DataRow, Labels, TaskData, check_columns, may_read_pairs, new_name, text_columns
from ..features import FeatureTaggerConfig
from ..heads import for_inference, load_finetuned
from ..settings.parts import TASK_OPTIONS
from ..settings.prediction import PredictorSettings
from ..tasks.feature_tagging import feature_task
from ..tasks.registry import TASKS, fitted_to_model
from ..tasks.steps import (
    answers,
    check_answers,
    continues_example,
    counted_labels,
    has_text,
    network_outputs,
    read_examples,
    trained_classes,
    write_errors,
)
from ..tasks.tagging import tag
from ..tasks.task import Task

logger = logging.getLogger(__name__)


class FinetunedModel(NamedTuple):
    """A model with its task, its classes, and the tokenizer of its inputs."""

    task: Task
    model: Any  # a PreTrainedModel, or an OpenVinoModel
    labels: Labels
    tokenizer: PreTrainedTokenizerBase

    def encode(self, examples: Sequence[Any], source: Source) -> TaskData:
        """Examples of a source, tokenized."""
        return self.task.encode(examples, self.labels, self.tokenizer, source)

    def predictions(self, data: TaskData, batch_size: int | None = None, **options: bool) -> Sequence[Any]:
        """A prediction for each example; the options are those of `network_outputs`."""
        outputs = network_outputs(self.task, data, self.model, self.tokenizer, batch_size, **options)
        return self.task.predict(outputs, data, self.labels)

    def read(self, sources: Mapping[str, Source], skip_empty: bool = False) -> dict[str, TaskData]:
        """Labeled data by name, tokenized."""
        return {
            name: self.encode(read_examples(self.task, source, skip_empty), source) for name, source in sources.items()
        }

    def measure(
        self, data: Mapping[str, TaskData], batch_size: int | None = None
    ) -> tuple[dict[str, float], dict[str, Sequence[Any]]]:
        """Metrics of labeled data, with the names as prefixes, and the predictions; all processes share the work."""
        metrics: dict[str, float] = {}
        predictions: dict[str, Sequence[Any]] = {}
        for name, part in data.items():
            predictions[name] = self.predictions(part, batch_size, shared=True, progress=True)
            scores = self.task.measures(predictions[name], part.examples).scores()
            metrics |= {metric_of(name, key): value for key, value in scores.items()}
        return metrics, predictions


def _encoder_of(checkpoint: Checkpoint, config: FeatureTaggerConfig) -> Checkpoint:
    """The encoder whose features a tagger reads."""
    try:
        return Checkpoint(config.encoder).check()
    except OSError as error:
        raise OSError(
            f"{checkpoint.name} reads features of the encoder {config.encoder}, which cannot be loaded "
            f"({str(error).rstrip('.')}); put it there, or change encoder in the config.json of {checkpoint.name}."
        ) from error


def load_finetuned_model(
    task: Task,
    checkpoint: Checkpoint,
    device: str | torch.device = "cpu",
    dtype: str = "float32",
    engine: Engine = "torch",
) -> FinetunedModel:
    """Load a model with a head for the task, and complete the task by the model's classes."""
    in_openvino = runs_in_openvino(checkpoint, engine, dtype, device)
    if checkpoint.path.is_dir() and not in_openvino:
        checkpoint.check_folder()  # a graph may be all that it has
    encoder, config = checkpoint, checkpoint.config
    if isinstance(config, FeatureTaggerConfig):  # its encoder completes the task, too
        encoder = _encoder_of(checkpoint, config)
        task = feature_task(task, config.features, encoder.name, config.lstm_size, str(device))
    tokenizer = load_tokenizer(encoder)
    load_graph = partial(OpenVinoModel, dtype=dtype) if in_openvino else None
    model = load_finetuned(checkpoint, task.auto_class, task.pipeline, load_graph)
    labels = trained_classes(task, checkpoint.name, model.config)
    if in_openvino:
        logger.info("OpenVINO computes the model, since %s has %s.", checkpoint.name, OPENVINO_FILE)
    else:
        if task.predicts_labeled_only:
            predict_labeled_only(model)
        model = for_inference(model, device, dtype)
    return FinetunedModel(task.with_classes(labels, checkpoint), model, labels, tokenizer)


def tag_words(
    tagger: str | Path, sentences: Sequence[Sequence[str]], max_length: int | None = None
) -> list[tuple[str, ...]]:
    """Tag sentences with a model that was fine-tuned for it.

    Args:
        tagger: Folder of a model of `--task ner` or `--task tagging`. The encoder of a tagger on frozen features must
            be at the same path as in training.
        sentences: Words of each sentence.
        max_length: Longest sequence of the encoder, in tokens; None for 128, or the encoder's maximum if that is less.

    Returns:
        A tag for each word.

    Raises:
        OSError: If tagger or encoder cannot be loaded.
        ValueError: If the model does not tag words, the encoder cannot read `max_length` tokens, or a sentence has no
            words or is a text.
    """
    for number, words in enumerate(sentences, start=1):
        if not words or isinstance(words, str):
            found = f"is the text {words[:40]!r}" if words else "has no words"
            raise ValueError(f"Sentence {number} {found}; expected its words (mybert.predict reads texts, too).")
    if not sentences:
        return []
    checkpoint = Checkpoint(tagger).check()
    config = checkpoint.config
    encoder = _encoder_of(checkpoint, config).config if isinstance(config, FeatureTaggerConfig) else config
    task = fitted_to_model(TASKS["tagging"], encoder)
    task = task if max_length is None else replace(task, max_length=max_length)
    finetuned = load_finetuned_model(task, checkpoint)
    return tag(finetuned.task, sentences, finetuned.model, finetuned.labels, finetuned.tokenizer)  # type: ignore[arg-type]


# Usual names of text columns; the first pair, or else the first single name, that the data has is used.
_PAIRS = (
    *(("text", "text_pair"), ("sentence1", "sentence2"), ("premise", "hypothesis"), ("question", "context")),
    *(("question1", "question2"), ("question", "sentence"), ("text_a", "text_b"), ("#1 String", "#2 String")),
)
_TEXTS = ("text", "sentence", "tokens", "words", "document", "content", "review", "comment", "question", "sent1")


def task_for_columns(task: Task, row: DataRow, given: Sequence[str]) -> Task:
    """The task with its own columns if the data has them, else with usual names; `given` settings stay."""
    names = set(row.values)
    pair_name = task.text_pair_column
    knows_pair = "text_pair_column" in task.options and pair_name is not None
    if "text_column" in given or (task.text_column in row and (not knows_pair or str(pair_name) in row)):
        if may_read_pairs(task) and not knows_pair and "text_column" not in given and "text_pair" in row:
            return replace(task, text_pair_column="text_pair")
        return task
    pairs = [pair for pair in _PAIRS if names.issuperset(pair)] if may_read_pairs(task) else []
    if "text_pair_column" in given:
        pairs = [pair for pair in pairs if pair[1] == pair_name]
    if pairs and "choice_columns" not in task.options:
        columns: dict[str, str] = dict(zip(("text_column", "text_pair_column"), pairs[0], strict=True))
    else:
        singles = [name for name in _TEXTS if name in names]
        others = [name for name in row.values if name != "line"]
        if len(others) == 1 and not singles:
            has_header = content_suffix(row.source) in (*SEPARATED_SUFFIXES, SPREADSHEET_SUFFIX)
            if has_header and others[0].strip().casefold() not in _TEXTS:
                raise SettingError.worded(
                    "{} has one column, and {!r} in its first line; if that is the column's name, give it with "
                    "{text_column}; otherwise begin it with a line 'text', or save the texts as .txt.",
                    row.source,
                    others[0][:60],
                )
            singles = others
        if not singles or knows_pair:
            if row.values.keys() == {"line", "text"} and may_read_pairs(task) and "choice_columns" not in task.options:
                expected = PAIR_SEPARATOR.join(text_columns(task))
                raise row.invalid(f"{row.values['text'][:40]!r}; expected {expected} in a line")
            raise row.lacks({name: option for name, option in task.columns(False).items() if name not in row})
        columns = {"text_column": singles[0]}
    if row.values.keys() - {"line", "text", "text_pair"}:
        logger.info("Texts are read from %s.", " and ".join(map(repr, columns.values())))
    return replace(task, **columns)  # type: ignore[arg-type]


class Predictor:
    """A fine-tuned model that predicts batches of rows, on one machine or on the workers of an engine.

        dataset.map_batches(Predictor, fn_constructor_args=["my-sst2"], compute=ActorPoolStrategy(size=8))  # Ray Data
        frame.mapInPandas(Predictor("my-sst2"), schema)  # Spark

    It says what `mybert.predict` says. A batch is worked on in parts of 1,024 rows, as `predict` does; which rows
    are together in a part may move a score by one in its last digit, and documents end there (a column `document`,
    for a tagger of `max_document_context`). The columns of the first batch decide which are
    read. A pickle of it has the settings; the model is loaded when the first batch comes, once in each process,
    however often an engine sends it there.

    Args:
        model: Folder, under a path valid on every machine, or Hub name.
        **settings: Other options of `PredictorSettings`: `top_k`, `probabilities`, `keep_columns`, `dtype`, ...

    Attributes:
        task: The task.
        cut, windowed: Number of rows beyond the maximum length that were truncated, or read in windows.
        empty: Number of rows without a text, see `skip_empty`.
        labels: Number of times that each label was predicted; "" for rows without a label.

    Raises:
        ValueError: If a setting is out of range or not one of the task's, or the model has no head for a task.
        OSError: If the model does not exist.
        TypeError: If a setting does not exist.
    """

    rows_per_part: ClassVar[int] = 1024
    """Number of rows tokenized and sorted by length together."""

    def __init__(self, model: str | Path | PredictorSettings, **settings: Any) -> None:
        if not isinstance(model, PredictorSettings):  # of which `predict` has all
            model = build(PredictorSettings, {"model": model, **settings})
        self.settings = model
        self.task = self.settings.resolve_task()
        check_answers(self.task, self.settings.top_k, self.settings.probabilities)
        self.cut = self.windowed = self.empty = 0
        self.labels = Counter[str]()
        self._warnings = set[str]()  # those that were logged
        self._key = uuid4().hex
        self._is_settled = False
        self._finetuned: FinetunedModel | None = None

    def __reduce__(self) -> tuple[Callable[..., Any], tuple[Any, ...]]:
        settings = {name: getattr(self.settings, name) for name in options_of(PredictorSettings)}
        return _in_this_process, (type(self), self._key, settings)

    def settle(self, first: DataRow) -> None:
        """Choose the columns by the first row; one without them is an error before anything is loaded."""
        given = [name for name in TASK_OPTIONS if getattr(self.settings, name, None) is not None]
        task = task_for_columns(self.task, first, given)
        check_columns([first], task.columns(labeled=False))
        for name in self.settings.keep_columns or ():
            first.value(name)
        self.task, self._is_settled = task, True

    def parts(self, rows: Iterable[DataRow]) -> Iterator[list[DataRow]]:
        """The rows in parts of `rows_per_part`, or more where the rows of an example stay together."""
        part: list[DataRow] = []
        for row in rows:
            if len(part) >= self.rows_per_part and not continues_example(self.task, row, part[-1]):
                yield part
                part = []
            part.append(row)
        if part:
            yield part

    def load(self) -> FinetunedModel:
        """The model, loaded on first access; from then on its record determines the task."""
        if self._finetuned is None:
            device = self.settings.device.state.device
            options = self.settings.dtype, self.settings.engine
            with torch_threads(self.settings.threads):  # those that OpenVINO takes, too
                self._finetuned = load_finetuned_model(self.task, self.settings.checkpoint, device, *options)
            self.task = self._finetuned.task
        return self._finetuned

    def answers(self, rows: Sequence[DataRow], progress: bool = False) -> list[dict[str, Any]]:
        """Predictions for one or more rows, tokenized and sorted by length together; of skipped ones, all are None."""
        settings = self.settings
        skipped = [settings.skip_empty and not has_text(self.task, row) for row in rows]
        asked = list(compress(rows, (not skip for skip in skipped)))
        # Rows of the first call are checked before the model is loaded. Any text's answer has the names of its parts.
        any_text = [replace(rows[0], values=dict.fromkeys(text_columns(self.task), "-"))]
        examples = self.task.examples(asked or any_text, labeled=False, new=True)
        finetuned = self.load()
        data = finetuned.encode(examples, Source.of(rows[0].source))
        self.cut += data.cut
        self.windowed += data.windowed
        self.empty += sum(skipped)
        for warning in sorted({*data.warnings} - self._warnings):
            logger.warning("%s", warning)
        self._warnings.update(data.warnings)
        with torch_threads(settings.threads):
            predictions = finetuned.predictions(data, settings.batch_size, progress=progress)
        given = answers(self.task, predictions, data.examples, settings.top_k, settings.probabilities)
        if asked:
            self.labels.update(chain.from_iterable(counted_labels(self.task, answer) for answer in given))
        remaining, names = iter(given), dict.fromkeys(chain.from_iterable(given))
        return [dict.fromkeys(names) if skip else next(remaining) for skip in skipped]

    def __call__(self, batch: Any) -> Any:
        """Predict a batch, or the batches of an iterator.

        Args:
            batch: Column -> values (a dictionary of NumPy arrays or lists), a DataFrame (pandas, polars) or a
                `pyarrow.Table`; or an iterator of these.

        Returns:
            The same kind of batch, with the columns of the data (`keep_columns`) and those of `predict`; for an
            iterator an iterator, without empty batches.

        Raises:
            ValueError: If the batch is of another kind, or does not fit the model.
        """
        if isinstance(batch, Iterator):
            return (self(part) for part in batch if len(part))
        rows = [DataRow(values, "The batch", number) for number, values in enumerate(rows_of_batch(batch), start=1)]
        if not rows:
            return batch
        if not self._is_settled:
            self.settle(rows[0])
        kept = list(self.kept(rows[0]))
        check_kept_columns(batch, kept)
        answers = [answer for part in self.parts(rows) for answer in self.answers(part)]
        return with_answers(batch, kept, answers)

    def kept(self, row: DataRow) -> dict[str, Any]:
        """The columns of a row that are kept; one that the first row has may be missing in others."""
        names = self.settings.keep_columns
        return row.values if names is None else {name: row.get(name) for name in names if name in row}


def with_answers(batch: Any, kept: Sequence[str], answers: Sequence[Mapping[str, Any]]) -> Any:
    """A batch or data frame with some of its columns, followed by those of the answers for its rows."""
    told = dict.fromkeys(chain.from_iterable(answers))
    columns = {new_name(name, kept): [answer.get(name) for answer in answers] for name in told}
    return with_columns(batch, kept, columns)


_copies: dict[str, Predictor] = {}


def _in_this_process(kind: type[Predictor], key: str, settings: dict[str, Any]) -> Predictor:
    """The predictor with this key in this process, or a new one that replaces the previous one."""
    if key not in _copies:
        _copies.clear()
        _copies[key] = kind(**settings)
    return _copies[key]


REPORT_FILES = ("class_report*.json", "class_report*.txt", "confusion_matrix*.png", "errors*.tsv")


def write_reports(
    task: Task, predictions: Sequence[Any], data: TaskData, folder: Path, suffix: str = ""
) -> ClassReport | None:
    """Write `errors.tsv`; with classes also a report, `class_report.json` and `.txt`, and `confusion_matrix.png`."""
    write_errors(task, predictions, data, folder / f"errors{suffix}.tsv")
    report = task.measures(predictions, data.examples).report()
    if report is None:
        return None
    write_json(folder / f"class_report{suffix}.json", report.as_json())
    write_lines(folder / f"class_report{suffix}.txt", report.lines())
    if report.confusion:
        picture = folder / f"confusion_matrix{suffix}.png"
        try:
            confusion_picture(report.confusion, report.confused_classes, picture, report.confused)
        except ImportError as error:
            logger.warning(str(error))
    return report


# The files that `PredictionFile.write` writes.
PREDICTION_FILES = ("predictions*", "nbest_predictions*.json", "null_odds*.json")
