"""Publishing: a model folder becomes a Hub repository that works with and without this package.

Only the model in a run's folder is published (safetensors, never pickle): configuration, weights, tokenizer, card and
pictures; and graphs of other runtimes if asked for. It is plain BERT, which every tool loads, if transformers' BERT
computes the same. Otherwise the modeling code is added, and an `auto_map` with every Auto class: `save_pretrained`
alone would list only the saved class. https://huggingface.co/docs/transformers/custom_models describes that format.
"""

import ast
import json
import logging
import os
import re
import shutil
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from fnmatch import fnmatch
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import yaml
from huggingface_hub import (
    CommitInfo,
    CommitOperationAdd,
    CommitOperationDelete,
    EvalResultEntry,
    HfApi,
    ModelCard,
    eval_result_entries_to_yaml,
    parse_eval_result_entries,
)
from huggingface_hub.errors import HTTPError, RevisionNotFoundError
from huggingface_hub.repocard import REGEX_YAML_BLOCK
from huggingface_hub.utils import validate_repo_id

from .. import modeling_mybert
from ..cards.card import (
    CardContent,
    ModelDescription,
    describe_model,
    is_finite_number,
    pictures_missing_in,
    pictures_of,
    read_utf8,
    render_card,
)
from ..conversion import to_transformers_bert
from ..conversion.model_folder import ModelFolder
from ..files.checkpoint import (
    COMPANIONS,
    TASK_RECORD,
    TOKENIZER_FILES,
    Checkpoint,
    companion_files,
    read_json_object,
    refuse_link_outside,
)
from ..files.errors import SettingError
from ..files.loading import load_tokenizer
from ..files.output import MODEL_FOLDER, check_output_files, output_to, outputs_together, place_to_write, write_text
from ..files.settings import build
from ..files.yaml_files import nodes_of_text, read_yaml, yaml_value
from ..modeling_mybert import MyBertConfig, auto_map
from .graphs import GRAPH_FILES, Graphs, check_graphs, write_graphs
from .settings import RUNTIMES, PublicationOptions, UploadOptions

logger = logging.getLogger(__name__)

_CARD, _CONFIG = "README.md", "config.json"
_TOKENIZER = ("tokenizer.json", "tokenizer_config.json")
_OTHER_FILES = ("special_tokens_map.json", "added_tokens.json", "vocab.txt", "LICENSE*")
_PICTURES = "*.png"  # of which those that the card names are published: others may show texts of the data
_TYPES = (MyBertConfig.model_type, "bert")
# What of an earlier upload tools might load instead of the published model, or with it: other weights, tokenizers,
# adapters, modules of sentence-transformers, graphs, code.
_STALE = (
    *("model.safetensors", "model-*-of-*.safetensors", "model.safetensors.index.json", "pytorch_model*.bin*"),
    *("tf_model.h5", "flax_model.msgpack", "adapter_config.json", "adapter_model.*"),
    *("*_mybert.py", *GRAPH_FILES, *TOKENIZER_FILES, *COMPANIONS),
)
_SENTENCES = "sentence-transformers"
_HARMLESS = (".json", ".safetensors", ".txt", ".model")  # endings of the files of sentence-transformers' modules

# Results on the Hub's benchmarks, from which it builds leaderboards: it accepts them only for data sets registered as
# benchmarks (https://huggingface.co/docs/hub/eval-results); all other results are in the card's `model-index`.
_BENCHMARKS = ".eval_results"

Content = Path | bytes
_NO_GRAPHS = Graphs()


def publishable_files(
    model_dir: str | os.PathLike[str], repo_id: str, graphs: Graphs = _NO_GRAPHS
) -> dict[str, Content]:
    """The files of a model folder's repository as the folder is, without graphs; the folder is not changed.

    Args:
        model_dir: A MyBERT or BERT model folder, written by `save_pretrained` of model and tokenizer or by a run.
        repo_id: The repository's name, with its owner. Examples in the card that load this folder load the repository
            instead.
        graphs: Those that are published as well, for the card.

    Returns:
        For each name in the repository the file, or its content if that differs from the folder's.

    Raises:
        FileNotFoundError: If the folder has no configuration, safetensors weights or tokenizer.
        ValueError: If configuration or weights are broken or of another model type, a file is a link to somewhere
            outside of the folder, the card's metadata is invalid, or the Hub does not allow the name.
    """
    validate_repo_id(repo_id)
    model_dir = Path(model_dir)
    files = _files_of_repository(model_dir, repo_id, graphs)
    load_tokenizer(Checkpoint(model_dir))  # raises an error if it does not belong to the model
    return files


