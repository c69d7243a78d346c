import gzip
import json
import logging
import os
import random
import subprocess
import sys
import unicodedata
from pathlib import Path

import pytest
from transformers import AddedToken, AutoTokenizer

from mybert.files.source import read_rows
from mybert.pretraining import build_token_store
from mybert.tokenization import MyBertTokenizer, VocabularyBasics, train_wordpiece
from mybert.tokenization.learning import read_texts
from mybert.tokenization.settings import reserved_tokens

LINES = [
    "The unbelievable cats sat, unbelievably; the dogs did not.",
    "대한민국의 수도는 서울이다. 대한민국은 민주공화국이다.",
    "中文 and 漢字 are split; Ünïcode accents stay: café, naïve, Σίσυφος ΟΔΟΣ.",
    "Low lower lowest, new newer newest, wide wider widest!",
    "1984 2001 3.14 😀 a\u200bb c\x0bd",
]


def corpus(seed=0, lines=400):
    rng = random.Random(seed)
    return [" ".join(rng.choices(" ".join(LINES).split(), k=rng.randint(0, 12))) for _ in range(lines)]


def train(texts, size=300, **options):
    return train_files(None, size, texts=texts, **options)


def train_files(files, size=300, **options):
    options = {"vocab_layout": "compact", "show_progress": False, "num_processes": 1, **options}
    return train_wordpiece(files, size, **options)


def pieces(tokenizer):
    vocab = tokenizer.get_vocab()
    return sorted(vocab, key=vocab.__getitem__)


class TestDeterminism:
    @pytest.mark.parametrize("algorithm", ["bpe", "wordpiece"])
    def test_order_of_the_text(self, algorithm):
        lines = corpus()
        expected = pieces(train(lines, algorithm=algorithm, validation_split=0.1))
        for seed in range(3):
            random.Random(seed).shuffle(lines)
            assert pieces(train(iter(lines), algorithm=algorithm, validation_split=0.1)) == expected

    def test_files_processes_and_forms(self, tmp_path, monkeypatch):
        monkeypatch.setattr("mybert.tokenization.learning.BLOCK_CHARACTERS", 1000)
        lines = corpus()
        expected = pieces(train(lines))
        (tmp_path / "a").mkdir()
        (tmp_path / "a" / "1.txt").write_text("\n".join(lines[:150]), encoding="utf-8")
        (tmp_path / "a" / "2.txt.gz").write_bytes(gzip.compress("\r\n".join(lines[150:]).encode()))
        files = [tmp_path / "a" / "1.txt", tmp_path / "a" / "2.txt.gz"]
        folder = tmp_path / "a"
        for source in (folder, str(folder), f"{folder}/*", files, tuple(files[::-1]), set(map(str, files))):
            assert pieces(train_files(source)) == expected
        for texts in (iter(lines), [lines], (lines[start : start + 7] for start in range(0, 400, 7))):
            assert pieces(train(texts)) == expected
        assert pieces(train_files(iter(lines))) == expected
        for processes in (2, 3):
            assert pieces(train_files(files, num_processes=processes)) == expected
        monkeypatch.setattr("mybert.tokenization.words._MAX_CHUNKS", 20)
        assert pieces(train_files(files)) == expected

    def test_hash_seed(self, tmp_path):
        path = tmp_path / "text.txt"
        path.write_text("\n".join(corpus()), encoding="utf-8")
        script = (
            "import sys\nsys.argv[0] = 'mybert'  # as in its command, whose import is short\n"
            "from mybert.tokenization import train_wordpiece\n"
            "tokenizer = train_wordpiece(sys.argv[1], 300, vocab_layout='compact', show_progress=False)\n"
            "tokenizer.save_pretrained(sys.argv[2])\n"
        )
        processes = []
        for seed in ("0", "1"):
            environment = {**os.environ, "PYTHONHASHSEED": seed}
            processes.append(subprocess.Popen([sys.executable, "-c", script, path, tmp_path / seed], env=environment))
        assert [process.wait() for process in processes] == [0, 0]
        for name in ("vocab.txt", "tokenizer.json"):
            assert (tmp_path / "0" / name).read_bytes() == (tmp_path / "1" / name).read_bytes()


