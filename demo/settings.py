"""The settings of `mybert demo`."""

from dataclasses import dataclass

from ..files.options import ABOVE_0, AT_LEAST_1, Group, option
from ..files.settings import Parts, by_keywords


@dataclass(frozen=True, kw_only=True)
class DemoSettings(Parts):
    """What a user says to `mybert demo`."""

    group = Group.TRAINING
    output_dir: str = option(
        "demo_output", "Folder for everything the demo makes.", group=Group.INPUT, comes_last=True, writes=True
    )
    text: list[str] = option(
        [],
        "Your text instead of the docstrings of Python's library and the installed packages: files or folders, one "
        "sentence or paragraph per line, a blank line between documents. The classifier learns which file a passage "
        "is from; of a single file, which of its longest documents.",
        group=Group.INPUT,
        positional=1,
        reads="text file",
    )
    encoding: str = option("utf-8", "Encoding of your text.", group=Group.READING)
    vocab_size: int | None = option(
        None,
        "Entries of the vocabulary (default: 6000, or more for a script of many characters).",
        group=Group.VOCABULARY,
    )
    pretraining_steps: int = option(2500, "Steps of pretraining.", AT_LEAST_1)
    finetuning_epochs: float = option(2.0, "Epochs of fine-tuning.", ABOVE_0)
    seed: int = option(42, "Seed of every random choice.")
    overwrite: bool = option(
        False, "Replace an earlier demo in the output folder.", group=Group.INPUT, comes_last=True
    )
    disable_tqdm: bool = option(False, "Show no progress bars.", group=Group.RECORDS)


DemoArguments = by_keywords(DemoSettings)
