"""Model cards: typed facts about a model, its making and its measured results, rendered to the Hub's `README.md`.

Metadata follows the Hub's model card specification (https://github.com/huggingface/hub-docs, `modelcard.md`);
huggingface_hub writes it. Unknown facts are left out, with their headings.
Names, labels and numbers from data are shown as plain text; fields marked as Markdown below are Markdown without HTML.
"""

import dataclasses
import math
import re
from collections.abc import Container, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from numbers import Real
from pathlib import Path
from typing import Any
from urllib.parse import quote, unquote

from huggingface_hub import EvalResult, ModelCardData

from ..files.checkpoint import Checkpoint
from ..files.loading import longest_sequence
from ..files.machine import duration
from ..files.options import settings_of
from ..files.output import write_text
from ..files.source import HubSplit, Source
from .metadata import HubMetadata

TRAINING_CURVES = "training_curves.png"
_PICTURE = re.compile(r"""[^\s()<>"'/]+\.png\b""")
_SHOWN_FILE = re.compile(r"""!\[[^]]*\]\(\s*(?:<([^<>:]+)>|([^\s()<>:]+)(?=[\s)]))""")  # as Markdown, not an address

# Control characters, those for the direction of writing, and lone surrogates; not line breaks.
_CONTROL = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u2028\u2029\u202a-\u202e\u2066-\u2069\ud800-\udfff]")
_MARKUP = re.compile(r"[\\`*\[\]~|$<>&]|(?<![^\W_])_|_(?![^\W_])")
_ENTITIES = {"<": "&lt;", ">": "&gt;", "&": "&amp;"}
# Ending of the architecture's class name -> tasks of its pipelines.
_TASKS = {
    "ForPreTraining": ("fill-mask", "next-sentence-prediction"),
    "ForMaskedLM": ("fill-mask",),
    "ForNextSentencePrediction": ("next-sentence-prediction",),
    "ForSequenceClassification": ("text-classification",),
    "ForTokenClassification": ("token-classification",),
    "ForQuestionAnswering": ("question-answering",),
    "ForMultipleChoice": ("multiple-choice",),
    "Model": ("feature-extraction",),
}
_NOT_ON_THE_HUB = "next-sentence-prediction"  # which has no such task


@dataclass(frozen=True)
class ModelDescription:
    """Facts about a model; `describe_model` reads them from a model folder."""

    architecture: str | None = None  # name of the model class, e.g. "MyBertForPreTraining"
    model_type: str | None = None
    parameters: int | None = None  # stored ones: tied weights count once
    layers: int | None = None
    hidden_size: int | None = None
    attention_heads: int | None = None  # per layer
    intermediate_size: int | None = None
    vocabulary_size: int | None = None
    max_positions: int | None = None  # longest input, in tokens
    labels: tuple[str, ...] = ()  # classes of a fine-tuned head, in the order of their ids

    @property
    def tasks(self) -> tuple[str, ...]:
        """Tasks of the pipelines that the model's head is for, the main one first."""
        return next((tasks for ending, tasks in _TASKS.items() if (self.architecture or "").endswith(ending)), ())


@dataclass(frozen=True)
class TrainingDescription:
    """Facts about a model's training."""

    corpus: str | None = None  # Markdown
    documents: int | None = None
    sentences: int | None = None
    tokens: int | None = None
    vocabulary: str | None = None  # how it was made
    hyperparameters: Mapping[str, Any] = field(default_factory=dict)  # in display order
    seeds: Sequence[int] = ()
    hardware: str | None = None
    wall_time: float | None = None  # seconds
    versions: Mapping[str, str] = field(default_factory=dict)  # of each package


@dataclass(frozen=True)
class Comparison:
    """A table of models and their metrics."""

    title: str  # what is compared, and the data set (Markdown)
    rows: Mapping[str, Mapping[str, Any]]  # metrics by model; missing ones leave an empty cell
    compared: str = "Model"  # heading of the first column


@dataclass(frozen=True)
class Example:
    """A snippet that was run: complete Python code, and what it printed."""

    title: str
    code: str
    output: str


@dataclass(frozen=True)
class CardContent(HubMetadata):
    """All content of a card; only `name` is required. The other keywords are those of `HubMetadata`.

    Attributes:
        name: Name of the model: heading of the card and of its results on the Hub.
        summary: One paragraph on what the model is and is for (Markdown).
        model: Facts about the model; by default `write_card` reads them from the model folder.
        training: Facts about its training.
        curves: Picture of the training curves, relative to the card.
        results: Measured results, which become both the table and the Hub's `model-index`. For each the Hub requires a
            task type (e.g. `"text-classification"`), a data set's name and type, a metric type and a value.
        comparisons: Tables that compare this model with others, or its classes.
        pictures: Pictures of results by description, relative to the card.
        examples: Snippets with their output.
        limits: What the model is not good for, one sentence or more each (Markdown).
    """

    name: str
    summary: str | None = None
    model: ModelDescription | None = None
    training: TrainingDescription | None = None
    curves: str | None = None
    results: Sequence[EvalResult] = ()
    comparisons: Sequence[Comparison] = ()
    pictures: Mapping[str, str] = field(default_factory=dict)
    examples: Sequence[Example] = ()
    limits: Sequence[str] = ()


