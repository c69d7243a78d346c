"""Encoders that pack what goes into them and unpack what comes out.

A packed batch travels as the keyword argument `batch`, which transformers' encoders pass on to their layers and
attention function, so nothing is kept between calls, or shared by threads. An encoder in which a user has hooked,
replaced or patched a module runs padded, because such code may depend on the rows of the batch.
"""

import dataclasses
import functools
import inspect
from contextvars import ContextVar
from typing import Any

import torch
import torch.nn.functional as F
from transformers import PreTrainedModel
from transformers.utils.import_utils import is_tracing

from ..files.loading import longest_sequence
from ..modeling_mybert.attention_mybert import supports_varlen
from ..modeling_mybert.batch_mybert import Batch, pack_batch
from ..modeling_mybert.hooks_mybert import (
    KNOWN_HOOKS,
    file_of_function,
    is_known_class,
    walk,
)
from ..modeling_mybert.losses_mybert import IGNORE_INDEX
from .attention import PACKED_ATTENTION

# The encoders, by the type in their configuration.
ENCODERS = {
    "bert": "transformers.models.bert.modeling_bert.BertModel",
    "camembert": "transformers.models.camembert.modeling_camembert.CamembertModel",
    "distilbert": "transformers.models.distilbert.modeling_distilbert.DistilBertModel",
    "electra": "transformers.models.electra.modeling_electra.ElectraModel",
    "modernbert": "transformers.models.modernbert.modeling_modernbert.ModernBertModel",
    "mpnet": "transformers.models.mpnet.modeling_mpnet.MPNetModel",
    "roberta": "transformers.models.roberta.modeling_roberta.RobertaModel",
    "xlm-roberta": "transformers.models.xlm_roberta.modeling_xlm_roberta.XLMRobertaModel",
}
CHECK = "speed_up_check"  # attribute of an encoder: what is called with its next batch
# Where classes are defined whose modules treat each token alike.
_KNOWN_FILES = (f"{__name__.rpartition('.')[0]}.", *(path.rpartition(".")[0] for path in ENCODERS.values()))
# transformers' hook on the word embeddings only asks for their gradient.
_KNOWN_HOOKS = (*KNOWN_HOOKS, _KNOWN_FILES[0], PreTrainedModel.__module__)
_DECORATORS = ("transformers.", "torch.utils._contextlib")  # files of decorators: of forward, and `no_grad`
# Arguments of a call that a padded batch has none of: a decoder's, or those of rows that hold several sequences.
_OTHER_INPUTS = ("encoder_hidden_states", "cache", "past_key_values", "cu_seq_lens_q", "batch")
# Whether the loss around the encoder reads the hidden states of padding.
_padding_is_read: ContextVar[bool] = ContextVar("_padding_is_read", default=False)


# An encoder


class PackedEncoder:
    """Mark of the classes that `packed_class` makes."""

    stock_class: Any


@functools.cache
def packed_class(stock_class: Any) -> Any:
    """The subclass of an encoder's class that packs padded batches; it has the same name."""

    # Not by hooks: sentence-transformers calls `forward` itself.
    @functools.wraps(stock_class.forward)
    def forward(encoder: Any, *args: Any, **kwargs: Any) -> Any:
        if torch.compiler.is_compiling():
            return stock_class.forward(encoder, *args, **kwargs)
        if (check := vars(encoder).get(CHECK)) is not None:
            check(encoder, args, kwargs)
        arguments = _packed_arguments(encoder, named_arguments(encoder, args, kwargs))
        if arguments is None:
            return stock_class.forward(encoder, *args, **kwargs)
        return _unpacked_output(encoder, stock_class.forward(encoder, **arguments), arguments["batch"])

    def reduce(encoder: Any, protocol: Any) -> Any:
        _, _, *state = stock_class.__reduce_ex__(encoder, protocol)
        return _new_encoder, (stock_class,), *state

    # transformers looks up some properties by the name of a class, and writes it into configurations.
    names = {name: getattr(stock_class, name) for name in ("__module__", "__qualname__", "__doc__")}
    methods = {"forward": forward, "__reduce_ex__": reduce, "stock_class": stock_class}
    return type(stock_class.__name__, (PackedEncoder, stock_class), {**names, **methods})


def _new_encoder(stock_class: Any) -> Any:
    """An empty encoder, for copies and pickles."""
    packed = packed_class(stock_class)
    return packed.__new__(packed)


