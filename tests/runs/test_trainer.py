import errno
import json
import os
import re
import resource
import shutil
import signal
import sys
import zipfile
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from torch import nn
from torch.utils.data import Dataset
from transformers import TrainerCallback, TrainingArguments

from mybert.runs import DivergedError, ResumableTrainer, StopOnInterrupt, TimeBudget, last_complete_checkpoint
from mybert.runs import trainer as trainer_module
from mybert.runs.trainer import COMPLETE_FILE, FOR_ITS_WEIGHTS, seal_checkpoint


class Numbers(Dataset):
    def __len__(self):
        return 40

    def __getitem__(self, index):
        return {"x": torch.tensor([float(index + 1)])}


class Line(nn.Module):
    """A model whose loss is NaN, infinite or finite, depending on `spoil`."""

    def __init__(self, spoilt_from=1000, factor=float("nan")):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(1))
        self.calls, self.spoilt_from, self.factor = 0, spoilt_from, factor

    def forward(self, x):
        self.calls += 1
        loss = (self.weight * x / 40).mean()
        return {"loss": loss * self.factor if self.calls >= self.spoilt_from else loss}


def make_trainer(tmp_path, model=None, kind=ResumableTrainer, **settings):
    settings = {"save_steps": 2, "logging_steps": 1, "save_total_limit": 1, **settings}
    return kind(
        model=model or Line(),
        args=TrainingArguments(
            output_dir=str(tmp_path),
            per_device_train_batch_size=2,
            max_steps=10,
            disable_tqdm=True,
            use_cpu=True,
            learning_rate=1e-3,
            **settings,
        ),
        train_dataset=Numbers(),
        eval_dataset=Numbers(),
    )


def test_log_after_training_has_the_step_of_the_kept_weights(tmp_path, caplog):
    caplog.set_level("INFO", "mybert")
    settings = {"eval_strategy": "steps", "eval_steps": 2, "load_best_model_at_end": True, "greater_is_better": True}
    trainer = make_trainer(tmp_path, metric_for_best_model="loss", **settings)  # the first is the best
    trainer.can_return_loss = True
    trainer.train()
    trainer.evaluate()
    first, last = (entry for entry in trainer.state.log_history if "eval_loss" in entry and entry["step"] == 2)
    assert first["eval_loss"] == last["eval_loss"] and trainer.state.global_step == 10
    assert caplog.messages[-1] == "Kept: the best checkpoint, that of step 2."  # its evaluation was said before


@pytest.mark.parametrize("factor", [float("nan"), float("inf")])
@pytest.mark.parametrize("max_grad_norm", [1.0, 0.0])
@pytest.mark.parametrize(("step", "kept"), [(6, "checkpoint-4 is good"), (1, "no earlier checkpoint")])
def test_a_run_that_diverges_stops_before_its_weights_are_spoilt(tmp_path, factor, max_grad_norm, step, kept):
    model = Line(spoilt_from=step, factor=factor)
    trainer = make_trainer(tmp_path, model, max_grad_norm=max_grad_norm, lr_scheduler_type="constant")
    said = rf"diverged at step {step}: loss (nan|inf), gradient norm (nan|inf), learning rate 0.001\. .*{kept}"
    with pytest.raises(DivergedError, match=said):
        trainer.train()
    assert torch.isfinite(model.weight).all()
    assert last_complete_checkpoint(tmp_path) == (None if step == 1 else str(tmp_path / "checkpoint-4"))


def test_training_that_fails_gives_the_signals_back(tmp_path):
    before = [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)]
    trainer = make_trainer(tmp_path, Line(spoilt_from=2), lr_scheduler_type="constant")
    trainer.add_callback(StopOnInterrupt())
    with pytest.raises(DivergedError):
        trainer.train()
    assert [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)] == before


def test_handlers_installed_after_training_stay(tmp_path):
    interrupt = StopOnInterrupt()
    trainer = make_trainer(tmp_path)
    trainer.add_callback(interrupt)
    trainer.train()
    before = signal.signal(signal.SIGTERM, signal.SIG_IGN)
    try:
        interrupt.give_back()
        assert signal.getsignal(signal.SIGTERM) is signal.SIG_IGN
    finally:
        signal.signal(signal.SIGTERM, before)


def test_a_schedule_that_is_given_is_kept(tmp_path):
    model = Line()
    optimizer = torch.optim.SGD(model.parameters(), lr=1.0)
    schedule = torch.optim.lr_scheduler.ConstantLR(optimizer, 0.5, 100)
    arguments = TrainingArguments(output_dir=str(tmp_path), use_cpu=True, max_steps=2, save_strategy="no")
    trainer = ResumableTrainer(model, arguments, train_dataset=Numbers(), optimizers=(optimizer, schedule))
    trainer.train()
    assert trainer.lr_scheduler is schedule and schedule.last_epoch == 2


