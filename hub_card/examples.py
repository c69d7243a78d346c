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

from ..files.checkpoint import Checkpoint
from ..files.processes import only_errors
from ..modeling_mybert import MyBertConfig
from ..pipelines import windowed_pipeline
from .card import Example

OWN_PIPELINES = ("next-sentence-prediction", "question-answering", "multiple-choice")
# The import that registers a model type with transformers; it knows all other types.
_IMPORTS = {MyBertConfig.model_type: "import mybert", "mybert-bilstm": "import mybert.finetuning"}
IMPORT = "import mybert  # on the Hub it runs without as well: pipeline(..., trust_remote_code=True)"
"""First line of an example for a model of ours, in a pipeline of transformers' own."""


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
    from transformers import AutoTokenizer, pipeline
    from transformers.pipelines import check_task

    checkpoint = model_dir if isinstance(model_dir, Checkpoint) else Checkpoint(model_dir)
    config, name = checkpoint.check_folder().fields, checkpoint.name
    model_type = config.get("model_type")
    pipelines: dict[str, Any] = {}
    examples = []
    with only_errors():
        for call in calls:
            imports = _IMPORTS.get(str(model_type), "import mybert" if call.task in OWN_PIPELINES else "")
            exec(imports)
            options = "".join(f", {name}={value!r}" for name, value in call.options.items())
            if windowed := windowed_pipeline(call.task, config):
                imports += f"\nfrom mybert.pipelines import {windowed.__name__}"
                options += f", pipeline_class={windowed.__name__}"
            loading = f"run = pipeline({call.task!r}, model={name!r}{options})"
            if loading not in pipelines:
                if tokenizer is None:
                    tokenizer = AutoTokenizer.from_pretrained(name, trust_remote_code=False)
                (auto_class, *_) = check_task(call.task)[1]["pt"]
                suited = model
                if suited is None:
                    known = {"config": checkpoint.config, "trust_remote_code": False}
                    suited = auto_class.from_pretrained(name, **known, use_safetensors=True)
                pipelines[loading] = pipeline(
                    call.task, model=suited, tokenizer=tokenizer, pipeline_class=windowed, **call.options
                )
            if model_type == MyBertConfig.model_type and call.task not in OWN_PIPELINES and not windowed:
                imports = IMPORT
            opening = "\n".join(line for line in (imports, "from transformers import pipeline\n", loading) if line)
            examples.append(run_example(call.title, call.code, f"{opening}\n", run=pipelines[loading]))
    return examples


def run_example(title: str, code: str, opening: str = "", **names: Any) -> Example:
    """Run a snippet and record what it prints, without transformers' reports on loading weights.

    The code is written by this package, never from a model folder. `opening` is shown before it in the card but not
    run, such as imports and loading the model; `names` are those that it would define.
    """
    output = io.StringIO()
    with only_errors(), contextlib.redirect_stdout(output):
        exec(compile(code, f"<{title}>", "exec"), {"__name__": "__example__", **names})
    return Example(title=title, code=opening + code, output=output.getvalue().rstrip("\n"))
