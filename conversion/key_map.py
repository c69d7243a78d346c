"""One table of names, used in every direction: transformers' BERT, Google's TensorFlow 1 code, the TF2 model garden.

Shapes are given in fields of the configuration, as in PyTorch. A TensorFlow variable called `kernel` is stored as
(input, output) and is transposed; every other variable is stored as in PyTorch. Keras keeps the heads of an attention
kernel separate, (hidden, heads, head size), where PyTorch and Google's own code join them.

Keras names are paths in the object graph of a TF2 checkpoint (see `ObjectGraph`); `encoder` is the node of
the encoder, `pretrainer` the one around it.

Sources: google-research/bert `modeling.py`, `run_pretraining.py`, `run_classifier.py`, `run_squad.py`,
`optimization.py`; tensorflow/models
`official/nlp/modeling/{networks/bert_encoder.py,layers/transformer_encoder_block.py, models/bert_pretrainer.py}`.
"""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from ..files.errors import SettingError

# Activations that Google's code computes, by its name; its "gelu" is the tanh form.
ACTIVATIONS = {"gelu": "gelu_pytorch_tanh", "relu": "relu", "tanh": "tanh", "linear": "linear"}
# Fields that bert_config.json and our configuration share.
SIZES = (
    "hidden_size", "num_hidden_layers", "num_attention_heads", "intermediate_size", "max_position_embeddings",
    "type_vocab_size", "vocab_size",
)  # fmt: skip
RATES = ("hidden_dropout_prob", "attention_probs_dropout_prob", "initializer_range")

_Shape = tuple[str | int, ...]  # fields of the configuration, or numbers
_DENSE: _Shape = ("hidden_size", "hidden_size")
# Shapes of Keras's weight and bias: query, key and value; output of the attention.
_HEADS_OUT: tuple[_Shape, _Shape] = (
    ("hidden_size", "num_attention_heads", "head_size"),
    ("num_attention_heads", "head_size"),
)
_HEADS_IN: tuple[_Shape, _Shape] = (("num_attention_heads", "head_size", "hidden_size"), ())


@dataclass(frozen=True)
class WeightRow:
    parameter: str  # in transformers' BERT and in MyBERT, with the encoder's prefix `bert.`
    google: str  # variable in Google's TensorFlow 1 code; empty if there is none
    keras: str  # path of the variable in a TF2 checkpoint; empty if there is none
    shape: _Shape  # as in PyTorch
    keras_shape: _Shape = ()  # of the Keras variable, if it keeps heads separate

    def variable(self, layout: str) -> str:
        return self.google if layout == "google" else self.keras  # the other layout is "keras"

    def parameter_shape(self, sizes: Mapping[str, int]) -> tuple[int, ...]:
        return _numbers(self.shape, sizes)

    def variable_shape(self, layout: str, sizes: Mapping[str, int]) -> tuple[int, ...]:
        if layout == "keras" and self.keras_shape:
            return _numbers(self.keras_shape, sizes)
        shape = self.parameter_shape(sizes)
        return shape[::-1] if is_transposed(self.variable(layout)) else shape

    def to_parameter(self, layout: str, array: np.ndarray) -> np.ndarray:
        """Turn a variable into the parameter: heads joined, kernels transposed, in one contiguous float32 block."""
        if layout == "keras" and self.keras_shape:
            joined = self.keras_shape.index("num_attention_heads")
            array = array.reshape(*array.shape[:joined], -1, *array.shape[joined + 2 :])
        if is_transposed(self.variable(layout)):
            array = array.T
        return np.ascontiguousarray(array, np.float32)

    def to_google(self, array: np.ndarray) -> np.ndarray:
        return array.T if is_transposed(self.google) else array

    def numbered(self, layer: int) -> "WeightRow":
        number = str(layer)
        return replace(
            self,
            parameter=self.parameter.replace("{layer}", number),
            google=self.google.replace("{layer}", number),
            keras=self.keras.replace("{layer}", number),
        )


def is_transposed(variable: str) -> bool:
    """Tell whether a TensorFlow variable is stored as (input, output), as kernels are."""
    return variable.rsplit("/", 1)[-1] == "kernel"


def _numbers(shape: Iterable[str | int], sizes: Mapping[str, int]) -> tuple[int, ...]:
    return tuple(sizes[size] if isinstance(size, str) else size for size in shape)


def _dense(
    parameter: str,
    google: str,
    keras: str,
    shape: _Shape,
    keras_shapes: Iterable[_Shape] = ((), ()),
    norm: bool = False,
) -> tuple[WeightRow, ...]:
    """The rows of the weight and the bias of a dense layer, or of a LayerNorm."""
    names = zip(("weight", "bias"), ("gamma", "beta") if norm else ("kernel", "bias"), keras_shapes, strict=True)
    return tuple(
        WeightRow(f"{parameter}.{name}", google and f"{google}/{of_google}", f"{keras}/{of_google}", size, keras_shape)
        for (name, of_google, keras_shape), size in zip(names, (shape, shape[:1]), strict=True)
    )


