"""What reads files of others: each reader with the files around its file, and the check of one input.

An input may be read, or be an error for users: a `ValueError` or `OSError` that names the file (or an option, in
files of settings). It may take `SECONDS` of processor time and `MEMORY` bytes more than before. Anything else is a
`Finding`. The seeds of a target, and the inputs that were findings (`found_*`), are in `inputs/TARGET/`.
"""

import json
import re
import resource
import shutil
import signal
import traceback
import zipfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cache, partial
from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np

from mybert import MyBertConfig, MyBertForSequenceClassification, MyBertTokenizer
from mybert.cards.card import ModelDescription, read_utf8
from mybert.command_line.flags import CommandParser
from mybert.conversion import read_tensor_bundle, write_tensor_bundle
from mybert.conversion.from_google import _read_configuration
from mybert.conversion.google_source import GardenGraph, GoogleVariables, open_source
from mybert.conversion.tensorflow import GRAPH_KEY, wire
from mybert.files.checkpoint import Checkpoint, companion_files, copy_companions, read_log_history
from mybert.files.conll import read_conll
from mybert.files.documents import Corpus, DocumentSettings
from mybert.files.errors import SettingError
from mybert.files.loading import load_tokenizer, longest_sequence
from mybert.files.moves import finish_moves
from mybert.files.options import check_options
from mybert.files.settings import assemble
from mybert.files.source import FileSource, read_rows
from mybert.files.tables import json_line, style_of
from mybert.finetuning.data import rows_of
from mybert.finetuning.features import sentence_settings
from mybert.finetuning.heads import recorded_activation
from mybert.finetuning.tasks.registry import task_of_model
from mybert.finetuning.tasks.steps import read_examples
from mybert.finetuning.tasks.task_table import TASKS
from mybert.hub_card.publishing import _benchmark_result_files, _card, metadata_of_card
from mybert.pretraining.token_store import TokenStore
from mybert.studies.suite_file import read_suite
from mybert.tokenization.vocab import build_model, load_vocab, looks_accented, looks_cased

INPUTS = Path(__file__).with_name("inputs")
FIXTURES = Path(__file__).parents[1] / "fixtures"
SECONDS = 10
MEMORY = 1 << 30

WORDS = [b"[PAD]", b"[UNK]", b"[CLS]", b"[SEP]", b"[MASK]", b"the", b"cat", b"sat", b"##s", b"."]
LABELS = {0: "no", 1: "yes"}


class Finding(Exception):
    """An input that does what none may do."""


class TooSlow(BaseException):
    """More than `SECONDS` of processor time."""


@dataclass(frozen=True)
class Target:
    """A file of others."""

    file: str
    readers: tuple[Callable[[Path], object], ...]  # called one after another, with the file's path
    beside: Callable[[Path], object] = lambda folder: None  # writes the files around it
    framed: Callable[[bytes], bytes] = bytes  # from an input to the file's bytes: lengths and checksums become right
    words: tuple[bytes, ...] = ()  # that mutations insert


def check(name: str, folder: Path, content: bytes) -> list[str]:
    """Read an input in a folder that `prepared` has made; returns the error messages.

    Raises:
        Finding: If it does what none may do.
    """
    target = TARGETS[name]
    file = folder / target.file
    file.write_bytes(target.framed(content))
    messages = []
    for read in target.readers:
        try:
            with limits():
                read(file)
        except (ValueError, OSError) as error:
            message = str(error)
            if not isinstance(error, SettingError) and folder.name not in message:
                raise Finding(f"{name}: {type(error).__name__} without the file's name: {message[:300]}") from error
            messages.append(message)
        except (KeyboardInterrupt, SystemExit):
            raise
        except BaseException as error:  # a panic of Rust's is no Exception
            raise Finding(f"{name}: {type(error).__name__}: {str(error)[:300]}") from error
    return messages


def prepared(name: str, folder: Path) -> Path:
    """A new folder with the files around a target's file."""
    folder.mkdir(parents=True)
    TARGETS[name].beside(folder)
    return folder


def cause_of(finding: Finding) -> str:
    """What tells one defect from another: the kind of error, and the innermost line of mybert."""
    error = finding.__cause__
    frames = traceback.extract_tb(error.__traceback__ if error else None)
    own = [frame for frame in frames if "/tests/" not in frame.filename and "site-packages" not in frame.filename]
    own = [frame for frame in own if "/lib/python" not in frame.filename] or frames[-1:]
    return f"{type(error).__name__} in {Path(own[-1].filename).name}:{own[-1].name}" if own else str(finding)[:80]


