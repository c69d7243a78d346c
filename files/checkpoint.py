"""Model folders as `save_pretrained` writes them, checked without loading them; every fault raises one sentence.

Only `config.json`, the tokenizer's JSON files and the headers of the safetensors files are read. Weights and sizes in
`config.json` are compared before anything is built from them: a file that claims 10^9 layers must not cost anything.
"""

import json
import os
import re
import shutil
from collections.abc import Iterable, Mapping
from pathlib import Path, PurePosixPath
from typing import Any

from safetensors import SafetensorError, safe_open

from .errors import refuse_address

WEIGHTS_FILE = "model.safetensors"
TASK_RECORD = "finetuned_for"  # the field of a configuration that records the task of `finetune`
# Configuration fields about the fine-tuned head; they are dropped for a model with another head.
FIELDS_OF_A_HEAD = ("id2label", "label2id", "num_labels", "problem_type", TASK_RECORD)
_INDEX = f"{WEIGHTS_FILE}.index.json"
_TOKENIZER_FILES = ("tokenizer.json", "tokenizer_config.json", "special_tokens_map.json")
_READ_BESIDE_WEIGHTS = ("config.json", "tokenizer.json", "tokenizer_config.json", "vocab.txt")
_DTYPES = ("float16", "bfloat16", "float32", "float64")
# Model types with the parameter names of transformers' BERT; Google's releases have no type.
_BERT_TYPES = (None, "bert", "mybert", "mybert-bilstm")
_BERT_BASE = {
    "vocab_size": 30522,
    "hidden_size": 768,
    "num_hidden_layers": 12,
    "num_attention_heads": 12,
    "intermediate_size": 3072,
    "max_position_embeddings": 512,
    "type_vocab_size": 2,
}
# Configuration fields for the letters of the shapes below; "C" is the number of labels, "2" is two.
_LETTERS = {
    "V": "vocab_size",
    "H": "hidden_size",
    "I": "intermediate_size",
    "P": "max_position_embeddings",
    "T": "type_vocab_size",
    "A": "attention_width",
}
_EMBEDDINGS = {
    "word_embeddings.weight": "VH",
    "position_embeddings.weight": "PH",
    "token_type_embeddings.weight": "TH",
    "LayerNorm.weight": "H",
    "LayerNorm.bias": "H",
}
_LAYER = {
    **{f"attention.self.{name}.weight": "AH" for name in ("query", "key", "value")},
    **{f"attention.self.{name}.bias": "A" for name in ("query", "key", "value")},
    "attention.output.dense.weight": "HA",
    "attention.output.dense.bias": "H",
    "attention.output.LayerNorm.weight": "H",
    "attention.output.LayerNorm.bias": "H",
    "intermediate.dense.weight": "IH",
    "intermediate.dense.bias": "I",
    "output.dense.weight": "HI",
    "output.dense.bias": "H",
    "output.LayerNorm.weight": "H",
    "output.LayerNorm.bias": "H",
}
# Optional parameters.
_HEADS = {
    "cls.predictions.bias": "V",
    "cls.predictions.decoder.weight": "VH",
    "cls.predictions.decoder.bias": "V",
    "cls.predictions.transform.dense.weight": "HH",
    "cls.predictions.transform.dense.bias": "H",
    "cls.predictions.transform.LayerNorm.weight": "H",
    "cls.predictions.transform.LayerNorm.bias": "H",
    "cls.seq_relationship.weight": "2H",
    "cls.seq_relationship.bias": "2",
    "qa_outputs.weight": "2H",
    "qa_outputs.bias": "2",
}


