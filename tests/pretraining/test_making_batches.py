"""Batches made in worker processes are the same, and give the same weights."""

import logging
from types import SimpleNamespace

import pytest
import torch
from transformers import TrainingArguments

from mybert import MyBertConfig, MyBertForPreTraining
from mybert.pretraining import (
    PretrainingCollator,
    PretrainingDataset,
    PretrainingTrainer,
    TokenStore,
    build_token_store,
)
from mybert.pretraining import run as module


@pytest.fixture(scope="module")
def store(tmp_path_factory, documents, tokenizer):
    path = tmp_path_factory.mktemp("store") / "store.safetensors"
    build_token_store(documents[:20], tokenizer, path, show_progress=False)
    return TokenStore(path)


def weights_after_two_epochs(store, tokenizer, folder, workers: int) -> dict[str, torch.Tensor]:
    """The weights of a model with dropout."""
    torch.manual_seed(0)
    model = MyBertForPreTraining(
        MyBertConfig(
            vocab_size=len(tokenizer), hidden_size=8, num_hidden_layers=1, num_attention_heads=2, intermediate_size=8
        )
    )
    trainer = PretrainingTrainer(
        model=model,
        args=TrainingArguments(
            output_dir=str(folder),
            per_device_train_batch_size=16,
            num_train_epochs=2,
            learning_rate=1e-2,
            save_strategy="no",
            disable_tqdm=True,
            use_cpu=True,
            dataloader_num_workers=workers,
        ),
        train_dataset=PretrainingDataset(store, cls_token_id=2, sep_token_id=3, max_length=24),
        data_collator=PretrainingCollator(tokenizer),
    )
    trainer.train()
    assert trainer.state.global_step > 4
    return {name: weight.clone() for name, weight in model.state_dict().items()}


def test_results_do_not_depend_on_the_number_of_workers(store, tokenizer, tmp_path):
    alone, together = (weights_after_two_epochs(store, tokenizer, tmp_path, workers) for workers in (0, 2))
    assert all(torch.equal(weight, together[name]) for name, weight in alone.items())


@pytest.mark.parametrize(
    ("pack", "device", "dropout", "said"),
    [(True, "cuda", 0.1, True), (True, "cuda", 0.0, False), (True, "cpu", 0.1, False), (False, "cuda", 0.1, False)],
)
def test_what_attention_dropout_costs_packed_rows_is_said_before_training(caplog, pack, device, dropout, said):
    arguments = SimpleNamespace(pack=pack, device=torch.device(device))
    with caplog.at_level(logging.INFO, logger="mybert"):
        module._advise_no_dropout(arguments, MyBertConfig(attention_probs_dropout_prob=dropout))
    assert ("Attention has a dropout of 0.1" in caplog.text) is said
