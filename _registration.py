"""MyBERT's registration with transformers, and when it happens."""

import sys
from itertools import dropwhile
from pathlib import Path


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
    from .pipelines import register_pipelines
    from .pipelines.openvino_model import OpenVinoConfig, OpenVinoModel
    from .tokenization import MyBertTokenizer

    transformers.AutoConfig.register(MyBertConfig.model_type, MyBertConfig, exist_ok=True)
    transformers.AutoTokenizer.register(MyBertConfig, fast_tokenizer_class=MyBertTokenizer, exist_ok=True)
    for auto_class, source in modeling_mybert.auto_map().items():
        if auto_class != "AutoConfig":
            model_class = getattr(modeling_mybert, source.rpartition(".")[2])
            getattr(transformers, auto_class).register(MyBertConfig, model_class, exist_ok=True)
            getattr(transformers, auto_class).register(OpenVinoConfig, OpenVinoModel, exist_ok=True)
    register_pipelines()
