"""Speed up encoders of transformers in place, and undo it."""

import copy
import inspect
from collections.abc import Iterator, Mapping
from typing import Any, TypeVar

import torch
from torch import nn
from transformers import PreTrainedModel
from transformers.utils import ModelOutput

from ..files.errors import SettingError
from . import packing
from .attention import PACKED_ATTENTION
from .fast_linear import FastLinear

ENCODER_TYPES = tuple(packing.ENCODERS)

_Model = TypeVar("_Model", bound=nn.Module)
_EXPECTED = f"a model of type {', '.join(ENCODER_TYPES[:-1])} or {ENCODER_TYPES[-1]}, or a module that contains one"
_QUANTIZED_FILES = ("torch.ao.", "torchao.", "bitsandbytes.", "transformers.integrations.", "optimum.quanto.")
_HOOKS = "speed_up_hooks"  # attribute of a model with a head: handles, which copies and pickles keep
# Largest difference of hidden states, compared with the largest state above 1.
_TOLERANCES = {torch.float64: 1e-9, torch.float32: 1e-5, torch.float16: 1e-2, torch.bfloat16: 5e-2}


def speed_up(model: _Model, check: bool = False) -> _Model:
    """Compute no padding in encoders of transformers, and use the machine's faster kernels: in place, same outputs.

    Works for BERT, RoBERTa, XLM-RoBERTa, CamemBERT, ELECTRA, DistilBERT, MPNet and ModernBERT, with any head, under
    PEFT, in `pipeline`, `Trainer`, `SentenceTransformer` and `CrossEncoder`, in training, too. The encoder packs the
    tokens of a padded batch into one row, and unpacks the hidden states. Outputs and gradients differ from before by
    rounding (float32: 1e-5), but for hidden states at padding: they are 0 (except in the first column), and token
    logits are those of a hidden state of 0. A head that pools by its mask is unaffected. With dropout, training draws
    other random numbers. Linear layers become `FastLinear`, a subclass of `nn.Linear`.

    Batches run padded, as before, if attentions are requested, the mask has four dimensions, the loss reads padding
    (question answering, labels at padding), a row is nothing but padding, a module inside has hooks or has been
    replaced, or the model is compiled, traced or exported, is a decoder, or has another attention implementation than
    "sdpa". On a GPU, packing needs PyTorch's variable-length kernel: bf16 or fp16, no attention dropout, not MPNet.

    A second call changes nothing, and a MyBERT model, which does all of this itself, stays as it is. Parameters, their
    names and what `save_pretrained` writes do not change. Copies and pickles are sped up as well.

    Args:
        model: Any module that contains such an encoder.
        check: Also compare the encoder with its former self, in evaluation mode, on the first batch. This call needs
            memory for two copies of the encoder.

    Returns:
        The model.

    Raises:
        ValueError: If the model contains no such encoder, or has quantized layers.
        RuntimeError: From the first call of the model, with `check`, if outputs differ.
    """
    _reject_others(model)
    encoders: list[Any] = [module for module in model.modules() if _is_encoder(module)]
    if not encoders:
        if any(map(_is_mybert, model.modules())):
            return model
        raise ValueError(f"{type(model).__name__} contains no encoder that is known; speed_up expects {_EXPECTED}.")
    _reject_quantized(model)
    for module in _modules(model):
        if type(module) is nn.Linear:
            module.__class__ = FastLinear
        elif isinstance(module, PreTrainedModel) and not _is_encoder(module) and _takes_labels(module):
            _add_hooks(module)
    for encoder in encoders:
        if not isinstance(encoder, packing.PackedEncoder):
            stock_class: Any = type(encoder)
            encoder.__class__ = packing.packed_class(stock_class)
        if _is_mpnet(encoder):
            _exchange_classes(encoder, _packed_mpnet_classes())
        else:
            _exchange_attention(encoder, "sdpa", PACKED_ATTENTION)
        if check:
            setattr(encoder, packing.CHECK, _check_batch)
    return model


def restore(model: _Model) -> _Model:
    """Undo `speed_up`, in place: classes, hooks and attention implementation are those of before.

    Models that were made from one configuration object share its attention implementation. After the `restore` of one,
    a second `speed_up` of the others lets them remove padding again.

    Args:
        model: A module that `speed_up` has returned. Any other stays as it is.

    Returns:
        The model.

    Raises:
        ValueError: If it is not a module.
    """
    _reject_others(model)
    _exchange_classes(model, {FastLinear: nn.Linear})
    for module in model.modules():
        for handle in vars(module).pop(_HOOKS, ()):
            handle.remove()
        if isinstance(module, packing.PackedEncoder):
            if type(module) is packing.packed_class(module.stock_class):  # FSDP may have derived another class
                module.__class__ = module.stock_class
            vars(module).pop(packing.CHECK, None)
            if _is_mpnet(module):
                _exchange_classes(module, {packed: stock for stock, packed in _packed_mpnet_classes().items()})
            _exchange_attention(module, PACKED_ATTENTION, "sdpa")
    return model


