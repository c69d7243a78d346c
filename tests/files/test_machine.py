import math
import os
import subprocess
import sys

import pytest
import torch

from mybert.files import machine

V2, V1 = "0::/user/a\n", "7:memory:/m\n3:cpu,cpuacct:/docker/a\n0::/\n"


@pytest.mark.parametrize(
    ("groups", "files", "expected"),
    [
        ("", {}, math.inf),  # no Linux
        (V2, {"user/a/cpu.max": "150000 100000\n"}, 1.5),
        (V2, {"user/a/cpu.max": "max 100000\n", "user/cpu.max": "300000 100000\n"}, 3),  # limited by its parent
        (V2, {"user/a/cpu.max": "max 100000\n"}, math.inf),
        (V2, {"cpu.max": "50000 100000\n"}, 0.5),  # the container's folder in place of the host's
        (V1, {"cpu/docker/a/cpu.cfs_quota_us": "200000\n", "cpu/docker/a/cpu.cfs_period_us": "100000\n"}, 2),
        (V1, {"cpu/cpu.cfs_quota_us": "400000\n", "cpu/cpu.cfs_period_us": "100000\n"}, 4),
        (V1, {"cpu/cpu.cfs_quota_us": "-1\n", "cpu/cpu.cfs_period_us": "100000\n"}, math.inf),
    ],
)
def test_cpu_quota_of_control_groups(tmp_path, groups, files, expected):
    written = {"proc/self/cgroup": groups, **{f"sys/fs/cgroup/{name}": text for name, text in files.items()}}
    for name, text in written.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    assert machine.cpu_quota(tmp_path) == expected


@pytest.mark.parametrize(("quota", "expected"), [(0.5, 1), (1.5, 2), (math.inf, 8), (16, 8)])
def test_usable_cores_with_quota_rounds_up(monkeypatch, quota, expected):
    monkeypatch.setattr(os, "sched_getaffinity", lambda process: range(8), raising=False)
    monkeypatch.setattr(machine, "cpu_quota", lambda: quota)
    assert machine.usable_cores() == expected


def run_command(**environment):
    """The variables of OpenMP that a command's libraries see, and whether torch was imported before they were set."""
    code = """
import os, sys
sys.argv[:] = ["mybert"]
from mybert import __main__, cli
from mybert.files import machine
machine.cpu_quota = lambda: float(os.environ.get("QUOTA", "inf"))
cli.main = lambda: print([os.environ.get(n) for n in ("OMP_WAIT_POLICY", "OMP_NUM_THREADS")], "torch" in sys.modules)
__main__.main()
"""
    inherited = {name: value for name, value in os.environ.items() if not name.startswith(("OMP_", "GOMP_", "KMP_"))}
    done = subprocess.run([sys.executable, "-c", code], env=inherited | environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


@pytest.mark.parametrize(
    ("environment", "expected"),
    [
        ({}, "['PASSIVE', None] False"),
        ({"OMP_WAIT_POLICY": "ACTIVE", "QUOTA": "0.5"}, "['ACTIVE', '1'] False"),
        ({"GOMP_SPINCOUNT": "10", "OMP_NUM_THREADS": "3", "QUOTA": "0.5"}, "[None, '3'] False"),
    ],
)
def test_set_thread_defaults_before_torch_leaves_what_the_user_set(environment, expected):
    assert run_command(**environment) == expected


@pytest.mark.parametrize(("uses_gpu", "expected"), [(True, "2 x Fast GPU"), (False, "3 CPU cores")])
def test_describe_environment_names_the_hardware_that_is_used(monkeypatch, uses_gpu, expected):
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda device: "Fast GPU")
    monkeypatch.setattr(machine, "usable_cores", lambda: 3)
    assert machine.describe_environment(uses_gpu)["hardware"].startswith(expected)


def test_describe_environment_leaves_out_packages_that_are_not_installed(monkeypatch):
    def version(package):
        if package == "mybert":
            raise machine.PackageNotFoundError(package)
        return "1"

    monkeypatch.setattr(machine, "version", version)
    versions = machine.describe_environment(uses_gpu=False)["versions"]
    assert "mybert" not in versions and versions["torch"] == "1"
