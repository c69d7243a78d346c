import errno
import json
import os
import pickle
import time
from dataclasses import replace

import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

from mybert import MyBertTokenizer
from mybert.files.documents import Corpus, DocumentSettings
from mybert.files.errors import SettingError
from mybert.files.output import BusyError
from mybert.pretraining import (
    StoreSettings,
    StoreShards,
    TokenStore,
    build_token_store,
    inspect_corpus,
    read_documents,
    token_store,
)
from mybert.pretraining import build_store as module


def build(tmp_path, documents, tokenizer, **settings):
    path = tmp_path / "store.safetensors"
    settings = {"num_processes": 1, "show_progress": False} | settings
    return path, build_token_store(documents, tokenizer, path, **settings)


def arrays_of(store):
    return store.tokens[:].tolist(), store.sentence_starts[:].tolist(), store.document_starts[:].tolist()


def test_a_store_is_a_safetensors_file_with_the_tokens_of_every_sentence(tmp_path, documents, tokenizer):
    path, summary = build(tmp_path, documents, tokenizer)
    store = TokenStore(path, tokenizer)
    assert store.tokens.dtype == np.uint16
    sentence = 0
    for number, document in enumerate(documents):
        assert store.document_starts[number] == sentence
        for text in document:
            tokens = store.tokens[store.sentence_starts[sentence] : store.sentence_starts[sentence + 1]]
            assert tokens.tolist() == tokenizer(text, add_special_tokens=False)["input_ids"]
            sentence += 1
    assert store.document_starts[-1] == sentence == len(store.sentence_starts) - 1
    assert all(np.array_equal(array, getattr(store, name)) for name, array in load_file(path).items())
    assert store.summary == summary
    assert (summary.documents, summary.sentences, summary.tokens) == (len(documents), sentence, len(store.tokens))


@pytest.mark.parametrize("length", range(8))
def test_arrays_begin_at_multiples_of_eight_bytes(tmp_path, length):
    """As those of every safetensors file, whatever the length of its header."""
    arrays = {name: np.arange(3, dtype=np.uint16 if name == "tokens" else np.int64) for name in token_store.ARRAYS}
    path, parts = tmp_path / "arrays", {name: (3, [array[:1], array[1:]]) for name, array in arrays.items()}
    token_store.write_arrays(path, {"name": "x" * length}, parts, np.dtype(np.uint16))
    assert int.from_bytes(path.read_bytes()[:8], "little") % 8 == 0
    assert all(np.array_equal(array, arrays[name]) for name, array in load_file(path).items())


@pytest.mark.parametrize("num_processes", [1, 3])
def test_neither_chunks_nor_processes_show(tmp_path, documents, tokenizer, monkeypatch, num_processes):
    path, _ = build(tmp_path, documents, tokenizer)
    whole = path.read_bytes()
    for characters in (20, 200):  # less than a sentence, less than a document
        monkeypatch.setattr(module, "_CHUNK_CHARACTERS", characters)
        path, _ = build(tmp_path, iter(documents), tokenizer, num_processes=num_processes)
        assert path.read_bytes() == whole
    assert list(tmp_path.iterdir()) == [path]


def test_summary_in_words():
    summary = token_store.StoreSummary(
        documents=1200, sentences=34_567, tokens=2_000_000, unknown_tokens=500, size=4_190_000
    )
    found = "1,200 documents, 34,567 sentences, 2,000,000 tokens (0.025% unknown), 4.2 MB"
    assert str(summary) == found
    assert str(replace(summary, tokens=0, unknown_tokens=0)) == found.replace("2,000,000", "0").replace(
        "0.025", "0.000"
    )


def test_files_are_read_as_documents(tmp_path, text_file, documents, tokenizer):
    path, _ = build(tmp_path, documents, tokenizer)
    whole = path.read_bytes()
    for files in (text_file, str(text_file), [text_file], iter([str(text_file)])):
        path, _ = build(tmp_path, files, tokenizer)
        assert path.read_bytes() == whole
    text = tmp_path / "running.txt"
    text.write_text("the cat. The dog.\n\nA mat")
    path, _ = build(tmp_path, text, tokenizer, split_sentences=True)
    expected, _ = TokenStore(path), build(tmp_path, read_documents(text, split_sentences=True), tokenizer)
    assert arrays_of(TokenStore(path)) == arrays_of(expected)
    assert len(expected.sentence_starts) == 4


