import errno
import json
import logging
import os

import pytest

from mybert.command_line.flags import CommandParser
from mybert.pretraining import DataArguments, TokenStore, prepare_data


@pytest.fixture
def arguments(tmp_path, text_file, tokenizer_folder):
    """Makes arguments as the command does, with a tokenizer's folder and a text."""

    def make(*flags, text=(text_file,)):
        names = ["--text", *map(str, text)] if text else []
        flags = ["--output", str(tmp_path / "store"), "--tokenizer", tokenizer_folder, *names, *flags]
        return DataArguments(**CommandParser("data").given([*flags, "--num_processes", "1"]))

    return make


def test_a_store_is_built_and_an_example_shown(tmp_path, arguments, store, caplog):
    with caplog.at_level(logging.INFO, logger="mybert"):
        summary = prepare_data(arguments("--quiet"))
    assert summary.documents == 60
    assert (tmp_path / "store").read_bytes() == store.path.read_bytes()
    assert all(part in caplog.text for part in ("60 documents", "[CLS]", "[MASK]"))


@pytest.mark.parametrize(("line", "is_said"), [("the cat sat on the mat", False), ("고양이가 깔개 위에 앉았다", True)])
def test_a_vocabulary_of_another_language_is_said(tmp_path, arguments, caplog, line, is_said):
    text = tmp_path / "text"
    text.write_text(f"{line}\n{line}\n\n" * 9, encoding="utf-8")
    for settings in (arguments("--quiet", text=[text]), arguments("--quiet", text=[])):  # built, and looked at
        caplog.clear()
        prepare_data(settings)
        assert ("100 % of the tokens are [UNK]" in caplog.text) == is_said


@pytest.mark.parametrize(
    ("objective", "label"), [("mlm+nsp", "is_random_next"), ("mlm+sop", "is_swapped"), ("mlm", None), ("ltr", None)]
)
def test_prepare_data_export_has_fields_of_google(tmp_path, arguments, objective, label):
    path = tmp_path / "out" / "examples.jsonl"
    prepare_data(arguments("--export", str(path), "--objective", objective, "--max_length", "40"))
    examples = [json.loads(line) for line in path.read_text().splitlines()]
    assert 20 <= len(examples) <= 100
    names = {"tokens", "segment_ids", "masked_lm_positions", "masked_lm_labels"}
    for example in examples:
        assert example.keys() == names | ({label} if label else set())
        tokens = example["tokens"]
        assert tokens[0] == "[CLS]"
        assert tokens.count("[SEP]") == (2 if label else 1)
        assert len(example["segment_ids"]) == len(tokens) <= 40
        assert len(example["masked_lm_positions"]) == len(example["masked_lm_labels"])
        if objective == "ltr":
            assert example["masked_lm_labels"] == tokens[1:]
        else:
            assert len(example["masked_lm_positions"]) == max(1, round(0.15 * len(tokens)))
    assert objective == "ltr" or any("[MASK]" in example["tokens"] for example in examples)
    if label:
        assert {example[label] for example in examples} == {True, False}
    assert sorted(entry.name for entry in path.parent.iterdir()) == ["examples.jsonl"]


def test_a_look_at_a_store(tmp_path, arguments):
    with pytest.raises(FileNotFoundError, match="There is no token store"):
        prepare_data(arguments(text=()))
    built = prepare_data(arguments())
    flags = ["--export", str(tmp_path / "e.jsonl"), "--masking_unit", "word", "--max_predictions", "2"]
    assert prepare_data(arguments(*flags, text=())) == built
    examples = [json.loads(line) for line in (tmp_path / "e.jsonl").read_text().splitlines()]
    assert max(len(example["masked_lm_positions"]) for example in examples) == 2


@pytest.mark.parametrize(
    "flags",
    [("--append",), ("--filter", "duplicates"), ("--split_sentences",), ("--shard_index", "1"), ("--overwrite",)],
)
def test_what_is_done_with_text_is_an_error_without_text(arguments, user_error, flags):
    more = ("--num_shards", "2") if flags[0] == "--shard_index" else ()
    with user_error(f"{flags[0]} --text"):
        arguments(*flags, *more, text=())


