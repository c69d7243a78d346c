"""Model folders as `save_pretrained` writes them, checked without loading them; every fault raises one sentence.

Only `config.json`, the tokenizer's JSON files and the headers of the safetensors files are read. Weights and sizes in
`config.json` are compared before anything is built from them: a file that claims 10^9 layers must not cost anything.
"""

import copy
import json
import os
import re
import shutil
from collections.abc import Callable, Iterable, Mapping
from functools import cached_property
from itertools import chain
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Any

from safetensors import SafetensorError, safe_open

from .errors import abbreviated, named_error, refuse_address, worded
from .moves import finish_moves

if TYPE_CHECKING:
    from transformers import PreTrainedConfig

WEIGHTS_FILE = "model.safetensors"
_ADAPTER_FILE = "adapter_config.json"  # PEFT's, of weights next to those of a model
OPENVINO_FILE = "openvino_model.xml"  # a graph, whose weights are in a .bin file
_GRAPHS = (OPENVINO_FILE, f"openvino/{OPENVINO_FILE}")  # of a conversion, and of a published folder
TASK_RECORD = "finetuned_for"  # the field of a configuration that records the task of `finetune`
# Configuration fields about the fine-tuned head; they are dropped for a model with another head.
SCORE_RECORDS = ("sentence_transformers", "sbert_ce_default_activation_function")  # a cross-encoder's, new and old
FIELDS_OF_A_HEAD = (
    *("id2label", "label2id", "num_labels", "problem_type", "classifier_pooling", TASK_RECORD),
    *SCORE_RECORDS,
)
PRETRAINING_HEAD = "PreTraining"
_HEAD = re.compile("For([A-Z].*)")  # not the "Former" of RoFormer
_INDEX = f"{WEIGHTS_FILE}.index.json"
ALL_WEIGHTS = ("model*.safetensors", _INDEX)
_TOKENIZER_JSON = ("tokenizer.json", "tokenizer_config.json", "special_tokens_map.json")
_OTHER_VOCABULARIES = ("vocab.json", "merges.txt", "spiece.model", "sentencepiece*.model")  # of BPE and SentencePiece
TOKENIZER_FILES = (*_TOKENIZER_JSON, "added_tokens.json", "vocab.txt", *_OTHER_VOCABULARIES)
"""Name patterns of the files of tokenizers of any kind."""
_READ_BESIDE_WEIGHTS = ("config.json", "tokenizer.json", "tokenizer_config.json", "vocab.txt")
_LONGEST_ANSWER = 5  # timeout of a request to the Hub, in seconds
DTYPES = ("float16", "bfloat16", "float32", "float64")
BERT_TYPES = (None, "bert", "mybert", "mybert-bilstm")
"""Model types with the parameter names of transformers' BERT; Google's releases have no type."""
ENCODERS = "bert, roberta, xlm-roberta, camembert, electra, distilbert, modernbert, mpnet"
"""The model types that predictions are tested with, for messages."""

