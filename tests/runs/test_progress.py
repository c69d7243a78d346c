import logging
import sys
from types import SimpleNamespace

import pytest
import torch
from huggingface_hub.utils import are_progress_bars_disabled, disable_progress_bars, enable_progress_bars
from transformers import TrainerControl, TrainerState, TrainingArguments
from transformers.utils import logging as transformers_logging

from mybert.files.progress import progress_bar, without_bars, without_loading_bars
from mybert.pretraining import PretrainingArguments
from mybert.runs import ResumableTrainer
from mybert.runs.callbacks import ReadableProgress, log_line


@pytest.mark.parametrize(
    ("logs", "line"),
    [
        ({"loss": 0.69213, "grad_norm": 1.0, "learning_rate": 2e-5, "epoch": 0.5}, "step 1,500/20,000: loss 0.6921"),
        (
            {"loss": 7.0, "mlm_loss": 6.4, "mlm_accuracy": 0.0421, "nsp_loss": 0.6, "nsp_accuracy": 0.75}
            | {"tokens_per_second": 17244.4, "mlm_share": 0.15},
            "step 1,500/20,000: mlm 6.4 (4.2 %), nsp 0.6 (75.0 %), 17,244 tokens/s",
        ),
        (
            {"eval_loss": 0.25, "eval_accuracy": 0.912345, "eval_runtime": 3.0, "eval_samples_per_second": 3.0},
            "step 1,500/20,000, evaluation: loss 0.25, accuracy 0.9123",
        ),
        ({"test_f1": 0.5, "epoch": 3.0}, "test: f1 0.5"),
        ({"eval_f1": 0.5, "test_f1": 0.25}, "step 1,500/20,000: eval f1 0.5, test f1 0.25"),
        ({"train_runtime": 59.44, "train_loss": 0.5}, "Trained 1,500 steps in 59.4 s, with a mean loss of 0.5."),
        ({"train_runtime": 7505}, "Trained 1,500 steps in 2 h 5 min."),
        ({"epoch": 1.0}, ""),
        ({}, ""),
    ],
)
def test_an_entry_of_the_log_in_words(logs, line):
    assert log_line(logs, 1500, 20000) == line


def test_the_end_counts_the_steps_of_its_time():
    assert log_line({"train_runtime": 60.0}, 1500, 1500, first_step=1000) == "Trained 500 steps in 1 min 0 s."
    assert log_line({"train_runtime": 60.0}, 1500, 1500, first_step=1499) == "Trained 1 step in 1 min 0 s."


def test_lines_fit_a_terminal_and_are_broken_between_values(monkeypatch):
    logs = {f"eval_recall_of_type_{number}": number / 7 for number in range(12)}
    assert "\n" not in log_line(logs, 1500, 20000)
    monkeypatch.setattr("sys.stdout.isatty", lambda: True)
    lines = log_line(logs, 1500, 20000).splitlines()
    assert len(lines) > 3 and max(map(len, lines)) <= 80
    assert all(line.startswith("  recall of type ") for line in lines[1:])


@pytest.mark.parametrize(("steps", "expected"), [(1, 1), (60, 3), (999, 49), (1000, 50), (10**6, 50)])
def test_runs_log_as_often_as_fits_their_length(steps, expected):
    state = TrainerState(max_steps=steps, is_world_process_zero=False)
    ReadableProgress().on_train_begin(SimpleNamespace(logging_steps=None), state, None)
    assert state.logging_steps == expected


class Linear(torch.nn.Linear):
    def forward(self, x, labels=None):
        return {"loss": super().forward(x).pow(2).mean()}


def train(tmp_path, **settings):
    arguments = TrainingArguments(tmp_path, max_steps=6, save_strategy="no", use_cpu=True, **settings)
    data = [{"x": torch.ones(2)}] * 8
    trainer = ResumableTrainer(Linear(2, 1), arguments, train_dataset=data)
    trainer.train()
    return trainer


def test_a_script_sees_lines_and_no_dictionaries(tmp_path, capsys):
    train(tmp_path, logging_steps=3)
    shown = capsys.readouterr().out
    assert "step 3/6: loss " in shown and "Trained 6 steps in " in shown and "{" not in shown


@pytest.fixture
def cell(monkeypatch):
    """The outputs of a notebook's cell: of each, what it has shown."""
    outputs = []

    class Output(list):
        def update(self, content, raw):
            self.append(content["text/plain"])

    def display(content, raw, display_id):
        outputs.append(Output([content["text/plain"]]))
        return outputs[-1]

    shell = SimpleNamespace(kernel=object())
    monkeypatch.setitem(sys.modules, "IPython", SimpleNamespace(get_ipython=lambda: shell))
    monkeypatch.setitem(sys.modules, "IPython.display", SimpleNamespace(display=display))
    return outputs


