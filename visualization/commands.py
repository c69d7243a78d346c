"""Pictures as commands: attention maps and the input representation of a text, and the curves of a run."""

from __future__ import annotations

from contextlib import nullcontext
from pathlib import Path

from ..files.checkpoint import Checkpoint
from ..files.loading import load_model, load_tokenizer
from ..files.output import reserved
from .attention import attention_map
from .curves import SUITE_FILE, learning_curves, plot_run
from .input_and_confusion import input_picture
from .pair_groups import accuracy_bars
from .pictures import picture_path
from .settings import AttentionSettings, CurvesSettings


def draw_attention(arguments: AttentionSettings) -> Path:
    """Write the picture of a text."""
    from transformers import AutoModel

    path = picture_path(arguments.output)
    if not 1 <= len(arguments.sentences) <= 2:
        raise ValueError(f"There are {len(arguments.sentences)} texts; expected one, or the two of a pair.")
    if arguments.view == "input" and (arguments.attention_layer is not None or arguments.attention_head is not None):
        raise ValueError("The view input shows what goes into the model: it has no layer and no head to choose.")
    with reserved(path, overwrite=arguments.overwrite):
        checkpoint = Checkpoint(arguments.model).check()
        tokenizer = load_tokenizer(checkpoint)
        text, text_pair = arguments.sentences[0], arguments.sentences[1] if len(arguments.sentences) == 2 else None
        if arguments.view == "input":
            input_picture(tokenizer, text, text_pair).save(path)
        else:
            model, _ = load_model(checkpoint, AutoModel)
            attention = attention_map(model, tokenizer, text, text_pair)
            attention.save(path, arguments.attention_layer, arguments.attention_head, arguments.view)
    return path


def draw_run(arguments: CurvesSettings) -> Path:
    """Draw the training curves of runs in one picture; of suites, learning curves; of reports of scores, bars."""
    are_suites = all(Path(folder, SUITE_FILE).is_file() for folder in arguments.run_dirs)
    are_reports = all(Path(file).is_file() for file in arguments.run_dirs)
    draw = learning_curves if are_suites else accuracy_bars if are_reports else plot_run
    with reserved(arguments.output, overwrite=arguments.overwrite) if arguments.output else nullcontext():
        return draw(arguments.run_dirs, arguments.output)
