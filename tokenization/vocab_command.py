"""Vocabulary training as a command: text in, tokenizer folder and report out."""

import json
import os
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from .tokenization_mybert import MyBertTokenizer
from .wordpiece_trainer import train_wordpiece


@dataclass
class VocabArguments:
    """Arguments of ``mybert vocab``."""

    files: list[str] = field(
        metadata={"help": "Text files (plain, .gz, .xz, .bz2, .zst), folders or patterns; - is standard input."}
    )
    output_dir: str = field(metadata={"help": "Folder for vocab.txt, tokenizer.json and tokenizer_config.json."})
    vocab_size: int = field(default=30522, metadata={"help": "Number of pieces, reserved ones included."})
    algorithm: Literal["bpe", "wordpiece"] = field(
        default="bpe",
        metadata={"help": "bpe merges the most frequent pair, wordpiece the one with the highest likelihood ratio."},
    )
    layout: Literal["google", "compact"] = field(
        default="google",
        metadata={
            "help": "google: [PAD] 0, [unused0..98], [UNK] 100 ... 998; compact: the five special tokens first."
        },
    )
    lower_case: bool = field(default=True, metadata={"help": "Lower-case the text."})
    strip_accents: bool = field(
        default=False, metadata={"help": "Strip accents (Google does when lower-casing; harmful for Korean)."}
    )
    character_coverage: float = field(
        default=0.9999, metadata={"help": "Share of the text's characters to keep in the alphabet, above 0 up to 1."}
    )
    min_frequency: int = field(default=2, metadata={"help": "Pairs that occur less often are not merged."})
    held_out_fraction: float = field(
        default=0.005, metadata={"help": "Share of the lines to put aside for the report, 0 to 0.5."}
    )
    encoding: str = field(default="utf-8", metadata={"help": "Encoding of the files."})
    num_processes: int | None = field(
        default=None, metadata={"help": "Processes that count words; by default one per core."}
    )
    report: str | None = field(default=None, metadata={"help": "JSON file for the report."})
    overwrite: bool = field(default=False, metadata={"help": "Write into a folder that is not empty."})
    quiet: bool = field(default=False, metadata={"help": "Show neither progress nor summary."})


def train_vocabulary(arguments: VocabArguments) -> MyBertTokenizer:
    """Train a vocabulary and write the tokenizer folder and, if asked for, the report.

    Args:
        arguments: See `VocabArguments`.

    Returns:
        The tokenizer that was saved; its ``training_report`` holds the figures.

    Raises:
        ValueError: The output folder is not empty, or see `train_wordpiece`.
        OSError: A file cannot be read or written.
    """
    folder = Path(arguments.output_dir)
    if folder.is_dir() and any(folder.iterdir()) and not arguments.overwrite:
        raise ValueError(f"output_dir {folder} is not empty; name another folder or use --overwrite.")
    if folder.exists() and not folder.is_dir():
        raise ValueError(f"output_dir {folder} is a file, expected a folder.")
    files = [arguments.files] if isinstance(arguments.files, (str, Path)) else arguments.files
    tokenizer = train_wordpiece(
        [Path(name) if name != "-" else name for name in files],
        arguments.vocab_size,
        algorithm=arguments.algorithm,
        lower_case=arguments.lower_case,
        strip_accents=arguments.strip_accents,
        layout=arguments.layout,
        character_coverage=arguments.character_coverage,
        min_frequency=arguments.min_frequency,
        held_out_fraction=arguments.held_out_fraction,
        encoding=arguments.encoding,
        num_processes=arguments.num_processes,
        show_progress=not arguments.quiet,
    )
    tokenizer.save_pretrained(folder)
    assert tokenizer.training_report is not None
    if arguments.report is not None:
        report = Path(arguments.report)
        report.parent.mkdir(parents=True, exist_ok=True)
        temporary = report.with_name(f"{report.name}.tmp{os.getpid()}")
        text = json.dumps(tokenizer.training_report.to_dict(), indent=2, ensure_ascii=False)
        temporary.write_text(f"{text}\n", encoding="utf-8")
        temporary.replace(report)
    if not arguments.quiet:
        print(tokenizer.training_report.summary())
    return tokenizer
