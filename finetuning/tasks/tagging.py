"""Tagging of words, as in named entity recognition (paper, section 5.3).

A word is tagged at its first piece. A sentence longer than the model's input is read in overlapping windows, so every
word gets a tag: from the window in which it has most context.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import chain, count, pairwise
from pathlib import Path
from typing import Any, ClassVar, Literal

import numpy as np
import torch
from transformers import (
    AutoModelForTokenClassification,
    DataCollatorForTokenClassification,
    PreTrainedModel,
    PreTrainedTokenizerBase,
)
from typing_extensions import Self

from ... import metrics
from ...cards import PipelineCall
from ...files.checkpoint import Checkpoint
from ...files.conll import DOCUMENT_START, read_conll
from ...files.errors import SettingError
from ...files.output import write_lines
from ...files.source import Source
from ...modeling_mybert import IGNORE_INDEX
from ...pipelines import WordCut, own_tokens, window_starts
from ...pipelines.windows import default_stride
from ..data import DataRow, Labels, TaskData, TaskExample, label_name, rounded
from .label_cells import check_alike
from .losses import SOFT_TARGETS, ClassLoss, ItemLoss, Tables, Teaching
from .sentence_rows import refuse_single_words, rows_by_sentence
from .steps import network_outputs
from .task import Columns, Measures, PredictionFile, Task


@dataclass(frozen=True)
class TaggedSentence(TaskExample):
    words: tuple[str, ...]
    tags: tuple[str, ...] | None  # a tag for each word; None if unknown
    document: Hashable = 0  # differs between neighboring documents
    text: str | None = None  # the text that contains the words, if there was one
    spans: tuple[tuple[int, int], ...] = ()  # of each word in the text: first character, and the one after its last
    has_rows_of_words: bool = False  # whether each word is in a row of its own

    @property
    def texts(self) -> tuple[str, ...]:
        return (" ".join(self.words),)

    @property
    def classes(self) -> tuple[str, ...]:
        return self.tags or ()


Examples = Sequence[TaggedSentence]
Letters = Literal["first", "last", "none"] | None


class PredictedTags(tuple[str, ...]):
    """A tag for each word; `scores` has their probabilities, if they are known."""

    scores: tuple[float, ...] = ()


Predictions = Sequence[tuple[str, ...]]


@dataclass(frozen=True)
class TagWindow:
    """The pieces of a sequence, by their index among the pieces of all sentences; ends are exclusive."""

    start: int
    end: int
    own_start: int  # first piece that is tagged; the others are context
    own_end: int


def add_sequence(inputs: dict[str, list[Any]], tokenizer: PreTrainedTokenizerBase, ids: Sequence[int]) -> None:
    """Add pieces with special tokens to the model inputs of the previous sequences."""
    for name, values in (
        ("input_ids", [tokenizer.cls_token_id, *ids, tokenizer.sep_token_id]),
        ("attention_mask", [1] * (len(ids) + 2)),
        ("token_type_ids", [0] * (len(ids) + 2)),
    ):
        if name in inputs:
            inputs[name].append(values)


def tag_windows(start: int, end: int, first: int, last: int, space: int, stride: int | None = None) -> list[TagWindow]:
    """Windows of `space` pieces for the sentence from `start` to `end`, with context from `first` to `last`."""
    if end - start <= space:
        # As much context as fits.
        spare = space - (end - start)
        before, after = start - first, last - end
        left = min(before, max(spare // 2, spare - after))
        return [TagWindow(start - left, end + min(after, spare - left), start, end)]
    # Half of the stride as context around the sentence; each piece is tagged in the window with most context for it.
    margin = (default_stride(space) if stride is None else stride) // 2
    first, last = max(first, start - margin), min(last, end + margin)
    starts = window_starts(last - first, space, stride)
    return [
        TagWindow(first + begin, first + begin + space, max(start, first + own), min(end, first + own_end))
        for begin, (own, own_end) in zip(starts, own_tokens(starts, space, last - first), strict=True)
    ]


class WordPieces:
    """All pieces, concatenated: ids, sentence, word in it, and whether they are the word's first, each (n,).

    With `uncut`, the pieces of a text are those of the text itself, not of its words.
    """

    def __init__(self, examples: Examples, tokenizer: PreTrainedTokenizerBase, uncut: bool = False) -> None:
        texts = [number for number, example in enumerate(examples) if uncut and example.text is not None]
        others = sorted({*range(len(examples))} - {*texts})
        pieces = dict(zip(others, _pieces_of_words([examples[number] for number in others], tokenizer), strict=True))
        pieces |= zip(texts, _pieces_of_texts([examples[number] for number in texts], tokenizer), strict=True)
        in_order = [pieces[number] for number, _ in enumerate(examples)]
        self._starts = np.cumsum([0, *map(len, in_order)]).tolist()
        self.sentences = np.repeat(np.arange(len(examples)), np.diff(self._starts))
        self.ids, self.words, is_first = np.array([piece for part in in_order for piece in part]).T
        self.is_first = is_first == 1
        changes = [before.document != after.document for before, after in pairwise(examples)]
        self._documents = np.cumsum([False, *changes])  # whatever their ids in a table

    def sentence(self, number: int) -> tuple[int, int]:
        """Index range of a sentence's pieces, end exclusive."""
        return self._starts[number], self._starts[number + 1]

    def document(self, number: int) -> tuple[int, int]:
        """Index range of the pieces of a sentence's document, end exclusive."""
        first = np.searchsorted(self._documents, self._documents[number], side="left")
        last = np.searchsorted(self._documents, self._documents[number], side="right")
        return self._starts[first], self._starts[last]


