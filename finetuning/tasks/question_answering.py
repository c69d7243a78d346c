"""Extractive question answering: SQuAD 1.1 and 2.0 (paper, sections 4.2 and 4.3) and other data in their format."""

from __future__ import annotations

import logging
import math
import re
from bisect import bisect
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import pairwise
from pathlib import Path
from statistics import fmean
from typing import Any, ClassVar, Literal

from transformers import AutoModelForQuestionAnswering, PreTrainedModel, PreTrainedTokenizerBase
from typing_extensions import Self

from ...cards import PipelineCall
from ...files.checkpoint import read_json_object
from ...files.errors import Wording, message_of, worded
from ...files.output import write_json
from ...files.progress import progress_bar
from ...files.source import Source
from ...metrics import squad_metrics, squad_v2_metrics
from ...pipelines import Answer, QuestionError, answer_positions, best_answers, make_windows
from ..data import (
    TRUTH,
    DataRow,
    Labels,
    TaskData,
    TaskExample,
    in_one_line,
    is_written_list,
    label_name,
    one_line_text,
    quoted,
    rounded,
    whole_number,
)
from .calibration import Calibrator
from .losses import ItemLoss, SpanLoss, SpanTeaching, Teaching
from .task import Columns, Measures, PredictionFile, Task, means_of_examples

logger = logging.getLogger(__name__)

_CHUNK = 1000  # number of questions tokenized at a time
_SETTINGS = {"max_seq_len": "max_length", "max_question_len": "max_question_length"}  # by arguments of `make_windows`


@dataclass(frozen=True)
class QuestionExample(TaskExample):
    id: str
    question: str
    context: str
    # (index of the first character, text) of each accepted answer, empty if the question has no answer; the index is
    # -1 if the text is not in the context. None if the answers are unknown.
    answers: tuple[tuple[int, str], ...] | None
    moved: bool = False  # whether an answer was not at its given position, but found elsewhere
    classes: ClassVar[tuple[str, ...]] = ()

    @property
    def texts(self) -> tuple[str, ...]:
        return (self.question, self.context)

    @property
    def accepted(self) -> list[str]:
        """The texts of the accepted answers."""
        return [text for _, text in self.answers or ()]

    @property
    def is_lost(self) -> bool:
        """Whether it has answers, none of which is in its text."""
        return bool(self.answers) and all(start < 0 for start, _ in self.answers or ())


@dataclass(frozen=True)
class AnswerPrediction:
    # The best span of the context, regardless of "no answer"; None if a prediction file lacks the question.
    text: str | None
    # Score of "no answer" minus that of the best span; None if every question has an answer, or if unknown.
    null_odds: float | None = None
    best: tuple[Answer, ...] = ()  # spans, and "no answer" if it is possible, from best to worst
    # Whether `text` is the final answer, as in a prediction file: empty for "no answer".
    is_final: bool = False


Examples = Sequence[QuestionExample]
Predictions = Sequence[AnswerPrediction]


@dataclass(frozen=True)
class NullThreshold(Calibrator):
    """The score of "no answer", minus that of the best span, above which it is predicted."""

    null_score_threshold: float | None = None
    unanswerable: bool = False

    def fit(self, predictions: Predictions, examples: Examples) -> Self:
        """With a threshold of the best F1, unless there is one: in the middle between the odds of two questions."""
        if self.null_score_threshold is not None or not self.unanswerable:
            return self
        odds = sorted({prediction.null_odds for prediction in predictions if prediction.null_odds is not None})
        middles = [odds[0] - 1, *map(fmean, pairwise(odds)), odds[-1] + 1]
        # The official script's is the odds of a question, which another machine rounds differently; or, if it is best
        # to answer nothing, 0, whatever the odds.
        best = bisect(odds, self.scores(predictions, examples)["best_f1_thresh"])
        fits = [replace(self, null_score_threshold=middles[place]) for place in (best, 0)]
        return max(fits, key=lambda fit: fit.scores(predictions, examples)["f1"])

    def text(self, prediction: AnswerPrediction) -> str:
        """The answer; empty for none."""
        is_null = prediction.null_odds is not None and prediction.null_odds > self._threshold(prediction)
        return "" if is_null else prediction.text or ""

    def scores(self, predictions: Predictions, examples: Examples) -> dict[str, float]:
        """Exact match and F1 in percent, as in the official scripts; for 2.0 with the best thresholds."""
        pairs = list(zip(examples, predictions, strict=True))
        texts = {example.id: prediction.text for example, prediction in pairs if prediction.text is not None}
        answers = {example.id: example.accepted for example in examples}
        if not self.unanswerable:
            return squad_metrics(texts, answers)
        odds = {example.id: prediction.null_odds for example, prediction in pairs if prediction.null_odds is not None}
        return squad_v2_metrics(texts, answers, odds or None, self._threshold(predictions[0]))

    def scores_of_one(self, predictions: Predictions, examples: Examples) -> dict[str, float]:
        """The scores of one example that are means over the examples; 0 without a prediction."""
        if predictions[0].text is None:
            return {"exact_match": 0.0, "f1": 0.0}
        scores = self.scores(predictions, examples)
        return {name: value for name, value in scores.items() if "best_" not in name and not name.endswith("total")}

    def _threshold(self, prediction: AnswerPrediction) -> float:
        """The odds of no answer above which it is predicted, which final answers exceed only if the user set one."""
        if self.null_score_threshold is not None:
            return self.null_score_threshold
        return math.inf if prediction.is_final else 0.0


