"""The demo: vocabulary, pretraining, fine-tuning, pipelines, model folder and card, in one command (`mybert demo`)."""

import inspect
import json
import logging
import re
import sys
import sysconfig
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from glob import escape
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np

from ..files.checkpoint import read_log_history
from ..files.options import ABOVE_0, AT_LEAST_1, Group, Settings, option
from ..files.output import check_output_folder, clear_folder, locked, write_json, write_lines
from ..files.progress import progress_bar
from ..files.tables import write_separated
from ..files.text import expand_paths
from ..finetuning import FinetuningArguments, finetune
from ..pretraining import PretrainingArguments, pretrain, read_documents, split_sentences
from ..runs import RUN_FOLDER
from .result_picture import HiddenWord, draw_result, guess_hidden_words

logger = logging.getLogger(__name__)

REPORT, PICTURE = "report.json", "result.png"
MADE_BY = {"made_by": "mybert demo"}  # in the report; identifies a folder written by the demo
PARTS = ("text", "task", "pretrained", "classifier", "classifier_without_pretraining")
CLASSES = 8  # maximum number of classes of the classifier
TRAINING_PASSAGES, TEST_PASSAGES = 400, 100  # per source
LONGEST = 48  # tokens of a sequence
PASSAGE_CHARACTERS = (60, 400)
MIN_DOCUMENTS = 10  # per source; a source with fewer is split into parts, so that some can be held out

# Source -> documents, each a list of sentences.
Sources = dict[str, list[list[str]]]


@dataclass
class DemoArguments(Settings):
    """Settings of `demo`."""

    group = Group.TRAINING
    output_dir: str = option(
        "demo_output", "Folder for everything the demo makes.", group=Group.INPUT, comes_last=True
    )
    text: list[str] = option(
        [],
        "Your text instead of Python's documentation: files or folders, one sentence or paragraph per "
        "line, a blank line between documents. The classifier learns which file a passage is from; of a single "
        "file, which of its longest documents.",
        group=Group.INPUT,
        positional=1,
        reads="text",
    )
    encoding: str = option("utf-8", "Encoding of your text.", group=Group.READING)
    vocab_size: int = option(6000, "Entries of the vocabulary.", group=Group.VOCABULARY)
    pretraining_steps: int = option(2500, "Steps of pretraining.", AT_LEAST_1)
    finetuning_epochs: float = option(2.0, "Epochs of fine-tuning.", ABOVE_0)
    seed: int = option(42, "Seed of every random choice.")
    overwrite: bool = option(
        False, "Replace an earlier demo in the output folder.", group=Group.INPUT, comes_last=True
    )
    disable_tqdm: bool = option(False, "Show no progress bars.", group=Group.RECORDS)


def demo(arguments: DemoArguments) -> dict[str, Any]:
    """Run the whole pipeline of a BERT; return the report, or only `interrupted`.

    The output folder contains `text/` and `task/` (the training data), `pretrained/` and `classifier/` (model folders,
    each with `README.md` and `training_curves.png`), `classifier_without_pretraining/`, `report.json` (the returned
    report, marked as the demo's) and `result.png`, the same as a picture.
    """
    started = time.perf_counter()
    output_dir = Path(arguments.output_dir)
    check_output_folder(output_dir, _own_names(output_dir), arguments.overwrite)
    logger.info("== 1. Text ==")
    sources = _read(arguments)
    size = {name: sum(map(len, map(" ".join, documents))) for name, documents in sources.items()}
    classes = sorted(sorted(size, key=lambda name: (-size[name], name))[:CLASSES])
    task = _hold_out(sources, classes, np.random.default_rng(arguments.seed))
    counts = {name: len(documents) for name, documents in sorted(sources.items())}
    with locked(output_dir, within=True):
        check_output_folder(output_dir, owned := _own_names(output_dir), arguments.overwrite)
        clear_folder(output_dir, owned, last=REPORT)
        write_json(output_dir / REPORT, MADE_BY | {"interrupted": True, "sources": counts})
        results = _train(arguments, sources, task)
        if results is None:
            return {"interrupted": True}
        labels = Counter(label for _, label in task["test"])
        report = {
            "seconds": round(time.perf_counter() - started, 1),
            "classes": classes,
            "sources": counts,
            "majority": max(labels.values()) / labels.total(),
            **results,
        }
        write_json(output_dir / REPORT, MADE_BY | report)
        pretrained = output_dir / "pretrained"
        words = guess_hidden_words(pretrained, task["test"], np.random.default_rng(arguments.seed))
        log_history = read_log_history(pretrained / "trainer_state.json")
        try:
            draw_result(report, log_history, words, output_dir / PICTURE)
        except ImportError as error:  # without matplotlib
            logger.warning(str(error))
    _conclude(output_dir, report, words)
    return report