_Piece = tuple[int, int, bool]  # a piece's id, its word in the sentence, and whether it is the word's first


def _pieces_of_words(examples: Examples, tokenizer: PreTrainedTokenizerBase) -> Iterator[list[_Piece]]:
    """The pieces of sentences, tokenized word by word."""
    if not examples:
        return
    space = " " if _reads_spaces(tokenizer) else ""
    encodings = tokenizer(
        [[f"{space if place else ''}{word}" for place, word in enumerate(example.words)] for example in examples],
        is_split_into_words=True,
        add_special_tokens=False,
        truncation=False,
        verbose=False,
    )
    for number, example in enumerate(examples):
        ids: list[list[int]] = [[] for _ in example.words]
        for token, word in zip(encodings["input_ids"][number], encodings.word_ids(number), strict=True):
            ids[word].append(token)
        for tokens in ids:  # a word of characters that the tokenizer drops has none
            tokens[:] = tokens or [tokenizer.unk_token_id]
        yield [(token, word, not place) for word, tokens in enumerate(ids) for place, token in enumerate(tokens)]


def _pieces_of_texts(examples: Examples, tokenizer: PreTrainedTokenizerBase) -> Iterator[list[_Piece]]:
    """The pieces of texts, whose words are where the tokenizer's offsets say; a word within a piece has none."""
    if not examples:
        return
    texts = [example.text or "" for example in examples]
    encodings = tokenizer(
        texts, add_special_tokens=False, truncation=False, return_offsets_mapping=True, verbose=False
    )
    for example, text, ids, offsets in zip(
        examples, texts, encodings["input_ids"], encodings["offset_mapping"], strict=True
    ):
        # Some tokenizers count the space before a word to its first piece.
        starts = [end - len(text[start:end].lstrip()) for start, end in offsets]
        ends = [end for _, end in offsets]
        word_of: dict[int, int] = {}  # by first piece: the first that begins in the word, or else the one around it
        for word, (start, end) in enumerate(example.spans):
            place = int(np.searchsorted(starts, start))
            if place == len(starts) or starts[place] >= end:
                place = min(int(np.searchsorted(ends, start, side="right")), len(ends) - 1)
            word_of.setdefault(place, word)
        pieces: list[_Piece] = []
        for place, token in enumerate(ids):
            pieces.append((token, word_of.get(place, pieces[-1][1] if pieces else 0), place in word_of))
        yield pieces or [(tokenizer.unk_token_id, 0, True)]


def _reads_spaces(tokenizer: PreTrainedTokenizerBase) -> bool:
    """Whether a word has other pieces behind a space, as in byte-level vocabularies (RoBERTa)."""
    text, words = (
        tokenizer(a_twice, is_split_into_words=is_split, add_special_tokens=False)["input_ids"]
        for a_twice, is_split in (("a a", False), (["a", "a"], True))
    )
    return text != words