def check_model_folder(model_dir: str | os.PathLike[str]) -> dict[str, Any]:
    """Check files, types and weights of a model folder before it is loaded; returns its `config.json`."""
    model_dir = Path(model_dir)
    refuse_address(model_dir, "a model folder: copy or mount what an object store has")
    if not model_dir.is_dir():
        raise FileNotFoundError(f"There is no folder {model_dir}; expected a model folder.")
    path = model_dir / "config.json"
    config = read_json_object(path)
    for name in _TOKENIZER_FILES:
        if (model_dir / name).is_file():
            content = read_json_object(model_dir / name)
            if name == "tokenizer.json" and not {"model", "added_tokens"} <= content.keys():
                raise ValueError(
                    f"{model_dir / name} has no model and added_tokens; expected a file of the tokenizers library."
                )
    _check_fields(path, config)
    _refuse_type_of_foreign_code(path, config)
    shapes = tensor_shapes(model_dir)
    # Every tensor of embeddings, layers and heads has the shape that the sizes imply; quantized weights have others.
    if config.get("model_type") in _BERT_TYPES:
        sizes = _bert_sizes(path, config)
        if not config.get("quantization_config"):
            _compare(model_dir, config, sizes, shapes)
    return config


def refuse_quantized_weights(config: Mapping[str, Any], name: str | os.PathLike[str]) -> None:
    """Reject a quantized model where floating-point weights are needed: for training and for other formats."""
    if quantized := config.get("quantization_config"):
        method = quantized.get("quant_method") if isinstance(quantized, dict) else quantized
        raise ValueError(f"{name}: its weights are quantized ({method!r}); expected floating-point weights.")


def without_foreign_code(config: Any) -> Any:
    """Remove references to code in the model folder from its configuration: such code is never run or copied."""
    for name in ("auto_map", "custom_pipelines"):
        vars(config).pop(name, None)
    return config


def read_json_object(path: str | os.PathLike[str]) -> dict[str, Any]:
    path = Path(path)
    if not path.is_file():
        raise FileNotFoundError(f"There is no {path.name} in {path.parent}.")
    try:
        content = json.loads(path.read_bytes())
    except RecursionError:
        raise ValueError(f"{path} is nested too deeply; expected a JSON object.") from None
    except ValueError as error:
        raise ValueError(f"{path} is not JSON ({str(error)[:150]}); expected a JSON object.") from None
    if not isinstance(content, dict):
        raise ValueError(f"{path} holds a JSON {type(content).__name__}; expected an object.")
    return content


def has_weights(model_dir: str | os.PathLike[str]) -> bool:
    """Whether a folder has weights of a model; a token store, or an adapter, is something else."""
    return any(Path(model_dir).glob("model*.safetensors"))


def weight_files(model_dir: str | os.PathLike[str]) -> list[Path]:
    """The safetensors files of a model folder: one, or the parts in its index; pickled weights are an error."""
    model_dir = Path(model_dir)
    # Weights in one file win, as in transformers: `save_pretrained` does not delete the index of an earlier save.
    if (model_dir / WEIGHTS_FILE).is_file():
        return [model_dir / WEIGHTS_FILE]
    if (model_dir / _INDEX).is_file():
        parts = read_json_object(model_dir / _INDEX).get("weight_map")
        names = sorted(set(map(str, parts.values()))) if isinstance(parts, dict) else []
        if not names or any(Path(name).name != name for name in names):
            raise ValueError(f"{model_dir / _INDEX} has no weight_map that names files of its folder.")
        for name in names:
            if not (model_dir / name).is_file():
                raise FileNotFoundError(f"There is no {name} in {model_dir}, which {_INDEX} names.")
        return [model_dir / name for name in names]
    pickled = next((path for path in model_dir.glob("*.bin") if path.name != "training_args.bin"), None)
    if pickled is not None:
        raise FileNotFoundError(
            f"{model_dir} holds only pickled weights ({pickled.name}), which are not read; expected {WEIGHTS_FILE}, "
            "as transformers' save_pretrained writes it."
        )
    raise FileNotFoundError(f"There is no {WEIGHTS_FILE} in {model_dir}.")


