"""How BERT normalizes characters and splits words: Google's `BasicTokenizer`, built from parts of `tokenizers`.

Google takes character classes from Python's `unicodedata`, so its results change with the Python version. Here they
are fixed for the version of its reference fixtures (Python 3.11, Unicode 14.0) and stored in `tokenizer.json`, so
every machine and every version of the `tokenizers` library splits alike.

Each class is a list of inclusive `(first, last)` code-point ranges; `regex_class` writes it as the inside of a
regular expression's brackets. The tests compare every table with `unicodedata`.
"""

import json
import re
from collections.abc import Iterator, Mapping
from typing import Any

from tokenizers import Regex, normalizers, pre_tokenizers

Ranges = list[tuple[int, int]]


def _parse(text: str) -> Ranges:
    """Read "21-2f 3a" (hexadecimal) as [(0x21, 0x2F), (0x3A, 0x3A)]."""
    return [(int(first, 16), int(last or first, 16)) for first, _, last in (r.partition("-") for r in text.split())]


def regex_class(ranges: Ranges) -> str:
    """Write code-point ranges as the inside of a regular expression's `[...]`."""

    def escape(code_point: int) -> str:
        # Oniguruma (inside `tokenizers`), Python's `re` and JavaScript all read this form alike.
        return f"\\u{code_point:04x}" if code_point < 0x10000 else chr(code_point)

    return "".join(escape(a) if a == b else f"{escape(a)}-{escape(b)}" for a, b in ranges)


# NUL, U+FFFD and the categories Cc and Cf, except tab, newline and carriage return: BasicTokenizer._clean_text.
DELETED = _parse("""
    0-8 b-c e-1f 7f-9f ad 600-605 61c 6dd 70f 890-891 8e2 180e 200b-200f 202a-202e 2060-2064 2066-206f feff
    fff9-fffb fffd 110bd 110cd 13430-13438 1bca0-1bca3 1d173-1d17a e0001 e0020-e007f
""")

# Every P* category and all printable ASCII that is neither letter, digit nor space: _is_punctuation.
PUNCTUATION = _parse("""
    21-2f 3a-40 5b-60 7b-7e a1 a7 ab b6-b7 bb bf 37e 387 55a-55f 589-58a 5be 5c0 5c3 5c6 5f3-5f4 609-60a 60c-60d
    61b 61d-61f 66a-66d 6d4 700-70d 7f7-7f9 830-83e 85e 964-965 970 9fd a76 af0 c77 c84 df4 e4f e5a-e5b f04-f12
    f14 f3a-f3d f85 fd0-fd4 fd9-fda 104a-104f 10fb 1360-1368 1400 166e 169b-169c 16eb-16ed 1735-1736 17d4-17d6
    17d8-17da 1800-180a 1944-1945 1a1e-1a1f 1aa0-1aa6 1aa8-1aad 1b5a-1b60 1b7d-1b7e 1bfc-1bff 1c3b-1c3f 1c7e-1c7f
    1cc0-1cc7 1cd3 2010-2027 2030-2043 2045-2051 2053-205e 207d-207e 208d-208e 2308-230b 2329-232a 2768-2775
    27c5-27c6 27e6-27ef 2983-2998 29d8-29db 29fc-29fd 2cf9-2cfc 2cfe-2cff 2d70 2e00-2e2e 2e30-2e4f 2e52-2e5d
    3001-3003 3008-3011 3014-301f 3030 303d 30a0 30fb a4fe-a4ff a60d-a60f a673 a67e a6f2-a6f7 a874-a877 a8ce-a8cf
    a8f8-a8fa a8fc a92e-a92f a95f a9c1-a9cd a9de-a9df aa5c-aa5f aade-aadf aaf0-aaf1 abeb fd3e-fd3f fe10-fe19
    fe30-fe52 fe54-fe61 fe63 fe68 fe6a-fe6b ff01-ff03 ff05-ff0a ff0c-ff0f ff1a-ff1b ff1f-ff20 ff3b-ff3d ff3f ff5b
    ff5d ff5f-ff65 10100-10102 1039f 103d0 1056f 10857 1091f 1093f 10a50-10a58 10a7f 10af0-10af6 10b39-10b3f
    10b99-10b9c 10ead 10f55-10f59 10f86-10f89 11047-1104d 110bb-110bc 110be-110c1 11140-11143 11174-11175
    111c5-111c8 111cd 111db 111dd-111df 11238-1123d 112a9 1144b-1144f 1145a-1145b 1145d 114c6 115c1-115d7
    11641-11643 11660-1166c 116b9 1173c-1173e 1183b 11944-11946 119e2 11a3f-11a46 11a9a-11a9c 11a9e-11aa2
    11c41-11c45 11c70-11c71 11ef7-11ef8 11fff 12470-12474 12ff1-12ff2 16a6e-16a6f 16af5 16b37-16b3b 16b44
    16e97-16e9a 16fe2 1bc9f 1da87-1da8b 1e95e-1e95f
""")

