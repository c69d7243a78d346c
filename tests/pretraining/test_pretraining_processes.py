"""Several real processes compute what one does: DDP, FSDP, gradient accumulation (gloo, on CPUs)."""

import json

import pytest
import torch
from safetensors.torch import load_file

pytestmark = pytest.mark.slow

FLAGS = (
    "--vocab_size 60 --vocab_layout compact --model_size tiny --hidden_size 32 --num_hidden_layers 2 --max_length 32 "
    "--max_steps 3 --logging_steps 1 --save_steps 1 --save_total_limit 5 --validation_split 0.2 --learning_rate 1e-3 "
    "--dropout 0 --max_grad_norm 0 --per_device_eval_batch_size 5 --quiet --num_processes 1"
)


@pytest.fixture(scope="module")
def launch(tmp_path_factory, documents, run_python):
    """Run the command on the same text, in a folder of its own."""
    place = tmp_path_factory.mktemp("runs")
    (place / "text.txt").write_text("\n\n".join("\n".join(document) for document in documents))
    # Every run has a rendezvous of its own, on a free port.

    def run(name, flags, launcher=()):
        command = "-m", *launcher, "mybert", "pretrain", "--text", "text.txt", "--output_dir", name, *FLAGS.split()
        run_python(*command, *flags.split(), cwd=place, timeout=180, CUDA_VISIBLE_DEVICES="")
        return place / name

    return run


@pytest.fixture(scope="module")
def whole(launch):
    """The run of one process."""
    return launch("whole", "--per_device_train_batch_size 8")


TORCHRUN = ("torch.distributed.run", "--standalone", "--nproc_per_node=2", "-m")
ACCELERATE = ("accelerate.commands.launch", "--multi_gpu", "--num_processes=2", "--main_process_port=0", "-m")


def gradients(run):
    """The gradients of step 1: the running mean of one gradient is a tenth of it."""
    state = torch.load(run / "checkpoint-1" / "optimizer.pt", weights_only=True)["state"]
    return [10 * parameter["exp_avg"] for parameter in state.values()]


def history(run):
    log = json.loads((run / "trainer_state.json").read_text())["log_history"]
    return [{key: value for key, value in entry.items() if "second" not in key and "time" not in key} for entry in log]


def test_processes_and_micro_batches_make_no_difference(launch, whole):
    flags = "--per_device_train_batch_size {} --gradient_accumulation_steps {}"
    parts = {
        "4x2": launch("4x2", flags.format(2, 4)),
        "torchrun": launch("torchrun", flags.format(2, 2), TORCHRUN),
        "accelerate": launch("accelerate", flags.format(4, 1), ACCELERATE),
    }
    expected = gradients(whole)
    assert sum(bool(gradient.norm() > 1e-3) for gradient in expected) > 30  # there is something to compare
    scale = max(gradient.abs().max() for gradient in expected)
    for name, run in parts.items():
        for gradient, other in zip(expected, gradients(run), strict=True):
            assert (gradient - other).abs().max() <= 1e-6 * scale, name
        for entry, other in zip(history(whole), history(run), strict=True):
            assert entry == pytest.approx(other, rel=1e-4, abs=1e-6), name
        weights, others = (load_file(folder / "model.safetensors") for folder in (whole, run))
        for key, weight in weights.items():
            torch.testing.assert_close(weight, others[key], atol=1e-6, rtol=0)
        # The same command would resume: only the total batch size counts.
        record, other = (json.loads((folder / "run.json").read_text()) for folder in (run, whole))
        record.pop("decisions", None)  # several processes on a machine without an accelerator use the CPU
        assert record == other


@pytest.mark.parametrize("flags", ["--fsdp", '--fsdp --fsdp_config {"state_dict_type":"SHARDED_STATE_DICT"}'])
def test_fsdp_shards_and_goes_on(launch, whole, flags):
    name, flags = f"fsdp_{len(flags)}", f"--per_device_train_batch_size 4 {flags}"
    run = launch(name, flags, TORCHRUN)
    assert list((run / "checkpoint-3").glob("pytorch_model_fsdp*"))  # sharding was really on
    for checkpoint in ("checkpoint-3", "checkpoint-2"):
        for file in (run / checkpoint).rglob("*"):
            if file.is_file():
                file.unlink()
    (run / "model.safetensors").unlink()
    launch(name, flags, TORCHRUN)
    weights, others = (load_file(folder / "model.safetensors") for folder in (whole, run))
    assert set(weights) == set(others)
    for key, weight in weights.items():
        torch.testing.assert_close(weight, others[key], atol=1e-6, rtol=0)


def test_a_mistake_is_said_once_and_ends_all_processes(tmp_path, run_python):
    (tmp_path / "empty.txt").write_text("\n")
    command = "-m", *TORCHRUN, "mybert", "pretrain", "--text", "empty.txt", "--output_dir", "out", "--use_cpu"
    result = run_python(*command, status=1, cwd=tmp_path, timeout=120)
    assert result.stderr.count("mybert pretrain: There is no text in") == 1
    assert not (tmp_path / "out").exists()
