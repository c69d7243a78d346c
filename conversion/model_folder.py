"""Model folders: read tensor by tensor from safetensors files, and written so that none is ever half there."""

import json
import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open

from .errors import ConversionError, ModelFolderError
from .key_map import GROUPS, HEADS, TIED, Row, head_of_class, model_rows, name_in_model

WEIGHTS = "model.safetensors"
_INDEX = "model.safetensors.index.json"
_MODEL_TYPES = ("mybert", "bert")
# Names in checkpoints that were written before 2020, and a buffer that was saved with them.
_OLD_NAMES = {"LayerNorm.gamma": "LayerNorm.weight", "LayerNorm.beta": "LayerNorm.bias"}
_BUFFERS = ("bert.embeddings.position_ids", "bert.embeddings.token_type_ids")


class ModelFolder:
    """A saved MyBERT or BERT model; tensors are read one at a time, under the parameter names of `key_map`.

    Args:
        path: The folder.
        head: Kind of model to take its parameters for; by default the one that `architectures` names.

    Raises:
        ModelFolderError: If the folder is incomplete, holds another kind of model, or pickled weights only.
    """

    def __init__(self, path: str | os.PathLike[str], head: str | None = None) -> None:
        self.path = Path(path)
        self.config = read_json(self.path / "config.json", ModelFolderError)
        if self.config.get("model_type") not in _MODEL_TYPES:
            found = self.config.get("model_type")
            raise self._wrong(f"config.json has model_type {found!r}, expected 'mybert' or 'bert'")
        self.head = head or self._head()
        self._files = {name: file for file in self._weight_files() for name in self._names_in(file)}
        self._names = {self._parameter(name): name for name in self._files}

    def __contains__(self, parameter: str) -> bool:
        return parameter in self._names

    def __iter__(self) -> Iterator[str]:
        return iter(sorted(self._names))

    def read(self, parameter: str) -> torch.Tensor:
        """Read one parameter, in the type it is stored in."""
        # Opened anew every time: a mapped page counts as memory for as long as its file stays mapped.
        name = self._names[parameter]
        with safe_open(self._files[name], framework="pt") as weights:
            return weights.get_tensor(name)

    def rows(self) -> list[Row]:
        """Give the rows of the parameters that the model of this folder consists of, tied ones left out.

        A trunk may have been saved without its pooler, as for sentence embeddings.

        Raises:
            ModelFolderError: If the number of layers is none.
        """
        layers = self.config.get("num_hidden_layers", 12)
        if not isinstance(layers, int) or layers < 0:
            raise self._wrong(f"num_hidden_layers in config.json is {layers!r}, expected a number of at least 0")
        rows = model_rows(self.head, min(layers, len(self._names)))  # more layers than tensors cannot be there
        if self.head == "encoder" and not any(row.parameter in self for row in GROUPS["pooler"]):
            rows = [row for row in rows if row not in GROUPS["pooler"]]
        return rows

    def parameters(self) -> list[str]:
        """Name the parameters that the model of this folder consists of.

        Raises:
            ModelFolderError: If one of them is not there.
        """
        names = [row.parameter for row in self.rows()]
        if not self.config.get("tie_word_embeddings", True) and "masked LM" in HEADS[self.head].groups:
            names += TIED
        if missing := [name for name in names if name not in self._names]:
            raise self._wrong(f"{len(missing)} parameters are missing, {', '.join(missing[:8])}")
        return names

    def left_over(self) -> list[str]:
        """Name the tensors that the model of this folder does not use."""
        return sorted(self._names.keys() - set(self.parameters()) - TIED.keys() - set(_BUFFERS))

    def _head(self) -> str:
        names = self.config.get("architectures")
        head = head_of_class(str(names[0])) if isinstance(names, list) and len(names) == 1 else None
        if head is None:
            classes = ", ".join(f"[My]Bert{head.class_suffix}" for head in HEADS.values())
            raise self._wrong(f"architectures in config.json is {names!r}, expected one of {classes}")
        return head

    def _names_in(self, file: Path) -> list[str]:
        try:
            with safe_open(file, framework="pt") as weights:
                return list(weights.keys())
        except SafetensorError as error:
            raise self._wrong(f"the weights cannot be read: {error}") from error

    def _weight_files(self) -> list[Path]:
        # Weights in one file win, as in transformers: save_pretrained leaves the index of an earlier save behind.
        if (self.path / _INDEX).is_file() and not (self.path / WEIGHTS).is_file():
            weight_map = read_json(self.path / _INDEX, ModelFolderError).get("weight_map")
            names = sorted(set(map(str, weight_map.values()))) if isinstance(weight_map, dict) else []
            if any(Path(name).name != name for name in names):
                raise self._wrong(f"{_INDEX} names files outside the folder")
        else:
            names = [WEIGHTS]
        for name in names:
            if not (self.path / name).is_file():
                pickled = " pickled weights are not read; save the model again" if self._is_pickled() else ""
                raise self._wrong(f"there is no {name}{';' + pickled if pickled else ''}")
        return [self.path / name for name in names]

    def _is_pickled(self) -> bool:
        return any(self.path.glob("pytorch_model*.bin"))

    def _parameter(self, name: str) -> str:
        for old, new in _OLD_NAMES.items():
            name = name.replace(old, new)
        return f"bert.{name}" if name.startswith(("embeddings.", "encoder.", "pooler.")) else name

    def _wrong(self, problem: str) -> ModelFolderError:
        return ModelFolderError(path=self.path, problem=problem)


def read_json(path: Path, error: type[ConversionError]) -> dict[str, Any]:
    """Read a JSON object.

    Args:
        path: The file.
        error: One of the errors with `path` and `problem`.
    """
    if not path.is_file():
        raise error(path=path, problem="no such file")
    try:
        content = json.loads(path.read_bytes())
    except (ValueError, RecursionError) as problem:
        raise error(path=path, problem=f"not a JSON file: {problem}") from problem
    if not isinstance(content, dict):
        raise error(path=path, problem=f"holds a JSON {type(content).__name__}, expected an object")
    return content


def write_json(path: Path, content: Any) -> None:
    """Write JSON as transformers does: indented, sorted, with a line end."""
    path.write_text(json.dumps(content, indent=2, sort_keys=True, ensure_ascii=False) + "\n", encoding="utf-8")


def state_dict_names(parameters: Iterator[tuple[str, Any]], head: str) -> dict[str, Any]:
    """Collect parameters under the names that the model of a head has."""
    return {name_in_model(parameter, head): value for parameter, value in parameters}


@contextmanager
def new_folder(output_dir: str | os.PathLike[str]) -> Iterator[Path]:
    """Give a temporary folder beside `output_dir`, and move its files there when all went well."""
    output = Path(output_dir)
    output.parent.mkdir(parents=True, exist_ok=True)
    temporary = Path(tempfile.mkdtemp(prefix=f".{output.name}.tmp-", dir=output.parent))
    try:
        yield temporary
        output.mkdir(exist_ok=True)
        for file in sorted(temporary.iterdir(), key=lambda path: (path.name == "config.json", path.name)):
            file.replace(output / file.name)
    finally:
        shutil.rmtree(temporary, ignore_errors=True)