def _files_of_repository(model_dir: Path, repo_id: str, graphs: Graphs = _NO_GRAPHS) -> dict[str, Content]:
    """As `publishable_files`, of a folder whose tokenizer is known to belong to the model."""
    checkpoint = Checkpoint(model_dir)
    description = describe_model(checkpoint)
    if description.model_type not in _TYPES:
        raise ValueError(
            f"{model_dir / _CONFIG} is of type {description.model_type!r}; expected {' or '.join(_TYPES)}: the code "
            "that goes to the Hub with a model has no other type."
        )
    for name in _TOKENIZER:
        if not (model_dir / name).is_file():
            raise FileNotFoundError(f"{model_dir} holds no {name}: save the tokenizer there with save_pretrained.")
    weights = list(checkpoint.weight_files)
    if len(weights) > 1:
        weights.append(model_dir / "model.safetensors.index.json")
    companions = companion_files(model_dir)
    if strange := [name for name in companions if not name.endswith(_HARMLESS)]:
        raise ValueError(
            f"{model_dir / strange[0]} is not one of {', '.join(_HARMLESS)}; code and pickles are not published."
        )
    for name in (_CONFIG, _CARD):
        refuse_link_outside(model_dir / name, model_dir)
    card = _card(model_dir, description, repo_id, companions)
    others = [path for pattern in _OTHER_FILES for path in sorted(model_dir.glob(pattern))]
    files: dict[str, Content] = {
        **{path.name: path for path in (*weights, *others, *pictures_of(card, model_dir)) if path.is_file()},
        **{name: model_dir / name for name in (*_TOKENIZER, *companions)},
        **_benchmark_result_files(model_dir),
    }
    for path in files.values():
        if isinstance(path, Path):
            refuse_link_outside(path, model_dir)
    tokenizer = read_json_object(model_dir / "tokenizer_config.json")
    if tokenizer.pop("auto_map", None) is not None:  # its code is not published
        files["tokenizer_config.json"] = _json(tokenizer)
    config = {name: value for name, value in checkpoint.fields.items() if name not in ("auto_map", "custom_pipelines")}
    if description.model_type == MyBertConfig.model_type:
        files |= {path.name: path for path in Path(modeling_mybert.__file__).parent.glob("*_mybert.py")}
        config["auto_map"] = auto_map()
    if graphs.is_new or not graphs.files:  # what the card says is of other graphs
        card = re.sub(r"\n## Graphs\n\n(- .*\n)+", "", card)
    sections = {"Graphs": graphs.notes, "What other tools leave out": _left_out_by_others(config.get(TASK_RECORD))}
    for title, lines in sections.items():
        if lines and f"\n## {title}\n" not in card:
            card += f"\n## {title}\n\n" + "".join(f"- {line}\n" for line in lines)
    return {_CONFIG: _json(config), _CARD: card.encode(), **files}


def _left_out_by_others(record: Any) -> list[str]:
    """What this package reads in a task's record and pipelines of others do not."""
    if not isinstance(record, dict):
        return []
    where = f"`{TASK_RECORD}` in `config.json`"
    return [
        sentence
        for name, sentence in {
            "thresholds": f"Thresholds fitted to validation data, from which on a label is given ({where}).",
            "temperature": f"A temperature, by which logits are divided before the softmax ({where}): labels stay the "
            "same, probabilities are less certain or more.",
            "window_pooling": "Windows of long texts, whose logits are pooled; others cut texts off.",
            "doc_stride": "Windows of long texts; others cut texts off, or overlap them otherwise.",
            "null_score_threshold": f"The threshold of no answer ({where}).",
        }.items()
        if record.get(name) not in (None, {})  # 0 is a stride, and a threshold
    ]


