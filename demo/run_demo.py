"""The demo: vocabulary, pretraining, fine-tuning, pipelines, model folder and card, in one command (`mybert demo`)."""

import json
import logging
import textwrap
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict
from glob import escape
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np

from ..files.checkpoint import read_log_history
from ..files.errors import SettingError
from ..files.machine import duration
from ..files.moves import finish_moves
from ..files.output import check_output_folder, folder_written_beside, locked, write_json, write_lines
from ..files.tables import write_separated
from ..files.text import expand_paths
from ..finetuning import FinetuneSettings, FinetuningArguments, finetune
from ..pretraining import PretrainingArguments, PretrainSettings, pretrain, read_documents, split_sentences
from ..runs import RUN_FOLDER
from ..tokenization import VocabularySettings
from ..tokenization.learning import choose_alphabet
from .docstrings import collect_docstrings
from .guesses import Guess, MaskedWord, draw_words, guess_words, in_proportion
from .result_picture import draw_result, excerpt
from .settings import DemoSettings

logger = logging.getLogger(__name__)

REPORT, PICTURE, WORDS = "report.json", "result.png", "masked_words.tsv"
UNFINISHED = "unfinished"  # in the report of a demo that runs or was interrupted: its settings
MADE_BY = {"made_by": "mybert demo"}  # in the report; identifies a folder written by the demo
PARTS = ("text", "task", "pretrained", "classifier", "classifier_without_pretraining")
CLASSES = 8  # maximum number of classes of the classifier
TRAINING_PASSAGES, TEST_PASSAGES = 400, 100  # per source
LONGEST = 48  # tokens of a sequence
PASSAGE_BYTES = (60, 400)  # as UTF-8, which has about as much text in every script
_MIN_PRETRAINED = (
    4  # documents: two to learn from, since next sentences are also drawn from others, and two to evaluate
)
MIN_DOCUMENTS = 10  # per source; the documents of a smaller one are split into as many parts, to hold some out

# Source -> documents, each a list of sentences.
Sources = dict[str, list[list[str]]]


def demo(arguments: DemoSettings) -> dict[str, Any]:
    """Run the whole pipeline of a BERT; return the report, or only `interrupted`.

    The output folder contains `text/` and `task/` (the training data, and the held-out words to guess), `pretrained/`
    and `classifier/` (model folders, each with `README.md` and `training_curves.png`),
    `classifier_without_pretraining/`, `report.json` (the returned report, marked as the demo's) and `result.png`, the
    same as a picture. A user error leaves nothing there; after Ctrl-C or a write error the same call continues.
    """
    started = time.perf_counter()
    output_dir = Path(arguments.output_dir)
    _check_place(arguments)
    sources = _read(arguments)
    counts = {name: len(documents) for name, documents in sorted(sources.items())}
    generator = np.random.default_rng(arguments.seed)
    where = ", ".join(arguments.text) or "The docstrings"
    task = _hold_out(sources, generator, where)
    words = draw_words([text for text, _ in task["test"]], generator)
    if not words:
        raise ValueError(f"{where}: there are no words of letters; expected sentences.")
    with locked(output_dir, within=True):
        record = MADE_BY | {UNFINISHED: _settings(arguments), "sources": counts}
        if owned := _check_place(arguments):
            with folder_written_beside(output_dir, owned, overwrite=True, stays=True) as folder:
                write_json(folder / REPORT, record)
        else:
            write_json(output_dir / REPORT, record)
        try:
            results = _train(arguments, sources, task, words)
            if results is None:
                return {"interrupted": True}
            guesses = guess_words(output_dir / "pretrained", words)
            shown = in_proportion(guesses)
            labels = Counter(label for _, label in task["test"])
            report = {
                "seconds": round(time.perf_counter() - started, 1),
                "megabytes": round(sum(map(_size, sources.values())) / 1e6, 1),
                "classes": sorted(labels),
                "sources": counts,
                "majority": max(labels.values()) / labels.total(),
                **results,
                "masked_words": {
                    "words": len(guesses),
                    "right": sum(guess.is_right for guess in guesses),
                    "shown": list(map(asdict, shown)),
                },
            }
            log_history = read_log_history(output_dir / "pretrained" / "trainer_state.json")
            try:
                draw_result(report, log_history, shown, output_dir / PICTURE)
            except ImportError as error:  # without matplotlib
                logger.warning(str(error))
            write_json(output_dir / REPORT, MADE_BY | report)  # the last file, which marks the demo as finished
        except (OSError, MemoryError):  # which may pass
            raise
        except Exception:
            owned = _own_names(_read_report(output_dir))
            with suppress(ValueError, OSError), folder_written_beside(output_dir, owned, overwrite=True, stays=True):
                pass  # it becomes empty; the error itself is what matters
            raise
    _conclude(output_dir, report, shown)
    return report


