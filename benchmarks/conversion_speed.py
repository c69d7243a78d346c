"""Speed and memory of reading, converting and writing checkpoints of BERT-base size.

    python -m mybert.benchmarks.conversion_speed [--adam] [--repeats 5] [--folder DIR]

A checkpoint with random weights is written first (440 MB; 1.3 GB with --adam). If TensorFlow is installed, it reads
the same file in the same process, and all tensors are compared. Times are medians with the file in the page cache;
memory is the growth of the peak resident set (VmHWM, so Linux only) of a fresh process that converts, over what it had
after its imports.
"""

import argparse
import statistics
import tempfile
from collections.abc import Callable, Iterable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from ..conversion import (
    convert_google_checkpoint,
    export_google_checkpoint,
    key_map,
    read_tensor_bundle,
    write_tensor_bundle,
)
from ..files.output import write_json, write_lines
from ..modeling_mybert import MyBertConfig, MyBertForPreTraining  # noqa: F401 - imported before the clock starts
from ..studies.timing import heading, memory, row
from .harness import REPEATS, check_agreement, flag, made_up_vocabulary, run_apart, script, take_turns

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
    write_lines(folder / "vocab.txt", made_up_vocabulary(CONFIGURATION["vocab_size"]))
    return (folder / "bert_model.ckpt.data-00000-of-00001").stat().st_size


def peak_memory(folder: Path, adam: bool, verify: bool) -> float:
    """Convert, and return by how many MiB the peak grew; for a fresh process."""
    before = memory("VmHWM")
    with tempfile.TemporaryDirectory(dir=folder) as output:
        convert_google_checkpoint(folder, f"{output}/model", optimizer_state=adam, verify=verify)
    return memory("VmHWM") - before


def touch(tensors: Iterable[np.ndarray]) -> None:
    for tensor in tensors:
        np.add.reduce(tensor, axis=None)


def tensorflow_reader(prefix: Path) -> dict[str, Callable[[], None]]:
    """TensorFlow reading all tensors of the same file, if it is installed; they are compared."""
    try:
        import tensorflow as tf
    except ImportError:
        return {}

    reader, bundle = tf.train.load_checkpoint(str(prefix)), read_tensor_bundle(prefix)
    assert set(reader.get_variable_to_shape_map()) == set(bundle)
    for name in bundle:
        check_agreement(name, reader.get_tensor(name), bundle[name], 0)

    def read_all() -> None:
        reader = tf.train.load_checkpoint(str(prefix))
        touch(map(reader.get_tensor, reader.get_variable_to_shape_map()))

    return {f"the same with TensorFlow {tf.__version__}": read_all}


@script(
    flag("--adam", action="store_true", help="with the moments of the optimizer"),
    flag("--folder", type=Path, help="where to put the checkpoint for a while (1.5 to 4 GB)"),
    REPEATS,
)
def main(arguments: argparse.Namespace) -> None:
    with tempfile.TemporaryDirectory(dir=arguments.folder) as name:
        folder, adam = Path(name), arguments.adam
        prefix = folder / "bert_model.ckpt"
        megabytes = make_checkpoint(folder, adam) / 1e6
        convert = partial(convert_google_checkpoint, folder, folder / "model", optimizer_state=adam, overwrite=True)
        runs: dict[str, Callable[[], Any]] = {
            "list names and shapes": partial(read_tensor_bundle, prefix),
            "read all tensors, CRC checked": lambda: touch(read_tensor_bundle(prefix).values()),
            **tensorflow_reader(prefix),
            "convert to a model folder": partial(convert, verify=False),
            "convert to a model folder, verified": partial(convert, verify=True),
            "write back as a checkpoint": partial(
                export_google_checkpoint, folder / "model", folder / "out/m", verify=False, overwrite=True
            ),
        }
        seconds, _ = take_turns(runs, arguments.repeats, untimed=0)
        peaks = {name: run_apart(peak_memory, folder, adam, "verified" in name) for name in runs if "convert" in name}
    print(f"Checkpoint of {megabytes:,.0f} MB{' with Adam moments' * adam}, median of {arguments.repeats}\n")
    print(heading("what", "seconds", "MB/s", ""))
    for name, values in seconds.items():
        median = statistics.median(values)
        rate = f"{megabytes / median:,.0f}" if median > 0.02 else ""
        print(row(name, f"{median:.3f}", rate, f"peak memory +{peaks[name]:,.0f} MB" if name in peaks else ""))


if __name__ == "__main__":
    main()
