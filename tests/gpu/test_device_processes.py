"""A process for each GPU, DDP and FSDP 2: what one process computes (on CPUs two processes, slowly)."""

import os

import pytest
import torch
from safetensors.torch import load_file

pytestmark = pytest.mark.slow

FLAGS = (
    "--vocab_size 60 --vocab_layout compact --model_size tiny --hidden_size 32 --num_hidden_layers 2 --max_length 32 "
    "--max_steps 3 --save_strategy no --validation_split 0 --learning_rate 1e-3 --dropout 0 --quiet --num_processes 1"
)
ROWS = 8  # of a step


@pytest.fixture
def launch(text_file, device, run_python):
    def train(folder, processes, *flags):
        launcher = "torch.distributed.run", "--standalone", f"--nproc_per_node={processes}", "-m"
        rows = "--per_device_train_batch_size", ROWS // max(1, processes)
        environment = {}
        if device == "cpu" or not processes:  # none, or one
            first = os.environ.get("CUDA_VISIBLE_DEVICES", "0").split(",")[0]
            environment["CUDA_VISIBLE_DEVICES"] = "" if device == "cpu" else first
        command = "-m", *(launcher if processes else ()), "mybert", "pretrain", text_file, "--output_dir", folder
        run_python(*command, *FLAGS.split(), *flags, *rows, **environment)
        return load_file(folder / "model.safetensors")

    return train


@pytest.mark.parametrize("flags", [[], ["--fsdp"]], ids=" ".join)
def test_processes_make_no_difference(device, launch, tmp_path, flags):
    processes = 2 if device == "cpu" else max(count for count in (1, 2, 4, 8) if count <= torch.cuda.device_count())
    expected = launch(tmp_path / "one", 0, *(flag for flag in flags if flag != "--fsdp"))
    found = launch(tmp_path / "several", processes, *flags)
    assert found.keys() == expected.keys()
    for name, weight in expected.items():
        torch.testing.assert_close(found[name], weight, rtol=0, atol=1e-5, msg=name)