# Category Mn: what _run_strip_accents removes after NFD.
NONSPACING_MARKS = _parse("""
    300-36f 483-487 591-5bd 5bf 5c1-5c2 5c4-5c5 5c7 610-61a 64b-65f 670 6d6-6dc 6df-6e4 6e7-6e8 6ea-6ed 711
    730-74a 7a6-7b0 7eb-7f3 7fd 816-819 81b-823 825-827 829-82d 859-85b 898-89f 8ca-8e1 8e3-902 93a 93c 941-948
    94d 951-957 962-963 981 9bc 9c1-9c4 9cd 9e2-9e3 9fe a01-a02 a3c a41-a42 a47-a48 a4b-a4d a51 a70-a71 a75
    a81-a82 abc ac1-ac5 ac7-ac8 acd ae2-ae3 afa-aff b01 b3c b3f b41-b44 b4d b55-b56 b62-b63 b82 bc0 bcd c00 c04
    c3c c3e-c40 c46-c48 c4a-c4d c55-c56 c62-c63 c81 cbc cbf cc6 ccc-ccd ce2-ce3 d00-d01 d3b-d3c d41-d44 d4d
    d62-d63 d81 dca dd2-dd4 dd6 e31 e34-e3a e47-e4e eb1 eb4-ebc ec8-ecd f18-f19 f35 f37 f39 f71-f7e f80-f84
    f86-f87 f8d-f97 f99-fbc fc6 102d-1030 1032-1037 1039-103a 103d-103e 1058-1059 105e-1060 1071-1074 1082
    1085-1086 108d 109d 135d-135f 1712-1714 1732-1733 1752-1753 1772-1773 17b4-17b5 17b7-17bd 17c6 17c9-17d3 17dd
    180b-180d 180f 1885-1886 18a9 1920-1922 1927-1928 1932 1939-193b 1a17-1a18 1a1b 1a56 1a58-1a5e 1a60 1a62
    1a65-1a6c 1a73-1a7c 1a7f 1ab0-1abd 1abf-1ace 1b00-1b03 1b34 1b36-1b3a 1b3c 1b42 1b6b-1b73 1b80-1b81 1ba2-1ba5
    1ba8-1ba9 1bab-1bad 1be6 1be8-1be9 1bed 1bef-1bf1 1c2c-1c33 1c36-1c37 1cd0-1cd2 1cd4-1ce0 1ce2-1ce8 1ced 1cf4
    1cf8-1cf9 1dc0-1dff 20d0-20dc 20e1 20e5-20f0 2cef-2cf1 2d7f 2de0-2dff 302a-302d 3099-309a a66f a674-a67d
    a69e-a69f a6f0-a6f1 a802 a806 a80b a825-a826 a82c a8c4-a8c5 a8e0-a8f1 a8ff a926-a92d a947-a951 a980-a982 a9b3
    a9b6-a9b9 a9bc-a9bd a9e5 aa29-aa2e aa31-aa32 aa35-aa36 aa43 aa4c aa7c aab0 aab2-aab4 aab7-aab8 aabe-aabf aac1
    aaec-aaed aaf6 abe5 abe8 abed fb1e fe00-fe0f fe20-fe2f 101fd 102e0 10376-1037a 10a01-10a03 10a05-10a06
    10a0c-10a0f 10a38-10a3a 10a3f 10ae5-10ae6 10d24-10d27 10eab-10eac 10f46-10f50 10f82-10f85 11001 11038-11046
    11070 11073-11074 1107f-11081 110b3-110b6 110b9-110ba 110c2 11100-11102 11127-1112b 1112d-11134 11173
    11180-11181 111b6-111be 111c9-111cc 111cf 1122f-11231 11234 11236-11237 1123e 112df 112e3-112ea 11300-11301
    1133b-1133c 11340 11366-1136c 11370-11374 11438-1143f 11442-11444 11446 1145e 114b3-114b8 114ba 114bf-114c0
    114c2-114c3 115b2-115b5 115bc-115bd 115bf-115c0 115dc-115dd 11633-1163a 1163d 1163f-11640 116ab 116ad
    116b0-116b5 116b7 1171d-1171f 11722-11725 11727-1172b 1182f-11837 11839-1183a 1193b-1193c 1193e 11943
    119d4-119d7 119da-119db 119e0 11a01-11a0a 11a33-11a38 11a3b-11a3e 11a47 11a51-11a56 11a59-11a5b 11a8a-11a96
    11a98-11a99 11c30-11c36 11c38-11c3d 11c3f 11c92-11ca7 11caa-11cb0 11cb2-11cb3 11cb5-11cb6 11d31-11d36 11d3a
    11d3c-11d3d 11d3f-11d45 11d47 11d90-11d91 11d95 11d97 11ef3-11ef4 16af0-16af4 16b30-16b36 16f4f 16f8f-16f92
    16fe4 1bc9d-1bc9e 1cf00-1cf2d 1cf30-1cf46 1d167-1d169 1d17b-1d182 1d185-1d18b 1d1aa-1d1ad 1d242-1d244
    1da00-1da36 1da3b-1da6c 1da75 1da84 1da9b-1da9f 1daa1-1daaf 1e000-1e006 1e008-1e018 1e01b-1e021 1e023-1e024
    1e026-1e02a 1e130-1e136 1e2ae 1e2ec-1e2ef 1e8d0-1e8d6 1e944-1e94a e0100-e01ef
""")

