"""A store, data sets, small models and small runs."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import PreTrainedModel

from mybert import MyBertConfig, MyBertForPreTraining, MyBertTokenizer
from mybert.pretraining import PretrainingArguments, PretrainingDataset, TokenStore, build_token_store

OF_A_NEW_MODEL = {"model_size": "tiny", "num_hidden_layers": 1, "hidden_size": 16, "vocab_size": 60}
OF_A_RUN = {
    "max_length": 24,
    "max_steps": 4,
    "logging_steps": 1,
    "save_steps": 2,
    "per_device_train_batch_size": 8,
    "validation_split": 0.2,
    "learning_rate": 1e-2,
    "disable_tqdm": True,
    "use_cpu": True,
    "num_processes": 1,
}


@pytest.fixture(scope="session")
def store(tmp_path_factory: pytest.TempPathFactory, documents, tokenizer: MyBertTokenizer) -> TokenStore:
    """The documents as a token store; nothing may write to it."""
    path = tmp_path_factory.mktemp("store") / "store.safetensors"
    build_token_store(documents, tokenizer, path, show_progress=False)
    return TokenStore(path)


@pytest.fixture(scope="session")
def tokenizer_folder(tmp_path_factory: pytest.TempPathFactory, tokenizer: MyBertTokenizer) -> str:
    folder = tmp_path_factory.mktemp("tokenizer")
    tokenizer.save_pretrained(folder)
    return str(folder)


@pytest.fixture(scope="session")
def make_dataset(store: TokenStore) -> Callable[..., PretrainingDataset]:
    """Make a data set of the store, or of another."""

    def make(of: TokenStore = store, **settings: Any) -> PretrainingDataset:
        return PretrainingDataset(of, **{"cls_token_id": 2, "sep_token_id": 3, "max_length": 40} | settings)

    return make


@pytest.fixture(scope="session")
def make_model(tokenizer: MyBertTokenizer) -> Callable[..., PreTrainedModel]:
    """Make a model of one layer."""

    def make(kind: type = MyBertForPreTraining, **settings: Any) -> PreTrainedModel:
        torch.manual_seed(0)
        size = {"hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 32}
        return kind(MyBertConfig(**{"vocab_size": len(tokenizer), **size} | settings))

    return make


@pytest.fixture
def arguments(tmp_path: Path, text_file: Path) -> Callable[..., PretrainingArguments]:
    """Make the settings of a small run in the folder `name`."""

    def make(name: str = "out", **settings: Any) -> PretrainingArguments:
        size = {} if "model" in settings else OF_A_NEW_MODEL | {"vocab_layout": "compact"}
        if settings.keys() & {"tokenizer", "token_store"}:
            size = {name: value for name, value in size.items() if not name.startswith("vocab")}
        own = {"text": [str(text_file)], "output_dir": str(tmp_path / name)}
        return PretrainingArguments(**OF_A_RUN | size | own | settings)

    return make


@pytest.fixture
def history(tmp_path: Path) -> Callable[..., list[dict[str, Any]]]:
    """Read the log of a run."""
    return lambda name="out": json.loads((tmp_path / name / "trainer_state.json").read_text())["log_history"]
