"""What BERT does to characters, and where it cuts words: Google's ``BasicTokenizer``, of parts of ``tokenizers``."""

import re

from tokenizers import Regex, normalizers, pre_tokenizers

from .unicode_classes import CASE_IGNORABLE, CASED, CJK, DELETED, NONSPACING_MARKS, PUNCTUATION, regex_class

# How far back a final sigma looks for its letter, over case-ignorable characters. Python looks back without limit;
# in a regular expression that would make a line of single capital sigmas cost quadratic time.
_SIGMA_REACH = 1000

_LONE_SURROGATE = re.compile("[\ud800-\udfff]")


def build_normalizer(do_lower_case: bool, strip_accents: bool | None = None) -> normalizers.Normalizer:
    """Compose ``BasicTokenizer``'s work on characters, in its order: clean, lower-case, strip accents.

    Args:
        do_lower_case: Whether to lower-case as Python's ``str.lower`` does, final sigma included.
        strip_accents: Whether to decompose (NFD) and drop nonspacing marks, which takes Hangul apart into jamo; by
            default Google's rule, the same as ``do_lower_case``.
    """
    steps: list[normalizers.Normalizer] = [normalizers.Replace(Regex(f"[{regex_class(DELETED)}]"), "")]
    if do_lower_case:
        cased = f"[{regex_class(CASED)}]"
        ignorable = f"[{regex_class(NONSPACING_MARKS)}{regex_class(CASE_IGNORABLE)}]"
        final_sigma = f"\\u03a3(?!{ignorable}*{cased})(?<={cased}{ignorable}{{0,{_SIGMA_REACH}}}\\u03a3)"
        steps += [normalizers.Replace(Regex(final_sigma), "ς"), normalizers.Lowercase()]
    if do_lower_case if strip_accents is None else strip_accents:
        steps += [normalizers.NFD(), normalizers.Replace(Regex(f"[{regex_class(NONSPACING_MARKS)}]"), "")]
    return normalizers.Sequence(steps)


def build_pre_tokenizer(tokenize_chinese_chars: bool) -> pre_tokenizers.PreTokenizer:
    """Split at white space, and around every punctuation mark and CJK ideograph.

    Google separates ideographs before lower-casing; no ideograph changes or appears in the steps between, so doing it
    here gives the same words.

    Args:
        tokenize_chinese_chars: Whether every CJK ideograph is a word of its own.
    """
    alone = PUNCTUATION + CJK if tokenize_chinese_chars else PUNCTUATION
    isolate = pre_tokenizers.Split(Regex(f"[{regex_class(alone)}]"), behavior="isolated")
    return pre_tokenizers.Sequence([pre_tokenizers.WhitespaceSplit(), isolate])


def replace_lone_surrogates(text: str) -> str:
    """Replace halves of surrogate pairs, which the ``tokenizers`` library does not take, by U+FFFF.

    To BERT both are a character without properties that no vocabulary knows, so the tokens stay the same.
    """
    return _LONE_SURROGATE.sub("\uffff", text)