class AnswerFiles(PredictionFile):
    """SQuAD's files: `predictions.json`, `nbest_predictions.json` and, if there may be no answer, `null_odds.json`."""

    def write(self, task: Any, predictions: Predictions, examples: Examples, folder: Path, suffix: str = "") -> None:
        pairs = list(zip(examples, predictions, strict=True))
        answers = {example.id: task.columns_of(item, example).text for example, item in pairs}
        write_json(folder / f"predictions{suffix}.json", answers)
        fields = ("text", "probability", "start_logit", "end_logit")
        nbest = {
            example.id: [{name: getattr(answer, name) for name in fields} for answer in item.best]
            for example, item in pairs
        }
        write_json(folder / f"nbest_predictions{suffix}.json", nbest)
        if task.unanswerable:
            write_json(folder / f"null_odds{suffix}.json", {example.id: item.null_odds for example, item in pairs})

    def read(self, task: Any, path: Path, examples: Examples, rows: Sequence[DataRow]) -> list[AnswerPrediction]:
        """Read SQuAD's `{id: text}`, final answers, with its `null_odds.json` if that is in the same folder."""
        texts = _read_object(path, (str,), "a text")
        odds_file = path.with_name(path.name.replace("predictions", "null_odds"))
        has_odds = task.unanswerable and odds_file != path and odds_file.is_file()
        odds = _read_object(odds_file, (int, float), "a number") if has_odds else {}
        # As in the official scripts, a missing question counts as wrong in SQuAD 1.1 and is an error in 2.0.
        for file, found in {path: texts, **({odds_file: odds} if has_odds else {})}.items():
            missing = [example.id for example in examples if example.id not in found]
            if missing and task.unanswerable:
                raise ValueError(
                    f"{file} lacks {len(missing)} of {len(examples)} questions, such as {missing[0]!r}; expected an "
                    "entry for each."
                )
        answers = ({"text": texts.get(example.id), "null_odds": odds.get(example.id)} for example in examples)
        return task.predictions_of([DataRow(row, str(path), number) for number, row in enumerate(answers)], examples)


