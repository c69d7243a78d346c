"""Broken and malicious files: always an error message, never a wrong tensor, crash, hang or huge allocation."""

import os
import random
import tracemalloc
from pathlib import Path

import numpy as np
import pytest

from mybert.conversion import read_tensor_bundle, write_tensor_bundle
from mybert.conversion.google_source import GardenGraph
from mybert.conversion.tensorflow import GRAPH_KEY, wire
from mybert.conversion.tensorflow.tensor_bundle import slice_key

FIXTURES = Path(__file__).parents[1] / "fixtures"
CLASSIFIER = FIXTURES / "google_tf1" / "classifier" / "bert_model.ckpt"
FUZZED_FILES = int(os.environ.get("MYBERT_FUZZED_FILES", "1000"))  # for each kind of file
INDEX, DATA = ".index", ".data-00000-of-00001"


def read_all(prefix):
    return dict(read_tensor_bundle(prefix))


def files_of(prefix):
    return {suffix: Path(f"{prefix}{suffix}").read_bytes() for suffix in (INDEX, DATA)}


@pytest.fixture
def small(tmp_path):
    """A small bundle with all kinds of tensors, as files that tests corrupt."""
    prefix = tmp_path / "m"
    rng = np.random.default_rng(0)
    tensors = {f"layer_{i}/kernel": rng.normal(size=(i + 1, 3)).astype(np.float32) for i in range(20)}
    write_tensor_bundle(prefix, tensors | {"text": np.array([b"ab", b""], object), "step": np.int64(7)})
    return prefix


def put(prefix, suffix, content):
    Path(f"{prefix}{suffix}").write_bytes(content)


def put_entries(prefix, entries):
    put(prefix, INDEX, wire.write_sorted_table(sorted(entries.items())))


def entries_of(prefix):
    return dict(wire.read_sorted_table(Path(f"{prefix}{INDEX}").read_bytes()))


# --- every flipped byte ----------------------------------------------------------------------------------------------


def flips(content, step=1):
    rng = random.Random(0)
    for place in range(0, len(content), step):
        spoiled = bytearray(content)
        spoiled[place] ^= rng.randrange(1, 256)
        yield place, bytes(spoiled)


@pytest.mark.parametrize(
    "name",
    [
        pytest.param("google_tf1/classifier/bert_model.ckpt", marks=pytest.mark.slow),
        "google_tf1/partitioned/m.ckpt",
        pytest.param("google_tf2/BertEncoderV2/pretrainer/model.ckpt", marks=pytest.mark.slow),
    ],
)
def test_every_flipped_byte_of_an_index_is_detected(tmp_path, name):
    content = files_of(FIXTURES / name)
    put(tmp_path / "m", DATA, content[DATA])
    for place, spoiled in flips(content[INDEX]):
        put(tmp_path / "m", INDEX, spoiled)
        with pytest.raises(ValueError):
            read_all(tmp_path / "m")
            pytest.fail(f"byte {place} was flipped unseen")


def check_flipped_data(source, prefix, step):
    content = files_of(source)
    put(prefix, INDEX, content[INDEX])
    put(prefix, DATA, content[DATA])
    bundle = read_tensor_bundle(prefix)
    owners = {}
    for name, info in bundle.info.items():
        for part in [bundle._slices[slice_key(name, extents)] for extents in info.slices] or [info]:
            owners |= dict.fromkeys(range(part.offset, part.offset + part.size), name)
    assert len(owners) == len(content[DATA]), "every byte belongs to a tensor"
    with Path(f"{prefix}{DATA}").open("r+b", buffering=0) as stream:
        for place in range(0, len(content[DATA]), step):
            stream.seek(place)
            stream.write(bytes([content[DATA][place] ^ 1 << place % 8]))
            with pytest.raises(ValueError):
                bundle.verify([owners[place]])
                pytest.fail(f"byte {place} was flipped unseen")
            stream.seek(place)
            stream.write(content[DATA][place : place + 1])
    bundle.verify()


PARTITIONED = FIXTURES / "google_tf1" / "partitioned" / "m.ckpt"


@pytest.mark.parametrize(
    ("source", "step"), [(CLASSIFIER, 97), (PARTITIONED, 13), pytest.param(CLASSIFIER, 1, marks=pytest.mark.slow)]
)
def test_flipped_bytes_of_data_are_detected(tmp_path, source, step):
    check_flipped_data(source, tmp_path / "m", step)