def word_with_piece(word: tuple[int, int], pieces: Collection[tuple[int, int]]) -> tuple[int, int]:
    """The word whose piece decides about a word, both (sentence, word in it): it is in that piece, too."""
    while word not in pieces:
        word = word[0], word[1] - 1
    return word


OUTSIDE = "O"
_UNCUT = (
    "Texts in {} have no spaces between words, so several words are tagged as one. Cut them into words first: give "
    "lists of words, or CoNLL columns (a file named .conll) with a word in each line."
)


class WordTeaching(Teaching):
    """A row for each token; a word has the teacher's logits at its first piece, even if the tokenizers differ."""

    def outputs(self, tables: Tables) -> Any:
        return list(tables)

    def targets(self, task: Any, data: TaskData, read: TaskData, tables: Tables) -> dict[str, Any]:
        of_word: dict[tuple[int, int], np.ndarray] = {}
        for table, layout in zip(tables, read.layout, strict=True):
            for place in np.flatnonzero(layout[:, 0] >= 0):
                of_word[tuple(layout[place].tolist())] = table[place]
        sequences = []
        for layout in data.layout:
            targets = np.full((len(layout), tables[0].shape[1]), np.nan, dtype=np.float32)
            for place in np.flatnonzero(layout[:, 0] >= 0):
                targets[place] = of_word[word_with_piece(tuple(layout[place].tolist()), of_word)]
            sequences.append(targets)
        return {SOFT_TARGETS: sequences}


class ConllFile(PredictionFile):
    """conlleval's format: word, true tag if known, predicted tag."""

    def write(self, task: Any, predictions: Predictions, examples: Examples, folder: Path, suffix: str = "") -> None:
        lines = []
        for example, tags in zip(examples, predictions, strict=True):
            columns = [_conll_words(example), *([example.tags] if example.tags else []), tags]
            lines += ["\t".join(fields) for fields in zip(*columns, strict=True)] + [""]
        write_lines(folder / f"predictions{suffix}.conll", lines[:-1])

    def read(self, task: Any, path: Path, examples: Examples, rows: Sequence[DataRow]) -> list[Any]:
        """Read CoNLL columns; the last one is the predicted tag."""
        sentences = list(read_conll(path, is_data=False))
        if len(sentences) != len(examples):
            raise ValueError(f"{path} has {len(sentences)} sentences; expected {len(examples)}.")
        found = [DataRow(sentence, str(path), number) for number, sentence in enumerate(sentences, start=1)]
        return task.predictions_of(found, examples)


