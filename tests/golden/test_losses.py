"""The same seed gives the batches and losses of `losses.json`, whatever changes around them."""

import json
from pathlib import Path

import pytest
from calls import TWENTY_STEPS
from inputs import write_inputs
from record import training_recorded, training_summary, words_of

from mybert.cli import main

RECORDED = json.loads(Path(__file__).with_name("losses.json").read_text(encoding="utf-8"))


@pytest.fixture(scope="module")
def inputs(tmp_path_factory):
    folder = tmp_path_factory.mktemp("golden") / "inputs"
    folder.mkdir()
    with pytest.MonkeyPatch.context() as patches:
        patches.chdir(folder)
        write_inputs()
    return folder


def test_calls_of_twenty_steps_are_those_recorded():
    assert [call.name for call in sorted(TWENTY_STEPS, key=lambda call: call.name)] == [*RECORDED]


@pytest.mark.parametrize("call", TWENTY_STEPS, ids=lambda call: call.name)
def test_training_with_a_seed_gives_the_recorded_batches_and_losses(call, inputs, monkeypatch):
    target = inputs.parent / f"record_of_{call.name}"
    folder = inputs.parent / call.name
    for path in (target, folder):
        path.mkdir()
    monkeypatch.chdir(folder)
    with training_recorded(target):
        assert main(words_of(call.steps[0])) == 0
    summary, recorded = training_summary(target), RECORDED[call.name]
    assert summary.pop("losses") == pytest.approx(recorded["losses"], rel=1e-4)
    assert summary == {name: value for name, value in recorded.items() if name != "losses"}
