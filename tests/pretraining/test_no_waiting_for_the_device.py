"""A step of `PretrainingTrainer` on a device whose values cannot be read, as reading would synchronize a GPU."""

import pytest
from transformers import TrainerCallback, TrainingArguments

from mybert import MyBertForMaskedLM, MyBertForPreTraining
from mybert.pretraining import PretrainingCollator, PretrainingTrainer
from mybert.runs import StopOnInterrupt, TimeBudget

STEPS = 3


class EnoughError(Exception):
    """Ends training after the steps; later code may read values."""


class AfterSteps(TrainerCallback):
    def on_step_end(self, args, state, control, **kwargs):
        if state.global_step == STEPS:
            raise EnoughError


@pytest.fixture
def trainer_for(make_dataset, make_model, tokenizer, tmp_path):
    def make(*, pack, objective="mlm+nsp", collator=PretrainingCollator, optim="google", **settings):
        fixed = {"per_device_train_batch_size": 4, "gradient_accumulation_steps": 2, "disable_tqdm": True}
        settings = {"logging_steps": 100, "max_steps": 100, "save_strategy": "no", **fixed, **settings}
        trainer = PretrainingTrainer(
            model=make_model(MyBertForPreTraining if "nsp" in objective else MyBertForMaskedLM),
            args=TrainingArguments(output_dir=str(tmp_path), dataloader_pin_memory=False, **settings),
            train_dataset=make_dataset(max_length=24, row_length=48 if pack else None, pack=pack, objective=objective),
            data_collator=collator(tokenizer, objective=objective),
            callbacks=[StopOnInterrupt(), AfterSteps()],
            budget=TimeBudget(3600.0),
            is_causal=objective == "ltr",
        )
        trainer.args.optim = optim
        return trainer

    return make


@pytest.mark.parametrize(
    ("pack", "objective", "optim"),
    [
        (False, "mlm+nsp", "google"),
        (False, "mlm", "adamw"),
        (False, "ltr", "adamw"),
        (True, "mlm+nsp", "muon"),
        (True, "mlm", "google"),
        (True, "ltr", "google"),
    ],
)
@pytest.mark.usefixtures("like_a_gpu")
def test_steps_read_nothing(trainer_for, no_value_read, pack, objective, optim):
    trainer = trainer_for(pack=pack, objective=objective, optim=optim)
    with pytest.raises(EnoughError), no_value_read():
        trainer.train()
    assert next(trainer.model.parameters()).is_meta
    assert optim != "google" or trainer.optimizer.optimizer.defaults["fused"]
    assert trainer.state.global_step == STEPS
    assert len(trainer._unread) == STEPS


class WithoutIndices(PretrainingCollator):
    def __call__(self, examples):
        return {name: value for name, value in super().__call__(examples).items() if not name.endswith("_indices")}


@pytest.mark.usefixtures("like_a_gpu")
@pytest.mark.parametrize("changes", [{"collator": WithoutIndices}, {"logging_steps": 2}])
def test_no_value_read_fails_for_a_step_that_reads_values(trainer_for, no_value_read, changes):
    """Without the collator's indices a step reads values; so does logging."""
    trainer = trainer_for(pack=False, **changes)
    with pytest.raises((AssertionError, RuntimeError), match=r"reads values|meta"), no_value_read():
        trainer.train()
    assert trainer.state.global_step == (2 if "logging_steps" in changes else 0)
