"""Files of sentence-transformers in a model folder, which configure pooling and prompts.

Without them the folder still loads, but silently gives other vectors (mean of all tokens, not normalised).
Source: `save` of sentence_transformers' `SentenceTransformer`.
"""

import json
import shutil
from pathlib import Path, PurePosixPath

_MODULES = "modules.json"
_SETTINGS = (_MODULES, "config_sentence_transformers.json", "sentence_bert_config.json")
# The same as patterns for `check_output_folder` and the Hub; modules lie in folders such as 1_Pooling.
COMPANIONS = (*_SETTINGS, "[1-9]_*/**", "[1-9][0-9]_*/**")


def companion_files(model_dir: str | Path) -> list[str]:
    """The files of sentence-transformers in a model folder, relative and sorted: settings, and those of modules."""
    model_dir = Path(model_dir)
    found = [model_dir / name for name in _SETTINGS if (model_dir / name).is_file()]
    for module in _module_folders(model_dir):
        found += [path for path in (model_dir / module).rglob("*") if path.is_file()]
    for path in found:
        # Error messages name the file; a module's folder must be in this one.
        refuse_link_outside(path, model_dir)
    return sorted({path.relative_to(model_dir).as_posix() for path in found})


def copy_companions(source: str | Path, target: str | Path) -> list[str]:
    """Copy what `companion_files` lists into another model folder, byte by byte; returns the relative paths."""
    names = companion_files(source)
    for name in names:
        copy = Path(target) / name
        copy.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(Path(source) / name, copy)
    return names


def _module_folders(model_dir: Path) -> list[str]:
    """The folders of modules; the model itself is not in one."""
    file = model_dir / _MODULES
    if not file.is_file():
        return []
    try:
        modules = json.loads(file.read_bytes())
        paths = [module["path"] for module in modules if module["path"]]
        parts = {path: PurePosixPath(path).parts for path in paths}
        unsafe = [path for path, names in parts.items() if not names or names[0] == "/" or ".." in names]
    except (ValueError, RecursionError, KeyError, TypeError) as error:
        found = f"{type(error).__name__}: {str(error)[:100]}"
        raise ValueError(f"{file} is not a list of sentence-transformers modules ({found}).") from None
    if unsafe:
        raise ValueError(f"{file} names {unsafe[0][:100]!r}; expected folders within {model_dir}.")
    return paths


def refuse_link_outside(path: Path, model_dir: Path) -> None:
    """Reject a file of a model folder that is a link to somewhere outside; the Hub's cache is allowed."""
    # Otherwise a downloaded folder could leak private files when published or copied.
    folder = model_dir.resolve()
    if not any(path.resolve().is_relative_to(place) for place in (folder, folder.parent.parent / "blobs")):
        raise ValueError(f"{path} is a link that leads out of {model_dir}; expected a file.")
