"""What `filter` removes from a corpus and what it keeps; with datasketch also near duplicates."""

import gzip
import importlib.util
import json
import logging
import random
from collections import Counter
from itertools import pairwise

import pytest
from tqdm import tqdm
from transformers import HfArgumentParser

from mybert import MyBertTokenizer
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
from mybert.pretraining.filtering import TextCounts, count_scripts, script_names
from mybert.pretraining.token_store import store_metadata

needs_datasketch = pytest.mark.skipif(importlib.util.find_spec("datasketch") is None, reason="needs datasketch")

ENGLISH = ["The cat sat on the mat.", "It was happy there."]
RUSSIAN = ["Кошка сидела на коврике, и ей было хорошо.", "Она спала."]


def kept(documents, *reasons, **settings):
    """The kept documents, and the report."""
    corpus = CorpusFilter(reasons, FilterSettings(**settings))
    return list(filter(None, documents_of_lines(corpus.lines(lines_of_documents(documents))))), corpus.report


def words(seed, count):
    """A text of random words without repeated neighbors."""
    generator = random.Random(seed)
    return ["".join(generator.choices("abcdefghijklmnopqrstuvwxyz", k=6)) for _ in range(count)]


def lines_of(text, length=10):
    return [" ".join(text[start : start + length]) for start in range(0, len(text), length)]


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


def test_documents_of_another_script_go():
    mixed = ["Достоевский wrote The Brothers Karamazov and other novels."]
    numbers = ["1 2 3"]
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


def test_filter_duplicates_of_dropped_documents_are_kept():
    """A filtered document may have duplicates; a dropped document has none."""
    found, report = kept([["the cat", "***"], ["the cat"], RUSSIAN, RUSSIAN], "duplicates", "symbol_lines")
    assert found == [["the cat"], RUSSIAN]
    found, report = kept([RUSSIAN, RUSSIAN, *[ENGLISH] * 60], "duplicates", "other_scripts")
    assert report.dropped["other_scripts"].documents == 2
    assert report.dropped["duplicates"].documents == 59


@needs_datasketch
def test_near_duplicates_go():
    text = words(1, 400)
    same_but_ten_words = [f"{word}x" if place % 40 == 7 else word for place, word in enumerate(text)]
    half = text[:200] + words(2, 200)
    documents = [lines_of(each) for each in (text, words(3, 400), same_but_ten_words, half, words(4, 400))]
    found, report = kept(documents, "near_duplicates")
    assert found == [documents[0], documents[1], documents[3], documents[4]]
    (example,) = report.examples["near_duplicates"]
    assert example.startswith("document 3 (0.") and f"like document 1, {' '.join(text)[:60]}" in example
    # Case, punctuation and line breaks make no difference; the order of the parts almost none.
    again = [[line.upper() + "!" for line in lines_of(text[200:] + text[:200], 7)]]
    assert kept([documents[0], *again], "near_duplicates")[0] == documents[:1]
    assert len(kept(documents, "near_duplicates", near_duplicate_similarity=1.0)[0]) == 5
    assert len(kept(documents, "near_duplicates", near_duplicate_similarity=0.3)[0]) == 3


@needs_datasketch
def test_short_documents_and_boilerplate_are_no_near_duplicates():
    stubs = [[f"{name} is a village in the district. In the year 2001 it had a population of"] for name in "ABC"]
    stubs = [[f"{' '.join(stub)} {number}."] for number, stub in enumerate(stubs)]
    letterhead = words(5, 150)
    letters = [lines_of(letterhead[:75] + words(seed, 150) + letterhead[75:]) for seed in range(10, 60)]
    assert kept(stubs + letters, "duplicates", "near_duplicates")[0] == stubs + letters


@needs_datasketch
def test_languages_without_spaces_are_compared_by_characters():
    generator = random.Random(0)
    text = "".join(chr(generator.randrange(0x4E00, 0x5E00)) for _ in range(300))
    found, _ = kept([[text], [f"{text[:280]}终"], [text[:100]]], "near_duplicates")
    assert found == [[text], [text[:100]]]


@needs_datasketch
def test_signatures_are_the_same_everywhere():
    signature = filtering._Earlier(0.7).empty_signature.copy()
    signature.update_batch([b"the cat sat on the", b"cat sat on the mat"])
    assert signature.hashvalues[:4].tolist() == [978493553, 2368359290, 67307673, 2483886706]


def test_bands_find_what_is_just_similar_enough():
    for similarity in (0.3, 0.5, 0.7, 0.9, 1.0):
        rows = filtering._rows_of_band(similarity)
        assert rows == 1 or 1 - (1 - similarity**rows) ** (128 // rows) >= 0.99
    assert filtering._rows_of_band(0.7) == 4
    assert filtering._rows_of_band(1.0) == 128


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


def of_flags(*flags):
    return HfArgumentParser(DataArguments).parse_args_into_dataclasses(["--num_processes", "1", *map(str, flags)])[0]


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
        ({"filter": ["copies"]}, "filter has 'copies'; expected some of symbol_lines, other_scripts, "),
        ({"symbol_share": 0.3}, "symbol_share is 0.3 and filter lacks symbol_lines"),
        ({"filter": ["duplicates"], "scripts": ["Latin"]}, r"scripts is \['Latin'\] and filter lacks other_scripts"),
        ({"filter": ["other_scripts"], "scripts": ["Cyrillic"]}, r"corpus is empty.*\(other_scripts"),
    ],
)
def test_settings_that_do_not_fit(tmp_path, tokenizer, settings, message):
    with pytest.raises(ValueError, match=message):
        build_token_store([ENGLISH], tokenizer, tmp_path / "s", **settings)
    assert not any(tmp_path.iterdir())


def test_reasons_that_cannot_be_checked(tmp_path, tokenizer, monkeypatch):
    for reason, message in (("many_tokens", "tokenizer is not set"), ("duplicates", "filter lacks many_tokens")):
        settings = {} if reason == "many_tokens" else {"tokens_per_character": 1}
        with pytest.raises(ValueError, match=message):
            inspect_corpus([ENGLISH], filter=[reason], **settings)
    monkeypatch.setattr(filtering, "can_find_near_duplicates", lambda: False)
    with pytest.raises(ImportError, match=r"\[corpus\]"):
        build_token_store([ENGLISH], tokenizer, tmp_path / "s", filter=["near_duplicates"])
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


@pytest.mark.slow
@needs_datasketch
def test_planted_duplicates_of_real_text_are_found_and_nothing_else(data_dir):
    """Among 3,243 news texts: exact copies, and copies with every tenth or every other line replaced."""
    with gzip.open(data_dir / "corpus_en" / "news_abc.txt.gz", "rt", encoding="utf-8") as file:
        news = list(documents_of_lines(line.strip() for line in file))
    assert kept(news, "duplicates", "near_duplicates")[0] == news
    long = [number for number, document in enumerate(news) if len(document) >= 10][:600]
    others = iter([line for document in reversed(news) for line in document])

    def with_others(document, every):
        return [next(others) if place % every == every // 2 else line for place, line in enumerate(document)]

    exact = [news[number] for number in long[:200]]
    nine_tenths = [with_others(news[number], 10) for number in long[200:400]]
    halves = [with_others(news[number], 2) for number in long[400:600]]
    found, report = kept([*news, *exact, *nine_tenths, *halves], "duplicates", "near_duplicates")
    assert report.dropped["duplicates"].documents == 200
    assert report.dropped["near_duplicates"].documents >= 190
    assert found[: len(news)] == news
    assert [document for document in found[len(news) :] if document in halves] == halves