@contextmanager
def _prepared(
    model_dir: str | os.PathLike[str], repo_id: str, options: PublicationOptions
) -> Iterator[tuple[Path, Graphs]]:
    """The folder to publish, a converted one if it becomes plain BERT, and its graphs; checked before any upload."""
    model_dir = Path(model_dir)
    described = describe_model(model_dir)
    with TemporaryDirectory() as temporary:
        folder, graphs = model_dir, Graphs()
        if described.model_type in _TYPES:  # else `publishable_files` rejects it
            graphs = check_graphs(model_dir, set(RUNTIMES) - set(options.graphs))  # others are replaced
        if options.graphs:
            new = write_graphs(model_dir, Path(temporary, "graphs"), options.graphs, options.data)
            graphs = Graphs(graphs.files | new.files, (*new.notes, *graphs.notes), is_new=True)
        if described.model_type == "bert" and options.format == "mybert":
            raise ValueError(f"{model_dir} is plain BERT; `mybert convert bert` makes a MyBERT folder of it.")
        becomes_bert = described.model_type == MyBertConfig.model_type and _becomes_bert(model_dir, options.format)
        # Raises errors before anything is uploaded, in the words of this folder.
        files = publishable_files(model_dir, repo_id)
        if missing := pictures_missing_in(bytes(files[_CARD]).decode(), files):
            logger.warning(
                "%s shows pictures that are not published (%s); expected PNG files in the folder itself.",
                model_dir / _CARD,
                ", ".join(missing),
            )
        if becomes_bert:
            folder = Path(temporary, "bert", model_dir.resolve().name)
            to_transformers_bert(model_dir, folder)
            _copy_others(model_dir, folder)
        yield folder, graphs


def _becomes_bert(model_dir: Path, wanted: str | None) -> bool:
    source = ModelFolder(model_dir)
    reason = source.own_feature or source.other_pooling
    if reason and wanted == "bert":
        raise ValueError(f"{model_dir} cannot be plain BERT: {reason}.")
    if reason and wanted is None:
        logger.info("%s is published with this package's code: %s.", model_dir, reason)
    return wanted != "mybert" and reason is None


def _copy_others(model_dir: Path, folder: Path) -> None:
    """Copy what a conversion leaves: the license, lists of tokens, results on benchmarks."""
    paths = [path for pattern in (*_OTHER_FILES, f"{_BENCHMARKS}/*.yaml") for path in model_dir.glob(pattern)]
    for path in paths:
        target = folder / path.relative_to(model_dir)
        if path.is_file() and not target.exists():
            target.parent.mkdir(exist_ok=True)
            shutil.copyfile(path, target)


def write_publishable(
    model_dir: str | os.PathLike[str],
    output_dir: str | os.PathLike[str],
    repo_id: str,
    overwrite: bool = False,
    **options: Any,
) -> Path:
    """Write the folder that `publish` would upload, which appears when it is complete; nothing is uploaded.

    Args:
        model_dir, output_dir, repo_id: The model folder, the folder to write and the repository's name.
        overwrite: Replace the folder that an earlier call wrote.
        **options: See `PublicationOptions`.

    Raises:
        ValueError: If `output_dir` is the model folder or around it, or has content, other than that of an earlier
            call with `overwrite`; see also `publish`.
    """
    owned = (*MODEL_FOLDER, *COMPANIONS, *_OTHER_FILES, _PICTURES, *(f"{name}/**" for name in RUNTIMES))
    place = place_to_write(output_dir, "folder")
    with (
        _prepared(model_dir, repo_id, build(PublicationOptions, options)) as (folder, graphs),
        output_to(place, owned, overwrite=overwrite, read=[os.fspath(model_dir)]) as output,
    ):
        for name, content in {**_files_of_repository(folder, repo_id, graphs), **graphs.files}.items():
            (output / name).parent.mkdir(exist_ok=True, parents=True)
            if isinstance(content, bytes):
                (output / name).write_bytes(content)
            else:
                shutil.copyfile(content, output / name)
    return place


def publish(
    model_dir: str | os.PathLike[str], repo_id: str, *, token: str | bool | None = None, **options: Any
) -> CommitInfo:
    """Publish a model folder on the Hub, in one commit, so that readers never see a mixture of two models.

    It becomes plain BERT if transformers' BERT computes the same: all weights equal in every bit and outputs equal to
    1e-5, which is checked before the upload. An interrupted call can be repeated; files that were already uploaded are
    not uploaded again. Weights, tokenizers, graphs and code of an earlier upload that this one does not have are
    deleted, because tools might load them, too.

    Args:
        model_dir: A MyBERT or BERT model folder. It is not changed.
        repo_id: `name` or `owner/name`; the repository is created if it does not exist.
        token: Access token; by default that of `hf auth login` or the environment variable `HF_TOKEN`. It is neither
            shown nor stored.
        **options: See `UploadOptions`.

    Returns:
        huggingface_hub's `CommitInfo`: `oid`, `commit_url` and, for a pull request, `pr_url` and `pr_revision`. If the
        repository already has exactly these files, it is the existing commit, and no pull request is opened.

    Raises:
        FileNotFoundError: If the folder has no configuration, safetensors weights or tokenizer.
        ValueError: As `publishable_files`; if the model cannot be plain BERT and `format` says so; if a graph is not
            of the weights; if `create_pr` is combined with a branch or revision; or if the existing repository has a
            model of another type, or `private` contradicts it.
        ImportError: If the runtime of a graph is not installed.
        ConnectionError: If the Hub cannot be reached or the upload broke off.
        huggingface_hub.errors.HfHubHTTPError: If the Hub rejects it, for example for lack of permission; a subclass of
            `OSError`.
    """
    upload = build(UploadOptions, options)
    if upload.create_pr and (upload.branch or upload.revision):
        raise SettingError.worded(
            "{create_pr} opens a pull request for main; it was combined with {!r}; expected neither "
            "{branch} nor {revision}.",
            upload.branch or upload.revision,
        )
    validate_repo_id(repo_id)
    with _prepared(model_dir, repo_id, upload) as (folder, graphs):
        return _upload(folder, graphs, repo_id, upload, HfApi(token=token, library_name="mybert"), model_dir)


