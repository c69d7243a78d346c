"""Examples for model cards: lines that are run when the card is made, with what they printed.

What makes a pipeline is shown and not run; the pipeline itself is given, or is loaded once for all examples, from our
classes and transformers' own. Code that a model folder names (`auto_map`, `custom_pipelines`) is never run.
"""

import contextlib
import io
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ..files import check_model_folder, only_errors
from ..modeling_mybert import MyBertConfig
from .card import Example

OWN_PIPELINES = ("next-sentence-prediction", "question-answering", "multiple-choice")
# What makes transformers know a model type; all others it knows by itself.
_IMPORTS = {MyBertConfig.model_type: "import mybert", "mybert-bilstm": "import mybert.finetuning"}
IMPORT = "import mybert  # on the Hub it runs without as well: pipeline(..., trust_remote_code=True)"
"""First line of an example for a model of ours, in a pipeline of transformers' own."""


@dataclass(frozen=True)
class PipelineCall:
    """What is asked of a pipeline.

    Attributes:
        title: Heading of the example.
        task: Name of the pipeline.
        code: Python code that uses the pipeline as `run` and prints; our own, with texts by their `repr`.
        options: Further arguments of `transformers.pipeline`, for the pipeline itself.
    """

    title: str
    task: str
    code: str
    options: Mapping[str, Any] = field(default_factory=dict)


def run_pipelines(
    calls: Sequence[PipelineCall], model_dir: str | Path, model: Any = None, tokenizer: Any = None
) -> list[Example]:
    """Run pipelines for a card; each that is made from the folder loads its weights once.

    Args:
        calls: What is asked.
        model_dir: Model folder, with its tokenizer; the examples load the model from there.
        model: The same model, already loaded, if its class is the one of the pipelines.
        tokenizer: Its tokenizer, already loaded.

    Returns:
        The examples for `CardContent.examples`.

    Raises:
        FileNotFoundError, ValueError: See `check_model_folder`.
    """
    from transformers import AutoTokenizer, pipeline
    from transformers.pipelines import check_task

    model_type = check_model_folder(model_dir).get("model_type")
    pipelines: dict[str, Any] = {}
    examples = []
    with only_errors():
        for call in calls:
            imports = _IMPORTS.get(str(model_type), "import mybert" if call.task in OWN_PIPELINES else "")
            exec(imports)
            options = "".join(f", {name}={value!r}" for name, value in call.options.items())
            loading = f"run = pipeline({call.task!r}, model={str(model_dir)!r}{options})"
            if loading not in pipelines:
                if tokenizer is None:
                    tokenizer = AutoTokenizer.from_pretrained(model_dir, trust_remote_code=False)
                (auto_class, *_) = check_task(call.task)[1]["pt"]
                suited = model
                if suited is None:
                    suited = auto_class.from_pretrained(model_dir, trust_remote_code=False, use_safetensors=True)
                pipelines[loading] = pipeline(call.task, model=suited, tokenizer=tokenizer, **call.options)
            if model_type == MyBertConfig.model_type and call.task not in OWN_PIPELINES:
                imports = IMPORT
            opening = "\n".join(line for line in (imports, "from transformers import pipeline\n", loading) if line)
            examples.append(run_example(call.title, call.code, f"{opening}\n", run=pipelines[loading]))
    return examples


def run_example(title: str, code: str, opening: str = "", **names: Any) -> Example:
    """Run a snippet and keep what it printed; transformers' reports on loading weights are kept out.

    Args:
        title: Heading of the example.
        code: Python code; our own, never a stranger's.
        opening: Code that stands before it in the card and is not run, such as imports and what loads a model.
        **names: What the opening would define.

    Returns:
        The example for `CardContent.examples`.
    """
    output = io.StringIO()
    with only_errors(), contextlib.redirect_stdout(output):
        exec(compile(code, f"<{title}>", "exec"), {"__name__": "__example__", **names})
    return Example(title=title, code=opening + code, output=output.getvalue().rstrip("\n"))
