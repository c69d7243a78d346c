"""A run killed repeatedly at the worst moments reaches the same weights as an uninterrupted one."""

import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from mybert import cli

pytestmark = pytest.mark.slow

FLAGS = (
    "--text text.txt --vocab_size 60 --vocab_layout compact --model_size tiny --hidden_size 32 --num_hidden_layers 1 "
    "--max_length 24 --phase2_max_length 48 --phase2_steps 8 --phase2_per_device_train_batch_size 2 "
    "--phase2_positions repeated "
    "--gradient_accumulation_steps 2 --batch_ramp 0.2 --per_device_train_batch_size 2 --max_steps 30 --save_steps 4 "
    "--save_total_limit 2 --logging_steps 2 --eval_strategy steps --eval_steps 7 --validation_split 0.2 "
    "--learning_rate 1e-2 --warmup_steps 0.1 --causal_share 0.3 --mlm_probability 0.4 "
    "--optim muon --use_cpu --quiet --num_processes 1"
).split()

# Runs the command, and kills itself at the given moment.
DRIVER = '''
import os, signal, sys
from pathlib import Path
import safetensors.torch, torch, transformers
from mybert import MyBertTokenizer
from mybert.cli import main
from mybert.pretraining import run as module
from mybert.runs import trainer as run_trainer

def kill(*args, **kwargs):
    os.kill(os.getpid(), signal.SIGKILL)

def half(save, number):
    """Writes half of the file of the given call, then kills."""
    calls = []
    def save_half(value, path, *args, **kwargs):
        save(value, path, *args, **kwargs)
        calls.append(path)
        if len(calls) == number:
            content = Path(path).read_bytes()
            Path(path).write_bytes(content[: len(content) // 2])
            kill()
    return save_half

def at_step(step):
    class Kill(transformers.TrainerCallback):
        def on_pre_optimizer_step(self, args, state, control, **kwargs):
            if state.global_step == step:
                kill()
    return Kill()

def add_callback(callback):
    make = module._trainer
    def make_with_callback(*args):
        trainer = make(*args)
        trainer.add_callback(callback)
        return trainer
    module._trainer = make_with_callback

moment = sys.argv[1]
if moment == "vocabulary":
    save = MyBertTokenizer.save_vocabulary
    MyBertTokenizer.save_vocabulary = lambda *args, **kwargs: (save(*args, **kwargs), kill())
elif moment == "token store":
    module.build_token_store = kill
elif moment.startswith("weights"):
    from transformers import modeling_utils
    modeling_utils.safe_save_file = half(modeling_utils.safe_save_file, 2)
elif moment.startswith("optimizer"):
    torch.save = half(torch.save, 2)
elif moment.startswith("before the seal"):
    run_trainer.seal_checkpoint = kill
elif moment.startswith("deleting"):
    def discard(checkpoint):
        (checkpoint / "model.safetensors").unlink()
        kill()
    run_trainer.discard = discard
elif moment.startswith("step"):
    add_callback(at_step(int(moment.split()[1])))
elif moment == "final files":
    module.draw_curves = kill
sys.exit(main(sys.argv[2:]))
'''

MOMENTS = [
    "vocabulary",
    "token store",
    "step 2",  # before any checkpoint
    "before the seal of the first checkpoint",
    "weights of the second checkpoint",
    "optimizer of the second checkpoint",
    "step 9",  # the first in both directions
    "step 13",
    "deleting old checkpoints",
    "step 22",  # the first of longer sequences
    "step 26",
    "final files",
]


def launch(folder: Path, moment: str, output: str) -> int:
    environment = os.environ | {"OMP_NUM_THREADS": "1"}
    command = [sys.executable, "driver.py", moment, "pretrain", *FLAGS, "--output_dir", output]
    result = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, timeout=120)
    assert result.returncode in (0, -signal.SIGKILL), result.stderr
    return result.returncode


@pytest.fixture(scope="module")
def folder(tmp_path_factory, documents):
    folder = tmp_path_factory.mktemp("runs")
    (folder / "driver.py").write_text(DRIVER)
    (folder / "text.txt").write_text("\n\n".join("\n".join(document) for document in documents))
    return folder


@pytest.fixture(scope="module")
def whole(folder):
    """The weights of a run that is not interrupted."""
    assert launch(folder, "never", "whole") == 0
    return load_file(folder / "whole" / "model.safetensors")


def check(folder, whole):
    killed = load_file(folder / "model.safetensors")
    assert set(whole) == set(killed)
    for name, weight in whole.items():
        assert torch.equal(weight, killed[name]), name


def test_killed_at_every_moment(folder, whole):
    for moment in MOMENTS:
        assert launch(folder, moment, "killed") == -signal.SIGKILL, moment
    assert launch(folder, "never", "killed") == 0
    check(folder / "killed", whole)
    assert not list((folder / "killed").glob("*.partial*"))
    assert sorted(path.name for path in (folder / "killed").glob("checkpoint-*")) == ["checkpoint-28", "checkpoint-30"]


def test_a_deleted_newest_checkpoint_and_a_truncated_one(folder, whole):
    out = folder / "truncated"
    assert launch(folder, "step 19", out.name) == -signal.SIGKILL
    shutil.rmtree(out / "checkpoint-16")
    assert launch(folder, "step 19", out.name) == -signal.SIGKILL
    weights = out / "checkpoint-16" / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:-100])
    assert launch(folder, "never", out.name) == 0
    check(out, whole)


def test_changed_text_and_settings_are_said_and_nothing_is_lost(folder, monkeypatch, capsys):
    assert launch(folder, "step 9", "changed") == -signal.SIGKILL
    monkeypatch.chdir(folder)

    def said(*flags):
        assert cli.main(["pretrain", *FLAGS, "--output_dir", "changed", *flags]) == 2
        assert (folder / "changed" / "checkpoint-8" / "model.safetensors").is_file()
        return capsys.readouterr().err

    assert "seed was 42, is 7" in said("--seed", "7")
    assert "phases (objective, length, batch size, last step) was" in said("--per_device_train_batch_size", "5")
    text = (folder / "text.txt").read_text()
    (folder / "text.txt").write_text(text.replace("cat", "dog"))
    assert "text.txt changed since it began" in said()
    (folder / "text.txt").write_text(text)
    assert launch(folder, "never", "changed") == 0
