"""What an import provides: names that load on first use, and MyBERT's registration with transformers.

The names of a package that load on first use (PEP 562) are those that its `if TYPE_CHECKING:` block imports.
"""

import functools
import importlib
import importlib.util
import sys
from collections.abc import Callable
from itertools import dropwhile
from pathlib import Path
from typing import Any


def lazy_names(package: str) -> tuple[Callable[[str], Any], Callable[[], list[str]]]:
    """The `__getattr__` and the `__dir__` of a package."""

    def load(name: str) -> Any:
        if name not in modules_of_names(package):
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        return getattr(importlib.import_module(modules_of_names(package)[name], package), name)

    return load, lambda: sorted({*vars(sys.modules[package]), *modules_of_names(package)})


@functools.cache
def modules_of_names(package: str) -> dict[str, str]:
    """The module of each name that type checkers see in a package."""
    import ast  # not needed to start a command

    spec = importlib.util.find_spec(package)
    source: str = spec.loader.get_source(package)  # type: ignore[union-attr]  # also in a zip file
    blocks = [node.body for node in ast.parse(source).body if isinstance(node, ast.If)]
    imports = [node for block in blocks for node in block if isinstance(node, ast.ImportFrom)]
    return {alias.name: f"{'.' * node.level}{node.module}" for node in imports for alias in node.names}


def is_command() -> bool:
    """Whether this process is `mybert` or `python -m mybert`, which sets the environment before it imports torch."""
    if sys.argv[:1] == ["-m"]:  # Python is looking for the module
        return [*dropwhile(lambda word: word != "-m", sys.orig_argv)][1:2] == ["mybert"]
    return Path(*sys.argv[:1]).stem == "mybert"


def register() -> None:
    """Register configuration, tokenizer, models and pipelines; a second call changes nothing."""
    import transformers

    from . import modeling_mybert
    from .modeling_mybert import MyBertConfig
    from .modeling_mybert.bilstm import BILSTM_HEADS, MyBertBiLstmConfig
    from .pipelines import register_pipelines
    from .pipelines.openvino_model import OpenVinoConfig, OpenVinoModel
    from .tokenization import MyBertTokenizer

    for config_class in (MyBertConfig, MyBertBiLstmConfig):
        transformers.AutoConfig.register(config_class.model_type, config_class, exist_ok=True)
        transformers.AutoTokenizer.register(config_class, fast_tokenizer_class=MyBertTokenizer, exist_ok=True)
    for auto_class, source in modeling_mybert.auto_map().items():
        if auto_class != "AutoConfig":
            model_class = getattr(modeling_mybert, source.rpartition(".")[2])
            getattr(transformers, auto_class).register(MyBertConfig, model_class, exist_ok=True)
            getattr(transformers, auto_class).register(OpenVinoConfig, OpenVinoModel, exist_ok=True)
    for auto_class, model_class in BILSTM_HEADS.items():
        getattr(transformers, auto_class).register(MyBertBiLstmConfig, model_class, exist_ok=True)
    register_pipelines()