def hub_fields(metadata: HubMetadata) -> dict[str, Any]:
    """The values that are given, under the Hub's names."""
    names = {"languages": "language", "emissions": "co2_eq_emissions"}
    return {
        names.get(name, name): value
        for name, value in settings_of(HubMetadata, metadata).items()
        if value not in (None, "", [])
    }


def taken_from_hub(model: str | None, sources: Iterable[Source]) -> dict[str, Any]:
    """The fields of `HubMetadata` that a run knows: names of its first model and data sets, if they are on the Hub."""
    names = {source.name for source in sources if isinstance(source, HubSplit)}
    return {
        "base_model": None if not model or Path(model).exists() else model,
        "datasets": sorted(name for name in names if not Path(name).exists()) or None,
    }


def describe_model(model_dir: str | Path | Checkpoint) -> ModelDescription:
    """Read facts about a model from its folder: `config.json` and the headers of its safetensors files."""
    checkpoint = model_dir if isinstance(model_dir, Checkpoint) else Checkpoint(model_dir)
    fields, config = checkpoint.check_folder().fields, checkpoint.config
    labels = fields.get("id2label") or {}
    return ModelDescription(
        architecture=next(iter(fields.get("architectures") or []), None),
        model_type=config.model_type,
        parameters=sum(math.prod(shape) for _, shape in checkpoint.tensors.values()),
        layers=getattr(config, "num_hidden_layers", None),
        hidden_size=getattr(config, "hidden_size", None),
        attention_heads=getattr(config, "num_attention_heads", None),
        intermediate_size=getattr(config, "intermediate_size", None),
        vocabulary_size=getattr(config, "vocab_size", None),
        max_positions=longest_sequence(config),
        labels=tuple(str(labels[key]) for key in sorted(labels, key=int)),
    )


def render_card(content: CardContent) -> str:
    """Render a model card, the text of `README.md`: the Hub's YAML metadata and Markdown.

    Raises:
        ValueError: If a result is not a finite number.
    """
    model, training = content.model or ModelDescription(), content.training or TrainingDescription()
    limits = [content.limits] if isinstance(content.limits, str) else content.limits
    results = [
        (
            result.task_name or result.task_type,
            result.dataset_name,
            result.dataset_split or "",
            result.metric_name or result.metric_type,
            result.metric_value,
        )
        for result in content.results
    ]
    sections: dict[str, list[str]] = {
        "Model": [
            _facts(
                "",
                ("Architecture", model.architecture),
                ("Model type", model.model_type),
                ("Parameters", model.parameters),
                ("Layers", model.layers),
                ("Hidden size", model.hidden_size),
                ("Attention heads", model.attention_heads),
                ("Feed-forward size", model.intermediate_size),
                ("Vocabulary", model.vocabulary_size and f"{model.vocabulary_size:,} entries"),
                ("Longest input", model.max_positions and f"{model.max_positions:,} tokens"),
                ("Labels", ", ".join(model.labels)),
            )
        ],
        "How it was made": [
            _without_html(training.corpus or ""),
            _facts(
                "Text",
                ("Documents", training.documents),
                ("Sentences", training.sentences),
                ("Tokens", training.tokens),
                ("Vocabulary", training.vocabulary),
            ),
            _table(["Hyper-parameter", "Value"], training.hyperparameters.items()),
            _facts(
                "Run",
                ("Seed" if len(training.seeds) == 1 else "Seeds", ", ".join(map(str, training.seeds))),
                ("Hardware", training.hardware),
                ("Training time", None if training.wall_time is None else duration(training.wall_time)),
                ("Versions", ", ".join(f"{package} {version}" for package, version in training.versions.items())),
            ),
            *_pictures({"Training curves": content.curves} if content.curves else {}),
        ],
        "Results": [
            _table(["Task", "Data set", "Split", "Metric", "Value"], results),
            *(part for each in content.comparisons for part in (_without_html(each.title), _comparison_table(each))),
            *_pictures(content.pictures),
        ],
        "Examples": [
            part
            for example in content.examples
            for part in (
                f"### {plain_text(example.title)}",
                _fence(example.code, "python"),
                _fence(example.output, "text"),
            )
        ],
        "Limits": ["\n".join(f"- {_without_html(limit)}" for limit in limits)],
        "License": [plain_text(content.license or "")],
    }
    if content.examples:
        sections["Examples"].insert(0, "Each example was run when this card was made, and is followed by its output.")
    parts = [f"---\n{_metadata(content).to_yaml().strip()}\n---", f"# {plain_text(content.name)}"]
    parts.append(_without_html(content.summary or ""))
    for title, blocks in sections.items():
        parts += [f"## {title}", *blocks] if any(blocks) else []
    return "\n\n".join(filter(None, parts)) + "\n"


