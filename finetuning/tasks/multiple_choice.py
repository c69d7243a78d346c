"""Multiple choice: the ending that continues a text (SWAG; paper, section 4.4), or the answer to a question."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, ClassVar

import numpy as np
import torch
from transformers import AutoModelForMultipleChoice, PreTrainedModel, PreTrainedTokenizerBase

from ...cards import PipelineCall
from ...files.source import Source
from ...metrics import accuracy
from ...tokenization import encode_and_truncate
from ..data import DataRow, Labels, TaskData, TaskExample, label_name, quoted, rounded, whole_number
from .losses import ClassLoss, ItemLoss, Teaching
from .task import Columns, Measures, PredictionFile, Task, means_of_examples


@dataclass(frozen=True)
class ChoiceExample(TaskExample):
    """A text, its choices, and the index of the right one (from 0), or None if unknown."""

    text: str
    choices: tuple[str, ...]
    label: int | None

    @property
    def texts(self) -> tuple[str, ...]:
        return (self.text, *self.choices)

    @property
    def classes(self) -> tuple[str, ...]:
        """The index of the right choice, from 0, as text."""
        return () if self.label is None else (str(self.label),)


@dataclass(frozen=True)
class ChoicePrediction:
    """The index of the predicted choice, from 0, and the probability of each."""

    choice: int
    probabilities: tuple[float, ...] = ()


Examples = Sequence[ChoiceExample]
Predictions = Sequence[ChoicePrediction]


@dataclass(frozen=True, kw_only=True)
class Choices(Task[ChoiceExample, ChoicePrediction]):
    """Choosing between texts; each is read after the same first text, as a pair."""

    # A single column contains lists of choices.
    choice_columns: tuple[str, ...] = ("choices",)

    options: ClassVar[tuple[str, ...]] = (*Task.options, "text_pair_column", "choice_columns")
    auto_class: ClassVar[Any] = AutoModelForMultipleChoice
    pipeline: ClassVar[str] = "multiple-choice"
    loss: ClassVar[ItemLoss] = ClassLoss()
    teaching: ClassVar[Teaching | None] = Teaching(has_hidden_states=False)  # choices are sequences of their own
    prediction_file: ClassVar[PredictionFile] = PredictionFile(".csv", "probability{}")
    has_one_class: ClassVar[bool] = True

    def examples(self, rows: Sequence[DataRow], labeled: bool, new: bool = False) -> list[ChoiceExample]:
        """The examples of rows; all have the same number of choices."""
        examples = [self._example(row, labeled) for row in rows]
        for row, example in zip(rows, examples, strict=True):
            if len(example.choices) != len(examples[0].choices):
                raise row.invalid(
                    f"{len(example.choices)} choices; expected {len(examples[0].choices)} as in row {rows[0].number}"
                )
        return examples

    def _example(self, row: DataRow, labeled: bool) -> ChoiceExample:
        if len(self.choice_columns) == 1:
            choices = row.value(self.choice_columns[0])
            is_list = isinstance(choices, (list, tuple))
            # Only NaN differs from itself.
            if not is_list or not all(isinstance(each, (str, int, float)) and each == each for each in choices):
                raise row.invalid(f"{str(choices)[:40]!r} as {self.choice_columns[0]}; expected a list of texts")
            choices = [str(choice) for choice in choices]
        else:
            choices = [row.text(name, may_be_empty=True) for name in self.choice_columns]
        if len(choices) < 2:
            raise row.invalid(f"{len(choices)} choices; expected at least two")
        beginning = str(row.value(self.text_pair_column) or "") if self.text_pair_column else ""
        choices = [f"{beginning} {choice}".strip() for choice in choices]
        label = _choice(row, self.label_column, len(choices)) if labeled else None
        return ChoiceExample(row.text(self.text_column), tuple(choices), label, row=row.number)

    def encode(
        self, examples: Examples, labels: Labels | None, tokenizer: PreTrainedTokenizerBase, source: Source
    ) -> TaskData[ChoiceExample]:
        """Tokenize each choice after its text; the longer of the two is truncated first, as in Google's code."""
        pairs = [(example.text, choice) for example in examples for choice in example.choices]
        encoded = encode_and_truncate(tokenizer, pairs, self.max_length)
        count = len(examples[0].choices)
        inputs: dict[str, list[Any]] = {
            name: [values[start : start + count] for start in range(0, len(pairs), count)]
            for name, values in encoded.inputs.items()
        }
        if examples[0].label is not None:
            inputs["labels"] = [example.label for example in examples]
        return TaskData(examples, inputs, source, cut=len({place // count for place in encoded.too_long}))

    def collator(self, tokenizer: PreTrainedTokenizerBase, model: PreTrainedModel | None = None) -> Any:
        """A collator for batches of shape (questions, choices, tokens)."""
        pad = super().collator(tokenizer, model)

        def collate(rows: list[dict[str, Any]]) -> dict[str, torch.Tensor]:
            count = len(rows[0]["input_ids"])
            names = [name for name in rows[0] if name != "labels"]
            flat = [{name: row[name][choice] for name in names} for row in rows for choice in range(count)]
            padded = pad(flat)
            batch = {name: values.view(len(rows), count, -1) for name, values in padded.items()}
            if "labels" in rows[0]:
                batch["labels"] = torch.tensor([row["labels"] for row in rows])
            return batch

        return collate

    def predict(self, outputs: Any, data: TaskData[ChoiceExample], labels: Labels | None) -> list[ChoicePrediction]:
        probabilities = torch.from_numpy(np.asarray(outputs, dtype=np.float64)).softmax(-1)
        return [ChoicePrediction(int(row.argmax()), tuple(row.tolist())) for row in probabilities]

    def columns_of(self, prediction: ChoicePrediction, example: ChoiceExample, top_k: int = 1) -> Columns:
        """Index (from 0); in the answer with text and probability of the predicted choice."""
        scores = prediction.probabilities
        ranked = [
            {"label": place, "answer": example.choices[place], "score": rounded(scores[place])}
            for place in sorted(range(len(scores)), key=lambda place: -scores[place])
        ]
        table = {str(place): value for place, value in enumerate(scores)}
        return Columns(str(prediction.choice), dict(ranked[0]) if ranked else {}, ranked[:top_k], probabilities=table)

    def predictions_of(self, rows: Sequence[DataRow], examples: Examples) -> list[ChoicePrediction]:
        return [
            ChoicePrediction(_choice(row, "prediction", len(example.choices)))
            for row, example in zip(rows, examples, strict=True)
        ]

    def gold_prediction(self, example: ChoiceExample) -> ChoicePrediction:
        assert example.label is not None
        return ChoicePrediction(example.label)

    def measures(self, predictions: Predictions, examples: Examples) -> Measures:
        """Accuracy."""
        sides = predictions, examples
        return Measures(partial(_scores, *sides), partial(means_of_examples, _scores, *sides))

    def errors(self, prediction: ChoicePrediction, example: ChoiceExample) -> Iterator[tuple[float, dict[str, Any]]]:
        """The wrong choice, with its probability."""
        if prediction.choice != example.label and example.label is not None:
            sure = rounded(prediction.probabilities[prediction.choice]) if prediction.probabilities else 0.0
            sides = {"true": example.choices[example.label], "predicted": example.choices[prediction.choice]}
            yield sure, {"text": example.text, **sides, "probability": sure if prediction.probabilities else ""}

    def pipeline_call(self, example: ChoiceExample) -> PipelineCall:
        code = f"answer = run(prompt={example.text!r}, choices={list(example.choices)!r})\nprint(answer)"
        return PipelineCall(f"Multiple choice (the data says: {example.label})", self.pipeline, code)


def _scores(predictions: Predictions, examples: Examples) -> dict[str, float]:
    true: list[Any] = [example.label for example in examples]
    return {"accuracy": accuracy([prediction.choice for prediction in predictions], true)}


def _choice(row: DataRow, column: str, count: int) -> int:
    """The index of one of so many choices in a column."""
    name = label_name(row.value(column))
    index = whole_number(name)
    if index is None or index not in range(count):
        raise row.invalid(f"{quoted(name)} as {column}; expected a number from 0 to {count - 1}")
    return index