# What wrappers put before the names of a model's weights, and whose.
_WRAPPERS = {"module.": "DataParallel", "_orig_mod.": "torch.compile", "model.": "Lightning"}
_WORDS = "embeddings.word_embeddings.weight"
# Sizes in the configuration: the letter that stands for each in the shapes below, and its default, that of BERT base.
# "A" is the width of all attention heads together, "C" the number of labels, "2" is two.
_SIZES = {
    "vocab_size": ("V", 30522),
    "hidden_size": ("H", 768),
    "num_hidden_layers": ("", 12),
    "num_attention_heads": ("", 12),
    "intermediate_size": ("I", 3072),
    "max_position_embeddings": ("P", 512),
    "type_vocab_size": ("T", 2),
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


class Checkpoint:
    """A model in a folder, or on the Hub by its name. Each part is read when it is first asked for, and only once."""

    def __init__(self, name: str | os.PathLike[str]) -> None:
        self.root = Path(name)  # has the files of sentence-transformers, whose version 1 has the model in a folder
        place = os.fspath(name)
        if not (self.root / "config.json").is_file() and (module := transformer_folder(self.root)):
            place = str(self.root / module)
        self.name, self.path = place, Path(place)
        self._checked = set[tuple[bool, bool]]()  # how `check_folder` has found no fault

    def check(self, argument: str = "model", ask_hub: bool = True, needs_weights: bool = True) -> "Checkpoint":
        """Check the name and, if it is a folder, what is in it; returns the checkpoint itself."""
        check_available(self.name, argument, ask_hub)
        if self.path.is_dir() and (needs_weights or self.has_weights or self.has_graph):
            self.check_folder(needs_weights)
        return self

    def check_folder(self, needs_weights: bool = True, may_be_wrapped: bool = False) -> "Checkpoint":
        """Check files, types and weights of a folder before anything is loaded; returns the checkpoint itself.

        Names of weights with the prefix of a wrapper are an error, unless they may have one.
        """
        if (needs_weights, may_be_wrapped) in self._checked:
            return self
        refuse_address(self.path, "a model folder: copy or mount what an object store has")
        finish_moves(self.path)
        if not self.path.is_dir():
            raise FileNotFoundError(f"There is no folder {self.path}; expected a model folder.")
        path, fields = self.path / "config.json", self.fields
        for file in map(self.path.joinpath, _TOKENIZER_JSON):
            if file.is_file():
                content = read_json_object(file)
                if file.name == "tokenizer.json" and not {"model", "added_tokens"} <= content.keys():
                    raise ValueError(
                        f"{file} has no model and added_tokens; expected a file of the tokenizers library."
                    )
        for name, (fits, expected) in _FIELDS.items():  # where a wrong type would raise unclear errors in transformers
            value = fields.get(name)
            if value is not None and not fits(value):
                raise ValueError(f"{path}: {name} is {_shown(value)}; expected {expected}.")
        numbers = fields.get("id2label") or {}
        if set(numbers) != set(map(str, range(len(numbers)))):
            raise ValueError(f"{path}: id2label is {_shown(numbers)}; expected 0, 1, 2, ... as names, without gaps.")
        if fields.get("auto_map"):
            from transformers.models.auto.configuration_auto import CONFIG_MAPPING  # this import takes seconds

            if (model_type := fields.get("model_type")) not in CONFIG_MAPPING:
                raise ValueError(
                    f"{path}: model_type is {_shown(model_type)}, which is defined only by code in its folder; such "
                    "code is never run."
                )
        if fields.get("model_type") not in BERT_TYPES:
            _reject_generator(self.name, fields["model_type"])
        if needs_weights or self.has_weights:
            tensors = self.tensors
            if fields.get("model_type") in BERT_TYPES:
                wrapper = wrapper_prefix(tensors)
                if wrapper and not may_be_wrapped:
                    raise ValueError(unwrapping_advice(self.name, wrapper))
                shapes = {name.removeprefix(wrapper): shape for name, (_, shape) in tensors.items()}
                check_shapes(self.path, fields, shapes)
        self._checked.add((needs_weights, may_be_wrapped))
        return self

    @cached_property
    def fields(self) -> dict[str, Any]:
        """The content of `config.json`."""
        if self.path.is_dir():
            path = self.path / "config.json"
            if not path.is_file():
                self._reject_adapter()
            return read_json_object(path)
        from transformers import PreTrainedConfig

        fields: dict[str, Any] = PreTrainedConfig.get_config_dict(self.name)[0]
        return fields

    @cached_property
    def config(self) -> "PreTrainedConfig":
        """The configuration, without references to code in its folder, for `from_pretrained(..., config=config)`."""
        from transformers import AutoConfig

        is_own = self.path.is_dir() and self.fields.get("model_type") in BERT_TYPES[1:]
        try:
            if is_own:
                config = AutoConfig.for_model(**copy.deepcopy(self.fields) | {"name_or_path": self.name})
            else:
                config = AutoConfig.from_pretrained(self.name, trust_remote_code=False)
        except Exception as error:  # unexpected values can raise any exception in transformers
            raise named_error("configuration", self.name, error) from error
        if not is_own:
            _reject_generator(self.name, config.model_type)
        return without_foreign_code(config)

    def refuse_quantized_weights(self) -> None:
        """Reject a quantized model where floating-point weights are needed: for training and for other formats."""
        if quantized := self.fields.get("quantization_config"):
            method = quantized.get("quant_method") if isinstance(quantized, dict) else quantized
            raise ValueError(f"{self.name}: its weights are quantized ({method!r}); expected floating-point weights.")

    def _reject_adapter(self) -> None:
        """Reject a folder in which PEFT saved an adapter in place of a model."""
        if (path := self.path / _ADAPTER_FILE).is_file():
            base = read_json_object(path).get("base_model_name_or_path")
            of_base = f" of {_shown(base)}" if base else ""
            raise FileNotFoundError(
                f"{self.path} holds a PEFT adapter{of_base}; expected a model. In Python, with peft, "
                f"PeftModel.from_pretrained(model, {str(self.path)!r}).merge_and_unload().save_pretrained(...) makes "
                "one of it; save the tokenizer there, too."
            )

    @property
    def has_weights(self) -> bool:
        """Whether a folder has weights of a model; a token store, or an adapter, is something else."""
        return any(self.path.glob("model*.safetensors"))

    @cached_property
    def graph_file(self) -> Path | None:
        """The graph for OpenVINO that the model has, if any; of a model on the Hub it is downloaded."""
        patterns = [str(Path(name).with_suffix(".*")) for name in _GRAPHS]
        folder = self.path if self.path.is_dir() else self.local_folder(patterns)
        return next(filter(Path.is_file, map(folder.joinpath, _GRAPHS)), None)

    @property
    def has_graph(self) -> bool:
        """Whether a folder has a graph for OpenVINO."""
        return self.path.is_dir() and self.graph_file is not None

    @property
    def has_only_graph(self) -> bool:
        """Whether OpenVINO has to compute a folder's model."""
        return self.has_graph and not self.has_weights

    @cached_property
    def weight_files(self) -> list[Path]:
        """The safetensors files of a folder: one, or the parts in its index; pickled weights are an error."""
        # Weights in one file win, as in transformers: `save_pretrained` does not delete the index of an earlier save.
        if (self.path / WEIGHTS_FILE).is_file():
            return [self.path / WEIGHTS_FILE]
        if (self.path / _INDEX).is_file():
            parts = read_json_object(self.path / _INDEX).get("weight_map")
            names = sorted(set(map(str, parts.values()))) if isinstance(parts, dict) else []
            if not names or any(Path(name).name != name for name in names):
                raise ValueError(f"{self.path / _INDEX} has no weight_map that names files of its folder.")
            for name in names:
                if not (self.path / name).is_file():
                    raise FileNotFoundError(f"There is no {name} in {self.path}, which {_INDEX} names.")
            return [self.path / name for name in names]
        if self.has_graph:
            raise FileNotFoundError(f"{self.path} holds only {OPENVINO_FILE}; this needs {WEIGHTS_FILE}.")
        graphs = sorted(path for pattern in ("*.onnx", "onnx/*.onnx") for path in self.path.glob(pattern))
        if graphs:
            raise FileNotFoundError(
                f"{self.path} holds an ONNX graph ({graphs[0].relative_to(self.path)}) and no {WEIGHTS_FILE}; mybert "
                "reads the folder that it was converted from, or what `mybert convert openvino` writes. The graph is "
                "for onnxruntime's InferenceSession and other tools: docs/graphs.md."
            )
        self._reject_adapter()
        pickled = next((path for path in self.path.glob("*.bin") if path.name != "training_args.bin"), None)
        if pickled is not None:
            raise FileNotFoundError(
                f"{self.path} holds only pickled weights ({pickled.name}), which are not read; expected "
                f"{WEIGHTS_FILE}, as transformers' save_pretrained writes it."
            )
        raise FileNotFoundError(f"There is no {WEIGHTS_FILE} in {self.path}.")

    @cached_property
    def tensors(self) -> dict[str, tuple[Path, tuple[int, ...]]]:
        """Name of each tensor of a folder -> its file and its shape, from the headers alone."""
        tensors: dict[str, tuple[Path, tuple[int, ...]]] = {}
        for file in self.weight_files:
            try:
                with open_safetensors(file, "np") as weights:
                    for name in weights.keys():  # noqa: SIM118 -- no dictionary
                        tensors[name] = file, tuple(weights.get_slice(name).get_shape())
            except SafetensorError as error:
                raise ValueError(
                    f"{file} cannot be read ({str(error)[:150]}); expected a complete safetensors file."
                ) from None
        return tensors

    @property
    def deciding_files(self) -> list[str]:
        """The files that determine a model's outputs: configuration, tokenizer, weights; empty if it is no folder."""
        graph = self.graph_file if self.has_graph else None
        parts = [graph, graph.with_suffix(".bin")] if graph else []
        weights = [*(self.weight_files if self.has_weights else ()), *parts]
        beside = [*map(self.path.joinpath, _READ_BESIDE_WEIGHTS), *chain(*map(self.path.glob, _OTHER_VOCABULARIES))]
        return [str(path) for path in (*weights, *beside) if path.is_file()]

    def local_folder(self, patterns: Iterable[str]) -> Path:
        """The folder itself, or the cached copy of the files whose names match, if the model is on the Hub."""
        if self.path.is_dir():
            return self.root
        from huggingface_hub import snapshot_download

        return Path(snapshot_download(self.name, allow_patterns=list(patterns)))


def open_safetensors(path: Path, framework: str) -> Any:
    """`safe_open`, but a file that cannot be opened raises the system's error: safetensors calls each one missing."""
    try:
        return safe_open(path, framework=framework)
    except FileNotFoundError:
        path.open("rb").close()  # raises why
        raise
    except RuntimeError as error:  # torch's, which maps it
        raise OSError(f"{path} cannot be read: {error}.") from error


def wrapper_prefix(names: Iterable[str], base: str = "bert") -> str:
    """What stands before the names that a model gives its weights; `base` is the encoder's name in models with heads.

    transformers ignores weights with such names, and loads random ones.
    """
    for name in names:
        before, is_words, _ = name.rpartition(_WORDS)
        if is_words:
            return before.removesuffix(f"{base}.")
    return ""


def unwrapping_advice(name: str, wrapper: str) -> str:
    """The message for weights with such a prefix."""
    origin = f", as {_WRAPPERS[wrapper]} saves them" if wrapper in _WRAPPERS else ""
    return (
        f"The names of the weights in {name} begin with {wrapper!r}{origin}; expected those of the model within, by "
        f"its own save_pretrained. `mybert convert bert {name} OUTPUT` takes the prefix off the weights of a BERT."
    )


def distinct_names(paths: Iterable[str | os.PathLike[str]]) -> list[str]:
    """The last part of each path, with as many before it as tell the paths apart; the same path twice is numbered."""
    parts = [Path(path).resolve().parts for path in paths]
    names: list[str] = []
    for length in range(1, max(map(len, parts)) + 1):
        names = ["/".join(path[-length:]) for path in parts]
        if len(set(names)) == len(set(parts)):
            break
    return [
        f"{name} ({names[: place + 1].count(name)})" if names.count(name) > 1 else name
        for place, name in enumerate(names)
    ]


def head_name(class_name: str) -> str:
    """The kind of head of a model class: the part of its name after "For"; "" for none."""
    found = _HEAD.search(class_name)
    return found[1] if found else ""


def check_available(name: str | os.PathLike[str], argument: str = "model", ask_hub: bool = True) -> None:
    """Reject a model that is neither local nor on the Hub, at once: transformers retries for 20 seconds."""
    refuse_address(name, "a model folder, or a name on the Hub")
    path, name = Path(name), os.fspath(name)
    finish_moves(path)
    if path.is_file() and argument != "tokenizer":  # which may be a file
        raise NotADirectoryError(
            worded("{:option} is {!r}, which is a file; expected the folder of a model.", argument, name)
        )
    # Hub names are not absolute, do not start with a dot or `~`, and have one slash at most. A name whose first part
    # is an existing folder is also treated as a path.
    is_in_a_folder = len(path.parts) == 2 and path.parent.is_dir()
    is_path = path.is_absolute() or name.startswith((".", "~")) or len(path.parts) > 2 or is_in_a_folder
    if path.exists() or not (is_path or ask_hub):
        return
    missing = FileNotFoundError(f"There is no model folder {name}.")
    if is_path:
        raise missing
    from huggingface_hub import get_hf_file_metadata, hf_hub_url, try_to_load_from_cache
    from huggingface_hub.errors import EntryNotFoundError, HFValidationError, HTTPError, RepositoryNotFoundError

    template = "{:option} is {!r}; there is no such folder here, and the Hub "
    try:
        # The Hub is not asked about names in the cache.
        if not any(isinstance(try_to_load_from_cache(name, file), str) for file in _READ_BESIDE_WEIGHTS):
            get_hf_file_metadata(hf_hub_url(name, "config.json"), timeout=_LONGEST_ANSWER)
    except EntryNotFoundError:
        return  # it exists; missing files are reported on loading
    except HFValidationError:
        raise missing from None
    except RepositoryNotFoundError as error:
        raise OSError(worded(f"{template}has none of that name, or it is private.", argument, name)) from error
    except (HTTPError, OSError) as error:
        raise OSError(worded(f"{template}could not be reached to look for it.", argument, name)) from error


def without_foreign_code(config: Any) -> Any:
    """Remove references to code in the model folder from its configuration: such code is never run or copied."""
    for name in ("auto_map", "custom_pipelines"):
        vars(config).pop(name, None)
    return config


def _reject_generator(name: str, model_type: str) -> None:
    """Reject a model that generates text, such as GPT-2 or T5: it has no masked-LM head in transformers."""
    from transformers.models.auto import modeling_auto as heads  # this import takes seconds

    generating = heads.MODEL_FOR_CAUSAL_LM_MAPPING_NAMES.keys() | heads.MODEL_FOR_SEQ_TO_SEQ_CAUSAL_LM_MAPPING_NAMES
    if model_type in generating - heads.MODEL_FOR_MASKED_LM_MAPPING_NAMES.keys() - {"xlnet"}:  # which masks by order
        raise ValueError(
            f"{name} is of type {model_type}, which generates text; expected an encoder ({ENCODERS}, or another type "
            "with a masked-LM head in transformers)."
        )


def read_json_object(path: str | os.PathLike[str]) -> dict[str, Any]:
    path = Path(path)
    if not path.is_file():
        raise FileNotFoundError(f"There is no file {path}.")
    try:
        content = json.loads(path.read_bytes())
    except RecursionError:
        raise ValueError(f"{path} is nested too deeply; expected a JSON object.") from None
    except ValueError as error:
        raise ValueError(f"{path} is not JSON ({str(error)[:150]}); expected a JSON object.") from None
    if not isinstance(content, dict):
        raise ValueError(f"{path} holds a JSON {type(content).__name__}; expected an object.")
    return content


def read_log_history(path: str | os.PathLike[str]) -> list[dict[str, Any]]:
    """What a run logged, from its `trainer_state.json`."""
    found = read_json_object(path).get("log_history")
    if not isinstance(found, list) or not all(isinstance(entry, dict) for entry in found):
        raise ValueError(f"{path} is not a trainer state; expected a list `log_history` of objects.")
    return found


def _holds_labels(value: Any) -> bool:
    return isinstance(value, dict) and all(isinstance(each, (str, int)) for each in value.values())


# Fields of a configuration: what they may be, and in words.
_FIELDS: dict[str, tuple[Callable[[Any], bool], str]] = {
    "model_type": (lambda value: isinstance(value, str), "a string"),
    "architectures": (
        lambda value: isinstance(value, list) and all(isinstance(name, str) for name in value),
        "a list of class names",
    ),
    **dict.fromkeys(("dtype", "torch_dtype"), (lambda value: value in DTYPES, f"one of {', '.join(DTYPES)}")),
    "id2label": (_holds_labels, 'an object such as {"0": "no", "1": "yes"}'),
    "label2id": (_holds_labels, 'an object such as {"no": 0, "yes": 1}'),
}


def check_shapes(model_dir: Path, config: dict[str, Any], shapes: dict[str, tuple[int, ...]]) -> None:
    """Check the sizes in the configuration of a BERT model, and that its tensors have the shapes that they imply."""
    path = model_dir / "config.json"
    sizes = {name: config.get(name, default) for name, (_, default) in _SIZES.items()}
    for name, size in sizes.items():
        lowest = 0 if name == "num_hidden_layers" else 1
        if type(size) is not int or size < lowest:
            raise ValueError(f"{path}: {name} is {_shown(size)}; expected a whole number of at least {lowest}.")
    if config.get("quantization_config"):  # these weights have other shapes
        return
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
            f"{path}: num_hidden_layers is {_shown(sizes['num_hidden_layers'])}, but the weights have {len(layers)} "
            "layers; expected the same number."
        )
    expected = {f"{prefix}embeddings.{name}": letters for name, letters in _EMBEDDINGS.items()}
    for number in layers:
        expected |= {f"{prefix}encoder.layer.{number}.{name}": letters for name, letters in _LAYER.items()}
    optional = {f"{prefix}pooler.dense.weight": "HH", f"{prefix}pooler.dense.bias": "H", **_HEADS}
    numbers = {letter: sizes[name] for name, (letter, _) in _SIZES.items()} | {"A": sizes["hidden_size"], "2": 2}
    own = config.get("head_dim")  # if heads were pruned
    if type(own) is int and config.get("model_type") != "bert":
        numbers["A"] = own * sizes["num_attention_heads"]
    if config.get("model_type") != "mybert-bilstm":  # whose classifier follows the LSTM
        labels = config.get("id2label")
        count = config.get("num_labels", 2) if labels is None else len(labels)
        is_choice = any(name.endswith("ForMultipleChoice") for name in config.get("architectures") or ())
        numbers["C"] = 1 if is_choice else count if isinstance(count, int) else 2
        optional |= {"classifier.weight": "CH", "classifier.bias": "C"}
    for name, letters in (expected | optional).items():
        shape = tuple(numbers[letter] for letter in letters)
        if name in expected and name not in found:
            raise ValueError(f"The weights in {model_dir} lack {name}; expected it with shape {shape}.")
        if name in found and found[name] != shape:
            raise ValueError(
                f"{name} in {model_dir} has shape {found[name]}; expected {shape}, given the sizes in its config.json."
            )