def deciding_files(model: str | os.PathLike[str]) -> list[str]:
    """The files that determine a model's outputs: configuration, tokenizer, weights; empty if it is not a folder."""
    folder = Path(model)
    weights = weight_files(folder) if has_weights(folder) else []
    return [str(path) for path in (*weights, *(folder / name for name in _READ_BESIDE_WEIGHTS)) if path.is_file()]


def tensor_shapes(model_dir: str | os.PathLike[str]) -> dict[str, tuple[int, ...]]:
    """Name -> shape of every tensor of a model folder, from the headers alone."""
    shapes: dict[str, tuple[int, ...]] = {}
    for file in weight_files(model_dir):
        try:
            with safe_open(file, framework="np") as weights:
                shapes |= {name: tuple(weights.get_slice(name).get_shape()) for name in weights.keys()}  # noqa: SIM118
        except SafetensorError as error:
            raise ValueError(
                f"{file} cannot be read ({str(error)[:150]}); expected a complete safetensors file."
            ) from None
    return shapes


def _refuse_type_of_foreign_code(path: Path, config: dict[str, Any]) -> None:
    if not config.get("auto_map"):
        return
    from transformers.models.auto.configuration_auto import CONFIG_MAPPING  # this import takes seconds

    model_type = config.get("model_type")
    if model_type not in CONFIG_MAPPING:
        raise ValueError(
            f"{path}: model_type is {_shown(model_type)}, which is defined only by code in its folder; such code is "
            "never run."
        )


def _check_fields(path: Path, config: dict[str, Any]) -> None:
    """Check fields that transformers reads for every model, where a wrong type would raise unclear errors."""
    model_type = config.get("model_type")
    if model_type is not None and not isinstance(model_type, str):
        raise ValueError(f"{path}: model_type is {_shown(model_type)}; expected a string.")
    architectures = config.get("architectures")
    if architectures is not None and not (
        isinstance(architectures, list) and all(isinstance(name, str) for name in architectures)
    ):
        raise ValueError(f"{path}: architectures is {_shown(architectures)}; expected a list of class names.")
    for name in ("dtype", "torch_dtype"):
        dtype = config.get(name)
        if dtype is not None and (not isinstance(dtype, str) or dtype not in _DTYPES):
            raise ValueError(f"{path}: {name} is {_shown(dtype)}; expected one of {', '.join(_DTYPES)}.")
    for name, example in (("id2label", '{"0": "no", "1": "yes"}'), ("label2id", '{"no": 0, "yes": 1}')):
        labels = config.get(name)
        if labels is not None and not (
            isinstance(labels, dict) and all(isinstance(value, (str, int)) for value in labels.values())
        ):
            raise ValueError(f"{path}: {name} is {_shown(labels)}; expected an object such as {example}.")
    numbers = config.get("id2label") or {}
    if set(numbers) != set(map(str, range(len(numbers)))):
        raise ValueError(f"{path}: id2label is {_shown(numbers)}; expected 0, 1, 2, ... as names, without gaps.")


def _bert_sizes(path: Path, config: dict[str, Any]) -> dict[str, int]:
    """The sizes of a BERT model, by configuration field."""
    sizes = {name: config.get(name, default) for name, default in _BERT_BASE.items()}
    for name, size in sizes.items():
        lowest = 0 if name == "num_hidden_layers" else 1
        if not isinstance(size, int) or isinstance(size, bool) or size < lowest:
            raise ValueError(f"{path}: {name} is {_shown(size)}; expected a whole number of at least {lowest}.")
    # The width of all attention heads together; `head_dim` is set if heads were pruned.
    own = config.get("head_dim") if config.get("model_type") != "bert" else None
    is_number = isinstance(own, int) and not isinstance(own, bool)
    width = own * sizes["num_attention_heads"] if is_number else sizes["hidden_size"]
    return sizes | {"attention_width": width}


