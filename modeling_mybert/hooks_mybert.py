"""Hooks on modules: whether code from outside looks at what goes through the network."""

from torch import nn

# Hooks of these move or compute weights, or collect the outputs that were asked for; they need no rows.
_KNOWN = ("torch.distributed.", "torch.nn.utils.", "transformers.utils.output_capturing", "deepspeed.")


def hooks_from_outside(*modules: nn.Module, leave_out: nn.Module | None = None) -> bool:
    """Whether a module, or one inside it, has hooks that may depend on the shape of what goes through.

    Args:
        modules: Where to look.
        leave_out: A module inside them that does not count, with all that is inside it.
    """
    left: list[nn.Module | None] = list(modules)
    while left:  # every call of a model comes here, and `modules()` is slow
        module = left.pop()
        if module is None or module is leave_out:
            continue
        left.extend(module._modules.values())
        for hooks in (
            module._forward_hooks,
            module._forward_pre_hooks,
            module._backward_hooks,
            module._backward_pre_hooks,
        ):
            if hooks and any(
                not (getattr(hook, "__module__", None) or "").startswith(_KNOWN) for hook in hooks.values()
            ):
                return True
    return False


__all__ = ["hooks_from_outside"]
