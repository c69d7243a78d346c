"""A step of `PretrainingTrainer` on a device whose values cannot be read, as reading would synchronize a GPU."""

import pytest
from transformers import TrainerCallback, TrainingArguments

from mybert import MyBertConfig, MyBertForMaskedLM, MyBertForPreTraining
from mybert.pretraining import (
    PretrainingCollator,
    PretrainingDataset,
    PretrainingTrainer,
    TokenStore,
    build_token_store,
)
from mybert.runs import StopOnInterrupt, TimeBudget

STEPS = 3


class EnoughError(Exception):
    """Ends training after the steps; later code may read values."""


class AfterSteps(TrainerCallback):
    def on_step_end(self, args, state, control, **kwargs):
        if state.global_step == STEPS:
            raise EnoughError


@pytest.fixture(scope="module")
def store(tmp_path_factory, documents, tokenizer):
    path = tmp_path_factory.mktemp("store") / "store.safetensors"
    build_token_store(documents, tokenizer, path, show_progress=False)
    return TokenStore(path)


def trainer_for(store, tokenizer, folder, *, pack, objective="mlm+nsp", collator=None, optim="google", **settings):
    dataset = PretrainingDataset(
        store,
        cls_token_id=tokenizer.cls_token_id,
        sep_token_id=tokenizer.sep_token_id,
        max_length=24,
        row_length=48 if pack else None,
        pack=pack,
        objective=objective,
    )
    kind = MyBertForPreTraining if "nsp" in objective else MyBertForMaskedLM
    model = kind(
        MyBertConfig(
            vocab_size=len(tokenizer),
            hidden_size=16,
            num_hidden_layers=1,
            num_attention_heads=2,
            intermediate_size=32,
            max_position_embeddings=64,
        )
    )
    settings = {"logging_steps": 100, "max_steps": 100, **settings}
    trainer = PretrainingTrainer(
        model=model,
        args=TrainingArguments(
            output_dir=str(folder),
            per_device_train_batch_size=4,
            gradient_accumulation_steps=2,
            save_strategy="no",
            disable_tqdm=True,
            dataloader_pin_memory=False,
            **settings,
        ),
        train_dataset=dataset,
        data_collator=(collator or PretrainingCollator)(tokenizer, objective=objective),
        callbacks=[StopOnInterrupt(), AfterSteps()],
        budget=TimeBudget(3600.0),
        is_causal=objective == "ltr",
    )
    trainer.args.optim = optim
    return trainer


@pytest.mark.parametrize("pack", [False, True], ids=["padded", "packed"])
@pytest.mark.parametrize("objective", ["mlm+nsp", "mlm", "ltr"])
@pytest.mark.usefixtures("like_a_gpu")
def test_steps_read_nothing(store, tokenizer, tmp_path, no_value_read, pack, objective):
    trainer = trainer_for(store, tokenizer, tmp_path, pack=pack, objective=objective)
    with pytest.raises(EnoughError), no_value_read():
        trainer.train()
    assert next(trainer.model.parameters()).is_meta
    assert trainer.optimizer.optimizer.defaults["fused"]
    assert trainer.state.global_step == STEPS
    assert len(trainer._unread) == STEPS


class WithoutIndices(PretrainingCollator):
    def __call__(self, examples):
        return {name: value for name, value in super().__call__(examples).items() if not name.endswith("_indices")}


@pytest.mark.usefixtures("like_a_gpu")
@pytest.mark.parametrize("changes", [{"collator": WithoutIndices}, {"logging_steps": 2}])
def test_the_proof_can_fail(store, tokenizer, tmp_path, no_value_read, changes):
    """Without the collator's indices a step reads values; so does logging."""
    trainer = trainer_for(store, tokenizer, tmp_path, pack=False, **changes)
    with pytest.raises((AssertionError, RuntimeError), match=r"reads values|meta"), no_value_read():
        trainer.train()
    assert trainer.state.global_step == (2 if "logging_steps" in changes else 0)


@pytest.mark.parametrize("optim", ["adamw", "lamb", "muon"])
@pytest.mark.usefixtures("like_a_gpu")
def test_other_optimizers_read_nothing(store, tokenizer, tmp_path, no_value_read, optim):
    trainer = trainer_for(store, tokenizer, tmp_path, pack=True, optim=optim)
    with pytest.raises(EnoughError), no_value_read():
        trainer.train()
