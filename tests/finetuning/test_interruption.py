"""Interrupted or killed runs resume where they were, whichever checkpoint is the best."""

import os
import shutil
import signal
from functools import partial
from importlib.util import find_spec

import pytest
import torch
from transformers import AutoConfig, AutoModel

from mybert.finetuning import finetune
from mybert.finetuning.training import run as training_run

NUMBERS = [(f"the cat was {word}", float(number)) for number, word in enumerate(("happy", "sad", "very", "and") * 6)]
SAMPLED = {"validation_file": None, "validation_split": 0.2, "max_train_samples": 24, "class_weights": "balanced"}
STRATEGIES = {
    "epoch": {},  # the defaults
    "steps": {"eval_strategy": "steps", "save_strategy": "steps", "eval_steps": 4, "save_steps": 4},
}


@pytest.fixture
def arguments(short_run, reviews):
    """Two epochs of six steps; the first evaluation counts as best because it has the highest loss."""
    defaults = {"metric_for_best_model": "loss", "greater_is_better": True, "learning_rate": 1e-2}
    return partial(short_run, num_train_epochs=2, per_device_train_batch_size=8, **defaults, **reviews)


@pytest.fixture
def evaluations(log_history):
    """Steps and losses of the evaluations of a run."""
    return lambda name: [(row["step"], row["eval_loss"]) for row in log_history(name) if "eval_runtime" in row]


@pytest.mark.parametrize(
    ("settings", "step"),
    [
        ({"train_head_first": 0.5, "embedding_learning_rate": 10.0, "layer_decay": 0.9}, 4),
        ({"task": "regression", "train_file": NUMBERS, "validation_file": NUMBERS[::2]}, 4),
        ({"save_only_model": True}, 4),  # without the optimizer it starts over
        (SAMPLED | {"early_stopping_patience": 1, "learning_rate": 0.0}, 2),  # the second evaluation is no better
        pytest.param({"lora": True}, 4, marks=pytest.mark.skipif(not find_spec("peft"), reason="needs PEFT")),
    ],
)
def test_a_killed_run_ends_as_a_whole_one(arguments, tmp_path, killed_at, evaluations, same_weights, settings, step):
    settings |= dict.fromkeys(("eval_strategy", "save_strategy"), "steps") | {"max_steps": 8}
    settings |= dict.fromkeys(("eval_steps", "save_steps"), 2)
    finetune(arguments("whole", **settings))
    with killed_at(step):
        finetune(arguments(**settings))
    assert (tmp_path / "out" / f"checkpoint-{step}").is_dir()
    finetune(arguments(**settings))
    same_weights("whole", "out")
    assert evaluations("out") == evaluations("whole")
    (tmp_path / "out" / "metrics.json").unlink()  # as if killed before it was written
    finetune(arguments(**settings))
    same_weights("whole", "out")
    assert max(evaluations("out"))[0] == (4 if "early_stopping_patience" in settings else 8)
    assert (tmp_path / "out" / "adapter" / "adapter_model.safetensors").is_file() == ("lora" in settings)


def stop(monkeypatch, event, step):
    """Send SIGINT at an event of training."""

    def send(self, args, state, control, **kwargs):
        if state.global_step == step:
            os.kill(os.getpid(), signal.SIGINT)

    monkeypatch.setattr(training_run, "StopOnInterrupt", type("Stop", (training_run.StopOnInterrupt,), {event: send}))


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_a_stopped_run_keeps_its_last_checkpoint(
    arguments, tmp_path, monkeypatch, caplog, evaluations, same_weights, strategy
):
    settings = STRATEGIES[strategy]
    finetune(arguments("whole", **settings))
    stop(monkeypatch, "on_step_begin", 8)
    assert finetune(arguments(**settings)) == {"interrupted": True}
    assert "Stopped at step 9; the same command continues from there." in caplog.text
    assert (tmp_path / "out" / "checkpoint-9" / "complete.json").is_file()
    monkeypatch.undo()
    assert not finetune(arguments(**settings))["interrupted"]
    assert max(loss for _, loss in evaluations("whole")[1:]) < evaluations("whole")[0][1]
    assert evaluations("out") == evaluations("whole")
    same_weights("whole", "out")


