"""Tagging of words, as in named entity recognition (paper, section 5.3).

A word is tagged at its first piece. A sentence longer than the model's input is read in overlapping windows, so every
word gets a tag: from the window in which it has most context.

The feature-based approach tags by a BiLSTM on the hidden states of a frozen encoder.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from functools import cached_property
from itertools import chain, count, pairwise
from pathlib import Path
from typing import Any, ClassVar, Literal

import numpy as np
import torch
from torch import nn
from transformers import (
    AutoModelForTokenClassification,
    DataCollatorForTokenClassification,
    PreTrainedConfig,
    PreTrainedModel,
    PreTrainedTokenizerBase,
)
from typing_extensions import Self

from ... import metrics
from ...files.checkpoint import Checkpoint
from ...files.output import write_lines
from ...files.source import Source
from ...files.tables import DOCUMENT_START, read_conll
from ...hub_card import Example, PipelineCall, run_example
from ...modeling_mybert import IGNORE_INDEX
from ...pipelines import own_tokens, window_starts
from ...pipelines.windows import default_stride
from ..data import DataRow, Labels, label_name
from ..features import FEATURES, TABLE_7, FeatureTagger, FeatureTaggerConfig, hidden_states, load_encoder
from ..heads import NetworkChanges, check_max_length
from .task import Objective, Task, TaskData, TaskExample, network_outputs, rounded


@dataclass(frozen=True)
class TaggedSentence(TaskExample):
    words: tuple[str, ...]
    tags: tuple[str, ...] | None  # a tag for each word; None if unknown
    document: Hashable = 0  # differs between neighboring documents
    text: str | None = None  # the text that contains the words, if there was one
    spans: tuple[tuple[int, int], ...] = ()  # of each word in the text: first character, and the one after its last


Examples = Sequence[TaggedSentence]
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
    """All pieces, concatenated: ids, sentence, word in it, and whether they are the word's first, each (n,)."""

    def __init__(self, examples: Examples, tokenizer: PreTrainedTokenizerBase) -> None:
        space = " " if _reads_spaces(tokenizer) else ""
        encodings = tokenizer(
            [[f"{space if place else ''}{word}" for place, word in enumerate(example.words)] for example in examples],
            is_split_into_words=True,
            add_special_tokens=False,
            truncation=False,
            verbose=False,
        )
        ids: list[int] = []
        sentences: list[int] = []
        words: list[int] = []
        self._starts = [0]
        for number, example in enumerate(examples):
            pieces: list[list[int]] = [[] for _ in example.words]
            for token, word in zip(encodings["input_ids"][number], encodings.word_ids(number), strict=True):
                pieces[word].append(token)
            for word, tokens in enumerate(pieces):
                tokens = tokens or [tokenizer.unk_token_id]  # a word of characters that the tokenizer drops
                ids += tokens
                words += [word] * len(tokens)
                sentences += [number] * len(tokens)
            self._starts.append(len(ids))
        self.ids, self.sentences, self.words = np.array(ids), np.array(sentences), np.array(words)
        same = (np.diff(self.words, prepend=-1) == 0) & (np.diff(self.sentences, prepend=-1) == 0)
        self.is_first = ~same
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


def _reads_spaces(tokenizer: PreTrainedTokenizerBase) -> bool:
    """Whether a word has other pieces behind a space, as in byte-level vocabularies (RoBERTa)."""
    text, words = (
        tokenizer(a_twice, is_split_into_words=is_split, add_special_tokens=False)["input_ids"]
        for a_twice, is_split in (("a a", False), (["a", "a"], True))
    )
    return text != words


OUTSIDE = "O"
# A word from its first letter or digit (or @, # before it) to its last one; other characters are words by themselves.
_WORD = re.compile(r"[@#]?\w(?:\S*\w)?|[^\w\s]")