def _shown(value: Any) -> str:
    return abbreviated(repr(value))


_MODULES = "modules.json"
_TEXT_SETTINGS = "sentence_bert_config.json"  # of the Transformer module
SENTENCE_SETTINGS = "config_sentence_transformers.json"
_SETTINGS = (_MODULES, SENTENCE_SETTINGS, _TEXT_SETTINGS)
# The same as patterns for `check_output_folder` and the Hub; modules lie in folders such as 1_Pooling.
COMPANIONS = (*_SETTINGS, "[1-9]_*/**", "[1-9][0-9]_*/**")


def companion_files(model_dir: str | Path) -> list[str]:
    """The files of sentence-transformers in a model folder, relative and sorted: settings, and those of modules."""
    model_dir = Path(model_dir)
    transformer = transformer_folder(model_dir)
    found = [*map(model_dir.joinpath, _SETTINGS), model_dir / transformer / _TEXT_SETTINGS]
    found = [path for path in found if path.is_file()]
    for module in sentence_modules(model_dir):
        if module["path"] and module["path"] != transformer:
            found += [path for path in (model_dir / module["path"]).rglob("*") if path.is_file()]
    for path in found:
        # Error messages name the file; a module's folder must be in this one.
        refuse_link_outside(path, model_dir)
    return sorted({path.relative_to(model_dir).as_posix() for path in found})