@dataclass(frozen=True, kw_only=True)
class Passages(Task[QuestionExample, AnswerPrediction]):
    """Finding the answer to a question in a passage; a long one is read in overlapping windows."""

    text_column: str = "question"
    text_pair_column: str = "context"
    # `{"text": [...], "answer_start": [...]}`, a list of `{"text", "answer_start"}`, or the text of the only answer.
    label_column: str = "answers"
    id_column: str = "id"  # without it rows are numbered
    max_length: int = 384
    unanswerable: bool = False  # whether a question may have no answer
    max_question_length: int = 64  # in tokens; longer ones are truncated
    max_answer_length: int = 30  # in tokens
    n_best_size: int = 20  # answers written to `nbest_predictions.json`
    # Whether an answer counts only in the window with the most context around its start, and each text only once, as
    # in Google's code.
    max_context: bool = False
    # "No answer" is predicted if its score exceeds that of the best span by more than this; None for 0, or for the
    # best value on the validation data.
    null_score_threshold: float | None = None

    options: ClassVar[tuple[str, ...]] = (
        *Task.options,
        *("text_pair_column", "doc_stride", "max_question_length", "max_answer_length", "n_best_size"),
        *("max_context", "null_score_threshold"),
    )
    needed_texts: ClassVar[Literal["first", "any", "all"]] = "all"
    fitted_fields: ClassVar[Mapping[str, Any]] = {"null_score_threshold": fmean}
    auto_class: ClassVar[Any] = AutoModelForQuestionAnswering
    pipeline: ClassVar[str] = "question-answering"
    loss: ClassVar[ItemLoss] = SpanLoss()
    teaching: ClassVar[Teaching | None] = SpanTeaching(compares_tokens=True)
    calibrator: ClassVar[type[Calibrator]] = NullThreshold
    prediction_file: ClassVar[PredictionFile] = AnswerFiles()
    full_score: ClassVar[float] = 100.0  # as in the official scripts
    has_probabilities: ClassVar[bool] = False
    most_listed: ClassVar[int | str | None] = "n_best_size"

    def has_label(self, row: DataRow, may_be_blank: bool = True) -> bool:
        """Whether a row has answers; an empty list is one if questions may have no answer."""
        answers = row.get(self.label_column)
        texts = answers.get("text") if isinstance(answers, Mapping) else answers
        return answers is not None and (self.unanswerable or bool(texts))

    def examples(self, rows: Sequence[DataRow], labeled: bool, new: bool = False) -> list[QuestionExample]:
        """The examples of rows; logs how many answers were not at their given position."""
        examples = [self._example(row, labeled) for row in rows]
        if new:
            return examples
        first: dict[str, int] = {}
        for example in examples:
            if example.id in first:
                raise ValueError(
                    f"{rows[0].source}: the questions in rows {first[example.id]} and {example.row} have the id "
                    f"{quoted(example.id)}; expected an id for each question."
                )
            first[example.id] = example.row
        moved = sum(example.moved for example in examples)
        lost = [example for example in examples if example.is_lost]
        if moved or lost:
            logger.warning(
                "%s: %d of %d questions have an answer that is not at its answer_start; %d were found elsewhere in "
                "the text, %d are not in it at all%s.",
                *(rows[0].source, moved + len(lost), len(examples), moved, len(lost)),
                f" and are left out of training (such as {lost[0].id!r})" if lost else "",
            )
        return examples

    def _example(self, row: DataRow, labeled: bool) -> QuestionExample:
        question, context = row.text(self.text_column), row.text(self.text_pair_column)
        given = row.value(self.id_column) if row.has(self.id_column) else row.number
        # A text stays as other tools have it: "1.0" is not "1".
        name = in_one_line(given.strip()) if isinstance(given, str) else one_line_text(given)
        if not labeled:
            return QuestionExample(name, question, context, None, row=row.number)
        given = self._given_answers(row)
        if not given and not self.unanswerable:
            raise row.invalid("a question without an answer; expected an answer, or a task such as squad_v2")
        answers = tuple(_find(context, text, start) for start, text in given)
        if any(place < 0 and is_written_list(text, "label") for place, text in answers):
            row.refuse_written_list(self.label_column, "labels")
        # Blanks around an answer may or may not count for its position.
        moved = any(
            start >= 0 and place >= 0 and place - start not in (0, len(text) - len(text.lstrip()))
            for (place, _), (start, text) in zip(answers, given, strict=True)
        )
        return QuestionExample(name, question, context, answers, moved, row=row.number)

    def _given_answers(self, row: DataRow) -> list[tuple[int, str]]:
        """(index of the first character or -1, text) of the answers in a row."""
        impossible = label_name(row.get("is_impossible")) if row.has("is_impossible") else "0"
        if impossible not in TRUTH:
            raise row.invalid(f"{quoted(impossible)} as is_impossible; expected true or false")
        if TRUTH[impossible]:
            return []
        answers = row.value(self.label_column)

        def invalid(expected: str) -> ValueError:
            return row.invalid(f"{str(answers)[:60]!r} as {self.label_column}; {expected}")

        found = answers or []
        if isinstance(answers, str):
            found = [{"text": answers, "answer_start": row.get("answer_start")}] if answers.strip() else []
        elif isinstance(answers, Mapping):
            found = [answers]
            if isinstance(texts := answers.get("text"), (list, tuple)):
                starts = [None] * len(texts) if answers.get("answer_start") is None else answers["answer_start"]
                if not isinstance(starts, (list, tuple)) or len(starts) != len(texts):
                    raise invalid("expected an answer_start for each text")
                found = [{"text": text, "answer_start": start} for text, start in zip(texts, starts, strict=True)]
        if not isinstance(found, (list, tuple)):
            raise invalid("expected texts, or objects with text and answer_start")
        result = []
        for answer in found:
            text, start = answer, None
            if isinstance(answer, Mapping):
                text, start = answer.get("text"), answer.get("answer_start")
            if not isinstance(text, str) or not text.strip():
                raise invalid("expected texts that are not empty")
            # Only NaN differs from itself.
            position = -1 if start in (None, "") or start != start else whole_number(start)
            if position is None:
                raise invalid(f"answer_start is {str(start)[:40]!r}; expected a whole number")
            result.append((position, text))
        return result

    def group_of(self, example: QuestionExample) -> str:
        """The context: its questions stay together when data is split."""
        return example.context

    def trained_on(self, examples: Examples, source: Source) -> tuple[Self, Examples]:
        """The examples whose answer is in the context, and those without an answer."""
        kept = [example for example in examples if not example.is_lost]
        if not kept:
            raise ValueError(f"{source} has no question with an answer that occurs in its text.")
        return self, kept

    def collator(self, tokenizer: PreTrainedTokenizerBase, model: PreTrainedModel | None = None) -> Any:
        """A collator that lets MyBERT remove padding, where no answer can be."""
        pad = super().collator(tokenizer)
        if model is None or model.config.model_type != "mybert":
            return pad
        return lambda rows: {**pad(rows), "unpad_inputs": True}

    def config_fields(self, labels: Labels | None) -> dict[str, Any]:
        """Two outputs, start and end."""
        return {"num_labels": 2}

    def encode(
        self, examples: Examples, labels: Labels | None, tokenizer: PreTrainedTokenizerBase, source: Source
    ) -> TaskData[QuestionExample]:
        """Split texts into windows; `layout` has the windows of each example."""
        layout = []
        for start in progress_bar(
            range(0, len(examples), _CHUNK), desc=f"Windows of {source}", unit_scale=_CHUNK, delay=2
        ):
            chunk = examples[start : start + _CHUNK]
            texts = ([example.question for example in chunk], [example.context for example in chunk])
            try:
                layout += make_windows(tokenizer, *texts, self.max_length, self.doc_stride, self.max_question_length)
            except QuestionError as error:
                message = message_of(error)
                assert isinstance(message, Wording)
                where = source, chunk[error.number].row
                raise ValueError(worded("{}, row {}: {}.", *where, message.renamed(_SETTINGS))) from None
        windows = [window for question in layout for window in question.windows]
        inputs: dict[str, Any] = {name: [window.inputs[name] for window in windows] for name in windows[0].inputs}
        if examples[0].answers is not None:
            # The first answer that is in the text, or, without an answer, the null token in every window.
            positions = [
                position
                for example, question in zip(examples, layout, strict=True)
                for position in answer_positions(question, *_first_span(example))
            ]
            inputs["start_positions"], inputs["end_positions"] = map(list, zip(*positions, strict=True))
        return TaskData(
            examples, inputs, source, layout, windowed=sum(len(question.windows) > 1 for question in layout)
        )

    def predict(self, outputs: Any, data: TaskData[QuestionExample], labels: Labels | None) -> list[AnswerPrediction]:
        """The best spans of every text over all its windows."""
        start_logits, end_logits = outputs
        remaining = zip(start_logits, end_logits, strict=True)
        predictions = []
        for question in progress_bar(data.layout, desc="Answers", delay=2):
            lengths = [len(window.inputs["input_ids"]) for window in question.windows]
            rows = [(start[:length], end[:length]) for length, (start, end) in zip(lengths, remaining, strict=False)]
            starts, ends = zip(*rows, strict=True)
            answers, null = best_answers(
                question,
                starts,
                ends,
                self.n_best_size,
                self.max_answer_length,
                align_to_words=False,
                max_context=self.max_context,
            )
            best = answers[0] if answers else null
            if self.unanswerable:
                answers = sorted([*answers, null], key=lambda answer: -answer.score)
            odds = null.score - best.score if self.unanswerable else None
            predictions.append(AnswerPrediction(best.text, odds, tuple(answers)))
        return predictions

    def columns_of(self, prediction: AnswerPrediction, example: QuestionExample, top_k: int = 1) -> Columns:
        """The answer, "" for none; for users with its probability and its character range, end exclusive."""
        text = _threshold(self).text(prediction)
        if not prediction.best:
            return Columns(text)
        # The threshold decides whether "no answer" comes first; the others keep their order.
        first = next((item for item in prediction.best if bool(item.text) == bool(text)), prediction.best[0])
        ordered = [first, *(item for item in prediction.best if item is not first)][:top_k]
        best = [
            {"answer": item.text, "score": rounded(item.probability), "start": item.start, "end": item.end}
            for item in ordered
        ]
        return Columns(text, dict(best[0]), best)

    def predictions_of(self, rows: Sequence[DataRow], examples: Examples) -> list[AnswerPrediction]:
        # An empty text means "no answer", whatever the odds, unless `null_score_threshold` is set.
        return [AnswerPrediction(row.get("text"), row.get("null_odds"), is_final=True) for row in rows]

    def gold_prediction(self, example: QuestionExample) -> AnswerPrediction:
        return AnswerPrediction("".join(example.accepted[:1]), 0.0 if self.unanswerable else None)

    def measures(self, predictions: Predictions, examples: Examples) -> Measures:
        """Exact match and F1 in percent, as in the official scripts; for 2.0 with the best thresholds."""
        sides = predictions, examples
        means = partial(means_of_examples, _threshold(self).scores_of_one, *sides)
        return Measures(partial(_threshold(self).scores, *sides), means)

    def errors(
        self, prediction: AnswerPrediction, example: QuestionExample
    ) -> Iterator[tuple[tuple[float, float], dict[str, Any]]]:
        """An answer whose F1 is below 100; the lower, the worse, and then the more probable."""
        text, gold = _threshold(self).text(prediction), example.accepted
        score = squad_v2_metrics({"": text}, {"": gold})["f1"]
        if score < self.full_score:
            probability = next((answer.probability for answer in prediction.best if answer.text == text), 0.0)
            found = {"gold": gold[0] if gold else "", "predicted": text, "f1": rounded(score)}
            yield (-score, probability), {"id": example.id, "question": example.question, **found}

    def pipeline_call(self, example: QuestionExample) -> PipelineCall:
        settings = f"max_seq_len={self.max_length}, max_question_len={self.max_question_length}"
        if self.unanswerable:
            settings += ", handle_impossible_answer=True"
        code = f"context = {example.context!r}\nprint(run(question={example.question!r}, context=context, {settings}))"
        title = f"Question answering (the data says: {example.accepted[0] if example.accepted else 'no answer'})"
        return PipelineCall(title, self.pipeline, code)


