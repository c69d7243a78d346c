"""Google's checkpoints: found in a source, with configuration and vocabulary; variables matched with parameters.

A source is a folder, a checkpoint prefix, a zip or tar archive, or a SavedModel folder.

Archives may be malicious: names that lead outside, links, encrypted members and absurd expansion are rejected, and
only the files that a conversion needs are unpacked, into a temporary folder.

Every variable and every parameter is accounted for.
"""

import gzip
import lzma
import os
import re
import shutil
import stat
import tarfile
import tempfile
import zipfile
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path, PurePosixPath
from typing import IO, Any, NamedTuple

import numpy as np

from ..files.checkpoint import DTYPES
from ..files.errors import refuse_address, worded
from ..files.moves import finish_moves
from ..files.progress import progress_bar
from .key_map import GROUPS, HEADS, IGNORED, UNUSED_BY_HEAD, WeightRow, encoder_rows, sizes_of
from .tensorflow import (
    GRAPH_KEY,
    SUFFIX,
    MalformedError,
    ObjectGraph,
    TensorBundle,
    naming,
    read_tensor_bundle,
    refuse_old_format,
)

# Names that start with `._` are macOS's metadata files.
_NEEDED = re.compile(r"(?!\._)(bert_config\.json|vocab\.txt|checkpoint|.+\.index|.+\.data-\d{5}-of-\d{5})")
_STATE = re.compile(r'^model_checkpoint_path:\s*"([^"\n]+)"', re.MULTILINE)
# Suffixes of archives, which are no prefixes of checkpoints; some cannot be read.
_ARCHIVES = (".zip", ".tar", ".gz", ".tgz", ".bz2", ".tbz2", ".xz", ".txz", ".zst", ".7z", ".rar")
_MAX_EXPANSION = 100  # weights hardly compress; Google's archives expand by a factor below 1.2
_LEAST_LIMIT = 1 << 20  # a tiny archive of a tiny model may expand more
_BROKEN = (
    zipfile.BadZipFile, tarfile.TarError, zlib.error, lzma.LZMAError, EOFError, OSError, NotImplementedError,
    RuntimeError, ValueError, OverflowError, IndexError,
)  # fmt: skip


@dataclass(frozen=True)
class GoogleSource:
    name: str  # as the user gave it; "cased" or "uncased" in it is a hint
    prefix: Path
    config_file: Path | None
    vocab_file: Path | None


@contextmanager
def open_source(source: str | os.PathLike[str]) -> Iterator[GoogleSource]:
    """Locate a checkpoint and its files; an archive is unpacked until the `with` block ends."""
    refuse_address(source, "a folder, an archive or a checkpoint prefix: copy or mount what an object store has")
    path = Path(source)
    finish_moves(path)
    if path.is_file() and (members := _archive_kind(path)):
        with tempfile.TemporaryDirectory(prefix="mybert-") as scratch:
            folder = Path(scratch) / "archive"
            folder.mkdir()
            with naming(path):
                try:
                    _unpack(members(path), folder)
                except MalformedError:
                    raise
                except _BROKEN as error:
                    raise MalformedError(f"the archive cannot be read: {type(error).__name__}: {error}") from error
            yield _describe(str(source), _find_prefix(folder, path))
    else:
        yield _describe(str(source), _find_prefix(path, path) if path.is_dir() else path)


def _describe(name: str, prefix: Path) -> GoogleSource:
    folder = prefix.parent
    # The parent of the relative paths "." and ".." would be ".", which is not the folder above.
    above = folder / ".." if folder.name in ("", "..") else folder.parent
    folders = [folder, folder / "assets", above, above / "assets"]

    def beside(file: str) -> Path | None:
        return next((folder / file for folder in folders if (folder / file).is_file()), None)

    return GoogleSource(name, prefix, beside("bert_config.json"), beside("vocab.txt"))


