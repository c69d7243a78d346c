import json
import logging
import re
import unicodedata

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from tokenizers import BertWordPieceTokenizer, normalizers, pre_tokenizers
from transformers import AutoTokenizer, PreTrainedTokenizerFast

from mybert.tokenization import MyBertTokenizer, characters, load_vocab
from mybert.tokenization.characters import build_normalizer, build_pre_tokenizer

PYTHON_OF_THE_FIXTURES = pytest.mark.skipif(
    unicodedata.unidata_version != "14.0.0", reason="the classes are those of Unicode 14 (Python 3.11)"
)
KNOWS_FEWER_CHARACTERS = int(unicodedata.unidata_version.split(".")[0]) < 14  # than the fixtures: Python 3.10
FRAMES = pytest.mark.parametrize("frame", ["{}", "a{}b", "Σ{}Σ"])
LOWER = pytest.mark.parametrize("lower", [True, False])

# Characters on which the tables inside the tokenizers library and Python 3.11 disagree: letters that got a lower-case
# form after Unicode 14 (all unassigned there), and a decomposition that the library does not have.
NEW_CAPITALS = {
    *(0x1C89, 0xA7CB, 0xA7CC, 0xA7CE, 0xA7D2, 0xA7D4, 0xA7DA, 0xA7DC),
    *range(0x10D50, 0x10D66),
    *range(0x16EA0, 0x16EB9),
}
UNKNOWN_DECOMPOSITION = {0x11938}

SMALL = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "the", "cat", "##s", "sat", ".", "a", "##b"]


def code_points():
    return (c for c in range(0x110000) if not 0xD800 <= c < 0xE000)


def ranges_of(predicate):
    return {c for c in code_points() if predicate(chr(c))}


def members(ranges):
    return {c for first, last in ranges for c in range(first, last + 1)}


def differing(text_of, tokenizer, reference):
    """The code points whose texts two functions split differently."""
    found = set()
    points = list(code_points())
    for start in range(0, len(points), 64):
        block = points[start : start + 64]
        text = "\n".join(map(text_of, block))
        if tokenizer(text) != reference(text):
            found |= {c for c in block if tokenizer(text_of(c)) != reference(text_of(c))}
    return found


class TestGoogle:
    @pytest.mark.parametrize(("name", "lower"), [("uncased", True), ("cased", False)])
    def test_fixture(self, name, lower, tokenizers, google_vocab_file):
        tokenizer, reference = tokenizers[lower]
        rows = [json.loads(line) for line in (google_vocab_file.parent / f"{name}.jsonl").open(encoding="utf-8")]
        assert len(rows) > 2800
        for row in rows:
            assert tokenizer.tokenize(row["text"]) == row["tokens"]
            assert KNOWS_FEWER_CHARACTERS or reference.tokenize(row["text"]) == row["tokens"]

    @pytest.mark.skipif(KNOWS_FEWER_CHARACTERS, reason="the reference asks Python 3.10 for classes of characters")
    @LOWER
    def test_hostile_strings(self, lower, tokenizers, hostile_strings):
        tokenizer, reference = tokenizers[lower]
        failures = [text for text in hostile_strings if tokenizer.tokenize(text) != reference.tokenize(text)]
        assert failures == []

    @PYTHON_OF_THE_FIXTURES
    @LOWER
    @given(text=st.text(st.characters(exclude_categories=["Cs"]), max_size=30))
    @settings(max_examples=300, deadline=None)
    def test_any_text(self, lower, tokenizers, text):
        tokenizer, reference = tokenizers[lower]
        assume(not any(special in text for special in tokenizer.all_special_tokens))
        assert tokenizer.tokenize(text) == reference.tokenize(text)

    @PYTHON_OF_THE_FIXTURES
    @pytest.mark.slow
    @FRAMES
    @LOWER
    def test_words_of_every_code_point(self, lower, frame, tokenizers):
        """Every code point alone and between letters: the words, whatever the vocabulary."""
        _, reference = tokenizers[lower]
        normalizer, pre_tokenizer = build_normalizer(lower), build_pre_tokenizer(True)

        def words(text):
            return [word for word, _ in pre_tokenizer.pre_tokenize_str(normalizer.normalize_str(text))]

        different = differing(lambda c: frame.format(chr(c)), words, reference.words)
        assert different == (NEW_CAPITALS | UNKNOWN_DECOMPOSITION if lower else set())

    @PYTHON_OF_THE_FIXTURES
    @pytest.mark.slow
    @LOWER
    def test_tokens_of_every_code_point(self, lower, tokenizers):
        """With the released vocabulary only one of these differences affects the tokens."""
        tokenizer, reference = tokenizers[lower]
        found = differing(lambda c: f"{chr(c)} a{chr(c)}b", tokenizer.tokenize, reference.tokenize)
        assert found <= {0xA7CB}

    def test_final_sigma_in_context(self, tokenizers):
        tokenizer, reference = tokenizers[True]
        long = ("Α" + "'" * 900 + "Σ", "ΑΣ" + "." * 3000 + "Α")
        for text in ("ΟΔΟΣ", "ΟΔΟΣ.", "Σ", "ΣΑΣ ΑΣ", "Α\u0301Σ\u200bΑ", *long):
            assert tokenizer.tokenize(text) == reference.tokenize(text)

    def test_lone_surrogates_are_unknown_characters(self, tokenizers):
        tokenizer, reference = tokenizers[True]
        for text in ("\ud800", "a\udfff b", "[MASK]\ud83d!"):
            expected = reference.tokenize(text.replace("[MASK]", ""))
            assert [t for t in tokenizer.tokenize(text) if t != "[MASK]"] == expected
        assert tokenizer(["x", "a\ud800 b"])["input_ids"] == [[101, 1060, 102], [101, 100, 1038, 102]]
        assert tokenizer(["a", "\ud800"], is_split_into_words=True)["input_ids"] == [101, 1037, 100, 102]
        with pytest.raises(TypeError):
            tokenizer([["a", 5]], is_split_into_words=True)