@contextmanager
def limits() -> Iterator[None]:
    """Limit processor time and memory."""

    def stop(*arguments: object) -> None:
        raise TooSlow(f"more than {SECONDS} seconds of processor time")

    earlier = resource.getrlimit(resource.RLIMIT_AS)
    used = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    handler = signal.signal(signal.SIGPROF, stop)
    resource.setrlimit(resource.RLIMIT_AS, (used + MEMORY, earlier[1]))
    signal.setitimer(signal.ITIMER_PROF, SECONDS)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        resource.setrlimit(resource.RLIMIT_AS, earlier)
        signal.signal(signal.SIGPROF, handler)


# --- TensorFlow ------------------------------------------------------------------------------------------------------


def bundle_files(folder: Path) -> None:
    """A small checkpoint, `m`."""
    tensors = {"layer/kernel": np.ones((2, 3), np.float32), "text": np.array([b"ab", b"c"], object)}
    write_tensor_bundle(folder / "m", tensors | {"step": np.int64(7)})


def partitioned_files(folder: Path) -> None:
    for file in (FIXTURES / "google_tf1" / "partitioned").glob("m.ckpt.*"):
        shutil.copyfile(file, folder / file.name.replace("m.ckpt", "m"))


def read_bundle(file: Path) -> None:
    """Read all tensors without checking checksums, at which a mutation would end."""
    bundle = read_tensor_bundle(file.with_name("m"), verify=False)
    for tensor in dict(bundle).values():
        assert tensor.dtype == object or tensor.nbytes <= 2 * sum(bundle._sizes)  # bfloat16 becomes float32


def entries_framed(content: bytes) -> bytes:
    """An index file of entries, one a line of `key=value` in hexadecimal, with checksums."""
    entries = {}
    for line in content.split(b"\n"):
        key, _, value = line.partition(b"=")
        try:
            entries[bytes.fromhex(key.decode())] = bytes.fromhex(value.decode())
        except ValueError:
            entries[key] = value
    return wire.write_sorted_table(sorted(entries.items()))


class Graph:
    """A checkpoint that has only an object graph."""

    def __init__(self, file: Path) -> None:
        self.prefix, self.info = file, {GRAPH_KEY: object()}
        self._content = file.read_bytes()

    def __getitem__(self, name: str) -> np.ndarray:
        array = np.empty((), object)
        array[()] = self._content
        return array


def read_graph(file: Path) -> None:
    graph: Any = GardenGraph(Graph(file))  # type: ignore[arg-type]
    encoder = graph.encoder()
    if encoder is not None:
        graph.pretrainer(encoder), graph.num_layers(encoder)
        graph.variable(encoder, "_transformer_layers/0/_attention_layer/_query_dense/kernel")


def read_archive(file: Path) -> None:
    with open_source(file) as source:
        for path in (source.config_file, source.vocab_file):
            assert path is None or path.resolve().is_relative_to(source.prefix.parents[2].resolve())
        try:
            dict(read_tensor_bundle(source.prefix))
        except (ValueError, OSError) as error:  # which names the unpacked file
            raise ValueError(f"{file}: {error}") from error


@cache
def google_variables() -> GoogleVariables:
    return GoogleVariables(FIXTURES / "google_tf1" / "classifier" / "bert_model.ckpt")


def read_google_config(file: Path) -> None:
    fields, _ = _read_configuration(file, google_variables())
    try:
        MyBertConfig(**fields)
    except ValueError as error:
        raise ValueError(f"{file}: {error}") from error


# --- tables and texts ------------------------------------------------------------------------------------------------


def read_table_rows(file: Path) -> None:
    for row in FileSource(file).rows():
        json_line(row).encode()


def read_examples_of(task: str, **columns: Any) -> Callable[[Path], None]:
    def read(file: Path) -> None:
        reader: Any = replace(TASKS[task], **columns)
        source = FileSource(file)
        examples = read_examples(reader, source)
        labels = reader.labels(examples, source)
        if labels is not None:
            reader.with_names(examples, labels, source)

    return read


def read_new_rows(file: Path) -> None:
    for row in rows_of(file, TASKS["classification"], new=True):
        json_line(row.values).encode()


def read_corpus(file: Path) -> None:
    for line in Corpus(str(file), DocumentSettings(clean=["html"])).lines():
        line.encode(errors="replace")


TABLE_READERS = (
    read_table_rows,
    read_new_rows,
    read_corpus,
    read_examples_of("classification"),
    read_examples_of("multilabel"),
    read_examples_of("regression"),
    read_examples_of("multiple_choice", choice_columns=("text_pair", "tags")),
    read_examples_of("tagging"),
    read_examples_of("question_answering"),
)
SEPARATED_READERS = (
    *TABLE_READERS,
    partial(read_rows, columns=("text", "label"), skip_broken_rows=True, literal_quotes=True),
    lambda file: style_of(str(file), "utf-8"),
)


