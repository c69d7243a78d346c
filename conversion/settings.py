"""The settings of the commands `mybert convert ...`; their options are also keywords of the functions."""

from dataclasses import dataclass, field
from typing import Literal

from ..files.documents import SourceSettings
from ..files.errors import SettingError
from ..files.options import Group, option
from ..files.settings import Parts
from ..metrics.label_orders import GOOGLE_LABELS


@dataclass(frozen=True, kw_only=True)
class OutputOptions(Parts):
    """What happens to existing output."""

    group = Group.INPUT
    overwrite: bool = option(
        False, "Replace an earlier output; a folder with other things in it is refused.", comes_last=True
    )


@dataclass(frozen=True, kw_only=True)
class ConversionOptions(OutputOptions):
    """Options of every conversion from weights to the same weights."""

    group = Group.CONVERSION
    verify: bool = option(
        True, "Compare the result with the source tensor by tensor and run it once; --no_verify leaves it out."
    )


@dataclass(frozen=True, kw_only=True)
class ImportOptions(ConversionOptions):
    """Options of conversions to MyBERT."""

    group = Group.CONVERSION
    head: str | None = option(
        None,
        "Kind of model: pretraining, masked-lm, next-sentence, sequence-classification (or classifier), "
        "token-classification, multiple-choice, question-answering (or squad) or encoder. Token "
        "classification and multiple choice look like a classifier in the source and must be named. A head that "
        "Google's checkpoint does not have is newly initialized, as the report says (default: the source's head).",
    )


@dataclass(frozen=True, kw_only=True)
class ConvertBertSettings(ImportOptions):
    """A BERT folder of transformers to a MyBERT model folder."""

    group = Group.INPUT
    model: str = option(help="BERT model folder, or name on the Hub.", positional=1, reads="model")
    output_dir: str = option(help="Model folder to write.", comes_last=True, positional=2, writes=True)


@dataclass(frozen=True, kw_only=True)
class ConvertGoogleSettings(ImportOptions):
    """Google's checkpoint to a MyBERT model folder."""

    group = Group.CONVERSION
    source: str = option(
        help="Folder, checkpoint prefix, .zip or .tar.gz archive, or SavedModel folder.",
        group=Group.INPUT,
        positional=1,
    )
    output_dir: str = option(
        help="Model folder to write.", group=Group.INPUT, comes_last=True, positional=2, writes=True
    )
    config_file: str | None = option(
        None,
        "bert_config.json, if it is not next to the checkpoint or in the folder above. Not needed for TF2 "
        "checkpoints: everything but dropout follows from their shapes.",
        reads="file",
    )
    vocab_file: str | None = option(
        None,
        "vocab.txt, if it is not next to the checkpoint or in the folder above. Without one the folder gets no "
        "tokenizer.",
        reads="file",
    )
    do_lower_case: bool | None = option(
        None, "Whether the tokenizer lower-cases (default: derived from checkpoint, vocabulary or name)."
    )
    strip_accents: bool | None = option(
        None,
        "Whether the tokenizer strips accents and decomposes Hangul (default: if it lower-cases and the "
        "vocabulary has no accents).",
        group=Group.VOCABULARY,
    )
    task: str | None = option(
        None,
        f"Task of Google's run_classifier.py that made a classifier ({', '.join(GOOGLE_LABELS)}); "
        "its classes get their names in Google's order.",
        group=Group.INPUT,
    )
    labels: list[str] | None = option(None, "Names of the classifier's labels, in the order of its rows.")
    optimizer_state: bool = option(False, "Take over Adam's moments and the step as well, as optimizer.safetensors.")
    ignore: list[str] = option([], "Regular expressions for unknown variables that may be left out.")
    seed: int = option(0, "Seed of newly initialized parameters.", group=Group.TRAINING)


@dataclass(frozen=True, kw_only=True)
class ConvertToGoogleSettings(ConversionOptions):
    """A model folder to a checkpoint that Google's TensorFlow 1 code restores."""

    group = Group.CONVERSION
    model: str = option(help="MyBERT or BERT model folder.", group=Group.INPUT, positional=1, reads="model folder")
    output: str = option(
        help="Prefix of the checkpoint to write, such as out/bert_model.ckpt, or a folder (out/).",
        group=Group.INPUT,
        comes_last=True,
        positional=2,
        writes=True,
    )
    allow_other_activation: bool = option(
        False, "Write a model whose activation Google's code does not compute, with a warning."
    )


@dataclass(frozen=True, kw_only=True)
class ConvertToBertSettings(ConversionOptions):
    """A MyBERT model folder to a plain BERT folder that other tools serve."""

    group = Group.INPUT
    model: str = option(help="MyBERT model folder.", positional=1, reads="model folder")
    output_dir: str = option(help="BERT folder to write.", comes_last=True, positional=2, writes=True)


@dataclass(frozen=True, kw_only=True)
class GraphOptions(OutputOptions):
    """Options of conversions to graphs of other runtimes."""

    group = Group.INPUT
    reading: SourceSettings = field(default_factory=SourceSettings)
    model: str = option(help="Model folder of a BERT or another encoder.", positional=1, reads="model folder")
    output_dir: str = option(help="Folder to write.", comes_last=True, positional=2, writes=True)
    data: list[str] = option(
        [],
        "Texts as the model reads them, one per line or table row: OpenVINO's int8 is calibrated with 300 of them, "
        "and the result is compared with PyTorch on others. The texts of a pair are separated by |||.",
        reads="text file",
    )


@dataclass(frozen=True, kw_only=True)
class ConvertOnnxSettings(GraphOptions):
    """A model folder to ONNX, for ONNX Runtime and what is built on it."""

    group = Group.CONVERSION
    dtype: Literal["float32", "int8"] = option(
        "float32",
        "int8: write model_int8.onnx as well, with int8 weights in all matrix products with weights, one scale for "
        "each output; activations are quantized as they come. Embeddings stay float32.",
    )
    opset: int | None = option(None, "Version of ONNX's operators (default: what PyTorch prefers).")


@dataclass(frozen=True, kw_only=True)
class ConvertOpenVinoSettings(GraphOptions):
    """A model folder to OpenVINO, for this package's commands and what is built on optimum-intel."""

    group = Group.CONVERSION
    dtype: Literal["float32", "int8"] = option(
        "float32",
        "Type of the weights. int8: weights and states of all matrix products; --data gives the ranges of the states.",
    )

    def check(self) -> None:
        """Reject int8 without texts."""
        super().check()
        if self.dtype == "int8" and not self.data:
            raise SettingError.worded("{dtype} is int8 without {data}; expected texts to calibrate with.")
