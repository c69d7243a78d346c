"""Pretraining that is measured in time: the schedule, the parts of a run, stops and starts."""

import itertools
import json

import pytest
import torch

from mybert import MyBertForPreTraining
from mybert.pretraining import PretrainingArguments, pretrain
from mybert.runs import TICKS, StopOnInterrupt, TimeBudget, callbacks, linear_schedule

SECONDS = 40


def arguments(tmp_path, **settings) -> PretrainingArguments:
    given = {"text": ["text.txt"], "output_dir": str(tmp_path / "run"), "max_hours": SECONDS / 3600, "use_cpu": True}
    return PretrainingArguments(**given | settings)


@pytest.fixture
def settings(text_file, tmp_path, tokenizer):
    tokenizer.save_pretrained(tmp_path / "tokenizer")
    return {
        "text": [str(text_file)],
        "tokenizer": str(tmp_path / "tokenizer"),
        "model_size": "tiny",
        "hidden_size": 16,
        "num_hidden_layers": 1,
        "max_length": 24,
        "heldout": 0.2,
        "warmup_steps": 0.25,
        "per_device_train_batch_size": 2,
        "logging_steps": 1,
        "report_to": "none",
        "disable_tqdm": True,
        "causal_share": 0.5,
        "mlm_probability": 0.4,
        "mlm_probability_end": 0.15,
        "learning_rate": 1e-3,
    }


@pytest.fixture
def clock(monkeypatch):
    """Every reading of the clock is one second after the last."""
    seconds = itertools.count()
    monkeypatch.setattr(callbacks.time, "monotonic", lambda: next(seconds))


def history(tmp_path):
    return json.loads((tmp_path / "run" / "trainer_state.json").read_text())["log_history"]


def test_the_schedule_is_of_the_time():
    optimizer = torch.optim.SGD([torch.nn.Parameter(torch.zeros(1))], lr=1.0)
    place = [0]
    schedule = linear_schedule(optimizer, 10, 100, lambda: place[0])
    for place[0], factor in ((5, 0.5), (6, 0.6), (50, 0.5), (100, 0.0)):
        optimizer.step()
        schedule.step()
        assert optimizer.param_groups[0]["lr"] == pytest.approx(factor)


@pytest.mark.slow
@pytest.mark.usefixtures("clock")
def test_a_run_ends_with_its_time(tmp_path, settings, caplog):
    with caplog.at_level("INFO", logger="mybert"):
        pretrain(arguments(tmp_path, **settings))
    assert "Phase 1 of 2: left to right, sequences of up to 24 tokens, batches of 2, up to 50 % of the time." in (
        caplog.text
    )
    assert "step 1, 2 % of the time: " in caplog.text and ", 100 % of the time: " in caplog.text
    rates = {entry["step"]: entry["learning_rate"] for entry in history(tmp_path) if "learning_rate" in entry}
    steps = max(rates)
    assert SECONDS * 0.7 < steps <= SECONDS  # a second a step, and some for checkpoints
    assert rates[steps] < 1e-4 < 7e-4 < max(rates.values()) <= 1e-3
    assert max(rates, key=rates.get) == pytest.approx(steps / 4, abs=2)
    assert not MyBertForPreTraining.from_pretrained(tmp_path / "run").config.is_decoder
    speeds = [entry for entry in history(tmp_path) if "train_samples_per_second" in entry]
    assert speeds
    for entry in speeds:  # two sequences a step
        assert entry["train_samples_per_second"] == pytest.approx(2 * entry["train_steps_per_second"], abs=2e-3)
    pretrain(arguments(tmp_path, **settings))  # its time is up
    assert max(entry["step"] for entry in history(tmp_path)) == steps


@pytest.mark.slow
@pytest.mark.usefixtures("clock")
@pytest.mark.parametrize("stop", [9, 27])  # in the first phase, and in the second
def test_a_stop_does_not_count(tmp_path, settings, monkeypatch, stop):
    agree = StopOnInterrupt._agree

    def at_step(callback, args):
        agree(callback, args)
        callback.interrupted |= next(looks) == stop

    looks = itertools.count(1)
    monkeypatch.setattr(StopOnInterrupt, "_agree", at_step)
    assert pretrain(arguments(tmp_path, **settings)) == {"interrupted": True}
    for _ in range(1000):
        callbacks.time.monotonic()
    monkeypatch.setattr(StopOnInterrupt, "_agree", agree)
    pretrain(arguments(tmp_path, **settings))
    rates = {entry["step"]: entry["learning_rate"] for entry in history(tmp_path) if "learning_rate" in entry}
    assert SECONDS * 0.7 < max(rates) <= SECONDS
    assert rates[max(rates)] < 1e-4


def test_a_checkpoint_tells_the_time(tmp_path):
    budget = TimeBudget(100.0, used=25.0)
    assert int(budget.position) == TICKS // 4
    state = {"stateful_callbacks": {"TimeBudget": budget.state()}}
    (tmp_path / "trainer_state.json").write_text(json.dumps(state))
    assert int(TimeBudget.from_checkpoint(200.0, str(tmp_path)).position) == TICKS // 8
    (tmp_path / "trainer_state.json").write_text("{}")
    with pytest.raises(ValueError, match=r"trainer_state\.json does not say how much time was used"):
        TimeBudget.from_checkpoint(200.0, str(tmp_path))
