"""YAML files: errors name the file, and a key that a map names twice, of which PyYAML takes the last value, is one."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import yaml


def read_yaml(path: str | Path) -> Any:
    """Read a YAML file, as Python values."""
    root = yaml_nodes(path)
    return None if root is None else yaml_value(path, root)


def yaml_nodes(path: str | Path) -> Any:
    """The root node of a YAML file, whose words have no types yet; None if it is empty."""
    with _readable_errors(path):
        root = yaml.compose(Path(path).read_text(encoding="utf-8"), Loader=yaml.SafeLoader)
        _refuse_repeated_keys(path, root)
    return root


def yaml_value(path: str | Path, node: Any) -> Any:
    """The value of a node of a file."""
    with _readable_errors(path):
        return yaml.SafeLoader("").construct_document(node)


@contextmanager
def _readable_errors(path: str | Path) -> Iterator[None]:
    try:
        yield
    except yaml.YAMLError as error:
        raise ValueError(f"{path} is not YAML: {' '.join(str(error).split())}.") from error
    except UnicodeDecodeError as error:
        raise ValueError(f"{path} is not UTF-8 text: bad byte at offset {error.start}.") from error
    except RecursionError as error:
        raise ValueError(f"{path} is nested too deeply; expected lines of the form 'name: value'.") from error


def _refuse_repeated_keys(path: str | Path, root: Any) -> None:
    """Reject a YAML node in which a map names a key twice; `<<` merges others and may be repeated."""
    waiting, seen = [root], set()
    while waiting:
        node = waiting.pop()
        if node is None or id(node) in seen:  # an alias is the node that it names
            continue
        seen.add(id(node))
        if isinstance(node, yaml.SequenceNode):
            waiting += node.value
        elif isinstance(node, yaml.MappingNode):
            keys = set()
            for key, value in node.value:
                name = key.value if isinstance(key, yaml.ScalarNode) else None
                if name in keys and name != "<<":
                    raise ValueError(f"{path} names {name} twice, again in line {key.start_mark.line + 1}.")
                keys.update([name] if name is not None else [])
                waiting.append(value)
