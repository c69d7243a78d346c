"""Checking names of models that may be on the Hub before anything is loaded."""

import os
from collections.abc import Iterable
from pathlib import Path

from .addresses import refuse_address

_LONGEST_ANSWER = 5  # timeout of a request, in seconds
# A model or tokenizer has at least one of these files.
_FILES = ("config.json", "tokenizer_config.json", "tokenizer.json", "vocab.txt")


def check_path(name: str | os.PathLike[str], argument: str = "model") -> None:
    """Reject a missing path; a tokenizer may be a file."""
    refuse_address(name, "a model folder, or a name on the Hub")
    path, name = Path(name), os.fspath(name)
    if path.is_file() and argument != "tokenizer":
        raise NotADirectoryError(f"{argument} is {name!r}, which is a file; expected the folder of a model.")
    # Hub names are not absolute, do not start with a dot or `~`, and have one slash at most. A name whose first part
    # is an existing folder is also treated as a path.
    is_in_a_folder = len(path.parts) == 2 and path.parent.is_dir()
    is_path = path.is_absolute() or name.startswith((".", "~")) or len(path.parts) > 2 or is_in_a_folder
    if is_path and not path.exists():
        raise FileNotFoundError(f"There is no model folder {name}.")


def check_available(name: str | os.PathLike[str], argument: str = "model") -> None:
    """Reject a model that is neither local nor on the Hub, at once: transformers retries for 20 seconds."""
    check_path(name, argument)
    if Path(name).exists():
        return
    from huggingface_hub import get_hf_file_metadata, hf_hub_url, try_to_load_from_cache
    from huggingface_hub.errors import EntryNotFoundError, HFValidationError, HTTPError, RepositoryNotFoundError

    name = os.fspath(name)
    what = f"{argument} is {name!r}; there is no such folder here, and"
    try:
        # The Hub is not asked about names in the cache.
        if not any(isinstance(try_to_load_from_cache(name, file), str) for file in _FILES):
            get_hf_file_metadata(hf_hub_url(name, "config.json"), timeout=_LONGEST_ANSWER)
    except EntryNotFoundError:
        return  # it exists; missing files are reported on loading
    except HFValidationError:
        raise FileNotFoundError(f"There is no model folder {name}.") from None
    except RepositoryNotFoundError as error:
        raise OSError(f"{what} the Hub has none of that name, or it is private.") from error
    except (HTTPError, OSError) as error:
        raise OSError(f"{what} the Hub could not be reached to look for it.") from error


def local_folder(name: str | os.PathLike[str], patterns: Iterable[str]) -> Path:
    """The folder itself, or the cached copy of some files, by patterns of their names, of a model on the Hub."""
    if Path(name).is_dir():
        return Path(name)
    from huggingface_hub import snapshot_download

    return Path(snapshot_download(os.fspath(name), allow_patterns=list(patterns)))
