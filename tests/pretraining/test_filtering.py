"""What `filter` removes from a corpus and what it keeps."""

import json
import logging
from collections import Counter
from itertools import pairwise

import pytest
from safetensors.numpy import load_file, save_file
from tqdm import tqdm

from mybert import MyBertTokenizer
from mybert.command_line.flags import CommandParser
from mybert.pretraining import (
    CorpusFilter,
    DataArguments,
    FilterSettings,
    TokenStore,
    build_store,
    build_token_store,
    filtering,
    inspect_corpus,
    plan_pretraining,
    prepare_data,
    pretrain,
)
from mybert.pretraining.build_store import documents_of_lines, lines_of_documents
from mybert.pretraining.filtering import TextCounts
from mybert.pretraining.scripts import count_scripts, script_names
from mybert.pretraining.token_store import store_metadata

ENGLISH = ["The cat sat on the mat.", "It was happy there."]
RUSSIAN = ["Кошка сидела на коврике, и ей было хорошо.", "Она спала."]


def kept(documents, *reasons, **settings):
    """The kept documents, and the report."""
    corpus = CorpusFilter(reasons, FilterSettings(**settings))
    return list(filter(None, documents_of_lines(corpus.lines(lines_of_documents(documents))))), corpus.report


def test_lines_of_symbols_go_and_empty_documents_with_them():
    document = ["The year 1998.", "* * *", "12.5 | 13.8 | 14.0 EUR", "1914-1918", "naïve café", "हिन्दी में", "!? a b"]
    found, report = kept([document, ["----", "2, 3"], ENGLISH], "symbol_lines")
    assert found == [["The year 1998.", "naïve café", "हिन्दी में", "!? a b"], ENGLISH]
    assert vars(report.dropped["symbol_lines"]) == {"documents": 1, "lines": 5, "characters": 5 + 22 + 9 + 4 + 4}
    assert vars(report.kept()) == {"documents": 2, "lines": 6, "characters": 14 + 10 + 10 + 6 + 23 + 19}
    assert "document 2: ---- 2, 3" in report.shown_examples()
    korean = ["제75회(2003년)부터 제80회(2008년)까지 도입되었다.", "1948년 (쇼와 23년) 8월 10일에 창업."]
    talk = [*korean, '"No."', '"Ah!" "Ha!"', "I--I--"]
    assert kept([talk], "symbol_lines")[0] == [talk]
    assert kept([['{"a": [1, 2, 3], "b": 12}', "a=1;b=2;c=3"]], "symbol_lines")[0] == []
    assert kept([["a 1 2 3"]], "symbol_lines", symbol_share=0.75)[0] == [["a 1 2 3"]]
    assert kept([["a 1 2 3"]], "symbol_lines", symbol_share=0.74)[0] == []


def test_documents_of_another_script_go(caplog):
    caplog.set_level(logging.INFO, "mybert")
    mixed = ["Достоевский wrote The Brothers Karamazov and other novels."]
    numbers = ["1 2 3"]
    assert kept([numbers] * 2, "other_scripts")[0] == [numbers] * 2 and "The text is" not in caplog.text
    documents = [ENGLISH, RUSSIAN, mixed, numbers, *[ENGLISH] * 40]
    found, report = kept(documents, "other_scripts")
    assert found == [ENGLISH, mixed, numbers, *[ENGLISH] * 40]
    assert report.dropped["other_scripts"].documents == 1
    assert report.examples["other_scripts"][0].startswith("document 2 (Cyrillic): Кошка")
    # Both are scripts of the corpus if each has a sufficient share, or if they are named.
    assert len(kept([ENGLISH, RUSSIAN, ENGLISH], "other_scripts")[0]) == 3
    assert kept(documents, "other_scripts", scripts=["cyrillic"])[0] == [RUSSIAN, numbers]
    assert len(kept(documents, "other_scripts", scripts=["Latin", "Cyrillic"])[0]) == len(documents)


def test_scripts_are_those_of_the_beginning(monkeypatch, caplog):
    monkeypatch.setattr(filtering, "_SAMPLE_CHARACTERS", 100)
    with caplog.at_level(logging.INFO, logger="mybert"):
        found, _ = kept([ENGLISH, ENGLISH, ENGLISH, *[RUSSIAN] * 20], "other_scripts")
    assert found == [ENGLISH] * 3
    assert "The text is Latin, judging by its beginning (mybert data --scripts sets others)." in caplog.text


