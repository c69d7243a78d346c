"""What changes in the course of a run: objective, length, masking rate, batch size; and runs measured in time."""

import argparse
import itertools
import json
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from transformers import TrainerControl, TrainerState

from mybert import MyBertForPreTraining
from mybert.pretraining import MaskingRates, PretrainingCollator, PretrainingTrainer, plan_pretraining, pretrain
from mybert.pretraining import run as module
from mybert.runs import TICKS, StopOnInterrupt, TimeBudget, callbacks, linear_schedule

SECONDS = 40
LONG = {"phase2_max_length": 256}


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        ({}, [("mlm+nsp", 128, 1, None)]),
        ({"causal_share": 0.04}, [("ltr", 128, 1, 4), ("mlm+nsp", 128, 1, None)]),
        (
            {"causal_share": 0.04, **LONG, "phase2_steps": 2},
            [("ltr", 128, 1, 4), ("mlm+nsp", 128, 1, 98), ("mlm+nsp", 256, 1, None)],
        ),
        (
            {"batch_ramp": 0.3, "gradient_accumulation_steps": 8},
            [("mlm+nsp", 128, size, last) for size, last in ((1, 10), (2, 20), (4, 30), (8, None))],
        ),
        (
            {
                "batch_ramp": 0.2,
                "gradient_accumulation_steps": 3,
                "causal_share": 0.15,
                **LONG,
                "phase2_gradient_accumulation_steps": 5,
            },
            [
                *(("ltr", 128, 1, 10), ("ltr", 128, 2, 15), ("mlm+nsp", 128, 2, 20)),
                *(("mlm+nsp", 128, 3, 90), ("mlm+nsp", 256, 5, None)),
            ],
        ),
    ],
)
def test_phases_of_a_hundred_steps(arguments, settings, expected):
    phases = plan_pretraining(arguments(max_steps=100, max_length=128, **settings)).phases
    names = ("objective", "max_length", "gradient_accumulation_steps", "last_step")
    assert [tuple(getattr(phase, name) for name in names) for phase in phases] == expected


@pytest.mark.parametrize(("steps", "last_step"), [(0.001, 99), (1, 99), (0.25, 75), (99, 1)])
def test_the_second_phase_has_at_least_one_step(arguments, steps, last_step):
    first, second = plan_pretraining(arguments(max_steps=100, **LONG, phase2_steps=steps)).phases
    assert (first.max_length, first.last_step, second.max_length, second.last_step) == (24, last_step, 256, None)


@pytest.mark.parametrize(
    ("settings", "options"),
    [
        ({"max_steps": -1, "causal_share": 0.1}, "--max_steps"),
        ({"max_steps": -1, **LONG}, "--max_steps"),
        ({"max_steps": -1, "batch_ramp": 0.2, "gradient_accumulation_steps": 2}, "--batch_ramp --max_steps"),
        ({"batch_ramp": 0.2, "gradient_accumulation_steps": 1}, "--batch_ramp --max_steps"),
        ({**LONG, "phase2_steps": 100}, "--phase2_steps"),
        (
            {"causal_share": 0.5, "lr_scheduler_type": "reduce_lr_on_plateau", "eval_strategy": "epoch"},
            "--lr_scheduler_type --causal_share",
        ),
        ({**LONG, "phase2_steps": 0.1, "causal_share": 0.9}, "--causal_share --phase2_steps"),
        ({"causal_share": 0.996}, "--causal_share --max_steps"),
        (
            {**LONG, "phase2_steps": 20, "batch_ramp": 0.8, "gradient_accumulation_steps": 4},
            "--batch_ramp --phase2_steps",
        ),
    ],
)
def test_phases_that_do_not_fit_the_run_are_errors(arguments, user_error, settings, options):
    with user_error(options):
        plan_pretraining(arguments(**{"max_steps": 100} | settings))