def _train(
    arguments: DemoSettings,
    sources: Sources,
    task: dict[str, list[tuple[str, str]]],
    words: Sequence[MaskedWord],
) -> dict[str, dict[str, Any]] | None:
    """Write the text, pretrain, fine-tune with and without it; return the metrics, or None if interrupted."""
    logger.info("== 1. Text ==")
    output_dir = Path(arguments.output_dir)
    files = [output_dir / "text" / f"{name}.txt" for name in sorted(sources)]
    for file in files:
        write_lines(file, [line for document in sources[file.stem] for line in (*document, "")])
    for part, rows in task.items():
        write_separated(output_dir / "task" / f"{part}.tsv", [("text", "label"), *rows])
    write_separated(output_dir / "task" / WORDS, [MaskedWord._fields, *words])
    size, training = sum(map(_size, sources.values())) / 1e6, task["train"]
    logger.info(
        "%.1f MB from %d sources; %s passages of %d sources to learn to tell them apart, %s of documents that no "
        "model will have seen, to test it; a word of each of these is to be guessed.",
        *(size, len(sources), f"{len(training):,}", len({name for _, name in training}), f"{len(task['test']):,}"),
    )
    logger.info("\n== 2. Vocabulary and pretraining: predict masked words, and whether sentence B follows A ==")
    results = {"pretraining": pretrain(_pretraining(arguments, files, sources))}
    for name, heading in (
        ("classifier", "3. Fine-tuning: which source is a passage from?"),
        ("classifier_without_pretraining", "4. The same classifier without pretraining"),
    ):
        if any(metrics["interrupted"] for metrics in results.values()):
            break
        logger.info("\n== %s ==", heading)
        results[name] = finetune(_finetuning(arguments, name))
    return None if any(metrics["interrupted"] for metrics in results.values()) else results


def _settings(arguments: DemoSettings) -> dict[str, Any]:
    """The settings that a call must share with an interrupted one to continue it."""
    return {name: value for name, value in asdict(arguments).items() if name not in ("overwrite", "disable_tqdm")}


def _check_place(arguments: DemoSettings) -> list[str]:
    """Check the output folder; return the name patterns of what an earlier demo left that is to be deleted."""
    output_dir = Path(arguments.output_dir)
    finish_moves(output_dir)
    report = _read_report(output_dir)
    continues = report.get(UNFINISHED) == _settings(arguments) and not arguments.overwrite
    owned = _own_names(report)
    check_output_folder(output_dir, owned, arguments.overwrite or continues)
    return [] if continues else owned


def _read_report(output_dir: Path) -> dict[str, Any]:
    """The report of an earlier or unfinished demo; empty if there is none."""
    try:
        report = json.loads((output_dir / REPORT).read_bytes())
    except (OSError, ValueError, RecursionError):
        return {}
    return report if isinstance(report, dict) and report.items() >= MADE_BY.items() else {}


def _own_names(report: Mapping[str, Any]) -> list[str]:
    """Return name patterns, for `check_output_folder`, of the files of the demo with this report, if there is one."""
    if not report:
        return []
    texts = [f"{escape(name)}.txt" for name in report.get("sources", ())]
    return [REPORT, PICTURE, *(f"{part}/" for part in PARTS), *texts, "train.tsv", "test.tsv", WORDS, *RUN_FOLDER]


def _read(arguments: DemoSettings) -> Sources:
    """Read the docstrings of the installed packages, or the user's files (each document of a single one)."""
    if not arguments.text:
        packages = collect_docstrings(show_progress=not arguments.disable_tqdm)
        return {
            package: [[sentence for text in texts for sentence in split_sentences(text)] for texts in files]
            for package, files in packages.items()
        }
    sources: Sources = {}
    output_dir = Path(arguments.output_dir)
    for path in expand_paths(arguments.text):
        if Path(path).resolve().is_relative_to(output_dir.resolve()):
            raise SettingError.worded(
                "{} is in {}, which the demo replaces; name another {output_dir}.", path, output_dir
            )
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


def _size(documents: Sequence[Sequence[str]]) -> int:
    """The size of a source in bytes, with line breaks."""
    return sum(len(sentence.encode(errors="replace")) + 1 for document in documents for sentence in (*document, ""))


def _hold_out(sources: Sources, generator: np.random.Generator, where: str) -> dict[str, list[tuple[str, str]]]:
    """Take a fifth of each class's documents out of the sources; make the classifier's training and test passages.

    The classes are the largest sources, those left out that are too small for it.
    """
    task: dict[str, list[tuple[str, str]]] = {"train": [], "test": []}
    classes = 0
    for name in sorted(sources, key=lambda name: (-_size(sources[name]), name)):
        documents = _in_parts(sources[name])
        is_test = generator.permutation(len(documents)) % 5 == 0
        parts = {
            "train": [document for document, held in zip(documents, is_test, strict=True) if not held],
            "test": [document for document, held in zip(documents, is_test, strict=True) if held],
        }
        passages = {part: [text for document in parts[part] for text in _passages(document)] for part in parts}
        if not all(passages.values()):
            continue
        sources[name] = parts["train"]
        for part, limit in (("train", TRAINING_PASSAGES), ("test", TEST_PASSAGES)):
            chosen = generator.permutation(len(passages[part]))[:limit]
            task[part] += [(passages[part][index], name) for index in sorted(chosen)]
        classes += 1
        if classes == CLASSES:
            break
    if classes < 2:
        raise ValueError(
            f"{where}: too little text. {classes} of {len(sources)} documents or files have enough to hold a passage "
            f"of {PASSAGE_BYTES[0]} bytes out of the training; expected two or more."
        )
    if (left := sum(map(len, sources.values()))) < _MIN_PRETRAINED:
        raise ValueError(
            f"{where}: too little text. {left} documents are left for pretraining; expected {_MIN_PRETRAINED} or more."
        )
    return task


