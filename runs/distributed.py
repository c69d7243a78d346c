"""Runs of several processes: preparing files once, and waiting for each other."""

import logging
import os
from collections.abc import Callable
from datetime import timedelta
from functools import cache
from typing import Any, TypeVar

import torch
import torch.distributed as dist
from accelerate.utils import parse_flag_from_env
from transformers import TrainingArguments

T = TypeVar("T")

# the default timeout of collectives, half an hour, is too short for a large corpus
_LONGEST_PREPARATION = timedelta(days=30)


def started_on_cpus() -> bool:
    """Whether a launcher (torchrun) started several processes on a machine without accelerators for them.

    They form one run only with `use_cpu` in `TrainingArguments`. Without it each would train separately.
    """
    if int(os.environ.get("WORLD_SIZE", "1")) < 2:
        return False
    accelerator = torch.accelerator.current_accelerator() if torch.accelerator.is_available() else None
    return accelerator is None or accelerator.type == "mps"  # a machine has only one


def is_sharded(arguments: TrainingArguments) -> bool:
    """Whether a run is to be sharded by FSDP, by its settings or by those of `accelerate launch`."""
    return arguments.fsdp_plugin_args is not None or parse_flag_from_env("ACCELERATE_USE_FSDP")


@cache
def _on_the_hosts(processes: Any) -> Any:
    """The run's processes as a group that communicates on the CPU, without waiting for accelerators."""
    return processes if dist.get_backend(processes) == "gloo" else dist.new_group(backend="gloo")


def broadcast_value(value: float, arguments: TrainingArguments, largest: bool = False) -> float:
    """Return the first process's value, or the largest, in every process of a run; all must call this."""
    if arguments.world_size == 1:
        return value
    group, shared = _on_the_hosts(dist.group.WORLD), torch.tensor(value, dtype=torch.float64)
    if largest:
        dist.all_reduce(shared, op=dist.ReduceOp.MAX, group=group)
    else:
        dist.broadcast(shared, src=0, group=group)
    return float(shared)


def prepare_once(writes: bool, prepare: Callable[[], T]) -> T:
    """Prepare files in one process of the run, or of each node, while the others wait; all return its result.

    `writes` is `should_save` of `TrainingArguments`: with `save_on_each_node`, nodes without a shared file system
    prepare their own files. The result is pickled. Where `prepare` raises an error, the others exit with status 2.
    """
    if not dist.is_available() or not dist.is_initialized():
        return prepare()
    error: Exception | None = None
    result: Any = None
    if writes:
        try:
            result = prepare()
        except Exception as found:
            error = found
    group = dist.new_group(backend="gloo", timeout=_LONGEST_PREPARATION)
    failures = [False] * dist.get_world_size()
    dist.all_gather_object(failures, error is not None, group=group)
    received = [result]
    if not any(failures):
        dist.broadcast_object_list(received, src=0, group=group)
    dist.destroy_process_group(group)
    if error is not None:
        raise error
    if any(failures):
        raise SystemExit(2)
    return received[0]


def log_on_main_process(arguments: TrainingArguments) -> None:
    """Let only the first process of a run log and show progress."""
    if arguments.process_index != 0:
        arguments.disable_tqdm = True
        logging.getLogger(__package__.partition(".")[0]).setLevel(logging.ERROR)