def test_phases_up_to_the_next_one_fit(arguments):
    settings = {**LONG, "phase2_steps": 0.1, "batch_ramp": 0.89, "gradient_accumulation_steps": 2}
    phases = plan_pretraining(arguments(max_steps=100, causal_share=0.89, **settings)).phases
    assert [phase.last_step for phase in phases] == [89, 90, None]


def test_a_share_of_the_tokens_is_learned_left_to_right(make_dataset, tokenizer):
    data = make_dataset(objective="ltr", max_length=24)
    examples = [data[index] for index in range(100)]
    every = PretrainingCollator(tokenizer, objective="ltr")(examples)
    some = PretrainingCollator(tokenizer, objective="ltr", rates=MaskingRates(ltr_probability=0.4))(examples)
    assert torch.equal(every["input_ids"], some["input_ids"])
    labeled, kept = every["labels"] != -100, some["labels"] != -100
    assert torch.equal(some["labels"][kept], every["labels"][kept])
    share = kept.sum() / labeled.sum()
    assert abs(share - 0.4) < 4 * (0.4 * 0.6 / labeled.sum()) ** 0.5


def test_evaluation_is_in_both_directions_at_the_papers_rates(arguments, make_dataset, make_model, tokenizer):
    model = make_model(initializer_range=0.5)
    validation = make_dataset(max_length=24, documents=np.arange(10))

    def measure(**settings) -> dict[str, float]:
        trainer = PretrainingTrainer(
            model=model,
            args=arguments(per_device_eval_batch_size=64),
            train_dataset=make_dataset(max_length=24, objective="ltr"),
            eval_dataset=validation,
            processing_class=tokenizer,
            **settings,
        )
        inside = model.config.is_decoder
        metrics = trainer.evaluate()
        assert model.config.is_decoder == inside
        model.config.is_decoder = False
        return {name: metrics[f"eval_{name}"] for name in ("mlm_loss", "nsp_loss", "mlm_accuracy")}

    masked = PretrainingCollator(tokenizer, seed=3)
    expected = measure(data_collator=masked)
    causal = PretrainingCollator(tokenizer, objective="ltr")
    assert measure(data_collator=causal, eval_collator=masked, is_causal=True) == expected
    batch = masked([validation[index] for index in range(len(validation))])
    with torch.no_grad():
        assert float(model.eval()(**batch).mlm_loss) == pytest.approx(expected["mlm_loss"], abs=1e-5)
        model.config.is_decoder = True
        assert abs(float(model(**batch).mlm_loss) - expected["mlm_loss"]) > 1e-3


@pytest.mark.parametrize("pack", [False, True])
def test_a_causal_start_gives_an_ordinary_bert_and_is_logged(tmp_path, arguments, caplog, pack):
    """With a growing batch."""
    steps = {"max_steps": 6, "batch_ramp": 0.34, "gradient_accumulation_steps": 2, "per_device_train_batch_size": 2}
    changes = {"causal_share": 0.5, "mlm_probability": 0.4, "optim": "muon"}
    with caplog.at_level("INFO", logger="mybert"):
        pretrain(arguments(**steps, **changes, pack=pack, row_length=48 if pack else None))
    assert "Phase 1 of 3: left to right, sequences of up to 24 tokens, batches of 2, up to step 2." in caplog.text
    assert "Phase 3 of 3: sequences of up to 24 tokens, batches of 4." in caplog.text
    model = MyBertForPreTraining.from_pretrained(tmp_path / "out")
    assert not model.config.is_decoder
    assert not any(module.is_causal for module in model.modules() if hasattr(module, "is_causal"))
    card = (tmp_path / "out" / "README.md").read_text()
    rows = dict(line[2:-2].split(" | ") for line in card.splitlines() if line.startswith("| ") and "---" not in line)
    assert rows["optimizer"].startswith("Muon for the layers' matrices")
    assert rows["learning rate"] == "0.02 (Muon), 0.01 (AdamW)"
    assert (rows["batch size"], rows["steps"]) == ("2, then 4", "6")
    assert rows["fraction of predicted tokens"] == "0.4"
    assert rows["left to right at first"] == "50 % of the steps"


