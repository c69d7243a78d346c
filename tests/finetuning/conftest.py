"""A model of one tiny layer with random weights, and short runs of it."""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any

import pytest
import torch

from mybert import MyBertConfig, MyBertForPreTraining, MyBertTokenizer
from mybert.finetuning import FinetuningArguments
from mybert.finetuning.training import run as training_run


@pytest.fixture(scope="session")
def pretrained(tmp_path_factory: pytest.TempPathFactory, tokenizer: MyBertTokenizer) -> Path:
    """A folder like that of a pretrained model."""
    folder = tmp_path_factory.mktemp("pretrained")
    config = MyBertConfig(
        vocab_size=len(tokenizer), hidden_size=32, num_hidden_layers=1, num_attention_heads=2, intermediate_size=64
    )
    torch.manual_seed(0)
    MyBertForPreTraining(config).save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder


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
