"""Error messages for users, in one sentence."""

import errno
import re

from safetensors import SafetensorError

LONGEST_SENTENCE = 500  # characters; the middle of a longer message is cut out
_NO_MEMORY = re.compile("out of memory|can't allocate memory|not enough memory", re.IGNORECASE)  # torch's words


def sentence_for(error: Exception) -> str:
    """The message for a user error or a lack of resources; "" for any other error."""
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
