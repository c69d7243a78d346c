"""Everything that can be wrong with an archive, a model or a model folder: one class and one sentence each.

Every class is a `ConversionError`, which is a `ValueError`; those of TensorFlow's files are in `tensorflow`. The
sentence names the file, what was found and what was expected.
"""

from typing import Any, ClassVar


class ConversionError(ValueError):
    """Something about a checkpoint, an archive or a model folder keeps it from being converted.

    Args:
        **facts: The values that `sentence` names.
    """

    sentence: ClassVar[str] = "{problem}"

    def __init__(self, **facts: Any) -> None:
        super().__init__(self.sentence.format(**facts))

    def located(self, path: object) -> "ConversionError":
        """Put the file's name before the sentence of an error that was raised where no file is known."""
        self.args = (f"{path}: {self}",)
        return self


# --- archives --------------------------------------------------------------------------------------------------------


class ArchiveError(ConversionError):
    """An archive is broken or tries to do harm."""


class BrokenArchiveError(ArchiveError):
    """The archive cannot be read."""

    sentence = "{path}: the archive cannot be read: {problem}"


class UnsafeMemberError(ArchiveError):
    """A member of the archive would be written outside the folder, or is no plain file."""

    sentence = "{path}: member {name!r} is refused: {problem}"


class CompressionRatioError(ArchiveError):
    """The archive expands to absurdly many bytes."""

    sentence = "{path}: expands to more than {limit} bytes; at most {ratio} times the compressed size is unpacked"


# --- from checkpoint to model ----------------------------------------------------------------------------------------


class SourceError(ConversionError):
    """What was given as source holds no checkpoint, or more than one."""

    sentence = "{path}: {problem}"


class ConfigurationError(ConversionError):
    """The configuration is missing, malformed or not one of BERT."""

    sentence = "{path}: {problem}"


class VocabularyError(ConversionError):
    """The vocabulary does not fit the model."""

    sentence = "{path}: {problem}"


class UnknownVariableError(ConversionError):
    """The checkpoint holds variables that nothing accounts for."""

    sentence = (
        "{path}: {count} variables are not known: {names}. Name them in `ignore` if the model does not need them."
    )


class MissingVariableError(ConversionError):
    """The checkpoint lacks variables that the model needs."""

    sentence = "{path}: {count} variables of the model are missing: {names}"


class ShapeMismatchError(ConversionError):
    """A variable's shape contradicts the configuration."""

    sentence = "{path}: variable {name!r} has shape {found}, but the configuration asks for {expected} ({fields})"


class VariableTypeError(ConversionError):
    """A weight is stored in a type that is no floating point number."""

    sentence = "{path}: variable {name!r} is of type {dtype}; expected a floating point type"


class HeadError(ConversionError):
    """The head that was asked for is unknown, or does not fit."""

    sentence = "head {found!r}: {problem}"


class ActivationError(ConversionError):
    """Google's code does not compute this activation."""

    sentence = (
        "{path}: hidden_act is {found!r}; Google's code computes {expected} only. "
        "Pass allow_other_activation=True to write the weights anyway."
    )


class OptimizerStateError(ConversionError):
    """The checkpoint's optimizer state cannot be converted."""

    sentence = "{path}: optimizer state: {problem}"


class ModelFolderError(ConversionError):
    """A model folder is incomplete, contradicts itself, or is not of a kind that can be converted."""


class VerificationError(ConversionError):
    """The converted model differs from its source."""

    sentence = "{path}: the conversion is wrong: {problem}"
