"""Model folders: checked before a model is built, read tensor by tensor, and written completely or not at all."""

import hashlib
import os
import re
from collections.abc import Iterable, Iterator
from contextlib import AbstractContextManager
from functools import cached_property
from pathlib import Path
from typing import Any

import torch
from transformers import PreTrainedTokenizerBase

from .. import modeling_mybert
from ..files.checkpoint import (
    BERT_TYPES,
    COMPANIONS,
    FIELDS_OF_A_HEAD,
    Checkpoint,
    check_shapes,
    head_name,
    open_safetensors,
    wrapper_prefix,
)
from ..files.errors import SettingError
from ..files.loading import load_model, load_tokenizer
from ..files.output import MODEL_FOLDER, output_to
from ..files.processes import only_errors
from ..modeling_mybert import MyBertConfig
from .key_map import GROUPS, HEADS, TIED, UNUSED_BY_HEAD, WeightRow, head_of_class, model_rows

_MODEL_TYPES = ("mybert", "bert")
# transformers' Auto classes for the heads of encoders of other types.
_AUTO_CLASSES = {
    head: f"AutoModel{HEADS[head].class_suffix.removeprefix('Model')}"
    for head in HEADS.keys() - {"pretraining", "next-sentence"}
}
# Names in checkpoints that were written before 2020, and a buffer that was saved with them.
_OLD_NAMES = {"LayerNorm.gamma": "LayerNorm.weight", "LayerNorm.beta": "LayerNorm.bias"}
_BUFFERS = ("bert.embeddings.position_ids", "bert.embeddings.token_type_ids")
# References to our code, and fields that only MyBERT has.
_OUR_FIELDS = ("auto_map", "classifier_pooling", "custom_pipelines", "sparse_prediction", "unpad_inputs")
# Files that conversions add to a model folder.
_OWN_FILES = (
    "conversion.json",
    "optimizer.safetensors",
    "model.onnx*",
    "model_int8.onnx*",
    "openvino_model.*",
)