def test_prepare_data_shards_make_a_whole_store(tmp_path, arguments, caplog):
    with caplog.at_level(logging.INFO, logger="mybert"):
        prepare_data(arguments("--num_shards", "2", "--shard_index", "1"))
        assert "others are still missing" in caplog.text
        assert "[CLS]" not in caplog.text
        prepare_data(arguments("--num_shards", "2"))
        assert "[CLS]" in caplog.text
    assert TokenStore(tmp_path / "store").summary.documents == 60


def test_append_and_overwrite(arguments):
    assert prepare_data(arguments()).documents == 60
    assert prepare_data(arguments("--append")).documents == 120
    assert prepare_data(arguments("--overwrite")).documents == 60


@pytest.mark.parametrize("flags", [(), ("--append",)])
def test_prepare_data_export_failing_is_made_by_the_same_call(tmp_path, arguments, monkeypatch, flags):
    path = tmp_path / "e"
    flags = (*flags, "--export", str(path))

    def full_disk(*_):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with monkeypatch.context() as patch, pytest.raises(OSError, match=r"e could not be written .the disk is full"):
        patch.setattr("mybert.pretraining.commands._readable", full_disk)
        prepare_data(arguments(*flags))
    assert prepare_data(arguments(*flags)).documents == 60
    assert len(path.read_text().splitlines()) == 100
    assert not list(tmp_path.glob(".*"))


def test_one_document_is_a_store_but_no_pair(tmp_path, arguments, caplog):
    (tmp_path / "one.txt").write_text("the cat sat. the dog ran.\nthe cat.")
    assert prepare_data(arguments(text=(tmp_path / "one.txt",))) is None  # so no call of pretrain is suggested
    assert prepare_data(arguments("--objective", "mlm", text=())).documents == 1
    assert "no example to show, or to pretrain on: " in caplog.text
    assert "blank line between documents" in caplog.text
    for text in ((), (tmp_path / "one.txt",)):
        with pytest.raises(ValueError, match=r"one document.*blank line between documents"):
            prepare_data(arguments("--export", str(tmp_path / "e"), "--overwrite", text=text))
    assert not list(tmp_path.glob(".*"))  # chunks of a call that fails in any case are of no use to the next one
    prepare_data(arguments("--export", str(tmp_path / "e"), "--objective", "mlm", text=()))
    assert len((tmp_path / "e").read_text().splitlines()) == 1


def test_outputs_that_are_there_stay(tmp_path, arguments):
    (tmp_path / "e").write_text("mine")
    with pytest.raises(ValueError, match="e exists; name another place or pass overwrite=True"):
        prepare_data(arguments("--export", str(tmp_path / "e")))
    (tmp_path / "store").write_text("mine too")
    with pytest.raises(ValueError, match="store is not a token store"):
        prepare_data(arguments("--overwrite"))
    assert (tmp_path / "store").read_text() == "mine too"
    (tmp_path / "store").unlink()
    prepare_data(arguments("--export", str(tmp_path / "e"), "--overwrite"))
    assert (tmp_path / "e").read_text().count("tokens") == 100


def test_examples_take_the_place_of_nothing_that_is_read(tmp_path, arguments, text_file):
    text = text_file.read_text()
    for taken in (text_file, tmp_path / "store"):
        with pytest.raises(ValueError, match=rf"{taken} is already read or written"):
            prepare_data(arguments("--export", str(taken), "--overwrite", text=(text_file.parent / "*.txt",)))
    assert text_file.read_text() == text
    assert not (tmp_path / "store").exists()


def test_building_a_store_imports_no_torch(tmp_path, text_file, tokenizer_folder, run_python):
    """It would use half of the memory of a worker process of the command, where one is started afresh."""
    code = (
        "import sys; sys.argv[0] = 'mybert';"
        "from mybert import MyBertTokenizer; from mybert.pretraining import build_token_store;"
        "tokenizer = MyBertTokenizer.from_pretrained(sys.argv[1]);"
        "build_token_store(sys.argv[2], tokenizer, sys.argv[3], show_progress=False);"
        "assert 'torch' not in sys.modules"
    )
    run_python("-c", code, tokenizer_folder, text_file, tmp_path / "s")
