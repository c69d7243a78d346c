"""Examples for model cards: code that is run when the card is written, with its output.

The line that creates the pipeline is shown but not run; the pipeline is passed in, or loaded once for all examples,
from our classes and transformers' own. Code named by a model folder (`auto_map`, `custom_pipelines`) is never run.
"""

import contextlib
import io
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ..files.checkpoint import TASK_RECORD, Checkpoint
from ..files.loading import load_model, load_tokenizer
from ..files.processes import only_errors
from ..modeling_mybert import MyBertConfig
from ..modeling_mybert.bilstm import MyBertBiLstmConfig
from ..pipelines import windowed_pipeline
from .card import Example, describe_model

OWN_PIPELINES = ("next-sentence-prediction", "question-answering", "multiple-choice")
_OWN_TYPES = (MyBertConfig.model_type, MyBertBiLstmConfig.model_type)  # which transformers knows only by this package
IMPORT = "import mybert  # on the Hub it runs without as well: pipeline(..., trust_remote_code=True)"
"""First line of an example for a MyBERT model, in a pipeline of transformers' own."""

# Task -> invented texts and last lines of its example; {0} and {1} are the texts, {rest} all but the first.
_TEXTS_AND_CODE: dict[str, tuple[tuple[str, ...], str]] = {
    "fill-mask": (("The capital of France is {mask}.",), "print(*run({0!r}), sep='\\n')"),
    "next-sentence-prediction": (
        ("The man went to the store.", "He bought a gallon of milk."),
        "print(run({0!r}, {1!r}))",
    ),
    "text-classification": (("The film was a pleasant surprise.",), "print(run({0!r}))"),
    "token-classification": (("Ada Lovelace was born in London.",), "print(*run({0!r}), sep='\\n')"),
    "question-answering": (
        ("Where was Ada Lovelace born?", "Ada Lovelace was born in London in 1815."),
        "print(run(question={0!r}, context={1!r}))",
    ),
    "multiple-choice": (
        ("She opened the umbrella because", "it rained.", "it was an apple."),
        "print(run(prompt={0!r}, choices={rest!r}))",
    ),
    "feature-extraction": (
        ("A sentence becomes a vector for each token.",),
        "(vectors,) = run({0!r})\nprint(len(vectors), 'tokens,', len(vectors[0]), 'values each')",
    ),
}
_OF_A_PAIR = (("A man plays a guitar.", "A man makes music."), "print(run({{'text': {0!r}, 'text_pair': {1!r}}}))")


@dataclass(frozen=True)
class PipelineCall:
    """A call of a pipeline for the card."""

    title: str
    task: str
    code: str  # uses the pipeline as `run` and prints; written by this package, with texts as `repr`
    options: Mapping[str, Any] = field(default_factory=dict)  # other arguments of `transformers.pipeline`


def run_pipelines(
    calls: Sequence[PipelineCall], model_dir: str | Path | Checkpoint, model: Any = None, tokenizer: Any = None
) -> list[Example]:
    """Run pipelines for a card, which load a model folder; the weights of each pipeline are loaded once.

    `model` is the same model, already loaded, if it has the class that the pipelines need, `tokenizer` its tokenizer.
    """
    from transformers import pipeline
    from transformers.pipelines import check_task

    checkpoint = model_dir if isinstance(model_dir, Checkpoint) else Checkpoint(model_dir)
    config, name = checkpoint.check_folder().fields, checkpoint.name
    model_type = config.get("model_type")
    pipelines: dict[str, Any] = {}
    examples = []
    with only_errors():
        for call in calls:
            imports = "import mybert" if call.task in OWN_PIPELINES or model_type in _OWN_TYPES else ""
            options = "".join(f", {name}={value!r}" for name, value in call.options.items())
            if windowed := windowed_pipeline(call.task, config):
                imports += f"\nfrom mybert.pipelines import {windowed.__name__}"
                options += f", pipeline_class={windowed.__name__}"
            loading = f"run = pipeline({call.task!r}, model={name!r}{options})"
            if loading not in pipelines:
                if tokenizer is None:
                    tokenizer = load_tokenizer(checkpoint)
                (auto_class, *_) = check_task(call.task)[1]["pt"]
                suited = load_model(checkpoint, auto_class, needs_head=True)[0] if model is None else model
                pipelines[loading] = pipeline(
                    call.task, model=suited.eval(), tokenizer=tokenizer, pipeline_class=windowed, **call.options
                )
            if model_type == MyBertConfig.model_type and call.task not in OWN_PIPELINES and not windowed:
                imports = IMPORT
            opening = "\n".join(line for line in (imports, "from transformers import pipeline\n", loading) if line)
            examples.append(run_example(call.title, call.code, f"{opening}\n", run=pipelines[loading]))
    return examples


def head_examples(
    model_dir: str | Path | Checkpoint,
    tasks: Sequence[str] | None = None,  # by default those of the pipelines for the model's head
    texts: Sequence[str] | None = None,  # of the first task; the invented ones by default
    model: Any = None,
    tokenizer: Any = None,
) -> list[Example]:
    """Run a model's pipelines for a card on invented texts, where these fit its input, or on given ones."""
    checkpoint = model_dir if isinstance(model_dir, Checkpoint) else Checkpoint(model_dir)
    description = describe_model(checkpoint)
    reads_pairs = bool((checkpoint.fields.get(TASK_RECORD) or {}).get("text_pair_column"))
    if tokenizer is None:
        tokenizer = load_tokenizer(checkpoint)
    calls = []
    tasks = description.tasks if tasks is None else tasks
    for task in tasks[:1] if texts else tasks:
        usual, code = _TEXTS_AND_CODE[task]
        if task == "text-classification" and (len(texts) == 2 if texts else reads_pairs):
            usual, code = _OF_A_PAIR
        chosen = list(texts or usual)
        if len(chosen) < len(usual[:2]):
            raise ValueError(f"{task} needs {len(usual[:2])} texts or more, there is {len(chosen)}.")
        if task == "fill-mask":
            mask = tokenizer.mask_token or "[MASK]"
            chosen = [text.replace("{mask}", mask) for text in chosen]
            if mask not in chosen[0]:
                raise ValueError(f"The text for fill-mask is {chosen[0]!r}; expected one with {mask}.")
        tokens = sum(map(len, tokenizer(chosen)["input_ids"]))
        if texts or tokens <= (description.max_positions or tokens):
            title = task.replace("-", " ").capitalize()
            calls.append(PipelineCall(title, task, code.format(*chosen, rest=chosen[1:])))
    return run_pipelines(calls, checkpoint, model, tokenizer)


def run_example(title: str, code: str, opening: str = "", **names: Any) -> Example:
    """Run a snippet and record what it prints, without transformers' reports on loading weights.

    The code is written by this package, never from a model folder. `opening` is shown before it in the card but not
    run, such as imports and loading the model; `names` are those that it would define.
    """
    output = io.StringIO()
    with only_errors(), contextlib.redirect_stdout(output):
        exec(compile(code, f"<{title}>", "exec"), {"__name__": "__example__", **names})
    return Example(title=title, code=opening + code, output=output.getvalue().rstrip("\n"))