def _in_parts(documents: list[list[str]]) -> list[list[str]]:
    if len(documents) >= MIN_DOCUMENTS:
        return documents
    parts = []
    for document in documents:
        count = min(MIN_DOCUMENTS, max(2, _size([document]) // (2 * PASSAGE_BYTES[0])))
        bounds = np.linspace(0, len(document), count + 1).astype(int)
        parts += [document[begin:end] for begin, end in pairwise(bounds) if end > begin]
    return parts


def _passages(document: Sequence[str]) -> list[str]:
    """Join consecutive sentences into passages of the required length; cut longer ones."""
    shortest, longest = PASSAGE_BYTES
    passages, current = [], ""
    for sentence in document:
        current = f"{current} {sentence}".strip().replace("\t", " ")
        size = len(current.encode(errors="replace"))
        if size >= shortest:
            passages += [current] if size <= longest else textwrap.wrap(current, longest * len(current) // size)
            current = ""
    return passages


def _vocabulary_size(sources: Sources) -> int:
    """Entries of the vocabulary: 6,000, or as many as leave 3,000 for more than a character."""
    characters = Counter[str]()
    for documents in sources.values():
        for document in documents:
            characters.update("".join(document).lower())
    words = Counter({character: count for character, count in characters.items() if not character.isspace()})
    return max(6000, 3000 + 2 * len(choose_alphabet(words, VocabularySettings.character_coverage)))


def _pretraining(arguments: DemoSettings, files: list[Path], sources: Sources) -> PretrainSettings:
    steps = arguments.pretraining_steps
    return PretrainingArguments(
        text=[str(path) for path in files],
        output_dir=str(Path(arguments.output_dir) / "pretrained"),
        vocab_size=arguments.vocab_size or _vocabulary_size(sources),
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
        validation_split=max(0.02, 2 / sum(map(len, sources.values()))),
        logging_steps=max(1, steps // 20),
        eval_strategy="steps",
        eval_steps=max(1, steps // 4),
        save_strategy="no",
        card_examples=True,
        seed=arguments.seed,
        overwrite=arguments.overwrite,
        disable_tqdm=arguments.disable_tqdm,
    )


def _finetuning(arguments: DemoSettings, name: str) -> FinetuneSettings:
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
        allow_unusual_labels=True,  # names of files and data sets
        card_examples=True,
        seed=arguments.seed,
        overwrite=arguments.overwrite,
        disable_tqdm=arguments.disable_tqdm,
    )


def _conclude(output_dir: Path, report: Mapping[str, Any], shown: Sequence[Guess]) -> None:
    pretrained, classifier, words = report["pretraining"], report["classifier"], report["masked_words"]
    logger.info("\n== 5. Results ==")
    logger.info(
        "Masked words of held-out text, one in each of %s passages: %.1f %% right. %d of them, in this proportion:",
        *(f"{words['words']:,}", 100 * words["right"] / words["words"], len(shown)),
    )
    for guess in shown:
        before, after = excerpt(guess)
        words_shown = before, guess.word, after, guess.guess, 100 * guess.probability
        logger.info("  %s: %s[%s]%s -> %s, %.0f %%", "right" if guess.is_right else "wrong", *words_shown)
    without = report["classifier_without_pretraining"]["accuracy"]
    logger.info(
        "Masked tokens of held-out text, %.0f %% of all: %.1f %% right",
        *(100 * pretrained["eval_mlm_share"], 100 * pretrained["eval_mlm_accuracy"]),
    )
    for title, accuracy, majority in (
        ("Next sentence or random one", pretrained["eval_nsp_accuracy"], pretrained["eval_nsp_majority"]),
        (f"Source of a passage, of {len(report['classes'])}", classifier["accuracy"], report["majority"]),
    ):
        logger.info("%s: %.1f %% (always the more frequent answer: %.1f %%)", title, 100 * accuracy, 100 * majority)
    logger.info("Source of a passage, without pretraining: %.1f %%", 100 * without)
    logger.info(
        "The demo took %s. %s has the models, cards, curves, and these results as a picture, %s.",
        *(duration(report["seconds"]), output_dir, PICTURE),
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
