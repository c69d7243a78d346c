"""Code of others in the network: hooks, and modules that a user has replaced, subclassed or patched.

Such code may read any token and expects the rows of the batch, as in transformers' BERT. A network that holds some
runs without packing, and computes all tokens.
"""

import functools
from collections.abc import Callable
from typing import Any

import torch
from torch import nn
from torch.nn.modules import module as torch_module

_OURS = f"{__name__.rpartition('.')[0]}."  # the Hub's copies of these files have a package of their own
# Where classes are defined whose modules treat each token alike.
_KNOWN_CLASSES = (
    _OURS,
    "bitsandbytes.nn.",
    "peft.",
    "torch.ao.",
    "torch.distributed.",
    "torch.nn.utils.",
    *(
        f"torch.nn.modules.{file}"
        for file in ("activation", "container", "dropout", "linear", "module", "normalization", "sparse")
    ),
    "transformers.activations",
)
# Hooks of these modules move or compute weights, count operations or collect requested outputs.
_KNOWN_HOOKS = (
    "torch.distributed.",
    "torch.nn.utils.",
    "torch.utils.",
    "transformers.utils.output_capturing",
    "deepspeed.",
)
_CHECKPOINTING = "transformers.modeling_layers"  # wraps the `forward` of each class of layers

_GLOBAL_HOOKS = (
    torch_module._global_forward_hooks,
    torch_module._global_forward_pre_hooks,
    torch_module._global_backward_hooks,
    torch_module._global_backward_pre_hooks,
)


def is_changed(*modules: nn.Module | None, leave_out: nn.Module | None = None) -> bool:
    """Whether a call of these modules runs code of others, in themselves or in a submodule but `leave_out`."""
    left, classes = list(modules), set()
    while left:  # runs on every call of a model, and `modules()` is slow
        module = left.pop()
        if module is None or module is leave_out:
            continue
        inside = module.__dict__
        if (
            "forward" in inside
            or inside["_forward_hooks"]
            or inside["_forward_pre_hooks"]
            or inside["_backward_hooks"]
            or inside["_backward_pre_hooks"]
        ) and (has_foreign_hooks(*hooks_of(module)) or not runs_known_forward(module)):
            return True
        classes.add(type(module))
        if inside["_modules"]:
            left += inside["_modules"].values()
    is_known = _is_known_class if torch.compiler.is_compiling() else is_known_class  # it cannot trace the cache
    return has_foreign_hooks(*_GLOBAL_HOOKS) or not all(is_known(one, one.forward) for one in classes)


def has_hooks(module: nn.Module) -> bool:
    """Whether a call of a module does more than its class's own `forward`: hooks, or a replaced forward."""
    return (
        any(hooks_of(module))
        or any(_GLOBAL_HOOKS)
        or "forward" in module.__dict__  # accelerate replaces it
        or not is_known_class(type(module), type(module).forward)
    )


def hooks_of(module: nn.Module) -> tuple[dict[int, Any], ...]:
    """The hooks of a module itself."""
    return module._forward_hooks, module._forward_pre_hooks, module._backward_hooks, module._backward_pre_hooks


def has_foreign_hooks(*all_hooks: dict[int, Any]) -> bool:
    """Whether some of these hooks may depend on the rows of the batch."""
    return any(
        not (getattr(hook, "__module__", None) or "").startswith(_KNOWN_HOOKS)
        for hooks in all_hooks
        if hooks
        for hook in hooks.values()
    )


def _is_known_class(module_class: Any, forward: Any) -> bool:
    """Whether a class of modules and its `forward` are mybert's, PyTorch's or PEFT's and treat each token alike."""
    while _file_of(forward) == _CHECKPOINTING:
        forward = forward.__wrapped__
    return module_class.__module__.startswith(_KNOWN_CLASSES) and _file_of(forward).startswith(_KNOWN_CLASSES)


is_known_class: Callable[[Any, Any], bool] = functools.lru_cache(maxsize=1024)(_is_known_class)


def _file_of(function: Any) -> str:
    """Name of the file that defines a function; `functools.wraps` changes its `__module__`, but not this."""
    return getattr(function, "__globals__", {}).get("__name__", "")


def runs_known_forward(module: nn.Module) -> bool:
    """Whether nobody has replaced a module's own `forward`, but accelerate, which moves weights between devices."""
    inside, own = module.__dict__, type(module).forward
    if "forward" not in inside:
        return True
    hook = inside.get("_hf_hook")
    return (
        _file_of(getattr(inside["forward"], "func", None)) == "accelerate.hooks"
        and getattr(inside["_old_forward"], "__func__", None) is own
        and all(type(part).__module__ == "accelerate.hooks" for part in getattr(hook, "hooks", (hook,)))
    )
