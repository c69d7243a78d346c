"""What a fine-tuned model says of new data."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

import torch
from transformers import AutoConfig, AutoTokenizer, PreTrainedModel, PreTrainedTokenizerBase

from ..modeling_mybert import MyBertPreTrainedModel
from .heads import check_model, longest_sequence
from .labels import Labels
from .registry import TASKS
from .tagger import FeatureTaggerConfig
from .task import Task
from .tasks import TaggingTask, feature_tasks


class FinetunedModel(NamedTuple):
    """A model with what belongs to it: its task, its classes, and the tokenizer of what it reads."""

    task: Task
    model: PreTrainedModel
    labels: Labels
    tokenizer: PreTrainedTokenizerBase


def load_finetuned_model(
    task: Task, name: str | Path, device: str | torch.device = "cpu", dtype: str = "float32"
) -> FinetunedModel:
    """Load a model that `finetune` trained, or another with a head for the task.

    Args:
        task: The task. For a tagger on frozen features it becomes one that makes these.
        name: Folder or Hub name.
        device: Where it runs. On a CPU the weights of a MyBERT are laid out for its kernels.
        dtype: Type of the weights, `"float32"` or `"bfloat16"`.

    Raises:
        ValueError: If the model has no head for the task, or cannot read the task's `max_length` tokens.
        OSError: If the model, or the encoder of a tagger, is not there.
    """
    config, encoder = AutoConfig.from_pretrained(name, trust_remote_code=False), str(name)
    if isinstance(config, FeatureTaggerConfig):
        encoder = config.encoder
        check_model(encoder)
        task = feature_tasks(task, config.features, encoder, config.lstm_size, str(device))[""]
    model, labels = task.load_finetuned(str(name))
    model = model.to(device=device, dtype=getattr(torch, dtype)).eval()
    if (
        isinstance(model, MyBertPreTrainedModel)
        and model.device.type == "cpu"
        and torch.backends.mkldnn.is_available()
    ):
        model.prepack_weights()
    return FinetunedModel(task, model, labels, AutoTokenizer.from_pretrained(encoder, trust_remote_code=False))


def tag_words(
    tagger: str | Path, sentences: Sequence[Sequence[str]], max_length: int | None = None
) -> list[tuple[str, ...]]:
    """Tag sentences with a model that was fine-tuned for it.

    Args:
        tagger: Folder of a model of `--task ner` or `--task tagging`. The encoder of one on frozen features has to be
            where it was.
        sentences: Words of each sentence.
        max_length: Longest sequence of the encoder, in tokens; None for 128, or what it reads if that is less.

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