def _compare(
    model_dir: Path, config: dict[str, Any], sizes: dict[str, int], shapes: dict[str, tuple[int, ...]]
) -> None:
    """Compare the tensors of a BERT model with the sizes in its configuration."""
    # Names before 2020 had gamma and beta; a model without a head may be saved without the prefix.
    found = {
        re.sub(r"LayerNorm\.gamma$", "LayerNorm.weight", re.sub(r"LayerNorm\.beta$", "LayerNorm.bias", name)): shape
        for name, shape in shapes.items()
    }
    prefix = "bert." if any(name.startswith("bert.") for name in found) else ""
    layer = re.compile(re.escape(prefix) + r"encoder\.layer\.(\d{1,9})\.")
    layers = {int(match[1]) for match in map(layer.match, found) if match}
    if layers != set(range(min(sizes["num_hidden_layers"], len(found) + 1))):
        raise ValueError(
            f"{model_dir / 'config.json'}: num_hidden_layers is {_shown(sizes['num_hidden_layers'])}, but the weights "
            f"have {len(layers)} layers; expected the same number."
        )
    expected = {f"{prefix}embeddings.{name}": letters for name, letters in _EMBEDDINGS.items()}
    for number in layers:
        expected |= {f"{prefix}encoder.layer.{number}.{name}": letters for name, letters in _LAYER.items()}
    optional = {f"{prefix}pooler.dense.weight": "HH", f"{prefix}pooler.dense.bias": "H", **_HEADS}
    numbers = {letter: sizes[name] for letter, name in _LETTERS.items()} | {"2": 2}
    if config.get("model_type") != "mybert-bilstm":  # whose classifier follows the LSTM
        numbers["C"] = _labels(config)
        optional |= {"classifier.weight": "CH", "classifier.bias": "C"}
    for name, letters in (expected | optional).items():
        shape = tuple(numbers[letter] for letter in letters)
        if name in expected and name not in found:
            raise ValueError(f"The weights in {model_dir} lack {name}; expected it with shape {shape}.")
        if name in found and found[name] != shape:
            raise ValueError(
                f"{name} in {model_dir} has shape {found[name]}; expected {shape}, given the sizes in its config.json."
            )


def _labels(config: dict[str, Any]) -> int:
    """Number of outputs of the classifier."""
    if any(name.endswith("ForMultipleChoice") for name in config.get("architectures") or ()):
        return 1
    labels = config.get("id2label")
    count = config.get("num_labels", 2) if labels is None else len(labels)
    return count if isinstance(count, int) else 2