class TestVocabulary:
    @pytest.mark.parametrize("algorithm", ["bpe", "wordpiece"])
    def test_exact_size_and_layouts(self, algorithm, caplog):
        google = train(corpus(), 1200, algorithm=algorithm, vocab_layout="google", min_frequency=1)
        compact = train(corpus(), 206, algorithm=algorithm, min_frequency=1)
        assert (len(google), len(compact)) == (1200, 206)
        assert caplog.text == ""  # nothing is missing
        assert pieces(google)[:999] == reserved_tokens("google")
        assert pieces(google)[999:] == pieces(compact)[5:]
        assert pieces(google)[100:104] == ["[UNK]", "[CLS]", "[SEP]", "[MASK]"]
        assert (google.pad_token_id, google.mask_token_id, compact.mask_token_id) == (0, 103, 4)

    def test_characters_first_each_in_both_forms(self):
        learned = pieces(train(corpus()))[5:]
        alphabet = [piece for piece in learned if len(piece) == 1]
        assert learned[: len(alphabet)] == sorted(alphabet)
        assert learned[len(alphabet) : 2 * len(alphabet)] == [f"##{c}" for c in alphabet]
        assert all(len(piece.removeprefix("##")) > 1 for piece in learned[2 * len(alphabet) :])

    def test_too_small_a_text_is_said(self, caplog):
        with caplog.at_level(logging.WARNING, "mybert"):
            tokenizer = train(["low lower lowest"] * 3, 1000)
        assert len(tokenizer) == tokenizer.training_report.size < 1000
        assert f"a vocabulary of {len(tokenizer)} pieces instead of the 1000 asked for" in caplog.text
        assert tokenizer.training_report.requested_size == 1000

    @pytest.mark.parametrize(
        ("size", "layout", "message"),
        [
            (20, "compact", r"vocab_size is 20, but 5 reserved tokens and \d+ characters.*coverage"),
            (900, "google", r"vocab_size is 900, but 999 reserved tokens.*vocab_layout='compact'"),
            (1000, "google", r"vocab_size is 1000, but 999 reserved tokens and \d+ characters"),
        ],
    )
    def test_alphabet_larger_than_the_vocabulary(self, size, layout, message):
        with pytest.raises(ValueError, match=message):
            train(corpus(), size, vocab_layout=layout)

    def test_alphabet_larger_than_a_compact_vocabulary_names_no_other_layout(self):
        with pytest.raises(
            ValueError, match=r"need \d+; raise it, or leave rare characters out by the option charact"
        ):
            train(corpus(), 20, vocab_layout="compact")

    def test_an_alphabet_that_fills_the_vocabulary(self):
        assert len(train(["ab ba"], 9, vocab_layout="compact")) == 9
        with pytest.raises(ValueError, match="need 9; raise it"):
            train(["ab ba"], 8, vocab_layout="compact")

    def test_character_coverage(self):
        text = ["a" * 60 + " " + "b" * 30 + " c c c c c d d d e e"]
        for coverage, kept in ((1.0, "abcde"), (0.98, "abcd"), (0.95, "abc"), (0.9, "ab"), (0.5, "a")):
            tokenizer = train(text, 100, character_coverage=coverage)
            assert [piece for piece in pieces(tokenizer) if len(piece) == 1] == list(kept)
            assert tokenizer.training_report.alphabet == len(kept)
            assert tokenizer.training_report.character_coverage >= coverage
        assert tokenizer.tokenize("a b c") == ["a", "[UNK]", "[UNK]"]
        ties = train(["b a d c"], 100, character_coverage=0.5)
        assert pieces(ties)[5:7] == ["a", "b"]

    def test_min_frequency(self):
        assert "low" in pieces(train(["low"] * 5, 100, min_frequency=5))
        assert "low" not in pieces(train(["low"] * 4, 100, min_frequency=5))

    def test_long_words_teach_nothing(self):
        tokenizer = train(["ab" * 101, "cd" * 100], 50, min_frequency=1)
        assert "##abab" not in pieces(tokenizer)
        assert "cd" * 100 in pieces(tokenizer)

    def test_korean_stays_composed(self):
        tokenizer = train(corpus())
        assert (tokenizer.do_lower_case, tokenizer.strip_accents) == (True, False)
        assert any("대한" in piece for piece in pieces(tokenizer))
        assert all(unicodedata.is_normalized("NFC", piece) for piece in pieces(tokenizer))
        assert tokenizer.tokenize("CAFÉ") == ["café"]
        stripped = train(corpus(), strip_accents=True)
        assert "대" not in pieces(stripped)
        assert stripped.tokenize("CAFÉ") == ["cafe"]

    def test_cased(self):
        tokenizer = train(corpus(), do_lower_case=False)
        assert "The" in pieces(tokenizer)
        assert tokenizer.do_lower_case is False


