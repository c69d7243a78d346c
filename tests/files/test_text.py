import bz2
import gzip
import io
import lzma
import pickle
import sys
import zlib

import pytest

from mybert.files.text import EncodingError, expand_paths, is_encoded, new_digest, open_text, read_blocks

TEXT = "first line\n\nzweite Zeile äöü\n세 번째 줄\n😀 last"
LINES = TEXT.split("\n")


def zstd(data):
    return pytest.importorskip("zstandard").ZstdCompressor().compress(data)


COMPRESSIONS = [(".gz", gzip.compress), (".XZ", lzma.compress), (".bz2", bz2.compress), (".zst", zstd)]


@pytest.mark.parametrize(("suffix", "compress"), COMPRESSIONS)
def test_compressed_files_are_read_in_parts_and_broken_ones_are_errors(tmp_path, suffix, compress):
    path = tmp_path / f"a.txt{suffix}"
    data = compress(TEXT.encode())
    path.write_bytes(data)
    assert list(open_text(path)) == LINES
    path.write_bytes(data + data)
    assert list(open_text(path)) == [*LINES[:-1], LINES[-1] + LINES[0], *LINES[1:]]
    # zstandard's own reader takes a file that was cut off for a whole one.
    for broken in (data[:-9], data[:-1], data + data[:9], b"not compressed at all, but long enough to read"):
        path.write_bytes(broken)
        with pytest.raises(OSError, match=rf"a\.txt{suffix}: the compressed data is broken or cut off"):
            list(open_text(path))
    path.write_bytes(compress((b"a" * 99 + b"\n") * 320_000))  # a small file with much text
    assert max(map(len, read_blocks(path))) < 10 << 20


def test_open_text_of_xz_with_padding_and_with_a_huge_dictionary(tmp_path):
    path = tmp_path / "a.xz"
    path.write_bytes(lzma.compress(b"one\n") + bytes(4) + lzma.compress(b"two") + bytes(8))
    assert list(open_text(path)) == ["one", "two"]
    content = bytearray(lzma.compress(b"one\n"))
    assert content[14:16] == b"\x21\x01"  # LZMA2, and one byte: the size of its dictionary, 40 for 4 GB
    content[16] = 40
    content[20:24] = zlib.crc32(content[12:20]).to_bytes(4, "little")
    path.write_bytes(content)
    with pytest.raises(OSError, match="Memory usage limit exceeded"):
        list(open_text(path))


def test_open_text_digest_is_of_the_whole_file_although_bz2_leaves_what_follows_its_data(tmp_path):
    path, digests, digest = tmp_path / "a.bz2", {}, new_digest()
    path.write_bytes(bz2.compress(b"one\n") + bytes(2 << 20))
    assert list(open_text(path, digests=digests)) == ["one"]
    digest.update(path.read_bytes())
    assert digests == {str(path): digest.hexdigest()}


@pytest.mark.skipif(sys.platform != "linux", reason="a file of Linux that opens and cannot be read")
def test_open_text_that_the_system_cannot_read_raises_its_error(tmp_path):
    (tmp_path / "a.gz").symlink_to("/proc/self/mem")  # it opens, and nothing is at its beginning
    with pytest.raises(OSError, match=r"^\[Errno 5\] Input/output error$"):
        list(open_text(tmp_path / "a.gz"))


def test_open_text_of_broken_data_where_no_library_has_loaded_zstandard(tmp_path, monkeypatch):
    monkeypatch.delitem(sys.modules, "zstandard", raising=False)
    (tmp_path / "a.gz").write_bytes(gzip.compress(b"one\n")[:-9])
    with pytest.raises(OSError, match=r"a\.gz: the compressed data is broken or cut off"):
        list(open_text(tmp_path / "a.gz"))


def test_zstd_without_its_package(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "zstandard", None)
    (tmp_path / "a.zst").write_bytes(b"(\xb5/\xfd")
    with pytest.raises(ValueError, match="pip install zstandard"):
        list(open_text(tmp_path / "a.zst"))


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
    for order in ("le", "be"):
        path.write_bytes("\ufeff한국어\n텍스트".encode(f"utf-16-{order}"))
        assert list(open_text(path)) == ["한국어", "텍스트"]
    for encoding in ("klingon", "hex", "rot13", "undefined"):
        with pytest.raises(ValueError, match=f"Unknown encoding '{encoding}'"):
            list(open_text(path, encoding))


MEGABYTE = 1 << 20


