"""Arguments and function of `mybert card`: a model card for any MyBERT folder."""

import json
import logging
from collections.abc import Sequence
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any

import yaml
from huggingface_hub import EvalResult, metadata_load, metadata_save

from .card import CardContent, Example, TrainingDescription, describe_model, write_card
from .examples import run_example

logger = logging.getLogger(__name__)

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
_TEXTS = {
    "fill-mask": ("The capital of France is {mask}.",),
    "next-sentence-prediction": ("The man went to the store.", "He bought a gallon of milk."),
    "text-classification": ("The film was a pleasant surprise.",),
    "token-classification": ("Ada Lovelace was born in London.",),
    "question-answering": ("Where was Ada Lovelace born?", "Ada Lovelace was born in London in 1815."),
    "multiple-choice": ("She opened the umbrella because", "it rained.", "it was an apple."),
    "feature-extraction": ("A sentence becomes a vector for each token.",),
}
# The last line of an example; {0}, {1} are the texts, {rest} all but the first.
_CALLS = {
    "fill-mask": "print(*run({0!r}), sep='\\n')",
    "next-sentence-prediction": "print(run({0!r}, {1!r}))",
    "text-classification": "print(run({0!r}))",
    "token-classification": "print(*run({0!r}), sep='\\n')",
    "question-answering": "print(run(question={0!r}, context={1!r}))",
    "multiple-choice": "print(run(prompt={0!r}, choices={rest!r}))",
    "feature-extraction": "(vectors,) = run({0!r})\nprint(len(vectors), 'tokens,', len(vectors[0]), 'values each')",
}
_OWN_PIPELINES = ("next-sentence-prediction", "question-answering", "multiple-choice")


@dataclass
class CardArguments:
    """What a model folder does not say of itself; what is not given is left out of the card."""

    model: str = field(metadata={"help": "Model folder; its README.md is written."})
    name: str | None = field(default=None, metadata={"help": "Name of the model; by default that of the folder."})
    summary: str | None = field(default=None, metadata={"help": "What the model is and is for."})
    corpus: str | None = field(default=None, metadata={"help": "What it was trained on."})
    license: str | None = field(default=None, metadata={"help": "Licence of the weights, as apache-2.0."})
    languages: list[str] | None = field(default=None, metadata={"help": "Codes of its languages, as en ko."})
    base_model: str | None = field(default=None, metadata={"help": "Hub name of the model it was made from."})
    datasets: list[str] | None = field(default=None, metadata={"help": "Hub names of its training data."})
    tags: list[str] | None = field(default=None, metadata={"help": "Further tags for the Hub's search."})
    limits: list[str] | None = field(default=None, metadata={"help": "What it is not good for, a text each."})
    results: str | None = field(
        default=None,
        metadata={
            "help": "JSON file of measured results: a list of objects with task_type, dataset_type, dataset_name, "
            "metric_type, metric_value and other fields of huggingface_hub's EvalResult."
        },
    )
    texts: list[str] | None = field(
        default=None,
        metadata={
            "help": "Texts for the example: one, with [MASK] for fill-mask; two sentences; question and context; "
            "prompt and choices. By default an English one."
        },
    )
    examples: bool = field(
        default=True, metadata={"help": "Run the head's pipelines and show what they print; --no_examples does not."}
    )
    overwrite: bool = field(default=False, metadata={"help": "Replace a README.md that is there."})


def make_card(arguments: CardArguments) -> Path:
    """Run `mybert card`: write a model folder's `README.md`, or add metadata to the one that is there.

    Args:
        arguments: The folder, and what is known about the model.

    Returns:
        Path of the card.

    Raises:
        FileNotFoundError: If there is no such folder, no `config.json` in it, or no such file of results.
        ValueError: If there is a card already whose text would change and `overwrite` is not set, or an argument
            cannot be used.
    """
    model_dir = Path(arguments.model)
    model = describe_model(model_dir)
    card = model_dir / "README.md"
    if card.exists() and not arguments.overwrite:
        _add_metadata(card, arguments)
        logger.info("Added to the metadata of %s; its text is as it was.", card)
        return card
    content = CardContent(
        name=arguments.name or model_dir.resolve().name,
        summary=arguments.summary,
        model=model,
        training=TrainingDescription(corpus=arguments.corpus),
        results=_read_results(arguments.results) if arguments.results else (),
        examples=run_examples(model_dir, arguments.texts) if arguments.examples else (),
        limits=arguments.limits or (),
        license=arguments.license,
        languages=arguments.languages or (),
        base_model=arguments.base_model,
        datasets=arguments.datasets or (),
        tags=arguments.tags or (),
    )
    write_card(model_dir, content)
    logger.info("Wrote %s", card)
    return card