@dataclass(frozen=True, kw_only=True)
class TaggingTask(Task[TaggedSentence, tuple[str, ...]]):
    """Tags of words."""

    # Labels of a word's pieces after the first: ignored ("ignore"), or inside the entity, I-, ("inside").
    continuation_labels: Literal["ignore", "inside"] = "ignore"
    # Whether to read every sentence with as much of its document as fits as context.
    max_document_context: bool = False
    # Whether tags may be other than those of entities (B-PER, O), such as parts of speech; metrics then count words
    # instead of entities.
    any_tags: bool = False
    are_of_entities: bool | None = None  # whether all classes are entity tags; None until they are known

    options: ClassVar[tuple[str, ...]] = (*Task.options, "continuation_labels", "max_document_context", "doc_stride")
    auto_class: ClassVar[Any] = AutoModelForTokenClassification
    pipeline: ClassVar[str] = "token-classification"
    objective: ClassVar[Objective] = "classes"
    has_classes: ClassVar[bool] = True
    reads_conll: ClassVar[bool] = True
    labels_rows: ClassVar[bool] = False
    most_listed: ClassVar[int | None] = 1
    has_probabilities: ClassVar[bool] = False

    def example(self, row: DataRow, labeled: bool) -> TaggedSentence:
        words = tuple(row.words(self.text_column))
        document = row.get("document", 0)
        if not labeled:
            return TaggedSentence(words, None, document, row=row.number)
        tags = tuple(map(label_name, row.words(self.label_column)))
        if len(tags) != len(words):
            raise row.invalid(f"{len(words)} words and {len(tags)} tags; expected one tag per word")
        if not all(tags):
            raise row.invalid("an empty tag; expected one tag per word")
        return TaggedSentence(words, tags, document, row=row.number)

    def with_classes(self, labels: Labels | None) -> Self:
        """The task, with `are_of_entities` set from the classes."""
        return self if labels is None else replace(self, are_of_entities=_are_of_entities(labels.names))

    def texts_of(self, example: TaggedSentence) -> tuple[str, ...]:
        return (" ".join(example.words),)

    def classes_of(self, example: TaggedSentence) -> tuple[str, ...]:
        return example.tags or ()

    def group_of(self, example: TaggedSentence) -> Hashable:
        """The sentence, or its document where that is read as context."""
        return example.document if self.max_document_context else example.words

    def labels(self, examples: Examples, source: Source) -> Labels:
        """The tags of the training data; B- and I- of a type are both included, even if one does not occur."""
        found = {tag for example in examples for tag in example.tags or ()}
        if not self.any_tags:
            try:
                metrics.entity_spans(sorted(found))
            except ValueError as error:
                raise ValueError(f"{source}: {error}; for other tags use --task tagging.") from None
        of_entities = {tag for tag in found if tag[:2] in ("B-", "I-")}
        if {tag[0] for tag in of_entities} == {"B", "I"}:
            found |= {f"{prefix}{tag[1:]}" for tag in of_entities for prefix in "BI"}
        return Labels.from_data(sorted(found), source)

    def encode(
        self, examples: Examples, labels: Labels | None, tokenizer: PreTrainedTokenizerBase, source: Source
    ) -> TaskData[TaggedSentence]:
        """Tokenize sentences; `layout` has (sentence, word) of each piece of each sequence, (-1, -1) if untagged."""
        assert labels is not None
        space = self.max_length - 2
        if space < 1:
            raise ValueError(f"max_length is {self.max_length}; expected at least 3.")
        pieces = WordPieces(examples, tokenizer)
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
        return TaskData(examples, inputs, source, layout, windowed=sum(len(windows) > 1 for windows in found))

    def _tag_ids(self, examples: Examples, pieces: WordPieces, labels: Labels, source: Source) -> np.ndarray:
        """The target of every piece, -100 to ignore it."""
        names = [tag for example in examples for tag in example.tags or ()]
        word_ids = np.array(labels.ids(names, source))
        first_words = np.cumsum([0, *(len(example.words) for example in examples[:-1])])
        ids = word_ids[first_words[pieces.sentences] + pieces.words]
        if self.continuation_labels == "ignore":
            ids[~pieces.is_first] = IGNORE_INDEX
        else:
            # a bare B is one of an entity, too
            if other := next((tag for tag in labels.names if tag[1:2] != "-" and not _are_of_entities([tag])), None):
                raise ValueError(
                    f"continuation_labels is 'inside' and {source} has the tag {other[:40]!r}; expected tags of "
                    "entities such as B-PER, or continuation_labels 'ignore'."
                )
            index = {name: number for number, name in enumerate(labels.names)}
            tags = [name if name == OUTSIDE else f"I{name[1:]}" for name in labels.names]  # of pieces after the first
            inside = np.array([index.get(tag, IGNORE_INDEX) for tag in tags])
            ids[~pieces.is_first] = inside[ids[~pieces.is_first]]
        return ids

    def collator(self, tokenizer: PreTrainedTokenizerBase, model: PreTrainedModel | None = None) -> Any:
        """A collator that pads labels with -100."""
        return DataCollatorForTokenClassification(super().collator(tokenizer).tokenizer)

    def predict(self, outputs: Any, data: TaskData[TaggedSentence], labels: Labels | None) -> list[tuple[str, ...]]:
        """The most probable tag at the first piece of every word."""
        return [tuple(tag for tag, _ in sentence) for sentence in self._scored_tags(outputs, data, labels)]

    def _scored_tags(
        self, outputs: Any, data: TaskData[TaggedSentence], labels: Labels | None
    ) -> list[list[tuple[str, float]]]:
        """The most probable tag of every word, with its probability."""
        assert labels is not None
        found = [[(OUTSIDE, 1.0)] * len(example.words) for example in data.examples]
        for logits, layout in zip(outputs, data.layout, strict=True):
            places = np.flatnonzero(layout[:, 0] >= 0)
            scores = torch.from_numpy(logits[places]).softmax(-1).amax(-1).tolist()
            best = zip(layout[places], logits[places].argmax(-1), scores, strict=True)
            for (sentence, word), tag, score in best:
                found[sentence][word] = labels.names[tag], rounded(score)
        return found

    def tag(
        self,
        sentences: Sequence[Sequence[str]],
        model: PreTrainedModel,
        labels: Labels,
        tokenizer: PreTrainedTokenizerBase,
    ) -> list[tuple[str, ...]]:
        """Tag the words of sentences with a model."""
        examples = [TaggedSentence(tuple(words), None) for words in sentences]
        data = self.encode(examples, labels, tokenizer, Source.of("sentences"))
        return self.predict(network_outputs(self, data, model.eval(), tokenizer), data, labels)

    def new_examples(self, rows: Sequence[DataRow]) -> list[TaggedSentence]:
        """Words of rows; a text is split into words, punctuation apart, and is a document if no column says more."""
        examples = []
        for row in rows:
            if isinstance(row.value(self.text_column), str):
                text = row.text(self.text_column)
                spans = tuple(match.span() for match in _WORD.finditer(text))
                words = tuple(text[slice(*span)] for span in spans)
                document = row.get("document", (row.source, row.number))
                examples.append(TaggedSentence(words, None, document, text, spans, row=row.number))
            else:
                examples.append(self.example(row, labeled=False))
        return examples

    def answers(
        self, outputs: Any, data: Any, labels: Labels | None, top_k: int = 1, probabilities: bool = False
    ) -> list[dict[str, Any]]:
        """A tag for each word with its probability, the `words` of a text, and entities if tags are of entities."""
        assert labels is not None
        of_entities = _are_of_entities(labels.names)
        # An entity has its `label`, `text`, `start` and `end` (characters of the text, or of the words joined by
        # spaces if there was no text), and `score`, the mean over its words.
        answers: list[dict[str, Any]] = []
        for example, found in zip(data.examples, self._scored_tags(outputs, data, labels), strict=True):
            tags, scores = [tag for tag, _ in found], [score for _, score in found]
            answer: dict[str, Any] = {"words": list(example.words)} if example.text is not None else {}
            answer |= {"label": tags, "score": scores}
            answers.append(answer | ({"entities": _entities(example, tags, scores)} if of_entities else {}))
        return answers

    def counted_labels(self, answer: Mapping[str, Any]) -> Sequence[str]:
        """The labels of the entities, or of the words if tags are not of entities."""
        return [entity["label"] for entity in answer["entities"]] if "entities" in answer else answer["label"]

    def score(self, predictions: Predictions, examples: Examples) -> dict[str, float]:
        """Precision, recall and F1 of entities, as in conlleval, and the accuracy of tags; for other tags macro F1."""
        wanted = [example.tags or () for example in examples]
        if not self._counts_entities(predictions, wanted):
            words = list(chain(*predictions)), list(chain(*wanted))
            return {"accuracy": metrics.accuracy(*words), "f1": metrics.f1(*words, average="macro")}
        found = metrics.entity_metrics(predictions, wanted)
        overall = {name: found[f"overall_{name}"] for name in ("precision", "recall", "f1", "accuracy")}
        return overall | {f"{name}_f1": scores["f1"] for name, scores in found.items() if isinstance(scores, dict)}

    def weighted_metrics(self, predictions: Predictions, examples: Examples) -> metrics.WeightedMetrics:
        wanted = [example.tags or () for example in examples]
        _, words = _item_counts(lambda tags: zip(tags, count(), strict=False), predictions, wanted)
        counts_entities = self._counts_entities(predictions, wanted)
        types, items = _item_counts(metrics.entity_spans, predictions, wanted) if counts_entities else ([], words)

        def weighted(weights: np.ndarray) -> dict[str, np.ndarray]:
            found = metrics.count_metrics(items, weights)
            if not counts_entities:
                return {"accuracy": found["accuracy"], "f1": found["macro_f1"]}
            overall = {"precision": found["precision"], "recall": found["recall"], "f1": found["micro_f1"]}
            overall |= {"accuracy": metrics.count_metrics(words, weights)["accuracy"]}
            return overall | {f"{name}_f1": found["f1"][:, number] for number, name in enumerate(types)}

        return weighted

    def _counts_entities(self, *sides: Iterable[Sequence[str]]) -> bool:
        """Whether to count entities, not words; if the classes are unknown, the given tags decide."""
        known = self.are_of_entities if self.any_tags else True
        return _are_of_entities({tag for side in sides for tags in side for tag in tags}) if known is None else known

    def report_by_class(self, predictions: Predictions, examples: Examples) -> metrics.ClassReport:
        """Entities by type, with a confusion matrix of words; for other tags, a report on words."""
        wanted = [example.tags or () for example in examples]
        if self._counts_entities(predictions, wanted):
            return metrics.entity_report(predictions, wanted)
        words = list(chain(*predictions)), list(chain(*wanted))
        return metrics.class_report(*words, sorted({*words[0], *words[1]}), "words")

    def gold_prediction(self, example: TaggedSentence) -> tuple[str, ...]:
        return example.tags or ()

    def as_text(self, prediction: tuple[str, ...]) -> str:
        """The tags, separated by spaces."""
        return " ".join(prediction)

    def errors(self, prediction: tuple[str, ...], example: TaggedSentence) -> Iterator[tuple[int, dict[str, Any]]]:
        """Words with a wrong tag; all rank alike, since predictions are without probabilities."""
        (sentence,) = self.texts_of(example)
        for word, wanted, tag in zip(example.words, example.tags or (), prediction, strict=True):
            if tag != wanted:
                yield 0, {"sentence": sentence, "token": word, "true": wanted, "predicted": tag}

    def write_predictions(self, predictions: Predictions, examples: Examples, folder: Path, suffix: str = "") -> None:
        """Write `predictions.conll` in conlleval's format: word, true tag if known, predicted tag."""
        lines = []
        for example, tags in zip(examples, predictions, strict=True):
            columns = [_conll_words(example), *([example.tags] if example.tags else []), tags]
            lines += ["\t".join(fields) for fields in zip(*columns, strict=True)] + [""]
        write_lines(folder / f"predictions{suffix}.conll", lines[:-1])

    def read_predictions(self, path: Path, examples: Examples) -> list[tuple[str, ...]]:
        """Read CoNLL columns; the last one is the predicted tag."""
        rows = list(read_conll(path, has_comments=False))
        if len(rows) != len(examples):
            raise ValueError(f"{path} has {len(rows)} sentences; expected {len(examples)}.")
        for number, (row, example) in enumerate(zip(rows, examples, strict=True), start=1):
            if "tags" not in row:
                raise ValueError(f"{path} has only one column; expected words and tags.")
            if row["tokens"] != _conll_words(example):
                raise ValueError(
                    f"{path} has other words in sentence {number} than the data: {' '.join(row['tokens'][:6])!r} in "
                    f"place of {' '.join(example.words[:6])!r}."
                )
        return [tuple(map(label_name, row["tags"])) for row in rows]

    def pipeline_call(self, example: TaggedSentence) -> PipelineCall:
        code = f"for entity in run({' '.join(example.words)!r}):\n    print(entity['entity_group'], entity['word'])"
        wanted = " ".join(f"{word}/{tag}" for word, tag in zip(example.words, example.tags or (), strict=False))
        title = f"Tagging (the data says: {wanted})"
        return PipelineCall(title, self.pipeline, code, {"aggregation_strategy": "first"})


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


