"""Names of a package that load on first use (PEP 562): those that its `if TYPE_CHECKING:` block imports."""

import functools
import importlib
import importlib.util
import sys
from collections.abc import Callable
from typing import Any


def lazy_names(package: str) -> tuple[Callable[[str], Any], Callable[[], list[str]]]:
    """The `__getattr__` and the `__dir__` of a package."""

    def load(name: str) -> Any:
        if name not in modules_of_names(package):
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        return getattr(importlib.import_module(modules_of_names(package)[name], package), name)

    return load, lambda: sorted({*vars(sys.modules[package]), *modules_of_names(package)})


@functools.cache
def modules_of_names(package: str) -> dict[str, str]:
    """The module of each name that type checkers see in a package."""
    import ast  # not needed to start a command

    spec = importlib.util.find_spec(package)
    source: str = spec.loader.get_source(package)  # type: ignore[union-attr]  # also in a zip file
    blocks = [node.body for node in ast.parse(source).body if isinstance(node, ast.If)]
    imports = [node for block in blocks for node in block if isinstance(node, ast.ImportFrom)]
    return {alias.name: f"{'.' * node.level}{node.module}" for node in imports for alias in node.names}
