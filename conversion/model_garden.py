"""The location of a TF2 model garden BERT in the object graph of a checkpoint."""

import re

from .tensorflow import ObjectGraph, TensorBundle

_LAYERS = "_transformer_layers"
# A functional Keras model numbers its layers; these are the encoder's first four, its blocks and the pooler follow.
_NUMBERED = ("_embedding_layer", "_position_embedding_layer", "_type_embedding_layer", "_embedding_norm_layer")


class GardenGraph(ObjectGraph):
    """The objects of a TF2 checkpoint; those of older encoders are renamed as in newer ones."""

    def __init__(self, bundle: TensorBundle) -> None:
        super().__init__(bundle)
        for node in range(len(self.children)):
            self._name_numbered_layers(node)

    def encoder(self) -> int | None:
        found = [node for node, names in enumerate(self.children) if {_LAYERS, _NUMBERED[-1]} <= names.keys()]
        if len(found) > 1:
            raise self.wrong(f"it holds {len(found)} encoders, expected one")
        return found[0] if found else None

    def pretrainer(self, encoder: int) -> int | None:
        """Find the node around an encoder that has most of the pretraining heads."""
        heads = {"masked_lm", "classification_heads"}
        around = [
            node for node, names in enumerate(self.children) if encoder in names.values() and heads & names.keys()
        ]
        return max(around, key=lambda node: len(heads & self.children[node].keys()), default=None)

    def num_layers(self, encoder: int) -> int:
        layers = self.find(encoder, _LAYERS)
        return 0 if layers is None else sum(name.isdecimal() for name in self.children[layers])

    def _name_numbered_layers(self, node: int) -> None:
        """Name the numbered layers of an older encoder as in newer ones."""
        names = self.children[node]
        numbered = {
            int(name[19:]): child for name, child in names.items() if re.fullmatch(r"layer_with_weights-\d{1,6}", name)
        }
        blocks = [n for n in sorted(numbered) if "_attention_layer" in self.children[numbered[n]]]
        if _LAYERS in names or not blocks or blocks[0] != len(_NUMBERED) or blocks[-1] - blocks[0] != len(blocks) - 1:
            return
        names |= {name: numbered[n] for n, name in enumerate(_NUMBERED) if n in numbered}
        names[_LAYERS] = len(self.children)
        self.children.append({str(number): numbered[n] for number, n in enumerate(blocks)})
        if blocks[-1] + 1 in numbered:
            names["_pooler_layer"] = numbered[blocks[-1] + 1]