def copy_companions(source: str | Path, target: str | Path) -> list[str]:
    """Copy what `companion_files` lists into another model folder; returns the relative paths there.

    Files are copied byte by byte, except for `modules.json` of a folder that has the model in a folder of its own: in
    the other one the model is not.
    """
    source, target = Path(source), Path(target)
    transformer = transformer_folder(source)
    names = {name.removeprefix(f"{transformer}/"): name for name in companion_files(source)}
    for name, original in names.items():
        (target / name).parent.mkdir(parents=True, exist_ok=True)
        if name == _MODULES and transformer:
            modules = [
                module | {"path": "" if module["path"] == transformer else module["path"]}
                for module in sentence_modules(source)
            ]
            (target / name).write_text(json.dumps(modules, indent=2), encoding="utf-8")
        else:
            shutil.copyfile(source / original, target / name)
    return sorted(names)


def transformer_folder(model_dir: Path) -> str:
    """The folder in which sentence-transformers 1 put the model, `0_Transformer`; "" if it is in `model_dir`."""
    places = (module["path"] for module in sentence_modules(model_dir) if module_class(module) == "Transformer")
    return next(places, "")


def module_class(module: Mapping[str, Any]) -> str:
    """The name of the class of a module in `modules.json`."""
    return str(module.get("type")).rpartition(".")[2]


