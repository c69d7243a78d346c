"""Loading a fine-tuned model to predict new data."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

import torch
from transformers import AutoConfig, AutoTokenizer, PreTrainedModel, PreTrainedTokenizerBase

from ...modeling_mybert import MyBertPreTrainedModel
from ..data.labels import Labels
from ..network.heads import check_model, longest_sequence
from ..network.tagger import FeatureTaggerConfig
from ..tasks import TaggingTask, feature_tasks
from ..tasks.registry import TASKS
from ..tasks.task import Task


class FinetunedModel(NamedTuple):
    """A model with its task, its classes, and the tokenizer of its inputs."""

    task: Task
    model: PreTrainedModel
    labels: Labels
    tokenizer: PreTrainedTokenizerBase


def load_finetuned_model(
    task: Task, name: str | Path, device: str | torch.device = "cpu", dtype: str = "float32"
) -> FinetunedModel:
    """Load a model with a head for the task, and complete the task by the model's classes."""
    # dtype: "float32", "bfloat16", or "int8" for a MyBERT on a CPU.
    config, encoder = AutoConfig.from_pretrained(name, trust_remote_code=False), str(name)
    if isinstance(config, FeatureTaggerConfig):  # this encoder completes the task, too
        encoder = config.encoder
        check_model(encoder)
        task = feature_tasks(task, config.features, encoder, config.lstm_size, str(device))[""]
    model, labels = task.load_finetuned(str(name))
    is_int8 = dtype == "int8"
    model = model.to(device=device, dtype=torch.float32 if is_int8 else getattr(torch, dtype)).eval()
    is_own = isinstance(model, MyBertPreTrainedModel) and model.device.type == "cpu"
    if is_int8 and not is_own:
        what = f"a {type(model).__name__} on {model.device}"
        raise ValueError(f"dtype is int8 and {name} is {what}; expected a MyBERT or bert model on a CPU (--use_cpu).")
    if is_int8:
        model.quantize_weights("int8")
    elif is_own and torch.backends.mkldnn.is_available():
        model.prepack_weights()
    tokenizer = AutoTokenizer.from_pretrained(encoder, trust_remote_code=False)
    return FinetunedModel(task.with_classes(labels), model, labels, tokenizer)


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
            words.
    """
    for number, words in enumerate(sentences, start=1):
        if not words:
            raise ValueError(f"Sentence {number} has no words; expected at least one.")
    check_model(tagger)
    if max_length is None:
        config = AutoConfig.from_pretrained(tagger, trust_remote_code=False)
        if isinstance(config, FeatureTaggerConfig):
            config = AutoConfig.from_pretrained(config.encoder, trust_remote_code=False)
        max_length = min(128, longest_sequence(config) or 128)
    found = load_finetuned_model(replace(TASKS["tagging"], max_length=max_length), tagger)
    assert isinstance(found.task, TaggingTask)
    return found.task.tag(sentences, found.model, found.labels, found.tokenizer)