def run_examples(model_dir: str | Path, texts: Sequence[str] | None = None) -> list[Example]:
    """Run each pipeline that fits a model's head.

    Args:
        model_dir: Model folder, with its tokenizer.
        texts: Texts for the pipelines, as in `CardArguments`; by default English ones. A pretrained model's two
            pipelines take different ones: with `texts` the first is run only.

    Returns:
        An example for each pipeline.

    Raises:
        ValueError: If there are too few texts, or none has the mask token that fill-mask needs.
    """
    from transformers import AutoTokenizer

    model = describe_model(model_dir)
    architecture = model.architecture or ""
    tasks = next((tasks for ending, tasks in _TASKS.items() if architecture.endswith(ending)), ())
    examples = []
    for task in tasks[:1] if texts else tasks:
        chosen = list(texts or _TEXTS[task])
        if len(chosen) < len(_TEXTS[task][:2]):
            raise ValueError(f"{task} needs {len(_TEXTS[task][:2])} texts or more, there is {len(chosen)}.")
        if task == "fill-mask":
            mask = AutoTokenizer.from_pretrained(model_dir).mask_token
            chosen = [text.replace("{mask}", mask) for text in chosen]
            if mask not in chosen[0]:
                raise ValueError(f"The text for fill-mask is {chosen[0]!r}; expected one with {mask}.")
        # What transformers has itself runs without this package as well, with the code that `publish` adds.
        first, trust = ("import mybert\n", "") if task in _OWN_PIPELINES else ("", ", trust_remote_code=True")
        if model.model_type == "mybert-bilstm":  # which that code has not
            first, trust = "import mybert.finetuning\n", ""
        code = (
            f"{first}from transformers import pipeline\n\n"
            f"run = pipeline({task!r}, model={str(model_dir)!r}{trust})\n"
            + _CALLS[task].format(*chosen, rest=chosen[1:])
        )
        examples.append(run_example(task.replace("-", " ").capitalize(), code))
    return examples


def _add_metadata(card: Path, arguments: CardArguments) -> None:
    """What a run's card cannot know (licence, languages and so on) goes into it; what the run said of itself stays."""
    known = {
        "license": arguments.license,
        "language": arguments.languages,
        "base_model": arguments.base_model,
        "datasets": arguments.datasets,
        "tags": arguments.tags,
    }
    added = {name: value for name, value in known.items() if value is not None}
    texts = ("name", "summary", "corpus", "limits", "results", "texts")
    if not added or any(getattr(arguments, name) is not None for name in texts):
        raise ValueError(
            f"{card} is there already; --overwrite replaces it (licence, tags and the like need no such)."
        )
    try:
        metadata = metadata_load(card) or {}
    except yaml.YAMLError as error:
        raise ValueError(f"The metadata of {card} is not YAML: {' '.join(str(error).split())}.") from error
    if arguments.tags:
        added["tags"] = list(dict.fromkeys([*(metadata.get("tags") or []), *arguments.tags]))
    metadata_save(card, metadata | added)


def _read_results(path: str) -> list[EvalResult]:
    try:
        rows: Any = json.loads(Path(path).read_text(encoding="utf-8"))
    except ValueError as error:
        raise ValueError(f"{path} is not JSON: {error}.") from error
    known = {item.name for item in fields(EvalResult)}
    if not isinstance(rows, list) or not all(isinstance(row, dict) and set(row) <= known for row in rows):
        raise ValueError(f"{path} holds something else than a list of objects with fields of EvalResult.")
    try:
        return [EvalResult(**row) for row in rows]
    except TypeError as error:  # a field is missing
        raise ValueError(f"{path}: {str(error).replace('EvalResult.__init__()', 'a result is')}.") from error