def _train(
    arguments: DemoArguments, sources: Sources, task: dict[str, list[tuple[str, str]]]
) -> dict[str, dict[str, Any]] | None:
    """Write the text, pretrain, fine-tune with and without it; return the metrics, or None if interrupted."""
    output_dir = Path(arguments.output_dir)
    files = [output_dir / "text" / f"{name}.txt" for name in sorted(sources)]
    for file in files:
        write_lines(file, [line for document in sources[file.stem] for line in (*document, "")])
    for part, rows in task.items():
        write_separated(output_dir / "task" / f"{part}.tsv", [("text", "label"), *rows])
    size, training = sum(path.stat().st_size for path in files) / 1e6, task["train"]
    logger.info(
        "%.1f MB from %d sources; %s passages of %d sources to learn to tell them apart, %s of documents that no "
        "model will have seen, to test it.",
        *(size, len(sources), f"{len(training):,}", len({name for _, name in training}), f"{len(task['test']):,}"),
    )
    logger.info("\n== 2. Vocabulary and pretraining: predict masked words, and whether sentence B follows A ==")
    count = sum(map(len, sources.values()))
    results = {"pretraining": pretrain(_pretraining(arguments, files, count))}
    for name, heading in (
        ("classifier", "3. Fine-tuning: which source is a passage from?"),
        ("classifier_without_pretraining", "4. The same classifier without pretraining"),
    ):
        if any(metrics["interrupted"] for metrics in results.values()):
            break
        logger.info("\n== %s ==", heading)
        results[name] = finetune(_finetuning(arguments, name))
    return None if any(metrics["interrupted"] for metrics in results.values()) else results


def _own_names(output_dir: Path) -> list[str]:
    """Return name patterns, for `check_output_folder`, of the files of an earlier demo; empty if there is none."""
    try:
        report = json.loads((output_dir / REPORT).read_bytes())
    except (OSError, ValueError, RecursionError):
        return []
    if not isinstance(report, dict) or not report.items() >= MADE_BY.items():
        return []
    texts = [f"{escape(name)}.txt" for name in report.get("sources", ())]
    return [REPORT, PICTURE, *(f"{part}/" for part in PARTS), *texts, "train.tsv", "test.tsv", *RUN_FOLDER]


def _read(arguments: DemoArguments) -> Sources:
    """Read the documentation of the installed libraries, or the user's files (each document of a single one)."""
    if not arguments.text:
        found = collect_documentation(show_progress=not arguments.disable_tqdm)
        return {
            library: [[sentence for text in texts for sentence in split_sentences(text)] for texts in files]
            for library, files in found.items()
        }
    sources: Sources = {}
    output_dir = Path(arguments.output_dir)
    for path in expand_paths(arguments.text):
        if Path(path).resolve().is_relative_to(output_dir.resolve()):
            raise ValueError(f"{path} is in {output_dir}, which the demo replaces; name another --output_dir.")
        documents = list(read_documents(path, split_sentences=True, encoding=arguments.encoding))
        name = Path(path).name.partition(".")[0] or "text"
        names = (name, *(f"{name}_{number}" for number in range(2, len(sources) + 2)))
        taken = set(map(str.casefold, sources))  # each name becomes a file, where upper and lower case may be one
        sources[next(name for name in names if name.casefold() not in taken)] = documents
    if len(sources) > 1:
        return sources
    ((name, documents),) = sources.items()
    if len(documents) < 2:
        raise ValueError(
            f"{arguments.text[0]} holds only one document; pretraining and the classifier need several: put a blank "
            "line between documents, or give several files."
        )
    return {f"{name}_{number}": [document] for number, document in enumerate(documents, start=1)}


