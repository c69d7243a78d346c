"""Publishing: a model folder becomes a Hub repository that works with and without this package.

Of a run's folder only the model goes out (safetensors, never pickle): configuration, weights, tokenizer, card and
pictures. Added are the modelling code and an `auto_map` that names it for every Auto class: `save_pretrained` alone
would list only the class that was saved. https://huggingface.co/docs/transformers/custom_models describes the format.
"""

import json
import logging
import os
import re
import shutil
import tempfile
from collections.abc import Iterable, Mapping
from fnmatch import fnmatch
from pathlib import Path
from typing import Any

import yaml
from huggingface_hub import CommitInfo, CommitOperationAdd, CommitOperationDelete, HfApi, ModelCard
from huggingface_hub.errors import HTTPError, RevisionNotFoundError
from huggingface_hub.utils import validate_repo_id

from .. import modeling_mybert
from ..modeling_mybert import MyBertConfig, auto_map
from .card import CardContent, describe_model, render_card

logger = logging.getLogger(__name__)

_CARD, _CONFIG = "README.md", "config.json"
# Weights as `save_pretrained` names them: in one file, or in parts.
_WEIGHTS, _PARTS = ("model.safetensors",), ("model-*-of-*.safetensors", "model.safetensors.index.json")
_TOKENIZER = ("tokenizer.json", "tokenizer_config.json")
_OTHER_FILES = ("special_tokens_map.json", "added_tokens.json", "vocab.txt", "*.png", "LICENSE*")

Content = Path | bytes


def publishable_files(model_dir: str | os.PathLike[str], repo_id: str) -> dict[str, Content]:
    """What a model folder's repository consists of; the folder itself stays as it is.

    Args:
        model_dir: A MyBERT model folder, as `save_pretrained` of model and tokenizer or a run of this package left it.
        repo_id: The repository's name, with its owner. Examples in the card that load this folder load the repository
            instead.

    Returns:
        Name in the repository -> file, or content where it differs from the folder's.

    Raises:
        FileNotFoundError: If the folder has no configuration, safetensors weights or tokenizer.
        ValueError: If the configuration is broken or of another model type, the card's metadata is not valid, or the
            Hub allows no such name.
    """
    validate_repo_id(repo_id)
    model_dir = Path(model_dir)
    description = describe_model(model_dir)
    if description.model_type != MyBertConfig.model_type:
        hint = (
            "`mybert convert bert` makes a MyBERT folder of it"
            if description.model_type == "bert"
            else "the code that goes to the Hub with a model has no other type"
        )
        raise ValueError(
            f"{model_dir / _CONFIG} is of type {description.model_type!r}, expected {MyBertConfig.model_type!r}: "
            f"{hint}."
        )
    # One file wins, as in transformers: `save_pretrained` leaves the index of an earlier save behind.
    weights = _matching(model_dir, _WEIGHTS) or _matching(model_dir, _PARTS)
    if not any(name.endswith(".safetensors") for name in weights):
        raise FileNotFoundError(
            f"{model_dir} holds no model.safetensors: only safetensors are published; save_pretrained writes them."
        )
    for name in _TOKENIZER:
        if not (model_dir / name).is_file():
            raise FileNotFoundError(f"{model_dir} holds no {name}: save the tokenizer there with save_pretrained.")
    config = json.loads((model_dir / _CONFIG).read_text(encoding="utf-8")) | {"auto_map": auto_map()}
    card = model_dir / _CARD
    if card.is_file():
        text = _load_from_repository(card.read_text(encoding="utf-8"), model_dir, repo_id)
    else:
        text = render_card(CardContent(name=repo_id.split("/")[-1], model=description))
    _check_metadata(text, card)
    code = Path(modeling_mybert.__file__).parent.glob("*_mybert.py")
    return {
        _CONFIG: (json.dumps(config, indent=2, sort_keys=True) + "\n").encode(),
        _CARD: text.encode(),
        **{path.name: path for path in code},
        **weights,
        **_matching(model_dir, (*_TOKENIZER, *_OTHER_FILES)),
    }


def write_publishable(model_dir: str | os.PathLike[str], output_dir: str | os.PathLike[str], repo_id: str) -> Path:
    """Write the folder that `publish` would upload; nothing leaves this machine.

    Args:
        model_dir: A MyBERT model folder.
        output_dir: Folder to make; it must not exist yet, or be empty. It appears when it is complete.
        repo_id: The repository's name, with its owner, for the examples in the card.

    Returns:
        `output_dir`.

    Raises:
        ValueError: If `output_dir` has content, or for the reasons of `publishable_files`.
        FileNotFoundError: As `publishable_files`.
    """
    output_dir = Path(output_dir)
    if output_dir.exists() and not (output_dir.is_dir() and not any(output_dir.iterdir())):
        raise ValueError(f"{output_dir} is there already; expected a new or empty folder.")
    files = publishable_files(model_dir, repo_id)
    output_dir.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=output_dir.parent, prefix=f".{output_dir.name}.") as temporary:
        folder = Path(temporary, "folder")
        folder.mkdir()
        for name, content in files.items():
            if isinstance(content, bytes):
                (folder / name).write_bytes(content)
            else:
                shutil.copyfile(content, folder / name)
        folder.replace(output_dir)
    return output_dir