def compressed(file: Path) -> None:
    """Read the bytes under the name of each compression; the errors of all but one are expected."""
    errors = []
    for suffix in (".gz", ".xz", ".bz2", ".zst"):
        path = file.with_name(f"text.txt{suffix}")
        shutil.copyfile(file, path)
        try:
            read_corpus(path)
        except (ValueError, OSError) as error:
            assert file.parent.name in str(error)
            errors.append(error)
    if len(errors) == 4:
        raise errors[0]


def sheet_framed(content: bytes) -> bytes:
    """A spreadsheet whose only sheet is the input."""
    with zipfile.ZipFile(INPUTS / "spreadsheet" / "small.xlsx") as book, BytesIO() as out:
        with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as changed:
            for name in book.namelist():
                changed.writestr(name, content if name == "xl/worksheets/sheet1.xml" else book.read(name))
        return out.getvalue()


# --- YAML ------------------------------------------------------------------------------------------------------------


@cache
def parser_of(command: str) -> CommandParser:
    return CommandParser(command)


def read_settings(command: str) -> Callable[[Path], None]:
    def read(file: Path) -> None:
        parser = parser_of(command)
        values = parser.given(["NAME", "--output_dir", "out", "--config", str(file)])
        check_options(assemble(parser.kind, {name: values[name] for name in values if name in parser.options}))

    return read


def read_card(file: Path) -> None:
    """Read a card's metadata, and prepare the card for publication."""
    _card(file.parent, ModelDescription(), "owner/name", [])
    metadata_of_card(file, read_utf8(file))


def read_results(file: Path) -> None:
    _benchmark_result_files(file.parents[1])


# --- model folders ---------------------------------------------------------------------------------------------------


def model_files(folder: Path) -> None:
    """A tiny classifier with its tokenizer."""
    tokenizer = MyBertTokenizer(vocab=[word.decode() for word in WORDS])
    sizes = {"hidden_size": 4, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 4}
    config = MyBertConfig(**sizes, vocab_size=len(WORDS), max_position_embeddings=8, id2label=LABELS)
    config.finetuned_for = {"task": "classification", "max_length": 8, "text_column": "text"}
    MyBertForSequenceClassification(config).save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    (folder / "vocab.txt").write_bytes(b"\n".join(WORDS))


def read_folder(file: Path) -> None:
    """Check a folder, and read what commands read in its configuration."""
    checkpoint = Checkpoint(file.parent).check(ask_hub=False)
    config = checkpoint.config
    longest_sequence(config)
    recorded_activation(checkpoint)
    task_of_model(checkpoint)


def read_tokenizer(file: Path) -> None:
    """Load the folder's tokenizer, and tokenize a pair."""
    checkpoint = Checkpoint(file.parent).check(ask_hub=False)
    tokenizer = load_tokenizer(checkpoint)
    tokenizer("The cat sat.", "the cats", truncation=True, max_length=8)


def read_vocabulary(file: Path) -> None:
    vocabulary = load_vocab(file)
    looks_cased(vocabulary), looks_accented(vocabulary), build_model(vocabulary)


def header_framed(content: bytes) -> bytes:
    """A safetensors file with the header in the first line, and as much data as it names, first what follows."""
    header, _, data = content.partition(b"\n")
    ends = [int(end) for end in re.findall(rb'"data_offsets": ?\[\d+, ?(\d{1,5})\]', header)]
    return len(header).to_bytes(8, "little") + header + data.ljust(max(ends, default=0), b"\0")


def read_weights(file: Path) -> None:
    checkpoint = Checkpoint(file.parent)
    checkpoint.check_folder()


def read_store(file: Path) -> None:
    store = TokenStore(file)
    for document in range(min(len(store.document_starts) - 1, 3)):
        first, last = (int(store.document_starts[document + end]) for end in (0, 1))
        assert 0 <= first <= last < len(store.sentence_starts)


def read_modules(file: Path) -> None:
    companion_files(file.parent)
    sentence_settings(file.parent)
    target = file.parent.with_name("copied")
    copy_companions(file.parent, target)
    shutil.rmtree(target, ignore_errors=True)


def module_files(folder: Path) -> None:
    model_files(folder)
    for name in ("1_Pooling", "2_Dense"):
        (folder / name).mkdir()
        (folder / name / "config.json").write_text(json.dumps({"pooling_mode_mean_tokens": True}))


def foreign_files(folder: Path) -> None:
    for name in ("mine", "mine.lock"):
        (folder / name).write_bytes(b"mine")


def read_moves(file: Path) -> None:
    """Finish the moves of a record that a downloaded folder holds; the files around the folder must stay."""
    model = file.with_name("model")
    shutil.rmtree(model, ignore_errors=True)
    model.mkdir()
    for name in ("config.json", ".new-0123abcd.partial", ".old-0123abcd.partial"):
        (model / name).write_bytes(b"{}")
    shutil.copyfile(file, model / ".moves")
    try:
        finish_moves(model)
    finally:
        there = {path.name: path.is_file() and path.read_bytes() for path in file.parent.iterdir()}
        own = {"model": False, file.name: file.read_bytes()}
        assert there == {"mine": b"mine", "mine.lock": b"mine"} | own, there