class TestInput:
    @pytest.mark.parametrize("text", [[], [""], ["  \n\t", "\u200b\0"], [[]]])
    def test_no_text(self, text):
        with pytest.raises(ValueError, match=r"holds no word to learn from"):
            train(text)

    def test_a_list_holds_names_and_texts_hold_text(self, tmp_path, monkeypatch):
        """The decision never depends on the strings themselves or on existing files."""
        monkeypatch.chdir(tmp_path)
        (tmp_path / "cat").write_text("text in a file " * 5, encoding="utf-8")
        for source in (["cat", "a dog"], ["no.txt"], ["a cat", "a dog"], "a cat sat", {"a cat"}):
            with pytest.raises(FileNotFoundError, match=r"no file or folder .* Texts are passed as texts=\[...\]"):
                train_files(source)
        with pytest.raises(FileNotFoundError, match=r"Texts are passed as texts=\[...\]"):
            train_files(["a text longer than the name of a file " * 20])
        assert "file" in pieces(train_files(["cat"], 100))
        for texts in (["cat"] * 5, ("cat" for _ in range(5)), (["cat"] * 5,)):
            assert train(texts, 100).training_report.distinct_words == 1

    @pytest.mark.parametrize(
        ("files", "texts", "message"),
        [
            (None, None, "Neither files nor texts"),
            ("a.txt", ["a"], "Both files and texts"),
            (None, "a cat", "texts is a single str"),
            ([], None, "No file is given"),
            (["a.txt", ["a cat"]], None, r"Item 1 of the files is a list; .* texts=\[...\]"),
        ],
    )
    def test_files_or_texts(self, files, texts, message):
        with pytest.raises((TypeError, ValueError), match=message):
            train_files(files, texts=texts)

    def test_a_broken_file_is_no_text_by_mistake(self, tmp_path):
        (tmp_path / "cut.csv.gz").write_bytes(gzip.compress(b"text\nlow\n")[:-9])
        with pytest.raises(OSError, match=r"cut\.csv\.gz: the compressed data is broken or cut off \([^)]*\)\.$"):
            train_files(tmp_path / "cut.csv.gz")

    def test_a_column_of_a_table(self, tmp_path):
        (tmp_path / "a.csv").write_text('label,text\n0,"low, lower"\n1,lowest\n' * 1, encoding="utf-8")
        for report in (
            train_files((row["text"] for row in read_rows(tmp_path / "a.csv")), 100).training_report,
            train_files([tmp_path / "a.csv"], 100).training_report,
        ):
            assert (report.words, report.distinct_words) == (4, 4)
        with pytest.raises(ValueError, match=r"has no 'body', only 'label', 'text'; rename it, or"):
            train_files([tmp_path / "a.csv"], 100, text_column="body")

    def test_a_column_of_a_frame_or_data_set(self, tmp_path, tokenizer):
        pandas = pytest.importorskip("pandas", reason="a data frame is pandas'")
        datasets = pytest.importorskip("datasets", reason="data sets are read with datasets")
        rows = [{"label": 0, "body": "low, lower"}, {"label": 1, "body": "lowest"}, {"label": 1, "body": None}]
        data_set = datasets.Dataset.from_list(rows)
        for frame in (pandas.DataFrame(rows), data_set, data_set.to_iterable_dataset()):
            report = train_files(frame, 100, text_column="body").training_report
            assert (report.words, report.distinct_words) == (4, 4)
            assert build_token_store(frame, tokenizer, tmp_path / "store", text_column="body").documents == 2
        for frame in (pandas.DataFrame(rows), data_set):
            message = f"The {type(frame).__name__} has no 'text', only 'label', 'body'; rename it"
            with pytest.raises(ValueError, match=message):
                train_files(frame, 100)

    def test_texts_come_in_blocks_of_whole_lines(self, monkeypatch):
        monkeypatch.setattr("mybert.tokenization.learning.BLOCK_CHARACTERS", 4)
        assert list(read_texts(["ab", "cd", ["e", "f", "gh"], "i"])) == ["ab\ncd", "e\nf\ngh", "i"]

    def test_texts_are_cleaned(self):
        marked, plain = (["the <b>cat</b> sat", ["a &lt; dog"]], ["the cat sat", "a < dog"])
        one, other = (
            train_wordpiece(texts=texts, vocab_layout="compact", clean=["html"]) for texts in (marked, plain)
        )
        assert one.get_vocab() == other.get_vocab()

    def test_other_items(self):
        for texts, found in ((["a b", b"c"], "bytes"), (["a", ["b", None]], "list"), (["a", Path("b")], "PosixPath")):
            with pytest.raises(ValueError, match=f"Item 1 of the texts is a {found}; expected str or list of str"):
                train(texts)
        with pytest.raises(ValueError, match="Item 0 of the texts is a NoneType"):
            train_files(iter([None]))

    def test_settings_out_of_range(self):
        with pytest.raises(ValueError, match=r"vocab_size is 5, but 5 reserved tokens come first; raise it\.$"):
            VocabularyBasics(vocab_size=5, vocab_layout="compact")

    def test_unknown_settings(self):
        with pytest.raises(TypeError, match="vocabsize"):
            train(["a"], vocabsize=100)
        with pytest.raises(TypeError, match="min_freq"):
            MyBertTokenizer(reserved_tokens("compact")).train_new_from_iterator(["a"], 300, min_freq=1)

    def test_lone_surrogates(self):
        assert len(train(["a\ud800b \udfff"] * 3, 100, validation_split=0.1)) > 5