def test_the_card_has_each_batch_size_in_turn_and_all_options_that_decide_the_model(tmp_path, arguments):
    steps = {"max_steps": 4, "batch_ramp": 0.25, "gradient_accumulation_steps": 2, "per_device_train_batch_size": 2}
    longer = {"phase2_max_length": 32, "phase2_steps": 1, "phase2_gradient_accumulation_steps": 1}
    changes = {"masking_unit": "word", "dropout": 0.0, "adam_beta2": 0.98, "filter": ["duplicates"]}
    changes["ltr_probability"] = 0.5
    pretrain(arguments(**steps, **longer, **changes))
    card = (tmp_path / "out" / "README.md").read_text()
    rows = dict(line[2:-2].split(" | ") for line in card.splitlines() if line.startswith("| ") and "---" not in line)
    assert (rows["batch size"], rows["longest sequence"]) == ("2, then 4, then 2", "24, then 32")
    assert (rows["masking unit"], rows["dropout"], rows["adam beta2"]) == ("word", "0", "0.98")
    assert "duplicates" in rows["filter"]
    assert not {"weight decay", "ltr probability"} & rows.keys()  # the default, and what is not read
    pretrain(arguments("ltr", objective="ltr", masking_unit="word", mlm_probability=0.4, max_steps=1))
    card = (tmp_path / "ltr" / "README.md").read_text()
    assert "0.4" not in card and "word |" not in card


@pytest.fixture
def long_text(tmp_path):
    path = tmp_path / "long.txt"
    path.write_text("\n\n".join("the cat sat on the mat and the dog ran\n" * 12 for _ in range(20)))
    return str(path)


def positions(folder):
    return MyBertForPreTraining.from_pretrained(folder).bert.embeddings.position_embeddings.weight


def test_two_phases_are_one_run(tmp_path, arguments, long_text, history):
    sizes = {"phase2_per_device_train_batch_size": 2, "phase2_gradient_accumulation_steps": 3}
    settings = {"text": [long_text], "max_steps": 8, "phase2_max_length": 64, "phase2_steps": 0.25}
    run = arguments(**settings, **sizes, warmup_steps=0, dropout=0.0)
    plan = plan_pretraining(run)
    first, second = plan.phases
    assert (first.max_length, first.last_step, plan.batch_size(first)) == (24, 6, 8)
    assert (second.max_length, second.last_step, plan.batch_size(second)) == (64, None, 6)
    pretrain(run)
    rates = [entry["learning_rate"] for entry in history() if "mlm_loss" in entry]
    assert rates == pytest.approx([1e-2 * (1 - step / 8) for step in range(8)])  # one schedule
    checkpoint = tmp_path / "out" / "checkpoint-6"
    # The second phase continues with this; otherwise transformers warns about another batch size.
    assert json.loads((checkpoint / "trainer_state.json").read_text())["train_batch_size"] == 2
    moved = (positions(checkpoint) - positions(tmp_path / "out")).abs().amax(-1)
    assert (moved[24:60] > 1e-3).all()  # trained in the second phase
    assert (moved[64:] < 1e-4).all()


def test_the_best_checkpoint_is_one_of_the_last_phase(tmp_path, arguments, caplog):
    """Each phase evaluates sequences of its own length, and a short phase 2 would lose against phase 1."""
    best = {"load_best_model_at_end": True, "metric_for_best_model": "loss", "greater_is_better": True}
    times = {"max_steps": 6, "save_steps": 1, "eval_strategy": "steps", "eval_steps": 1}
    with caplog.at_level("INFO", logger="mybert"):
        pretrain(arguments(**times, **best, phase2_max_length=32, phase2_steps=3))
    kept = [message for message in caplog.messages if message.startswith("Kept")]
    assert kept == ["Kept: the best checkpoint, that of step 4."]  # loss falls, so the first one of the last phase
    assert torch.equal(positions(tmp_path / "out"), positions(tmp_path / "out" / "checkpoint-4"))