@PYTHON_OF_THE_FIXTURES
class TestUnicodeClasses:
    def test_deleted(self):
        expected = ranges_of(
            lambda c: c == "\ufffd" or (unicodedata.category(c) in ("Cc", "Cf") and c not in "\t\n\r")
        )
        assert members(characters.DELETED) == expected

    def test_punctuation(self):
        ascii_symbols = "$+<=>^`|~"
        expected = ranges_of(lambda c: unicodedata.category(c)[0] == "P" or c in ascii_symbols)
        assert members(characters.PUNCTUATION) == expected

    def test_nonspacing_marks(self):
        assert members(characters.NONSPACING_MARKS) == ranges_of(lambda c: unicodedata.category(c) == "Mn")

    def test_case_properties_as_seen_by_final_sigma(self):
        cased = ranges_of(lambda c: f"{c}Σ".lower().endswith("ς"))
        assert members(characters.CASED) == cased
        ignorable = ranges_of(lambda c: f"a{c}Σ".lower().endswith("ς")) - cased
        deleted, marks = members(characters.DELETED), members(characters.NONSPACING_MARKS)
        assert members(characters.CASE_IGNORABLE) - deleted == ignorable - deleted - marks


class TestStandardTokenizer:
    TEXTS = ("The cats sat. ΣΑΣ [MASK] Ünïcode", "a\u200bb 中文 unaffable!", "word " * 40)

    def test_auto_tokenizer_without_this_package(self, tokenizers, tmp_path, run_python):
        tokenizer, _ = tokenizers[True]
        tokenizer.save_pretrained(tmp_path)
        calls = [
            {"text": self.TEXTS[0]},
            {"text": self.TEXTS[0], "text_pair": self.TEXTS[1], "return_offsets_mapping": True},
            {"text": list(self.TEXTS), "padding": True, "truncation": True, "max_length": 12},
            {
                "text": [self.TEXTS[1]] * 2,
                "text_pair": [self.TEXTS[2]] * 2,
                "truncation": "only_second",
                "max_length": 20,
                "stride": 5,
                "return_overflowing_tokens": True,
                "return_offsets_mapping": True,
            },
        ]
        script = (
            "import json, sys\n"
            "from transformers import AutoTokenizer\n"
            "tokenizer = AutoTokenizer.from_pretrained(sys.argv[1])\n"
            "found = []\n"
            "for call in json.loads(sys.argv[2]):\n"
            "    batch = tokenizer(**call)\n"
            "    found.append([dict(batch), [batch.word_ids(i) for i in range(len(batch.encodings))]])\n"
            "assert not any(name.split('.')[0] == 'mybert' for name in sys.modules)\n"
            "print(json.dumps(found))\n"
        )
        run = run_python("-c", script, tmp_path, json.dumps(calls))
        for call, (values, word_ids) in zip(calls, json.loads(run.stdout), strict=True):
            batch = tokenizer(**call)
            assert json.loads(json.dumps(dict(batch))) == values
            assert [batch.word_ids(i) for i in range(len(batch.encodings))] == word_ids

    def test_save_and_load(self, tmp_path, google_vocab_file):
        tokenizer = MyBertTokenizer(google_vocab_file, do_lower_case=False, strip_accents=True)
        tokenizer("the cat", truncation=True, padding="max_length", max_length=7)
        files = tokenizer.save_pretrained(tmp_path / "a")
        assert {"tokenizer.json", "tokenizer_config.json", "vocab.txt"} <= {f.rsplit("/", 1)[1] for f in files}
        assert (tmp_path / "a" / "vocab.txt").read_bytes() == google_vocab_file.read_bytes()
        saved = json.loads((tmp_path / "a" / "tokenizer.json").read_text())
        assert saved["truncation"] is None
        assert saved["padding"] is None
        again = MyBertTokenizer.from_pretrained(tmp_path / "a")
        assert (again.do_lower_case, again.strip_accents) == (False, True)
        again.save_pretrained(tmp_path / "b")
        for name in ("tokenizer.json", "tokenizer_config.json", "vocab.txt"):
            assert (tmp_path / "a" / name).read_bytes() == (tmp_path / "b" / name).read_bytes()
        assert AutoTokenizer.from_pretrained(tmp_path / "a").tokenize("Ünïcode") == again.tokenize("Ünïcode")

    def test_sides_that_were_set_later_are_saved(self, tmp_path):
        tokenizer = MyBertTokenizer(SMALL)
        tokenizer.padding_side = tokenizer.truncation_side = "left"
        tokenizer.save_pretrained(tmp_path / "left")
        again = MyBertTokenizer.from_pretrained(tmp_path / "left")
        for tokenizer in (again, AutoTokenizer.from_pretrained(tmp_path / "left")):
            assert (tokenizer.padding_side, tokenizer.truncation_side) == ("left", "left")
        again.padding_side = "right"
        again.save_pretrained(tmp_path / "right")
        assert MyBertTokenizer.from_pretrained(tmp_path / "right").padding_side == "right"

    def test_vocabulary_is_never_ignored(self, google_vocab_file):
        vocab = load_vocab(google_vocab_file)
        forms = [
            MyBertTokenizer(str(google_vocab_file)),
            MyBertTokenizer(vocab=google_vocab_file),
            MyBertTokenizer(vocab_file=str(google_vocab_file)),
            MyBertTokenizer(dict(reversed(vocab.items()))),
            MyBertTokenizer(list(vocab)),
        ]
        for tokenizer in forms:
            assert tokenizer.tokenize("Unaffable!") == ["una", "##ffa", "##ble", "!"]
            assert len(tokenizer) == tokenizer.vocab_size == 30522
        with pytest.raises(ValueError, match="needs a vocabulary"):
            MyBertTokenizer()
        with pytest.raises(ValueError, match="not both"):
            MyBertTokenizer(vocab, vocab_file=google_vocab_file)

    def test_special_tokens(self, tokenizers):
        tokenizer, _ = tokenizers[True]
        assert tokenizer.tokenize("hi[MASK] [SEP]") == ["hi", "[MASK]", "[SEP]"]
        ids = {"pad": 0, "unk": 100, "cls": 101, "sep": 102, "mask": 103}
        assert {name: getattr(tokenizer, f"{name}_token_id") for name in ids} == ids
        moved = MyBertTokenizer(SMALL[::-1])
        assert moved("the cats")["input_ids"] == [9, 6, 5, 4, 8]
        assert moved("the", padding="max_length", max_length=4)["input_ids"] == [9, 6, 8, 11]

    def test_pairs_truncation_and_windows(self, tokenizers):
        tokenizer, _ = tokenizers[True]
        pair = tokenizer("the cat", "sat down")
        assert pair["token_type_ids"] == [0, 0, 0, 0, 1, 1, 1]
        windows = tokenizer("a b c d e", max_length=5, stride=1, truncation=True, return_overflowing_tokens=True)
        assert [tokenizer.decode(w) for w in windows["input_ids"]] == ["[CLS] a b c [SEP]", "[CLS] c d e [SEP]"]
        batch = tokenizer("Ünàffable\u200b isn't", return_offsets_mapping=True)
        assert batch.tokens() == ["[CLS]", "una", "##ffa", "##ble", "isn", "'", "t", "[SEP]"]
        offsets = [(0, 0), (0, 3), (3, 6), (6, 9), (11, 14), (14, 15), (15, 16), (0, 0)]
        assert batch["offset_mapping"] == offsets
        assert batch.word_ids() == [None, 0, 0, 0, 1, 2, 3, None]
        assert tokenizer(["the", "cat"], return_tensors="np", padding=True)["input_ids"].dtype == np.int64

    def test_decode(self, tokenizers, google_vocab_file):
        """As transformers' BertTokenizer does."""
        from transformers import BertTokenizer

        tokenizer, _ = tokenizers[True]
        text = "hello, how are you? unaffable people play."
        assert tokenizer.decode(tokenizer.encode(text), skip_special_tokens=True) == text
        assert tokenizer.decode(tokenizer.encode("The cat")) == "[CLS] the cat [SEP]"
        reference = BertTokenizer(str(google_vocab_file))
        for clean_up in (None, True, False):
            ids = tokenizer.encode("We don't (yet) know: 'state-of-the-art', 3.14; e.g. this.")
            options = {"clean_up_tokenization_spaces": clean_up}
            assert tokenizer.decode(ids, **options) == reference.decode(ids, **options)

    @pytest.mark.parametrize(
        ("text", "words", "other_words"),
        [
            ("a\ue000a", "a\ue000a", "aa"),
            ("ΟΔΟΣ", "οδος", "οδοσ"),
            ("a\u2e55a", "a \u2e55 a", "a\u2e55a"),
            ("a\u08caa", "aa", "a\u08caa"),
            ("a\u0890a", "aa", "a\u0890a"),
            ("a\U0002b820a", "a \U0002b820 a", "a\U0002b820a"),
            ("a" * 101, "a" * 101, "[UNK]"),
        ],
    )
    def test_words_that_bert_tokenizer_reads_otherwise(self, text, words, other_words):
        from transformers import BertTokenizer

        pieces = dict.fromkeys([*SMALL[:5], *words.split(), *other_words.split()])
        vocab = {piece: index for index, piece in enumerate(pieces)}
        assert MyBertTokenizer(vocab).tokenize(text) == words.split()
        assert BertTokenizer(vocab).tokenize(text) == other_words.split()

    def test_korean_and_accents(self):
        vocab = [*SMALL[:5], "대", "##한", "é", "e"]
        assert MyBertTokenizer(vocab, strip_accents=False).tokenize("대한 É") == ["대", "##한", "é"]
        assert MyBertTokenizer(vocab).tokenize("대한 É") == ["[UNK]", "e"]
        assert MyBertTokenizer(vocab, do_lower_case=False).tokenize("대한 é") == ["대", "##한", "é"]

    def test_without_splitting_ideographs(self):
        vocab = [*SMALL[:5], "中", "中##", "##文"]
        assert MyBertTokenizer(vocab).tokenize("中文") == ["中", "[UNK]"]
        assert MyBertTokenizer(vocab, tokenize_chinese_chars=False).tokenize("中文") == ["中", "##文"]