def _upload(
    folder: Path, graphs: Graphs, repo_id: str, upload: UploadOptions, api: HfApi, model_dir: str | os.PathLike[str]
) -> CommitInfo:
    private, revision, branch = upload.private, upload.revision, upload.branch
    try:
        repo_id = api.create_repo(repo_id, private=private, exist_ok=True).repo_id
        info = api.model_info(repo_id)
        if (model_type := (info.config or {}).get("model_type")) not in (None, *_TYPES):
            raise ValueError(
                f"{repo_id} exists and holds a model of type {model_type!r}; expected {' or '.join(_TYPES)}: publish "
                "to another repository, or delete that model first."
            )
        if private is not None and bool(info.private) != private:
            raise ValueError(
                f"{repo_id} exists and is {'public' if private else 'private'}, which private={private} does not "
                "change; update_repo_settings of huggingface_hub does."
            )
        target = branch or revision
        if target and not target.startswith("refs/"):
            api.create_branch(repo_id, branch=target, revision=revision if branch else None, exist_ok=True)
        # With the owner's name in the examples.
        files = {**_files_of_repository(folder, repo_id, graphs), **graphs.files}
        others = set(api.list_repo_files(repo_id, revision=target)) - files.keys()
        stale = sorted(name for name in others if any(fnmatch(name, pattern) for pattern in _STALE))
        commit = api.create_commit(
            repo_id,
            [
                *(CommitOperationAdd(name, content) for name, content in files.items()),
                *(CommitOperationDelete(name) for name in stale),
            ],
            commit_message=upload.commit_message,
            revision=target,
            create_pr=upload.create_pr,
        )
    except RevisionNotFoundError as error:
        raise ValueError(f"{repo_id} has no revision {revision or branch!r}.") from error
    except OSError:  # includes the Hub's refusals, which quote its message
        raise
    except (HTTPError, RuntimeError) as error:
        reason = " ".join(str(error.__cause__ or error).split()).rstrip(".")
        raise ConnectionError(
            f"Publishing {model_dir} to {repo_id} broke off: {reason}. The same call continues."
        ) from error
    if upload.create_pr and not commit.pr_url:
        logger.warning(
            "%s already has exactly these files (%s): no pull request was opened.", repo_id, commit.commit_url
        )
    else:
        logger.info("Published %s: %s", model_dir, commit.pr_url or commit.commit_url)
    return commit


def _json(content: Mapping[str, Any]) -> bytes:
    return (json.dumps(content, indent=2, sort_keys=True) + "\n").encode()


def _card(model_dir: Path, description: ModelDescription, repo_id: str, companions: Collection[str]) -> str:
    """Return the folder's card, adapted to the repository, or a new minimal one."""
    path = model_dir / _CARD
    if not path.is_file():
        return render_card(CardContent(name=repo_id.split("/")[-1], model=description))
    text = _load_from_repository(read_utf8(path), model_dir, repo_id)
    metadata_of_card(path, text)
    try:
        card = ModelCard(text)  # reads the model-index as well
        data: Any = card.data
    except (ValueError, TypeError, LookupError, AttributeError) as error:
        reason = " ".join(str(error).split())[:300]
        raise ValueError(f"The metadata of {path} is not what the Hub expects: {reason}") from error
    if "modules.json" not in companions and _SENTENCES in (data.library_name, *(data.tags or ())):
        if data.library_name == _SENTENCES:
            data.library_name = "transformers"
        data.tags = [tag for tag in data.tags or () if tag != _SENTENCES]
        logger.warning(
            "%s is not a folder of %s (it holds no modules.json); its card no longer says so.", model_dir, _SENTENCES
        )
        text = str(card)
    return text


