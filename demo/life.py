"""The demo: vocabulary, pretraining, fine-tuning, pipelines, model folder and card, in one command (`mybert demo`)."""

import json
import logging
import time
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from glob import escape
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np

from ..files import (
    check_output_folder,
    clear_folder,
    expand_paths,
    locked,
    read_json_object,
    write_json,
    write_lines,
    write_separated,
)
from ..files.options import ABOVE_0, AT_LEAST_1, Group, check_options, option
from ..finetuning import FinetuningArguments, finetune
from ..pretraining import PretrainingArguments, pretrain, read_documents, split_sentences
from ..runs import RUN_FOLDER
from .documentation import collect_documentation
from .result_picture import draw_result, guess_hidden_words

logger = logging.getLogger(__name__)

REPORT, PICTURE = "report.json", "result.png"
MADE_BY = {"made_by": "mybert demo"}  # in the report; identifies a folder written by the demo
PARTS = ("text", "task", "pretrained", "classifier", "classifier_without_pretraining")
CLASSES = 8  # maximum number of classes of the classifier
TRAINING_PASSAGES, TEST_PASSAGES = 400, 100  # per source
LONGEST = 48  # tokens of a sequence
PASSAGE_CHARACTERS = (60, 400)
FEWEST_DOCUMENTS = 10  # per source; a source with fewer is split into parts, so that some can be held out

# Source -> documents, each a list of sentences.
Sources = dict[str, list[list[str]]]