def _shown(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 80 else f"{text[:77]}..."


_MODULES = "modules.json"
_SETTINGS = (_MODULES, "config_sentence_transformers.json", "sentence_bert_config.json")
# The same as patterns for `check_output_folder` and the Hub; modules lie in folders such as 1_Pooling.
COMPANIONS = (*_SETTINGS, "[1-9]_*/**", "[1-9][0-9]_*/**")


def companion_files(model_dir: str | Path) -> list[str]:
    """The files of sentence-transformers in a model folder, relative and sorted: settings, and those of modules."""
    model_dir = Path(model_dir)
    found = [model_dir / name for name in _SETTINGS if (model_dir / name).is_file()]
    for module in _module_folders(model_dir):
        found += [path for path in (model_dir / module).rglob("*") if path.is_file()]
    for path in found:
        # Error messages name the file; a module's folder must be in this one.
        refuse_link_outside(path, model_dir)
    return sorted({path.relative_to(model_dir).as_posix() for path in found})


def copy_companions(source: str | Path, target: str | Path) -> list[str]:
    """Copy what `companion_files` lists into another model folder, byte by byte; returns the relative paths."""
    names = companion_files(source)
    for name in names:
        copy = Path(target) / name
        copy.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(Path(source) / name, copy)
    return names


def _module_folders(model_dir: Path) -> list[str]:
    """The folders of modules; the model itself is not in one."""
    file = model_dir / _MODULES
    if not file.is_file():
        return []
    try:
        modules = json.loads(file.read_bytes())
        paths = [module["path"] for module in modules if module["path"]]
        parts = {path: PurePosixPath(path).parts for path in paths}
        unsafe = [path for path, names in parts.items() if not names or names[0] == "/" or ".." in names]
    except (ValueError, RecursionError, KeyError, TypeError) as error:
        found = f"{type(error).__name__}: {str(error)[:100]}"
        raise ValueError(f"{file} is not a list of sentence-transformers modules ({found}).") from None
    if unsafe:
        raise ValueError(f"{file} names {unsafe[0][:100]!r}; expected folders within {model_dir}.")
    return paths


def refuse_link_outside(path: Path, model_dir: Path) -> None:
    """Reject a file of a model folder that is a link to somewhere outside; the Hub's cache is allowed."""
    # Otherwise a downloaded folder could leak private files when published or copied.
    folder = model_dir.resolve()
    if not any(path.resolve().is_relative_to(place) for place in (folder, folder.parent.parent / "blobs")):
        raise ValueError(f"{path} is a link that leads out of {model_dir}; expected a file.")


_LONGEST_ANSWER = 5  # timeout of a request, in seconds
# A model or tokenizer has at least one of these files.
_FILES = ("config.json", "tokenizer_config.json", "tokenizer.json", "vocab.txt")


def check_path(name: str | os.PathLike[str], argument: str = "model") -> None:
    """Reject a missing path; a tokenizer may be a file."""
    refuse_address(name, "a model folder, or a name on the Hub")
    path, name = Path(name), os.fspath(name)
    if path.is_file() and argument != "tokenizer":
        raise NotADirectoryError(f"{argument} is {name!r}, which is a file; expected the folder of a model.")
    # Hub names are not absolute, do not start with a dot or `~`, and have one slash at most. A name whose first part
    # is an existing folder is also treated as a path.
    is_in_a_folder = len(path.parts) == 2 and path.parent.is_dir()
    is_path = path.is_absolute() or name.startswith((".", "~")) or len(path.parts) > 2 or is_in_a_folder
    if is_path and not path.exists():
        raise FileNotFoundError(f"There is no model folder {name}.")


def check_available(name: str | os.PathLike[str], argument: str = "model") -> None:
    """Reject a model that is neither local nor on the Hub, at once: transformers retries for 20 seconds."""
    check_path(name, argument)
    if Path(name).exists():
        return
    from huggingface_hub import get_hf_file_metadata, hf_hub_url, try_to_load_from_cache
    from huggingface_hub.errors import EntryNotFoundError, HFValidationError, HTTPError, RepositoryNotFoundError

    name = os.fspath(name)
    what = f"{argument} is {name!r}; there is no such folder here, and"
    try:
        # The Hub is not asked about names in the cache.
        if not any(isinstance(try_to_load_from_cache(name, file), str) for file in _FILES):
            get_hf_file_metadata(hf_hub_url(name, "config.json"), timeout=_LONGEST_ANSWER)
    except EntryNotFoundError:
        return  # it exists; missing files are reported on loading
    except HFValidationError:
        raise FileNotFoundError(f"There is no model folder {name}.") from None
    except RepositoryNotFoundError as error:
        raise OSError(f"{what} the Hub has none of that name, or it is private.") from error
    except (HTTPError, OSError) as error:
        raise OSError(f"{what} the Hub could not be reached to look for it.") from error


def local_folder(name: str | os.PathLike[str], patterns: Iterable[str]) -> Path:
    """The folder itself, or the cached copy of some files, by patterns of their names, of a model on the Hub."""
    if Path(name).is_dir():
        return Path(name)
    from huggingface_hub import snapshot_download

    return Path(snapshot_download(os.fspath(name), allow_patterns=list(patterns)))
