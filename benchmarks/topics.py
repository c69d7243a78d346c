"""Labeled texts for trials with few labels: two consecutive sentences of a document, with the document's source.

    python -m mybert.benchmarks.topics wikipedia=wiki_1.txt novels=fiction_1.txt,fiction_2.txt --output_dir topics

writes train.csv (400 texts of each source), dev.csv (150) and test.csv (250), of separate documents: the first half in
an order drawn with seed 0, and the two quarters after it.
"""

import argparse
import random
from pathlib import Path

from ..files.output import files_written_beside
from ..files.tables import write_separated
from ..pretraining import read_documents
from .harness import flag, script

TEXTS = {"train": 400, "dev": 150, "test": 250}  # of each source


def texts_of(files: list[str]) -> dict[str, list[str]]:
    """The texts of a source, by part."""
    documents = [each for each in read_documents(files) if len(each) > 1]
    if len(documents) < len(TEXTS):
        listed = ", ".join(files)
        raise ValueError(
            f"{listed}: documents of several sentences: {len(documents)}; expected at least {len(TEXTS)}."
        )
    random_ = random.Random(0)
    random_.shuffle(documents)
    half, quarter = len(documents) // 2, 3 * len(documents) // 4
    parts = {"train": documents[:half], "dev": documents[half:quarter], "test": documents[quarter:]}
    texts: dict[str, list[str]] = {}
    for part, chosen in parts.items():
        turns = [chosen[turn % len(chosen)] for turn in range(TEXTS[part])]
        starts = [random_.randrange(len(document) - 1) for document in turns]
        texts[part] = [" ".join(document[at : at + 2]) for document, at in zip(turns, starts, strict=True)]
    return texts


def source(text: str) -> tuple[str, list[str]]:
    """The name and the files of NAME=FILE,FILE."""
    name, _, files = text.partition("=")
    if not (name and files):
        raise argparse.ArgumentTypeError(f"found {text!r}; expected NAME=FILE,FILE")
    return name, files.split(",")


@script(
    flag("sources", type=source, nargs="+", help="NAME=FILE,FILE: a label and files of text in documents"),
    flag("--output_dir", required=True, type=Path, help="folder for the three tables"),
)
def main(arguments: argparse.Namespace) -> None:
    """Write the tables."""
    labels = [label for label, _ in arguments.sources]
    if len(set(labels)) < len(labels):
        raise ValueError(f"sources: the labels {', '.join(labels)}; expected each once.")
    by_label = {label: texts_of(files) for label, files in arguments.sources}
    with files_written_beside(arguments.output_dir) as made:
        for part in TEXTS:
            rows = [[text, label] for label, texts in by_label.items() for text in texts[part]]
            write_separated(made / f"{part}.csv", [["text", "label"], *rows])


if __name__ == "__main__":
    main()