def _threshold(task: Passages) -> NullThreshold:
    return NullThreshold(task.null_score_threshold, task.unanswerable)


def _find(context: str, text: str, start: int) -> tuple[int, str]:
    """The position and text of an answer in the context, at `start` or nearest to it; -1 if the context lacks it."""
    # As in Google's code, blanks around an answer are no part of it, and any white space between its words is equal.
    start += (len(text) - len(text.lstrip())) * (start >= 0)
    if start >= 0 and context.startswith(text.strip(), start):
        return start, text.strip()
    matches = re.finditer(r"\s+".join(map(re.escape, text.split())), context)
    nearest = min(matches, key=lambda match: abs(match.start() - start), default=None)
    return (-1, text) if nearest is None else (nearest.start(), nearest.group())


def _first_span(example: QuestionExample) -> tuple[int, int]:
    """Character range of the answer to train on, end exclusive; (0, 0) if there is none."""
    return next(((start, start + len(text)) for start, text in example.answers or () if start >= 0), (0, 0))


def _read_object(path: Path, kinds: tuple[type, ...], expected: str) -> dict[str, Any]:
    """Read a JSON object whose values are all of certain types."""
    content = read_json_object(path)
    for name, value in content.items():
        if type(value) not in kinds:
            raise ValueError(f"{path} holds {value!r:.60} for {name!r:.60}; expected {expected}.")
    return content