class ModelFolder:
    """A saved MyBERT or BERT model; tensors are read one at a time, under the parameter names of `key_map`."""

    def __init__(self, path: str | os.PathLike[str], head: str | None = None) -> None:
        self._checkpoint = Checkpoint(path).check_folder(may_be_wrapped=True)
        self.path, self.root = self._checkpoint.path, self._checkpoint.root
        self._checkpoint.refuse_quantized_weights()
        self.config = self._checkpoint.fields
        if self.config.get("model_type") not in _MODEL_TYPES:
            found = self.config.get("model_type")
            raise self._wrong(f"config.json has model_type {found!r}; expected 'mybert' or 'bert'")
        names = self.config.get("architectures")
        named = head_of_class(str(names[0])) if isinstance(names, list) and len(names) == 1 else None
        if not (head or named):
            classes = ", ".join(f"[My]Bert{kind.class_suffix}" for kind in HEADS.values())
            raise self._wrong(f"architectures in config.json is {names!r}; expected one of {classes}")
        self.head = head or str(named)
        if named not in (None, self.head):
            self.config = {name: value for name, value in self.config.items() if name not in FIELDS_OF_A_HEAD}
        tensors = self._checkpoint.tensors
        self._wrapper = wrapper_prefix(tensors)
        self._names = {_parameter(name.removeprefix(self._wrapper)): name for name in tensors}
        if self._predicts_words and self.config.get("tie_word_embeddings", True):
            for pair in TIED.items():  # of two that are tied a file may have either
                for name, other in (pair, pair[::-1]):
                    if other in self:
                        self._names.setdefault(name, self._names[other])
        if named not in (None, self.head):
            read = [self._names[row.parameter] for row in self.rows() if row.parameter in self]
            shapes = {name.removeprefix(self._wrapper): tensors[name][1] for name in read}
            try:  # the weights of the other head, before anything is written
                check_shapes(self.path, self.config_as(self.config["model_type"]), shapes)
            except ValueError as error:
                template = "{head} is {!r} and the model a {}: {}"
                raise SettingError.worded(template, self.head, (names or [])[0], error) from None

    def __contains__(self, parameter: str) -> bool:
        return parameter in self._names

    def __iter__(self) -> Iterator[str]:
        return iter(sorted(self._names))

    def read(self, parameter: str) -> torch.Tensor:
        name = self._names[parameter]
        return _read(self._checkpoint.tensors[name][0], name)

    def digest(self) -> str:
        """The digest of its parameters."""
        return _digest((name, self.read(name)) for name in self.parameters())

    def rows(self) -> list[WeightRow]:
        rows = model_rows(self.head, self.config.get("num_hidden_layers", 12))
        # an encoder may have been saved without its pooler, as for sentence embeddings
        is_saved = any(row.parameter in self for row in GROUPS["pooler"])
        if self._pools_by_mean or (self.head == "encoder" and not is_saved):
            rows = [row for row in rows if row not in GROUPS["pooler"]]
        return rows

    def parameters(self) -> list[str]:
        """Name the parameters of this model; a missing one is an error."""
        names = [row.parameter for row in self.rows()]
        if self.untied:
            names += TIED
        if missing := [name for name in names if name not in self._names]:
            raise self._wrong(f"{len(missing)} parameters are missing, {', '.join(missing[:8])}")
        return names

    @property
    def _predicts_words(self) -> bool:
        return "masked LM" in HEADS[self.head].groups

    @cached_property
    def untied(self) -> str:
        """Why the output layer of masked LM has parameters of its own; empty if it has none."""
        if not self._predicts_words:
            return ""
        if not self.config.get("tie_word_embeddings", True):
            return "tie_word_embeddings is false"
        for name, other in TIED.items():  # transformers does not tie two that differ
            if self._names.get(name) == self._names.get(other):
                continue
            if not torch.equal(self.read(name).float(), self.read(other).float()):
                return f"{name} differs from {other}"
        return ""

    def ignored(self, used: Iterable[str]) -> dict[str, list[str]]:
        """Name the tensors that a conversion does not use, by kind; empty if there are none."""
        names = sorted(self._names.keys() - set(used) - TIED.keys() - set(_BUFFERS))
        return {UNUSED_BY_HEAD: names} if names else {}

    def load_tokenizer(self, **settings: Any) -> PreTrainedTokenizerBase:
        """The tokenizer, without which a model reads no text."""
        return load_tokenizer(self._checkpoint, **settings)

    def load(self, model_type: str | None = None) -> tuple[Any, dict[str, Any]]:
        """Load the model in float32, by default as its own type, with what `from_pretrained` reports."""
        import transformers

        model_type = model_type or self.config["model_type"]
        package = modeling_mybert if model_type == "mybert" else transformers
        model_class: Any = getattr(package, HEADS[self.head].class_name(model_type))
        options: dict[str, Any] = {"output_hidden_states": False, "output_attentions": False}
        if self._wrapper:
            options["key_mapping"] = {f"^{re.escape(self._wrapper)}": ""}
        if self.head == "encoder":
            options["add_pooling_layer"] = GROUPS["pooler"][0].parameter in self
        with only_errors():
            model, report = model_class.from_pretrained(
                self.path, dtype=torch.float32, output_loading_info=True, **options
            )
        return model.eval(), report

    def config_as(self, model_type: str) -> dict[str, Any]:
        """Its `config.json` as a model of this type; plain BERT has none of the fields that only MyBERT knows."""
        left_out = _OUR_FIELDS if model_type == "bert" else ()
        config = {name: value for name, value in self.config.items() if name not in left_out}
        tied = {"tie_word_embeddings": False} if self.untied else {}
        return config | tied | {"model_type": model_type, "architectures": [HEADS[self.head].class_name(model_type)]}

    def load_for_graph(self) -> Any:
        """The MyBERT, all of whose parameters must be there."""
        self.parameters()
        return self.load("mybert")[0]

    def load_of_transformers(self) -> Any:
        """The BERT of transformers, if it computes this model."""
        self.require_plain_bert()
        return self.load("bert")[0]

    def config_of_graph(self) -> dict[str, Any]:
        """Its `config.json` as that of a plain BERT, the name by which other tools know the graph."""
        return self.config_as("bert")

    def configuration(self) -> MyBertConfig:
        try:
            return MyBertConfig.from_dict(self._checkpoint.fields | {"model_type": MyBertConfig.model_type})
        except ValueError as error:
            raise ValueError(f"{self.path / 'config.json'}: {error}") from error

    @property
    def _pools_by_mean(self) -> bool:
        """Whether it is a classifier on the mean of the hidden states, which has no pooler."""
        return self.head == "sequence-classification" and self.config.get("classifier_pooling") == "mean"

    @property
    def own_feature(self) -> str | None:
        """What only MyBERT computes, if it has that: a classifier on the mean, or a head size of its own."""
        if self._pools_by_mean:
            return (
                "classifier_pooling is 'mean', and other BERTs classify the first token; expected a model fine-tuned "
                "with --pooling cls. `mybert convert onnx` and `mybert convert openvino` keep the mean; `mybert push` "
                "uploads the code that computes it"
            )
        if (own := self.config.get("head_dim")) is not None:
            heads, width = self.config.get("num_attention_heads"), self.config.get("hidden_size")
            return f"head_dim is {own}, with {heads} heads of a width of {width}; only MyBERT has such heads"
        return None

    @property
    def other_pooling(self) -> str | None:
        """Why transformers' BERT pools another token, if it does."""
        if self.config.get("is_decoder") and GROUPS["pooler"][0].parameter in self.parameters():
            return "is_decoder is true; MyBERT then pools the last token, transformers' bert the first"
        return None

    def require_plain_bert(self) -> None:
        """Reject a model that has a feature of its own."""
        if self.own_feature:
            raise self._wrong(self.own_feature)

    def labels(self) -> list[str]:
        """Name the classes of a classifier in the order of its rows, as its configuration does."""
        names = {int(number): str(name) for number, name in (self.config.get("id2label") or {}).items()}
        number = self.config.get("num_labels", 2)
        return [names[row] for row in sorted(names)] or [f"LABEL_{row}" for row in range(number)]

    def _wrong(self, problem: str) -> ValueError:
        return ValueError(f"{self.path}: {problem}")


