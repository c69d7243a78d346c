import io
import json
import logging
import os
import signal
import subprocess
import sys
import time

import psutil
import pytest

from mybert.command_line.flags import CommandParser
from mybert.files.output import BusyError, locked
from mybert.tokenization import MyBertTokenizer, VocabArguments, train_vocabulary

TEXT = "The cats sat on the mat.\nThe dogs did not sit on the mats.\n" * 20


@pytest.fixture
def text_file(tmp_path):
    path = tmp_path / "text.txt"
    path.write_text(TEXT)
    return path


def parse(*words):
    return VocabArguments(**CommandParser("vocab").given([str(word) for word in words]))


def test_folder_and_report(text_file, tmp_path, caplog):
    caplog.set_level(logging.INFO, "mybert")
    out = tmp_path / "out"
    arguments = parse(
        *("--text", text_file, "--output_dir", out, "--vocab_size", 80, "--vocab_layout", "compact"),
        *("--report", tmp_path / "reports" / "report.json", "--no_do_lower_case", "--validation_split", 0),
    )
    assert arguments.do_lower_case is False
    train_vocabulary(arguments)
    assert sorted(path.name for path in out.iterdir()) == ["tokenizer.json", "tokenizer_config.json", "vocab.txt"]
    tokenizer = MyBertTokenizer.from_pretrained(out)
    assert tokenizer.tokenize("The cats") == ["The", "cats"]
    report = json.loads((tmp_path / "reports" / "report.json").read_text())
    assert report["size"] == len(tokenizer)
    assert report["unk_rate"] == 0
    assert report["longest_pieces"]
    assert "tokens per word" in caplog.text
    assert not list(tmp_path.rglob("*.tmp*"))


def test_full_folder_is_refused(text_file, tmp_path, capsys):
    out = tmp_path / "out"
    out.mkdir()
    call = ["--text", text_file, "--output_dir", out, "--vocab_size", 60, "--vocab_layout", "compact", "--quiet"]
    train_vocabulary(parse(*call))
    with pytest.raises(ValueError, match=r"exists and holds other things .* or pass overwrite=True"):
        train_vocabulary(parse(*call))
    train_vocabulary(parse(*call, "--overwrite", "--no_do_lower_case"))
    assert not MyBertTokenizer.from_pretrained(out).do_lower_case
    assert capsys.readouterr().out == ""
    (out / "thesis.tex").write_text("precious")
    with pytest.raises(ValueError, match=r"holds files that no run wrote \(thesis.tex\), so it is not overwritten"):
        train_vocabulary(parse(*call, "--overwrite"))
    assert len(list(out.iterdir())) == 4
    with pytest.raises(ValueError, match="is a file; expected a folder"):
        train_vocabulary(parse("--text", text_file, "--output_dir", text_file))


def test_standard_input_and_a_single_file(text_file, tmp_path, monkeypatch):
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(TEXT.encode())))
    for text in (["-"], str(text_file), text_file):
        arguments = VocabArguments(
            text=text, output_dir=str(tmp_path / "out"), vocab_size=60, vocab_layout="compact", overwrite=True
        )
        assert train_vocabulary(arguments).tokenize("mat") != ["[UNK]"]


def test_missing_and_bad_files(tmp_path):
    out = tmp_path / "out"
    with pytest.raises(FileNotFoundError, match="There is no file or folder"):
        train_vocabulary(parse("--text", tmp_path / "no.txt", "--output_dir", out))
    (tmp_path / "latin.txt").write_bytes("café".encode("latin-1"))
    with pytest.raises(ValueError, match=r"latin\.txt is not utf-8 text: bad byte at offset 3"):
        train_vocabulary(parse("--text", tmp_path / "latin.txt", "--output_dir", out))
    assert not out.exists()
    call = ["--text", tmp_path / "latin.txt", "--output_dir", out, "--vocab_size", 30, "--vocab_layout", "compact"]
    train_vocabulary(parse(*call, "--encoding", "latin-1", "--quiet"))
    assert (out / "vocab.txt").exists()


def test_a_table_is_read_by_its_column(tmp_path):
    lines = TEXT.strip().split("\n")
    (tmp_path / "a.txt").write_text("\n".join(lines))
    (tmp_path / "a.csv").write_text("\n".join(["id,body", *(f"7,{line}" for line in lines)]))
    flags = ["--text_column", "body", "--vocab_size", 80, "--vocab_layout", "compact", "--quiet", "--output_dir"]
    plain, table = (
        train_vocabulary(parse("--text", tmp_path / f"a.{end}", *flags, tmp_path / end)) for end in ("txt", "csv")
    )
    assert plain.get_vocab() == table.get_vocab()
    with pytest.raises(ValueError, match=r"a.csv has no 'text', only 'id', 'body'; rename it, or pass text_column"):
        train_vocabulary(parse("--text", tmp_path / "a.csv", "--output_dir", tmp_path / "none", "--quiet"))
    assert not (tmp_path / "none").exists()