def test_flipped_data_is_detected_when_the_tensor_is_read(small):
    content = files_of(small)[DATA]
    put(small, DATA, bytes([content[0] ^ 1]) + content[1:])
    bundle = read_tensor_bundle(small)
    with pytest.raises(ValueError, match="layer_0/kernel"):
        _ = bundle["layer_0/kernel"]
    assert bundle["layer_1/kernel"].shape == (2, 3)
    assert read_tensor_bundle(small, verify=False)["layer_0/kernel"].shape == (1, 3)


# --- one sentence per way of being broken ----------------------------------------------------------------------------


def dims(*sizes):
    return b"".join(wire.varint(0x12) + wire.varint(len(d)) + d for d in (wire.field(1, n) for n in sizes))


NEGATIVE = (1 << 64) - 5
HUGE = 1 << 62
WHOLE = wire.field(7, wire.field(1, b""))  # one slice, the whole of one dimension
EMPTY = wire.field(1, 1) + wire.field(2, dims(0))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ((wire.field(1, 99),), "type number 99 is unknown"),
        ((wire.field(5, 8),), "type number 0 is unknown"),
        ((wire.field(1, 1), wire.field(2, dims(NEGATIVE))), "negative dimension"),
        ((wire.field(1, 1), wire.field(2, dims(HUGE, HUGE))), "overflows"),
        ((wire.field(1, 1), wire.field(2, dims(0, HUGE, HUGE))), "overflows"),
        ((wire.field(1, 1), wire.field(2, dims(HUGE // 2))), "overflows"),
        ((wire.field(1, 1), wire.field(2, dims(HUGE // 2 - 1))), f"needs {(1 << 63) - 4} bytes"),
        ((wire.field(1, 1), wire.field(2, dims(*[1] * 33))), "33 dimensions"),
        ((wire.field(1, 1), wire.field(2, b"\x18\x01")), "rank is unknown"),
        ((wire.field(1, 1), wire.field(3, 5), wire.field(5, 4)), "data file 5"),
        ((wire.field(1, 1), wire.field(4, NEGATIVE), wire.field(5, 4)), "negative"),
        ((wire.field(1, 1), wire.field(5, HUGE)), "tensor 'step' needs"),
        ((wire.field(1, 1), wire.field(4, HUGE), wire.field(5, 4)), "tensor 'step' needs"),
        ((wire.field(1, 1), wire.field(5, 8)), "needs 4 bytes, 8 are stored"),
        ((wire.field(1, 1), wire.field(5, 4)), "share bytes"),
        ((wire.field(1, 7), wire.field(2, dims(HUGE))), "strings cannot fit"),
        ((wire.field(1, 1), wire.field(5, 4), WHOLE), "bytes of its own"),
        ((wire.field(1, 1), wire.field(2, dims(2)), WHOLE), "no entry"),
        ((wire.field(1, b"text"),), "holds bytes"),
        ((wire.field(2, 3),), "holds a number"),
        ((b"\x0b",), "wire type 3"),
        ((b"\x00\x00",), "field number 0"),
        ((b"\x12\x7f",), "needs 127 bytes"),
        ((b"\x08" + b"\xff" * 20,), "more than 64 bits"),
        ((b"\x08\xff",), "runs past the end"),
        ({b"": b""}, "num_shards is 0"),
        ({b"": wire.field(1, NEGATIVE)}, "num_shards is -5"),
        ({b"": wire.field(1, 1) + wire.field(2, 7)}, "endianness is 7"),
        ({b"": wire.field(1, 1) + wire.field(3, wire.field(2, 9))}, "reader of version 9"),
        ({b"": None}, "first key"),
        ({b"\xff\xfe": EMPTY}, "not UTF-8"),
        ({b"\0orphan": EMPTY}, "no tensor claims"),
    ],
)
def test_broken_entries(small, change, message):
    """Entries by key, None to leave one out; or the fields of the entry `step`."""
    entries = entries_of(small) | (change if isinstance(change, dict) else {b"step": b"".join(change)})
    put_entries(small, {key: value for key, value in entries.items() if value is not None})
    with pytest.raises(ValueError, match=message):
        read_all(small)


def test_types_without_counterpart_are_listed_but_not_read(small):
    put_entries(small, entries_of(small) | {b"step": wire.field(1, 20)})
    bundle = read_tensor_bundle(small)
    assert bundle.info["step"].dtype == "resource"
    with pytest.raises(ValueError, match="resource"):
        _ = bundle["step"]


def test_missing_and_truncated_files(small):
    content = files_of(small)
    for size in range(0, len(content[INDEX]), 7):
        put(small, INDEX, content[INDEX][:size])
        with pytest.raises(ValueError, match=r"m\.index: the file (has \d+ bytes|ends in)"):
            read_all(small)
    put(small, INDEX, content[INDEX])
    for size in range(0, len(content[DATA]), 5):
        put(small, DATA, content[DATA][:size])
        with pytest.raises(ValueError, match=r"m\.data-00000-of-00001: the file has \d+ bytes, but tensor"):
            read_all(small)
    Path(f"{small}{DATA}").unlink()
    with pytest.raises(FileNotFoundError, match="00000-of-00001"):
        read_all(small)
    with pytest.raises(FileNotFoundError, match=r"nothing\.index"):
        read_tensor_bundle(small.with_name("nothing"))


def rebuild(table, change, after_handle=b""):
    """Change the only data block of a table and correct all checksums and handles."""
    footer = table[-48:]
    meta, at = wire._read_handle(footer, 0)
    index, _ = wire._read_handle(footer, at)
    (key, _), *_ = wire._read_block(table, index, True)
    out = bytearray()

    def append(block, kind=b"\0"):
        handle = wire.varint(len(out)) + wire.varint(len(block))
        out.extend(block + kind + wire.masked_crc(block + kind).to_bytes(4, "little"))
        return handle

    content = append(*change(table[: meta[0] - 5])) + after_handle
    empty = append(table[meta[0] : meta[0] + meta[1]])
    entry = b"\0" + wire.varint(len(key)) + wire.varint(len(content)) + key + content + b"\0\0\0\0\1\0\0\0"
    handles = empty + append(entry)
    return bytes(out) + handles.ljust(40, b"\0") + wire.MAGIC


def block_of(*entries):
    return b"".join(wire.varint(s) + wire.varint(len(k)) + wire.varint(len(v)) + k + v for s, k, v in entries) + (
        b"\0\0\0\0\1\0\0\0"
    )


def rebuilt(change):
    return lambda table: rebuild(table, change)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda table: table[:-1] + b"\0", "magic"),
        (lambda table: table[:-9] + b"\1" + table[-8:], "padding of the footer"),
        (lambda table: table[:-48] + b"gap" + table[-48:], "must fill the file"),
        (rebuilt(lambda block: (block[:-4] + b"\xff\xff\xff\xff",)), "restart points"),
        (rebuilt(lambda block: (b"",)), "restart points"),
        (rebuilt(lambda block: (block_of((0, b"", b""), (5, b"a", b"")),)), "shares 5 bytes"),
        (rebuilt(lambda block: (b"\0\x7f\0" + block_of(),)), "past the end"),
        (rebuilt(lambda block: (b"\xff" * 9 + block_of(),)), "32 bits"),
        (rebuilt(lambda block: (block_of((0, b"b", b""), (0, b"a", b"")),)), "must increase"),
        (rebuilt(lambda block: (block_of((0, b"a", b""), (0, b"a", b"")),)), "must increase"),
        (rebuilt(lambda block: (block_of((0, b"zzz", b"")),)), "must increase"),
        (rebuilt(lambda block: (block, b"\1")), "type 1; expected 0"),
        (lambda table: rebuild(table, lambda block: (block,), b"more"), "handle is followed by other bytes"),
    ],
)
def test_broken_tables_of_an_index(small, change, message):
    put(small, INDEX, change(files_of(small)[INDEX]))
    with pytest.raises(ValueError, match=message):
        read_all(small)


def test_shared_key_prefixes_cannot_fill_the_memory(small):
    """600 kB that would expand to 15 GB of keys."""
    entries = [(0, b"a" * 200_000, b""), *((200_000 + i, b"a", b"") for i in range(80_000))]
    put(small, INDEX, rebuild(files_of(small)[INDEX], lambda block: (block_of(*entries),)))
    tracemalloc.start()
    with pytest.raises(ValueError, match="expand to more than 24 times"):
        read_all(small)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 30_000_000


def test_a_v1_checkpoint_gets_a_clear_message(tmp_path):
    (tmp_path / "model.ckpt").write_bytes(wire.write_sorted_table([(b"", b"x")]))
    with pytest.raises(ValueError, match="V1 checkpoint"):
        read_tensor_bundle(tmp_path / "model.ckpt")
    (tmp_path / "text.ckpt").write_bytes(b"no checkpoint of any version")
    with pytest.raises(FileNotFoundError, match=r"text\.ckpt\.index"):
        read_tensor_bundle(tmp_path / "text.ckpt")


# --- mutations -------------------------------------------------------------------------------------------------------


def mutate(rng, content):
    """Flip, overwrite, insert, delete, cut or double bytes, once or a few times."""
    out = bytearray(content)
    for _ in range(rng.choice((1, 1, 1, 2, 4))):
        place = rng.randrange(len(out) + 1)
        kind = rng.randrange(7)
        if kind == 0 and place < len(out):
            out[place] ^= 1 << rng.randrange(8)
        elif kind == 1:
            out[place : place + 1] = rng.randbytes(1)
        elif kind == 2:
            out[place:place] = rng.randbytes(rng.randrange(1, 9))
        elif kind == 3:
            del out[place : place + rng.randrange(1, 9)]
        elif kind == 4:
            del out[place:]
        elif kind == 5:
            out[place:place] = out[place : place + rng.randrange(1, 40)]
        else:
            value = rng.choice(
                (b"\xff" * 8, b"\x80" * 10, b"\0" * 4, b"\x7f", wire.varint(1 << 63), b"\xff\xff\xff\xff")
            )
            out[place : place + len(value)] = value
    return bytes(out)


def check_mutant(prefix, original=None):
    """Read a corrupted bundle: an error message, or tensors; with checksums, the original ones."""
    try:
        found = read_all(prefix)
    except (FileNotFoundError, ValueError) as error:
        assert str(error).startswith(str(prefix))
        return True
    size = sum(Path(f"{prefix}{suffix}").stat().st_size for suffix in (INDEX, DATA))
    widened = 2 if any(array.dtype == np.float32 for array in found.values()) else 1  # bfloat16 becomes float32
    assert sum(array.nbytes for array in found.values() if array.dtype != object) <= size * widened
    if original is not None:
        assert found.keys() == original.keys()
        assert all(np.array_equal(found[name], original[name]) for name in original)
    return False


def test_mutated_index_and_data_files(small):
    content, original = files_of(small), read_all(small)
    rng = random.Random(1)
    detected = 0
    for number in range(FUZZED_FILES):
        suffix = (INDEX, DATA)[number % 2]
        put(small, suffix, mutate(rng, content[suffix]))
        detected += check_mutant(small, original)
        put(small, suffix, content[suffix])
    assert detected > 0.8 * FUZZED_FILES  # the others appended to the data, or changed nothing


def test_mutated_blocks_and_entries_behind_valid_checksums(small):
    """With corrected checksums the parser itself must reject the mutations."""
    table, entries, rng = files_of(small)[INDEX], entries_of(small), random.Random(2)
    outcomes = {"block": set(), "entry": set()}
    for _ in range(FUZZED_FILES):
        block = rebuild(table, lambda block: (mutate(rng, block),))
        put(small, INDEX, block)
        outcomes["block"].add(check_mutant(small))
        key = rng.choice(sorted(entries))
        put_entries(small, entries | {key: mutate(rng, entries[key])})
        outcomes["entry"].add(check_mutant(small))
    assert outcomes == {"block": {True, False}, "entry": {True, False}}


def test_mutated_slices(tmp_path):
    put(tmp_path / "m", DATA, files_of(PARTITIONED)[DATA])
    entries, rng = entries_of(PARTITIONED), random.Random(4)
    sliced = [key for key in entries if key.startswith((b"\0", b"part"))]
    for _ in range(FUZZED_FILES):
        key = rng.choice(sliced)
        put_entries(tmp_path / "m", entries | {key: mutate(rng, entries[key])})
        check_mutant(tmp_path / "m")


def test_mutated_object_graphs(tmp_path):
    bundle = read_tensor_bundle(FIXTURES / "google_tf2" / "BertEncoderV2" / "encoder" / "bert_model.ckpt")
    graph, rng = bundle[GRAPH_KEY][()], random.Random(5)

    class Spoiled:
        prefix = tmp_path
        info = bundle.info

        def __init__(self, content):
            self.content = content

        def __getitem__(self, name):
            array = np.empty((), object)
            array[()] = self.content
            return array

    for _ in range(FUZZED_FILES // 4):
        try:
            found = GardenGraph(Spoiled(mutate(rng, graph)))
            encoder = found.encoder()
            if encoder is not None:
                found.variable(encoder, "_transformer_layers/0/_attention_layer/_query_dense/kernel")
        except ValueError as error:
            assert str(error).startswith(str(tmp_path))
