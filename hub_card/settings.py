"""The settings of `mybert card` and `mybert push`."""

from dataclasses import dataclass, field
from typing import Literal, get_args

from ..cards import HubMetadata
from ..files.options import Group, option
from ..files.settings import Part, Parts, by_keywords

Runtime = Literal["onnx", "openvino"]
RUNTIMES: tuple[Runtime, ...] = get_args(Runtime)


@dataclass(frozen=True, kw_only=True)
class CardSettings(Parts):
    """Information that is not in the model folder; missing parts are left out of the card."""

    group = Group.CARD
    metadata: HubMetadata = field(default_factory=HubMetadata)
    model: str = option(
        help="Model folder; its README.md is written.", group=Group.INPUT, positional=1, reads="model folder"
    )
    name: str | None = option(None, "Name of the model (default: that of the folder).")
    summary: str | None = option(None, "What the model is and is for.")
    corpus: str | None = option(None, "What it was trained on.")
    limits: list[str] | None = option(None, "What it is not good for, one text for each limit.")
    results: str | None = option(
        None,
        "JSON file of measured results: a list of objects with task_type, dataset_type, dataset_name, metric_type, "
        "metric_value and other fields of huggingface_hub's EvalResult.",
        reads="file",
    )
    benchmarks: str | None = option(
        None,
        "JSON file of results on benchmarks of the Hub: a list of objects with dataset_id, task_id, value and other "
        "fields of huggingface_hub's EvalResultEntry; they become .eval_results/*.yaml.",
        reads="file",
    )
    texts: list[str] | None = option(
        None,
        "Texts for the example: one, with [MASK] for fill-mask; two sentences; question and context; prompt and "
        "choices (default: invented English ones).",
    )
    examples: bool = option(True, "Run the head's pipelines and show what they print; --no_examples does not.")
    overwrite: bool = option(False, "Replace an existing README.md.", group=Group.INPUT, comes_last=True)


@dataclass(frozen=True, kw_only=True)
class PublicationOptions(Part):
    """What is published of a model folder."""

    group = Group.UPLOAD
    format: Literal["bert", "mybert"] | None = option(
        None,
        "bert: plain BERT, which loads everywhere. mybert: with this package's code (default: bert if transformers' "
        "BERT computes the same, which is checked).",
    )
    graphs: list[Runtime] = option(
        [], "Add graphs for onnx (float32 and int8) and openvino, compared with the weights.", nargs="+"
    )
    data: list[str] = option(
        [],
        "Texts, one per line or table row, the two of a pair separated by |||: graphs are compared on them, and "
        "OpenVINO's is int8, calibrated with 300 of them.",
        reads="text file",
        needs="graphs",
    )


@dataclass(frozen=True, kw_only=True)
class UploadOptions(PublicationOptions):
    """How a model folder goes to the Hub. The token is that of `hf auth login` or of HF_TOKEN."""

    group = Group.UPLOAD
    private: bool | None = option(
        None, "Make the repository private, or public with false (default: as it is).", nargs="?", const=True
    )
    revision: str | None = option(None, "Branch to commit to, created if needed, or a pull request such as refs/pr/1.")
    branch: str | None = option(None, "Branch to commit to; a new one starts at --revision.")
    create_pr: bool = option(
        False, "Open a pull request for main; to continue one that broke off, pass its --revision."
    )
    commit_message: str = option("Upload model", "First line of the commit message.")


@dataclass(frozen=True, kw_only=True)
class PushSettings(Parts):
    """The model folder to upload, its repository on the Hub, and options."""

    group = Group.INPUT
    upload: UploadOptions = field(default_factory=UploadOptions)
    model: str = option(help="MyBERT or BERT model folder; it is not changed.", positional=1, reads="model folder")
    repo_id: str = option(help="Name of the repository: OWNER/NAME, or NAME for one of your own.", positional=2)
    output_dir: str | None = option(
        None, "Write the folder that would be uploaded, and upload nothing.", comes_last=True, writes=True
    )
    overwrite: bool = option(False, "Replace --output_dir, if a push wrote it.", comes_last=True)


CardArguments = by_keywords(CardSettings)
PushArguments = by_keywords(PushSettings)
