"""YAML of others: errors name the file, also where PyYAML takes the last of two values, or expands without limit."""

from itertools import chain
from pathlib import Path
from typing import Any

import yaml

from .errors import abbreviated

_MAX_EXPANSION = 10  # nodes for each character: without aliases, there are fewer nodes than characters


class _Loader(yaml.SafeLoader):
    """Rejects a map that names a key twice (`<<` may be repeated), and aliases that repeat a node without limit."""

    # Of YAML's truth values, true and false alone, as in YAML 1.2: `language: no` of a card is Norwegian.
    yaml_implicit_resolvers = {
        letter: [each for each in resolvers if letter in "tTfF" or each[0] != "tag:yaml.org,2002:bool"]
        for letter, resolvers in yaml.SafeLoader.yaml_implicit_resolvers.items()
    }

    def __init__(self, name: str, text: str) -> None:
        self._sizes: dict[yaml.Node, int] = {}  # of complete collections, with aliases expanded
        self._most = _MAX_EXPANSION * len(text)
        super().__init__(text)
        self.name = name

    def compose_node(self, parent: Any, index: Any) -> Any:
        is_alias, mark = self.check_event(yaml.AliasEvent), self.peek_event().start_mark
        node: Any = super().compose_node(parent, index)
        if isinstance(node, yaml.ScalarNode):
            return node
        if not is_alias:
            parts = chain(*node.value) if isinstance(node, yaml.MappingNode) else node.value
            self._sizes[node] = 1 + sum(self._sizes.get(part, 1) for part in parts)
        if node not in self._sizes or self._sizes[node] > self._most:
            raise yaml.composer.ComposerError(None, None, "aliases repeat it without limit", mark)
        return node

    def compose_mapping_node(self, anchor: Any) -> Any:
        node = super().compose_mapping_node(anchor)
        names: set[str] = set()
        for key in [key for key, _ in node.value if isinstance(key, yaml.ScalarNode) and key.value != "<<"]:
            if key.value in names:
                raise ValueError(f"{self.name} names {key.value} twice, again in line {key.start_mark.line + 1}.")
            names.add(key.value)
        return node

    def construct_object(self, node: Any, deep: bool = False) -> Any:
        try:
            return super().construct_object(node, deep)
        except (ValueError, LookupError, AttributeError, TypeError) as error:  # of a day such as 2001-02-30
            what = f"{abbreviated(str(node.value))!r} is not of the type {node.tag.rpartition(':')[2]}"
            raise yaml.constructor.ConstructorError(None, None, what, node.start_mark) from error


def read_yaml(path: str | Path) -> Any:
    """Read a YAML file, as Python values."""
    return yaml_value(str(path), yaml_nodes(path))


def yaml_nodes(path: str | Path) -> Any:
    """The root node of a YAML file, whose words have no types yet; None if it is empty."""
    try:
        return nodes_of_text(str(path), Path(path).read_text(encoding="utf-8"))
    except UnicodeDecodeError as error:
        raise ValueError(f"{path} is not UTF-8 text: bad byte at offset {error.start}.") from error


def nodes_of_text(name: str, text: str) -> Any:
    """As `yaml_nodes`, of a text that messages name."""
    try:
        return _Loader(name, text).get_single_node()
    except (yaml.YAMLError, RecursionError) as error:
        raise _readable(name, error) from error


def yaml_value(name: str, node: Any) -> Any:
    """The value of a node."""
    try:
        return None if node is None else _Loader(name, "").construct_document(node)
    except (yaml.YAMLError, RecursionError) as error:
        raise _readable(name, error) from error


def _readable(name: str, error: Exception) -> ValueError:
    if isinstance(error, RecursionError):
        return ValueError(f"{name} is nested too deeply; expected lines of the form 'name: value'.")
    return ValueError(f"{name} is not YAML: {' '.join(str(error).split())}.")