def _find_prefix(folder: Path, shown: Path) -> Path:
    for pattern in ("*.index", "*/*.index", "*/*/*.index"):
        prefixes = sorted(path.with_suffix("") for path in folder.glob(pattern) if _NEEDED.fullmatch(path.name))
        states = {path.parent / "checkpoint" for path in prefixes}
        named = [prefix for state in states if state.is_file() for prefix in prefixes if prefix == _latest(state)]
        prefixes = named or prefixes
        if len(prefixes) == 1:
            return prefixes[0]
        if prefixes:
            names = ", ".join(str(prefix.relative_to(folder)) for prefix in prefixes[:8])
            raise ValueError(f"{shown}: holds {len(prefixes)} checkpoints ({names}); name one of them.")
    for path in sorted(folder.glob("*")):
        refuse_old_format(path)
    raise ValueError(f"{shown}: holds no TensorFlow checkpoint (a file PREFIX.index with PREFIX.data-*).")


def _latest(state: Path) -> Path | None:
    """Read the latest checkpoint's name from a `checkpoint` state file; it may be a path to another folder."""
    with state.open("rb") as stream:
        found = _STATE.search(stream.read(1 << 16).decode(errors="replace"))
    return state.parent / PurePosixPath(found[1]).name if found else None


# --- archives --------------------------------------------------------------------------------------------------------


class _Member(NamedTuple):
    name: str
    is_plain: bool  # a file or folder, neither a link nor encrypted
    size: int
    content: Callable[[], IO[bytes]] | None  # None for a folder


def _archive_kind(path: Path) -> Callable[[Path], Iterator[_Member]] | None:
    with path.open("rb") as stream:
        start = stream.read(265)
    if start[:4] in (b"PK\x03\x04", b"PK\x05\x06"):
        return _zip_members
    if start[:2] == b"\x1f\x8b" or start[257:262] == b"ustar":
        return _tar_members
    if path.suffix in _ARCHIVES:
        problem = f"it begins with {start[:4].hex()}; expected a zip, tar or tar.gz archive"
        raise ValueError(f"{path}: the archive cannot be read: {problem}")
    return None


def _check_expansion(size: int, compressed_size: int) -> None:
    if size > (limit := max(_LEAST_LIMIT, _MAX_EXPANSION * compressed_size)):
        allowed = f"at most {_MAX_EXPANSION} times the compressed size is unpacked"
        raise MalformedError(f"expands to more than {limit} bytes; {allowed}")


def _refused(name: str, problem: str) -> MalformedError:
    return MalformedError(f"member {name!r} is refused: {problem}")


def _unpack(members: Iterable[_Member], folder: Path) -> None:
    """Check every member of an archive, and write the files that a conversion needs."""
    for name, is_plain, size, content in members:
        parts = PurePosixPath(name).parts
        if name.startswith("/") or ".." in parts:
            raise _refused(name, "its name leads outside the folder")
        # On Windows such names may lead outside; as they are, they would not name the files that they mean.
        if unsafe := next((character for character in "\\:\0" if character in name), None):
            raise _refused(name, f"its name has the character {unsafe!r}; expected / between folders")
        if not is_plain:
            raise _refused(name, "it is not a plain, unencrypted file")
        if content is None or not parts or not _NEEDED.fullmatch(parts[-1]):
            continue
        target = folder.joinpath(*parts)
        if target.is_file():
            raise _refused(name, "the name occurs twice")
        target.parent.mkdir(parents=True, exist_ok=True)
        with content() as stream, target.open("xb") as out:
            shutil.copyfileobj(stream, out)
            if out.tell() != size:
                raise EOFError(f"{target.name} has {out.tell()} bytes, {size} were announced")


