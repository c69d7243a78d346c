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
        value = getattr(importlib.import_module(modules_of_names(package)[name], package), name)
        setattr(sys.modules[package], name, value)  # found directly from now on
        return value

    return load, lambda: sorted({*vars(sys.modules[package]), *modules_of_names(package)})


@functools.cache
def modules_of_names(package: str) -> dict[str, str]:
    """The module of each name that type checkers see in a package."""
    import dis  # not needed to start a command

    # From the compiled code, because an installation may have no source.
    spec = importlib.util.find_spec(package)
    instructions = [*dis.get_instructions(spec.loader.get_code(package))]  # type: ignore[union-attr]
    loads = [index for index, each in enumerate(instructions) if each.opname == "LOAD_NAME"]
    modules, module = {}, ""
    for start in (index for index in loads if instructions[index].argval == "TYPE_CHECKING"):
        end = next(each.argval for each in instructions[start:] if "JUMP" in each.opname)  # where the block ends
        for index, each in enumerate(instructions[start:], start):
            if each.offset >= end:
                break
            if each.opname == "IMPORT_NAME":
                level = instructions[index - 2].argval  # before the list of names
                module = f"{'.' * level}{each.argval}"
            elif each.opname == "IMPORT_FROM":
                modules[each.argval] = module
    return modules