def test_listed_sentences_stay_whole(tmp_path, tokenizer):
    listed = tmp_path / "listed.jsonl"
    listed.write_text(json.dumps({"text": ["the cat\n\nsat", "on the mat"]}))
    for split in (False, True):
        path, summary = build(tmp_path, listed, tokenizer, split_sentences=split)
        assert (summary.documents, summary.sentences) == (1, 2)
        found = arrays_of(TokenStore(path))
        path, _ = build(tmp_path, read_documents(listed, split_sentences=split), tokenizer)
        assert arrays_of(TokenStore(path)) == found


def test_special_tokens_in_the_text_are_text(tmp_path, tokenizer):
    text = "the [MASK] sat.[SEP] on [PAD][CLS] the [UNK] mat"
    path, _ = build(tmp_path, [[text]], tokenizer)
    found = TokenStore(path).tokens[:].tolist()
    assert found == tokenizer(text, add_special_tokens=False, split_special_tokens=True).input_ids
    assert not set(found) & set(tokenizer.all_special_ids) - {tokenizer.unk_token_id}
    assert tokenizer.mask_token_id in tokenizer(text).input_ids  # the tokenizer is unchanged


KILLED = """
import sys, time
sys.argv[0] = "mybert"  # as in its command, whose import is short
from mybert import MyBertTokenizer
from mybert.pretraining import build_store
build_store._CHUNK_CHARACTERS = 200
documents = eval(sys.stdin.read())
def some():
    yield from documents[:50]
    time.sleep(600)
tokenizer = MyBertTokenizer.from_pretrained(sys.argv[1])
build_store.build_token_store(some(), tokenizer, sys.argv[2], num_processes=2, show_progress=False)
"""


def test_a_killed_build_goes_on(tmp_path, documents, tokenizer, tokenizer_folder, start_python, monkeypatch):
    path, _ = build(tmp_path, documents, tokenizer)
    whole = path.read_bytes()
    path.unlink()
    process = start_python("-c", KILLED, tokenizer_folder, path)
    process.stdin.write(repr(documents))
    process.stdin.close()
    partial = tmp_path / ".store.safetensors.partial"
    deadline = time.monotonic() + 60
    while not partial.is_dir() or len(list(partial.iterdir())) < 20:
        assert process.poll() is None
        assert time.monotonic() < deadline
        time.sleep(0.02)
    process.kill()
    process.wait()
    assert not path.exists()
    left = {file.name for file in partial.iterdir() if not file.suffix}  # a worker's temporary file has one
    torn = partial / min(left)
    torn.write_bytes(torn.read_bytes()[:-1])

    written = []
    write = module.write_arrays
    monkeypatch.setattr(module, "_CHUNK_CHARACTERS", 200)
    monkeypatch.setattr(module, "write_arrays", lambda file, *rest: (written.append(str(file)), write(file, *rest)))
    build(tmp_path, documents, tokenizer)
    assert path.read_bytes() == whole
    assert {name for name in left if any(name in file for file in written)} == {torn.name}
    assert not partial.exists()


def test_one_process_at_a_time_writes_a_store(tmp_path, documents, tokenizer):
    """A second process is told which one holds the lock; other shards are other files."""
    told = []

    def while_it_is_written():
        yield from documents
        with pytest.raises(BusyError, match=rf"store.safetensors is being written by process {os.getpid()} on "):
            build(tmp_path, documents[:3], tokenizer)
        told.append(True)

    path, _ = build(tmp_path, while_it_is_written(), tokenizer)
    assert told
    assert TokenStore(path).summary.documents == len(documents)
    assert list(tmp_path.iterdir()) == [path]