def test_count_scripts_counts_words_by_script():
    assert count_scripts("Aé ﬁ ｂ 𝐂 ²") == Counter(Latin=5)
    text = "漢字 カタカナ ｶﾅ ひらがな 한국어 мир 12 !?"
    assert count_scripts(text) == Counter(Han=2, Katakana=6, Hiragana=4, Hangul=3, Cyrillic=3)
    assert {"Latin", "Cyrillic", "Greek", "Arabic", "Hangul", "Han", "Thai", "Devanagari"} <= script_names()


def test_documents_of_many_tokens_go(tokenizer):
    rare = ["xyzzy . . . . ."]
    settings = {"filter": ["many_tokens"], "tokens_per_character": 0.35, "show_progress": False}
    report = inspect_corpus([ENGLISH, rare, ENGLISH], tokenizer, **settings)
    assert report.dropped["many_tokens"].documents == 1
    assert report.examples["many_tokens"] == ["document 2 (0.400 tokens per character): xyzzy . . . . ."]
    assert "Tokens per character: up to 0.28 in half of the documents, 0.40 in 90 %" in str(report)
    assert report.token_shares == Counter({28: 2, 40: 1})
    assert kept([rare], "many_tokens")[0] == [rare]  # no encoder to count tokens


@pytest.mark.parametrize("is_dry", [True, False])
def test_progress_of_a_filtered_corpus_counts_what_is_read(is_dry, tokenizer, tmp_path, monkeypatch):
    shown = []
    monkeypatch.setattr(build_store, "progress_bar", lambda **settings: shown.append(tqdm(disable=True)) or shown[0])
    monkeypatch.setattr(tqdm, "update", lambda bar, count: shown.append(count))
    monkeypatch.setattr(build_store, "_STEP_CHARACTERS", 30)
    documents, settings = [ENGLISH, *[RUSSIAN] * 3], {"filter": ["other_scripts"], "scripts": ["Latin"]}
    if is_dry:
        inspect_corpus(documents, **settings)
    else:
        build_token_store(documents, tokenizer, tmp_path / "store", **settings)
    per_document = [len("\n".join((*document, "\n"))) for document in documents]
    assert sum(shown[1:]) == sum(per_document) and len(shown) > len(documents)


def test_exact_duplicates_go_and_the_first_stays():
    other_order = ENGLISH[::-1]
    found, report = kept([ENGLISH, RUSSIAN, ENGLISH, other_order, RUSSIAN, ENGLISH[:1]], "duplicates")
    assert found == [ENGLISH, RUSSIAN, other_order, ENGLISH[:1]]
    assert vars(report.dropped["duplicates"])["documents"] == 2
    assert report.examples["duplicates"][1] == "document 5 (as document 2): " + " ".join(RUSSIAN)
    assert kept([["a\ud800"], ["a\ud800"]], "duplicates")[0] == [["a\ud800"]]
    assert list(CorpusFilter(["duplicates"], FilterSettings()).lines(["a", "", "b"])) == ["a", "", "b", ""]


def test_filter_duplicates_without_space_for_their_index_is_an_error(monkeypatch):
    connect = filtering.sqlite3.connect

    def small(*places, **options):
        database = connect(*places, **options)
        database.execute("PRAGMA max_page_count = 2")  # as on a full disk
        return database

    monkeypatch.setattr(filtering.sqlite3, "connect", small)
    message = r"not be kept in a temporary file \(database or disk is full\); set SQLITE_TMPDIR to a folder with more"
    with pytest.raises(OSError, match=message):
        kept(([str(number)] for number in range(1000)), "duplicates")


def test_filter_duplicates_of_dropped_documents_are_kept():
    """A filtered document may have duplicates; a dropped document has none."""
    found, report = kept([["the cat", "***"], ["the cat"], RUSSIAN, RUSSIAN], "duplicates", "symbol_lines")
    assert found == [["the cat"], RUSSIAN]
    found, report = kept([RUSSIAN, RUSSIAN, *[ENGLISH] * 60], "duplicates", "other_scripts")
    assert report.dropped["other_scripts"].documents == 2
    assert report.dropped["duplicates"].documents == 59


@pytest.fixture
def clean(documents):
    """Documents no two of which are equal."""
    return [[*document, f"the cat {chr(97 + n % 26)} {chr(97 + n // 26)}"] for n, document in enumerate(documents)]


REASONS = ["symbol_lines", "other_scripts", "duplicates"]