@pytest.mark.parametrize(
    ("data", "message"),
    [
        *((b"a" * offset + b"\xff" + b"b" * 10, offset) for offset in (0, 5, 4095, MEGABYTE, MEGABYTE + 3)),
        ("ab한".encode()[:-1], 2),
        (b"a" * (MEGABYTE - 1) + b"\xed\x95" + b"b", MEGABYTE - 1),
        (bytes(range(32)) * 10, r"a\.txt looks like a binary file or UTF-16 \(zero byte at offset 0\)"),
        ("text".encode("utf-16-le"), r"offset 1\).*encoding='utf-16-le'"),
        ("text".encode("utf-16-be"), r"offset 0\).*encoding='utf-16-be'"),
        ("한국어".encode("utf-32"), "looks like a binary file"),
        ("한국어 글".encode("cp949"), "save it as UTF-8 or pass encoding='cp949' or cp1252.$"),
        ("café crème".encode("cp1252"), "pass encoding='cp1252'.$"),
    ],
)
def test_open_text_of_other_bytes_raises_with_the_offset(tmp_path, data, message):
    (tmp_path / "a.txt").write_bytes(data)
    if isinstance(message, int):
        message = rf"a\.txt is not utf-8 text: bad byte at offset {message} .*encoding="
    with pytest.raises(ValueError, match=message):
        list(open_text(tmp_path / "a.txt"))


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (gzip.compress(b"text\n"), r"a\.txt holds gzip data; expected text, or a name that ends in \.gz\."),
        (lzma.compress(b"text\n"), r"xz data; .* \.xz\."),
        (bz2.compress(b"text\n"), r"bzip2 data; .* \.bz2\."),
        (b"PK\3\4\x14\0", r"a zip archive; .* \.xlsx, if it is a spreadsheet\."),
    ],
    ids=["gzip", "xz", "bzip2", "zip"],
)
@pytest.mark.parametrize("encoding", ["utf-8", "latin-1"])
def test_compressed_data_under_a_name_of_text_is_no_text(data, message, encoding, tmp_path):
    (tmp_path / "a.txt").write_bytes(data)
    with pytest.raises(ValueError, match=message):
        list(open_text(tmp_path / "a.txt", encoding))


@pytest.mark.parametrize(("data", "lines"), [(b"a" * 500 + b"\0", ["a" * 500 + "\0"]), (b"", [])])
def test_text_with_few_zeros_or_nothing(tmp_path, data, lines):
    (tmp_path / "a.txt").write_bytes(data)
    assert list(open_text(tmp_path / "a.txt")) == lines


def test_standard_input(monkeypatch):
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(TEXT.encode())))
    assert list(open_text("-")) == LINES
    assert not sys.stdin.closed


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
    assert names(expand_paths(f"{tmp_path}/**/*")) == ["_SUCCESS", "a.txt", "b.txt", "sub/_tmp/y", "sub/c.txt"]
    assert names(expand_paths([f"{tmp_path}/b.txt", "-", tmp_path])) == ["b.txt", "-", "a.txt", "sub/c.txt"]
    (tmp_path / "empty").mkdir()
    for path, message in (
        ("no.txt", "There is no file or folder"),
        ("*.gz", "holds no text file"),
        ("empty", "holds no text file"),
    ):
        with pytest.raises(FileNotFoundError, match=message):
            expand_paths([f"{tmp_path}/{path}"])
    with pytest.raises(FileNotFoundError, match=r"s3://bucket/\*.txt is an address; expected a file, a folder"):
        expand_paths("s3://bucket/*.txt")
    with pytest.raises(ValueError, match="The name of a file to read is empty"):
        expand_paths("")


def test_expand_paths_counts_links_and_names_with_underscore(tmp_path, caplog):
    corpus, elsewhere = tmp_path / "corpus", tmp_path / "elsewhere"
    for name in ("corpus/a.txt", "corpus/_posts/b.txt", "corpus/_c.txt", "elsewhere/d.txt"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).touch()
    (corpus / "linked").symlink_to(elsewhere)
    with caplog.at_level("INFO", logger="mybert"):
        assert expand_paths(corpus) == [str(corpus / "a.txt")]
    assert "left out: 2 files with a name, or a folder's, that begins with _ and 1 linked folder; to" in caplog.text
    assert expand_paths(f"{corpus}/**/d.txt") == [str(corpus / "linked" / "d.txt")]


def test_encoding_error_survives_a_pool_of_processes(tmp_path):
    (tmp_path / "latin.txt").write_bytes(b"caf\xe9")
    with pytest.raises(EncodingError) as error:
        list(open_text(tmp_path / "latin.txt"))
    copied = pickle.loads(pickle.dumps(error.value))
    assert (str(copied), copied.path) == (str(error.value), str(tmp_path / "latin.txt"))


def test_is_encoded_leaves_files_that_cannot_be_read_to_their_reader(tmp_path):
    (tmp_path / "latin.txt").write_bytes(b"caf\xe9")
    (tmp_path / "cut.gz").write_bytes(gzip.compress(b"text" * 1000)[:-20])
    names = ["latin.txt", "gone.txt", "cut.gz"]
    assert [is_encoded(tmp_path / name, "utf-8") for name in names] == [False, True, True]


def test_endings_that_are_equally_frequent_are_named_in_their_order(tmp_path, caplog):
    for suffix in ("txt", "g7", "f6", "a1", "e5", "b2", "d4", "c3"):
        (tmp_path / f"file.{suffix}").write_text("a")
    with caplog.at_level("INFO", "mybert"):
        expand_paths([tmp_path])
    assert "(1 .a1, 1 .b2, 1 .c3, 1 .d4, 1 .e5, ...)" in caplog.text
