"""Everything that can be wrong with a checkpoint: one class and one sentence per way of being broken.

Every class is a `ConversionError`, which is a `ValueError`; a missing file is a `FileNotFoundError` as well. The
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


# --- TensorFlow checkpoint files -------------------------------------------------------------------------------------


class TensorBundleError(ConversionError):
    """A TensorFlow checkpoint file is broken, or asks for what is not supported."""


class MissingFileError(TensorBundleError, FileNotFoundError):
    """A file of the checkpoint does not exist."""

    sentence = "{path}: no such file; {expected}"


class OldFormatError(TensorBundleError):
    """The checkpoint is in the V1 format, one file without `.index`."""

    sentence = (
        "{path}: this is a TensorFlow V1 checkpoint (one file, no .index); only the V2 format is read. "
        "Write it again with tf.compat.v1.train.Saver(write_version=2)."
    )


class TruncatedFileError(TensorBundleError):
    """A file is shorter than it has to be."""

    sentence = "{path}: the file has {found} bytes, but {what} needs {expected}"


class WrongMagicError(TensorBundleError):
    """The index file does not end in the magic number of a table."""

    sentence = "{path}: the file ends in {found}, not in the magic number {expected} of a TensorFlow index file"


class FooterPaddingError(TensorBundleError):
    """The padding of the footer holds something."""

    sentence = "{path}: the padding of the footer is not zero"


class BlockLayoutError(TensorBundleError):
    """The blocks of the index file overlap, leave a gap or point outside the file."""

    sentence = "{path}: a block starts at byte {found}, expected byte {expected}; the blocks must fill the file"


class ChecksumError(TensorBundleError):
    """Stored and computed CRC32C differ: the file was damaged."""

    sentence = "{path}: {what} has checksum {found:#010x}, but {expected:#010x} is stored; the file is damaged"


class CompressionTypeError(TensorBundleError):
    """A block is compressed in an unknown way."""

    sentence = "{path}: a block has compression type {found}; expected 0 (none) or 1 (snappy)"


class EncodingError(TensorBundleError):
    """Bytes that are not what they claim to be; raised where the file's name is not known, and located later."""


class SnappyError(EncodingError):
    """A snappy block cannot be expanded."""

    sentence = "snappy block: {problem}"


class VarintError(EncodingError):
    """A variable-length integer does not end, or is too large."""

    sentence = "a variable-length integer at byte {position} {problem}"


class ProtobufError(EncodingError):
    """A protocol buffer message is malformed."""

    sentence = "protocol buffer message: {problem}"


class BlockEntryError(TensorBundleError):
    """An entry of a block, or its restart array, is malformed."""

    sentence = "{path}: a block of the index file is malformed: {problem}"


class KeyOrderError(TensorBundleError):
    """The keys of the index file are not strictly increasing."""

    sentence = "{path}: key {found!r} follows {previous!r}; keys must increase"


class TensorNameError(TensorBundleError):
    """A key of the index file is no tensor name."""

    sentence = "{path}: key {found!r} is not a tensor name: {problem}"


class HeaderError(TensorBundleError):
    """The header of the bundle is missing or impossible."""

    sentence = "{path}: bundle header: {problem}"


class EntryError(TensorBundleError):
    """The entry of a tensor contradicts itself or the data files."""

    sentence = "{path}: tensor {name!r}: {problem}"


class OverlapError(TensorBundleError):
    """Two tensors claim the same bytes of a data file."""

    sentence = "{path}: tensors {first!r} and {second!r} share bytes of the data file"


class SliceError(TensorBundleError):
    """The slices of a partitioned variable do not make up the whole."""

    sentence = "{path}: partitioned tensor {name!r}: {problem}"


class UnreadableTypeError(TensorBundleError):
    """The tensor's type has no counterpart in numpy."""

    sentence = "{path}: tensor {name!r} is of TensorFlow type {dtype}, which numpy cannot hold"


class StringTensorError(TensorBundleError):
    """The lengths of a string tensor do not fit its bytes."""

    sentence = "{path}: string tensor {name!r}: {problem}"


class ObjectGraphError(TensorBundleError):
    """The object graph of a TF2 checkpoint is malformed."""

    sentence = "{path}: object graph: {problem}"


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
        "Pass allow_other_activation (--allow_other_activation) to write the weights all the same."
    )


class OptimizerStateError(ConversionError):
    """The checkpoint's optimizer state cannot be taken over."""

    sentence = "{path}: optimizer state: {problem}"


class ModelFolderError(ConversionError):
    """A model folder is incomplete, or not of a kind that can be converted."""

    sentence = "{path}: {problem}"


class VerificationError(ConversionError):
    """The converted model differs from its source."""

    sentence = "{path}: the conversion is wrong: {problem}"
