import logging
from pathlib import Path
from types import SimpleNamespace

import pytest

from mybert import cli
from mybert.command_line.closings import _CLOSINGS, Closing, say_closing

PRINTS_ITS_RESULT = {"completion"}


def test_every_command_says_what_it_leaves_behind():
    assert set(_CLOSINGS) == set(cli.COMMANDS) - PRINTS_ITS_RESULT


def test_what_is_in_the_folder_is_named(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    folder = Path("run")
    folder.mkdir()
    for name in ("training_curves.png", "predictions_matched.tsv", "predictions_mismatched.tsv", "model.safetensors"):
        (folder / name).touch()
    closing = Closing(folder, "accuracy 0.9", ("mybert", "predict", str(folder)))
    assert str(closing).splitlines() == [
        "",
        "Done: run (accuracy 0.9)",
        "  curves       run/training_curves.png",
        "  predictions  run/predictions_matched.tsv",
        "Next:",
        "  mybert predict run",
    ]


def test_long_lines_are_broken_so_that_a_shell_takes_them():
    closing = Closing("x", "word " * 20, ("mybert", "attention", "'two words'", *["--flag"] * 12))
    lines = str(closing).splitlines()
    assert max(map(len, lines)) <= 104  # quoted words are not wrapped
    call = str(closing).partition("Next:\n")[2]
    assert all(line.endswith(" \\") for line in call.splitlines()[:-1]) and "'two words'" in call
    assert max(map(len, call.splitlines())) <= 80


ARGUMENTS = {
    "text": ["a b.txt"],
    "model": "pre",
    "output_dir": "out",
    "output": "x.tsv",
    "tokenizer": "tok",
    "dry_run": False,
    "num_shards": 1,
    "repo_id": "me/x",
    "private": True,
    "revision": None,
    "branch": None,
    "create_pr": False,
    "commit_message": "The best of 3",
    "metric_for_best_model": "eval_accuracy",
}
RESULTS = {
    "demo": {},
    "vocab": range(30),
    "data": None,
    "pretrain": {"eval_perplexity": 12.3456, "mlm_loss": 3.0},
    "adapt": {"before": {"nats_per_character": 2.0}, "after": {"nats_per_character": 1.23456}, "eval_perplexity": 3.0},
    "finetune": {"accuracy": 0.912345, "test_accuracy": 0.5, "examples": [], "interrupted": False},
    "distill": {"accuracy": 0.9, "teacher": {"accuracy": 0.95}, "examples": [], "interrupted": False},
    "evaluate": {"accuracy": 0.5},
    "predict": {"rows": 3, "cut": 0, "windowed": 0},
    "features": {"texts": 3, "tokens": 30, "size": 1024, "cut": 0},
    "prune": {"rows": [{"layers": [0, 1, 2]}, {"layers": [0]}], "metric": "accuracy"},
    "ablation": {"a": {}, "b": {}},
    "glue": {"average": 0.71234, "tasks": {"sst2": {}, "rte": {}}},
    "convert google": SimpleNamespace(parameters=41, output="out"),
    "convert to-google": SimpleNamespace(parameters=41, output="out/x"),
    "convert bert": SimpleNamespace(parameters=41, output="out"),
    "convert to-bert": SimpleNamespace(parameters=41, output="out"),
    "convert onnx": SimpleNamespace(differences={"model.onnx": {"logits": 1e-6}}),
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
    "vocab": "mybert pretrain 'a b.txt' --tokenizer out --output_dir pretrained",
    "glue": "\nDone: out/suite.md (average 71.2 over 2 tasks)",
    "prune": "\nDone: out (1 of 3 layers)\nNext:\n  mybert predict out new.txt",
    "push": "(nothing was uploaded)\nNext:\n  mybert push pre me/x --private --commit_message 'The best of 3'",
    "convert onnx": "differs from PyTorch by at most 1.0e-06",
}


@pytest.mark.parametrize("name", RESULTS)
def test_the_next_call_is_one_of_a_command(name, caplog):
    caplog.set_level(logging.INFO, "mybert")
    say_closing(name, SimpleNamespace(**ARGUMENTS), RESULTS[name])
    (said,) = caplog.messages
    assert SAID.get(name, "") in said and max(map(len, said.splitlines())) <= 80
    _, _, call = said.partition("Next:\n  mybert ")
    assert not call or call.split()[0] in cli.COMMANDS


def test_a_pretrained_model_of_fewer_layers_is_to_be_fine_tuned(caplog):
    caplog.set_level(logging.INFO, "mybert")
    say_closing("prune", SimpleNamespace(**ARGUMENTS), RESULTS["prune"] | {"metric": None})
    assert "mybert finetune out --train_file train.tsv" in caplog.text and "predict" not in caplog.text


def test_a_store_is_read_when_all_its_shards_are_there(tmp_path, caplog):
    caplog.set_level(logging.INFO, "mybert")
    shards = SimpleNamespace(**ARGUMENTS | {"output": str(tmp_path), "num_shards": 2})
    (tmp_path / "tokens-00001-of-00002.safetensors").touch()
    say_closing("data", shards, None)
    assert "1 of 2 shards" in caplog.text and "Next" not in caplog.text
    (tmp_path / "tokens-00000-of-00002.safetensors").touch()
    say_closing("data", shards, None)
    assert "mybert pretrain --data" in " ".join(caplog.text.split())


def test_metrics_on_standard_output_stay_alone(caplog):
    caplog.set_level(logging.INFO, "mybert")
    say_closing("evaluate", SimpleNamespace(output="-"), {"accuracy": 0.5})
    say_closing("predict", SimpleNamespace(output="-"), {"rows": 3})
    assert not caplog.messages
    say_closing("finetune", SimpleNamespace(**ARGUMENTS), {"last": {"accuracy": 0.5}, "interrupted": False})
    assert "accuracy: last 0.5" in caplog.text and "predict" not in caplog.text
    several = {"accuracy": 0.5, "mean": {"accuracy": 0.5}, "deviation": {"accuracy": 0.1}}
    say_closing("finetune", SimpleNamespace(**ARGUMENTS), several)
    assert "accuracy: mean 0.5, deviation 0.1" in caplog.text and "mybert predict out" in caplog.text