def _norm(parameter: str, google: str, keras: str) -> tuple[WeightRow, ...]:
    return _dense(parameter, google, keras, ("hidden_size",), norm=True)


def _output(parameter: str, google: str, keras: str, count: str | int) -> tuple[WeightRow, ...]:
    return (
        WeightRow(
            f"{parameter}.weight", f"{google}output_weights", keras and f"{keras}/kernel", (count, "hidden_size")
        ),
        WeightRow(f"{parameter}.bias", f"{google}output_bias", keras and f"{keras}/bias", (count,)),
    )


EMBEDDINGS = (
    *(
        WeightRow(f"bert.embeddings.{name}_embeddings.weight", f"bert/embeddings/{name}_embeddings",
            f"encoder/{keras}embedding_layer/embeddings", (size, "hidden_size"))
        for name, keras, size in (("word", "_", "vocab_size"), ("position", "_position_", "max_position_embeddings"),
            ("token_type", "_type_", "type_vocab_size"))
    ),
    *_norm("bert.embeddings.LayerNorm", "bert/embeddings/LayerNorm", "encoder/_embedding_norm_layer"),
)  # fmt: skip

_P, _G, _K = "bert.encoder.layer.{layer}", "bert/encoder/layer_{layer}", "encoder/_transformer_layers/{layer}"
LAYER = (
    *(
        row
        for name in ("query", "key", "value")
        for row in _dense(f"{_P}.attention.self.{name}", f"{_G}/attention/self/{name}",
            f"{_K}/_attention_layer/_{name}_dense", _DENSE, _HEADS_OUT)
    ),
    *_dense(f"{_P}.attention.output.dense", f"{_G}/attention/output/dense",
        f"{_K}/_attention_layer/_output_dense", _DENSE, _HEADS_IN),
    *_norm(f"{_P}.attention.output.LayerNorm", f"{_G}/attention/output/LayerNorm", f"{_K}/_attention_layer_norm"),
    *_dense(f"{_P}.intermediate.dense", f"{_G}/intermediate/dense", f"{_K}/_intermediate_dense",
        ("intermediate_size", "hidden_size")),
    *_dense(f"{_P}.output.dense", f"{_G}/output/dense", f"{_K}/_output_dense", ("hidden_size", "intermediate_size")),
    *_norm(f"{_P}.output.LayerNorm", f"{_G}/output/LayerNorm", f"{_K}/_output_layer_norm"),
)  # fmt: skip

# What a head may need besides embeddings and layers. A group is either complete in a checkpoint or not there at all.
_MLM, _NSP = "pretrainer/masked_lm", "pretrainer/classification_heads/0"
GROUPS: dict[str, tuple[WeightRow, ...]] = {
    "pooler": _dense("bert.pooler.dense", "bert/pooler/dense", "encoder/_pooler_layer", _DENSE),
    # The garden's next sentence head has a pooler of its own, which takes the place of the encoder's.
    "next sentence pooler": _dense("bert.pooler.dense", "", f"{_NSP}/dense", _DENSE),
    "masked LM": (
        *_dense("cls.predictions.transform.dense", "cls/predictions/transform/dense", f"{_MLM}/dense", _DENSE),
        *_norm("cls.predictions.transform.LayerNorm", "cls/predictions/transform/LayerNorm", f"{_MLM}/layer_norm"),
        WeightRow("cls.predictions.bias", "cls/predictions/output_bias", f"{_MLM}/bias", ("vocab_size",)),
    ),
    "next sentence": _output("cls.seq_relationship", "cls/seq_relationship/", f"{_NSP}/out_proj", 2),
    "classifier": _output("classifier", "", "", "num_labels"),
    "choice": _output("classifier", "", "", 1),  # one score per choice
    "question answering": _output("qa_outputs", "cls/squad/", "", 2),
}

# Tied parameters; transformers saves only the one that they are tied to.
TIED = {
    "cls.predictions.decoder.weight": "bert.embeddings.word_embeddings.weight",
    "cls.predictions.decoder.bias": "cls.predictions.bias",
}


@dataclass(frozen=True)
class Head:
    """A kind of model."""

    class_suffix: str  # of its class, after `MyBert` or `Bert`
    groups: tuple[str, ...]  # of rows that it has besides embeddings and layers
    outputs: dict[str, tuple[str | int, ...]]  # shapes in fields of the configuration and `batch`, `length`, `choices`

    def class_name(self, model_type: str) -> str:
        return f"{'MyBert' if model_type == 'mybert' else 'Bert'}{self.class_suffix}"