def sentence_modules(model_dir: Path) -> list[dict[str, Any]]:
    """The modules of sentence-transformers in a folder; each has the path of its folder, "" for the model's own."""
    file = model_dir / _MODULES
    if not file.is_file():
        return []
    try:
        modules = [module | {"path": module["path"]} for module in json.loads(file.read_bytes())]
        parts = {module["path"]: PurePosixPath(module["path"]).parts for module in modules}
        unsafe = [path for path, names in parts.items() if path and (not names or names[0] == "/" or ".." in names)]
    except (ValueError, RecursionError, KeyError, TypeError) as error:
        found = f"{type(error).__name__}: {str(error)[:100]}"
        raise ValueError(f"{file} is not a list of sentence-transformers modules ({found}).") from None
    if unsafe:
        raise ValueError(f"{file} names {unsafe[0][:100]!r}; expected folders within {model_dir}.")
    return modules


def refuse_link_outside(path: Path, model_dir: Path) -> None:
    """Reject a file of a model folder that is a link to somewhere outside; the Hub's cache is allowed."""
    # Otherwise a downloaded folder could leak private files when published or copied.
    folder = model_dir.resolve()
    if not any(path.resolve().is_relative_to(place) for place in (folder, folder.parent.parent / "blobs")):
        raise ValueError(f"{path} is a link that leads out of {model_dir}; expected a file.")
