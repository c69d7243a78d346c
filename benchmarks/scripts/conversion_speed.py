"""Speed and memory of reading, converting and writing checkpoints of BERT-base size.

    python -m mybert.benchmarks.scripts.conversion_speed [--adam] [--repeats 5] [--folder DIR]

A checkpoint with random weights is written first (440 MB; 1.3 GB with --adam). If TensorFlow is installed, it reads
the same file in the same process, and all tensors are compared. Times are medians with the file in the page cache;
memory is the growth of the peak resident set (VmHWM, so Linux only) of a fresh process that converts, over what it had
after its imports.
"""

import argparse
import tempfile
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from ...conversion import (
    convert_google_checkpoint,
    export_google_checkpoint,
    key_map,
    read_tensor_bundle,
    write_tensor_bundle,
)
from ...files import write_json
from ...modeling_mybert import MyBertConfig, MyBertForPreTraining  # noqa: F401 - imported before the clock starts
from ..harness import REPEATS, flag, heading, median_seconds, memory, row, run_apart, script

CONFIGURATION: dict[str, Any] = {
    "vocab_size": 30522, "hidden_size": 768, "num_hidden_layers": 12, "num_attention_heads": 12,
    "intermediate_size": 3072, "max_position_embeddings": 512, "type_vocab_size": 2, "hidden_act": "gelu",
    "hidden_dropout_prob": 0.1, "attention_probs_dropout_prob": 0.1, "initializer_range": 0.02,
}  # fmt: skip


def make_checkpoint(folder: Path, adam: bool) -> int:
    """Write a pretraining checkpoint with random weights and return its size in bytes."""
    rng = np.random.default_rng(0)
    sizes = key_map.sizes_of(MyBertConfig(**CONFIGURATION))
    rows = key_map.model_rows("pretraining", CONFIGURATION["num_hidden_layers"])
    tensors: dict[str, np.ndarray] = {}
    for weight in rows:
        for suffix in ("", "/adam_m", "/adam_v") if adam else ("",):
            values = rng.standard_normal(weight.variable_shape("google", sizes), np.float32) * np.float32(0.02)
            tensors[weight.google + suffix] = abs(values) if suffix == "/adam_v" else values
    tensors["global_step"] = np.int64(1000)
    write_tensor_bundle(folder / "bert_model.ckpt", tensors)
    write_json(folder / "bert_config.json", CONFIGURATION)
    return (folder / "bert_model.ckpt.data-00000-of-00001").stat().st_size


def peak_memory(folder: Path, adam: bool, verify: bool) -> float:
    """Convert, and return by how many MiB the peak grew; for a fresh process."""
    before = memory("VmHWM")
    with tempfile.TemporaryDirectory(dir=folder) as output:
        convert_google_checkpoint(folder, f"{output}/model", optimizer=adam, verify=verify)
    return memory("VmHWM") - before


def tensorflow_times(prefix: Path, repeats: int) -> list[tuple[str, float, str]]:
    """A row for TensorFlow reading the same file, if it is installed; checks that all tensors agree."""
    try:
        import tensorflow as tf
    except ImportError:
        return []

    def read_all() -> None:
        reader = tf.train.load_checkpoint(str(prefix))
        for name in reader.get_variable_to_shape_map():
            np.add.reduce(reader.get_tensor(name), axis=None)

    reader, bundle = tf.train.load_checkpoint(str(prefix)), read_tensor_bundle(prefix)
    assert set(reader.get_variable_to_shape_map()) == set(bundle)
    assert all(np.array_equal(reader.get_tensor(name), bundle[name]) for name in bundle)
    return [(f"the same with TensorFlow {tf.__version__}", median_seconds(read_all, repeats), "all tensors equal")]


def measure_conversion(folder: Path, adam: bool, repeats: int) -> list[tuple[str, float, str]]:
    """Rows of the table for the checkpoint in a folder: what, seconds, remark."""
    prefix = folder / "bert_model.ckpt"

    def read_all() -> None:
        bundle = read_tensor_bundle(prefix)
        for name in bundle:
            np.add.reduce(bundle[name], axis=None)  # touch every value

    rows = [
        ("list names and shapes", median_seconds(partial(read_tensor_bundle, prefix), repeats), "the index only"),
        ("read all tensors, CRC checked", median_seconds(read_all, repeats), "memory-mapped, every value touched"),
        *tensorflow_times(prefix, repeats),
    ]
    for verify in (False, True):
        options: dict[str, Any] = {"optimizer": adam, "verify": verify, "overwrite": True}
        seconds = median_seconds(partial(convert_google_checkpoint, folder, folder / "model", **options), repeats)
        peak = run_apart(peak_memory, folder, adam, verify)
        rows.append((f"convert to a model folder{', verified' * verify}", seconds, f"peak memory +{peak:,.0f} MB"))
    write_back = partial(export_google_checkpoint, folder / "model", folder / "out/m", verify=False, overwrite=True)
    seconds = median_seconds(write_back, repeats)
    return [*rows, ("write back as a checkpoint", seconds, "")]


@script(
    flag("--adam", action="store_true", help="with the moments of the optimizer"),
    flag("--folder", type=Path, help="where to put the checkpoint for a while (1.5 to 4 GB)"),
    REPEATS,
)
def main(arguments: argparse.Namespace) -> None:
    with tempfile.TemporaryDirectory(dir=arguments.folder) as name:
        folder, repeats = Path(name), arguments.repeats
        megabytes = make_checkpoint(folder, arguments.adam) / 1e6
        rows = measure_conversion(folder, arguments.adam, repeats)
    print(f"Checkpoint of {megabytes:,.0f} MB{' with Adam moments' * arguments.adam}, median of {repeats}\n")
    print(heading("what", "seconds", "MB/s", ""))
    for label, seconds, note in rows:
        rate = f"{megabytes / seconds:,.0f}" if seconds > 0.02 else ""
        print(row(label, f"{seconds:.3f}", rate, note))


if __name__ == "__main__":
    main()
