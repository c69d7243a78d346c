"""Everything that can be wrong with a TensorFlow checkpoint file: one class and one sentence for each way."""

from ..errors import ConversionError


class TensorBundleError(ConversionError):
    """A TensorFlow checkpoint file is broken, or uses an unsupported feature."""


class MissingFileError(TensorBundleError, FileNotFoundError):
    sentence = "{path}: no such file; {expected}"


class OldFormatError(TensorBundleError):
    sentence = (
        "{path}: this is a TensorFlow V1 checkpoint (one file, no .index); only the V2 format is read. "
        "Write it again with tf.compat.v1.train.Saver(write_version=2)."
    )


class TruncatedFileError(TensorBundleError):
    sentence = "{path}: the file has {found} bytes, but {what} needs {expected}"


class WrongMagicError(TensorBundleError):
    sentence = "{path}: the file ends in {found}, not in the magic number {expected} of a TensorFlow index file"


class FooterPaddingError(TensorBundleError):
    sentence = "{path}: the padding of the footer is not zero"


class BlockLayoutError(TensorBundleError):
    sentence = "{path}: a block starts at byte {found}, expected byte {expected}; the blocks must fill the file"


class ChecksumError(TensorBundleError):
    sentence = "{path}: {what} has checksum {found:#010x}, but {expected:#010x} is stored; the file is damaged"


class CompressionTypeError(TensorBundleError):
    sentence = "{path}: a block has compression type {found}; expected 0 (none) or 1 (snappy)"


class EncodingError(TensorBundleError):
    """Malformed bytes; raised where the file's name is unknown, which is added later."""


class SnappyError(EncodingError):
    sentence = "snappy block: {problem}"


class VarintError(EncodingError):
    sentence = "a variable-length integer at byte {position} {problem}"


class ProtobufError(EncodingError):
    sentence = "protocol buffer message: {problem}"


class BlockEntryError(TensorBundleError):
    sentence = "{path}: a block of the index file is malformed: {problem}"


class KeyOrderError(TensorBundleError):
    sentence = "{path}: key {found!r} follows {previous!r}; keys must increase"


class TensorNameError(TensorBundleError):
    sentence = "{path}: key {found!r} is not a tensor name: {problem}"


class HeaderError(TensorBundleError):
    sentence = "{path}: bundle header: {problem}"


class EntryError(TensorBundleError):
    """The entry of a tensor contradicts itself or the data files."""

    sentence = "{path}: tensor {name!r}: {problem}"


class OverlapError(TensorBundleError):
    sentence = "{path}: tensors {first!r} and {second!r} share bytes of the data file"


class SliceError(TensorBundleError):
    """The slices of a partitioned variable do not make up the whole."""

    sentence = "{path}: partitioned tensor {name!r}: {problem}"


class UnreadableTypeError(TensorBundleError):
    sentence = "{path}: tensor {name!r} is of TensorFlow type {dtype}, which numpy cannot hold"


class StringTensorError(TensorBundleError):
    """The lengths of a string tensor do not fit its bytes."""

    sentence = "{path}: string tensor {name!r}: {problem}"


class ObjectGraphError(TensorBundleError):
    sentence = "{path}: object graph: {problem}"