def write_card(model_dir: str | Path, content: CardContent, path: Path | None = None) -> Path:
    """Write a model folder's `README.md`, or another file, replacing an existing one; return its path.

    The card describes the model in the folder unless `content.model` is given, and shows the picture
    `content.curves`, by default `training_curves.png`, if that file is in the folder.

    Raises:
        ValueError: If the folder is broken, or a result is not a finite number.
    """
    model_dir = Path(model_dir)
    curves = content.curves or TRAINING_CURVES
    content = dataclasses.replace(
        content,
        model=content.model or describe_model(model_dir),
        curves=curves if (model_dir / curves).is_file() else None,
    )
    path = path or model_dir / "README.md"
    write_text(path, render_card(content))
    return path


def pictures_of(card: str, model_dir: Path) -> list[Path]:
    """The pictures of a model folder that a card names; others may show texts of the data."""
    names = {*map(unquote, _PICTURE.findall(card)), *_shown_in(card)}
    return [path for path in sorted(model_dir.glob("*.png")) if path.name in names]


def pictures_missing_in(card: str, names: Container[str]) -> list[str]:
    """The files that a card shows as pictures and that are not among those of a repository."""
    return [name for name in dict.fromkeys(_shown_in(card)) if name not in names]


def _shown_in(card: str) -> list[str]:
    return [unquote(one or other).removeprefix("./") for one, other in _SHOWN_FILE.findall(card)]


def read_utf8(path: Path) -> str:
    """Read a text; one that is not UTF-8 is an error."""
    try:
        return path.read_bytes().decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise ValueError(f"{path} is not UTF-8 text ({error.reason} at byte {error.start}).") from error


def plain_text(value: Any) -> str:
    """Escape a value as one line of Markdown: without HTML, links, emphasis, formulas or tables."""
    text = " ".join(_CONTROL.sub(" ", str(value)).split())
    text = _MARKUP.sub(lambda match: _ENTITIES.get(match[0], f"\\{match[0]}"), text)
    return re.sub(r"^(?=[#+=-])|^(\d+)(?=[.)](?: |$))", r"\1\\", text)  # what would start a heading, list or rule


def is_finite_number(value: Any) -> bool:
    return _is_number(value) and math.isfinite(value)


def _without_html(text: str) -> str:
    return _CONTROL.sub(" ", text).replace("<", "&lt;")


def _metadata(content: CardContent) -> ModelCardData:
    results = []
    for result in content.results:
        value = result.metric_value
        if not is_finite_number(value):
            raise ValueError(
                f"The result {result.metric_type} on {result.dataset_name} is {value!r}; expected a finite number."
            )
        # YAML supports Python's numbers, not numpy's.
        results.append(dataclasses.replace(result, metric_value=value if isinstance(value, int) else float(value)))
    tasks = content.model.tasks if content.model else ()
    known = hub_fields(content)
    return ModelCardData(
        model_name=content.name if results else None,
        eval_results=results or None,
        library_name="transformers",
        pipeline_tag=next((task for task in tasks if task != _NOT_ON_THE_HUB), None),
        metrics=sorted({result.metric_type for result in results}) or None,
        **known | {"tags": ["mybert", *known.get("tags", ())]},
    )


def _facts(title: str, *rows: tuple[str, Any]) -> str:
    """Return a table of what is known."""
    return _table([title, ""], [(name, value) for name, value in rows if value not in (None, "")])


def _pictures(pictures: Mapping[str, str]) -> list[str]:
    return [f"![{plain_text(caption)}]({quote(picture)})" for caption, picture in pictures.items()]


def _table(header: Sequence[str], rows: Iterable[Sequence[Any]]) -> str:
    """Return a Markdown table; numeric columns are aligned to the right, and columns without any value left out."""
    rows = [list(row) for row in rows]
    if not rows:
        return ""
    filled = [column for column in range(len(header)) if any(row[column] != "" for row in rows)]
    header, rows = [header[column] for column in filled], [[row[column] for column in filled] for row in rows]
    is_numeric = [all(_is_number(row[column]) or row[column] == "" for row in rows) for column in range(len(header))]
    rule = ["---:" if numeric else "---" for numeric in is_numeric]
    lines = [map(_cell, header), rule, *(map(_cell, row) for row in rows)]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def _comparison_table(comparison: Comparison) -> str:
    metrics = list(dict.fromkeys(metric for row in comparison.rows.values() for metric in row))
    rows = [[name, *(row.get(metric, "") for metric in metrics)] for name, row in comparison.rows.items()]
    return _table([comparison.compared, *metrics], rows)


def _cell(value: Any) -> str:
    if _is_number(value):
        return f"{value:,}" if isinstance(value, int) else f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.4g}"
    return plain_text(value)


def _is_number(value: Any) -> bool:
    return isinstance(value, Real) and not isinstance(value, bool)


def _fence(code: str, language: str) -> str:
    """Return a fenced code block whose fence is longer than any row of backticks in it."""
    longest = max((len(ticks) for ticks in re.findall(r"`+", code)), default=0)
    ticks = "`" * max(3, longest + 1)
    return f"{ticks}{language}\n{code.strip(chr(10))}\n{ticks}"