class TestLoading:
    def test_folder_of_transformers(self, google_vocab_file, tmp_path):
        """A folder written by transformers' BertTokenizer, whose own rules differ."""
        from transformers import BertTokenizer

        BertTokenizer(str(google_vocab_file), do_lower_case=False).save_pretrained(tmp_path)
        tokenizer = MyBertTokenizer.from_pretrained(tmp_path)
        assert tokenizer.do_lower_case is False
        assert tokenizer.tokenize("a" * 150) != ["[UNK]"]
        (tmp_path / "tokenizer_config.json").unlink()
        tokenizer = MyBertTokenizer.from_pretrained(tmp_path, strip_accents=True)
        assert (tokenizer.do_lower_case, tokenizer.strip_accents) == (False, True)

    @pytest.fixture
    def wrap(self, tmp_path):
        """Save a tokenizer of the `tokenizers` library with transformers, which does not know its rules."""

        def save(tokenizer):
            file = tmp_path / "alone.json"
            tokenizer.save(str(file))
            special = {f"{name}_token": f"[{name.upper()}]" for name in ("pad", "unk", "cls", "sep", "mask")}
            PreTrainedTokenizerFast(tokenizer_file=str(file), **special).save_pretrained(tmp_path / "wrapped")
            return tmp_path / "wrapped"

        return save

    RULES_PIECES = (*SMALL, "c", "##a", "##f", "##e", "##é", "Cat", "中", "国", "中国", "##国")
    RULES_TEXT = "Cat cat café 中国."

    @pytest.mark.parametrize(
        "rules",
        [
            {"handle_chinese_chars": False},
            {"strip_accents": False},
            {"lowercase": False},
            {"lowercase": False, "strip_accents": True, "handle_chinese_chars": False},
        ],
    )
    def test_from_pretrained_reads_every_rule_of_bert_from_tokenizer_json(self, rules, wrap, caplog):
        vocab = {piece: index for index, piece in enumerate(self.RULES_PIECES)}
        folder = wrap(BertWordPieceTokenizer(vocab, **rules))
        tokenizer = MyBertTokenizer.from_pretrained(folder, strict=True)
        expected = AutoTokenizer.from_pretrained(folder).tokenize(self.RULES_TEXT)
        assert tokenizer.tokenize(self.RULES_TEXT) == expected
        assert caplog.text == ""
        assert MyBertTokenizer.from_pretrained(folder, do_lower_case=False).do_lower_case is False

    @LOWER
    @pytest.mark.parametrize("strip", [True, False, None])
    @pytest.mark.parametrize("chinese", [True, False])
    def test_from_pretrained_reads_its_own_rules_from_tokenizer_json(self, lower, strip, chinese, wrap, caplog):
        own = MyBertTokenizer(self.RULES_PIECES, lower, strip_accents=strip, tokenize_chinese_chars=chinese)
        tokenizer = MyBertTokenizer.from_pretrained(wrap(own.backend_tokenizer), strict=True)
        assert tokenizer.backend_tokenizer.to_str() == own.backend_tokenizer.to_str()
        assert caplog.text == ""

    @pytest.mark.parametrize(
        ("part", "value", "shown", "settings"),
        [
            (
                "normalizer",
                normalizers.Sequence([normalizers.NFKC(), normalizers.Lowercase()]),
                "normalizer NFKC + Lowercase",
                (True, False, True),
            ),
            ("normalizer", None, "normalizer None", (False, None, True)),
            ("pre_tokenizer", pre_tokenizers.WhitespaceSplit(), "pre_tokenizer WhitespaceSplit", (True, None, False)),
        ],
    )
    def test_from_pretrained_names_rules_that_it_does_not_keep(self, part, value, shown, settings, wrap, caplog):
        backend = MyBertTokenizer(self.RULES_PIECES).backend_tokenizer
        setattr(backend, part, value)
        folder = wrap(backend)
        tokenizer = MyBertTokenizer.from_pretrained(folder)
        assert (tokenizer.do_lower_case, tokenizer.strip_accents, tokenizer.tokenize_chinese_chars) == settings
        assert f"has rules that MyBertTokenizer does not have ({shown})" in caplog.text
        with pytest.raises(ValueError, match=re.escape(f"does not have ({shown})")):
            MyBertTokenizer.from_pretrained(folder, strict=True)

    def test_from_pretrained_names_control_characters_that_it_does_not_keep(self, wrap, caplog):
        vocab = {piece: index for index, piece in enumerate(self.RULES_PIECES)}
        MyBertTokenizer.from_pretrained(wrap(BertWordPieceTokenizer(vocab, clean_text=False)))
        assert "(normalizer BertNormalizer without clean_text)" in caplog.text

    @pytest.mark.parametrize("setting", [True, False])
    def test_folder_of_google(self, google_vocab_file, tmp_path, setting):
        (tmp_path / "vocab.txt").write_bytes(google_vocab_file.read_bytes())
        (tmp_path / "tokenizer_config.json").write_text(json.dumps({"do_lower_case": setting}))
        assert MyBertTokenizer.from_pretrained(tmp_path).do_lower_case is setting

    @pytest.mark.parametrize(
        ("pieces", "lower"), [(["the", "##s"], True), (["The", "##s"], False), (["대", "##한"], True)]
    )
    def test_assumes_case_aloud(self, pieces, lower, tmp_path, caplog):
        file = tmp_path / "vocab.txt"
        file.write_text("\n".join([*SMALL[:5], *pieces]) + "\n", encoding="utf-8")
        for source in (file, tmp_path):
            caplog.clear()
            with caplog.at_level(logging.WARNING, "mybert"):
                assert MyBertTokenizer.from_pretrained(source).do_lower_case is lower
            assert f"so do_lower_case={lower}" in caplog.text
            with caplog.at_level(logging.WARNING, "mybert"):
                caplog.clear()
                assert MyBertTokenizer.from_pretrained(source, do_lower_case=not lower).do_lower_case is not lower
            assert caplog.text == ""

    def test_assumes_that_hangul_is_kept(self, tmp_path, caplog):
        file = tmp_path / "vocab.txt"
        file.write_text("\n".join([*SMALL[:5], "대", "##한"]) + "\n", encoding="utf-8")
        with caplog.at_level(logging.WARNING, "mybert"):
            assert MyBertTokenizer.from_pretrained(file).tokenize("대한") == ["대", "##한"]
        assert "do_lower_case=True and strip_accents=False is assumed" in caplog.text
        assert MyBertTokenizer.from_pretrained(file, strip_accents=True).tokenize("대한") == ["[UNK]"]

    def test_nothing_to_load(self, tmp_path):
        with pytest.raises(OSError, match=r"neither tokenizer.json nor vocab.txt"):
            MyBertTokenizer.from_pretrained(tmp_path)

    @pytest.mark.parametrize(
        ("content", "message"),
        [
            ({"model": {"type": "BPE", "vocab": {}, "merges": []}}, "holds a BPE model; expected WordPiece"),
            (
                {"model": {"type": "WordPiece", "vocab": {"a": 0}, "continuing_subword_prefix": "@@"}},
                "continuations .* '@@'",
            ),
            ({"vocab": {}}, "is not a tokenizer.json"),
            ({"model": []}, "is not a tokenizer.json"),
        ],
    )
    def test_other_tokenizer_json(self, content, message, tmp_path):
        (tmp_path / "tokenizer.json").write_text(json.dumps(content))
        with pytest.raises(ValueError, match=message):
            MyBertTokenizer.from_pretrained(tmp_path)

    @pytest.mark.parametrize(
        "content", ["", "[]", "null", "{", "[" * 3000 + "]" * 3000, b"\xff", '{"a": ' + "9" * 5000 + "}"]
    )
    @pytest.mark.parametrize("name", ["tokenizer.json", "tokenizer_config.json", "special_tokens_map.json"])
    def test_files_that_hold_no_json_object(self, name, content, tmp_path):
        MyBertTokenizer(SMALL).save_pretrained(tmp_path)
        (tmp_path / name).write_bytes(content if isinstance(content, bytes) else content.encode())
        with pytest.raises(ValueError, match=rf"/{name} (is not JSON|is nested too deeply|holds a JSON)") as caught:
            MyBertTokenizer.from_pretrained(tmp_path)
        assert len(str(caught.value)) < 500

    @pytest.mark.parametrize(
        ("name", "changes"),
        [
            ("tokenizer.json", {"normalizer": 3}),
            ("tokenizer.json", {"added_tokens": 3}),
            ("tokenizer.json", {"model": {"type": "WordPiece", "vocab": [1]}}),
            ("tokenizer_config.json", {"model_max_length": [1]}),
            ("tokenizer_config.json", {"extra_special_tokens": 5}),
            ("tokenizer_config.json", {"added_tokens_decoder": {"a": 1}}),
        ],
    )
    def test_values_that_no_tokenizer_has(self, name, changes, tmp_path):
        MyBertTokenizer(SMALL).save_pretrained(tmp_path)
        content = json.loads((tmp_path / name).read_text())
        (tmp_path / name).write_text(json.dumps(content | changes))
        with pytest.raises(ValueError, match=rf"The tokenizer in {tmp_path} cannot be loaded \(.+\)\.$") as caught:
            MyBertTokenizer.from_pretrained(tmp_path)
        assert len(str(caught.value)) < 500

    def test_missing_special_tokens(self):
        with pytest.raises(ValueError, match=r"lacks the special tokens \[PAD\], \[MASK\]"):
            MyBertTokenizer(["[UNK]", "[CLS]", "[SEP]", "a"])
        with pytest.raises(ValueError, match=r"lacks the special token <unk>"):
            MyBertTokenizer(SMALL, unk_token="<unk>")

    def test_ids_with_gaps(self):
        with pytest.raises(ValueError, match="ids must be 0 to 4"):
            MyBertTokenizer({piece: 2 * index for index, piece in enumerate(SMALL[:5])})
