"""Hooks on modules: whether code outside this package observes or changes what passes through the network."""

from torch import nn

# Hooks of these modules move or compute weights, or collect requested outputs; they do not depend on the batch's rows.
_KNOWN = ("torch.distributed.", "torch.nn.utils.", "transformers.utils.output_capturing", "deepspeed.")


def hooks_from_outside(*modules: nn.Module | None, leave_out: nn.Module | None = None) -> bool:
    """Whether a module or one of its submodules has hooks that may depend on the shape of the hidden states.

    Args:
        modules: The modules to search, with their submodules; None is skipped.
        leave_out: A submodule to skip, with its own submodules.
    """
    left = list(modules)
    while left:  # runs on every call of a model, and `modules()` is slow
        module = left.pop()
        if module is None or module is leave_out:
            continue
        left.extend(module._modules.values())
        if has_hook_from_outside(module):
            return True
    return False


def has_hook_from_outside(module: nn.Module) -> bool:
    """The same for a module without its submodules."""
    for hooks in (
        module._forward_hooks,
        module._forward_pre_hooks,
        module._backward_hooks,
        module._backward_pre_hooks,
    ):
        if hooks and any(not (getattr(hook, "__module__", None) or "").startswith(_KNOWN) for hook in hooks.values()):
            return True
    return False


def runs_own_forward(module: nn.Module, module_class: type[nn.Module]) -> bool:
    """Whether a module's forward is that of `module_class`: not of another class, and not replaced in this module."""
    return type(module).forward is module_class.forward and "forward" not in module.__dict__


__all__ = ["has_hook_from_outside", "hooks_from_outside", "runs_own_forward"]
