"""What pyproject.toml cannot say.

The description on a package index is the README without links into the repository. A wheel that is built again from
the same files is the same, byte for byte: neither their times nor their permissions count.

The root is the import package, so this file is inside it; it is not shipped.
"""

import os
import re
from pathlib import Path
from typing import Any

from setuptools import setup
from setuptools.command.bdist_wheel import bdist_wheel
from setuptools.command.build_py import build_py

README = Path(__file__).with_name("README.md").read_text(encoding="utf-8")
RELATIVE_LINK = re.compile(r"!?\[([^\]]+)\]\((?![a-z]+:)[^)]*\)")


class BuildWithoutSetup(build_py):
    """All modules but this one."""

    def find_package_modules(self, package: str, package_dir: str) -> list[tuple[str, str, str]]:
        """(package, module, file) of the shipped modules."""
        return [found for found in super().find_package_modules(package, package_dir) if found[1] != "setup"]


class ReadableWheel(bdist_wheel):
    """A wheel whose files have the same permissions, whatever those of the checkout."""

    def write_wheelfile(self, wheelfile_base: str, *args: Any, **kwargs: Any) -> None:
        """Write the last file before all are packed."""
        super().write_wheelfile(wheelfile_base, *args, **kwargs)
        for path in Path(wheelfile_base).parent.rglob("*"):
            path.chmod(0o755 if path.is_dir() else 0o644)


os.environ.setdefault("SOURCE_DATE_EPOCH", "315532800")  # 1980, when zip's time begins
setup(
    long_description=RELATIVE_LINK.sub(r"\1", README),
    long_description_content_type="text/markdown",
    cmdclass={"build_py": BuildWithoutSetup, "bdist_wheel": ReadableWheel},
)
