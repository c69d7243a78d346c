"""The objects of a TF2 checkpoint: which path leads to which variable.

A TF2 checkpoint names a variable by one of the paths that lead to it, `a/b/.ATTRIBUTES/VARIABLE_VALUE`; a variable
that two objects share is stored under one of its paths only, and a SavedModel calls it `variables/7`. All other paths
are in the string tensor `_CHECKPOINTABLE_OBJECT_GRAPH`, a TrackableObjectGraph:

    graph   := 1 node*
    node    := 1 child*  2 attribute*
    child   := 1 node_id  2 local_name
    attribute := 1 name ("VARIABLE_VALUE")  3 checkpoint_key

Source: `tensorflow/core/protobuf/trackable_object_graph.proto`.
"""

from typing import Any

from .tensor_bundle import TensorBundle
from .wire import MalformedError, Message, naming

GRAPH_KEY = "_CHECKPOINTABLE_OBJECT_GRAPH"
SUFFIX = "/.ATTRIBUTES/VARIABLE_VALUE"


class ObjectGraph:
    """Objects as numbered nodes with named children; node 0 is the root."""

    def __init__(self, bundle: TensorBundle) -> None:
        self._path = bundle.prefix
        self.children: list[dict[str, int]] = [{}]
        self.keys: dict[int, str] = {}
        if bundle.info.get(GRAPH_KEY) is None:
            self._read_keys(bundle)
        else:
            content: Any = bundle[GRAPH_KEY]
            with naming(bundle.prefix):
                if content.dtype != object or content.shape:
                    raise MalformedError(f"object graph: {GRAPH_KEY} is not one string")
                self._read_graph(content[()])

    def find(self, node: int, path: str) -> int | None:
        """Follow a path from a node; None where it ends."""
        found: int | None = node
        for name in path.split("/"):
            if found is None:
                return None
            found = self.children[found].get(name)
        return found

    def variable(self, node: int, path: str) -> str | None:
        """Return the checkpoint key of the variable at the end of a path."""
        found = self.find(node, path)
        return None if found is None else self.keys.get(found)

    def _read_graph(self, graph: bytes) -> None:
        nodes = Message(graph).messages(1)
        self.children = [{} for _ in nodes] or self.children
        for node, message in enumerate(nodes):
            for found in message.messages(1):
                child = found.integer(1)
                if not 0 <= child < len(nodes):
                    raise MalformedError(f"object graph: node {node} has the child {child} of {len(nodes)} nodes")
                self.children[node][_text(found, 2)] = child
            for attribute in message.messages(2):
                if _text(attribute, 1) == "VARIABLE_VALUE" and 3 in attribute:
                    self.keys[node] = _text(attribute, 3)

    def _read_keys(self, bundle: TensorBundle) -> None:
        for key in bundle.info:
            if not key.endswith(SUFFIX):
                continue
            node = 0
            for name in key.removesuffix(SUFFIX).split("/"):
                name = name.replace(".S", "/").split("/")[-1]  # a slash within a name is written .S
                if name not in self.children[node]:
                    self.children[node][name] = len(self.children)
                    self.children.append({})
                node = self.children[node][name]
            self.keys[node] = key


def _text(message: Message, number: int) -> str:
    name = message.last_bytes(number)
    try:
        return name.decode()
    except UnicodeDecodeError:
        raise MalformedError(f"object graph: the name {name!r} is not UTF-8") from None