def test_a_model_saved_by_the_user_begins_no_checkpoint_and_is_pushed_if_asked(tmp_path, monkeypatch):
    trainer, pushed = make_trainer(tmp_path), []
    trainer.train()
    monkeypatch.setattr(trainer, "push_to_hub", lambda **options: pushed.append(options))
    trainer.save_model(str(tmp_path / "checkpoint-10"))
    # One that is begun has no such file. Its sizes are not compared: that of pickled arguments is not always the same.
    assert (tmp_path / "checkpoint-10" / COMPLETE_FILE).is_file() and not pushed
    trainer.args.push_to_hub, trainer.args.hub_revision = True, "next"
    trainer.save_model(str(tmp_path / "mine"))
    assert pushed == [{"commit_message": "Model save", "revision": "next"}]


def test_a_time_budget_needs_no_other_callbacks(tmp_path):
    arguments = TrainingArguments(output_dir=str(tmp_path), use_cpu=True)
    budget = TimeBudget(1.0)
    trainer = ResumableTrainer(Line(), arguments, budget=budget, callbacks=None)
    assert budget in trainer.callback_handler.callbacks


class FarTrainer(ResumableTrainer):
    """Runs on a CPU as if reading tensors were as expensive as on an accelerator."""

    reads_are_free = False


@pytest.mark.parametrize("due", [{"logging_steps": 4}, {"save_steps": 4}])
def test_on_an_accelerator_divergence_is_seen_before_anything_is_logged_or_saved(tmp_path, due):
    settings = {"logging_steps": 100, "save_steps": 100, "lr_scheduler_type": "constant", **due}
    trainer = make_trainer(tmp_path, Line(spoilt_from=6), kind=FarTrainer, **settings)
    with pytest.raises(DivergedError, match=r"diverged at step 6: loss nan, gradient norm nan, learning rate 0.001"):
        trainer.train()
    assert trainer.state.global_step == 8
    saved = [path.name for path in tmp_path.glob("checkpoint-*")]
    logged = [entry["step"] for entry in trainer.state.log_history]
    assert (saved, logged) == ((["checkpoint-4"], []) if "save_steps" in due else ([], [4]))


def test_on_an_accelerator_divergence_is_seen_at_the_end_and_every_few_hundred_steps(tmp_path, monkeypatch):
    settings = {"logging_steps": 100, "save_steps": 100}
    for most, seen_at in ((500, 10), (4, 7)):
        monkeypatch.setattr(trainer_module, "_MAX_UNREAD", most)
        trainer = make_trainer(tmp_path, Line(spoilt_from=6), kind=FarTrainer, **settings)
        with pytest.raises(DivergedError, match="diverged at step 6"):
            trainer.train()
        assert trainer.state.global_step == seen_at


def test_weights_of_a_compiled_model_have_their_own_names(tmp_path):
    trainer = make_trainer(tmp_path)
    trainer.model_wrapped = torch.compile(trainer.model, backend="eager")
    assert list(trainer.gathered_weights()) == ["weight"]


def test_a_checkpoint_that_cannot_be_deleted_is_named_in_a_warning(tmp_path, monkeypatch, caplog):
    def fail(path):
        raise OSError(errno.EIO, os.strerror(errno.EIO), path)

    monkeypatch.setattr(shutil, "rmtree", fail)
    make_trainer(tmp_path, save_steps=5).train()
    assert f"{tmp_path / 'checkpoint-5'} could not be deleted (Input/output error)" in caplog.text
    assert last_complete_checkpoint(tmp_path) == str(tmp_path / "checkpoint-10")


@pytest.mark.parametrize("limit", [1, 2, 0, None])
def test_the_best_and_the_newest_checkpoints_are_kept(tmp_path, limit):
    settings = {"eval_strategy": "steps", "eval_steps": 2, "load_best_model_at_end": True, "greater_is_better": True}
    trainer = make_trainer(tmp_path, metric_for_best_model="loss", save_total_limit=limit, **settings)
    trainer.can_return_loss = True
    trainer.train()  # the first is the best
    kept = {2, 10} if limit else {2, 4, 6, 8, 10}
    assert {path.name for path in tmp_path.glob("checkpoint-*")} == {f"checkpoint-{step}" for step in kept}