@dataclass(frozen=True, kw_only=True)
class Words(Task[TaggedSentence, tuple[str, ...]]):
    """Tags of words."""

    # Labels of a word's pieces after the first: ignored ("ignore"), or inside the entity, I-, ("inside").
    continuation_labels: Literal["ignore", "inside"] = "ignore"
    # Whether to read every sentence with as much of its document as fits as context.
    max_document_context: bool = False
    # Whether tags may be other than those of entities (B-PER, O), such as parts of speech; metrics then count words
    # instead of entities.
    any_tags: bool = False
    # Where the letters of the classes are, see `metrics.entity_letters`; "none" if they are no entity tags, None until
    # they are known.
    letters: Literal["first", "last", "none"] | None = None
    word_cut: Mapping[str, str] | None = None  # how texts are cut into words, see `WordCut.record`

    options: ClassVar[tuple[str, ...]] = (*Task.options, "continuation_labels", "max_document_context", "doc_stride")
    learned_fields: ClassVar[tuple[str, ...]] = ("word_cut",)
    auto_class: ClassVar[Any] = AutoModelForTokenClassification
    pipeline: ClassVar[str] = "token-classification"
    loss: ClassVar[ItemLoss] = ClassLoss()
    teaching: ClassVar[Teaching | None] = WordTeaching()
    prediction_file: ClassVar[PredictionFile] = ConllFile()
    has_classes: ClassVar[bool] = True
    names_outputs: ClassVar[bool] = True
    reads_conll: ClassVar[bool] = True
    labels_rows: ClassVar[bool] = False
    most_listed: ClassVar[int | str | None] = 1
    has_probabilities: ClassVar[bool] = False

    def _example(self, row: DataRow, labeled: bool) -> TaggedSentence:
        words = tuple(row.words(self.text_column))
        document = row.get("document", 0)
        if not labeled:
            return TaggedSentence(words, None, document, row=row.number)
        tags = tuple(map(label_name, row.words(self.label_column, "tags")))
        if len(tags) != len(words):
            raise row.invalid(f"{len(words)} words and {len(tags)} tags; expected one tag per word")
        if not all(tags):
            raise row.invalid("an empty tag; expected one tag per word")
        return TaggedSentence(words, tags, document, row=row.number)

    def examples(self, rows: Sequence[DataRow], labeled: bool, new: bool = False) -> list[TaggedSentence]:
        """The sentences of rows, or of rows of one word each by the column that numbers the sentences."""
        sentences = rows_by_sentence(rows, self.text_column, new)
        if sentences is not None:
            return [self._joined([self._example(row, labeled) for row in sentence]) for sentence in sentences]
        if labeled:
            refuse_single_words(rows, self.text_column, self.label_column)
        word_cut = WordCut.from_record(self.word_cut) if new else None
        return [self._cut(row, word_cut) if word_cut else self._example(row, labeled) for row in rows]

    def _cut(self, row: DataRow, word_cut: WordCut) -> TaggedSentence:
        """A new sentence; a text is cut as the training data was, and is a document if no column says more."""
        if not isinstance(row.value(self.text_column), str):
            return self._example(row, labeled=False)
        text = row.text(self.text_column)
        spans = tuple(word_cut.spans(text))
        words = tuple(text[slice(*span)] for span in spans)
        document = row.get("document", (row.source, row.number))
        return TaggedSentence(words, None, document, text, spans, row=row.number)

    def _joined(self, words: Sequence[TaggedSentence]) -> TaggedSentence:
        """The sentence of words that are each in a row of their own."""
        tags = None if words[0].tags is None else tuple(chain.from_iterable(word.tags or () for word in words))
        all_words = tuple(chain.from_iterable(word.words for word in words))
        return replace(words[0], words=all_words, tags=tags, has_rows_of_words=True)

    def trained_on(self, examples: Examples, source: Source) -> tuple[Self, Examples]:
        """The task, with `word_cut` as the words of training data were cut."""
        return replace(self, word_cut=WordCut.learn([example.words for example in examples]).record), examples

    def with_classes(self, labels: Labels | None, checkpoint: Checkpoint | None = None) -> Self:
        """The task, with `letters` set from the classes."""
        return self if labels is None else replace(self, letters=metrics.entity_letters(labels.names) or "none")

    def group_of(self, example: TaggedSentence) -> Hashable:
        """The sentence, or its document where that is read as context."""
        return example.document if self.max_document_context else example.words

    def labels(self, examples: Examples, source: Source) -> Labels:
        """The tags of the training data; B- and I- of a type are both included, even if one does not occur."""
        found = {tag for example in examples for tag in example.tags or ()}
        letters = metrics.entity_letters(found)
        if letters is None and not self.any_tags:
            try:
                metrics.entity_spans(sorted(found))
            except ValueError as error:
                raise SettingError.worded("{}: {} For other tags use {task='tagging'}.", source, error) from None
        parts = [_parts(tag, letters) for tag in found]
        types = {kind for letter, kind in parts if letter in ("B", "I") and kind}
        if {letter for letter, kind in parts if kind in types} >= {"B", "I"}:
            both = [(letter, kind) for kind in types for letter in "BI"]
            found |= {f"{kind}-{letter}" if letters == "last" else f"{letter}-{kind}" for letter, kind in both}
        return Labels.from_data(sorted(found), source)

    def encode(
        self, examples: Examples, labels: Labels | None, tokenizer: PreTrainedTokenizerBase, source: Source
    ) -> TaskData[TaggedSentence]:
        """Tokenize sentences; `layout` has (sentence, word) of each piece of each sequence, (-1, -1) if untagged."""
        assert labels is not None
        space = self.max_length - 2
        if space < 1:
            raise SettingError("max_length", self.max_length, "at least 3")
        pieces = WordPieces(examples, tokenizer, uncut=self.word_cut is None)
        tag_ids = None if examples[0].tags is None else self._tag_ids(examples, pieces, labels, source)
        context = pieces.document if self.max_document_context else pieces.sentence
        found = [
            tag_windows(*pieces.sentence(number), *context(number), space, self.doc_stride)
            for number, _ in enumerate(examples)
        ]
        inputs: dict[str, list[Any]] = {name: [] for name in tokenizer.model_input_names}
        targets: list[list[int]] = []
        layout: list[np.ndarray] = []
        for window in chain.from_iterable(found):
            ids = pieces.ids[window.start : window.end].tolist()
            add_sequence(inputs, tokenizer, ids)
            own = slice(window.own_start, window.own_end)
            before, after = window.own_start - window.start + 1, window.end - window.own_end + 1
            places = np.stack([pieces.sentences[own], pieces.words[own]], axis=1)
            places[~pieces.is_first[own]] = -1
            layout.append(np.pad(places, ((before, after), (0, 0)), constant_values=-1))
            if tag_ids is not None:
                targets.append(np.pad(tag_ids[own], (before, after), constant_values=IGNORE_INDEX).tolist())
        if tag_ids is not None:
            inputs["labels"] = targets
        windowed = sum(len(windows) > 1 for windows in found)
        return TaskData(examples, inputs, source, layout, windowed=windowed, warnings=self._cut_warnings(examples))

    def _cut_warnings(self, examples: Examples) -> set[str]:
        """Warnings of texts in scripts whose words cannot be told apart."""
        texts = [example.text for example in examples if example.text is not None]
        uncut = WordCut.from_record(self.word_cut).uncut_scripts
        scripts = set[str]().union(*map(uncut, texts))
        return {_UNCUT.format("Chinese characters" if script == "CJK" else script.capitalize()) for script in scripts}

    def _tag_ids(self, examples: Examples, pieces: WordPieces, labels: Labels, source: Source) -> np.ndarray:
        """The target of every piece, -100 to ignore it."""
        names = [tag for example in examples for tag in example.tags or ()]
        word_ids = np.array(labels.ids(names, source))
        first_words = np.cumsum([0, *(len(example.words) for example in examples[:-1])])
        ids = word_ids[first_words[pieces.sentences] + pieces.words]
        if self.continuation_labels == "ignore":
            ids[~pieces.is_first] = IGNORE_INDEX
        else:
            letters = metrics.entity_letters(labels.names)
            # a bare B is one of an entity, too
            others = (tag for tag in labels.names if not (_parts(tag, letters)[1] or metrics.entity_letters([tag])))
            if other := next(others, None):
                raise SettingError.worded(
                    "{continuation_labels} is 'inside' and {} has the tag {!r}; expected tags of entities such as "
                    "B-PER, or {continuation_labels} 'ignore'.",
                    source,
                    other[:40],
                )
            index = {name: number for number, name in enumerate(labels.names)}
            tags = [_inside(name, letters) for name in labels.names]  # of pieces after the first
            inside = np.array([index.get(tag, IGNORE_INDEX) for tag in tags])
            ids[~pieces.is_first] = inside[ids[~pieces.is_first]]
        return ids

    def collator(self, tokenizer: PreTrainedTokenizerBase, model: PreTrainedModel | None = None) -> Any:
        """A collator that pads labels with -100."""
        return DataCollatorForTokenClassification(super().collator(tokenizer).tokenizer)

    def predict(self, outputs: Any, data: TaskData[TaggedSentence], labels: Labels | None) -> list[tuple[str, ...]]:
        """The most probable tag at the first piece of every word."""
        assert labels is not None
        found: dict[tuple[int, int], tuple[str, float]] = {}
        for logits, layout in zip(outputs, data.layout, strict=True):
            places = np.flatnonzero(layout[:, 0] >= 0)
            scores = torch.from_numpy(logits[places]).softmax(-1).amax(-1).tolist()
            best = zip(layout[places].tolist(), logits[places].argmax(-1), scores, strict=True)
            found |= {(sentence, word): (labels.names[tag], rounded(score)) for (sentence, word), tag, score in best}
        predictions: list[tuple[str, ...]] = []
        for number, example in enumerate(data.examples):
            words = [found[word_with_piece((number, word), found)] for word, _ in enumerate(example.words)]
            tags = PredictedTags(tag for tag, _ in words)
            tags.scores = tuple(score for _, score in words)
            predictions.append(tags)
        return predictions

    def columns_of(self, prediction: tuple[str, ...], example: TaggedSentence, top_k: int = 1) -> Columns:
        """A tag for each word; for users with probabilities, the `words` of a text, and entities if tags are of these.

        Rows of one word each have one tag each.
        """
        # An entity has its `label`, `text`, `start` and `end` (characters of the text, or of the words joined by
        # spaces if there was no text), and `score`, the mean over its words.
        tags, text = list(prediction), " ".join(prediction)
        scores = list(getattr(prediction, "scores", ()))
        if example.has_rows_of_words:
            rows = [{"label": tag, "score": score} for tag, score in zip(tags, scores, strict=False)]
            return Columns(text, row_answers=rows)
        answer: dict[str, Any] = {"words": list(example.words)} if example.text is not None else {}
        answer |= {"label": tags, "score": scores}
        if scores and self.letters != "none":
            answer |= {"entities": _entities(example, tags, scores, self.letters)}
        return Columns(text, answer)

    def predictions_of(self, rows: Sequence[DataRow], examples: Examples) -> list[tuple[str, ...]]:
        for number, (row, example) in enumerate(zip(rows, examples, strict=True), start=1):
            if "tags" not in row:
                raise ValueError(f"{row.source} has only one column; expected words and tags.")
            if row.value("tokens") != _conll_words(example):
                raise ValueError(
                    f"{row.source} has other words in sentence {number} than the data: "
                    f"{' '.join(row.value('tokens')[:6])!r} in place of {' '.join(example.words[:6])!r}."
                )
        tags = [tuple(map(label_name, row.value("tags"))) for row in rows]
        check_alike(rows[0].source, {*chain(*tags)}, {tag for example in examples for tag in example.tags or ()})
        return tags

    def gold_prediction(self, example: TaggedSentence) -> tuple[str, ...]:
        return example.tags or ()

    def measures(self, predictions: Predictions, examples: Examples) -> Measures:
        """Precision, recall and F1 of entities, as in conlleval, and the accuracy of tags; for other tags macro F1."""
        true = [example.tags or () for example in examples]
        letters = self._letters(predictions, true)
        measures = _entity_measures if letters != "none" else _word_measures
        return measures(predictions, true, letters == "last")

    def _letters(self, *sides: Iterable[Sequence[str]]) -> Literal["first", "last", "none"]:
        """Where the letters of entity tags are; if the classes are unknown, the given tags decide."""
        if self.letters is not None and (self.any_tags or self.letters != "none"):
            return self.letters
        found = metrics.entity_letters({tag for side in sides for tags in side for tag in tags})
        return found or ("none" if self.any_tags else "first")

    def errors(self, prediction: tuple[str, ...], example: TaggedSentence) -> Iterator[tuple[int, dict[str, Any]]]:
        """Words with a wrong tag; all rank alike, since predictions are without probabilities."""
        (sentence,) = example.texts
        for word, wanted, tag in zip(example.words, example.tags or (), prediction, strict=True):
            if tag != wanted:
                yield 0, {"sentence": sentence, "token": word, "true": wanted, "predicted": tag}

    def pipeline_call(self, example: TaggedSentence) -> PipelineCall:
        code = f"for entity in run({' '.join(example.words)!r}):\n    print(entity['entity_group'], entity['word'])"
        wanted = " ".join(f"{word}/{tag}" for word, tag in zip(example.words, example.tags or (), strict=False))
        title = f"Tagging (the data says: {wanted})"
        return PipelineCall(title, self.pipeline, code, {"aggregation_strategy": "first"})


