"""An independent reimplementation of Google's tokenizer, and strings that are hard to tokenize."""

import random
import unicodedata
from pathlib import Path

import pytest

from mybert.tokenization import MyBertTokenizer, load_vocab

FIXTURES = Path(__file__).parents[1] / "fixtures" / "google_tokenization"
IDEOGRAPHS = [
    (0x4E00, 0x9FFF),
    (0x3400, 0x4DBF),
    (0x20000, 0x2A6DF),
    (0x2A700, 0x2B73F),
    (0x2B740, 0x2B81F),
    (0x2B820, 0x2CEAF),
    (0xF900, 0xFAFF),
    (0x2F800, 0x2FA1F),
]


def _is_punctuation(character):
    printable_ascii = 33 <= ord(character) <= 126
    return (printable_ascii and not character.isalnum()) or unicodedata.category(character).startswith("P")


class GoogleTokenizer:
    """Google's BasicTokenizer and WordpieceTokenizer, reimplemented one character at a time."""

    def __init__(self, vocab, lower):
        self.vocab = vocab
        self.lower = lower

    def words(self, text):
        cleaned = []
        for character in text:
            category = unicodedata.category(character)
            if character in "\t\n\r" or category == "Zs":
                cleaned.append(" ")
            elif character in "\0\ufffd" or category in ("Cc", "Cf"):
                continue
            elif any(first <= ord(character) <= last for first, last in IDEOGRAPHS):
                cleaned.append(f" {character} ")
            else:
                cleaned.append(character)
        words = []
        for word in "".join(cleaned).split():
            if self.lower:
                word = unicodedata.normalize("NFD", word.lower())
                word = "".join(c for c in word if unicodedata.category(c) != "Mn")
            current = ""
            for character in word:
                if _is_punctuation(character):
                    words += [current, character]
                    current = ""
                else:
                    current += character
            words.append(current)
        return " ".join(words).split()

    def pieces(self, word):
        if len(word) > 200:
            return ["[UNK]"]
        found, start = [], 0
        while start < len(word):
            prefix = "##" if start else ""
            end = next((e for e in range(len(word), start, -1) if prefix + word[start:e] in self.vocab), None)
            if end is None:
                return ["[UNK]"]
            found.append(prefix + word[start:end])
            start = end
        return found

    def tokenize(self, text):
        return [piece for word in self.words(text) for piece in self.pieces(word)]


@pytest.fixture(scope="session")
def google_vocab_file():
    return FIXTURES / "vocab.txt"


@pytest.fixture(scope="session")
def tokenizers(google_vocab_file):
    """do_lower_case -> (tokenizer, reference), on the released vocabulary."""
    vocab = load_vocab(google_vocab_file)
    return {
        lower: (MyBertTokenizer(google_vocab_file, do_lower_case=lower), GoogleTokenizer(vocab, lower))
        for lower in (True, False)
    }


POOLS = [
    "the of and in earthquake forgive unbelievable ##s playing",
    "AÀÉÎÕÜßĐİıŁŒŠžǅΣςσΆΈΩЖЩъĳﬁﬀ",
    "Σ'Σ.ΑΣ Σ\u0301ΑΣ\u00adΒ ʰΣ",
    "\u0300\u0301\u0327\u0338\u0345\u034f\u0483\u20dd\u0e31\u093e\u1b44\u302e\ufe20",
    "".join(map(chr, range(0x20))) + "".join(map(chr, range(0x7F, 0xA1))) + "\u00ad",
    " \t\n\r\u1680\u2000\u2007\u2009\u200a\u2028\u2029\u202f\u205f\u3000",
    "\u200b\u200c\u200d\u200e\u2060\u2061\u202e\u2066\ufeff\u180e\u061c\U000e0001\U000e0041",
    "\ue000\uf8ff\U000f0000\U0010fffd\uffff\ufffe\U0001ffff\u0378\U000e0fff\ufffd\ufffc",
    "中国語汉字㐀䶿\U00020000\U0002a6df\U0002a700\U0002b81d\U0002b820\U0002ceaf\U0002cebf\U00030000豈\ufa6d\U0002f800",
    "ひらがなカタカナｶﾀｶﾅー々〆〇",
    "대한민국서울\u1100\u1161\u11a8\u3131\uffa1",
    "😀👨\u200d👩\u200d👧🏽🇰🇷❤\ufe0f©™",
    "!\"#$%&'()*+,-./:;<=>?@[\\]^_`{|}~¡¿«»‐–—‘’“”…‰※‿⁀、。〈〉！＂（）｡",
    "ไทยภาษาहिन्दीবাংলাதமிழ்العربيةעִבְרִית",
    "0123456789²³¹½¾٠١२३Ⅷ⑳",
]


def hostile_string(rng):
    """A random string of characters on which tokenizers disagree."""
    parts = []
    for _ in range(rng.randint(1, 8)):
        kind = rng.random()
        if kind < 0.1:
            parts.append(rng.choice("aebc中é'") * rng.choice((99, 100, 101, 199, 200, 201, 250)))
        elif kind < 0.2:
            point = rng.choice((rng.randrange(0x3000), rng.randrange(0x20000), rng.randrange(0x110000)))
            parts.append(chr(point) if not 0xD800 <= point < 0xE000 else "\ufffd")
        else:
            parts.append("".join(rng.choices(rng.choice(POOLS), k=rng.randint(1, 8))))
        parts.append(rng.choice(("", "", " ")))
    return "".join(parts)


@pytest.fixture(scope="session")
def hostile_strings():
    rng = random.Random(20181011)
    return [hostile_string(rng) for _ in range(4_000)]
