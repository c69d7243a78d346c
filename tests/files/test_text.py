import bz2
import gzip
import io
import lzma
import sys

import pytest

from mybert.files import expand_paths, open_text, read_blocks

TEXT = "first line\n\nzweite Zeile äöü\n세 번째 줄\n😀 last"
LINES = TEXT.split("\n")


@pytest.mark.parametrize(
    ("name", "compress"),
    [("a.txt", bytes), ("a.txt.gz", gzip.compress), ("a.TXT.XZ", lzma.compress), ("a.bz2", bz2.compress)],
)
def test_compressions(tmp_path, name, compress):
    (tmp_path / name).write_bytes(compress(TEXT.encode()))
    assert list(open_text(tmp_path / name)) == LINES


def test_zstd(tmp_path):
    (tmp_path / "a.zst").write_bytes(b"(\xb5/\xfd")
    try:
        import zstandard
    except ImportError:
        with pytest.raises(ValueError, match="pip install zstandard"):
            list(open_text(tmp_path / "a.zst"))
        return
    data = zstandard.ZstdCompressor().compress(TEXT.encode())
    (tmp_path / "a.zst").write_bytes(data)
    assert list(open_text(tmp_path / "a.zst")) == LINES
    (tmp_path / "a.zst").write_bytes(data + data)
    assert list(open_text(tmp_path / "a.zst")) == [*LINES[:-1], LINES[-1] + LINES[0], *LINES[1:]]
    # Its own reader takes a file that was cut off for a whole one.
    for broken in (b"not zstd at all, but long enough to read", *(data + data[:cut] for cut in (1, 9, -1))):
        (tmp_path / "b.zst").write_bytes(broken)
        with pytest.raises(OSError, match=r"b.zst: the compressed data is broken or cut off"):
            list(open_text(tmp_path / "b.zst"))


@pytest.mark.parametrize("suffix", [".gz", ".xz", ".bz2", ".zst"])
def test_a_small_file_with_much_text_is_read_in_parts(tmp_path, suffix):
    compress = {".gz": gzip.compress, ".xz": lzma.compress, ".bz2": bz2.compress}.get(suffix)
    if compress is None:
        compress = pytest.importorskip("zstandard").ZstdCompressor().compress
    path = (tmp_path / "a.txt").with_suffix(suffix)
    path.write_bytes(compress((b"a" * 99 + b"\n") * 320_000))
    assert max(map(len, read_blocks(path))) < 10 << 20


@pytest.mark.parametrize(
    ("suffix", "compress"), [(".gz", gzip.compress), (".xz", lzma.compress), (".bz2", bz2.compress)]
)
def test_broken_compression_names_the_file(tmp_path, suffix, compress):
    path = (tmp_path / "b.txt").with_suffix(suffix)
    for broken in (compress(TEXT.encode())[:-9], b"not compressed at all"):
        path.write_bytes(broken)
        with pytest.raises(OSError, match=rf"b{suffix}: the compressed data is broken or cut off"):
            list(open_text(path))


@pytest.mark.parametrize("block_bytes", [1, 2, 3, 7, 1000])
@pytest.mark.parametrize("end", ["\n", "\r\n", "\r"])
def test_lines_do_not_depend_on_blocks(tmp_path, block_bytes, end):
    path = tmp_path / "a.txt"
    path.write_bytes(("\ufeff" + TEXT.replace("\n", end)).encode())
    blocks = list(read_blocks(path, block_bytes=block_bytes))
    assert [line for block in blocks for line in block.split("\n")] == LINES


def test_other_encodings(tmp_path):
    path = tmp_path / "a.txt"
    for encoding in ("utf-16", "utf-16-le", "cp949"):
        path.write_bytes("한국어\n텍스트".encode(encoding))
        assert list(open_text(path, encoding)) == ["한국어", "텍스트"]
    for encoding in ("klingon", "hex", "rot13", "undefined"):
        with pytest.raises(ValueError, match=f"Unknown encoding '{encoding}'"):
            list(open_text(path, encoding))


