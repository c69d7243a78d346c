import logging
import shlex
from pathlib import Path
from types import SimpleNamespace

import pytest

from mybert import cli
from mybert.command_line import closings
from mybert.command_line.closings import CLOSINGS, say_closing
from mybert.command_line.flags import CommandParser, name_positional
from mybert.conversion.verification import GraphReport
from mybert.finetuning import FinetuningArguments
from mybert.hub_card import PushArguments
from mybert.pretraining import DataArguments
from mybert.pretraining.filtering import FilterReport
from mybert.tokenization import VocabArguments

PRINTS_ITS_RESULT = {"completion"}


def test_every_command_says_what_it_leaves_behind():
    assert cli.COMMANDS.keys() - CLOSINGS.keys() == PRINTS_ITS_RESULT and CLOSINGS.keys() <= cli.COMMANDS.keys()


@pytest.fixture
def said(caplog, monkeypatch):
    """What is said at the end of a command."""
    caplog.set_level(logging.INFO, "mybert")
    monkeypatch.setattr(closings, "_selecting_metric", lambda settings: "accuracy")

    def close(name, arguments, result):
        caplog.clear()
        say_closing(name, SimpleNamespace(**arguments) if isinstance(arguments, dict) else arguments, result)
        return "".join(caplog.messages)

    return close


def test_the_figure_that_a_run_is_chosen_by_is_named_as_evaluations_name_it(caplog):
    caplog.set_level(logging.INFO, "mybert")
    settings = FinetuningArguments(
        model="m", train_file="t.tsv", output_dir="absent", metric_for_best_model="eval_loss"
    )
    say_closing("finetune", settings, {"accuracy": 0.9, "loss": 0.25})
    assert "Done: absent (loss 0.25)" in caplog.text.splitlines()


def test_say_closing_names_files_in_the_folder(tmp_path, monkeypatch, said):
    monkeypatch.chdir(tmp_path)
    folder = Path("run")
    folder.mkdir()
    for name in ("training_curves.png", "predictions_matched.tsv", "predictions_mismatched.tsv", "model.safetensors"):
        (folder / name).touch()
    shown = said("finetune", {"output_dir": "run"}, {"accuracy": 0.9, "test_accuracy": None})
    assert shown.splitlines() == [
        "",
        "Done: run (accuracy 0.9)",
        "  curves       run/training_curves.png",
        "  predictions  run/predictions_matched.tsv",
    ]


def test_long_lines_are_broken_so_that_a_shell_takes_them(said):
    settings = VocabArguments(text=["it's one word", *"abcdefghijklmnopqrstuvwxyz"], output_dir="two words")
    shown = said("vocab", settings, range(3))
    call = shown.partition("Next:\n")[2]
    assert all(line.endswith(" \\") for line in call.splitlines()[:-1])
    assert shlex.split(call.replace("\\\n", ""))[:4] == ["mybert", "pretrain", "it's one word", "a"]
    assert len(call.splitlines()) > 1 and max(map(len, call.splitlines())) <= 80


ARGUMENTS = {
    "text": ["a b.txt"],
    "model": "pre",
    "output_dir": "out",
    "output": "x.tsv",
    "tokenizer": "tok",
    "dry_run": False,
    "num_shards": 1,
    "new_data": ("new.txt", "question ||| context"),
}
RESULTS = {
    "demo": {},
    "vocab": range(30),
    "data": SimpleNamespace(size=3),
    "pretrain": {"eval_perplexity": 12.3456, "mlm_loss": 3.0},
    "adapt": {"before": {"nats_per_character": 2.0}, "after": {"nats_per_character": 1.23456}, "eval_perplexity": 3.0},
    "finetune": {"accuracy": 0.912345, "test_accuracy": 0.5, "interrupted": False},
    "distill": {"accuracy": 0.9, "teacher": {"accuracy": 0.95}, "interrupted": False},
    "evaluate": {"accuracy": 0.5},
    "predict": {"rows": 3, "cut": 0, "windowed": 0, "empty": 0},
    "score": {"rows": 3},
    "features": {"texts": 3, "tokens": 30, "size": 1024, "cut": 0},
    "ablation": {"a": {}, "b": {}},
    "glue": {"average": 0.71234, "tasks": {"sst2": {}, "rte": {}}},
    "convert google": SimpleNamespace(parameters=41, output="out"),
    "convert to-google": SimpleNamespace(parameters=41, output="out/x"),
    "convert bert": SimpleNamespace(parameters=41, output="out"),
    "convert to-bert": SimpleNamespace(parameters=41, output="out"),
    "convert onnx": GraphReport(
        "pre", "out", "", "int8", (), {"model.onnx": {"logits": 1e-6}, "b": {"logits": 1e-7}}, 0, {}, {}
    ),
    "card": "pre/README.md",
    "push": "out",
    "attention": "a.png",
    "curves": "c.png",
    "bench": {},
}
SAID = {
    "pretrain": "\nDone: out (perplexity 12.35)\n",
    "adapt": "\nDone: out (nats per character 2 before, 1.235 now)\n",
    "finetune": "\nDone: out (accuracy 0.9123, test accuracy 0.5)\n",
    "distill": "\nDone: out (accuracy 0.9, teacher 0.95)\nNext:\n  mybert predict out",
    "vocab": "mybert pretrain 'a b.csv' --tokenizer out --output_dir pretrained --encoding \\\n"
    "    cp1252 --text_column 'a b' --join_lines --clean mojibake html",
    "data": "mybert pretrain --token_store x --tokenizer tok --output_dir pretrained \\\n    --max_length 64",
    "convert google": "mybert attention out 'The cat sat on the mat.'",
    "glue": "\nDone: out/suite.md (2 tasks, average 71.2%)",
    "push": "(nothing was uploaded)\nNext:\n  mybert push pre me/x --private --commit_message 'The best of 3'\n"
    "  (without network, where there is one: hf upload me/x out)",
    "convert onnx": "differs from PyTorch by at most 1.0e-06",
}