def test_a_failure_leaves_the_tokenizer_that_was_there(text_file, tmp_path, monkeypatch):
    def full(self, folder):
        (folder / "tokenizer.json").write_text("half")
        raise Exception("No space left on device (os error 28)")  # as tokenizers does

    out = tmp_path / "out"
    call = [
        "--text",
        text_file,
        "--vocab_size",
        60,
        "--vocab_layout",
        "compact",
        "--quiet",
        "--overwrite",
        "--output_dir",
    ]
    train_vocabulary(parse(*call, out))
    before = {path.name: path.read_bytes() for path in out.iterdir()}
    monkeypatch.setattr(MyBertTokenizer, "save_pretrained", full)
    for folder in (out, tmp_path / "new"):
        with pytest.raises(OSError, match=rf"^{folder} could not be written \(the disk is full"):
            train_vocabulary(parse(*call, folder, "--no_do_lower_case"))
    assert {path.name: path.read_bytes() for path in out.iterdir()} == before
    assert sorted(path.name for path in tmp_path.iterdir()) == ["out", "text.txt"]


def test_train_vocabulary_failing_in_the_report_leaves_the_old_tokenizer(text_file, tmp_path, monkeypatch):
    flags = ("--text", text_file, "--vocab_layout", "compact", "--output_dir", tmp_path / "tok", "--overwrite")
    train_vocabulary(parse(*flags, "--vocab_size", 80))
    before = (tmp_path / "tok" / "vocab.txt").read_bytes()

    def fails(*_):
        raise KeyboardInterrupt

    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr("mybert.tokenization.commands.write_json", fails)
        train_vocabulary(parse(*flags, "--vocab_size", 60, "--report", tmp_path / "report.json"))
    assert (tmp_path / "tok" / "vocab.txt").read_bytes() == before
    assert not list(tmp_path.rglob(".*"))


def test_the_report_may_lie_beside_the_tokenizer(text_file, tmp_path):
    out = tmp_path / "out"
    call = ["--text", text_file, "--output_dir", out, "--vocab_size", 60, "--vocab_layout", "compact", "--quiet"]
    for flags in ([], ["--overwrite"]):
        train_vocabulary(parse(*call, "--report", out / "report.json", *flags))
        assert len(list(out.iterdir())) == 4
    with pytest.raises(ValueError, match=r"holds files that no run wrote \(report.json\)"):
        train_vocabulary(parse(*call, "--overwrite"))


def test_a_report_takes_the_place_of_nothing_else(text_file, tmp_path):
    out, notes, text = tmp_path / "out", tmp_path / "notes.json", text_file.read_text()
    notes.write_text("mine")
    call = ["--text", text_file.parent / "*.txt", "--output_dir", out, "--vocab_size", 60, "--vocab_layout", "compact"]
    with pytest.raises(ValueError, match=r"notes\.json exists; name another place or pass overwrite=True"):
        train_vocabulary(parse(*call, "--quiet", "--report", notes))
    for taken in (text_file, out / "vocab.txt"):
        with pytest.raises(ValueError, match=rf"{taken.name} is already read or written"):
            train_vocabulary(parse(*call, "--quiet", "--report", taken, "--overwrite"))
    assert (notes.read_text(), text_file.read_text()) == ("mine", text)
    assert not out.exists()
    train_vocabulary(parse(*call, "--quiet", "--report", notes, "--overwrite"))
    assert json.loads(notes.read_text())["requested_size"] == 60


def test_a_folder_is_written_by_one_process_at_a_time(text_file, tmp_path):
    call = parse("--text", text_file, "--output_dir", tmp_path / "out", "--quiet")
    with locked(tmp_path / "out"), pytest.raises(BusyError, match=f"out is being written by process {os.getpid()}"):
        train_vocabulary(call)
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("how", [signal.SIGKILL, pytest.param(signal.SIGTERM, marks=pytest.mark.slow)])
def test_workers_end_with_the_command(tmp_path, how):
    """While it waits for more text; the workers then release their handles, such as standard output."""
    script = (
        "import sys\nfrom mybert import cli\nfrom mybert.tokenization import learning\n"
        "learning.BLOCK_CHARACTERS = 1000\nsys.exit(cli.main(sys.argv[1:]))\n"
    )
    flags = ["vocab", "-", "--output_dir", tmp_path / "out", "--num_processes", "2"]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    with subprocess.Popen([sys.executable, "-c", script, *map(str, flags)], **pipes) as process:
        process.stdin.write(TEXT.encode() * 2000)  # more than is read at a time
        process.stdin.flush()
        while len(workers := psutil.Process(process.pid).children()) < 2:
            assert process.poll() is None
            time.sleep(0.05)
        process.send_signal(how)
        assert process.stdout.read().startswith(b"- begins:")  # returns when no process holds it open
        assert not psutil.wait_procs(workers, timeout=20)[1]
        process.stdin.close()
    assert not (tmp_path / "out").exists()