def publish(
    model_dir: str | os.PathLike[str],
    repo_id: str,
    *,
    private: bool | None = None,
    revision: str | None = None,
    branch: str | None = None,
    create_pr: bool = False,
    token: str | bool | None = None,
    commit_message: str = "Upload model",
) -> CommitInfo:
    """Publish a model folder on the Hub, in one commit: readers see the old model or the new one, never a mixture.

    An interrupted call can be repeated: what was uploaded is not uploaded again. Weight files of an earlier upload
    that this model does not have are deleted, because transformers might load them in place of the new ones.

    Args:
        model_dir: A MyBERT model folder. It is not changed.
        repo_id: `name` or `owner/name`; the repository is made if there is none.
        private: Whether the repository shall be private. `None` leaves it to the owner's settings.
        revision: Branch to commit to, which is made if there is none, or a pull request (`"refs/pr/1"`); by default
            `main`.
        branch: Branch to commit to; if there is none, it is made and starts at `revision`.
        create_pr: Whether to open a pull request for `main`. To go on with an interrupted one, repeat the call with
            its `revision`.
        token: Access token; by default that of `hf auth login` or the environment variable `HF_TOKEN`. It is neither
            shown nor stored.
        commit_message: First line of the commit.

    Returns:
        huggingface_hub's `CommitInfo`: `oid`, `commit_url` and, for a pull request, `pr_url` and `pr_revision`.

    Raises:
        FileNotFoundError: As `publishable_files`.
        ValueError: As `publishable_files`; or if `create_pr` is combined with a branch or revision; or if `private`
            contradicts the repository that is there.
        ConnectionError: If the Hub cannot be reached or the upload broke off.
        huggingface_hub.errors.HfHubHTTPError: If the Hub refuses, as for want of rights; a kind of `OSError`.
    """
    if create_pr and (branch or revision):
        raise ValueError(
            f"create_pr opens a pull request for main; it was combined with {branch or revision!r}, expected neither "
            "branch nor revision."
        )
    publishable_files(model_dir, repo_id)  # mistakes are said before a repository is made
    api = HfApi(token=token, library_name="mybert")
    try:
        repo_id = api.create_repo(repo_id, private=private, exist_ok=True).repo_id
        if private is not None and bool(api.model_info(repo_id).private) != private:
            raise ValueError(
                f"{repo_id} exists and is {'public' if private else 'private'}, which private={private} does not "
                "change; update_repo_settings of huggingface_hub does."
            )
        target = branch or revision
        if target and not target.startswith("refs/"):
            api.create_branch(repo_id, branch=target, revision=revision if branch else None, exist_ok=True)
        files = publishable_files(model_dir, repo_id)  # now with the owner's name in the examples
        stale = _stale_weights(api.list_repo_files(repo_id, revision=target), files)
        commit = api.create_commit(
            repo_id,
            [
                *(CommitOperationAdd(name, content) for name, content in files.items()),
                *(CommitOperationDelete(name) for name in stale),
            ],
            commit_message=commit_message,
            revision=target,
            create_pr=create_pr,
        )
    except RevisionNotFoundError as error:
        raise ValueError(f"{repo_id} has no revision {revision!r}.") from error
    except OSError:  # the Hub's refusals are of this kind too, and say what it said
        raise
    except (HTTPError, RuntimeError) as error:
        reason = " ".join(str(error.__cause__ or error).split()).rstrip(".")
        raise ConnectionError(
            f"Publishing {model_dir} to {repo_id} broke off: {reason}. The same call goes on."
        ) from error
    logger.info("Published %s: %s", model_dir, commit.pr_url or commit.commit_url)
    return commit


def _matching(folder: Path, patterns: Iterable[str]) -> dict[str, Path]:
    return {path.name: path for pattern in patterns for path in sorted(folder.glob(pattern)) if path.is_file()}


def _stale_weights(present: Iterable[str], files: Mapping[str, Any]) -> list[str]:
    patterns = (*_WEIGHTS, *_PARTS, "pytorch_model*.bin", "pytorch_model.bin.index.json")
    return [name for name in present if name not in files and any(fnmatch(name, pattern) for pattern in patterns)]


def _load_from_repository(card: str, model_dir: Path, repo_id: str) -> str:
    """Let the card's examples name the repository where they name the folder, wherever they were run."""
    folder = model_dir.resolve()

    def rename(match: re.Match[str]) -> str:
        quote, name = match.groups()
        parts = Path(name).parts
        is_folder = Path(name).resolve() == folder or folder.parts[len(folder.parts) - len(parts) :] == parts
        return f"model={quote}{repo_id}{quote}" if is_folder else match[0]

    return re.sub(r"""model=(['"])([^'"\n]+)\1""", rename, card)


def _check_metadata(card: str, path: Path) -> None:
    try:
        ModelCard(card)  # reads the model-index as well
    except (ValueError, TypeError, yaml.YAMLError) as error:
        reason = " ".join(str(error).split())
        raise ValueError(f"The metadata of {path} is not what the Hub expects: {reason}") from error
