"""TensorFlow's checkpoint files: reading and writing every form that the format allows."""

import json
import struct
from pathlib import Path

import google_crc32c
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from mybert.conversion import read_tensor_bundle, write_tensor_bundle
from mybert.conversion.tensorflow import tensor_bundle, wire
from mybert.conversion.tensorflow.tensor_bundle import GRAPH_KEY, SUFFIX, ObjectGraph, slice_key

FIXTURES = Path(__file__).parents[1] / "fixtures"


def random_tensors(seed=0):
    rng = np.random.default_rng(seed)
    return {
        "a/kernel": rng.normal(size=(7, 5)).astype(np.float32),
        "a/bias": rng.normal(size=5).astype(np.float64),
        "b/half": rng.normal(size=(2, 3, 4)).astype(np.float16),
        "b/int": rng.integers(-5, 5, size=(3, 2)).astype(np.int64),
        "b/byte": rng.integers(0, 255, size=3).astype(np.uint8),
        "b/flag": np.array([True, False, True]),
        "c/complex": (rng.normal(size=4) + 1j).astype(np.complex64),
        "empty": np.zeros((0, 3), np.float32),
        "scalar": np.float32(2.5),
        "text": np.array([b"", b"a\0b", b"\xff" * 300], object),
    }


def same(a, b):
    assert a.keys() == b.keys()
    for name in a:
        assert a[name].dtype == b[name].dtype and a[name].shape == b[name].shape, name
        assert np.array_equal(a[name], b[name]), name


def test_round_trip_of_every_type(tmp_path):
    tensors = {name: np.asarray(value) for name, value in random_tensors().items()}
    write_tensor_bundle(tmp_path / "deep" / "model.ckpt", tensors)
    bundle = read_tensor_bundle(tmp_path / "deep" / "model.ckpt")
    same(dict(bundle), tensors)
    bundle.verify()
    assert list(bundle) == sorted(tensors) and len(bundle) == len(tensors)
    assert bundle.info["a/kernel"].shape == (7, 5) and bundle.info["text"].dtype == "string"
    for name in ("a/kernel", "b/flag"):
        with pytest.raises(ValueError, match="read-only"):
            bundle[name][0] = 0
    assert 'model_checkpoint_path: "model.ckpt"' in (tmp_path / "deep" / "checkpoint").read_text()
    names = ["checkpoint", "model.ckpt.data-00000-of-00001", "model.ckpt.index"]
    assert sorted(path.name for path in (tmp_path / "deep").iterdir()) == names
    for suffix in (".index", ".meta", ".data-00000-of-00001"):
        assert list(read_tensor_bundle(f"{tmp_path / 'deep' / 'model.ckpt'}{suffix}")) == list(bundle)


def test_all_fixtures_survive_a_round_trip(tmp_path, monkeypatch):
    monkeypatch.setattr(tensor_bundle, "_CHUNK", 1000)  # bytes: most tensors are written in several parts
    indexes = sorted(FIXTURES.glob("google_tf*/**/*.index"))
    assert len(indexes) >= 10
    for number, index in enumerate(indexes):
        tensors = dict(read_tensor_bundle(index))
        write_tensor_bundle(tmp_path / str(number), tensors)
        same(dict(read_tensor_bundle(tmp_path / str(number))), tensors)


@pytest.mark.parametrize(
    "index", sorted(FIXTURES.glob("google_tf*/**/*.index")), ids=lambda path: str(path.parent.name)
)
def test_blocks_of_an_index_are_tensorflows_to_the_byte(index):
    """Up to the index block, for which TensorFlow shortens the keys."""
    content = index.read_bytes()
    offset, position = wire.read_varint(content[-48:], 0)
    size, _ = wire.read_varint(content[-48:], position)
    end = offset + size + 5  # of the metaindex block, which is the last but one
    assert wire.write_sorted_table(wire.read_sorted_table(content))[:end] == content[:end]


