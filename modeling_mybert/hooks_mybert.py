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
KNOWN_HOOKS = (
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


_LINEAR_FORWARD = nn.Linear.forward


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


def walk(
    *modules: nn.Module | None,
    leave_out: nn.Module | None = None,
    is_known: Callable[[Any, Any], bool] | None = None,
    known_hooks: tuple[str, ...] = KNOWN_HOOKS,
) -> tuple[list[nn.Module], list[nn.Module]] | None:
    """Modules and all within them but `leave_out`: plain ones, and those with hooks or accelerate's `forward`.

    None if a call of them runs code of others: `is_known` says which classes and `forward`s are known, `known_hooks`
    how the files of known hooks begin. It runs on every call of a model.
    """
    if any(_GLOBAL_HOOKS) and has_foreign_hooks(*_GLOBAL_HOOKS, known_hooks=known_hooks):
        return None
    plain, hooked, classes, left = [], [], set(), list(modules)
    while left:  # `modules()` is slow
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
        ):
            if has_foreign_hooks(*hooks_of(module), known_hooks=known_hooks) or not runs_known_forward(module):
                return None
            hooked.append(module)
        else:
            plain.append(module)
        classes.add(type(module))
        if inside["_modules"]:
            left += inside["_modules"].values()
    # Graphs trace no cache.
    is_known = is_known or (_is_known_class if torch.compiler.is_compiling() else is_known_class)
    for module_class in classes:
        if not is_known(module_class, module_class.forward):
            return None
    return plain, hooked


def scan(*modules: nn.Module | None, leave_out: nn.Module | None = None) -> Scan:
    """Whether modules and all within them but `leave_out` are known, and which of them need not be called."""
    walked = walk(*modules, leave_out=leave_out)
    if walked is None:
        return Scan(True)
    plain, hooked = walked
    # accelerate's `forward` moves weights between devices.
    if torch.compiler.is_compiling() or any(_GLOBAL_HOOKS) or any("forward" in vars(module) for module in hooked):
        return Scan(False)
    layers, activations = set(), set()
    for module in plain + hooked:
        parameters, module_class = module.__dict__["_parameters"], type(module)
        for parameter in parameters.values():
            if type(parameter) is not nn.Parameter and parameter is not None:
                return Scan(False)  # a functional call puts tensors of any kind in place of parameters
        if module_class is nn.Linear:
            weight = parameters.get("weight")
            bias = parameters.get("bias", weight)  # the latter: it is an attribute, and not ordinary
            is_usual = weight is not None and weight is not bias and weight.is_contiguous()
            if is_usual and (bias is None or bias.dtype == weight.dtype):
                layers.add(module)
        elif module_class.__module__ == _ACTIVATIONS:
            activations.add(module)
    layers.difference_update(hooked)  # those with hooks have to be called
    activations.difference_update(hooked)
    return Scan(False, frozenset(layers), frozenset(activations))


def is_product(layer: nn.Linear) -> bool:
    """What `scan` asks of a linear layer, for a single one: no hooks on all modules, and ordinary parameters."""
    parameters = layer.__dict__["_parameters"]
    weight, bias = parameters.get("weight"), parameters.get("bias", parameters.get("weight"))
    return (
        not any(_GLOBAL_HOOKS)  # such as those of PyTorch's counter of FLOPs, which knows no product of oneDNN's
        and type(weight) is nn.Parameter
        and weight is not bias
        and weight.is_contiguous()
        and (bias is None or (type(bias) is nn.Parameter and bias.dtype == weight.dtype))
    )


def is_plain_linear(layer: nn.Module) -> bool:
    """Whether a call of a layer is no more than `nn.Linear`'s product with ordinary parameters."""
    return (
        type(layer) is nn.Linear
        and nn.Linear.forward is _LINEAR_FORWARD  # a user may patch the class
        and "forward" not in layer.__dict__
        and not any(hooks_of(layer))
        and is_product(layer)
    )


def is_changed(*modules: nn.Module | None) -> bool:
    """Whether a call of these modules runs code of others; see `Scan`."""
    return walk(*modules) is None


def hooks_of(module: nn.Module) -> tuple[dict[int, Any], ...]:
    """The hooks of a module itself."""
    return module._forward_hooks, module._forward_pre_hooks, module._backward_hooks, module._backward_pre_hooks


def has_foreign_hooks(*all_hooks: dict[int, Any], known_hooks: tuple[str, ...] = KNOWN_HOOKS) -> bool:
    """Whether some of these hooks may depend on the rows of the batch."""
    return any(
        not (getattr(hook, "__module__", None) or "").startswith(known_hooks)
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
