"""Next sentence prediction: whether the second text of a pair follows the first."""

from dataclasses import dataclass
from typing import Any, ClassVar

from transformers import AutoModelForNextSentencePrediction

from ...cards import PipelineCall
from ...pipelines.pairs import LABELS
from ..data import Labels
from .classification import ClassificationTask, TextExample
from .task import Task


@dataclass(frozen=True, kw_only=True)
class NextSentenceTask(ClassificationTask):
    """Classification of pairs with the pretraining head; its classes are those of the pipeline."""

    text_pair_column: str | None = "text_pair"
    classes: tuple[str, ...] = LABELS

    options: ClassVar[tuple[str, ...]] = (*Task.options, "text_pair_column")
    auto_class: ClassVar[Any] = AutoModelForNextSentencePrediction
    pipeline: ClassVar[str] = "next-sentence-prediction"

    def named(self, labels: Labels) -> Labels:
        """The two classes, whatever the model's configuration says: checkpoints with this head do not name them."""
        return Labels(self.classes)

    def pipeline_call(self, example: TextExample) -> PipelineCall:
        first, second = example.texts
        return PipelineCall(
            f"Next sentence prediction (the data says: {example.label})",
            self.pipeline,
            f"print(run({first!r}, {second!r}))",
        )