def test_build_token_store_on_a_full_disk_keeps_the_old_store(tmp_path, documents, tokenizer, monkeypatch):
    path, _ = build(tmp_path, documents, tokenizer)
    whole = path.read_bytes()
    write = module.write_arrays

    def full(file, *args):
        write(file, *args)
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    def full_at_the_end(file, *args):
        write(file, *args)
        if file.name == path.name:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    for fault in (full, full_at_the_end):
        monkeypatch.setattr(module, "write_arrays", fault)
        with pytest.raises(OSError, match=r"could not be written \(the disk is full; [\d,]+ MB are free\)"):
            build(tmp_path, documents[:3], tokenizer, num_processes=2 if fault is full else 1)
        assert path.read_bytes() == whole
    monkeypatch.setattr(module, "write_arrays", write)
    assert build(tmp_path, documents[:3], tokenizer)[1].documents == 3
    assert list(tmp_path.iterdir()) == [path]
    with pytest.raises(ValueError, match=r"store.safetensors exists; name another place"):
        build(tmp_path, documents, tokenizer, overwrite=False)
    path.write_text("my thesis")
    with pytest.raises(ValueError, match="is not a token store"):
        build(tmp_path, documents, tokenizer)
    assert path.read_text() == "my thesis"
    save_file({"weight": np.zeros(3, np.float32)}, path)  # as a model's weights
    whole = path.read_bytes()
    with pytest.raises(ValueError, match="is not a token store, so it is not replaced; name another place"):
        build(tmp_path, documents, tokenizer)
    assert path.read_bytes() == whole


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda arrays, metadata: metadata.pop("tokens"), "lacks the counts of its contents"),
        (lambda arrays, metadata: metadata.update(version="0"), "is not a token store of version .*; build it again"),
        (lambda arrays, metadata: arrays.update(tokens=arrays["tokens"][:-1]), "sentence_starts do not run from 0"),
        (
            lambda arrays, metadata: arrays.update(document_starts=arrays["document_starts"][1:]),
            "document_starts do not run from 0",
        ),
        (lambda arrays, metadata: arrays.pop("sentence_starts"), "not a complete token store"),
    ],
)
def test_a_store_that_is_not_whole_is_refused(tmp_path, store, change, message):
    metadata, arrays = token_store.store_metadata(store.path), load_file(store.path)
    change(arrays, metadata)
    save_file(arrays, tmp_path / "broken", metadata)
    with pytest.raises(ValueError, match=f"broken.*{message}"):
        TokenStore(tmp_path / "broken")


@pytest.mark.parametrize("error", [KeyboardInterrupt(), MemoryError(), OSError("full"), ValueError("row 7 is wrong")])
def test_build_token_store_that_is_ended_says_that_it_continues(tmp_path, documents, tokenizer, caplog, error):
    def ended(documents):
        yield from documents
        raise error

    with pytest.raises(type(error)), pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "_CHUNK_CHARACTERS", 200)
        build(tmp_path, ended(documents), tokenizer)
    continues = "What was tokenized is kept; the same command continues from there." in caplog.text
    assert continues == (not isinstance(error, ValueError))


def test_chunks_of_another_text_or_tokenizer_are_not_taken(tmp_path, documents, tokenizer, monkeypatch):
    monkeypatch.setattr(module, "_CHUNK_CHARACTERS", 200)

    def broken(documents):
        yield from documents
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        build(tmp_path, broken(documents[10:]), tokenizer)
    assert (tmp_path / ".store.safetensors.partial").is_dir()
    cased = MyBertTokenizer(vocab=[*tokenizer.get_vocab(), "extra"])
    path, _ = build(tmp_path, documents, cased)
    (tmp_path / "fresh").mkdir()
    fresh, _ = build(tmp_path / "fresh", documents, cased)
    assert path.read_bytes() == fresh.read_bytes()


def test_appending_is_building_from_both(tmp_path, documents, tokenizer, monkeypatch):
    path, together = build(tmp_path, documents, tokenizer)
    arrays = arrays_of(TokenStore(path))
    monkeypatch.setattr(token_store, "_COPIED_AT_A_TIME", 7)
    build(tmp_path, documents[:35], tokenizer)
    encoded = []
    encode = module.BulkEncoder.encode
    monkeypatch.setattr(module.BulkEncoder, "encode", lambda self, lines: encoded.extend(lines) or encode(self, lines))
    path, summary = build(tmp_path, documents[35:], tokenizer, append=True)
    assert arrays_of(TokenStore(path)) == arrays
    assert replace(summary, size=0) == replace(together, size=0)
    assert encoded.count("") == len(documents) - 35
    path.unlink()
    path, _ = build(tmp_path, documents, tokenizer, append=True)
    assert arrays_of(TokenStore(path)) == arrays
    with pytest.raises(ValueError, match="another tokenizer"):
        build(tmp_path, documents, OTHER, append=True)
    assert arrays_of(TokenStore(path)) == arrays