def test_a_notebook_shows_one_output_that_ends_with_the_last_line(tmp_path, cell, capsys):
    train(tmp_path, logging_steps=1)
    captured = capsys.readouterr()
    assert captured.out == captured.err == ""
    ((*_, last),) = cell
    assert "6/6" in last and "Trained 6 steps" in last and "\n" not in last


def test_progress_bar_in_a_notebook_shows_no_output_that_would_go_again(cell):
    for settings in ({"delay": 60}, {"leave": False}, {"disable": True}):
        assert list(progress_bar(range(3), **settings)) == [0, 1, 2]
    assert not cell
    assert list(progress_bar(range(3), disable=None)) == [0, 1, 2]
    assert len(cell) == 1 and "3/3" in cell[0][-1]


def test_without_loading_bars_hides_them_and_shows_those_of_downloads():
    before = transformers_logging.is_progress_bar_enabled(), are_progress_bars_disabled()
    with without_loading_bars():
        assert not transformers_logging.is_progress_bar_enabled() and are_progress_bars_disabled() is before[1]
    assert (transformers_logging.is_progress_bar_enabled(), are_progress_bars_disabled()) == before


def test_without_loading_bars_leaves_those_of_downloads_turned_off():
    disable_progress_bars()
    try:
        with without_loading_bars():
            assert are_progress_bars_disabled()
        assert are_progress_bars_disabled() and transformers_logging.is_progress_bar_enabled()
    finally:
        enable_progress_bars()


def test_without_bars_leaves_those_of_downloads_as_they_were():
    with without_bars():
        assert are_progress_bars_disabled()
    assert not are_progress_bars_disabled()
    disable_progress_bars()
    try:
        with without_bars():
            pass
        assert are_progress_bars_disabled()
    finally:
        enable_progress_bars()


def test_without_bars_a_script_that_shows_no_log_sees_nothing(tmp_path, capsys):
    train(tmp_path, logging_steps=3, disable_tqdm=True)
    captured = capsys.readouterr()
    assert captured.out == captured.err == ""


def test_without_bars_a_notebook_that_shows_no_log_sees_nothing(tmp_path, cell, capsys):
    train(tmp_path, logging_steps=3, disable_tqdm=True)
    captured = capsys.readouterr()
    assert captured.out == captured.err == "" and not cell


def test_the_log_has_the_lines_without_bars_too(tmp_path, caplog):
    caplog.set_level(logging.INFO, "mybert")
    train(tmp_path, logging_steps=3, disable_tqdm=True)
    lines = [record.getMessage().split(" loss")[0] for record in caplog.records]
    assert lines[:2] == ["step 3/6:", "step 6/6:"] and lines[2].startswith("Trained 6 steps in ")


def test_a_best_checkpoint_before_the_last_is_named(tmp_path, caplog):
    caplog.set_level(logging.INFO, "mybert")
    chooses = TrainingArguments(tmp_path, eval_strategy="steps", save_strategy="steps", load_best_model_at_end=True)
    for arguments in (TrainingArguments(tmp_path), chooses):
        for best in (6, 3):
            state = TrainerState(global_step=6, best_global_step=best, best_model_checkpoint=f"checkpoint-{best}")
            progress = ReadableProgress()
            progress.on_train_begin(arguments, state, TrainerControl())
            progress.on_train_end(arguments, state, TrainerControl())
    assert [record.getMessage() for record in caplog.records] == ["Kept: the best checkpoint, that of step 3."]


def test_an_evaluation_is_said_once(tmp_path, caplog):
    caplog.set_level(logging.INFO, "mybert")
    progress, state = ReadableProgress(), TrainerState(global_step=6, max_steps=6)
    end = {"train_runtime": 2.0, "train_loss": 0.5}
    for logs in ({"eval_loss": 0.5}, {"eval_loss": 0.5}, end, {"eval_loss": 0.5, "eval_tokens_per_second": 7.0}):
        progress.on_log(TrainingArguments(tmp_path), state, TrainerControl(), logs=logs)
    lines = [record.getMessage() for record in caplog.records]
    assert lines == ["step 6/6, evaluation: loss 0.5", "Trained 6 steps in 2 s, with a mean loss of 0.5."]


def test_steps_that_are_given_stay(tmp_path):
    arguments = {"text": ["x"], "output_dir": str(tmp_path), "max_steps": 100, "use_cpu": True}
    for given, expected in (({}, 5), ({"logging_steps": 50}, 50), ({"logging_steps": 0.3}, 30)):
        settings = PretrainingArguments(**arguments, **given)
        state = TrainerState(max_steps=100)
        state.compute_steps(settings, 100)  # as `Trainer` does
        ReadableProgress().on_train_begin(settings, state, TrainerControl())
        assert state.logging_steps == expected