def tag(
    task: Words, sentences: Sequence[Sequence[str]], model: Any, labels: Labels, tokenizer: PreTrainedTokenizerBase
) -> list[tuple[str, ...]]:
    """Tag the words of sentences with a model."""
    examples = [TaggedSentence(tuple(words), None) for words in sentences]
    data = task.encode(examples, labels, tokenizer, Source.of("sentences"))
    return task.predict(network_outputs(task, data, model.eval(), tokenizer), data, labels)


def _entity_measures(predictions: Predictions, true: Predictions, suffix: bool) -> Measures:
    """Of entities, by type, with the confusion matrix of words."""

    def scores() -> dict[str, float]:
        found = metrics.entity_metrics(predictions, true, suffix=suffix)
        overall = {name: found[f"overall_{name}"] for name in ("precision", "recall", "f1", "accuracy")}
        return overall | {
            metrics.metric_of_class(name, "f1"): each["f1"] for name, each in found.items() if isinstance(each, dict)
        }

    def resampled() -> metrics.WeightedMetrics:
        _, words = _item_counts(lambda tags: zip(tags, count(), strict=False), predictions, true)
        types, items = _item_counts(partial(metrics.entity_spans, suffix=suffix), predictions, true)

        def weighted(weights: np.ndarray) -> dict[str, np.ndarray]:
            found = metrics.count_metrics(items, weights)
            overall = {"precision": found["precision"], "recall": found["recall"], "f1": found["micro_f1"]}
            overall |= {"accuracy": metrics.count_metrics(words, weights)["accuracy"]}
            return overall | {
                metrics.metric_of_class(name, "f1"): found["f1"][:, number] for number, name in enumerate(types)
            }

        return weighted

    return Measures(scores, resampled, partial(metrics.entity_report, predictions, true, suffix=suffix))


