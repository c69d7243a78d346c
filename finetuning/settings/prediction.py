"""The settings of `mybert predict`, of a `Predictor`, and of `mybert score`."""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ...files.checkpoint import Checkpoint
from ...files.errors import SettingError
from ...files.options import AT_LEAST_1, Group, option
from ...files.settings import Parts, by_keywords
from ...files.text import SPREADSHEET_SUFFIX, STDIN, expand_paths, file_of
from ...pipelines.options import ScoringMethod
from .parts import (
    LENGTH,
    MODEL_HELP,
    DataColumns,
    Device,
    FinetunedModelSettings,
    Inference,
    LabelColumn,
    TaskInference,
)

OUTPUT_ENDINGS = (".jsonl", ".csv", ".tsv", ".parquet", SPREADSHEET_SUFFIX)
_FORMATS = ("classification", "cola", "sst2")  # tasks of single texts, whose files are read as published


@dataclass(frozen=True, kw_only=True)
class RowFiles:
    """The rows that a command reads, and the file to which it writes them with what it adds."""

    group = Group.INPUT
    data: list[str] = option(
        [],
        "Texts: .txt (one per line), .csv, .tsv, .jsonl, .parquet, .xlsx, compressed or not; - reads standard input.",
        required=True,
        positional=2,
        reads="rows",
    )
    output: str = option(
        STDIN, f"File to write: {', '.join(OUTPUT_ENDINGS)}; - prints JSON lines.", comes_last=True, writes=True
    )
    overwrite: bool = option(False, "Replace the file that an earlier call wrote.", comes_last=True)

    def check(self) -> None:
        """Reject an output of another format."""
        if self.output != STDIN and Path(self.output).suffix.lower() not in OUTPUT_ENDINGS:
            raise SettingError("output", self.output, f"a name that ends in {', '.join(OUTPUT_ENDINGS)}")


@dataclass(frozen=True, kw_only=True)
class PredictingModel(TaskInference):
    """A fine-tuned model, and how it is computed."""

    group = Group.INPUT
    model: str = option("", MODEL_HELP, required=True, positional=1, reads="model")


@dataclass(frozen=True, kw_only=True)
class PredictorSettings(FinetunedModelSettings):
    """Settings of a `Predictor`, in addition to those of the task."""

    group = Group.ANSWERS
    inference: PredictingModel = field(default_factory=PredictingModel)
    top_k: int = option(
        1, "How many labels or answers to list for each row, the best first.", AT_LEAST_1, decides=True
    )
    probabilities: bool = option(False, "Add the probability of every class.", decides=True)
    keep_columns: list[str] | None = option(
        None, "Columns of the data to keep in the output (default: all).", group=Group.INPUT, decides=True
    )


@dataclass(frozen=True, kw_only=True)
class PredictSettings(PredictorSettings):
    """Settings of `predict_files`.

    Raises:
        ValueError: If a setting is missing, out of range, or not one of the task's.
        OSError: If the model folder does not exist.
    """

    files: RowFiles = field(default_factory=RowFiles)

    def check(self) -> None:
        """Reject values that do not go together, as far as they can be checked without looking at data."""
        self.files.check()
        super().check()


@dataclass(frozen=True, kw_only=True)
class ScoringModel(Inference):
    """A pretrained model, and how it is computed."""

    group = Group.INPUT
    model: str = option(
        "", "Pretrained model: a folder, or a name on the Hub.", required=True, positional=1, reads="model"
    )


@dataclass(frozen=True, kw_only=True)
class SentenceColumns(LabelColumn, DataColumns):
    """The columns of sentences, or of minimal pairs, and of their labels."""

    text_column: str | None = option(
        None,
        "Column of the sentence, or of the acceptable one of a minimal pair (default: sentence_good, good, or a "
        "usual name).",
    )
    text_pair_column: str | None = option(
        None,
        "Column of the unacceptable sentence of a minimal pair (default: sentence_bad or bad).",
        needs="text_column",
    )
    group_columns: list[str] | None = option(
        None,
        "Columns with the groups of minimal pairs, the finest first, for the accuracy of each group and the mean of "
        "the first column's groups (BLiMP: UID linguistics_term).",
        group=Group.READING,
        decides=True,
    )


@dataclass(frozen=True, kw_only=True)
class ScoreSettings(Parts):
    """Settings of `score_files`; in Python, `data` may also be in memory, as in `mybert.predict`.

    Raises:
        ValueError: If a setting is missing or out of range.
        OSError: If the model folder does not exist.
    """

    device: Device = field(default_factory=Device)
    scored_by: ScoringModel = field(default_factory=ScoringModel)
    columns: SentenceColumns = field(default_factory=SentenceColumns)
    files: RowFiles = field(default_factory=RowFiles)
    task: str = option(
        "classification", f"Whose files to read as published: {', '.join(_FORMATS)}.", group=Group.INPUT
    )
    method: ScoringMethod = option(
        "within_word_l2r",
        "What is masked with each token: original, nothing else; within_word_l2r, the rest of its word.",
        group=Group.OBJECTIVE,
    )
    max_length: int | None = option(
        None, "Longest sequence in tokens (default: the model's maximum).", LENGTH, group=Group.SEQUENCES
    )
    report: str | None = option(None, "JSON file for the report.", group=Group.INPUT, comes_last=True, writes=True)

    @classmethod
    def read(cls, given: dict[str, Any]) -> dict[str, Any]:
        """Values by option: a folder of minimal pairs in groups means the files in it."""
        given = super().read(given)
        if not given.get("group_columns"):
            return given
        data: list[Any] = []
        for each in given.get("data", []):
            if isinstance(each, str) and each != STDIN and not Path(file_of(each)).exists():
                raise FileNotFoundError(
                    f"There is no file or folder {each}; expected minimal pairs in groups, such as the folder data of "
                    "BLiMP, published at https://github.com/alexwarstadt/blimp."
                )
            data += expand_paths(each) if isinstance(each, str) and Path(each).is_dir() else [each]
        return given | {"data": data}

    def check(self) -> None:
        """Reject values that do not go together, as far as they can be checked without looking at data."""
        self.files.check()
        super().check()
        if self.task not in _FORMATS:
            raise SettingError("task", self.task, known=_FORMATS)
        Checkpoint(self.model).check(ask_hub=False)


PredictArguments = by_keywords(PredictSettings)
ScoreArguments = by_keywords(ScoreSettings)