def _hold_out(
    sources: Sources, classes: Sequence[str], generator: np.random.Generator
) -> dict[str, list[tuple[str, str]]]:
    """Take a fifth of each class's documents out of the sources; make the classifier's training and test passages."""
    task: dict[str, list[tuple[str, str]]] = {"train": [], "test": []}
    for name in classes:
        documents = _in_parts(sources[name])
        is_test = generator.permutation(len(documents)) % 5 == 0
        parts = {
            "train": [document for document, held in zip(documents, is_test, strict=True) if not held],
            "test": [document for document, held in zip(documents, is_test, strict=True) if held],
        }
        sources[name] = parts["train"]
        for part, limit in (("train", TRAINING_PASSAGES), ("test", TEST_PASSAGES)):
            passages = [passage for document in parts[part] for passage in _passages(document)]
            if not passages:
                raise ValueError(f"{name} holds too little text to hold some of it out; give longer texts.")
            chosen = generator.permutation(len(passages))[:limit]
            task[part] += [(passages[index], name) for index in sorted(chosen)]
    return task


def _in_parts(documents: list[list[str]]) -> list[list[str]]:
    if len(documents) >= MIN_DOCUMENTS:
        return documents
    parts = []
    for document in documents:
        bounds = np.linspace(0, len(document), MIN_DOCUMENTS + 1).astype(int)
        parts += [document[begin:end] for begin, end in pairwise(bounds) if end > begin]
    return parts


def _passages(document: Sequence[str]) -> list[str]:
    """Join consecutive sentences into passages of the required length; longer sentences are left out."""
    shortest, longest = PASSAGE_CHARACTERS
    passages, current = [], ""
    for sentence in document:
        current = f"{current} {sentence}".strip()
        if len(current) >= shortest:
            if len(current) <= longest:
                passages.append(current.replace("\t", " "))
            current = ""
    return passages