@pytest.mark.parametrize("name", ["classifier", "pretrain", "squad_adam", "training/final"])
def test_write_tensor_bundle_writes_tensorflows_bytes(tmp_path, name):
    index = next((FIXTURES / "google_tf1" / name).glob("*.index"))
    write_tensor_bundle(tmp_path / "m", dict(read_tensor_bundle(index)))
    data = ".data-00000-of-00001"
    assert (tmp_path / f"m{data}").read_bytes() == index.with_name(f"{index.stem}{data}").read_bytes()
    found, expected = (wire.read_sorted_table(path.read_bytes()) for path in (tmp_path / "m.index", index))
    assert found == expected


def test_read_tensor_bundle_of_every_kind_of_tensor_gives_tensorflows_values():
    """Partitioned along either axis, half, bfloat16, bool, strings, an empty tensor: written by TensorFlow 2.21."""
    bundle = read_tensor_bundle(FIXTURES / "google_tf1" / "partitioned" / "m.ckpt")
    assert np.array_equal(bundle["part/w"], np.arange(4200, dtype=np.float32).reshape(700, 6))
    assert np.array_equal(bundle["part/c"], np.arange(655, dtype=np.int32).reshape(5, 131))
    assert bundle.info["b"].dtype == "bfloat16" and bundle["b"].dtype == np.float32
    assert bundle["b"].tolist() == bundle["h"].tolist() == [0, 1, 2, 3, 4]
    assert bundle["z"].tolist() == [True, False] and bundle["s"].tolist() == [b"ab\0", b"", b"\xff"]
    assert bundle["d"] == 2.5 and bundle["e"].shape == (0, 3)
    bundle.verify()


@pytest.mark.parametrize(
    ("value", "code"),
    [
        (0, "00"),
        (1, "01"),
        (127, "7f"),
        (128, "8001"),
        (150, "9601"),
        (2**32 - 1, "ffffffff0f"),
        (2**32, "8080808010"),
        (2**63, "80808080808080808001"),
        (2**64 - 1, "ffffffffffffffffff01"),
    ],
)
def test_integers_are_those_of_the_encoding_guide(value, code):
    """150 is the guide's example; a number that needs more bits is an error."""
    encoded = bytes.fromhex(code)
    assert wire.varint(value) == encoded and wire.read_varint(b"\xff" + encoded + b"\xff", 1) == (
        value,
        1 + len(encoded),
    )
    if value < 2**32:
        assert wire.read_varint(encoded, 0, bits=32) == (value, len(encoded))
    else:
        with pytest.raises(wire.MalformedError, match="at byte 0 has more than 32 bits"):
            wire.read_varint(encoded, 0, bits=32)
    with pytest.raises(wire.MalformedError, match="at byte 0 runs past the end"):
        wire.read_varint(encoded[:-1], 0)


@pytest.mark.parametrize("code", ["ffffffffffffffffff02", "ffffffffffffffffff03", "8080808080808080808001"])
def test_integers_of_more_than_64_bits_are_errors(code):
    with pytest.raises(wire.MalformedError, match="more than 64 bits"):
        wire.read_varint(bytes.fromhex(code), 0)


def test_messages_are_those_of_the_encoding_guide():
    """Field 1 is the varint 150 or -2, field 2 the text "testing"; fixed numbers are little-endian."""
    testing = "120774657374696e67"
    message = wire.Message(bytes.fromhex(f"089601{testing}1d040302012908070605040302011202ff00"))
    assert [message.integer(number) for number in (1, 3, 5, 6)] == [150, 0x01020304, 0x0102030405060708, 0]
    assert message.integer(6, default=4) == 4 and 6 not in message and 5 in message
    assert message.all_bytes(2) == [b"testing", b"\xff\0"] and message.last_bytes(2) == b"\xff\0"
    assert message.last_bytes(6) == b"" and message.messages(6) == []
    assert wire.Message(bytes.fromhex("08feffffffffffffffff01")).integer(1) == -2
    assert wire.Message(bytes.fromhex("08ffffffffffffffff7f")).integer(1) == 2**63 - 1
    assert wire.Message(bytes.fromhex("08018801020803")).integer(1) == 3  # the last one counts
    assert wire.field(1, 150).hex() == "089601" and wire.field(2, b"testing").hex() == testing
    assert wire.field(16, 1).hex() == "800101" and wire.field(1, 0) == b"" and wire.field(1, b"") == b"\x0a\0"
    for wrong, problem in (
        ("00", "field number 0"),
        ("0b", "unknown wire type 3"),
        ("0d010203", "field 1 needs 4 bytes, 3 are left"),
        ("0901020304050607", "field 1 needs 8 bytes, 7 are left"),
        ("0a0261", "field 1 needs 2 bytes, 1 are left"),
        ("088080808010888080808010", "more than 32 bits"),
    ):
        with pytest.raises(wire.MalformedError, match=problem):
            wire.Message(bytes.fromhex(wrong))
    with pytest.raises(wire.MalformedError, match="field 2 holds bytes"):
        message.integer(2)
    with pytest.raises(wire.MalformedError, match="field 1 holds a number"):
        message.all_bytes(1)


