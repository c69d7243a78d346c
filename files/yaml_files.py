"""YAML files: errors name the file, and a key that a map names twice, of which PyYAML takes the last value, is one."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import yaml


class _Loader(yaml.SafeLoader):
    """Rejects a map that names a key twice; `<<` merges others and may be repeated."""

    def compose_mapping_node(self, anchor: Any) -> Any:
        node = super().compose_mapping_node(anchor)
        names: set[str] = set()
        for key in [key for key, _ in node.value if isinstance(key, yaml.ScalarNode) and key.value != "<<"]:
            if key.value in names:
                raise ValueError(f"{self.name} names {key.value} twice, again in line {key.start_mark.line + 1}.")
            names.add(key.value)
        return node


def read_yaml(path: str | Path) -> Any:
    """Read a YAML file, as Python values."""
    root = yaml_nodes(path)
    return None if root is None else yaml_value(path, root)


def yaml_nodes(path: str | Path) -> Any:
    """The root node of a YAML file, whose words have no types yet; None if it is empty."""
    with _readable_errors(path):
        loader = _Loader(Path(path).read_text(encoding="utf-8"))
        loader.name = str(path)
        return loader.get_single_node()


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
