"""Folders of the version before the rewrites load, predict as they did then, and resume; see their README."""

import json
import shutil
from pathlib import Path

import pytest
from calls import TUNED, TWENTY_STEPS, WHOLE, predict_tuned, words_of
from huggingface_hub import ModelCard
from inputs import write_inputs
from record import training_recorded, training_summary
from transformers import AutoConfig, AutoTokenizer

from mybert.cli import main

RECORDED = json.loads(Path(__file__).with_name("losses.json").read_text(encoding="utf-8"))


@pytest.fixture(scope="module")
def inputs(tmp_path_factory):
    folder = tmp_path_factory.mktemp("earlier") / "inputs"
    folder.mkdir()
    with pytest.MonkeyPatch.context() as patches:
        patches.chdir(folder)
        write_inputs()
    return folder


@pytest.fixture
def folder(inputs, tmp_path_factory, monkeypatch):
    """The current folder, next to the inputs."""
    place = inputs.parent / tmp_path_factory.mktemp("run").name
    place.mkdir()
    monkeypatch.chdir(place)
    return place


@pytest.mark.parametrize("task", TUNED)
def test_predict_by_an_earlier_model_gives_its_earlier_predictions(task, inputs, folder):
    # The fitted threshold is the odds of a question, which machines round differently: here it is a bit higher.
    flags = " --null_score_threshold 1.46" if task == "squad_v2" else ""
    assert main(words_of(predict_tuned(task, f"@tuned/{task}") + flags)) == 0
    lines = Path("predictions.jsonl").read_text(encoding="utf-8").splitlines()
    recorded = (inputs / "predictions" / f"{task}.jsonl").read_text(encoding="utf-8").splitlines()
    for line, expected in zip(lines, map(json.loads, recorded), strict=True):
        row = json.loads(line)
        assert _parts(row) == _parts(expected)
        assert _numbers(row) == pytest.approx(_numbers(expected), abs=1e-4)


def _parts(value):
    """A value of JSON without its fractions, which are rounded differently by other machines."""
    if isinstance(value, dict):
        return {name: _parts(each) for name, each in value.items()}
    return list(map(_parts, value)) if isinstance(value, list) else None if isinstance(value, float) else value


def _numbers(value):
    """The fractions in a value of JSON."""
    if isinstance(value, float):
        return [value]
    parts = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    return [number for part in parts for number in _numbers(part)]


@pytest.mark.parametrize("task", TUNED)
def test_from_pretrained_loads_an_earlier_model(task, inputs):
    config = AutoConfig.from_pretrained(inputs / "tuned" / task)
    assert config.finetuned_for["task"] == ("ner" if task == "features" else task)
    tokenizer = AutoTokenizer.from_pretrained(inputs / "tuned" / task)
    assert tokenizer.tokenize("The cats sat.") == ["the", "cat", "##s", "sat", "."]


def test_pretrain_resumes_an_earlier_run_with_the_losses_of_an_uninterrupted_one(
    inputs, tmp_path, monkeypatch, capsys
):
    place = tmp_path / "interrupted"
    shutil.copytree(inputs / "interrupted", place)
    monkeypatch.chdir(place / "run")
    with training_recorded(tmp_path):
        assert main(words_of(WHOLE)) == 0
    assert "Resuming at step 10 from out/checkpoint-10." in capsys.readouterr().out
    losses = training_summary(tmp_path)["losses"]
    assert losses == pytest.approx(RECORDED["steps_pretrain"]["losses"][10:], rel=1e-4)


def test_finetune_recognizes_a_finished_earlier_run(inputs, folder, tmp_path):
    shutil.copytree(inputs / "tuned" / "tagging", "out")
    weights = Path("out/model.safetensors").read_bytes()
    call = next(call for call in TWENTY_STEPS if call.name == "steps_tagging")
    with training_recorded(tmp_path):
        assert main(words_of(call.steps[0])) == 0
    assert Path("out/model.safetensors").read_bytes() == weights
    assert not (tmp_path / "training.jsonl").exists()


def test_finetune_continues_from_an_earlier_model(folder):
    flags = "--train_file @rows.tsv --validation_file @dev.tsv --max_steps 1 --use_cpu --quiet --output_dir out"
    assert main(words_of(f"finetune @tuned/classification {flags}")) == 0
    assert AutoConfig.from_pretrained("out").id2label == {0: "bad", 1: "good", 2: "mixed"}


def test_card_and_push_read_an_earlier_folder(inputs, folder):
    shutil.copytree(inputs / "tuned" / "classification", "model")
    assert ModelCard.load("model/README.md").data.pipeline_tag == "text-classification"
    assert main(words_of("push model someone/tiny --output_dir preview")) == 0
    assert Path("preview/README.md").read_text(encoding="utf-8").count("accuracy")
    assert main(words_of("card model --overwrite --license mit")) == 0
    assert ModelCard.load("model/README.md").data.license == "mit"