def test_checksums_are_those_of_leveldb():
    """CRC32C of RFC 3720, section B.4, rotated by 15 bits and shifted by a constant."""
    content, crc = bytes(32), 0x8A9136AA
    rotated = int(f"{crc:032b}"[-15:] + f"{crc:032b}"[:-15], 2)
    assert wire.masked_crc(content) == wire.mask_crc(crc) == (rotated + 0xA282EAD8) % 2**32


TYPES = """
float32 float64 int32 uint8 int16 int8 string complex64 int64 bool qint8 quint8 qint32 bfloat16 qint16 quint16 uint16
complex128 float16 resource variant uint32 uint64 float8_e5m2 float8_e4m3fn float8_e4m3fnuz float8_e4m3b11fnuz
float8_e5m2fnuz int4 uint4 int2 uint2
"""  # in the order of TensorFlow's types.proto, from 1


def test_numbers_of_types_are_tensorflows():
    for number, name in enumerate(TYPES.split(), start=1):
        assert tensor_bundle.read_entry("x", wire.field(1, number)).dtype == name
    for number in (0, 33):
        with pytest.raises(wire.MalformedError, match=f"type number {number} is unknown"):
            tensor_bundle.read_entry("x", wire.field(1, number))


@pytest.mark.parametrize(
    ("number", "code"),
    [
        *((0, "80"), (1, "81"), (63, "bf"), (64, "c040"), (8191, "dfff"), (8192, "e02000")),
        *((-1, "7f"), (-64, "40"), (-65, "3fbf"), (-8192, "2000"), (-8193, "1fdfff")),
    ],
)
def test_keys_of_slices_are_ordered_codes(number, code):
    """TensorFlow's `ordered_code.cc`: of numbers and of texts, whose 0 and 255 are escaped."""
    assert slice_key("a\0b", ((number, 0),)) == b"\0a\0\xffb\0\x01\x01\x01" + bytes.fromhex(code) + b"\x80"


@pytest.mark.parametrize("block_size", [500, 1 << 18])
def test_many_long_names_share_their_beginning_in_one_or_several_blocks(tmp_path, monkeypatch, block_size):
    monkeypatch.setattr(wire, "_BLOCK_SIZE", block_size)
    tensors = {f"{'scope/' * 200}{i}": np.float32(i) for i in range(300)}
    write_tensor_bundle(tmp_path / "m", tensors)
    if block_size > 500:
        assert (tmp_path / "m.index").stat().st_size * 10 < sum(map(len, tensors))
    same(dict(read_tensor_bundle(tmp_path / "m")), tensors)


def test_a_block_ends_with_the_entry_that_fills_it(monkeypatch):
    """Ten entries of 50 bytes fill 500."""
    monkeypatch.setattr(wire, "_BLOCK_SIZE", 500)
    entries = [(b"%010d" % number, b"v" * 40) for number in range(25)]
    content = wire.write_sorted_table(entries)
    numbers, position = [], 0
    for _ in range(4):  # offset and size of the metaindex block and of the index block
        number, position = wire.read_varint(content[-48:], position)
        numbers.append(number)
    last_keys = [key for key, _ in wire._read_block(content, tuple(numbers[2:]), True)]
    assert last_keys == [entries[number][0] for number in (9, 19, 24)]
    assert wire.read_sorted_table(content) == entries and wire.read_sorted_table(wire.write_sorted_table([])) == []


