"""Hooks on modules: whether somebody from outside looks at what goes through the network."""

from torch import nn

# Hooks of these move or compute weights, or collect the outputs that were asked for; they need no rows.
_KNOWN = ("torch.distributed.", "torch.nn.utils.", "transformers.utils.output_capturing", "deepspeed.")


def hooks_from_outside(*modules: nn.Module, leave_out: nn.Module | None = None) -> bool:
    """Whether a module, or one inside it, has hooks that may depend on the shape of what goes through.

    Args:
        modules: Where to look.
        leave_out: A module inside them that does not count, with all that is inside it.
    """
    left_out = () if leave_out is None else {id(module) for module in leave_out.modules()}
    return any(
        not (getattr(hook, "__module__", None) or "").startswith(_KNOWN)
        for module in modules
        for inner in module.modules()
        if id(inner) not in left_out
        for hooks in (
            inner._forward_hooks,
            inner._forward_pre_hooks,
            inner._backward_hooks,
            inner._backward_pre_hooks,
        )
        for hook in hooks.values()
    )


__all__ = ["hooks_from_outside"]
