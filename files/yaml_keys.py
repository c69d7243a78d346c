"""Keys of YAML maps: of a key that is named twice, PyYAML takes the last value without a word."""

from typing import Any

import yaml


def refuse_repeated_keys(root: Any) -> None:
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
                    raise ValueError(f"names {name} twice, again in line {key.start_mark.line + 1}")
                keys.update([name] if name is not None else [])
                waiting.append(value)