@pytest.mark.parametrize("error", [KeyboardInterrupt, OSError("full"), MemoryError])
def test_token_store_built_failing_after_an_append_appends_once(tmp_path, documents, tokenizer, error):
    _, together = build(tmp_path, documents, tokenizer)
    path, _ = build(tmp_path, documents[:35], tokenizer)
    settings = {"store": StoreSettings(append=True), "overwrite": False, "show_progress": False}
    for _ in range(2):
        with (
            pytest.raises((KeyboardInterrupt, OSError, MemoryError)),
            module.token_store_built(documents[35:], tokenizer, path, **settings),
        ):
            raise error
    for _ in range(2):
        _, summary = build(tmp_path, documents[35:], tokenizer, append=True)
        assert replace(summary, size=0) == replace(together, size=0)
    assert list(tmp_path.iterdir()) == [path]
    _, summary = build(tmp_path, documents[:1], tokenizer, append=True)  # another text
    assert summary.documents == together.documents + 1


def test_token_store_built_failing_afterwards_goes_on_without_overwrite(tmp_path, documents, tokenizer):
    path = tmp_path / "store"
    settings = {"store": StoreSettings(), "overwrite": False, "show_progress": False}
    with pytest.raises(KeyboardInterrupt), module.token_store_built(documents, tokenizer, path, **settings):
        raise KeyboardInterrupt
    before = path.stat()
    with (
        pytest.raises(ValueError, match="store exists"),
        module.token_store_built(documents[1:], tokenizer, path, **settings),
    ):
        pytest.fail("another text")
    with module.token_store_built(documents, tokenizer, path, **settings):
        pass
    assert path.stat() == before
    assert list(tmp_path.iterdir()) == [path]
    with (
        pytest.raises(ValueError, match="store exists"),
        module.token_store_built(documents, tokenizer, path, **settings),
    ):
        pytest.fail("nothing is left to do")


def test_shards_of_files_hold_the_text_in_its_order_and_read_no_other(tmp_path, documents, tokenizer):
    files = [tmp_path / f"{number}.txt" for number in range(5)]
    for number, file in enumerate(files):
        file.write_text("\n\n".join("\n".join(document) for document in documents[12 * number : 12 * number + 12]))
    whole, _ = build(tmp_path, files, tokenizer)
    settings = {"num_shards": 3, "shard_by": "files", "filter": ["symbol_lines"], "show_progress": False}
    counts = []
    for index in (2, 1, 0):
        counts.append(build_token_store(files, tokenizer, tmp_path / "s", shard_index=index, **settings).documents)
        files[-1].write_bytes(b"\xff")  # which only the last shard reads
    assert counts == [24, 24, 12]
    assert arrays_of(TokenStore(tmp_path / "s", tokenizer)) == arrays_of(TokenStore(whole))


@pytest.mark.parametrize(
    ("files", "settings", "message"),
    [
        (2, {}, "files and there are 2 of them"),
        (0, {}, "files and the documents are in memory"),
        (3, {"filter": ["duplicates"]}, "files and filter has duplicates"),
        (3, {"filter": ["other_scripts"]}, r"filter has other_scripts, .*, or scripts\."),
    ],
)
def test_shards_that_files_do_not_give(tmp_path, documents, tokenizer, files, settings, message):
    paths = [tmp_path / f"{number}.txt" for number in range(files)]
    for path in paths:
        path.write_text("the cat\n")
    settings = {"num_shards": 3, "shard_by": "files", "show_progress": False} | settings
    with pytest.raises(SettingError, match=message) as error:
        build_token_store(paths or documents, tokenizer, tmp_path / "s", **settings)
    assert error.value.option == "shard_by"
    if paths:
        with pytest.raises(SettingError, match=r"files and (the documents are a Corpus|filter has)"):
            build_token_store(Corpus(paths, DocumentSettings()), tokenizer, tmp_path / "s", **settings)
    else:
        frame = pytest.importorskip("pandas").DataFrame({"text": ["the cat"] * 9})
        with pytest.raises(ValueError, match=message):
            build_token_store(frame, tokenizer, tmp_path / "s", **settings)
    assert not (tmp_path / "s").exists()