SETTINGS = {  # those whose flags the next call repeats
    "vocab": VocabArguments(
        text=["a b.csv"],
        output_dir="out",
        text_column="a b",
        join_lines=True,
        encoding="cp1252",
        clean=["mojibake", "html"],
    ),
    "data": DataArguments(output="x", tokenizer="tok", max_length=64),
    "push": PushArguments(model="pre", output_dir="out", repo_id="me/x", private=True, commit_message="The best of 3"),
}


@pytest.fixture
def folders(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for name in ("pre", "out"):
        Path(name).mkdir()
        for file in ("config.json", "tokenizer.json"):
            Path(name, file).touch()


@pytest.mark.usefixtures("folders")
@pytest.mark.parametrize("name", RESULTS)
def test_the_next_call_has_a_command_and_its_flags(name, said):
    shown = said(name, SETTINGS.get(name, ARGUMENTS), RESULTS[name])
    assert SAID.get(name, "") in shown and max(map(len, shown.splitlines())) <= 80
    _, _, call = shown.partition("Next:\n  mybert ")
    if call:
        command, *flags = shlex.split(call.partition("\n  (")[0].replace("\\\n", ""))
        parser = CommandParser(command)
        assert parser.parse_known_args(name_positional(flags, parser.positional))[1] == []


@pytest.mark.usefixtures("folders")
def test_the_next_call_repeats_a_switch_that_is_off_and_not_by_default(said):
    shown = said("vocab", VocabArguments(text=["a"], output_dir="out", join_lines=False), range(3))
    words = shlex.split(shown.partition("Next:\n  mybert pretrain ")[2].partition("\n  (")[0].replace("\\\n", ""))
    parser = CommandParser("pretrain")
    assert parser.parse_known_args(name_positional(words, parser.positional))[0].join_lines is False


NO_FOLDER = {"output_dir": "none", "model": "none"}  # no tokenizer and no model in it


@pytest.mark.usefixtures("folders")
@pytest.mark.parametrize(
    ("name", "arguments", "result", "part", "next_call"),
    [
        ("vocab", VocabArguments(text=["-"], output_dir="out"), range(3), "3 pieces", None),  # read only once
        *((name, NO_FOLDER, RESULTS[name], "Done", None) for name in ("convert google", "convert bert", "card")),
        ("finetune", NO_FOLDER, {"last": {"accuracy": 0.5}, "interrupted": False}, "accuracy: last 0.5", None),
        ("finetune", {}, {}, "Done: out\n", "predict"),  # nothing was measured
        (
            "finetune",
            {},
            {"accuracy": 0.5, "mean": {"accuracy": 0.5}, "deviation": {"accuracy": 0.1}},
            "accuracy: mean 0.5, deviation 0.1",
            "predict",
        ),
        ("pretrain", {}, {"mlm_loss": 3.0}, "(mlm loss 3)", "finetune"),
        ("adapt", {}, {"before": {}, "eval_perplexity": 3.0}, "(perplexity 3)", "finetune"),
    ],
)
def test_say_closing_depends_on_the_result(name, arguments, result, part, next_call, said):
    shown = said(name, ARGUMENTS | arguments if isinstance(arguments, dict) else arguments, result)
    call = shown.partition("Next:\n  mybert ")[2]
    assert part in shown and call.partition(" ")[0] == (next_call or "")


@pytest.mark.parametrize(
    ("name", "arguments", "result"),
    [
        ("evaluate", {"output": "-"}, {"accuracy": 0.5}),  # metrics on standard output stay alone
        ("predict", {"output": "-"}, {"rows": 3}),
        ("bench", {"output": None}, {}),
        ("data", {}, None),  # shards are missing
        ("data", {}, FilterReport()),  # what would be left out
    ],
)
def test_nothing_is_said_if_nothing_is_written(name, arguments, result, said):
    assert not said(name, ARGUMENTS | arguments, result)
