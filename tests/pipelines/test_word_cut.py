"""Texts are cut into words as the training data of a tagger was."""

import dataclasses
import json
import unicodedata
from itertools import pairwise

import pytest

from mybert.pipelines import WordCut
from mybert.pipelines.word_cut import USUAL_CUT

CASE_04 = "Barack Obama's plane landed in London/Paris. He met Angela Merkel—the chancellor. Visit Seoul,Busan"


def words(cut, text):
    return [text[start:end] for start, end in cut.spans(text)]


@pytest.mark.parametrize(
    ("text", "cut_text"),
    [
        (
            CASE_04,
            "Barack Obama 's plane landed in London / Paris . He met Angela Merkel — the chancellor . Visit Seoul , "
            "Busan",
        ),
        ("I don't think we'll pay $3.14 (or 10,000%).", "I do n't think we 'll pay $ 3.14 ( or 10,000 % ) ."),
        ("O'Neill's U.S. e-mail: a.b@c.com", "O'Neill 's U.S. e-mail : a.b@c.com"),
        ("see http://x.y/z?a=1, www.a.com. @user_x #tag", "see http://x.y/z?a=1 , www.a.com . @user_x #tag"),
        ("Merkel’s “plan” at 10:30 on 1/2...", "Merkel ’s “ plan ” at 10:30 on 1/2 ..."),
        ("小明在北京的大学工作", "小 明 在 北 京 的 大 学 工 作"),
        ("東京へGo2行く。", "東 京 へGo2 行 く 。"),
        ("हिन्दी में नमस्ते, शुक्रिया।", "हिन्दी में नमस्ते , शुक्रिया ।"),
        ("السَّلامُ عليكم، כִּי", "السَّلامُ عليكم ، כִּי"),
        ("서울에서 3월에 만났다.", "서울에서 3월에 만났다 ."),
        ("ok👍🏽👨‍👩‍👧🇰🇷🇯🇵!", "ok 👍🏽 👨‍👩‍👧 🇰🇷 🇯🇵 !"),
        ("ភាសា\u200bខ្មែរ", "ភាសា ខ្មែរ"),
        (" \u200b\t", ""),
    ],
)
def test_spans_without_training_data_are_usual_words(text, cut_text):
    assert words(WordCut.from_record(None), text) == cut_text.split()


def test_spans_of_decomposed_hangul_keep_syllables_whole():
    cut = WordCut.learn([list("가나다라마바사아자차카타")] * 2)
    text = unicodedata.normalize("NFD", "한국")
    assert [unicodedata.normalize("NFC", word) for word in words(cut, text)] == ["한", "국"]


@pytest.mark.parametrize(
    ("sentences", "text", "cut_text"),
    [
        # Clitics alone, or joined.
        ("Ann 's dog is n't here|it 's Bob 's", "Tim's isn't", "Tim 's is n't"),
        ("Ann's dog isn't here|it's Bob's", "Tim's isn't", "Tim's isn't"),
        ("say 'do it|do so|O'Neill and|O'Hara", "word'do", "word'do"),
        # Marks cut everywhere, as in biomedical data, or kept at words, as in Korean data.
        ("Parkinson ' s disease|COX - 2 rose 10 . 5 %", "Alzheimer's IL-6 3.7%", "Alzheimer ' s IL - 6 3 . 7 %"),
        ("서울에서 갔다.|부산에서 왔다.", "대구에서 갔다. 그래.", "대구에서 갔다. 그래."),
        ("cost $5 or 7%|cost $9 or 8%", "pay $3 or 4%", "pay $3 or 4%"),
        # Elided vowels of French, and a word that is no such case.
        ("l' homme d' ici|qu' il|aujourd'hui|aujourd'hui|aujourd'hui", "l'ami aujourd'hui", "l' ami aujourd'hui"),
        # Dashes between words had spaces around them in the text.
        ("a well-known man|red - blue - green - grey", "twenty-one", "twenty-one"),
        ("a . b . c|u.s.a is here", "U.S. is", "U.S. is"),
        # Runs of marks, and emoticons.
        ("so what !!!|no ...|hm !! :) |ok :)", "wow!!! yes... :)", "wow !!! yes ... :)"),
        ("so ! ! !|no ! !", "wow!!!", "wow ! ! !"),
        # Words that the rules would cut.
        ("at Inc. and|at Inc. and|at Inc. and|at home .|go home .|run home .", "an Inc. home.", "an Inc. home ."),
        ("http : / / x", "http://y.z", "http : / / y.z"),
    ],
)
def test_learn_from_words_cuts_texts_alike(sentences, text, cut_text):
    cut = WordCut.learn([sentence.split() for sentence in sentences.split("|")])
    assert words(cut, text) == cut_text.split()
    assert words(WordCut.from_record(json.loads(json.dumps(cut.record))), text) == cut_text.split()