def build(prefix, tensors, shards=1, endian="<", slices=None, type_of_whole=1):
    """Write a bundle in a form that `write_tensor_bundle` does not: several shards, big-endian, sliced."""
    data = [bytearray() for _ in range(shards)]
    entries = [(b"", wire.field(1, shards) + wire.field(2, int(endian == ">")) + wire.field(3, b"\x08\x01"))]

    def entry(dtype, shape, shard=0, offset=0, size=0, crc=0, extents=()):
        dims = b"".join(wire.varint(0x12) + wire.varint(len(d)) + d for d in (wire.field(1, n) for n in shape))
        out = wire.field(1, dtype) + wire.field(2, dims) + wire.field(3, shard) + wire.field(4, offset)
        out += wire.field(5, size) + b"\x35" + crc.to_bytes(4, "little")
        for extent in extents:
            parts = b"".join(
                wire.field(1, wire.field(1, start) + (b"" if n < 0 else wire.field(2, n))) for start, n in extent
            )
            out += wire.field(7, parts)
        return out

    def store(array, shard):
        raw = np.ascontiguousarray(array, array.dtype.newbyteorder(endian)).tobytes()
        offset = len(data[shard])
        data[shard] += raw
        return entry(1, array.shape, shard, offset, len(raw), wire.masked_crc(raw))

    for number, (name, array) in enumerate(tensors.items()):
        entries.append((name.encode(), store(np.asarray(array, np.float32), number % shards)))
    for name, (array, extents) in (slices or {}).items():
        entries.append((name.encode(), entry(type_of_whole, array.shape, extents=extents)))
        for extent in extents:
            place = tuple(slice(start, None if n < 0 else start + n) for start, n in extent)
            entries.append((slice_key(name, extent), store(array[place], 0)))
    Path(f"{prefix}.index").write_bytes(wire.write_sorted_table(sorted(entries)))
    for shard, content in enumerate(data):
        Path(f"{prefix}.data-{shard:05d}-of-{shards:05d}").write_bytes(content)


FLOATS = {f"v{i}": np.arange(i + 2, dtype=np.float32) for i in range(9)}


@pytest.mark.parametrize("form", [{"shards": 4}, {"endian": ">"}, {"shards": 3, "endian": ">"}])
def test_other_forms(tmp_path, form):
    build(tmp_path / "m", FLOATS, **form)
    same(dict(read_tensor_bundle(tmp_path / "m")), FLOATS)


def test_strings_in_big_endian(tmp_path):
    lengths = struct.pack(">II", 3, 0)
    crc = google_crc32c.extend(0, lengths)
    check = struct.pack(">I", wire.mask_crc(crc))
    raw = b"\x03\x00" + check + b"abc"
    total = wire.mask_crc(google_crc32c.extend(google_crc32c.extend(crc, check), b"abc"))
    entry = wire.field(1, 7) + wire.field(2, b"\x12\x02\x08\x02") + wire.field(5, len(raw)) + b"\x35"
    header = wire.field(1, 1) + wire.field(2, 1)
    (tmp_path / "m.index").write_bytes(
        wire.write_sorted_table([(b"", header), (b"s", entry + total.to_bytes(4, "little"))])
    )
    (tmp_path / "m.data-00000-of-00001").write_bytes(raw)
    assert read_tensor_bundle(tmp_path / "m")["s"].tolist() == [b"abc", b""]


def test_strings_of_another_size_than_stored_are_an_error(tmp_path):
    """Two lengths, a checksum and three bytes: 9 of 11."""
    raw = b"\x03\x00" + bytes(4) + b"abc" + b"??"
    entry = wire.field(1, 7) + wire.field(2, b"\x12\x02\x08\x02") + wire.field(5, len(raw)) + b"\x35" + bytes(4)
    (tmp_path / "m.index").write_bytes(wire.write_sorted_table([(b"", wire.field(1, 1)), (b"s", entry)]))
    (tmp_path / "m.data-00000-of-00001").write_bytes(raw)
    with pytest.raises(ValueError, match="lengths and strings need 9 bytes, 11 are stored"):
        read_tensor_bundle(tmp_path / "m")["s"]


