"""Two processes on one folder: one run, and one sentence that names it."""

import json
import time

import pytest

pytestmark = pytest.mark.slow

FLAGS = (
    "--vocab_size 60 --vocab_layout compact --model_size tiny --hidden_size 32 --num_hidden_layers 1 --max_length 24 "
    "--per_device_train_batch_size 4 --max_steps 1000000 --save_steps 1000000 --use_cpu --quiet "
    "--num_processes 1 --validation_split 0"
).split()


@pytest.fixture
def start(tmp_path, text_file, start_python):
    command = "-m", "mybert", "pretrain", text_file, "--output_dir", "out", *FLAGS
    return lambda *flags: start_python(*command, *flags, cwd=tmp_path)


@pytest.mark.parametrize(
    ("flags", "wait_for_the_lock"), [(("--seed", "7"), False), ((), True), (("--overwrite",), True)]
)
def test_one_of_two_runs(tmp_path, start, flags, wait_for_the_lock):
    first = start()
    while wait_for_the_lock and not (tmp_path / "out" / ".lock").is_file():
        time.sleep(0.05)
    second = start(*flags)
    while first.poll() is None and second.poll() is None:
        time.sleep(0.05)
    refused, other = (first, second) if second.poll() is None else (second, first)
    said = refused.communicate()[1]
    assert refused.returncode == 2
    assert refused is second or not wait_for_the_lock
    assert said.startswith(f"mybert pretrain: {tmp_path / 'out'} is being written by process {other.pid} on ")
    assert len(said.splitlines()) == 1
    while not (tmp_path / "out" / "run.json").is_file():
        time.sleep(0.05)
    time.sleep(1)  # let it train
    other.terminate()
    other.communicate()
    assert other.returncode == 130
    seed = int(flags[1]) if other is second and "--seed" in flags else 42
    assert json.loads((tmp_path / "out" / "run.json").read_text())["seed"] == seed
    assert not list((tmp_path / "out").glob(".*"))