@pytest.mark.parametrize(
    "settings",
    [
        {"save_steps": 6},  # the last step of an epoch
        {"save_steps": 4, "max_steps": 10},  # the last step of the run, within an epoch
        {"save_steps": 6, "logging_strategy": "epoch"},
    ],
)
def test_a_run_killed_between_an_epochs_last_step_and_its_evaluation_ends_as_a_whole_one(
    arguments, monkeypatch, evaluations, same_weights, settings
):
    settings = {"save_strategy": "steps", "eval_strategy": "epoch"} | settings
    finetune(arguments("whole", **settings))
    for epoch in (1, 2):

        def killed(self, *args, epoch=epoch, evaluate=training_run.TaskTrainer.evaluate, **kwargs):
            if self.state.epoch > epoch - 1:
                raise KeyboardInterrupt
            return evaluate(self, *args, **kwargs)

        with monkeypatch.context() as patches, pytest.raises(KeyboardInterrupt):
            patches.setattr(training_run.TaskTrainer, "evaluate", killed)
            finetune(arguments(**settings))
    finetune(arguments(**settings))
    assert len(evaluations("whole")) == 2
    assert evaluations("out") == evaluations("whole")
    same_weights("whole", "out")


def test_a_run_killed_after_training_is_not_trained_again(arguments, monkeypatch):
    def killed(*args):
        raise KeyboardInterrupt

    with monkeypatch.context() as patches, pytest.raises(KeyboardInterrupt):
        patches.setattr(training_run.TaskTrainer, "evaluate_all", killed)
        finetune(arguments())
    monkeypatch.setattr(training_run.TaskTrainer, "training_step", lambda *args: pytest.fail("trains again"))
    assert not finetune(arguments())["interrupted"]


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("metrics.json", '{"accuracy": "high"}', "does not hold the metrics of a training; delete it"),
        ("trainer_state.json", '{"log_history"', "is not JSON"),
        ("trainer_state.json", '{"log_history": 1}', "is not a trainer state; expected a list"),
    ],
)
def test_finetune_changed_records_of_a_finished_run_are_errors(arguments, tmp_path, name, text, message):
    finetune(arguments(num_train_epochs=1))
    (tmp_path / "out" / name).write_text(text)
    with pytest.raises(ValueError, match=f"{name} {message}"):
        finetune(arguments(num_train_epochs=1))


def test_a_finished_run_is_not_that_of_other_files(arguments, tmp_path, pretrained):
    model = shutil.copytree(pretrained, tmp_path / "model")
    finetune(arguments(model=str(model), max_steps=1))
    (tmp_path / "new.tsv").write_bytes((tmp_path / "dev.tsv").read_bytes())
    new = str(tmp_path / "new.tsv")
    with pytest.raises(ValueError, match=r"What differs: [^ ]*new.tsv is new, [^ ]*dev.tsv is no longer read"):
        finetune(arguments(model=str(model), max_steps=1, validation_file=new))
    with pytest.raises(ValueError, match=r"What differs: [^ ]*new.tsv is new\.$"):
        finetune(arguments(model=str(model), max_steps=1, test_file=new))
    torch.manual_seed(1)
    AutoModel.from_config(AutoConfig.from_pretrained(model)).save_pretrained(model)
    with pytest.raises(ValueError, match=r"on other data; .*model.safetensors changed since it began"):
        finetune(arguments(model=str(model), max_steps=1))


@pytest.mark.parametrize(("event", "step"), [("on_step_begin", 11), ("on_evaluate", 12)])
def test_a_signal_in_or_after_the_last_step_stops_nothing_but_is_told(arguments, monkeypatch, caplog, event, step):
    stop(monkeypatch, event, step)
    result = finetune(arguments())
    assert result["interrupted"]
    assert "accuracy" in result
    assert "Stopped" not in caplog.text
    assert "Step 12 was the last one; what follows it (evaluation, saving) is finished first." in caplog.text


def test_a_signal_in_the_last_step_of_a_seed_leaves_the_next_one_out(arguments, tmp_path, monkeypatch, caplog):
    settings = {"num_seeds": 2, "max_steps": 2, "eval_strategy": "no", "save_strategy": "no"}
    stop(monkeypatch, "on_step_begin", 1)
    assert finetune(arguments(**settings)) == {"interrupted": True}
    assert "Stopped after seed 42; the same command continues from there." in caplog.text
    assert (tmp_path / "out" / "seed_42" / "metrics.json").is_file()
    assert not (tmp_path / "out" / "seed_43").exists()
    monkeypatch.undo()
    result = finetune(arguments(**settings))
    assert not result["interrupted"]
    assert "best_seed" in result


@pytest.mark.parametrize(
    ("setting", "message"),
    [
        ("overwrite", "Stopped at step 3; the same command without --overwrite continues from there."),
        ("save_only_model", "no optimizer is saved to continue with, so the same command starts over."),
    ],
)
def test_finetune_interrupted_logs_how_to_continue(arguments, monkeypatch, caplog, setting, message):
    stop(monkeypatch, "on_step_begin", 2)
    assert finetune(arguments(**{setting: True})) == {"interrupted": True}
    assert message in caplog.text