JSON_WORDS = (
    b"null", b"true", b"-1", b"1e999", b"NaN", b"1e400", b"9" * 4400, b'""', b"[]", b"{}", b"0.5", b'"\\ud800"',
    b'"\\u0000"', b"18446744073709551616", b'"../x"', b"[" * 1000,
)  # fmt: skip
YAML_WORDS = (
    b"&a ", b"*a", b"<<: ", b"!!binary ", b"!!timestamp ", b"!!int ", b"!!float ", b"!!bool ", b"!!set ", b"!!omap ",
    b"!!python/object:os.system ", b"? ", b"- ", b"{", b"[", b"2001-01-01", b"|\n", b"1_0", b"0x", b".nan", b"~",
    b"[*a, *a]", b"%YAML 9.9\n", b"--- ",
)  # fmt: skip
TEXT_WORDS = (
    b"\xef\xbb\xbf", b"\xff\xfe", b"\r\n", b"\r", b"\0", b'"', b'""', b"sep=;\n", b"-DOCSTART-", b"# newdoc", b"\t",
    b"\xe2\x80\xa8", b"<script", b"<!--", b"&#x110000;", b"[1, 2]", b"['a', 'b']", b"nan", b"1e999", b"\xed\xa0\x80",
)  # fmt: skip

TARGETS: dict[str, Target] = {
    "tensorflow_index": Target("m.index", (read_bundle,), bundle_files),
    "tensorflow_entries": Target("m.index", (read_bundle,), partitioned_files, entries_framed),
    "tensorflow_data": Target("m.data-00000-of-00001", (read_bundle,), bundle_files),
    "object_graph": Target("graph", (read_graph,)),
    "archive": Target("archive.zip", (read_archive,)),
    "google_config": Target("bert_config.json", (read_google_config,), words=JSON_WORDS),
    "csv": Target("table.csv", SEPARATED_READERS, words=TEXT_WORDS),
    "tsv": Target("table.tsv", SEPARATED_READERS, words=TEXT_WORDS),
    "json": Target("table.json", TABLE_READERS, words=JSON_WORDS),
    "json_lines": Target("table.jsonl", TABLE_READERS, words=JSON_WORDS),
    "parquet": Target("table.parquet", TABLE_READERS),
    "spreadsheet": Target("table.xlsx", TABLE_READERS),
    "sheet": Target("table.xlsx", TABLE_READERS, framed=sheet_framed),
    "conll": Target(
        "words.conll",
        (
            read_examples_of("tagging"),
            lambda file: list(read_conll(file)),
            lambda file: list(read_conll(file, is_data=False)),
        ),
        words=TEXT_WORDS,
    ),
    "text": Target("text.txt", (read_corpus, read_new_rows, read_examples_of("tagging")), words=TEXT_WORDS),
    "compressed": Target("text", (compressed,)),
    "settings": Target("settings.yaml", (read_settings("finetune"), read_settings("pretrain")), words=YAML_WORDS),
    "suite": Target("suite.yaml", (lambda file: read_suite(str(file)),), words=YAML_WORDS),
    "card": Target("README.md", (read_card,), words=YAML_WORDS),
    "results": Target(
        ".eval_results/glue.yaml", (read_results,), lambda folder: (folder / ".eval_results").mkdir(), words=YAML_WORDS
    ),
    "vocabulary": Target("vocab.txt", (read_vocabulary,), words=TEXT_WORDS),
    "config": Target("config.json", (read_folder,), model_files, words=JSON_WORDS),
    "tokenizer": Target("tokenizer.json", (read_tokenizer,), model_files, words=JSON_WORDS),
    "tokenizer_config": Target("tokenizer_config.json", (read_tokenizer,), model_files, words=JSON_WORDS),
    "weights_header": Target("model.safetensors", (read_weights,), model_files, header_framed, JSON_WORDS),
    "weights_index": Target(
        "model.safetensors.index.json",
        (read_weights,),
        lambda folder: (model_files(folder), (folder / "model.safetensors").rename(folder / "part.safetensors")),
        words=JSON_WORDS,
    ),
    "token_store": Target("store.safetensors", (read_store,), framed=header_framed, words=JSON_WORDS),
    "modules": Target("modules.json", (read_modules,), module_files, words=JSON_WORDS),
    "log_history": Target("trainer_state.json", (read_log_history,), words=JSON_WORDS),
    "moves": Target("record", (read_moves,), foreign_files, words=JSON_WORDS),
}


def inputs_of(name: str) -> list[Path]:
    """The seeds of a target, and what was found."""
    return sorted((INPUTS / name).iterdir())