def test_old_checkpoints_go_only_when_the_new_one_is_sealed(tmp_path, monkeypatch):
    trainer = make_trainer(tmp_path)
    trainer.train()
    assert [path.name for path in tmp_path.glob("checkpoint-*")] == ["checkpoint-10"]
    sizes = json.loads((tmp_path / "checkpoint-10" / "complete.json").read_text())
    assert {"model.safetensors", "optimizer.pt", "trainer_state.json", "rng_state.pth"} <= set(sizes)

    class KilledError(BaseException):
        pass

    def killed(checkpoint, needs):
        if checkpoint.name == "checkpoint-4":
            raise KilledError
        seal_checkpoint(checkpoint, needs)

    trainer = make_trainer(tmp_path / "killed")
    monkeypatch.setattr("mybert.runs.trainer.seal_checkpoint", killed)
    with pytest.raises(KilledError):
        trainer.train()
    assert {path.name for path in (tmp_path / "killed").glob("checkpoint-*")} == {"checkpoint-2", "checkpoint-4"}


def test_a_checkpoint_that_is_written_again_has_no_seal_meanwhile(tmp_path, monkeypatch):
    def train():
        trainer = make_trainer(tmp_path)
        trainer.args.max_steps = 2
        trainer.train()

    def killed(*args):
        raise KeyboardInterrupt

    train()
    monkeypatch.setattr(trainer_module, "seal_checkpoint", killed)
    with pytest.raises(KeyboardInterrupt):
        train()
    assert last_complete_checkpoint(tmp_path) is None


@pytest.mark.slow
def test_an_attempt_that_got_further_does_not_change_what_stays(tmp_path):
    for steps in (4, 6):
        trainer = make_trainer(tmp_path)
        trainer.args.save_total_limit = 2
        trainer.args.max_steps = steps
        trainer.train(resume_from_checkpoint=last_complete_checkpoint(tmp_path))
        os.utime(tmp_path / "checkpoint-2", (2**32, 2**32)) if steps == 4 else None  # copied since
        (tmp_path / "checkpoint-12").mkdir(exist_ok=True)
    assert {path.name for path in tmp_path.glob("checkpoint-*")} == {"checkpoint-4", "checkpoint-6", "checkpoint-12"}


@pytest.mark.parametrize("name", ["optimizer.pt", "scheduler.pt", "rng_state.pth", "trainer_state.json"])
def test_a_checkpoint_that_lacks_something_is_not_whole_whoever_sealed_it(tmp_path, caplog, name):
    trainer = make_trainer(tmp_path)
    trainer.args.max_steps = 2
    trainer.train()
    checkpoint = tmp_path / "checkpoint-2"
    (checkpoint / name).unlink()
    shown = name.replace("state.pth", "state*.pth")
    with pytest.raises(FileNotFoundError, match=rf"checkpoint-2 has no {re.escape(shown)}, which this run needs"):
        seal_checkpoint(checkpoint)
    seal_checkpoint(checkpoint, [])
    assert last_complete_checkpoint(tmp_path) is None
    assert f"checkpoint-2 is not complete (no {shown})" in caplog.text
    for given in (checkpoint, str(checkpoint), True):
        with pytest.raises(ValueError, match=rf"checkpoint-2 is not complete \(no {re.escape(shown)}\)"):
            make_trainer(tmp_path).train(resume_from_checkpoint=given)


def test_a_checkpoint_of_a_model_only_needs_no_optimizer(tmp_path, caplog):
    make_trainer(tmp_path, save_only_model=True).train()
    assert {path.name for path in tmp_path.glob("checkpoint-*")} == {"checkpoint-10"}
    assert last_complete_checkpoint(tmp_path, FOR_ITS_WEIGHTS) == str(tmp_path / "checkpoint-10")
    assert not caplog.text
    assert last_complete_checkpoint(tmp_path) is None


def test_no_secret_is_written(tmp_path):
    trainer = make_trainer(tmp_path, hub_token="hf_ThisIsSecret")
    trainer.train()
    assert trainer.args.hub_token == "hf_ThisIsSecret"  # a push needs it
    written = [path for path in tmp_path.rglob("*") if path.is_file()]
    assert any(path.name == "training_args.bin" for path in written)
    for path in written:
        content = path.read_bytes()
        if zipfile.is_zipfile(path):
            with zipfile.ZipFile(path) as archive:
                content = b"".join(map(archive.read, archive.namelist()))
        assert b"hf_ThisIsSecret" not in content, path


@pytest.mark.slow
def test_complete_checkpoints_of_later_steps_stay_within_the_limit(tmp_path):
    make_trainer(tmp_path).train()
    (tmp_path / "checkpoint-12").mkdir()  # left by a killed attempt
    for name in ("checkpoint-10", "checkpoint-12"):
        os.utime(tmp_path / name, (1, 1))
    trainer = make_trainer(tmp_path)
    trainer.args.save_total_limit = 2
    trainer.args.max_steps = 2
    trainer.train()
    assert {path.name for path in tmp_path.glob("checkpoint-*")} == {"checkpoint-2", "checkpoint-10"}
    trainer = make_trainer(tmp_path)
    trainer.args.max_steps = 4
    trainer.train()
    assert {path.name for path in tmp_path.glob("checkpoint-*")} == {"checkpoint-4"}