@dataclass
class DemoArguments:
    """Settings of `demo`."""

    group = Group.TRAINING
    output_dir: str = option(
        "demo_output", "Folder for everything the demo makes.", group=Group.INPUT, comes_last=True
    )
    text: list[str] = option(
        [],
        "Your own text instead of the installed documentation: files or folders, one sentence or paragraph per "
        "line, a blank line between documents. The classifier learns which file a passage is from; of a single "
        "file, which of its longest documents.",
        group=Group.INPUT,
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

    def __post_init__(self) -> None:
        if isinstance(self.text, str):
            self.text = [self.text]
        check_options(self)


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
    sources, classes, task = _read(arguments)
    with locked(output_dir, within=True):
        check_output_folder(output_dir, owned := _own_names(output_dir), arguments.overwrite)
        clear_folder(output_dir, owned, last=REPORT)
        beginning = {"interrupted": True, "sources": {name: len(texts) for name, texts in sorted(sources.items())}}
        write_json(output_dir / REPORT, MADE_BY | beginning)
        report = _live(arguments, sources, task)
        if "interrupted" in report:
            return report
        report = {"seconds": round(time.perf_counter() - started, 1), "classes": classes, **report}
        write_json(output_dir / REPORT, MADE_BY | report)
        _draw(output_dir, report, task["test"], np.random.default_rng(arguments.seed))
    _conclude(output_dir, report)
    return report


def _read(arguments: DemoArguments) -> tuple[Sources, list[str], dict[str, list[tuple[str, str]]]]:
    """Return the text, the classes of the classifier, and its passages."""
    output_dir = Path(arguments.output_dir)
    if arguments.text:
        for path in expand_paths(arguments.text):
            if Path(path).resolve().is_relative_to(output_dir.resolve()):
                raise ValueError(f"{path} is in {output_dir}, which the demo replaces; name another --output_dir.")
        sources, classes = _own_text(arguments.text, arguments.encoding)
    else:
        sources = _documentation(show_progress=not arguments.disable_tqdm)
        classes = _largest(sources)
    return sources, classes, _hold_out(sources, classes, np.random.default_rng(arguments.seed))


def _live(arguments: DemoArguments, sources: Sources, task: dict[str, list[tuple[str, str]]]) -> dict[str, Any]:
    """Write the text, pretrain, fine-tune with and without it; return the results, or only `interrupted`."""
    output_dir = Path(arguments.output_dir)
    files = _write_text(sources, output_dir / "text")
    for part, rows in task.items():
        write_separated(output_dir / "task" / f"{part}.tsv", [("text", "label"), *rows])
    logger.info(
        "%.1f MB from %d sources; %s passages of %d sources to learn to tell them apart, %s of documents that no "
        "model will have seen, to test it.",
        sum(path.stat().st_size for path in files) / 1e6,
        len(sources),
        f"{len(task['train']):,}",
        len({name for _, name in task["train"]}),
        f"{len(task['test']):,}",
    )

    logger.info("\n== 2. Vocabulary and pretraining: guess hidden words, and whether sentence B follows A ==")
    count = sum(map(len, sources.values()))
    pretrained = pretrain(_pretraining(arguments, files, count, output_dir / "pretrained"))
    if pretrained["interrupted"]:
        return {"interrupted": True}
    classifiers = {}
    for name, from_scratch, heading in (
        ("classifier", False, "3. Fine-tuning: which source is a passage from?"),
        ("classifier_without_pretraining", True, "4. The same classifier without pretraining"),
    ):
        logger.info("\n== %s ==", heading)
        classifiers[name] = finetune(_finetuning(arguments, output_dir, name, from_scratch))
        if classifiers[name]["interrupted"]:
            return {"interrupted": True}

    return {
        "sources": {name: len(documents) for name, documents in sorted(sources.items())},
        "majority": max(Counter(label for _, label in task["test"]).values()) / len(task["test"]),
        "pretraining": pretrained,
        **classifiers,
    }


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


def _documentation(show_progress: bool) -> Sources:
    sources: Sources = defaultdict(list)
    for module in collect_documentation(show_progress=show_progress):
        sources[module.library].append(
            [sentence for paragraph in module.paragraphs for sentence in split_sentences(paragraph)]
        )
    return dict(sources)


def _own_text(paths: Sequence[str], encoding: str) -> tuple[Sources, list[str]]:
    """Read the user's files; each is a source and a class. The classes of a single file are its longest documents."""
    sources: Sources = {}
    for path in expand_paths(paths):
        documents = list(read_documents(path, split_sentences=True, encoding=encoding))
        if not documents:
            raise ValueError(f"{path} is empty; expected text, with a blank line between documents.")
        sources[_unused(Path(path).name.partition(".")[0] or "text", sources)] = documents
    if len(sources) > 1:
        return sources, _largest(sources)
    ((name, documents),) = sources.items()
    if len(documents) < 2:
        raise ValueError(
            f"{paths[0]} holds only one document; pretraining and the classifier need several: put a blank line "
            "between documents, or give several files."
        )
    by_document = {f"{name}_{number}": [document] for number, document in enumerate(documents, start=1)}
    return by_document, _largest(by_document)


def _unused(name: str, taken: Iterable[str]) -> str:
    number, candidate = 1, name
    while candidate in taken:
        number += 1
        candidate = f"{name}_{number}"
    return candidate


def _largest(sources: Sources) -> list[str]:
    """Return the sources with the most text, at most `CLASSES`, in alphabetical order."""
    size = {name: sum(map(len, map(" ".join, documents))) for name, documents in sources.items()}
    return sorted(sorted(size, key=lambda name: (-size[name], name))[:CLASSES])


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
    if len(documents) >= FEWEST_DOCUMENTS:
        return documents
    parts = []
    for document in documents:
        bounds = np.linspace(0, len(document), FEWEST_DOCUMENTS + 1).astype(int)
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


def _write_text(sources: Sources, folder: Path) -> list[Path]:
    files = []
    for name, documents in sorted(sources.items()):
        files.append(folder / f"{name}.txt")
        write_lines(files[-1], [line for document in documents for line in (*document, "")])
    return files


def _pretraining(
    arguments: DemoArguments, files: list[Path], num_documents: int, output_dir: Path
) -> PretrainingArguments:
    steps = arguments.pretraining_steps
    return PretrainingArguments(
        text=[str(path) for path in files],
        output_dir=str(output_dir),
        vocab_size=arguments.vocab_size,
        layout="compact",
        num_processes=1,  # for a few megabytes, starting workers takes longer than the work
        model_size="tiny",
        # The run is short: word embeddings start from co-occurrence counts, a high masking rate gives many labels, and
        # Muon learns faster, with a weight decay that keeps its matrices small. No dropout, and a high learning rate
        # with a smaller beta2.
        embeddings="cooccurrence",
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
        heldout=max(0.02, 2 / num_documents),
        logging_steps=max(1, steps // 20),
        eval_strategy="steps",
        eval_steps=max(1, steps // 4),
        save_strategy="no",
        seed=arguments.seed,
        disable_tqdm=arguments.disable_tqdm,
    )


def _finetuning(arguments: DemoArguments, output_dir: Path, name: str, from_scratch: bool) -> FinetuningArguments:
    return FinetuningArguments(
        model=str(output_dir / "pretrained"),
        output_dir=str(output_dir / name),
        train_file=str(output_dir / "task" / "train.tsv"),
        validation_file=[str(output_dir / "task" / "test.tsv")],
        from_scratch=from_scratch,
        max_length=LONGEST,
        num_train_epochs=arguments.finetuning_epochs,
        learning_rate=1e-3,  # with few steps the gain from pretraining shows; later both models solve a task this easy
        logging_steps=10,
        save_strategy="no",
        seed=arguments.seed,
        disable_tqdm=arguments.disable_tqdm,
    )


def _draw(
    output_dir: Path, report: dict[str, Any], passages: list[tuple[str, str]], generator: np.random.Generator
) -> None:
    """Draw `result.png`; without matplotlib a warning says what is missing."""
    pretrained = output_dir / "pretrained"
    words = guess_hidden_words(pretrained, passages, generator)
    log_history = read_json_object(pretrained / "trainer_state.json")["log_history"]
    try:
        draw_result(report, log_history, words, output_dir / PICTURE)
    except ImportError as error:
        logger.warning(str(error))


def _conclude(output_dir: Path, report: dict[str, Any]) -> None:
    pretrained, classifier = report["pretraining"], report["classifier"]
    logger.info("\n== 5. What came of it ==")
    for example in (*pretrained["examples"], *classifier["examples"]):
        logger.info("%s", example["title"])
        logger.info("  %s", "\n  ".join(example["code"].splitlines()[3:]))
        logger.info("    %s\n", "\n    ".join(example["output"].splitlines()))
    without = report["classifier_without_pretraining"]["accuracy"]
    logger.info("Hidden words guessed, on held-out text: %.1f %%", 100 * pretrained["eval_mlm_accuracy"])
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
    logger.info("\nLoad the result in Python:\n")
    logger.info("  import mybert")
    logger.info("  from transformers import AutoModel, AutoTokenizer, pipeline\n")
    logger.info("  tokenizer = AutoTokenizer.from_pretrained(%r)", str(output_dir / "pretrained"))
    logger.info("  model = AutoModel.from_pretrained(%r)", str(output_dir / "pretrained"))
    logger.info("  classify = pipeline('text-classification', model=%r)", str(output_dir / "classifier"))
