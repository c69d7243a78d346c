"""The settings of `mybert adapt`."""

from dataclasses import dataclass, field
from typing import ClassVar

from ..files.choices import choice
from ..files.errors import SettingError
from ..files.options import Group, option
from ..tokenization.settings import VocabularyBasics
from .pretrain_settings import FromModel, GivenTokenizer, NewModel, PretrainingOptimization, PretrainSettings
from .settings import ExampleSettings, NewPiecesSettings, Objective


@dataclass(frozen=True, kw_only=True)
class AdaptOptimization(PretrainingOptimization):
    """The optimizer and schedule for a model that is trained already."""

    group, decides = Group.TRAINING, True
    optim: str = option("adamw")
    warmup_steps: float = option(0.06)


@dataclass(frozen=True, kw_only=True)
class AdaptExamples(ExampleSettings):
    """Examples with masked tokens only."""

    group = Group.SEQUENCES
    decides = True
    objective: Objective = option("mlm")


@dataclass(frozen=True, kw_only=True)
class OtherTokenizer(GivenTokenizer):
    """Another tokenizer than the model's own."""

    group, decides = Group.INPUT, True
    tokenizer: str | None = option(
        None, "Folder or vocab.txt of another tokenizer, with --new_pieces 0 (default: the model's own)."
    )


@dataclass(frozen=True, kw_only=True)
class AdaptedModel(FromModel):
    """The model to adapt."""

    group, decides = Group.INPUT, True
    model: str | None = option(None, "Model to adapt, folder or Hub name.", required=True, positional=1)


@dataclass(frozen=True, kw_only=True)
class AdaptSettings(PretrainSettings):
    """What a user says of an adaptation: new pieces, and all of `PretrainSettings`, for an already trained model."""

    command: ClassVar[str] = "adapt"
    optimization: AdaptOptimization = field(default_factory=AdaptOptimization)
    examples: AdaptExamples = field(default_factory=AdaptExamples)
    vocabulary: VocabularyBasics | OtherTokenizer = choice(VocabularyBasics)
    start: NewModel | AdaptedModel = choice(NewModel)
    domain_pieces: NewPiecesSettings = field(default_factory=NewPiecesSettings)

    @property
    def new_pieces_settings(self) -> NewPiecesSettings | None:
        """How the vocabulary of the initial model is extended; None to keep it."""
        return self.domain_pieces if self.new_pieces else None

    def check(self) -> None:
        """Reject values that do not go together."""
        super().check()
        if self.new_pieces and (self.token_store or self.tokenizer):
            name = "token_store" if self.token_store else "tokenizer"
            raise SettingError.worded(
                f"{{{name}}} is set and {{new_pieces}} is {{}}; new pieces are learned from text, for the model's own "
                "tokenizer.",
                self.new_pieces,
            )
