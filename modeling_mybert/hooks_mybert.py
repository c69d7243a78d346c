"""Code of others in the network: hooks, and modules that a user has replaced, subclassed or patched.

Such code may read any token and expects the rows of the batch, as in transformers' BERT. A network that holds some
runs without packing, computes all tokens, and calls each of its modules.
"""

import functools
from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from torch import nn
from torch.nn.modules import module as torch_module

_OURS = f"{__name__.rpartition('.')[0]}."  # the Hub's copies of these files have a package of their own
_ACTIVATIONS = "transformers.activations"
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
    _ACTIVATIONS,
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


class Scan(NamedTuple):
    """What a walk through a network has seen.

    Attributes:
        is_changed: Whether a call runs code of others, which may depend on rows or read any token.
        layers: Linear layers that are no more than the product with their weights, on the device of the network.
        activations: Activations that are no more than their function.
    """

    is_changed: bool
    layers: frozenset[nn.Module] = frozenset()
    activations: frozenset[nn.Module] = frozenset()


def scan(*modules: nn.Module | None, leave_out: nn.Module | None = None) -> Scan:
    """Walk through modules and all within them but `leave_out`; it runs on every call of a model."""
    has_global_hooks = any(_GLOBAL_HOOKS)
    if has_global_hooks and has_foreign_hooks(*_GLOBAL_HOOKS):
        return Scan(True)
    is_graph = torch.compiler.is_compiling()  # which traces no cache, and calls all layers
    are_called, classes, layers, activations = has_global_hooks or is_graph, set(), set(), set()
    left = list(modules)
    while left:  # `modules()` is slow
        module = left.pop()
        if module is None or module is leave_out:
            continue
        inside, module_class = module.__dict__, type(module)
        if (
            "forward" in inside
            or inside["_forward_hooks"]
            or inside["_forward_pre_hooks"]
            or inside["_backward_hooks"]
            or inside["_backward_pre_hooks"]
        ):
            if has_foreign_hooks(*hooks_of(module)) or not runs_known_forward(module):
                return Scan(True)
            are_called = are_called or "forward" in inside  # accelerate's: it moves weights between devices
        elif not are_called and module_class is nn.Linear:
            weight = inside["_parameters"].get("weight")
            bias = inside["_parameters"].get("bias", weight)  # the latter: it is an attribute, and not ordinary
            is_usual = weight is not None and weight is not bias and weight.is_contiguous()
            if is_usual and (bias is None or bias.dtype == weight.dtype):
                layers.add(module)
        elif not are_called and module_class.__module__ == _ACTIVATIONS:
            activations.add(module)
        if not are_called:  # a functional call puts tensors of any kind in place of parameters
            for parameter in inside["_parameters"].values():
                are_called = are_called or not (parameter is None or type(parameter) is nn.Parameter)
        classes.add(module_class)
        if inside["_modules"]:
            left += inside["_modules"].values()
    is_known = _is_known_class if is_graph else is_known_class
    for module_class in classes:
        if not is_known(module_class, module_class.forward):
            return Scan(True)
    return Scan(False) if are_called else Scan(False, frozenset(layers), frozenset(activations))


def has_ordinary_parameters(layer: nn.Linear) -> bool:
    """What `scan` asks of a linear layer, for a single one."""
    parameters = layer.__dict__["_parameters"]
    weight, bias = parameters.get("weight"), parameters.get("bias", parameters.get("weight"))
    return (
        type(weight) is nn.Parameter
        and weight is not bias
        and weight.is_contiguous()
        and (bias is None or (type(bias) is nn.Parameter and bias.dtype == weight.dtype))
    )


def is_changed(*modules: nn.Module | None) -> bool:
    """Whether a call of these modules runs code of others; see `Scan`."""
    return scan(*modules).is_changed


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
    while file_of_function(forward) == _CHECKPOINTING:
        forward = forward.__wrapped__
    return module_class.__module__.startswith(_KNOWN_CLASSES) and file_of_function(forward).startswith(_KNOWN_CLASSES)


is_known_class: Callable[[Any, Any], bool] = functools.lru_cache(maxsize=1024)(_is_known_class)


def file_of_function(function: Any) -> str:
    """Name of the file that defines a function; `functools.wraps` changes its `__module__`, but not this."""
    return getattr(function, "__globals__", {}).get("__name__", "")


def runs_known_forward(module: nn.Module) -> bool:
    """Whether nobody has replaced a module's own `forward`, but accelerate, which moves weights between devices."""
    inside, own = module.__dict__, type(module).forward
    if "forward" not in inside:
        return True
    hook = inside.get("_hf_hook")
    return (
        file_of_function(getattr(inside["forward"], "func", None)) == "accelerate.hooks"
        and getattr(inside["_old_forward"], "__func__", None) is own
        and all(type(part).__module__ == "accelerate.hooks" for part in getattr(hook, "hooks", (hook,)))
    )