def _reject_others(model: Any) -> None:
    if not isinstance(model, nn.Module):
        raise SettingError.worded("{model} is of class {}; speed_up expects {}.", type(model).__name__, _EXPECTED)


def _reject_quantized(model: nn.Module) -> None:
    for name, module in model.named_modules():
        weight = getattr(module, "weight", None)
        if type(module).__module__.startswith(_QUANTIZED_FILES) or (
            isinstance(weight, torch.Tensor)
            and (weight.dtype.itemsize == 1 or type(weight).__module__.startswith(_QUANTIZED_FILES))
        ):
            raise ValueError(
                f"{name or 'model'} is a quantized layer ({type(module).__name__}); speed_up expects weights of "
                "floating-point numbers: load the model without quantization."
            )


def _is_encoder(module: nn.Module) -> bool:
    """Whether a module is an encoder of transformers, or of a subclass that leaves its `forward`."""
    model_class: Any = type(module)
    for base in model_class.__mro__:
        if f"{base.__module__}.{base.__qualname__}" in packing.ENCODERS.values():
            return isinstance(module, packing.PackedEncoder) or bool(model_class.forward is base.forward)
    return False


def _is_mybert(module: nn.Module) -> bool:
    """Whether a module is a MyBERT model; the classes of code from the Hub are not those of this package."""
    return isinstance(module, PreTrainedModel) and module.config.model_type == "mybert"


def _modules(module: nn.Module) -> Iterator[nn.Module]:
    """A module and all inside, except those of MyBERT models, whose linear layers have to be `nn.Linear`."""
    if not _is_mybert(module):
        yield module
        for child in module.children():
            yield from _modules(child)


def _takes_labels(model: nn.Module) -> bool:
    return not {"labels", "start_positions"}.isdisjoint(inspect.signature(model.forward).parameters)


def _add_hooks(model: nn.Module) -> None:
    if _HOOKS not in vars(model):
        before = model.register_forward_pre_hook(packing.note_labels, with_kwargs=True)
        after = model.register_forward_hook(packing.forget_labels, with_kwargs=True, always_call=True)
        setattr(model, _HOOKS, [before, after])


def _exchange_attention(encoder: nn.Module, old: str, new: str) -> None:
    module: Any
    for module in encoder.modules():  # in a composed model, the layers have a configuration of their own
        if hasattr(module, "config") and module.config._attn_implementation == old:
            module.config._attn_implementation = new


def _is_mpnet(encoder: Any) -> bool:
    return bool(encoder.config.model_type == "mpnet")


def _packed_mpnet_classes() -> dict[type[nn.Module], type[nn.Module]]:
    from transformers.models.mpnet.modeling_mpnet import MPNetEncoder, MPNetSelfAttention

    from .mpnet import PackedMPNetEncoder, PackedMPNetSelfAttention

    return {MPNetEncoder: PackedMPNetEncoder, MPNetSelfAttention: PackedMPNetSelfAttention}


def _exchange_classes(model: nn.Module, classes: Mapping[type[nn.Module], type[nn.Module]]) -> None:
    for module in model.modules():
        if type(module) in classes:
            module.__class__ = classes[type(module)]


# The check


def _check_batch(encoder: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    """Before an encoder's first call: compare it with its former self on this batch; once it agrees, never again."""
    if torch.jit.is_tracing():
        return
    fast = copy.deepcopy(encoder).eval()
    vars(fast).pop(packing.CHECK, None)
    stock = restore(copy.deepcopy(encoder)).eval()
    with torch.no_grad():
        outputs, expected = (_states(each(*args, **kwargs)) for each in (fast, stock))
    mask = packing.named_arguments(encoder, args, kwargs).get("attention_mask")
    for position, (states, others) in enumerate(zip(outputs, expected, strict=True)):
        if isinstance(mask, torch.Tensor) and mask.shape == states.shape[:-1]:
            states, others = (each[mask.bool()] for each in (states, others))
        difference = (states.double() - others.double()).abs().max().item()
        tolerance = _TOLERANCES[states.dtype] * max(1.0, others.abs().max().item())
        if not difference <= tolerance:
            raise RuntimeError(
                f"speed_up changes output {position} of {type(encoder).__name__} by {difference:.1e} on a batch of "
                f"shape {tuple(expected[0].shape[:2])}; expected at most {tolerance:.1e}. Use the model without it: "
                "mybert.restore(model)."
            )
    vars(encoder).pop(packing.CHECK, None)


def _states(output: Any) -> list[torch.Tensor]:
    """All floating-point tensors of a model's output."""
    if isinstance(output, torch.Tensor):
        return [output] if output.is_floating_point() else []
    parts = output.to_tuple() if isinstance(output, ModelOutput) else output if isinstance(output, tuple) else ()
    return [states for part in parts for states in _states(part)]
