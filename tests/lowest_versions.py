"""Run tests with the lowest versions that pyproject.toml allows, in an environment of their own (`.lowest`).

    python tests/lowest_versions.py                            the quick tests
    python tests/lowest_versions.py tests/modeling_mybert      arguments go to pytest

Needs uv, which resolves the versions (`--resolution lowest-direct`). Torch alone is the one of the environment that
runs this: a lower one would bring gigabytes of libraries for GPUs with it.
"""

import subprocess
import sys
from importlib.metadata import version
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
ENVIRONMENT = ROOT / ".lowest"


def main(tests: list[str]) -> int:
    """Make the environment and run the tests in it; the exit status is pytest's."""
    python = ENVIRONMENT / "bin" / "python"
    torch = f"torch=={version('torch').partition('+')[0]}"
    subprocess.run([sys.executable, "-m", "venv", "--clear", ENVIRONMENT], check=True)
    subprocess.run([python, "-m", "pip", "install", "--quiet", torch], check=True)
    override = ENVIRONMENT / "override.txt"
    override.write_text(f"{torch}\n", encoding="utf-8")
    uv = [sys.executable, "-m", "uv", "pip", "install", "--python", python, "--resolution", "lowest-direct"]
    subprocess.run([*uv, "--override", override, "--editable", f"{ROOT}[dev]"], check=True)
    return subprocess.run([python, "-m", "pytest", *(tests or ["-m", "not slow"])], cwd=ROOT).returncode


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
