"""What all tests share: no network, few threads, tiny text."""

import logging
import os
from collections.abc import Iterator
from pathlib import Path

os.environ["HF_HUB_OFFLINE"] = "1"
os.environ.setdefault("OMP_NUM_THREADS", "1")  # tiny tensors: more threads only get in each other's way

import pytest
from transformers.utils import logging as transformers_logging

from mybert import MyBertTokenizer

DATA = Path(__file__).resolve().parents[2] / "shared" / "data"

WORDS = "the cat dog sat ran on under a mat tree and slept ate fish bread it was happy sad very today".split()


@pytest.fixture(autouse=True)
def logger_left_as_it_was() -> Iterator[None]:
    """Commands show what the package's logger says and keep it from all others; the next test hears it again."""
    logger = logging.getLogger("mybert")
    handlers, propagate, level = list(logger.handlers), logger.propagate, logger.level
    yield
    logger.handlers, logger.propagate = handlers, propagate
    logger.setLevel(level)


@pytest.fixture(autouse=True)
def libraries_left_as_they_were() -> Iterator[None]:
    """What a test sets for the whole process would decide what later tests hear: it fails here instead."""
    verbosity = transformers_logging.get_verbosity()
    disabled = logging.root.manager.disable
    yield
    assert (transformers_logging.get_verbosity(), logging.root.manager.disable) == (verbosity, disabled)


@pytest.fixture(scope="session")
def data_dir() -> Path:
    """Real corpora and task data; present in CI."""
    if not DATA.is_dir():
        pytest.skip(f"the test data is not at {DATA}")
    return DATA


@pytest.fixture(scope="session")
def tokenizer() -> MyBertTokenizer:
    """A tokenizer of a few words."""
    return MyBertTokenizer(vocab=["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *WORDS, ".", "##s"])


@pytest.fixture(scope="session")
def documents() -> list[list[str]]:
    """Sixty documents of five to nine sentences of known words."""
    return [
        [
            " ".join(WORDS[(7 * document + 3 * sentence + 5 * word) % len(WORDS)] for word in range(4 + sentence))
            for sentence in range(5 + document % 5)
        ]
        for document in range(60)
    ]


@pytest.fixture
def text_file(tmp_path, documents) -> Path:
    """The documents as a file: one sentence a line, a blank line between documents."""
    path = tmp_path / "text.txt"
    path.write_text("\n\n".join("\n".join(document) for document in documents) + "\n")
    return path