def _packed_arguments(encoder: Any, arguments: dict[str, Any]) -> dict[str, Any] | None:
    """The arguments for a padded batch in one row; None if packing might change more than speed."""
    input_ids, embeddings = arguments.get("input_ids"), arguments.get("inputs_embeds")
    words = embeddings if input_ids is None else input_ids
    if (input_ids is not None and embeddings is not None) or not _may_pack(encoder, words, arguments):
        return None
    assert words is not None
    shape, attention_mask = (words.shape[0], words.shape[1]), arguments.get("attention_mask")
    kernel = _kernel(encoder, attention_mask) if _is_on_gpu(words) else None
    if words.device.type != "cpu" and kernel is None:
        return None
    batch = pack_batch(shape, attention_mask, False, kernel, may_fill_up=not encoder.training)
    if batch is None or has_changed(encoder):
        return None
    if chunk := getattr(encoder.config, "chunk_size_feed_forward", 0):
        batch = _fill_up_to_multiple(batch, chunk)
    position_ids = arguments.get("position_ids")
    if position_ids is None:
        position_ids = _position_ids(encoder, input_ids, embeddings, shape, words.device)
    # The state of a row's first token is kept even if it is padding, because heads read it.
    batch = dataclasses.replace(batch, padding=None)
    arguments |= {"position_ids": position_ids, "attention_mask": None, "batch": batch}
    for name in ("input_ids", "inputs_embeds", "token_type_ids", "position_ids"):
        if arguments.get(name) is not None:
            arguments[name] = batch.pack(arguments[name].expand(*shape, *arguments[name].shape[2:]))
    if hasattr(encoder.config, "sliding_window"):  # one mask for each type of layer, instead of one for S x S tokens
        arguments["attention_mask"] = dict.fromkeys(encoder.config.layer_types)
    return arguments


def _fill_up_to_multiple(batch: Batch, size: int) -> Batch:
    """The batch with more filler tokens, for layers that split it into chunks of this size."""
    assert batch.index is not None
    assert batch.groups is not None
    fill = -len(batch.index) % size
    index, groups = F.pad(batch.index, (0, fill)), [*batch.groups, *([(1, fill, 0)] if fill else [])]
    return dataclasses.replace(batch, index=index, groups=groups, fill=batch.fill + fill)


def _unpacked_output(encoder: Any, output: Any, batch: Batch) -> Any:
    """The output for the padded batch; pooled again, because the pooler reads the first token of each row."""
    last = output[0]
    unpacked = batch.unpack(last)
    pooled = None if getattr(encoder, "pooler", None) is None else encoder.pooler(unpacked)

    def unpack(states: torch.Tensor | None) -> torch.Tensor | None:
        return unpacked if states is last else None if states is None else batch.unpack(states)

    if isinstance(output, tuple):
        others = (tuple(map(unpack, part)) for part in output[1:] if isinstance(part, tuple))
        return unpacked, *([] if pooled is None else [pooled]), *others
    output.last_hidden_state = unpacked
    if pooled is not None:
        output.pooler_output = pooled
    if output.hidden_states is not None:
        output.hidden_states = tuple(map(unpack, output.hidden_states))
    return output


# Hooks of a model with a head