def _zip_members(path: Path) -> Iterator[_Member]:
    with zipfile.ZipFile(path) as archive:
        members = archive.infolist()
        _check_expansion(sum(member.file_size for member in members), path.stat().st_size)
        for member in members:
            _check_expansion(member.file_size, member.compress_size)
        for member in members:
            kind = stat.S_IFMT(member.external_attr >> 16)
            is_plain = kind in (0, stat.S_IFREG, stat.S_IFDIR) and not member.flag_bits & 1
            content = None if member.is_dir() else partial(archive.open, member)
            yield _Member(member.filename, is_plain, member.file_size, content)


class _CountingReader:
    """A stream that checks how much it has expanded to, however it is compressed."""

    def __init__(self, stream: Any, path: Path) -> None:
        self._stream, self._count, self._compressed_size = stream, 0, path.stat().st_size

    def read(self, size: int = -1) -> bytes:
        data = self._stream.read(size)
        self._count += len(data)
        _check_expansion(self._count, self._compressed_size)
        return data


def _tar_members(path: Path) -> Iterator[_Member]:
    with path.open("rb") as raw:
        gzipped = raw.read(2) == b"\x1f\x8b"
        raw.seek(0)
        stream: Any = _CountingReader(gzip.GzipFile(fileobj=raw) if gzipped else raw, path)
        with tarfile.open(fileobj=stream, mode="r|") as archive:
            for member in archive:
                is_plain = (member.isreg() and not member.issparse()) or member.isdir()
                content: Any = partial(archive.extractfile, member) if member.isreg() else None
                yield _Member(member.name, is_plain, member.size, content)
        while stream.read(1 << 16):  # gzip's checksum comes at the very end
            pass


# --- variables -------------------------------------------------------------------------------------------------------

_LAYER = re.compile(r"bert/encoder/layer_(\d+)/")
_SHOWN = 8  # names in a message
_BLOCKS = "_transformer_layers"
# A functional Keras model numbers its layers; these are the encoder's first four, its blocks and the pooler follow.
_NUMBERED = ("_embedding_layer", "_position_embedding_layer", "_type_embedding_layer", "_embedding_norm_layer")


class GardenGraph(ObjectGraph):
    """The objects of a TF2 model garden checkpoint; those of older encoders are renamed as in newer ones."""

    def __init__(self, bundle: TensorBundle) -> None:
        super().__init__(bundle)
        self._prefix = bundle.prefix
        for node in range(len(self.children)):
            self._name_numbered_layers(node)

    def encoder(self) -> int | None:
        found = [node for node, names in enumerate(self.children) if {_BLOCKS, _NUMBERED[-1]} <= names.keys()]
        if len(found) > 1:
            raise ValueError(f"{self._prefix}: object graph: it holds {len(found)} encoders; expected one.")
        return found[0] if found else None

    def pretrainer(self, encoder: int) -> int | None:
        """Find the node around an encoder that has most of the pretraining heads."""
        heads = {"masked_lm", "classification_heads"}
        around = [
            node for node, names in enumerate(self.children) if encoder in names.values() and heads & names.keys()
        ]
        return max(around, key=lambda node: len(heads & self.children[node].keys()), default=None)

    def num_layers(self, encoder: int) -> int:
        layers = self.find(encoder, _BLOCKS)
        return 0 if layers is None else sum(name.isdecimal() for name in self.children[layers])

    def _name_numbered_layers(self, node: int) -> None:
        """Name the numbered layers of an older encoder as in newer ones."""
        names = self.children[node]
        numbered = {
            int(name[19:]): child for name, child in names.items() if re.fullmatch(r"layer_with_weights-\d{1,6}", name)
        }
        blocks = [n for n in sorted(numbered) if "_attention_layer" in self.children[numbered[n]]]
        if _BLOCKS in names or not blocks or blocks[0] != len(_NUMBERED) or blocks[-1] - blocks[0] != len(blocks) - 1:
            return
        names |= {name: numbered[n] for n, name in enumerate(_NUMBERED) if n in numbered}
        names[_BLOCKS] = len(self.children)
        self.children.append({str(number): numbered[n] for number, n in enumerate(blocks)})
        if blocks[-1] + 1 in numbered:
            names["_pooler_layer"] = numbered[blocks[-1] + 1]


