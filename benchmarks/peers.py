"""The same weights in transformers' BERT and in ours, as encoders, sentence encoders and models in training.

Every encoder is a function from a batch (`input_ids` and `attention_mask`) to the last hidden states.
"""

import copy
from collections.abc import Callable
from functools import lru_cache
from pathlib import Path
from typing import Any

import torch
from transformers import BertConfig, BertModel

from ..modeling_mybert import MyBertConfig, MyBertModel

PEER = "transformers SDPA"  # the baseline of all comparisons
Batch = dict[str, torch.Tensor]
Encoder = Callable[[Batch], torch.Tensor]


def twins(**settings: int) -> tuple[MyBertModel, BertModel]:
    """Our encoder and transformers', in eval mode, with the same random weights."""
    torch.manual_seed(0)
    theirs = BertModel(BertConfig(**settings), add_pooling_layer=False).eval()
    ours = MyBertModel(MyBertConfig(**settings), add_pooling_layer=False).eval()
    ours.load_state_dict(theirs.state_dict())
    return ours, theirs


def encoder_of(model: Callable[..., Any]) -> Encoder:
    def encode(batch: Batch) -> torch.Tensor:
        with torch.no_grad():
            return model(**batch).last_hidden_state

    return encode


def products(model: torch.nn.Module) -> Callable[[Batch], None]:
    """Only the matrix products of a model's linear layers for a batch's tokens: a bound on its speed."""
    layers = [module for module in model.modules() if isinstance(module, torch.nn.Linear)]

    @lru_cache(1)
    def inputs_of(tokens: int) -> dict[int, torch.Tensor]:
        return {width: torch.randn(tokens, width) for width in {layer.in_features for layer in layers}}

    def run(batch: Batch) -> None:
        inputs = inputs_of(int(batch["attention_mask"].sum()))
        with torch.no_grad():
            for layer in layers:
                layer(inputs[layer.in_features])

    return run


def cpu_encoders(model: MyBertModel) -> dict[str, Encoder]:
    """Faster variants of our encoder on a CPU: weights prepacked, in bfloat16 or int8."""
    if not torch.backends.mkldnn.is_available():
        return {}
    encoders = {"mybert, prepacked": encoder_of(copy.deepcopy(model).prepack_weights())}
    if torch.ops.mkldnn._is_mkldnn_bf16_supported():
        encoders["mybert bfloat16"] = encoder_of(copy.deepcopy(model).quantize_weights("bfloat16"))
    return {**encoders, "mybert int8": encoder_of(copy.deepcopy(model).quantize_weights("int8"))}


def sentence_encoder(folder: Path) -> Callable[..., Any]:
    """sentence-transformers on a model folder, with its usual mean of the token states."""
    from sentence_transformers import SentenceTransformer
    from sentence_transformers.models import Pooling, Transformer

    transformer = Transformer(str(folder))
    return SentenceTransformer(modules=[transformer, Pooling(transformer.get_word_embedding_dimension())]).encode


def training_twins(**settings: float) -> dict[str, torch.nn.Module]:
    """Their and our model for MLM and NSP with the same random weights, in training mode."""
    from transformers import BertForPreTraining

    from ..modeling_mybert import MyBertForPreTraining

    torch.manual_seed(0)
    theirs = BertForPreTraining(BertConfig(**settings)).train()
    ours = MyBertForPreTraining(MyBertConfig(**settings)).train()
    ours.load_state_dict(theirs.state_dict())
    return {PEER: theirs, "mybert": ours}