def note_labels(model: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    """Before a model with a head: note whether its loss reads hidden states of padding."""
    if torch.compiler.is_compiling():  # it cannot trace context variables
        return
    if _reads_padding(model, named_arguments(model, args, kwargs)):
        _padding_is_read.set(True)


def forget_labels(model: Any, args: tuple[Any, ...], kwargs: dict[str, Any], output: Any) -> None:
    """After a model with a head, also if it failed."""
    if not torch.compiler.is_compiling() and _padding_is_read.get():
        _padding_is_read.set(False)


def _reads_padding(model: Any, arguments: dict[str, Any]) -> bool:
    """Whether a head reads the hidden states of padding: its loss, or a mean over rows."""
    mask, labels = arguments.get("attention_mask"), arguments.get("labels")
    if getattr(model, "sequence_summary", None) is not None:  # a mean of rows, or their last column
        return getattr(model.config, "summary_type", "last") != "first"
    if mask is None:
        return False
    if arguments.get("start_positions") is not None:  # the loss counts padding as possible answers
        return True
    if not isinstance(labels, torch.Tensor) or labels.shape != mask.shape or labels.is_floating_point():
        return False
    if type(model).__name__ == "ElectraForPreTraining":  # it leaves padding out itself
        return False
    return bool(((labels != IGNORE_INDEX) & (mask == 0)).any())


# Conditions


def _may_pack(encoder: Any, words: Any, arguments: dict[str, Any]) -> bool:
    """Whether a call is one of an encoder, with a batch of rows and a mask of them, that asks for no attentions."""
    config, mask = encoder.config, arguments.get("attention_mask")
    if (
        not may_pack_tensors(words, mask)
        or words.dim() != (2 if arguments.get("input_ids") is not None else 3)
        or config._attn_implementation != PACKED_ATTENTION
        or getattr(config, "is_decoder", False)
        or arguments.get("output_attentions", config.output_attentions)
        or any(arguments.get(name) is not None for name in _OTHER_INPUTS)
        or (words.is_cuda and getattr(config, "chunk_size_feed_forward", 0))
        or encoder.get_input_embeddings().weight.device != words.device
    ):
        return False
    shape = words.shape[:2]
    longest = longest_sequence(config)
    if longest is not None and shape[1] > longest:  # an error, which rows of less tokens would not raise
        return False
    for name in ("token_type_ids", "position_ids"):
        ids = arguments.get(name)
        if ids is not None and (ids.dim() != 2 or ids.shape[1] != shape[1] or ids.shape[0] not in (1, shape[0])):
            return False
    # Rows of nothing but padding have no packed token to attend to.
    return mask is None or (mask.shape == shape and bool(mask.any(1).all()))


def may_pack_tensors(*tensors: torch.Tensor | None) -> bool:
    """Whether these are plain tensors with values, in a call whose loss reads no padding."""
    return not (
        _padding_is_read.get()
        or torch.jit.is_tracing()
        or torch._C._are_functorch_transforms_active()
        or any(
            type(tensor) is not torch.Tensor
            or not tensor.numel()
            or tensor.device != tensors[0].device  # type: ignore[union-attr]
            or is_tracing(tensor)
            for tensor in tensors
            if tensor is not None or tensor is tensors[0]
        )
    )


def _is_on_gpu(words: torch.Tensor) -> bool:
    return words.is_cuda


def _kernel(encoder: Any, attention_mask: torch.Tensor | None) -> str | None:
    """The variable-length kernel, if the GPU has it for these states."""
    config = encoder.config
    dropout = max(getattr(config, name, 0.0) for name in ("attention_probs_dropout_prob", "attention_dropout"))
    dtype = torch.get_autocast_dtype("cuda") if torch.is_autocast_enabled("cuda") else encoder.dtype
    head_size = config.hidden_size // config.num_attention_heads
    if not supports_varlen(encoder.device, dtype, head_size, dropout if encoder.training else 0.0):
        return None
    if hasattr(config, "sliding_window") and attention_mask is not None:
        mask = attention_mask.bool()
        if (mask[:, 1:] & ~mask[:, :-1]).any():  # its windows would skip the hole
            return None
    return "varlen"


def _position_ids(
    encoder: Any,
    input_ids: torch.Tensor | None,
    inputs_embeds: torch.Tensor | None,
    shape: tuple[int, int],
    device: torch.device,
) -> torch.Tensor:
    """The position ids (B, L) or (1, L) that the encoder would make itself of a padded batch."""
    embeddings = encoder.embeddings
    if not hasattr(embeddings, "create_position_ids_from_input_ids"):
        return torch.arange(shape[1], device=device)[None]
    # RoBERTa counts tokens that are not the padding token, from its id plus 1.
    if input_ids is None:
        position_ids = embeddings.create_position_ids_from_inputs_embeds(inputs_embeds, embeddings.padding_idx)
    else:
        position_ids = embeddings.create_position_ids_from_input_ids(input_ids, embeddings.padding_idx)
    assert isinstance(position_ids, torch.Tensor)
    return position_ids


def named_arguments(model: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> dict[str, Any]:
    """All arguments of a call by name."""
    model_class: Any = type(model)
    return {**dict(zip(_argument_names(model_class), args, strict=False)), **kwargs} if args else dict(kwargs)


@functools.lru_cache(maxsize=256)
def _argument_names(model_class: Any) -> tuple[str, ...]:
    """The names of the arguments of a class's `forward` that may be given by position."""
    parameters = [*inspect.signature(model_class.forward).parameters.values()][1:]
    return tuple(each.name for each in parameters if each.kind is each.POSITIONAL_OR_KEYWORD)


# Recognition of changed modules


def has_changed(encoder: Any) -> bool:
    """Whether a call of an encoder runs code of others, in itself or in a module inside."""
    stock_class: Any = getattr(encoder, "stock_class", type(encoder))
    walked = walk(encoder, is_known=_is_known, known_hooks=_KNOWN_HOOKS)
    if walked is None or not _is_known(stock_class, stock_class.forward):
        return True
    plain, hooked = walked
    for module in plain + hooked:
        config = module.__dict__.get("config", encoder.config)
        if config is not encoder.config and config._attn_implementation != encoder.config._attn_implementation:
            return True  # put in since, with another attention
    return False


@functools.lru_cache(maxsize=1024)
def _is_known(module_class: Any, forward: Any) -> bool:
    """Whether a class of modules and its `forward` are PyTorch's, PEFT's or those of an encoder that can be packed."""
    while hasattr(forward, "__wrapped__") and file_of_function(forward).startswith(_DECORATORS):
        forward = forward.__wrapped__
    names = module_class.__module__, file_of_function(forward)
    return all(name.startswith(_KNOWN_FILES) for name in names) or is_known_class(module_class, forward)