@pytest.mark.parametrize("given", [True, str, Path])
def test_a_finished_run_takes_no_further_step(tmp_path, given):
    settings = {"lr_scheduler_type": "constant"}
    first = make_trainer(tmp_path, **settings)
    first.train()
    (tmp_path / "checkpoint-12").mkdir()  # incomplete
    second = make_trainer(tmp_path, **settings)
    second.train(resume_from_checkpoint=given is True or given(last_complete_checkpoint(tmp_path)))
    assert (second.model.calls, second.state.global_step) == (0, 10)
    assert torch.equal(second.model.weight, first.model.weight)
    assert {path.name for path in tmp_path.glob("checkpoint-*")} == {"checkpoint-10", "checkpoint-12"}


def test_callbacks_see_a_sealed_checkpoint_and_their_errors_leave_it(tmp_path):
    class Upload(TrainerCallback):
        def on_save(self, args, state, control, **kwargs):
            assert last_complete_checkpoint(tmp_path) == str(tmp_path / "checkpoint-2")
            raise OSError(errno.EPIPE, "no network")

    trainer = make_trainer(tmp_path)
    trainer.add_callback(Upload())
    with pytest.raises(OSError, match="no network"):
        trainer.train()
    assert last_complete_checkpoint(tmp_path) == str(tmp_path / "checkpoint-2")


def test_the_checkpoint_of_an_epoch_includes_its_evaluation_whoever_asks_for_it(tmp_path):
    class Save(TrainerCallback):
        def on_step_end(self, args, state, control, **kwargs):
            control.should_save = state.global_step == 4

    trainer = make_trainer(tmp_path, save_strategy="no", gradient_accumulation_steps=5)
    trainer.args.eval_strategy, trainer.eval_dataset = "epoch", Numbers()
    trainer.add_callback(Save())
    trainer.train()
    state = json.loads((tmp_path / "checkpoint-4" / "trainer_state.json").read_text())
    assert [entry["step"] for entry in state["log_history"] if "eval_runtime" in entry] == [4]


@pytest.mark.parametrize("target", ["torch.save", "safetensors.torch.save_file"])
def test_a_full_disk_is_one_sentence_and_loses_nothing(tmp_path, monkeypatch, target):
    trainer = make_trainer(tmp_path)

    class FillDisk(trainer.callback_handler.callbacks[0].__class__):
        def on_step_end(self, args, state, control, **kwargs):
            if state.global_step == 4:
                module, name = target.rsplit(".", 1)
                monkeypatch.setattr(sys.modules[module], name, full)

    def full(*args, **kwargs):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    trainer.add_callback(FillDisk())
    message = (
        r"checkpoint-4 could not be written \(.*the disk is full.*checkpoint-2 is complete: the same command continues"
    )
    with pytest.raises(OSError, match=message):
        trainer.train()
    assert last_complete_checkpoint(tmp_path) == str(tmp_path / "checkpoint-2")
    assert not (tmp_path / "checkpoint-4").exists()


@pytest.mark.parametrize("width", [8000, 3000])  # the weights do not fit; the optimizer's state does not
def test_every_writer_that_hits_a_limit_is_reported(tmp_path, width):
    model = Line()
    model.weight = nn.Parameter(torch.ones(width))
    trainer = make_trainer(tmp_path, model, save_steps=1)
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (20_000, hard))
    try:
        with pytest.raises(OSError, match=r"checkpoint-1 could not be written \(.*no checkpoint is there"):
            trainer.train()
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


@pytest.mark.parametrize(
    ("is_last", "remainder", "own"),
    [
        (True, 7, [4, 3, 0]),  # batches of four: seven examples, then the first ones again
        (True, 4, [4, 0, 0]),
        (True, 1, [1, 0, 0]),
        (True, 12, [4, 4, 4]),
        (True, 0, [4, 4, 4]),
        (True, -1, [4, 4, 4]),  # of unknown length
        (False, 7, [4, 4, 4]),
    ],
)
def test_count_own_rows_is_without_those_that_fill_up_a_batch(is_last, remainder, own):
    state = SimpleNamespace(end_of_dataloader=is_last, remainder=remainder)
    for process, count in enumerate(own):
        args = SimpleNamespace(process_index=process)
        trainer = SimpleNamespace(args=args, accelerator=SimpleNamespace(gradient_state=state))
        assert ResumableTrainer.count_own_rows(trainer, 4) == count


def test_evaluate_restores_the_random_state_of_training(tmp_path):
    trainer = make_trainer(tmp_path)
    before = torch.get_rng_state()
    next(iter(trainer.get_eval_dataloader()))  # a loader draws a number
    assert not torch.equal(before, torch.get_rng_state())
    before = torch.get_rng_state()
    trainer.evaluate()
    assert torch.equal(before, torch.get_rng_state())
