"""What other libraries say: only what matters for as long as it takes."""

from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def only_errors() -> Iterator[None]:
    """Keep transformers' warnings and reports out; what matters of them is said by the caller."""
    from transformers.utils import logging  # at the call: this room is imported where transformers is not needed

    verbosity = logging.get_verbosity()
    logging.set_verbosity_error()
    try:
        yield
    finally:
        logging.set_verbosity(verbosity)