class GoogleVariables:
    """The variables of a checkpoint under the names of `key_map`, whatever their keys are."""

    def __init__(self, prefix: Path) -> None:
        self.bundle = bundle = read_tensor_bundle(prefix)
        self.layout = "keras" if any(key == GRAPH_KEY or key.endswith(SUFFIX) for key in bundle) else "google"
        if self.layout == "google":
            self.num_layers = len({match[1] for key in bundle if (match := _LAYER.match(key))})
            is_bert = "bert/embeddings/word_embeddings" in bundle
        else:
            self._graph = GardenGraph(bundle)
            encoder = self._graph.encoder()
            is_bert = encoder is not None
            if encoder is not None:
                self.num_layers = self._graph.num_layers(encoder)
                self._nodes = {"encoder": encoder, "pretrainer": self._graph.pretrainer(encoder)}
        if not is_bert:
            names = ", ".join(sorted(bundle)[:_SHOWN])
            raise ValueError(f"{bundle.prefix}: the checkpoint is not a BERT; it holds {names}.")

    def key(self, variable: str) -> str | None:
        """Return the checkpoint key of a variable of `key_map`, or None."""
        if self.layout == "google":
            return variable if variable in self.bundle else None
        start, _, path = variable.partition("/")
        node = self._nodes.get(start)
        key = None if node is None else self._graph.variable(node, path)
        return key if key in self.bundle else None

    def has(self, group: str) -> bool:
        """Tell whether at least one row of a group is present."""
        return any(self.key(row.variable(self.layout)) for row in GROUPS[group])

    def head(self) -> str:
        if self.has("question answering"):
            return "question-answering"
        if self.has("classifier"):
            return "sequence-classification"
        both = (self.has("masked LM"), self.has("next sentence"))
        return {(True, True): "pretraining", (True, False): "masked-lm", (False, True): "next-sentence"}.get(
            both, "encoder"
        )

    def num_labels(self, hidden_size: int) -> int:
        """Count the labels of the classifier; 2, as in transformers, if there is no classifier of this hidden size."""
        shape = self._shape("output_weights")
        return shape[0] if len(shape) == 2 and shape[1] == hidden_size else 2

    def configuration(self) -> dict[str, int]:
        """Derive the sizes from the shapes of a TF2 checkpoint; only these show the number of attention heads."""
        path = self.bundle.prefix
        if self.layout == "google":
            problem = "no bert_config.json next to the checkpoint or in the folder above"
            raise FileNotFoundError(worded("{}: {}; pass {config_file}.", path, problem))
        sizes: dict[str, int] = {"num_hidden_layers": self.num_layers}
        for row in encoder_rows(1):
            fields = row.keras_shape or (row.shape[::-1] if row.keras.endswith("kernel") else row.shape)
            shape = self._shape(row.keras)
            if len(shape) != len(fields):
                raise ValueError(f"{path}: {row.keras} has shape {shape}; expected {len(fields)} sizes.")
            sizes |= {str(name): size for name, size in zip(fields, shape, strict=True)}
        if sizes.pop("head_size") * sizes["num_attention_heads"] != sizes["hidden_size"]:
            raise ValueError(f"{path}: the shapes contradict each other: {sizes}")
        return sizes

    def _shape(self, variable: str) -> tuple[int, ...]:
        key = self.key(variable)
        return () if key is None else self.bundle.info[key].shape