@pytest.fixture
def dirty(clean):
    """Documents with duplicates and lines of symbols among them."""
    return [
        part
        for number, document in enumerate(clean)
        for part in ([[*document, "***"]] if number % 7 == 0 else [document, clean[number // 2]])
    ]


@pytest.mark.parametrize("num_processes", [1, 2])
def test_neither_chunks_nor_processes_nor_shards_show(tmp_path, clean, dirty, tokenizer, monkeypatch, num_processes):
    settings = {"filter": REASONS, "show_progress": False, "num_processes": num_processes}
    build_token_store(clean, tokenizer, tmp_path / "clean", show_progress=False)
    expected, place = sorted(texts_of(TokenStore(tmp_path / "clean"))), tmp_path / "store"
    for characters in (1 << 22, 100):
        monkeypatch.setattr(build_store, "_CHUNK_CHARACTERS", characters)
        build_token_store(iter(dirty), tokenizer, place, **settings)
        store = TokenStore(place)
        assert sorted(texts_of(store)) == expected
        whole = place.read_bytes()
        build_token_store(dirty, tokenizer, place, **settings)
        assert place.read_bytes() == whole
    for index in range(3):
        build_token_store(dirty, tokenizer, tmp_path / "shards", shard_index=index, num_shards=3, **settings)
    shards = TokenStore(tmp_path / "shards")
    assert sorted(texts_of(shards)) == expected
    counts = [json.loads(store_metadata(file)["left_out"]) for file in sorted((tmp_path / "shards").iterdir())]
    for reason, amount in json.loads(store.metadata["left_out"]).items():
        for name, value in amount.items():
            assert value == sum(count[reason][name] for count in counts)


def texts_of(store):
    starts = store.sentence_starts[:][store.document_starts[:]]
    return [store.tokens[begin:end].tolist() for begin, end in pairwise(starts)]


def test_a_store_says_what_was_left_out(tmp_path, dirty, tokenizer):
    path = tmp_path / "store"
    build_token_store(dirty, tokenizer, path, show_progress=False)
    assert not {"filters", "left_out"} & store_metadata(path).keys()
    with pytest.raises(ValueError, match="store was built with other filters"):
        build_token_store(dirty, tokenizer, path, append=True, filter=["duplicates"], show_progress=False)
    build_token_store(dirty, tokenizer, path, filter=["duplicates"], show_progress=False)
    metadata = store_metadata(path)
    assert json.loads(metadata["filters"])["filter"] == ["duplicates"]
    left_out = json.loads(metadata["left_out"])
    assert left_out["read"]["documents"] == len(dirty)
    assert left_out["duplicates"]["documents"] == len(dirty) - TokenStore(path).summary.documents
    with pytest.raises(ValueError, match="store was built with other filters"):
        build_token_store(dirty, tokenizer, path, append=True, show_progress=False)
    build_token_store(dirty, tokenizer, path, append=True, filter=["duplicates"], show_progress=False)
    assert json.loads(store_metadata(path)["left_out"])["read"]["documents"] == 2 * len(dirty)
    for index, drop in enumerate((["duplicates"], [])):
        place = {"shard_index": index, "num_shards": 2, "filter": drop}
        build_token_store(dirty, tokenizer, tmp_path / "shards", show_progress=False, **place)
    with pytest.raises(ValueError, match="shards that were built with different filters"):
        TokenStore(tmp_path / "shards")


@pytest.fixture
def earlier_store(tmp_path, dirty, tokenizer):
    """Build a store, or a shard, with the metadata of one with these filters from the first builds."""

    def build(*reasons, **settings):
        path = tmp_path / "store"
        build_token_store(dirty, tokenizer, path, filter=["duplicates"], show_progress=False, **settings)
        file = min(path.iterdir()) if path.is_dir() else path
        metadata = store_metadata(file)
        filters = json.loads(metadata["filters"]) | {"filter": [*reasons], "near_duplicate_similarity": 0.7}
        save_file(load_file(file), file, metadata | {"filters": json.dumps(filters, sort_keys=True)})
        return path

    return build


def test_append_continues_stores_of_the_first_builds(earlier_store, dirty, tokenizer):
    """They recorded a threshold of near duplicates with every filter."""
    again = {"append": True, "filter": ["duplicates"], "show_progress": False}
    path = earlier_store("duplicates")
    before = TokenStore(path).summary.documents
    assert build_token_store(dirty, tokenizer, path, **again).documents == 2 * before
    path.unlink()
    path = earlier_store("duplicates", "near_duplicates")
    assert TokenStore(path).summary.documents == before
    with pytest.raises(ValueError, match=r"other filters \(duplicates, near_duplicates, and their settings\)"):
        build_token_store(dirty, tokenizer, path, **again)


def test_shards_of_the_first_builds_fit_those_of_today(earlier_store, dirty, tokenizer):
    path = earlier_store("duplicates", num_shards=2)
    shard = {"filter": ["duplicates"], "num_shards": 2, "shard_index": 1}
    build_token_store(dirty, tokenizer, path, show_progress=False, **shard)
    assert TokenStore(path).summary.documents > 0


def of_flags(*flags):
    return DataArguments(**CommandParser("data").given(["--num_processes", "1", *map(str, flags)]))


def test_a_dry_run_writes_nothing(tmp_path, dirty, caplog):
    text = tmp_path / "text.txt"
    text.write_text("\n".join(lines_of_documents([*dirty, RUSSIAN])))
    with caplog.at_level(logging.INFO, logger="mybert"):
        report = prepare_data(of_flags("--text", text, "--dry_run"))
    assert list(tmp_path.iterdir()) == [text]
    assert report.read.documents == len(dirty) + 1
    assert report.dropped["other_scripts"].documents == 1
    assert report.dropped["symbol_lines"].lines == 9
    assert "What each filter alone would leave out" in caplog.text and "document 1: ***" in caplog.text
    assert "needs a tokenizer" in caplog.text
    with caplog.at_level(logging.INFO, logger="mybert"):
        report = prepare_data(of_flags("--text", text, "--dry_run", "--filter", "duplicates"))
    assert list(report.dropped) == ["duplicates"] and "What would be left out" in caplog.text
    caplog.clear()
    text.write_text("the cat\n\na dog\n")
    with caplog.at_level(logging.INFO, logger="mybert"):
        prepare_data(of_flags("--text", text, "--dry_run", "--filter", "duplicates"))
    assert "What would be left out" in caplog.text and "For example" not in caplog.text


def test_inspect_corpus_without_filter_judges_each_reason_alone():
    documents = [RUSSIAN, *[ENGLISH] * 3, RUSSIAN, ["***", "the cat"], ["***", "the cat"]]
    report = inspect_corpus(documents, scripts=["Latin"])
    amounts = {"symbol_lines": (0, 2), "other_scripts": (2, 4), "duplicates": (4, 8)}
    for reason, (whole, lines) in amounts.items():
        settings = {"scripts": ["Latin"]} if reason == "other_scripts" else {}
        alone = inspect_corpus(documents, filter=[reason], **settings)
        assert report.dropped[reason] == alone.dropped[reason]
        assert (report.dropped[reason].documents, report.dropped[reason].lines) == (whole, lines)
    assert report.kept() == TextCounts(documents=2, lines=len(ENGLISH) + 1, characters=sum(map(len, ENGLISH)) + 7)
    assert "kept by all" in str(report)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"scripts": ["Klingon"]}, "scripts has 'Klingon'"),
        ({"filter": ["copies"]}, "--filter"),
        ({"symbol_share": 0.3}, "symbol_share is 0.3 and filter lacks symbol_lines"),
        ({"filter": ["duplicates"], "scripts": ["Latin"]}, r"scripts is \['Latin'\] and filter lacks other_scripts"),
        ({"filter": ["other_scripts"], "scripts": ["Cyrillic"]}, r"corpus is empty.*\(other_scripts"),
    ],
)
def test_settings_that_do_not_fit(tmp_path, tokenizer, settings, message, user_error):
    with user_error(message):
        build_token_store([ENGLISH], tokenizer, tmp_path / "s", **settings)
    assert not any(tmp_path.iterdir())


