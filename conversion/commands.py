"""Arguments of `mybert convert google | to-google | bert | to-bert | onnx`, one dataclass and one function each."""

import logging
from dataclasses import dataclass, field
from typing import TypeVar

from .google import ConversionReport, convert_google_checkpoint, export_google_checkpoint
from .onnx_export import OnnxReport, export_onnx
from .transformers_bert import from_transformers_bert, to_transformers_bert

logger = logging.getLogger(__name__)

_VERIFY = {"help": "Compare the result with the source tensor by tensor and run it once; --no_verify leaves it out."}
_HEAD = {
    "help": "Kind of model: pretraining, masked-lm, next-sentence, classifier, token-classification, multiple-choice, "
    "squad or encoder. By default the source tells; token classification and multiple choice have to be named."
}


@dataclass
class ConvertGoogleArguments:
    """Google's checkpoint to a MyBERT model folder."""

    source: str = field(metadata={"help": "Folder, checkpoint prefix, .zip or .tar.gz archive, or SavedModel folder."})
    output: str = field(metadata={"help": "Model folder to write."})
    head: str | None = field(default=None, metadata=_HEAD)
    config_file: str | None = field(
        default=None, metadata={"help": "bert_config.json, if it is not beside the checkpoint."}
    )
    vocab_file: str | None = field(default=None, metadata={"help": "vocab.txt, if it is not beside the checkpoint."})
    do_lower_case: bool | None = field(
        default=None, metadata={"help": "Whether the tokenizer lower-cases; by default the vocabulary tells."}
    )
    strip_accents: bool | None = field(
        default=None,
        metadata={
            "help": "Whether the tokenizer strips accents and takes Hangul apart; by default if it lower-cases and "
            "the vocabulary has not kept them."
        },
    )
    labels: list[str] | None = field(
        default=None, metadata={"help": "Names of the classifier's labels, in its order."}
    )
    optimizer: bool = field(default=False, metadata={"help": "Take over Adam's moments and the step as well."})
    ignore: list[str] | None = field(
        default=None, metadata={"help": "Regular expressions for variables that may be left out although unknown."}
    )
    verify: bool = field(default=True, metadata=_VERIFY)


@dataclass
class ConvertToGoogleArguments:
    """A model folder to a checkpoint that Google's TensorFlow 1 code restores."""

    model: str = field(metadata={"help": "MyBERT or BERT model folder."})
    prefix: str = field(
        metadata={"help": "Prefix of the checkpoint to write, as out/bert_model.ckpt, or a folder (out/)."}
    )
    allow_other_activation: bool = field(
        default=False, metadata={"help": "Write a model whose activation Google's code does not compute."}
    )
    verify: bool = field(default=True, metadata=_VERIFY)


@dataclass
class ConvertBertArguments:
    """A BERT folder of transformers to a MyBERT model folder."""

    model: str = field(metadata={"help": "BERT model folder, or name on the Hub."})
    output: str = field(metadata={"help": "Model folder to write."})
    head: str | None = field(default=None, metadata=_HEAD)
    verify: bool = field(default=True, metadata=_VERIFY)


@dataclass
class ConvertToBertArguments:
    """A MyBERT model folder to a plain BERT folder that other tools serve."""

    model: str = field(metadata={"help": "MyBERT model folder."})
    output: str = field(metadata={"help": "BERT folder to write."})
    verify: bool = field(default=True, metadata=_VERIFY)


@dataclass
class ConvertOnnxArguments:
    """A model folder to ONNX, for ONNX Runtime and what is built on it."""

    model: str = field(metadata={"help": "MyBERT or BERT model folder."})
    output: str = field(metadata={"help": "Folder to make; it must not exist yet, or be empty."})
    int8: bool = field(default=False, metadata={"help": "Write model_int8.onnx as well."})
    opset: int | None = field(
        default=None, metadata={"help": "Version of ONNX's operators; by default what PyTorch prefers."}
    )


def convert_google(arguments: ConvertGoogleArguments) -> ConversionReport:
    """Run `mybert convert google`."""
    return _say(
        convert_google_checkpoint(
            arguments.source,
            arguments.output,
            arguments.head,
            config_file=arguments.config_file,
            vocab_file=arguments.vocab_file,
            do_lower_case=arguments.do_lower_case,
            strip_accents=arguments.strip_accents,
            labels=arguments.labels,
            optimizer=arguments.optimizer,
            ignore=arguments.ignore or (),
            verify=arguments.verify,
        )
    )


def convert_to_google(arguments: ConvertToGoogleArguments) -> ConversionReport:
    """Run `mybert convert to-google`."""
    return _say(
        export_google_checkpoint(
            arguments.model,
            arguments.prefix,
            allow_other_activation=arguments.allow_other_activation,
            verify=arguments.verify,
        )
    )


def convert_bert(arguments: ConvertBertArguments) -> ConversionReport:
    """Run `mybert convert bert`."""
    return _say(from_transformers_bert(arguments.model, arguments.output, arguments.head, verify=arguments.verify))


def convert_to_bert(arguments: ConvertToBertArguments) -> ConversionReport:
    """Run `mybert convert to-bert`."""
    return _say(to_transformers_bert(arguments.model, arguments.output, verify=arguments.verify))


def convert_onnx(arguments: ConvertOnnxArguments) -> OnnxReport:
    """Run `mybert convert onnx`."""
    return _say(export_onnx(arguments.model, arguments.output, int8=arguments.int8, opset=arguments.opset))


_Report = TypeVar("_Report", ConversionReport, OnnxReport)


def _say(report: _Report) -> _Report:
    logger.info(str(report))
    return report