def _word_measures(predictions: Predictions, true: Predictions, suffix: bool) -> Measures:
    """Of words, whose tags are any classes."""
    words = list(chain(*predictions)), list(chain(*true))

    def scores() -> dict[str, float]:
        return {"accuracy": metrics.accuracy(*words), "f1": metrics.f1(*words, average="macro")}

    def resampled() -> metrics.WeightedMetrics:
        _, items = _item_counts(lambda tags: zip(tags, count(), strict=False), predictions, true)

        def weighted(weights: np.ndarray) -> dict[str, np.ndarray]:
            found = metrics.count_metrics(items, weights)
            return {"accuracy": found["accuracy"], "f1": found["macro_f1"]}

        return weighted

    return Measures(scores, resampled, partial(metrics.class_report, *words, sorted({*words[0], *words[1]}), "words"))


def _item_counts(
    items_of: Callable[[Sequence[str]], Iterable[tuple[Any, ...]]], predictions: Predictions, wanted: Predictions
) -> tuple[list[str], np.ndarray]:
    """The classes of items, which begin with them, and how many are correct, predicted and true in each sentence."""
    sentences = []
    for predicted, tags in zip(predictions, wanted, strict=True):
        found, true = set(items_of(predicted)), set(items_of(tags))
        sentences.append([Counter(item[0] for item in side) for side in (found & true, found, true)])
    classes = sorted({name for sentence in sentences for side in sentence for name in side})
    counts = np.array([[[side[name] for name in classes] for side in sentence] for sentence in sentences])
    return classes, counts.transpose(1, 0, 2)  # (3, sentences, classes)


