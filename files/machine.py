"""The machine and the packages: cores, memory, processor features, and a description as text."""

import os
import platform
import re
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import TypedDict

_PACKAGES = ("mybert", "torch", "transformers", "tokenizers", "accelerate")
# Instruction sets that determine the available matrix kernels: Linux's names and ours.
_FEATURES = {
    "avx2": "AVX2",
    "avx512f": "AVX-512",
    "avx512_vnni": "AVX-512 VNNI",
    "avx_vnni": "AVX VNNI",
    "avx512_bf16": "AVX-512 BF16",
    "amx_tile": "AMX",
}
_MULTIPLY_BFLOAT16 = ("AVX-512 BF16", "AMX")


class Environment(TypedDict):
    """`hardware`: description of processors and accelerators; `versions`: version of each package."""

    hardware: str
    versions: dict[str, str]


def usable_cores() -> int:
    """Number of cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


@cache
def cpu_features() -> tuple[str, ...]:
    """Names of the instruction sets for matrix products that the processor has; empty if they are not listed."""
    match = re.search(r"^flags\s*:\s*(.+)$", _cpu_info(), re.MULTILINE)
    flags = set(match[1].split()) if match else set()
    return tuple(name for flag, name in _FEATURES.items() if flag in flags)


def bfloat16_features() -> tuple[str, ...]:
    """Those of `cpu_features` for bfloat16 products; without one a CPU emulates them slowly."""
    return tuple(name for name in cpu_features() if name in _MULTIPLY_BFLOAT16)


def describe_environment() -> Environment:
    """Describe the machine for a model card."""
    versions = {"Python": platform.python_version()}
    for package in _PACKAGES:
        try:
            versions[package] = version(package)
        except PackageNotFoundError:  # run from a checkout that is not installed
            continue
    return {"hardware": describe_hardware(), "versions": versions}


def describe_hardware() -> str:
    """The GPUs, or, without any, the cores with the processor's name and features."""
    import torch  # takes a second to import, and nothing else here needs it

    if torch.cuda.is_available():
        return f"{torch.cuda.device_count()} x {torch.cuda.get_device_name(0)}"
    details = ", ".join([name for name in (_processor(),) if name] + list(cpu_features()))
    return f"{usable_cores()} CPU cores" + (f" ({details})" if details else "")


def _cpu_info() -> str:
    try:
        return Path("/proc/cpuinfo").read_text(encoding="utf-8")
    except OSError:  # not Linux
        return ""


def _processor() -> str:
    match = re.search(r"model name\s*:\s*(.+)", _cpu_info())
    return match[1].strip() if match else platform.processor() or platform.machine()
