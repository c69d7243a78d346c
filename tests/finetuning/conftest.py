"""A model of one tiny layer with random weights, and short runs of it."""

import json
import shutil
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from itertools import count
from pathlib import Path
from typing import Any

import pytest
import torch

from mybert import (
    MyBertConfig,
    MyBertForMultipleChoice,
    MyBertForQuestionAnswering,
    MyBertForSequenceClassification,
    MyBertForTokenClassification,
    MyBertTokenizer,
)
from mybert.finetuning import TASKS, FinetuningArguments
from mybert.finetuning.tasks import classification
from mybert.finetuning.tasks.registry import task_record
from mybert.finetuning.training import run as training_run

WORDS = "the cat dog sat ran on under a mat tree and slept ate fish bread it was happy sad very today".split()
HEADS = {
    "sst2": (MyBertForSequenceClassification, ["0", "1"]),
    "mrpc": (MyBertForSequenceClassification, ["0", "1"]),
    "regression": (MyBertForSequenceClassification, ["value"]),
    "multilabel": (MyBertForSequenceClassification, ["a", "b", "c"]),
    "ner": (MyBertForTokenClassification, ["O", "B-PER", "I-PER"]),
    "squad": (MyBertForQuestionAnswering, ["LABEL_0", "LABEL_1"]),
    "squad_v2": (MyBertForQuestionAnswering, ["LABEL_0", "LABEL_1"]),
    "swag": (MyBertForMultipleChoice, ["LABEL_0", "LABEL_1"]),
}


@pytest.fixture(scope="session")
def pretrained(tmp_path_factory: pytest.TempPathFactory, tiny_model: Callable[..., Path]) -> Path:
    """A folder like that of a pretrained model."""
    return tiny_model(tmp_path_factory.mktemp("pretrained"), hidden_size=32, intermediate_size=64)


@pytest.fixture(scope="session")
def texts() -> list[str]:
    """Thirty texts of one to seven words."""
    return [" ".join(WORDS[(3 * row + 5 * word) % len(WORDS)] for word in range(1 + row % 7)) for row in range(30)]


@pytest.fixture(scope="session")
def models(tmp_path_factory: pytest.TempPathFactory, tokenizer: MyBertTokenizer, texts: list[str]) -> Path:
    """Folders by task of fine-tuned models with random weights, large enough that predictions differ."""
    folder = tmp_path_factory.mktemp("models")
    sizes = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 64}
    sizes |= {"vocab_size": len(tokenizer), "initializer_range": 0.5, "max_position_embeddings": 64}
    for name, (model_class, labels) in HEADS.items():
        torch.manual_seed(1)
        numbers = {label: number for number, label in enumerate(labels)}
        config = MyBertConfig(**sizes, id2label=dict(enumerate(labels)), label2id=numbers)
        config.problem_type = getattr(TASKS[name], "problem", None)
        config.finetuned_for = task_record(name, TASKS[name]) | {"max_length": 16}
        if name.startswith("squad"):
            config.finetuned_for |= {"max_length": 32, "doc_stride": 4}
        if name == "multilabel":
            config.finetuned_for |= {"thresholds": {"a": 0.9, "b": 0.1}}
        model = model_class(config)
        if name == "sst2":  # both classes must occur
            with torch.no_grad():
                batch = tokenizer(texts, padding=True, return_tensors="pt")
                model.classifier.bias -= model.eval()(**batch).logits.mean(0)
        model.save_pretrained(folder / name)
        tokenizer.save_pretrained(folder / name)
    return folder


@pytest.fixture(scope="session")
def any_temperature_helps() -> Callable[[], AbstractContextManager[None]]:
    """A block in which every fitted temperature is kept, whatever it does to held-out probabilities."""

    @contextmanager
    def helps() -> Iterator[None]:
        losses = count()
        with pytest.MonkeyPatch.context() as patches:
            patches.setattr(classification, "log_loss", lambda *_: next(losses))
            yield

    return helps


@pytest.fixture
def changed(tmp_path: Path) -> Callable[..., Path]:
    """Copies a model folder, with other fields in its configuration."""

    def change(model: Path, **fields: Any) -> Path:
        folder = shutil.copytree(model, tmp_path / "changed", dirs_exist_ok=True)
        config = json.loads((folder / "config.json").read_text())
        (folder / "config.json").write_text(json.dumps(config | fields))
        return folder

    return change


@pytest.fixture
def short_run(tmp_path: Path, pretrained: Path) -> Callable[..., FinetuningArguments]:
    """Makes the settings of a run of `pretrained` on the CPU, into the folder `out`, or another by name."""

    def make(name: str = "out", **settings: Any) -> FinetuningArguments:
        defaults = {"model": str(pretrained), "output_dir": str(tmp_path / name), "max_length": 16}
        return FinetuningArguments(**defaults | {"disable_tqdm": True, "use_cpu": True} | settings)

    return make


@pytest.fixture
def reviews(tmp_path: Path) -> dict[str, str]:
    """Training and validation files of 48 and 16 texts, whose label depends on one of their words."""
    rows = [
        f"the {noun} was {word} {end}\t{'good' if word in ('happy', 'fish') else 'bad'}"
        for noun in ("cat", "dog", "tree", "mat")
        for word in ("happy", "sad", "fish", "under")
        for end in ("today", "very", "and")
    ]
    for name, lines in (("train", rows), ("dev", rows[::3])):
        (tmp_path / f"{name}.tsv").write_text("\n".join(["text\tlabel", *lines]) + "\n")
    return {"train_file": str(tmp_path / "train.tsv"), "validation_file": str(tmp_path / "dev.tsv")}


@pytest.fixture
def killed_at(monkeypatch: pytest.MonkeyPatch) -> Callable[[int], AbstractContextManager[None]]:
    """A block in which a run ends as if it was killed after it wrote the checkpoint of a step."""

    @contextmanager
    def killed(step: int) -> Iterator[None]:
        class Kill(training_run.StopOnInterrupt):
            def on_save(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
                if state.global_step == step:
                    raise KeyboardInterrupt

        with monkeypatch.context() as patches, pytest.raises(KeyboardInterrupt):
            patches.setattr(training_run, "StopOnInterrupt", Kill)
            yield

    return killed
