"""What pyproject.toml cannot say: the description on a package index is the README without links into the repository.

The root is the import package, so this file is inside it; it is not shipped.
"""

import re
from pathlib import Path

from setuptools import setup
from setuptools.command.build_py import build_py

README = Path(__file__).with_name("README.md").read_text(encoding="utf-8")
RELATIVE_LINK = re.compile(r"!?\[([^\]]+)\]\((?![a-z]+:)[^)]*\)")


class BuildWithoutSetup(build_py):
    """All modules but this one."""

    def find_package_modules(self, package: str, package_dir: str) -> list[tuple[str, str, str]]:
        """(package, module, file) of the shipped modules."""
        return [found for found in super().find_package_modules(package, package_dir) if found[1] != "setup"]


setup(
    long_description=RELATIVE_LINK.sub(r"\1", README),
    long_description_content_type="text/markdown",
    cmdclass={"build_py": BuildWithoutSetup},
)