def _entities(example: TaggedSentence, tags: Sequence[str], scores: Sequence[float]) -> list[dict[str, Any]]:
    """The entities of a sentence, see `TaggingTask.answers`."""
    text, spans = example.text, example.spans
    if text is None:
        text = " ".join(example.words)
        ends = np.cumsum([len(word) + 1 for word in example.words]) - 1
        spans = tuple((int(end) - len(word), int(end)) for word, end in zip(example.words, ends, strict=True))
    found = []
    for label, first, last in metrics.entity_spans(list(tags)):
        start, end = spans[first][0], spans[last - 1][1]
        score = rounded(float(np.mean(scores[first:last])))
        found.append({"label": label, "text": text[start:end], "start": start, "end": end, "score": score})
    return found


def _are_of_entities(tags: Iterable[str]) -> bool:
    try:
        metrics.entity_spans(list(tags))
    except ValueError:
        return False
    return True


@dataclass(frozen=True, kw_only=True)
class FeatureTask(TaggingTask):
    """Tagging by a BiLSTM on frozen features."""

    encoder: str  # folder or Hub name
    features: str
    # Names of all features to compute, of which `features` is one; their hidden states are stored in half precision.
    stored: tuple[str, ...]
    lstm_size: int = 768  # units in each direction
    device: str = "cpu"  # of the encoder

    auto_class: ClassVar[Any] = FeatureTagger

    @cached_property
    def _encoder_config(self) -> PreTrainedConfig:
        return Checkpoint(self.encoder).config

    @cached_property
    def _encoder(self) -> PreTrainedModel:
        """The encoder, kept for the data that this task reads."""
        return load_encoder(self.encoder, self.device)

    def _states(self, names: Sequence[str]) -> list[int]:
        num_layers = self._encoder_config.num_hidden_layers
        return sorted({number for name in names for number in FEATURES[name].states(num_layers)})

    def encode(
        self, examples: Examples, labels: Labels | None, tokenizer: PreTrainedTokenizerBase, source: Source
    ) -> TaskData[TaggedSentence]:
        """Run sentences through the encoder; `layout` has (sentence, word) of each hidden state."""
        check_max_length(self.max_length, self.encoder, self._encoder_config)
        data = super().encode(examples, labels, tokenizer, source)
        # A window within a very long word may have no first piece.
        is_word = {number: places[:, 0] >= 0 for number, places in enumerate(data.layout) if places.max() >= 0}
        names = [name for name in data.inputs if name != "labels"]
        sequences = [{name: data.inputs[name][number] for name in names} for number in is_word]
        found = hidden_states(self._encoder, tokenizer, sequences, self._states(self.stored))
        inputs: dict[str, Any] = {
            "features": [
                states[words].astype(np.float16) for states, words in zip(found, is_word.values(), strict=True)
            ]
        }
        if "labels" in data.inputs:
            inputs["labels"] = [np.array(data.inputs["labels"][number])[words] for number, words in is_word.items()]
        return replace(data, inputs=inputs, layout=[data.layout[number][words] for number, words in is_word.items()])

    def collator(self, tokenizer: PreTrainedTokenizerBase, model: PreTrainedModel | None = None) -> Any:
        """A collator for the hidden states of these features."""
        stored = self._states(self.stored)
        chosen = [stored.index(number) for number in self._states([self.features])]

        def collate(rows: list[dict[str, Any]]) -> dict[str, torch.Tensor]:
            states = [torch.from_numpy(row["features"][:, chosen]).float() for row in rows]
            ones = [torch.ones(len(row), dtype=torch.long) for row in states]
            batch = {
                "features": nn.utils.rnn.pad_sequence(states, batch_first=True),
                "attention_mask": nn.utils.rnn.pad_sequence(ones, batch_first=True),
            }
            if "labels" in rows[0]:
                labels = [torch.from_numpy(row["labels"]) for row in rows]
                batch["labels"] = nn.utils.rnn.pad_sequence(labels, batch_first=True, padding_value=IGNORE_INDEX)
            return batch

        return collate

    def load_model(
        self,
        name: str,
        labels: Labels | None,
        changes: NetworkChanges | None = None,
        config: PreTrainedConfig | None = None,
    ) -> tuple[PreTrainedModel, list[str]]:
        encoder = self._encoder_config
        own = FeatureTaggerConfig(
            encoder=self.encoder,
            features=self.features,
            num_states=len(self._states([self.features])),
            state_size=encoder.hidden_size,
            lstm_size=self.lstm_size,
            pad_token_id=encoder.pad_token_id,  # otherwise Trainer copies it from the tokenizer, with a warning
            **self.config_fields(labels),
        )
        tagger = FeatureTagger(own)
        return tagger, [name for name, _ in tagger.named_parameters()]

    def card_examples(
        self, examples: Examples, model_dir: str | Path, model: Any, tokenizer: PreTrainedTokenizerBase
    ) -> list[Example]:
        """Tag sentences for the card; it has no pipeline."""
        tagger = FeatureTagger.from_pretrained(model_dir) if model is None else model
        tags = self.tag([example.words for example in examples], tagger, Labels.from_config(tagger.config), tokenizer)
        return [
            run_example(
                f"Tagging (the data says: {' '.join(example.tags or ())})",
                f"words = {list(example.words)!r}\n(tags,) = tag_words({str(model_dir)!r}, [words])\nprint(*tags)",
                "from mybert.finetuning import tag_words\n\n",
                tag_words=lambda folder, sentences, found=found: [found],
            )
            for example, found in zip(examples, tags, strict=True)
        ]


def feature_task(task: Task, features: str, encoder: str, lstm_size: int, device: str) -> FeatureTask:
    """The task of the feature-based approach, with one of `FEATURES`, or the first row of table 7 and all stored."""
    if not isinstance(task, TaggingTask):
        raise ValueError("The approach 'features' is only for tagging words (ner, tagging).")
    names = TABLE_7 if features == "all" else (features,)
    if names[0] not in FEATURES:
        raise ValueError(f"features is {features!r}; expected one of all, {', '.join(FEATURES)}.")
    inherited = {item.name: getattr(task, item.name) for item in fields(task)}
    shared = inherited | {"encoder": encoder, "stored": names, "lstm_size": lstm_size, "device": device}
    return FeatureTask(**shared, features=names[0])