@pytest.mark.parametrize("start", ["new", "repeated"])
def test_positions_of_longer_sequences(tmp_path, arguments, long_text, start):
    settings = {"max_steps": 8, "phase2_max_length": 64, "phase2_steps": 2, "save_total_limit": 9}
    run = arguments(text=[long_text], **settings, phase2_positions=start, causal_share=0.25)
    assert [phase.repeats_positions for phase in plan_pretraining(run).phases] == [False, start == "repeated", False]
    pretrain(run)
    early, border, end = (positions(tmp_path / "out" / name) for name in ("checkpoint-2", "checkpoint-6", ""))
    repeated = 1 + torch.arange(512 - 24) % 23
    assert torch.equal(border[24:], border[repeated]) is (start == "repeated")
    assert (early[24:] - early[repeated]).abs().amax(-1).min() > 1e-3
    assert (border[24:60] - end[24:60]).abs().amax(-1).min() > 1e-3  # and learn


SHARDED = """
import torch
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import Shard, distribute_tensor
from mybert.pretraining.initial_weights import repeat_positions

whole = torch.nn.Parameter(torch.arange(20.0).view(10, 2))
sharded = torch.nn.Parameter(distribute_tensor(whole.detach().clone(), init_device_mesh("cpu", (2,)), [Shard(0)]))
for weight in (whole, sharded):
    repeat_positions(weight, 4)
assert whole[:, 0].tolist() == [0, 2, 4, 6, 2, 4, 6, 2, 4, 6]
assert torch.equal(sharded.full_tensor(), whole)
"""


@pytest.mark.slow
def test_positions_in_shards(run_in_two_processes):
    """With FSDP 2 every process has some of the rows."""
    run_in_two_processes(SHARDED)


def test_positions_across_which_fsdp_1_cuts_are_refused_before_training(arguments, monkeypatch):
    monkeypatch.setattr(PretrainingTrainer, "has_fsdp_1", True)
    monkeypatch.setattr(PretrainingTrainer, "train", lambda *args, **kwargs: pytest.fail("trains"))
    with pytest.raises(ValueError, match="FSDP version 2"):
        pretrain(arguments(phase2_max_length=64, phase2_steps=2, phase2_positions="repeated"))


def test_a_signal_at_the_end_of_a_phase_says_how_to_go_on(arguments, monkeypatch, caplog):
    class Signal(StopOnInterrupt):
        def on_save(self, args, state, control, **kwargs):
            self.interrupted |= state.global_step == 2

    settings = {"phase2_max_length": 32, "phase2_steps": 2}
    with monkeypatch.context() as patches:
        patches.setattr(module, "StopOnInterrupt", Signal)
        assert pretrain(arguments(**settings)) == {"interrupted": True}
    assert "Stopped after phase 1; the same command continues from there." in caplog.text
    assert not pretrain(arguments(**settings))["interrupted"]


def test_the_schedule_is_of_the_time():
    optimizer = torch.optim.SGD([torch.nn.Parameter(torch.zeros(1))], lr=1.0)
    place = [0]
    schedule = linear_schedule(optimizer, 10, 100, lambda: place[0])
    for place[0], factor in ((5, 0.5), (6, 0.6), (50, 0.5), (100, 0.0)):
        optimizer.step()
        schedule.step()
        assert optimizer.param_groups[0]["lr"] == pytest.approx(factor)


