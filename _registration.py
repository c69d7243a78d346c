"""Register MyBERT with transformers without importing it: each registry gets its entries when it is loaded.

`import mybert` alone takes milliseconds. transformers' Auto classes and pipelines may be imported before or after it.
"""

import importlib
import importlib.util
import sys
from collections.abc import Callable, Sequence
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType


def _register_config() -> None:
    from transformers.models.auto.configuration_auto import AutoConfig

    from .modeling_mybert import MyBertConfig

    AutoConfig.register(MyBertConfig.model_type, MyBertConfig, exist_ok=True)


def _register_models() -> None:
    from transformers.models.auto import modeling_auto

    from . import modeling_mybert

    for auto_class, source in modeling_mybert.auto_map().items():
        if auto_class == "AutoConfig":
            continue
        model_class = getattr(modeling_mybert, source.rpartition(".")[2])
        getattr(modeling_auto, auto_class).register(modeling_mybert.MyBertConfig, model_class, exist_ok=True)


def _register_tokenizer() -> None:
    from transformers.models.auto.tokenization_auto import AutoTokenizer

    from .modeling_mybert import MyBertConfig
    from .tokenization import MyBertTokenizer

    AutoTokenizer.register(MyBertConfig, fast_tokenizer_class=MyBertTokenizer, exist_ok=True)


def _register_pipelines() -> None:
    from .pipelines import register_pipelines

    register_pipelines()


def _register_adapters() -> None:
    """Set PEFT's default target layers for the model type: those of `bert`, which have the same names."""
    from peft.utils import constants

    for name, layers in vars(constants).items():
        if name.startswith("TRANSFORMERS_MODELS_TO_") and "bert" in layers:
            layers.setdefault("mybert", layers["bert"])


def _nothing() -> None:
    """Nothing to register: this module only delays registration."""


_ACTIONS: dict[str, Callable[[], None]] = {
    "transformers.models.auto.configuration_auto": _register_config,
    "transformers.models.auto.modeling_auto": _register_models,
    "transformers.models.auto.tokenization_auto": _register_tokenizer,
    "transformers.pipelines": _register_pipelines,
    "peft.utils.constants": _register_adapters,
    # Our classes need these, and they import a registry: registration waits until they are loaded.
    "transformers.modeling_utils": _nothing,
    "transformers.modeling_layers": _nothing,
    f"{__package__}.modeling_mybert.heads_mybert": _nothing,
    f"{__package__}.modeling_mybert.layers_mybert": _nothing,
    f"{__package__}.modeling_mybert.modeling_mybert": _nothing,
    f"{__package__}.modeling_mybert.pretraining_heads_mybert": _nothing,
    f"{__package__}.tokenization.tokenization_mybert": _nothing,
    f"{__package__}.tokenization": _nothing,
    f"{__package__}.pipelines.batched_pipeline": _nothing,
    f"{__package__}.pipelines.question_answering_pipeline": _nothing,
    f"{__package__}.pipelines.next_sentence_prediction_pipeline": _nothing,
    f"{__package__}.pipelines.multiple_choice_pipeline": _nothing,
    f"{__package__}.pipelines.windowed_pipelines": _nothing,
}


class _RegisterAfterImport(MetaPathFinder):
    """Watches for the modules of `_ACTIONS`, and registers once none of them is still being loaded."""

    def __init__(self) -> None:
        self.loading: list[str] = []
        self.pending: list[Callable[[], None]] = []

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """Find the module with the other finders, with a loader that reports its completion."""
        if fullname not in _ACTIONS or fullname in self.loading:
            return None
        self.loading.append(fullname)  # this finder skips itself in the following look-up
        try:
            spec = importlib.util.find_spec(fullname)
        finally:
            self.loading.remove(fullname)
        if spec is not None and spec.loader is not None:
            spec.loader = _ReportingLoader(spec.loader, self)
        return spec

    def run_pending(self) -> None:
        """Run the pending registrations, unless a module that they need is only partly loaded."""
        while self.pending and not self.loading:
            self.pending.pop(0)()


class _ReportingLoader(Loader):
    def __init__(self, loader: Loader, watcher: _RegisterAfterImport) -> None:
        self.loader = loader
        self.watcher = watcher

    def __getattr__(self, name: str) -> object:  # get_source, get_filename, ...: what the real loader has
        return getattr(self.loader, name)

    def create_module(self, spec: ModuleSpec) -> ModuleType | None:
        return self.loader.create_module(spec)

    def exec_module(self, module: ModuleType) -> None:
        self.watcher.loading.append(module.__name__)
        try:
            self.loader.exec_module(module)
        finally:
            self.watcher.loading.remove(module.__name__)
        self.watcher.pending.append(_ACTIONS[module.__name__])
        self.watcher.run_pending()


def register() -> None:
    """Register configuration, models, tokenizer and pipelines, now or as soon as transformers loads their registry."""
    watcher = _RegisterAfterImport()
    sys.meta_path.insert(0, watcher)
    watcher.pending.extend(action for name, action in _ACTIONS.items() if name in sys.modules)
    watcher.run_pending()