def metadata_of_card(path: Path, text: str) -> dict[str, Any]:
    """The metadata in a card's text; a ValueError if they are no map."""
    block, name = REGEX_YAML_BLOCK.search(text), f"The metadata of {path}"
    metadata = yaml_value(name, nodes_of_text(name, block[2])) if block else None
    if not isinstance(metadata, dict | None):
        raise ValueError(f"{name} is no map of names and values: it is a {type(metadata).__name__}.")
    return metadata or {}


def _load_from_repository(card: str, model_dir: Path, repo_id: str) -> str:
    """Replace the folder by the repository in the card's examples, wherever they were run."""
    folder = model_dir.resolve()

    def rename(match: re.Match[str]) -> str:
        try:
            name = ast.literal_eval(match[1])
            parts, is_folder = Path(name).parts, Path(name).resolve() == folder
        except (ValueError, SyntaxError, OSError):  # no text that Python reads, or no path
            return match[0]
        is_folder = is_folder or folder.parts[len(folder.parts) - len(parts) :] == parts
        return f"model={match[1][0]}{repo_id}{match[1][0]}" if is_folder else match[0]

    return re.sub(r"""model=('(?:[^'\\\n]|\\.)+'|"(?:[^"\\\n]|\\.)+")""", rename, card)


# --- results on benchmarks -------------------------------------------------------------------------------------------


def write_benchmark_results(
    model_dir: str | Path, entries: Sequence[EvalResultEntry], overwrite: bool = False
) -> list[Path]:
    """Write a file for each benchmark, `.eval_results/<name of the data set>.yaml`; return the files.

    Raises:
        ValueError: If a data set is no benchmark's name, a value is no finite number, or a file exists and `overwrite`
            is not set.
    """
    with outputs_together() as open_output:
        return add_benchmark_results(open_output, model_dir, entries, overwrite)


def add_benchmark_results(
    open_output: Callable[..., Path],
    model_dir: str | Path,
    entries: Sequence[EvalResultEntry],
    overwrite: bool = False,
) -> list[Path]:
    """As `write_benchmark_results`, together with other outputs, see `outputs_together`."""
    by_file = check_benchmark_results(model_dir, entries, overwrite)
    if by_file:
        names = [path.name for path in by_file]
        folder = open_output(Path(model_dir) / _BENCHMARKS, files=names, overwrite=overwrite)
        for path, results in by_file.items():
            text = yaml.safe_dump(eval_result_entries_to_yaml(results), sort_keys=False, allow_unicode=True)
            write_text(folder / path.name, text)
    return list(by_file)


def check_benchmark_results(
    model_dir: str | Path, entries: Sequence[EvalResultEntry], overwrite: bool = False
) -> dict[Path, list[EvalResultEntry]]:
    """Check what `write_benchmark_results` will write with these arguments; return the results of each file."""
    by_file: dict[Path, list[EvalResultEntry]] = {}
    for entry in entries:
        owner, _, name = str(entry.dataset_id).partition("/")
        if not owner or not name or "/" in name:
            raise ValueError(f"dataset_id is {entry.dataset_id!r}; expected the name of a benchmark: 'owner/name'.")
        validate_repo_id(entry.dataset_id)
        if not is_finite_number(entry.value):
            raise ValueError(f"The value of {entry.dataset_id} is {entry.value!r}; expected a finite number.")
        by_file.setdefault(Path(model_dir) / _BENCHMARKS / f"{name}.yaml", []).append(entry)
    check_output_files(by_file, overwrite)
    return by_file


def _benchmark_result_files(model_dir: str | Path) -> dict[str, Path]:
    """Return the files of benchmark results of a model folder by their names in a repository."""
    found = {f"{_BENCHMARKS}/{path.name}": path for path in sorted((Path(model_dir) / _BENCHMARKS).glob("*.yaml"))}
    for path in found.values():
        results = read_yaml(path)
        try:
            parse_eval_result_entries(results)
        except (LookupError, TypeError, AttributeError, ValueError) as error:
            reason = " ".join(f"{type(error).__name__}: {error}".split())[:200]
            raise ValueError(f"{path} holds no results with dataset (id, task_id) and value ({reason}).") from error
    return found