def test_shards_come_from_batches_of_their_numbers(tmp_path, text_file, tokenizer):
    pandas = pytest.importorskip("pandas")
    settings = {"num_shards": 3, "filter": ["duplicates"]}
    expected = [
        build_token_store(text_file, tokenizer, tmp_path / "a", shard_index=index, show_progress=False, **settings)
        for index in range(3)
    ]
    shards = pickle.loads(pickle.dumps(StoreShards([text_file], tokenizer, tmp_path / "b", **settings)))
    first = shards({"id": np.array([1])})  # as Ray Data hands numbers over
    others = pandas.concat(shards(iter([pandas.DataFrame({"id": [2, 0]})])))  # as Spark does
    found = {1: {name: values[0] for name, values in first.items()}, **others.set_index("id").T.to_dict()}
    assert [{name: found[index][name] for name in vars(summary)} for index, summary in enumerate(expected)] == [
        vars(summary) for summary in expected
    ]
    assert {file.name: file.read_bytes() for file in (tmp_path / "a").iterdir()} == {
        file.name: file.read_bytes() for file in (tmp_path / "b").iterdir()
    }
    names = StoreShards.schema.replace(" long", "").split(", ")
    assert names == list(first) == list(others)
    with pytest.raises(SettingError) as error:
        shards({"id": [3]})
    assert (error.value.option, error.value.value) == ("shard_index", 3)
    with pytest.raises(ValueError, match=r"no column 'id', .* 'a'"):
        shards({"a": [3]})
    for settings, option in (({"num_shards": 0}, "num_shards"), ({"num_shards": 3, "append": True}, "append")):
        with pytest.raises(SettingError) as error:
            StoreShards(text_file, tokenizer, tmp_path / "c", **settings)
        assert error.value.option == option