class TestNewFromOld:
    """`train_new_from_iterator`, as in transformers."""

    def test_same_settings_same_vocabulary(self):
        old = MyBertTokenizer([*reserved_tokens("google"), "a"], do_lower_case=False, model_max_length=77)
        new = old.train_new_from_iterator(iter(corpus()), 1400, length=400, min_frequency=3)
        expected = train(
            corpus(), 1400, do_lower_case=False, strip_accents=False, vocab_layout="google", min_frequency=3
        )
        assert new.get_vocab() == expected.get_vocab()
        assert (new.do_lower_case, new.model_max_length) == (False, 77)
        assert new.tokenize("café") != new.tokenize("Café")
        korean = MyBertTokenizer(reserved_tokens("compact"), strip_accents=False)
        assert korean.train_new_from_iterator(corpus(), 300).get_vocab() == train(corpus(), 300).get_vocab()

    def test_further_special_tokens_come_last(self, tmp_path):
        old = MyBertTokenizer(reserved_tokens("compact"))
        new = old.train_new_from_iterator(corpus(), 220, new_special_tokens=["[ENT]", "[/ENT]"])
        assert len(new) == 220
        assert new.convert_tokens_to_ids(["[ENT]", "[/ENT]"]) == [218, 219]
        new.save_pretrained(tmp_path)
        again = AutoTokenizer.from_pretrained(tmp_path)
        assert again.tokenize("[ENT] cats[/ENT]") == new.tokenize("[ENT] cats[/ENT]")
        assert again.tokenize("[ENT]") == ["[ENT]"]

    def test_train_new_from_iterator_keeps_settings_and_special_tokens(self, tmp_path):
        names = {"pad": "<p>", "unk": "<u>", "cls": "<s>", "sep": "</s>", "mask": "<m>"}
        settings = {f"{name}_token": token for name, token in names.items()} | {
            "padding_side": "left", "truncation_side": "left", "model_max_length": 77,
            "split_special_tokens": True, "clean_up_tokenization_spaces": True,
        }  # fmt: skip
        extra = ["[E]", AddedToken("[L]", lstrip=True)]
        old = MyBertTokenizer([*names.values(), "a"], extra_special_tokens=extra, **settings)
        new = old.train_new_from_iterator(corpus(), 220, new_special_tokens=["<m>", "[N]", "[E]"])
        assert len(new) == 220
        assert new.training_report.size == 217
        assert new.convert_tokens_to_ids([*names.values(), "[E]", "[L]", "[N]"]) == [0, 1, 2, 3, 4, 217, 218, 219]
        new.save_pretrained(tmp_path)
        for tokenizer in (new, AutoTokenizer.from_pretrained(tmp_path), MyBertTokenizer.from_pretrained(tmp_path)):
            assert {name: getattr(tokenizer, name) for name in settings} == settings
            assert tokenizer.extra_special_tokens == ["[E]", "[L]", "[N]"]
            assert tokenizer.added_tokens_decoder[218].lstrip
            assert tokenizer("[N]", split_special_tokens=False)["input_ids"] == [2, 219, 3]

    def test_train_new_from_iterator_does_not_count_a_reserved_piece_twice(self):
        old = MyBertTokenizer(reserved_tokens("google"), extra_special_tokens=["[unused0]"])
        new = old.train_new_from_iterator(corpus(), 1200)
        assert (len(new), new.training_report.size) == (1200, 1200)
        assert new.tokenize("[unused0]") == ["[unused0]"]

    def test_train_wordpiece_impossible_settings_are_errors(self):
        with pytest.raises(ValueError, match="special tokens keep their names"):
            MyBertTokenizer(reserved_tokens("compact")).train_new_from_iterator(
                corpus(), 300, special_tokens_map={"[CLS]": "<s>"}
            )
        whole = MyBertTokenizer(reserved_tokens("compact"), tokenize_chinese_chars=False)
        with pytest.raises(ValueError, match="tokenize_chinese_chars is False"):
            whole.train_new_from_iterator(corpus(), 300)


