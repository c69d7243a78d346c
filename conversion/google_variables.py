"""Matching the variables of a Google checkpoint with parameters; every one of both is accounted for."""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from tqdm.auto import tqdm

from .key_map import GROUPS, HEADS, IGNORED, UNUSED_BY_HEAD, WeightRow, sizes_of, trunk_rows
from .tensorflow import GRAPH_KEY, SUFFIX, ObjectGraph, TensorBundle

_LAYER = re.compile(r"bert/encoder/layer_(\d+)/")
_FLOATS = ("float16", "bfloat16", "float32", "float64")
_SHOWN = 8  # names in a message
_BLOCKS = "_transformer_layers"
# A functional Keras model numbers its layers; these are the encoder's first four, its blocks and the pooler follow.
_NUMBERED = ("_embedding_layer", "_position_embedding_layer", "_type_embedding_layer", "_embedding_norm_layer")


class GardenGraph(ObjectGraph):
    """The objects of a TF2 model garden checkpoint; those of older encoders are renamed as in newer ones."""

    def __init__(self, bundle: TensorBundle) -> None:
        super().__init__(bundle)
        self._prefix = bundle.prefix
        for node in range(len(self.children)):
            self._name_numbered_layers(node)

    def encoder(self) -> int | None:
        found = [node for node, names in enumerate(self.children) if {_BLOCKS, _NUMBERED[-1]} <= names.keys()]
        if len(found) > 1:
            raise ValueError(f"{self._prefix}: object graph: it holds {len(found)} encoders, expected one")
        return found[0] if found else None

    def pretrainer(self, encoder: int) -> int | None:
        """Find the node around an encoder that has most of the pretraining heads."""
        heads = {"masked_lm", "classification_heads"}
        around = [
            node for node, names in enumerate(self.children) if encoder in names.values() and heads & names.keys()
        ]
        return max(around, key=lambda node: len(heads & self.children[node].keys()), default=None)

    def num_layers(self, encoder: int) -> int:
        layers = self.find(encoder, _BLOCKS)
        return 0 if layers is None else sum(name.isdecimal() for name in self.children[layers])

    def _name_numbered_layers(self, node: int) -> None:
        """Name the numbered layers of an older encoder as in newer ones."""
        names = self.children[node]
        numbered = {
            int(name[19:]): child for name, child in names.items() if re.fullmatch(r"layer_with_weights-\d{1,6}", name)
        }
        blocks = [n for n in sorted(numbered) if "_attention_layer" in self.children[numbered[n]]]
        if _BLOCKS in names or not blocks or blocks[0] != len(_NUMBERED) or blocks[-1] - blocks[0] != len(blocks) - 1:
            return
        names |= {name: numbered[n] for n, name in enumerate(_NUMBERED) if n in numbered}
        names[_BLOCKS] = len(self.children)
        self.children.append({str(number): numbered[n] for number, n in enumerate(blocks)})
        if blocks[-1] + 1 in numbered:
            names["_pooler_layer"] = numbered[blocks[-1] + 1]


class GoogleVariables:
    """The variables of a checkpoint under the names of `key_map`, whatever their keys are."""

    def __init__(self, bundle: TensorBundle) -> None:
        self.bundle = bundle
        self.layout = "keras" if any(key == GRAPH_KEY or key.endswith(SUFFIX) for key in bundle) else "google"
        if self.layout == "google":
            self.num_layers = len({match[1] for key in bundle if (match := _LAYER.match(key))})
            is_bert = "bert/embeddings/word_embeddings" in bundle
        else:
            self._graph = GardenGraph(bundle)
            encoder = self._graph.encoder()
            is_bert = encoder is not None
            if encoder is not None:
                self.num_layers = self._graph.num_layers(encoder)
                self._nodes = {"encoder": encoder, "pretrainer": self._graph.pretrainer(encoder)}
        if not is_bert:
            names = ", ".join(sorted(bundle)[:_SHOWN])
            raise ValueError(f"{bundle.prefix}: the checkpoint is not a BERT; it holds {names}")

    def key(self, variable: str) -> str | None:
        """Return the checkpoint key of a variable of `key_map`, or None."""
        if self.layout == "google":
            return variable if variable in self.bundle else None
        start, _, path = variable.partition("/")
        node = self._nodes.get(start)
        key = None if node is None else self._graph.variable(node, path)
        return key if key in self.bundle else None

    def has(self, group: str) -> bool:
        """Tell whether at least one row of a group is present."""
        return any(self.key(row.variable(self.layout)) for row in GROUPS[group])

    def head(self) -> str:
        if self.has("question answering"):
            return "question-answering"
        if self.has("classifier"):
            return "sequence-classification"
        both = (self.has("masked LM"), self.has("next sentence"))
        return {(True, True): "pretraining", (True, False): "masked-lm", (False, True): "next-sentence"}.get(
            both, "encoder"
        )

    def num_labels(self, hidden_size: int) -> int:
        """Count the labels of the classifier; 2, as in transformers, if there is no classifier of this hidden size."""
        shape = self._shape("output_weights")
        return shape[0] if len(shape) == 2 and shape[1] == hidden_size else 2

    def configuration(self) -> dict[str, int]:
        """Derive the sizes from the shapes of a TF2 checkpoint; only these show the number of attention heads."""
        path = self.bundle.prefix
        if self.layout == "google":
            problem = "no bert_config.json beside the checkpoint or in the folder above"
            raise FileNotFoundError(f"{path}: {problem}; pass config_file (--config_file)")
        sizes: dict[str, int] = {"num_hidden_layers": self.num_layers}
        for row in trunk_rows(1):
            fields = row.keras_shape or (row.shape[::-1] if row.keras.endswith("kernel") else row.shape)
            shape = self._shape(row.keras)
            if len(shape) != len(fields):
                raise ValueError(f"{path}: {row.keras} has shape {shape}, expected {len(fields)} sizes")
            sizes |= {str(name): size for name, size in zip(fields, shape, strict=True)}
        if sizes.pop("head_size") * sizes["num_attention_heads"] != sizes["hidden_size"]:
            raise ValueError(f"{path}: the shapes contradict each other: {sizes}")
        return sizes

    def _shape(self, variable: str) -> tuple[int, ...]:
        key = self.key(variable)
        return () if key is None else self.bundle.info[key].shape