def _pretraining(arguments: DemoArguments, files: list[Path], num_documents: int) -> PretrainingArguments:
    steps = arguments.pretraining_steps
    return PretrainingArguments(
        text=[str(path) for path in files],
        output_dir=str(Path(arguments.output_dir) / "pretrained"),
        vocab_size=arguments.vocab_size,
        vocab_layout="compact",
        num_processes=1,  # for a few megabytes, starting workers takes longer than the work
        model_size="tiny",
        # The run is short: word embeddings start from co-occurrence counts, a high masking rate gives many labels, and
        # Muon learns faster, with a weight decay that keeps its matrices small. No dropout, and a high learning rate
        # with a smaller beta2.
        embedding_init="cooccurrence",
        mlm_probability=0.4,
        optim="muon",
        dropout=0.0,
        bf16="auto",
        max_length=LONGEST,
        max_steps=steps,
        learning_rate=2e-3,
        adam_beta2=0.98,
        weight_decay=0.1,
        warmup_steps=0.1,
        validation_split=max(0.02, 2 / num_documents),
        logging_steps=max(1, steps // 20),
        eval_strategy="steps",
        eval_steps=max(1, steps // 4),
        save_strategy="no",
        card_examples=True,
        seed=arguments.seed,
        disable_tqdm=arguments.disable_tqdm,
    )


def _finetuning(arguments: DemoArguments, name: str) -> FinetuningArguments:
    output_dir = Path(arguments.output_dir)
    return FinetuningArguments(
        model=str(output_dir / "pretrained"),
        output_dir=str(output_dir / name),
        train_file=str(output_dir / "task" / "train.tsv"),
        validation_file=[str(output_dir / "task" / "test.tsv")],
        from_scratch="without" in name,
        max_length=LONGEST,
        num_train_epochs=arguments.finetuning_epochs,
        learning_rate=1e-3,  # with few steps the gain from pretraining shows; later both models solve a task this easy
        logging_steps=10,
        save_strategy="no",
        card_examples=True,
        seed=arguments.seed,
        disable_tqdm=arguments.disable_tqdm,
    )


def _conclude(output_dir: Path, report: dict[str, Any], words: Sequence[HiddenWord]) -> None:
    pretrained, classifier = report["pretraining"], report["classifier"]
    logger.info("\n== 5. What came of it ==")
    for each in words:
        guesses = ", ".join(f"{word} {probability:.0%}" for word, probability in each.guesses)
        logger.info("%s[%s]%s", each.before, each.word, each.after)
        logger.info("  guesses for [%s]: %s\n", each.word, guesses)
    without = report["classifier_without_pretraining"]["accuracy"]
    logger.info("Masked words predicted in held-out text: %.1f %%", 100 * pretrained["eval_mlm_accuracy"])
    for what, accuracy, majority in (
        ("Next sentence told from a random one", pretrained["eval_nsp_accuracy"], pretrained["eval_nsp_majority"]),
        (f"Source of a passage, of {len(report['classes'])}", classifier["accuracy"], report["majority"]),
    ):
        logger.info("%s: %.1f %% (always the more frequent answer: %.1f %%)", what, 100 * accuracy, 100 * majority)
    logger.info("The same without pretraining: %.1f %%", 100 * without)
    logger.info(
        "All of it took %.0f seconds. Everything is in %s: models, cards, curves, and this as a picture, %s.",
        report["seconds"],
        output_dir,
        PICTURE,
    )
    logger.info(
        "\nLoad the result in Python:\n\n"
        "  import mybert\n"
        "  from transformers import AutoModel, AutoTokenizer, pipeline\n\n"
        "  tokenizer = AutoTokenizer.from_pretrained(%r)\n"
        "  model = AutoModel.from_pretrained(%r)\n"
        "  classify = pipeline('text-classification', model=%r)",
        *(str(output_dir / name) for name in ("pretrained", "pretrained", "classifier")),
    )


# English text from every Python installation: the documentation of Python and of installed packages. Nothing is
# imported or executed: triple-quoted strings are found by a regular expression. Kept are paragraphs of whole
# sentences, which leaves out code, tables, headings and most descriptions of parameters.
_SITE_FOLDERS = {"site-packages", "dist-packages"}
# Tests, and copies of other projects: their text would carry the wrong library's name; and mybert itself.
_SKIPPED = _SITE_FOLDERS | {
    *("__pycache__", "_distutils_hack", "_external", "_vendor", "_vendored", "ensurepip", "extern", "externals"),
    *("idlelib", "pip", "pkg_resources", "setuptools", "test", "tests", "third_party", "vendor", "vendored", "wheel"),
    __package__.partition(".")[0],
}
_SKIPPED_FILE = re.compile(r"test_.*|.*_test\.py|conftest\.py|.*_pb2\.py|__editable__.*")
_STRING = re.compile(r'''(?<![A-Za-z"'])[ruRU]?(?:"""(.*?)"""|\'\'\'(.*?)\'\'\')''', re.DOTALL)
# Markup of reStructuredText and Markdown: pattern, what remains.
_MARKUP = [
    (re.compile(r"^[ \t]*```.*?(?:^[ \t]*```|\Z)", re.DOTALL | re.MULTILINE), ""),  # code
    (re.compile(r"^.*\n[ \t]*[-=~^]{3,}$", re.MULTILINE), ""),  # a heading
    (re.compile(r"(?::[\w:+-]+:)?`+[~.!]*([^`<]+?)(?:\s*<[^`>]*>)?`+_*"), r"\1"),  # :func:`name <target>`, ``name``
    (re.compile(r"(?<![\w*])\*{1,2}(?=\S)([^*\n]+?)(?<=\S)\*{1,2}(?![\w*])"), r"\1"),  # *emphasis*
]
_LINES = re.compile(r"^([ \t]*)\S.*(?:\n\1\S.*)*", re.MULTILINE)  # one below another, with the same indentation
_SENTENCES = re.compile(r"[A-Z\d'\"][^\\${}]*[.!?:][\"')]?")  # not formulas and templates
_WORD = re.compile(r"[A-Za-z][a-z']*(?=[\s,.;:!?)]|$)")
_FUNCTION_WORD = re.compile(
    r"\b(?:a|all|an|and|any|are|as|at|be|by|can|for|from|has|have|if|in|into|is|it|its|may|must|no|not|of|on|or"
    r"|should|such|that|the|their|then|there|these|this|to|use|used|using|was|when|where|which|will|with|you|your)\b"
)
_NOT_PROSE = re.compile("://| : ")  # addresses, entries of lists of functions
_SYMBOL = re.compile(r"[^A-Za-z ,.'()\-]")
_LEAST_WORDS, _MOST_SYMBOLS = 5, 0.08  # symbols per character


def collect_documentation(
    roots: Sequence[Path] | None = None, show_progress: bool = True
) -> dict[str, list[list[str]]]:
    """Collect the documentation of Python and installed packages, or of `roots`: paragraphs, by library and file.

    A paragraph is English, has no line breaks, and is kept once. Python's own library has the name "python".
    """
    standard_library = Path(sysconfig.get_path("stdlib")).resolve()
    if roots is None:
        packages = [Path(entry).resolve() for entry in sys.path if Path(entry).name in _SITE_FOLDERS]
        roots = [root for root in dict.fromkeys([standard_library, *packages]) if root.is_dir()]
    found: dict[str, list[list[str]]] = {}
    seen: set[str] = set()
    unreadable = 0
    files = [(root, path) for root in roots for path in sorted(root.rglob("*.py")) if _is_source(path, root)]
    for root, path in progress_bar(
        files, desc="Reading documentation", unit=" files", disable=not show_progress, leave=False
    ):
        try:
            source = path.read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError):
            unreadable += 1
            continue
        if paragraphs := [each for each in dict.fromkeys(_paragraphs(source)) if each not in seen]:
            seen.update(paragraphs)
            package = path.relative_to(root).parts[0].removesuffix(".py").lstrip("_")
            found.setdefault("python" if root == standard_library else package, []).append(paragraphs)
    if unreadable:
        logger.warning("%d of %d source files could not be read as UTF-8 and were skipped.", unreadable, len(files))
    if not found:
        raise ValueError(
            f"No documentation was found in {', '.join(map(str, roots))}: expected Python packages with their sources."
        )
    return dict(sorted(found.items()))


def _is_source(path: Path, root: Path) -> bool:
    *folders, file = path.relative_to(root).parts
    names = (*folders, file.removesuffix(".py"))
    return not _SKIPPED_FILE.fullmatch(file) and all(name.isidentifier() and name not in _SKIPPED for name in names)


def _paragraphs(source: str) -> Iterator[str]:
    """Yield the paragraphs of English sentences in the triple-quoted strings of a Python source."""
    for string in _STRING.finditer(source):
        text = inspect.cleandoc((string[1] or string[2] or "").replace("\\\n", ""))
        for pattern, kept in _MARKUP:
            text = pattern.sub(kept, text)
        for lines in _LINES.finditer(text):
            paragraph = " ".join(lines[0].split())
            if _is_prose(paragraph):
                yield paragraph


def _is_prose(paragraph: str) -> bool:
    """Tell whether a paragraph reads as English sentences, not as code, a signature or an address."""
    return (
        _SENTENCES.fullmatch(paragraph) is not None
        and not _NOT_PROSE.search(paragraph)
        and len(_WORD.findall(paragraph)) >= _LEAST_WORDS
        and _FUNCTION_WORD.search(paragraph) is not None
        and len(_SYMBOL.findall(paragraph)) <= _MOST_SYMBOLS * len(paragraph)
    )