@dataclass(frozen=True)
class ConversionPlan:
    """The use of every variable and the source of every parameter in a conversion."""

    bundle: TensorBundle = field(repr=False)
    head: str  # key of `HEADS`
    layout: str  # "google" or "keras"
    used: tuple[tuple[WeightRow, str], ...]  # with the checkpoint keys
    initialized: tuple[WeightRow, ...]
    ignored: Mapping[str, Sequence[str]] = field(repr=False)  # names of variables by kind

    def parameters(self) -> Iterator[tuple[str, np.ndarray]]:
        """Yield name and float32 array of each parameter in the checkpoint, one after the other."""
        for row, key in progress_bar(self.used, desc="Reading the checkpoint", delay=2):
            yield row.parameter, row.to_parameter(self.layout, self.bundle[key])


def plan_conversion(variables: GoogleVariables, config: Any, head: str, ignore: Iterable[str] = ()) -> ConversionPlan:
    """Match variables and parameters; variables whose key fully matches a pattern of `ignore` may be unknown."""
    bundle, layout, groups = variables.bundle, variables.layout, HEADS[head].groups
    path = bundle.prefix
    if variables.num_layers != config.num_hidden_layers:
        found, wanted = variables.num_layers, config.num_hidden_layers
        raise ValueError(
            f"{path}: the checkpoint has {found} layers, num_hidden_layers of the configuration is {wanted}."
        )
    rows = encoder_rows(config.num_hidden_layers)
    initialized: list[WeightRow] = []
    for group in groups:
        # a pooler of the next sentence head replaces the encoder's
        if group == "pooler" and "next sentence" in groups and variables.has("next sentence pooler"):
            group = "next sentence pooler"
        (rows if variables.has(group) else initialized).extend(GROUPS[group])

    found_keys = [(row, variables.key(row.variable(layout))) for row in rows]
    if missing := [row.variable(layout) for row, key in found_keys if key is None]:
        raise ValueError(f"{path}: {len(missing)} variables of the model are missing: {_some(missing)}")
    used = tuple((row, key) for row, key in found_keys if key is not None)
    sizes = sizes_of(config)
    for row, key in used:
        info, expected = bundle.info[key], row.variable_shape(layout, sizes)
        if info.shape != expected:
            names = [size for size in dict.fromkeys(row.keras_shape or row.shape) if isinstance(size, str)]
            fields = ", ".join(f"{name} {sizes[name]}" for name in names)
            problem = f"has shape {info.shape}, but the configuration asks for {expected} ({fields})"
            raise ValueError(f"{path}: variable {key!r} {problem}.")
        if info.dtype not in DTYPES:
            raise ValueError(f"{path}: variable {key!r} is of type {info.dtype}; expected a floating point type.")
    others = {variables.key(row.variable(layout)) for group in GROUPS.values() for row in group}
    ignored = _sort_out(bundle, {key for _, key in used}, others, ignore)
    return ConversionPlan(bundle, head, layout, used, tuple(initialized), ignored)


def _sort_out(
    bundle: TensorBundle, used: set[str], others: set[str | None], ignore: Iterable[str]
) -> dict[str, list[str]]:
    """Return the variables that are not used, by kind; unknown ones are an error."""
    kinds = [*IGNORED]
    for text in ignore:
        try:
            kinds.append(("named by the user", re.compile(text)))
        except re.error as error:
            raise ValueError(f"ignore: {text!r} is not a regular expression: {error}") from error
    ignored: dict[str, list[str]] = {}
    unknown = []
    for key in bundle:
        if key in used:
            continue
        kind = next((kind for kind, pattern in kinds if pattern.fullmatch(key)), None)
        if kind is None and key in others:
            kind = UNUSED_BY_HEAD
        if kind is None:
            unknown.append(key)
        else:
            ignored.setdefault(kind, []).append(key)
    if unknown:
        raise ValueError(
            f"{bundle.prefix}: {len(unknown)} variables are not known: {_some(unknown)}. "
            "Name them in `ignore` if the model does not need them."
        )
    return ignored


def _some(names: list[str]) -> str:
    shown = ", ".join(repr(name) for name in sorted(names)[:_SHOWN])
    return shown + (f" and {len(names) - _SHOWN} more" if len(names) > _SHOWN else "")
