"""A model of one tiny layer with random weights, and short runs of it."""

import json
import shutil
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from functools import partial
from itertools import count
from pathlib import Path
from typing import Any

import pytest
import torch

import mybert
from mybert import (
    MyBertForMultipleChoice,
    MyBertForQuestionAnswering,
    MyBertForSequenceClassification,
    MyBertForTokenClassification,
    MyBertTokenizer,
    metrics,
)
from mybert.finetuning import TASKS, FinetunePlan, FinetuneSettings, FinetuningArguments, plan_finetuning
from mybert.finetuning.training import run as training_run
from mybert.finetuning.training.plan import completed
from mybert.finetuning.training.preparation import TaskRun, read_run

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
def models(tmp_path_factory: pytest.TempPathFactory, tokenizer: MyBertTokenizer, texts: list[str], tiny_model) -> Path:
    """Folders by task of fine-tuned models with random weights, large enough that predictions differ."""
    folder = tmp_path_factory.mktemp("models")
    sizes = {"hidden_size": 32, "num_hidden_layers": 2, "intermediate_size": 64}
    sizes |= {"initializer_range": 0.5, "max_position_embeddings": 64}
    more = {
        "squad": {"max_length": 32, "doc_stride": 4},
        "squad_v2": {"max_length": 32, "doc_stride": 4},
        "multilabel": {"max_length": 16, "thresholds": {"a": 0.9, "b": 0.1}},
    }
    for name, (model_class, labels) in HEADS.items():

        def change(model: Any, name: str = name) -> None:
            model.config.finetuned_for |= more.get(name, {"max_length": 16})
            if name == "sst2":  # both classes must occur
                with torch.no_grad():
                    batch = tokenizer(texts, padding=True, return_tensors="pt")
                    model.classifier.bias -= model.eval()(**batch).logits.mean(0)

        problem = {"problem_type": getattr(TASKS[name], "problem", None)}
        tiny_model(folder / name, model_class, labels=labels, task=name, seed=1, change=change, **sizes, **problem)
    return folder


@pytest.fixture(scope="session")
def any_temperature_helps() -> Callable[[], AbstractContextManager[None]]:
    """A block in which every fitted temperature is kept, whatever it does to held-out probabilities."""

    @contextmanager
    def helps() -> Iterator[None]:
        losses = count()
        with pytest.MonkeyPatch.context() as patches:
            patches.setattr(metrics, "log_loss", lambda *_: next(losses))
            yield

    return helps


@pytest.fixture
def changed(tmp_path: Path, change_config: Any) -> Callable[..., Path]:
    """Copies a model folder, with other fields in its configuration."""
    copy = partial(shutil.copytree, dst=tmp_path / "changed", dirs_exist_ok=True)
    return lambda model, **fields: change_config(copy(model), **fields)


@pytest.fixture
def short_run(tmp_path: Path, pretrained: Path) -> Callable[..., FinetuneSettings]:
    """Makes the settings of a run of `pretrained` on the CPU, into the folder `out`, or another by name."""

    def make(name: str = "out", **settings: Any) -> FinetuneSettings:
        defaults = {"model": str(pretrained), "output_dir": str(tmp_path / name), "max_length": 16}
        return FinetuningArguments(**defaults | {"disable_tqdm": True, "use_cpu": True} | settings)

    return make


@pytest.fixture(scope="session")
def look() -> Callable[[FinetuneSettings], tuple[FinetunePlan, TaskRun]]:
    """Reads the data of a run, and completes its plan."""

    def read(settings: FinetuneSettings) -> tuple[FinetunePlan, TaskRun]:
        plan = plan_finetuning(settings)
        run = read_run(plan, plan.task)
        return completed(plan, run.task, len(run.train.examples), run.validation), run

    return read


@pytest.fixture(scope="session")
def tune(pretrained: Path) -> Callable[..., dict[str, Any]]:
    """Fine-tunes `pretrained`, or another model, on data for one step, by the keywords that users give."""

    def run(output_dir: Path, train_file: Any, **settings: Any) -> dict[str, Any]:
        defaults = {"model": pretrained, "max_steps": 1, "save_strategy": "no", "max_length": 16}
        defaults |= {"disable_tqdm": True, "use_cpu": True}
        return mybert.finetune(output_dir=output_dir, train_file=train_file, **defaults | settings)

    return run


@pytest.fixture(scope="session")
def rows() -> list[tuple[str, str]]:
    """48 texts and labels, which depend on one of the words."""
    return [
        (f"the {noun} was {word} {end}", "good" if word in ("happy", "fish") else "bad")
        for noun in ("cat", "dog", "tree", "mat")
        for word in ("happy", "sad", "fish", "under")
        for end in ("today", "very", "and")
    ]


@pytest.fixture
def reviews(tmp_path: Path, rows: list[tuple[str, str]]) -> dict[str, str]:
    """Training and validation files of `rows` and of every third of them."""
    files = {"train_file": tmp_path / "train.tsv", "validation_file": tmp_path / "dev.tsv"}
    for path, chosen in zip(files.values(), (rows, rows[::3]), strict=True):
        path.write_text("\n".join("\t".join(row) for row in (("text", "label"), *chosen)) + "\n")
    return {name: str(path) for name, path in files.items()}


@pytest.fixture
def log_history(tmp_path: Path) -> Callable[..., list[dict[str, Any]]]:
    """Reads what the run of a name logged."""
    return lambda name="out": json.loads((tmp_path / name / "trainer_state.json").read_text())["log_history"]


@pytest.fixture
def same_weights(tmp_path: Path) -> Callable[..., None]:
    """Asserts that the runs of two names have the same weights, bit for bit."""

    def compare(one: str, other: str) -> None:
        first, second = ((tmp_path / name / "model.safetensors").read_bytes() for name in (one, other))
        assert first == second

    return compare


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