def _conll_words(example: TaggedSentence) -> list[str]:
    """The words for CoNLL columns: "_" for one that would be empty or start a document there."""
    return ["_" if not word.strip() or word == DOCUMENT_START else word for word in example.words]


def _entities(
    example: TaggedSentence, tags: Sequence[str], scores: Sequence[float], letters: Letters
) -> list[dict[str, Any]]:
    """The entities of a sentence, as `columns_of` gives them."""
    text, spans = example.text, example.spans
    if text is None:
        text = " ".join(example.words)
        ends = np.cumsum([len(word) + 1 for word in example.words]) - 1
        spans = tuple((int(end) - len(word), int(end)) for word, end in zip(example.words, ends, strict=True))
    found = []
    for label, first, last in metrics.entity_spans(list(tags), suffix=letters == "last"):
        start, end = spans[first][0], spans[last - 1][1]
        score = rounded(float(np.mean(scores[first:last])))
        found.append({"label": label, "text": text[start:end], "start": start, "end": end, "score": score})
    return found


def _parts(tag: str, letters: Letters) -> tuple[str, str]:
    """The letter of an entity tag, and its type; "" if it has none."""
    letter, kind, dash = (tag[-1:], tag[:-2], tag[-2:-1]) if letters == "last" else (tag[:1], tag[2:], tag[1:2])
    return letter, kind if dash == "-" else ""


def _inside(tag: str, letters: Letters) -> str:
    """The tag of an entity's further words, for one of its words."""
    inside = f"{tag[:-1]}I" if letters == "last" else f"I{tag[1:]}"
    return tag if tag == OUTSIDE else inside