# Derived properties Cased (less Case_Ignorable) and Case_Ignorable (less Mn and Cf): they decide whether Python's
# str.lower() writes a capital sigma as final sigma.
CASED = _parse("""
    41-5a 61-7a aa b5 ba c0-d6 d8-f6 f8-1ba 1bc-1bf 1c4-293 295-2af 370-373 376-377 37b-37d 37f 386 388-38a 38c
    38e-3a1 3a3-3f5 3f7-481 48a-52f 531-556 560-588 10a0-10c5 10c7 10cd 10d0-10fa 10fd-10ff 13a0-13f5 13f8-13fd
    1c80-1c88 1c90-1cba 1cbd-1cbf 1d00-1d2b 1d6b-1d77 1d79-1d9a 1e00-1f15 1f18-1f1d 1f20-1f45 1f48-1f4d 1f50-1f57
    1f59 1f5b 1f5d 1f5f-1f7d 1f80-1fb4 1fb6-1fbc 1fbe 1fc2-1fc4 1fc6-1fcc 1fd0-1fd3 1fd6-1fdb 1fe0-1fec 1ff2-1ff4
    1ff6-1ffc 2102 2107 210a-2113 2115 2119-211d 2124 2126 2128 212a-212d 212f-2134 2139 213c-213f 2145-2149 214e
    2160-217f 2183-2184 24b6-24e9 2c00-2c7b 2c7e-2ce4 2ceb-2cee 2cf2-2cf3 2d00-2d25 2d27 2d2d a640-a66d a680-a69b
    a722-a76f a771-a787 a78b-a78e a790-a7ca a7d0-a7d1 a7d3 a7d5-a7d9 a7f5-a7f6 a7fa ab30-ab5a ab60-ab68 ab70-abbf
    fb00-fb06 fb13-fb17 ff21-ff3a ff41-ff5a 10400-1044f 104b0-104d3 104d8-104fb 10570-1057a 1057c-1058a
    1058c-10592 10594-10595 10597-105a1 105a3-105b1 105b3-105b9 105bb-105bc 10c80-10cb2 10cc0-10cf2 118a0-118df
    16e40-16e7f 1d400-1d454 1d456-1d49c 1d49e-1d49f 1d4a2 1d4a5-1d4a6 1d4a9-1d4ac 1d4ae-1d4b9 1d4bb 1d4bd-1d4c3
    1d4c5-1d505 1d507-1d50a 1d50d-1d514 1d516-1d51c 1d51e-1d539 1d53b-1d53e 1d540-1d544 1d546 1d54a-1d550
    1d552-1d6a5 1d6a8-1d6c0 1d6c2-1d6da 1d6dc-1d6fa 1d6fc-1d714 1d716-1d734 1d736-1d74e 1d750-1d76e 1d770-1d788
    1d78a-1d7a8 1d7aa-1d7c2 1d7c4-1d7cb 1df00-1df09 1df0b-1df1e 1e900-1e943 1f130-1f149 1f150-1f169 1f170-1f189
""")