class TestReport:
    def test_figures(self):
        report = train(["low lower lowest"] * 10, 24, min_frequency=1).training_report
        assert (report.words, report.distinct_words, report.characters) == (30, 3, 169)
        assert (report.alphabet, report.reserved, report.size) == (7, 5, 24)
        assert report.learned == 24 - 5 - 14
        assert report.measured_on == "training text"
        assert report.unk_rate == 0
        assert report.longest_pieces[0] == "lower"
        json.dumps(report.to_dict())
        assert "24 pieces (5 reserved, 7 characters" in report.summary()

    def test_held_out_text(self):
        lines = [f"line{i} of the text" for i in range(2000)] + ["☃ ☂"] * 1000
        tokenizer = train(lines, 200, validation_split=0.2)
        report = tokenizer.training_report
        assert report.measured_on == "held-out text"
        assert 0.1 * 8000 < report.measured_words < 0.3 * 8000 + 2000
        assert report.measured_words + report.words == 10000
        ids = [len(tokenizer.tokenize(line)) for line in lines]
        assert 1 < report.tokens_per_word < max(ids)

    def test_something_is_left_to_learn_from(self):
        """Equal lines stay together, so holding out could take all of them."""
        for number in range(30):
            report = train([f"number {number}"] * 5, 100, validation_split=0.5).training_report
            assert (report.words, report.measured_words) == (10, 10)

    def test_unknown_words_are_counted(self):
        report = train(["a b c d e f g h i q"], 100, character_coverage=0.9).training_report
        assert report.unk_rate == pytest.approx(0.1)
        assert report.tokens_per_word == 1


@pytest.mark.slow
@pytest.mark.parametrize("algorithm", ["bpe", "wordpiece"])
def test_korean_corpus(data_dir: Path, algorithm):
    tokenizer = train_files(
        data_dir / "corpus_ko" / "heldout_ko.txt.gz", 8000, algorithm=algorithm, validation_split=0.02
    )
    assert len(tokenizer) == 8000
    assert tokenizer.training_report.unk_rate < 0.02
    assert not any("\u1100" <= character <= "\u11ff" for piece in pieces(tokenizer) for character in piece)
    assert isinstance(tokenizer, MyBertTokenizer)
