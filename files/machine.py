"""The machine and the packages: cores, memory, processor features, and a description as text."""

import math
import os
import platform
import re
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import TypedDict

_PACKAGES = ("mybert", "torch", "transformers", "tokenizers", "accelerate")
# Instruction sets that determine the available matrix kernels: Linux's names and those of this package.
_FEATURES = {
    "avx2": "AVX2",
    "avx512f": "AVX-512",
    "avx512_vnni": "AVX-512 VNNI",
    "avx_vnni": "AVX VNNI",
    "avx512_bf16": "AVX-512 BF16",
    "amx_tile": "AMX",
}
_CPU_INFO = Path("/proc/cpuinfo")
_LIMITS = ("quota", "period")  # of a control group of version 1, in microseconds
WAITING_VARIABLES = {"OMP_WAIT_POLICY", "GOMP_SPINCOUNT", "KMP_BLOCKTIME"}  # libgomp's, and that of LLVM and Intel
_MULTIPLY_BFLOAT16 = ("AVX-512 BF16", "AMX")


class Environment(TypedDict):
    """`hardware`: description of processors and accelerators; `versions`: version of each package."""

    hardware: str
    versions: dict[str, str]


def usable_cores() -> int:
    """Number of cores that this process may use: those of its affinity, or fewer by its control group's CPU quota."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return max(1, math.ceil(min(cores, cpu_quota())))


def cpu_quota(root: Path = Path("/")) -> float:
    """CPU seconds a second that Linux's control groups (v1 and v2) allow this process; infinity without a limit."""
    quota, mounts = math.inf, root / "sys/fs/cgroup"
    for line in _read(root / "proc/self/cgroup").splitlines():
        _, controllers, path = line.split(":", 2)
        if controllers and "cpu" not in controllers.split(","):
            continue
        mount = mounts / "cpu" if controllers else mounts  # version 2 lists no controllers
        group = mount / path.lstrip("/")
        for folder in (group, *group.parents):  # a container may see the host's path, but not the folder
            limit = _read(folder / "cpu.max") or " ".join(_read(folder / f"cpu.cfs_{name}_us") for name in _LIMITS)
            if match := re.fullmatch(r"(\d+)\s+(\d+)\s*", limit):  # otherwise "max", or -1
                quota = min(quota, int(match[1]) / int(match[2]))
            if folder == mount:
                break
    return quota


def set_thread_defaults() -> None:
    """Set how OpenMP's threads wait, and how many there are under a CPU quota, unless the user has set it."""
    # libgomp reads these variables when torch is imported. By default its threads wait actively, so that one other
    # busy process slows a model down several times (`benchmarks/waiting_threads.py`).
    if not WAITING_VARIABLES & os.environ.keys():
        os.environ["OMP_WAIT_POLICY"] = "PASSIVE"
    if cpu_quota() < (os.cpu_count() or 1):
        os.environ.setdefault("OMP_NUM_THREADS", str(usable_cores()))


def describe_waiting() -> str:
    """The environment variables by which OpenMP's threads wait, as text."""
    found = [f"{name}={os.environ[name]}" for name in sorted(WAITING_VARIABLES) if name in os.environ]
    return ", ".join(found) or "OMP_WAIT_POLICY not set"


@cache
def cpu_features() -> tuple[str, ...]:
    """Names of the instruction sets for matrix products that the processor has; empty if they are not listed."""
    match = re.search(r"^flags\s*:\s*(.+)$", _read(_CPU_INFO), re.MULTILINE)
    flags = set(match[1].split()) if match else set()
    return tuple(name for flag, name in _FEATURES.items() if flag in flags)


def bfloat16_features() -> tuple[str, ...]:
    """Those of `cpu_features` for bfloat16 products; without one a CPU emulates them slowly."""
    return tuple(name for name in cpu_features() if name in _MULTIPLY_BFLOAT16)


def describe_environment(uses_gpu: bool) -> Environment:
    """Describe the machine of a run for its card: the GPUs, or the cores with the processor's name and features."""
    versions = {"Python": platform.python_version()}
    for package in _PACKAGES:
        try:
            versions[package] = version(package)
        except PackageNotFoundError:  # run from a checkout that is not installed
            continue
    if uses_gpu:
        import torch  # takes a second to import, and nothing else here needs it

        hardware = f"{torch.cuda.device_count()} x {torch.cuda.get_device_name(0)}"
    else:
        match = re.search(r"model name\s*:\s*(.+)", _read(_CPU_INFO))
        processor = match[1].strip() if match else platform.processor() or platform.machine()
        details = ", ".join(filter(None, (processor, *cpu_features())))
        hardware = f"{usable_cores()} CPU cores" + (f" ({details})" if details else "")
    return {"hardware": hardware, "versions": versions}


def _read(path: Path) -> str:
    """The text of a file, or "" where there is none: on other systems than Linux."""
    try:
        return path.read_text(encoding="utf-8")
    except OSError:
        return ""


def duration(seconds: float) -> str:
    """Format a duration in seconds in suitable units: `3.14 s`, `4 min 12 s`, `1 h 23 min`."""
    minutes, second = divmod(round(seconds), 60)
    hours, minute = divmod(minutes, 60)
    if hours:
        return f"{hours} h {minute} min"
    return f"{minute} min {second} s" if minute else f"{seconds:.3g} s"