CASE_IGNORABLE = _parse("""
    27 2e 3a 5e 60 a8 af b4 b7-b8 2b0-2ff 374-375 37a 384-385 387 488-489 559 55f 5f4 640 6e5-6e6 7f4-7f5 7fa 81a
    824 828 888 8c9 971 e46 ec6 10fc 17d7 1843 1aa7 1abe 1c78-1c7d 1d2c-1d6a 1d78 1d9b-1dbf 1fbd 1fbf-1fc1
    1fcd-1fcf 1fdd-1fdf 1fed-1fef 1ffd-1ffe 2018-2019 2024 2027 2071 207f 2090-209c 20dd-20e0 20e2-20e4 2c7c-2c7d
    2d6f 2e2f 3005 3031-3035 303b 309b-309e 30fc-30fe a015 a4f8-a4fd a60c a670-a672 a67f a69c-a69d a700-a721 a770
    a788-a78a a7f2-a7f4 a7f8-a7f9 a9cf a9e6 aa70 aadd aaf3-aaf4 ab5b-ab5f ab69-ab6b fbb2-fbc2 fe13 fe52 fe55 ff07
    ff0e ff1a ff3e ff40 ff70 ff9e-ff9f ffe3 10780-10785 10787-107b0 107b2-107ba 16b40-16b43 16f93-16f9f
    16fe0-16fe1 16fe3 1aff0-1aff3 1aff5-1affb 1affd-1affe 1e137-1e13d 1e94b 1f3fb-1f3ff
""")

# The blocks that _is_chinese_char names (CJK ideographs; not kana, not Hangul).
CJK = _parse("3400-4dbf 4e00-9fff f900-faff 20000-2a6df 2a700-2b73f 2b740-2b81f 2b820-2ceaf 2f800-2fa1f")

# How far back the final-sigma rule looks for a letter, over case-ignorable characters. Python has no limit;
# without one, a regular expression takes quadratic time on a line of single capital sigmas.
_SIGMA_REACH = 1000

_LONE_SURROGATE = re.compile("[\ud800-\udfff]")