@dataclass(frozen=True)
class ConversionPlan:
    """The use of every variable and the source of every parameter in a conversion."""

    bundle: TensorBundle = field(repr=False)
    head: str  # key of `HEADS`
    layout: str  # "google" or "keras"
    used: tuple[tuple[WeightRow, str], ...]  # with the checkpoint keys
    initialised: tuple[WeightRow, ...]
    ignored: Mapping[str, Sequence[str]] = field(repr=False)  # names of variables by kind

    def parameters(self) -> Iterator[tuple[str, np.ndarray]]:
        """Yield name and float32 array of each parameter in the checkpoint, one after the other."""
        for row, key in tqdm(self.used, desc="Reading the checkpoint", delay=2):
            yield row.parameter, row.to_parameter(self.layout, self.bundle[key])


def plan_conversion(variables: GoogleVariables, config: Any, head: str, ignore: Iterable[str] = ()) -> ConversionPlan:
    """Match variables and parameters; variables whose key fully matches a pattern of `ignore` may be unknown."""
    bundle, layout, groups = variables.bundle, variables.layout, HEADS[head].groups
    path = bundle.prefix
    if variables.num_layers != config.num_hidden_layers:
        found, wanted = variables.num_layers, config.num_hidden_layers
        raise ValueError(
            f"{path}: the checkpoint has {found} layers, num_hidden_layers of the configuration is {wanted}"
        )
    rows = trunk_rows(config.num_hidden_layers)
    initialised: list[WeightRow] = []
    for group in groups:
        # a pooler of the next sentence head replaces the encoder's
        if group == "pooler" and "next sentence" in groups and variables.has("next sentence pooler"):
            group = "next sentence pooler"
        (rows if variables.has(group) else initialised).extend(GROUPS[group])

    found_keys = [(row, variables.key(row.variable(layout))) for row in rows]
    if missing := [row.variable(layout) for row, key in found_keys if key is None]:
        raise ValueError(f"{path}: {len(missing)} variables of the model are missing: {_some(missing)}")
    used = tuple((row, key) for row, key in found_keys if key is not None)
    sizes = sizes_of(config)
    for row, key in used:
        info, expected = bundle.info[key], row.variable_shape(layout, sizes)
        if info.shape != expected:
            names = [size for size in dict.fromkeys(row.keras_shape or row.shape) if isinstance(size, str)]
            fields = ", ".join(f"{name} {sizes[name]}" for name in names)
            problem = f"has shape {info.shape}, but the configuration asks for {expected} ({fields})"
            raise ValueError(f"{path}: variable {key!r} {problem}")
        if info.dtype not in _FLOATS:
            raise ValueError(f"{path}: variable {key!r} is of type {info.dtype}; expected a floating point type")
    others = {variables.key(row.variable(layout)) for group in GROUPS.values() for row in group}
    ignored = _sort_out(bundle, {key for _, key in used}, others, ignore)
    return ConversionPlan(bundle, head, layout, used, tuple(initialised), ignored)


def _sort_out(
    bundle: TensorBundle, used: set[str], others: set[str | None], ignore: Iterable[str]
) -> dict[str, list[str]]:
    """Return the variables that are not used, by kind; unknown ones are an error."""
    kinds = [*IGNORED]
    for text in ignore:
        try:
            kinds.append(("named by the user", re.compile(text)))
        except re.error as error:
            raise ValueError(f"ignore: {text!r} is not a regular expression: {error}") from error
    ignored: dict[str, list[str]] = {}
    unknown = []
    for key in bundle:
        if key in used:
            continue
        kind = next((kind for kind, pattern in kinds if pattern.fullmatch(key)), None)
        if kind is None and key in others:
            kind = UNUSED_BY_HEAD
        if kind is None:
            unknown.append(key)
        else:
            ignored.setdefault(kind, []).append(key)
    if unknown:
        raise ValueError(
            f"{bundle.prefix}: {len(unknown)} variables are not known: {_some(unknown)}. "
            "Name them in `ignore` if the model does not need them."
        )
    return ignored


def _some(names: list[str]) -> str:
    shown = ", ".join(repr(name) for name in sorted(names)[:_SHOWN])
    return shown + (f" and {len(names) - _SHOWN} more" if len(names) > _SHOWN else "")
