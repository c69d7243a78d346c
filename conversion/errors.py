"""Errors in archives, models and model folders: one class and one sentence for each.

Every class is a `ConversionError`, which is a `ValueError`; those of TensorFlow's files are in `tensorflow`. The
sentence names the file, what was found and what was expected.
"""

from typing import Any, ClassVar


class ConversionError(ValueError):
    """A checkpoint, archive or model folder cannot be converted.

    Args:
        **facts: The values for the placeholders of `sentence`.
    """

    sentence: ClassVar[str] = "{problem}"

    def __init__(self, **facts: Any) -> None:
        super().__init__(self.sentence.format(**facts))

    def located(self, path: object) -> "ConversionError":
        """Add the file's name to an error that was raised where the file is not known."""
        self.args = (f"{path}: {self}",)
        return self


# --- archives --------------------------------------------------------------------------------------------------------


class ArchiveError(ConversionError):
    """An archive is broken or malicious."""


class BrokenArchiveError(ArchiveError):
    sentence = "{path}: the archive cannot be read: {problem}"


class UnsafeMemberError(ArchiveError):
    """A member of the archive would be written outside the folder, or is not a regular file."""

    sentence = "{path}: member {name!r} is refused: {problem}"


class CompressionRatioError(ArchiveError):
    sentence = "{path}: expands to more than {limit} bytes; at most {ratio} times the compressed size is unpacked"


# --- from checkpoint to model ----------------------------------------------------------------------------------------


class SourceError(ConversionError):
    """The source has no checkpoint, or more than one."""

    sentence = "{path}: {problem}"


class ConfigurationError(ConversionError):
    """The configuration is missing, malformed or not that of a BERT."""

    sentence = "{path}: {problem}"


class VocabularyError(ConversionError):
    """The vocabulary does not fit the model."""

    sentence = "{path}: {problem}"


class UnknownVariableError(ConversionError):
    sentence = (
        "{path}: {count} variables are not known: {names}. Name them in `ignore` if the model does not need them."
    )


class MissingVariableError(ConversionError):
    sentence = "{path}: {count} variables of the model are missing: {names}"


class ShapeMismatchError(ConversionError):
    sentence = "{path}: variable {name!r} has shape {found}, but the configuration asks for {expected} ({fields})"


class VariableTypeError(ConversionError):
    sentence = "{path}: variable {name!r} is of type {dtype}; expected a floating point type"


class HeadError(ConversionError):
    """The requested head is unknown, or does not fit the checkpoint."""

    sentence = "head {found!r}: {problem}"


class ActivationError(ConversionError):
    sentence = (
        "{path}: hidden_act is {found!r}; Google's code computes {expected} only. "
        "Pass allow_other_activation=True to write the weights anyway."
    )


class OptimizerStateError(ConversionError):
    sentence = "{path}: optimizer state: {problem}"


class ModelFolderError(ConversionError):
    """A model folder is incomplete, contradicts itself, or is not of a kind that can be converted."""


class VerificationError(ConversionError):
    sentence = "{path}: the conversion is wrong: {problem}"