def test_shards_are_one_store(tmp_path, documents, tokenizer):
    folder = tmp_path / "shards"
    for index in (2, 0, 1):
        build_token_store(documents, tokenizer, folder, shard_index=index, num_shards=3, show_progress=False)
    order = [document for index in range(3) for document in documents[index::3]]
    path, _ = build(tmp_path, order, tokenizer)
    whole, shards = TokenStore(path), TokenStore(folder, tokenizer)
    assert arrays_of(shards) == arrays_of(whole)
    generator = np.random.default_rng(0)
    for name in token_store.ARRAYS:
        one, many = getattr(whole, name), getattr(shards, name)
        assert len(many) == len(one)
        assert many.dtype == one.dtype
        positions = generator.integers(-len(one), len(one), (3, 20))
        assert np.array_equal(many[positions], one[positions])
        assert many[-1] == one[-1]
        assert many[len(one) // 2] == one[len(one) // 2]
        for begin, end in np.sort(generator.integers(0, len(one), (20, 2)), axis=1):
            assert np.array_equal(many[begin:end], one[begin:end])
    assert shards.summary.tokens == whole.summary.tokens
    assert arrays_of(pickle.loads(pickle.dumps(shards))) == arrays_of(whole)
    (folder / "tokens-00001-of-00003.safetensors").unlink()
    with pytest.raises(FileNotFoundError, match="lacks 1 of 3 shards: tokens-00001-of-00003"):
        TokenStore(folder)
    with pytest.raises(ValueError, match="Shard 1 of 2 is empty"):
        build_token_store([["the cat"]], tokenizer, folder, shard_index=1, num_shards=2, show_progress=False)


def test_empty_sentences_and_documents_are_left_out(tmp_path, tokenizer):
    path, summary = build(tmp_path, [["the cat", "\x00"], ["\x00"], [], ["dog", "xyzzy"]], tokenizer)
    assert (summary.documents, summary.sentences, summary.tokens, summary.unknown_tokens) == (2, 3, 4, 1)
    assert TokenStore(path).document_starts.tolist() == [0, 1, 3]
    assert str(summary) == "2 documents, 3 sentences, 4 tokens (25.000% unknown), 0.0 MB"


def test_empty_sentences_end_no_document(tmp_path, tokenizer):
    path, _ = build(tmp_path, [["the cat", "", "a dog"], [""]], tokenizer)
    assert TokenStore(path).document_starts.tolist() == [0, 2]


@pytest.mark.parametrize(("sentences", "is_said"), [(2, True), (3, False)])
def test_documents_of_few_sentences_are_said(tmp_path, tokenizer, caplog, sentences, is_said):
    _, summary = build(tmp_path, [["the cat"] * sentences] * 4, tokenizer)
    summary.log("Corpus")
    assert ("Documents have 2.0 sentences on average" in caplog.text) == is_said
    assert ("--document_end file" in caplog.text) == is_said


def test_large_vocabularies_need_four_bytes(tmp_path):
    specials = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
    large = MyBertTokenizer(vocab=[*specials, *(f"w{number}" for number in range(70_000))])
    path, _ = build(tmp_path, [["w69999 w0"], ["w1"]], large)
    store = TokenStore(path)
    assert store.tokens.dtype == np.uint32
    assert store.tokens.tolist() == [70_004, 5, 6]


OTHER = MyBertTokenizer(vocab=["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "the"])


@pytest.mark.parametrize(
    ("documents", "settings", "message"),
    [
        ([["\x00"]], {}, "corpus is empty"),
        ([["the cat"], "a dog"], {}, "Document 1 is a str"),
        ([["the cat", 5]], {}, "Document 0 holds a int"),
        ([["the cat"]], {"split": True}, "split"),
    ],
)
def test_build_token_store_wrong_settings_leave_no_file(tmp_path, tokenizer, documents, settings, message):
    with pytest.raises((ValueError, TypeError), match=message):
        build(tmp_path, documents, tokenizer, **settings)
    assert list(tmp_path.iterdir()) == []


def test_places_that_hold_no_store(tmp_path, documents, tokenizer, store):
    with pytest.raises(ValueError, match="is a link or folder"):
        build_token_store(documents, tokenizer, tmp_path, show_progress=False)
    pieces = tokenizer.convert_ids_to_tokens(range(len(tokenizer)))
    TokenStore(store.path, MyBertTokenizer(vocab=pieces))
    for settings in ({"do_lower_case": False}, {"tokenize_chinese_chars": False}, {"vocab": pieces[:-1]}):
        with pytest.raises(ValueError, match="another tokenizer"):
            TokenStore(store.path, MyBertTokenizer(**{"vocab": pieces} | settings))
    with pytest.raises(FileNotFoundError, match=r"no token store .*missing"):
        TokenStore(tmp_path / "missing")
    with pytest.raises(FileNotFoundError, match="no token store in"):
        TokenStore(tmp_path)
    (tmp_path / "text").write_bytes(b"not a store at all")
    with pytest.raises(ValueError, match="text is not a token store"):
        TokenStore(tmp_path / "text")
    for count in (2, 3):
        (tmp_path / token_store.SHARD.format(0, count)).touch()
    with pytest.raises(ValueError, match=r"holds shards of several stores \(of 2, 3 shards\); expected one store"):
        TokenStore(tmp_path)


def test_documents_in_memory_are_cleaned_and_not_divided(tmp_path, tokenizer, user_error):
    marked, plain = [["the <b>cat</b> sat", "<p>"], ["a &lt; dog"]], [["the cat sat"], ["a < dog"]]
    stores = [tmp_path / name for name in ("marked", "plain")]
    for path, documents in zip(stores, (marked, plain), strict=True):
        build_token_store(documents, tokenizer, path, clean=["html"], show_progress=False)
    assert np.array_equal(*(TokenStore(path).tokens for path in stores))
    assert inspect_corpus(marked, clean=["html"], show_progress=False).read.characters == len("the cat sata < dog")
    for name, value in (("join_lines", True), ("heading_pattern", "^the"), ("document_end", "file")):
        with user_error(f"--{name}"):
            build_token_store(marked, tokenizer, tmp_path / "new", show_progress=False, **{name: value})