def test_partitioned_along_both_axes(tmp_path):
    array = np.arange(400 * 70, dtype=np.float32).reshape(400, 70)
    extents = (((0, 150), (0, 30)), ((0, 150), (30, 40)), ((150, 250), (0, -1)))
    build(tmp_path / "m", {"other": np.ones(2, np.float32)}, slices={"part\x01é": (array, extents)})
    bundle = read_tensor_bundle(tmp_path / "m")
    assert np.array_equal(bundle["part\x01é"], array) and set(bundle) == {"other", "part\x01é"}


@pytest.mark.parametrize(
    ("extents", "shape"),
    [
        (((0, -1),), (4,)),
        (((1, 2),), (2,)),
        (((1, 3),), (3,)),
        (((4, 0),), (0,)),
        (((2, 3),), None),
        (((-1, 2),), None),
        (((1, -1),), None),
        (((0, -2),), None),
        (((0, 2), (0, 1)), None),
    ],
)
def test_slices_are_within_the_whole(extents, shape):
    """Of four rows."""
    assert tensor_bundle._slice_shape((4,), extents) == shape


@pytest.mark.parametrize(
    ("extents", "message"),
    [
        ((((0, 2), (0, -1)), ((1, 2), (0, -1))), "overlaps"),  # of four rows one twice, and one missing
        ((((0, 2), (0, -1)),), "the slices hold 6 elements"),
        ((((0, 4), (0, -1)), ((2, 1), (0, -1))), "the slices hold 15 elements"),
    ],
)
def test_partitions_that_do_not_tile(tmp_path, extents, message):
    array = np.arange(12, dtype=np.float32).reshape(4, 3)
    build(tmp_path / "m", {}, slices={"part": (array, extents)})
    with pytest.raises(ValueError, match=message):
        read_tensor_bundle(tmp_path / "m")["part"]


def test_partitions_of_another_type_than_the_whole_are_an_error(tmp_path):
    array = np.arange(12, dtype=np.float32).reshape(4, 3)
    build(tmp_path / "m", {}, slices={"part": (array, (((0, -1), (0, -1)),))}, type_of_whole=2)
    with pytest.raises(ValueError, match=r"of float64 \(4, 3\) is stored as float32 \(4, 3\)"):
        read_tensor_bundle(tmp_path / "m")["part"]


@pytest.mark.slow
@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="measures memory as Linux reports it")
def test_listing_reads_only_the_index_and_a_tensor_only_its_bytes(tmp_path, run_python):
    """The data file is sparse and 1.3 GB: reading all of it would take the memory that the process does not have."""
    write_tensor_bundle(tmp_path / "m", {"x": np.arange(5, dtype=np.float32)})
    big = wire.field(1, 1) + wire.field(2, b"\x12\x06\x08" + wire.varint(325_000_000))
    big += wire.field(4, 4096) + wire.field(5, 1_300_000_000) + b"\x35\0\0\0\0"
    entries = [*wire.read_sorted_table((tmp_path / "m.index").read_bytes()), (b"y", big)]
    (tmp_path / "m.index").write_bytes(wire.write_sorted_table(entries))
    with (tmp_path / "m.data-00000-of-00001").open("r+b") as stream:
        stream.truncate(4096 + 1_300_000_000)
    code = """
import json, re, sys
from mybert.conversion import read_tensor_bundle
peak = lambda: int(re.search(r"VmHWM:\\s+(\\d+)", open("/proc/self/status").read())[1])
before = peak()
bundle = read_tensor_bundle(sys.argv[1])
shapes = {name: info.shape for name, info in bundle.info.items()}
x = bundle["x"].tolist()
print(json.dumps([shapes, x, peak() - before]))
"""
    shapes, x, growth = json.loads(run_python("-c", code, tmp_path / "m").stdout)
    assert shapes == {"x": [5], "y": [325_000_000]} and x == [0, 1, 2, 3, 4]
    assert growth < 20_000  # kB


