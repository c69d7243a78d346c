"""Everything that can be wrong with a TensorFlow checkpoint file: one class and one sentence for each way."""

from ..errors import ConversionError


class TensorBundleError(ConversionError):
    """A TensorFlow checkpoint file is broken, or uses an unsupported feature."""


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
    """Malformed bytes; raised where the file's name is unknown, which is added later."""


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