def test_reasons_that_cannot_be_checked(tmp_path, tokenizer):
    for reason, message in (("many_tokens", "tokenizer is not set"), ("duplicates", "filter lacks many_tokens")):
        settings = {} if reason == "many_tokens" else {"tokens_per_character": 1}
        with pytest.raises(ValueError, match=message):
            inspect_corpus([ENGLISH], filter=[reason], **settings)
    assert not any(tmp_path.iterdir())


def test_pretraining_leaves_out_the_same(tmp_path, clean, arguments):
    """For vocabulary and store; and a run resumes only with the same filters."""
    text = tmp_path / "text.txt"
    text.write_text("\n".join(lines_of_documents([*clean, *clean, RUSSIAN])))
    settings = {"text": [str(text)], "max_steps": 1, "validation_split": 0.0}
    pretrain(arguments(**settings, filter=["duplicates", "other_scripts"]))
    run = json.loads((tmp_path / "out" / "run.json").read_text())
    assert run["filter"] == ["duplicates", "other_scripts"]
    assert TokenStore(tmp_path / "out" / "tokens.safetensors").summary.documents == len(clean)
    vocabulary = MyBertTokenizer.from_pretrained(tmp_path / "out").get_vocab()
    assert not any(count_scripts(piece)["Cyrillic"] for piece in vocabulary)
    with pytest.raises(ValueError, match="holds a run with other settings"):
        pretrain(arguments(**settings, filter=["duplicates"]))
    assert "filter" not in plan_pretraining(arguments(**settings)).result_settings()