def build_normalizer(do_lower_case: bool, strip_accents: bool | None = None) -> normalizers.Normalizer:
    """Build the normalizer, in the order of `BasicTokenizer`: clean, lower-case, strip accents."""
    steps: list[normalizers.Normalizer] = [normalizers.Replace(Regex(f"[{regex_class(DELETED)}]"), "")]
    if do_lower_case:  # as Python's `str.lower`, final sigma included
        cased = f"[{regex_class(CASED)}]"
        ignorable = f"[{regex_class(NONSPACING_MARKS)}{regex_class(CASE_IGNORABLE)}]"
        final_sigma = f"\\u03a3(?!{ignorable}*{cased})(?<={cased}{ignorable}{{0,{_SIGMA_REACH}}}\\u03a3)"
        steps += [normalizers.Replace(Regex(final_sigma), "ς"), normalizers.Lowercase()]
    # Google's rule is the default. Decomposing splits Hangul into jamo, too.
    if do_lower_case if strip_accents is None else strip_accents:
        steps += [normalizers.NFD(), normalizers.Replace(Regex(f"[{regex_class(NONSPACING_MARKS)}]"), "")]
    return normalizers.Sequence(steps)


def build_pre_tokenizer(tokenize_chinese_chars: bool) -> pre_tokenizers.PreTokenizer:
    """Split at white space, and around every punctuation mark and, if asked, CJK ideograph."""
    # Google separates ideographs before lower-casing. No ideograph changes or appears in the steps between, so the
    # words are the same.
    alone = PUNCTUATION + CJK if tokenize_chinese_chars else PUNCTUATION
    isolate = pre_tokenizers.Split(Regex(f"[{regex_class(alone)}]"), behavior="isolated")
    return pre_tokenizers.Sequence([pre_tokenizers.WhitespaceSplit(), isolate])


def read_rules(saved: Mapping[str, Any]) -> tuple[dict[str, bool | None], list[str]]:
    """Read the rules in a `tokenizer.json`: the settings of `MyBertTokenizer`, and the parts that it does not have."""
    normalizer, pre_tokenizer = saved.get("normalizer"), saved.get("pre_tokenizer")
    steps = [*_steps(normalizer)]
    kinds = {step["type"] for step in steps}
    bert = next((step for step in steps if step["type"] == "BertNormalizer"), None)
    if bert is not None:
        lower, strip, alone = bert["lowercase"], bert.get("strip_accents"), bert["handle_chinese_chars"]
        kept = steps == [bert] and bert["clean_text"], pre_tokenizer == {"type": "BertPreTokenizer"}
    else:
        lower, strip = "Lowercase" in kinds, not kinds.isdisjoint(("NFD", "StripAccents"))
        strip = None if strip == lower else strip  # Google's rule
        alone = _equal(pre_tokenizer, build_pre_tokenizer(True))
        kept = (
            _equal(normalizer, build_normalizer(lower, strip)),
            alone or _equal(pre_tokenizer, build_pre_tokenizer(False)),
        )
    parts = (("normalizer", normalizer), ("pre_tokenizer", pre_tokenizer))
    differing = [f"{name} {_shown(part)}" for (name, part), same in zip(parts, kept, strict=True) if not same]
    return {"do_lower_case": lower, "strip_accents": strip, "tokenize_chinese_chars": alone}, differing


def _steps(part: Mapping[str, Any] | None) -> Iterator[Mapping[str, Any]]:
    """Yield a part of a `tokenizer.json`, or the parts of a sequence."""
    if part and part["type"] == "Sequence":
        for step in part.get("normalizers") or part.get("pretokenizers") or ():
            yield from _steps(step)
    elif part:
        yield part


def _equal(part: Mapping[str, Any] | None, built: Any) -> bool:
    """Whether a part of a `tokenizer.json`, of any version of `tokenizers`, is what was built."""
    if part is None:
        return False
    read = type(built)([])
    read.__setstate__(json.dumps(part).encode())
    return bool(read.__getstate__() == built.__getstate__())


def _shown(part: Mapping[str, Any] | None) -> str:
    """Name the kinds of a part's steps; of BERT's own, what it leaves out."""
    names = [step["type"] + " without clean_text" * (step.get("clean_text") is False) for step in _steps(part)]
    return " + ".join(names) or "None"


def replace_lone_surrogates(text: str) -> str:
    """Replace lone surrogates, which the `tokenizers` library rejects, by U+FFFF."""
    # To BERT both are an unknown character without properties, so the tokens stay the same.
    return _LONE_SURROGATE.sub("\uffff", text)