class EncoderFolder:
    """A model folder of another type than BERT, which transformers' Auto classes load."""

    def __init__(self, checkpoint: Checkpoint) -> None:
        checkpoint.refuse_quantized_weights()
        self._checkpoint, self.path, self.root = checkpoint, checkpoint.path, checkpoint.root
        self.config = checkpoint.fields
        names = self.config.get("architectures") or []
        heads = {head_name(auto_class): head for head, auto_class in _AUTO_CLASSES.items()}
        self.head = heads.get(head_name(str(names[0])), "") if len(names) == 1 else ""
        if not self.head:
            raise ValueError(
                f"{self.path}: architectures in config.json is {names!r}; expected one of the classes of "
                f"{', '.join(sorted(_AUTO_CLASSES.values()))}"
            )

    def load_tokenizer(self, **settings: Any) -> PreTrainedTokenizerBase:
        """The tokenizer, without which a model reads no text."""
        return load_tokenizer(self._checkpoint, **settings)

    def load_for_graph(self) -> Any:
        """The model in float32; a pooler that was not saved is left out."""
        import transformers

        auto_class = getattr(transformers, _AUTO_CLASSES[self.head])
        model, report = load_model(self._checkpoint, auto_class, dtype=torch.float32, needs_head=True)
        if any(name.startswith("pooler.") for name in report["missing_keys"]):
            model.pooler = None
        return model.eval()

    load_of_transformers = load_for_graph

    def digest(self) -> str:
        """The digest of its tensors."""
        return _digest((name, _read(path, name)) for name, (path, _) in sorted(self._checkpoint.tensors.items()))

    def config_of_graph(self) -> dict[str, Any]:
        """Its `config.json`, without references to code."""
        return {name: value for name, value in self.config.items() if name not in ("auto_map", "custom_pipelines")}


def open_model_folder(path: str | os.PathLike[str], head: str | None = None) -> ModelFolder | EncoderFolder:
    """A model folder of any type of encoder; a BERT may be read with another head."""
    checkpoint = Checkpoint(path).check_folder(may_be_wrapped=True)
    return ModelFolder(path, head) if checkpoint.fields.get("model_type") in BERT_TYPES else EncoderFolder(checkpoint)


def _read(path: Path, name: str) -> torch.Tensor:
    # Reopened every time: a mapped page counts as memory for as long as its file stays mapped.
    with open_safetensors(path, "pt") as weights:
        return weights.get_tensor(name)  # in its stored dtype


def _digest(tensors: Iterable[tuple[str, torch.Tensor]]) -> str:
    """SHA-256 of names, types, shapes and values, however they are stored."""
    digest = hashlib.sha256()
    for name, tensor in tensors:
        digest.update(f"{name} {tensor.dtype} {tuple(tensor.shape)}".encode())
        digest.update(tensor.contiguous().view(-1).view(torch.uint8).numpy().data)
    return digest.hexdigest()


def _parameter(name: str) -> str:
    for old, new in _OLD_NAMES.items():
        name = name.replace(old, new)
    return f"bert.{name}" if name.startswith(("embeddings.", "encoder.", "pooler.")) else name


def new_model_folder(
    output_dir: str | os.PathLike[str], overwrite: bool, source: str | os.PathLike[str]
) -> AbstractContextManager[Path]:
    """Yield an empty folder, which replaces `output_dir` on success; other processes are locked out."""
    owned = (*MODEL_FOLDER, *COMPANIONS, *_OWN_FILES)
    return output_to(Path(output_dir), owned, overwrite=overwrite, read=[os.fspath(source)])