NAMES = st.text(min_size=1, max_size=12).filter(lambda s: not s.startswith("\0"))
NAMES = NAMES.filter(lambda s: all(not 0xD800 <= ord(c) < 0xE000 for c in s))
ARRAYS = hnp.arrays(
    st.sampled_from(["f4", "f8", "f2", "i4", "i8", "u1", "?", "c16", ">f4"]), hnp.array_shapes(min_dims=0, min_side=0)
)


@settings(max_examples=60, deadline=None)
@given(st.dictionaries(NAMES, ARRAYS, max_size=8))
def test_write_tensor_bundle_of_any_tensors_is_read_back(tmp_path_factory, tensors):
    prefix = tmp_path_factory.mktemp("bundle") / "m"
    write_tensor_bundle(prefix, tensors)
    bundle = read_tensor_bundle(prefix)
    assert set(bundle) == set(tensors)
    for name, array in tensors.items():
        assert bundle[name].dtype == array.dtype.newbyteorder("=")
        assert bundle[name].tobytes() == array.astype(array.dtype.newbyteorder("<")).tobytes()


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("", np.ones(1), "not a tensor name"),
        ("\0x", np.ones(1), "not a tensor name"),
        ("x", np.array(["text"]), "no such type"),
        ("x", np.array([1, "a"], object), "only `bytes`"),
    ],
)
def test_write_tensor_bundle_of_wrong_tensors_is_an_error(tmp_path, name, value, message):
    with pytest.raises(ValueError, match=message):
        write_tensor_bundle(tmp_path / "m", {name: value})
    assert list(tmp_path.iterdir()) == []


def object_graph(prefix, tensors):
    write_tensor_bundle(prefix, tensors)
    return ObjectGraph(read_tensor_bundle(prefix))


def graph_node(children=(), key=None):
    """A node of a TrackableObjectGraph: names and numbers of children, and the key of a variable."""
    found = [wire.field(1, wire.field(1, number) + wire.field(2, name.encode())) for name, number in children]
    if key:
        for name in ("OTHER", "VARIABLE_VALUE"):
            found.append(wire.field(2, wire.field(1, name.encode()) + wire.field(3, f"{name} {key}".encode())))
    return wire.field(1, b"".join(found))


def test_paths_of_an_object_graph_lead_to_variables(tmp_path):
    graph = graph_node([("a", 1)]) + graph_node([("up", 0), ("b", 2)]) + graph_node(key="x")
    found = object_graph(tmp_path / "m", {GRAPH_KEY: np.array(graph, object)})
    assert found.variable(0, "a/b") == found.variable(0, "a/up/a/b") == found.variable(1, "b") == "VARIABLE_VALUE x"
    assert found.find(0, "a/b") == 2 and found.find(0, "a/c/b") is found.variable(0, "a/c") is None
    assert found.variable(0, "a") is None


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (np.array(graph_node([("a", 2)]) + graph_node(), object), "node 0 has the child 2 of 2 nodes"),
        (np.array(graph_node() + graph_node([("a", 2**64 - 1)]), object), "node 1 has the child -1 of 2 nodes"),
        (np.array([graph_node()], object), "is not one string"),
        (np.float32(1), "is not one string"),
        (np.array(wire.field(1, wire.field(1, wire.field(2, b"\xff"))), object), "is not UTF-8"),
    ],
)
def test_broken_object_graphs_are_errors(tmp_path, content, message):
    with pytest.raises(ValueError, match=message):
        object_graph(tmp_path / "m", {GRAPH_KEY: content})


def test_without_an_object_graph_keys_are_paths(tmp_path):
    keys = [f"{path}{SUFFIX}" for path in ("x/y", "x/z/w", "v.Sx")]
    found = object_graph(tmp_path / "m", dict.fromkeys([*keys, "step"], np.float32(1)))
    assert [found.variable(0, path) for path in ("x/y", "x/z/w")] == keys[:2]
    assert found.find(0, "x/z") is not None and found.variable(0, "x/z") is found.variable(0, "step") is None
    assert found.variable(found.find(0, "x"), "y") == keys[0]
    assert sorted(found.keys.values()) == sorted(keys)