@pytest.mark.parametrize("offset", [0, 5, 4095, 1 << 20, (1 << 20) + 3])
def test_bad_byte(tmp_path, offset):
    path = tmp_path / "bad.txt"
    path.write_bytes(b"a" * offset + b"\xff" + b"b" * 10)
    with pytest.raises(ValueError, match=rf"bad\.txt is not utf-8 text: bad byte at offset {offset} .*--encoding"):
        list(open_text(path))


def test_cut_character(tmp_path):
    path = tmp_path / "bad.txt"
    path.write_bytes("ab한".encode()[:-1])
    with pytest.raises(ValueError, match="bad byte at offset 2"):
        list(open_text(path))
    path.write_bytes(b"a" * ((1 << 20) - 1) + b"\xed\x95" + b"b")
    with pytest.raises(ValueError, match=f"bad byte at offset {(1 << 20) - 1}"):
        list(open_text(path))


def test_binary_file(tmp_path):
    path = tmp_path / "model.bin"
    path.write_bytes(bytes(range(32)) * 10)
    with pytest.raises(ValueError, match=r"model\.bin looks like a binary file or UTF-16 \(zero byte at offset 0\)"):
        list(open_text(path))
    path.write_bytes("text".encode("utf-16-le"))
    with pytest.raises(ValueError, match=r"offset 1\).*--encoding"):
        list(open_text(path))
    path.write_bytes(b"a" * 500 + b"\0")
    assert list(open_text(path)) == ["a" * 500 + "\0"]


def test_standard_input(monkeypatch):
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(TEXT.encode())))
    assert list(open_text("-")) == LINES
    assert not sys.stdin.closed


def test_empty_file(tmp_path):
    (tmp_path / "a.txt").touch()
    assert list(open_text(tmp_path / "a.txt")) == []


def test_an_empty_name_is_no_folder():
    with pytest.raises(ValueError, match="The name of a file to read is empty"):
        expand_paths("")


def test_a_folder_stands_for_what_ends_like_text(tmp_path, caplog):
    taken = ["a.md", "b.csv.gz", "c.JSONL", "d.parquet", "e.txt.xz", "f", "g.tsv"]
    for name in (*taken, "h.pdf", "i.pdf", "j.tar.gz", "k.py"):
        (tmp_path / name).touch()
    with caplog.at_level("INFO", logger="mybert"):
        assert expand_paths(tmp_path) == [str(tmp_path / name) for name in taken]
    assert "left out: 4 files that do not end like text (2 .pdf, 1 .py, 1 .tar)" in caplog.text
    assert expand_paths(f"{tmp_path}/*.py") == expand_paths(tmp_path / "k.py") == [str(tmp_path / "k.py")]
    (tmp_path / "only").mkdir()
    (tmp_path / "only" / "scan.pdf").touch()
    with pytest.raises(FileNotFoundError, match=r"only holds no text file, but 1 file that .*\(1 .pdf\); name"):
        expand_paths(tmp_path / "only")


def test_expand_paths(tmp_path):
    for name in ("b.txt", "a.txt", "sub/c.txt", ".hidden", "_SUCCESS", ".git/x", "sub/_tmp/y"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).touch()
    names = lambda paths: [path.removeprefix(f"{tmp_path}/") for path in paths]  # noqa: E731
    assert names(expand_paths(tmp_path)) == ["a.txt", "b.txt", "sub/c.txt"]
    assert names(expand_paths(f"{tmp_path}/*.txt")) == ["a.txt", "b.txt"]
    assert names(expand_paths([f"{tmp_path}/b.txt", "-", tmp_path])) == ["b.txt", "-", "a.txt", "sub/c.txt"]
    (tmp_path / "empty").mkdir()
    for path, message in (
        (f"{tmp_path}/no.txt", "There is no file or folder"),
        (
            "s3://bucket/*.txt",
            "s3://bucket/\\*.txt is an address; expected a file, a folder or a pattern: copy or mount",
        ),
        (f"{tmp_path}/*.gz", "holds no text file"),
        (f"{tmp_path}/empty", "holds no text file"),
    ):
        with pytest.raises(FileNotFoundError, match=message):
            expand_paths([path])
