"""A process for each GPU, DDP and FSDP 2: what one process computes (on CPUs two processes, slowly)."""

import os
import subprocess
import sys

import pytest
import torch
from safetensors.torch import load_file

pytestmark = pytest.mark.slow

FLAGS = (
    "--vocab_size 60 --layout compact --model_size tiny --hidden_size 32 --num_hidden_layers 2 --max_length 32 "
    "--max_steps 3 --save_strategy no --heldout 0 --learning_rate 1e-3 --dropout 0 --quiet --num_processes 1"
)
ROWS = 8  # of a step


def launch(folder, text_file, device, processes, *flags):
    command = [sys.executable, "-m"]
    if processes:
        command += ["torch.distributed.run", "--standalone", f"--nproc_per_node={processes}", "-m"]
    rows = ROWS // max(1, processes)
    command += ["mybert", "pretrain", str(text_file), "--output_dir", str(folder), *FLAGS.split(), *flags]
    command += ["--per_device_train_batch_size", str(rows)]
    environment = os.environ | {"OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1"}
    if device == "cpu" or not processes:  # none, or one
        first = os.environ.get("CUDA_VISIBLE_DEVICES", "0").split(",")[0]
        environment["CUDA_VISIBLE_DEVICES"] = "" if device == "cpu" else first
    result = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=300)
    assert result.returncode == 0, result.stderr
    return load_file(folder / "model.safetensors")


@pytest.mark.parametrize("flags", [[], ["--fsdp"], ["--optim", "lamb"], ["--optim", "lamb", "--fsdp"]], ids=" ".join)
def test_processes_make_no_difference(device, tmp_path, text_file, flags):
    processes = 2 if device == "cpu" else max(count for count in (1, 2, 4, 8) if count <= torch.cuda.device_count())
    expected = launch(tmp_path / "one", text_file, device, 0, *(flag for flag in flags if flag != "--fsdp"))
    found = launch(tmp_path / "several", text_file, device, processes, *flags)
    assert found.keys() == expected.keys()
    for name, weight in expected.items():
        torch.testing.assert_close(found[name], weight, rtol=0, atol=1e-5, msg=name)
