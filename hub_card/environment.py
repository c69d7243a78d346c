"""The machine and the packages that a model was made with."""

import os
import platform
import re
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import TypedDict

import torch

_PACKAGES = ("mybert", "torch", "transformers", "tokenizers", "accelerate")


class Environment(TypedDict):
    """`hardware`: processors and accelerators in words; `versions`: package -> version."""

    hardware: str
    versions: dict[str, str]


def describe_environment() -> Environment:
    """Describe the machine this runs on, in the words of a model card."""
    versions = {"Python": platform.python_version()}
    for package in _PACKAGES:
        try:
            versions[package] = version(package)
        except PackageNotFoundError:  # run from a checkout that is not installed
            continue
    if torch.cuda.is_available():
        hardware = f"{torch.cuda.device_count()} x {torch.cuda.get_device_name(0)}"
    else:
        hardware = f"{len(os.sched_getaffinity(0)) if hasattr(os, 'sched_getaffinity') else os.cpu_count()} CPU cores"
        if name := _processor():
            hardware += f" ({name})"
    return {"hardware": hardware, "versions": versions}


def _processor() -> str:
    try:
        match = re.search(r"model name\s*:\s*(.+)", Path("/proc/cpuinfo").read_text())
    except OSError:  # not Linux
        return platform.processor()
    return match[1].strip() if match else platform.machine()
