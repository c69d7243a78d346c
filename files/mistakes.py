"""What went wrong, in one sentence."""

import errno
import re

from safetensors import SafetensorError

LONGEST_SENTENCE = 500  # characters of an error; of a longer one the middle is left out
_NO_MEMORY = re.compile("out of memory|can't allocate memory|not enough memory", re.IGNORECASE)  # torch's words


def sentence_for(error: Exception) -> str:
    """A mistake of the user, or something that the machine lacks, in words; "" for what is neither."""
    text = " ".join(str(error).split())
    if isinstance(error, MemoryError) or (isinstance(error, RuntimeError) and _NO_MEMORY.search(text)):
        text = f"not enough memory ({text or 'an allocation failed'})."
    elif isinstance(error, RecursionError):
        text = "the input is nested too deeply."
    elif isinstance(error, SafetensorError):
        text = f"the weights are not a complete safetensors file: {text}."
    elif isinstance(error, OSError) and error.strerror:
        cause = "the disk is full" if error.errno in (errno.ENOSPC, errno.EDQUOT) else error.strerror
        text = f"{error.filename}: {cause}." if error.filename else f"{cause}."
    elif not isinstance(error, ValueError | OSError | ImportError):
        return ""
    half = (LONGEST_SENTENCE - 5) // 2
    return text if len(text) <= LONGEST_SENTENCE else f"{text[:half]} ... {text[-half:]}"