HEADS: dict[str, Head] = {
    "pretraining": Head("ForPreTraining", ("pooler", "masked LM", "next sentence"),
                        {"prediction_logits": ("batch", "length", "vocab_size"),
                         "seq_relationship_logits": ("batch", 2)}),
    "masked-lm": Head("ForMaskedLM", ("masked LM",), {"logits": ("batch", "length", "vocab_size")}),
    "next-sentence": Head("ForNextSentencePrediction", ("pooler", "next sentence"), {"logits": ("batch", 2)}),
    "sequence-classification": Head("ForSequenceClassification", ("pooler", "classifier"),
                                    {"logits": ("batch", "num_labels")}),
    "token-classification": Head("ForTokenClassification", ("classifier",),
                                 {"logits": ("batch", "length", "num_labels")}),
    "multiple-choice": Head("ForMultipleChoice", ("pooler", "choice"), {"logits": ("batch", "choices")}),
    "question-answering": Head("ForQuestionAnswering", ("question answering",),
                               {"start_logits": ("batch", "length"), "end_logits": ("batch", "length")}),
    "encoder": Head("Model", ("pooler",), {"last_hidden_state": ("batch", "length", "hidden_size"),
                                           "pooler_output": ("batch", "hidden_size")}),
}  # fmt: skip
_GOOGLES_WORDS = {"classifier": "sequence-classification", "squad": "question-answering"}

# Variables that no model needs, by kind; (kind, pattern of the whole name).
IGNORED = tuple(
    (kind, re.compile(pattern))
    for kind, pattern in (
        ("optimizer slot", r".*/(adam_[mv]|lamb_[mv]|(BERT)?Adam\w*|LAMB\w*|Momentum\w*)"),
        ("optimizer slot", r"(.*/)?(beta[12]_power\w*|Adam\w*|LAMB\w*)|.*/\.OPTIMIZER_SLOT/.*|(.*/)?_?optimizer/.*"),
        ("step counter", r"(.*/)?(global_step|save_counter|train_counter|step|epoch)(/\.ATTRIBUTES/VARIABLE_VALUE)?"),
        ("moving average", r".*/(ExponentialMovingAverage|local_step|biased)"),
        ("loss scale", r"(.*/)?(current_loss_scale|loss_scale|good_steps|growth_tracker)(/.*)?"),
        ("training signal", r"signal_early_stopping/.*"),
        ("object graph", r"_CHECKPOINTABLE_OBJECT_GRAPH"),
        ("tokenizer setting", r"(.*/)?(do_lower_case|vocab_file)(/.*)?"),
    )
)

# The kind of variables that belong to another head.
UNUSED_BY_HEAD = "weight the head does not use"

# Suffixes of the first and second moment of a variable, in the versions that Google's code has used.
SLOTS = (("adam_m", "adam_v"), ("AdamWeightDecayOptimizer", "AdamWeightDecayOptimizer_1"), ("BERTAdam", "BERTAdam_1"))


def find_head(name: str) -> str:
    """Return the key of `HEADS` for a name given by a user."""
    found = name.replace("_", "-").lower()
    found = _GOOGLES_WORDS.get(found, found)
    if found not in HEADS:
        raise SettingError("head", name, known=[*HEADS, *_GOOGLES_WORDS])
    return found


def head_of_class(name: str) -> str | None:
    """Return the key of `HEADS` for the name of a class, `MyBertFor...` or `BertFor...`; None for any other."""
    suffix = name.removeprefix("My").removeprefix("Bert") if name.startswith(("MyBert", "Bert")) else ""
    return next((key for key, head in HEADS.items() if head.class_suffix == suffix), None)


def encoder_rows(num_layers: int) -> list[WeightRow]:
    """Return the rows of embeddings and layers, which every model has."""
    return [*EMBEDDINGS, *(row.numbered(layer) for layer in range(num_layers) for row in LAYER)]


def model_rows(head: str, num_layers: int) -> list[WeightRow]:
    """Return the rows of all parameters of a model, without tied ones."""
    return [*encoder_rows(num_layers), *(row for group in HEADS[head].groups for row in GROUPS[group])]


def name_in_model(parameter: str, head: str) -> str:
    """Return a parameter's name in the model of a head: the encoder alone has no prefix `bert.`."""
    return parameter.removeprefix("bert.") if head == "encoder" else parameter


def sizes_of(config: Any) -> dict[str, int]:
    fields = ("vocab_size", "hidden_size", "num_attention_heads", "intermediate_size", "max_position_embeddings",
              "type_vocab_size", "num_labels")  # fmt: skip
    sizes = {field: getattr(config, field) for field in fields}
    return sizes | {"head_size": config.hidden_size // config.num_attention_heads}