def test_a_checkpoint_tells_the_time(tmp_path):
    budget = TimeBudget(100.0, used=25.0)
    assert int(budget.position) == TICKS // 4
    state = {"stateful_callbacks": {"TimeBudget": budget.state()}}
    (tmp_path / "trainer_state.json").write_text(json.dumps(state))
    assert int(TimeBudget.from_checkpoint(200.0, str(tmp_path)).position) == TICKS // 8
    (tmp_path / "trainer_state.json").write_text("{}")
    with pytest.raises(ValueError, match=r"trainer_state\.json"):
        TimeBudget.from_checkpoint(200.0, str(tmp_path))


def test_time_budget_compiling_in_the_first_step_is_not_counted(monkeypatch):
    now = [0.0]
    monkeypatch.setattr(callbacks.time, "monotonic", lambda: now[0])
    budget, run, control = TimeBudget(100.0), argparse.Namespace(world_size=1), TrainerControl()
    state = TrainerState(max_steps=1000)
    budget.on_train_begin(run, state, control)
    for now[0], position in ((60.0, 0), (70.0, TICKS // 10)):
        budget.on_step_end(run, state, control)
        assert int(budget.position) == position
    TimeBudget(100.0, used=100.0).on_train_begin(run, state, control)
    assert state.max_steps == state.global_step  # no step is left


@pytest.fixture
def timed(arguments, tokenizer_folder, monkeypatch):
    """A run of 40 seconds; every reading of the clock is one second after the last."""
    seconds = itertools.count()
    # Not of the module `time`, whose clock files are moved by, too.
    monkeypatch.setattr(callbacks, "time", SimpleNamespace(monotonic=lambda: next(seconds)))
    changes = {"causal_share": 0.5, "mlm_probability": 0.4, "warmup_steps": 0.25}
    own = {"max_steps": -1, "max_hours": SECONDS / 3600, "tokenizer": tokenizer_folder, "save_steps": 500}
    return arguments(**changes, **own, per_device_train_batch_size=2, learning_rate=1e-3)


@pytest.mark.slow
def test_a_run_ends_with_its_time(tmp_path, timed, history, caplog):
    with caplog.at_level("INFO", logger="mybert"):
        pretrain(timed)
    assert "left to right, sequences of up to 24 tokens, batches of 2, up to 50 % of the time." in caplog.text
    assert "step 1, 2 % of the time: " in caplog.text and ", 100 % of the time: " in caplog.text
    rates = {entry["step"]: entry["learning_rate"] for entry in history() if "learning_rate" in entry}
    steps = max(rates)
    assert SECONDS * 0.7 < steps <= SECONDS  # a second a step, and some for checkpoints
    assert rates[steps] < 1e-4 < 7e-4 < max(rates.values()) <= 1e-3
    assert max(rates, key=rates.get) == pytest.approx(steps / 4, abs=2)
    assert not MyBertForPreTraining.from_pretrained(tmp_path / "out").config.is_decoder
    speeds = [entry for entry in history() if "train_samples_per_second" in entry]
    assert speeds
    for entry in speeds:  # two sequences a step
        assert entry["train_samples_per_second"] == pytest.approx(2 * entry["train_steps_per_second"], abs=2e-3)
    pretrain(timed)  # its time is up
    assert max(entry["step"] for entry in history()) == steps


@pytest.mark.slow
@pytest.mark.parametrize("stop", [9, 27])  # in the first phase, and in the second
def test_a_stop_does_not_count(timed, history, monkeypatch, stop):
    agree = StopOnInterrupt._agree

    def at_step(callback, args):
        agree(callback, args)
        callback.interrupted |= next(looks) == stop

    looks = itertools.count(1)
    monkeypatch.setattr(StopOnInterrupt, "_agree", at_step)
    assert pretrain(timed) == {"interrupted": True}
    for _ in range(1000):
        callbacks.time.monotonic()
    monkeypatch.setattr(StopOnInterrupt, "_agree", agree)
    pretrain(timed)
    rates = {entry["step"]: entry["learning_rate"] for entry in history() if "learning_rate" in entry}
    assert SECONDS * 0.7 < max(rates) <= SECONDS
    assert rates[max(rates)] < 1e-4
