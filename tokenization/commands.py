"""`mybert vocab`: text in, tokenizer folder and report out."""

import logging
from pathlib import Path

from ..files.documents import expand_sources
from ..files.output import check_output_files, outputs_together, write_json
from .learning import read_files
from .settings import TOKENIZER_FILES, VocabSettings
from .tokenization_mybert import MyBertTokenizer, learn_tokenizer

logger = logging.getLogger(__name__)


def train_vocabulary(arguments: VocabSettings) -> MyBertTokenizer:
    """Train a vocabulary and write the tokenizer folder and, if requested, the report.

    An existing tokenizer and report are replaced at the end, together. Until then the folder is locked.

    Returns:
        The tokenizer that was saved; its `training_report` holds the figures.

    Raises:
        ValueError: The output folder contains other files, the report exists or is the text itself, or see
            `train_wordpiece`.
    """
    folder = Path(arguments.output_dir)
    report = None if arguments.report is None else Path(arguments.report)
    is_inside = report is not None and report.resolve().parent == folder.resolve()
    owned = (*TOKENIZER_FILES, report.name) if report is not None and is_inside else TOKENIZER_FILES
    blocks = read_files(arguments.text, arguments.reading)
    if report is not None:
        taken = [folder / name for name in TOKENIZER_FILES]
        check_output_files([report], arguments.overwrite, [*expand_sources(arguments.text), *taken])
    with outputs_together() as open_output:
        beside = open_output(folder, owned, overwrite=arguments.overwrite)
        tokenizer = learn_tokenizer(blocks, arguments, show_progress=not arguments.quiet)
        assert tokenizer.training_report is not None
        tokenizer.save_pretrained(beside)
        if report is not None:
            place = beside / report.name if is_inside else open_output(report, overwrite=arguments.overwrite)
            write_json(place, tokenizer.training_report.to_dict())
    logger.info("%s", tokenizer.training_report.summary())
    return tokenizer