def test_learn_from_characters_cuts_texts_by_character():
    """KLUE-NER has the spaces as words, too; MSRA's texts have none."""
    klue = [list("특히 영동고속도로 강릉 방향 문막휴게소에서 만종분기점까지 5km")] * 3
    assert words(WordCut.learn(klue), "서울에 3월") == list("서울에 3월")
    without_spaces = [[word for word in sentence if word.strip()] for sentence in klue]
    assert words(WordCut.learn(without_spaces), "서울에 3월") == list("서울에3월")
    msra = [list("在1997年以前大学里有268个人")] * 3
    assert words(WordCut.learn(msra), "在2023年") == list("在2023年")


def test_learn_from_few_letters_keeps_words_whole():
    assert words(WordCut.learn([["a", "b", "c"], ["I"]] * 9), "a cat") == ["a", "cat"]


def test_whole_words_of_a_long_chunk_are_sought_among_near_borders():
    class Border(int):
        compared = 0

        def __lt__(self, other):
            Border.compared += 1
            return int(self) < int(other)

        def __gt__(self, other):
            Border.compared += 1
            return int(self) > int(other)

    cut = dataclasses.replace(USUAL_CUT, whole=frozenset(["北京", "北京大"]))
    text = "北京在北京大" * 200
    assert words(cut, text) == ["北京", "在", "北京大"] * 200
    borders = set(map(Border, range(len(text) + 1)))
    assert len(list(cut._whole_spans(text, range(len(text)), borders))) == 400
    assert Border.compared < 40 * len(text)


@pytest.mark.parametrize(
    ("sentences", "text", "scripts"),
    [
        (None, "สวัสดีครับ", {"THAI"}),
        (None, "ສະບາຍດີ ភាសា မြန်မာ", {"LAO", "KHMER", "MYANMAR"}),
        (None, "東京に行きました。", {"HIRAGANA"}),
        (None, "小明在北京 Seoul 서울", set()),
        ([["北京", "的", "大学"]], "小明在北京", {"CJK"}),  # words of several characters
        ([list("สวัสดีครับประเทศไทยภาษามกรงข")] * 2, "สวัสดี", set()),
    ],
)
def test_uncut_scripts_are_those_whose_words_no_rule_finds(sentences, text, scripts):
    cut = USUAL_CUT if sentences is None else WordCut.learn(sentences)
    assert cut.uncut_scripts(text) == scripts


def test_learn_from_real_words_finds_them_in_their_text(data_dir):
    """In four fifths of WNUT-17's sentences; the words of the others are found in their text, whatever its spaces."""
    glued_before, glued_after = {*".,!?;:%)]", "...", "'s", "n't", "'m", "'re", "'ll"}, {*"([#@$"}
    for split, expected in (("train", 0.84), ("test", 0.97)):
        content = (data_dir / "ner" / "wnut17" / f"{split}.conll").read_text(encoding="utf-8")
        sentences = [
            [line.split("\t")[0] for line in block.splitlines()] for block in content.strip().split("\n\n") if block
        ]
        cut = WordCut.learn([sentence for number, sentence in enumerate(sentences) if number % 5])
        held_out, right = sentences[::5], 0
        for sentence in held_out:
            text = sentence[0]
            for before, word in pairwise(sentence):
                text += word if word in glued_before or before in glued_after else f" {word}"
            right += words(cut, text) == sentence
        assert right > expected * len(held_out)
