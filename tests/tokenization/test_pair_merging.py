"""The incremental learner against one that recounts everything after every merge."""

import random
from collections import Counter
from itertools import islice, pairwise

import pytest

from mybert.tokenization.pair_merging import learn_pieces


def slow_learner(words, alphabet, algorithm, min_frequency):
    ages = {piece: age for age, piece in enumerate([*alphabet, *(f"##{c}" for c in alphabet)])}
    table = {word: [word[0], *(f"##{c}" for c in word[1:])] for word in words}
    while True:
        pieces, pairs = Counter(), Counter()
        for word, cut in table.items():
            for piece in cut:
                pieces[piece] += words[word]
            for pair in pairwise(cut):
                pairs[pair] += words[word]

        def score(pair, pieces=pieces, pairs=pairs):
            return pairs[pair] if algorithm == "bpe" else pairs[pair] / (pieces[pair[0]] * pieces[pair[1]])

        candidates = [pair for pair, count in pairs.items() if count >= min_frequency]
        if not candidates:
            return
        left, right = min(candidates, key=lambda pair: (-score(pair), ages[pair[0]], ages[pair[1]]))
        merged = left + right[2:]
        for cut in table.values():
            position = 0
            while position < len(cut) - 1:
                if cut[position : position + 2] == [left, right]:
                    cut[position : position + 2] = [merged]
                position += 1
        if merged not in ages:
            ages[merged] = len(ages)
            yield merged


@pytest.mark.parametrize("algorithm", ["bpe", "wordpiece"])
@pytest.mark.parametrize("seed", range(40))
def test_same_pieces_as_recounting(algorithm, seed, monkeypatch):
    if seed % 2:  # 27 slots, so that the tree of maxima has to grow
        monkeypatch.setattr("mybert.tokenization.pair_merging._FAN", 3)
    rng = random.Random(seed)
    letters = "abcdeΣ한é😀"[: rng.randint(1, 9)]
    words = {}
    for _ in range(rng.randint(1, 60)):
        words["".join(rng.choices(letters, k=rng.randint(1, 9)))] = rng.randint(1, 30)
    frequency = rng.choice((1, 2, 5))
    expected = list(slow_learner(words, sorted(letters), algorithm, frequency))
    assert list(learn_pieces(words, sorted(letters), algorithm, frequency)) == expected
    shuffled = dict(rng.sample(list(words.items()), len(words)))
    assert list(learn_pieces(shuffled, sorted(letters), algorithm, frequency)) == expected


def test_runs_merge_from_the_left():
    assert list(learn_pieces({"aaaaa": 3}, ["a"], "bpe", 1)) == ["##aa", "aaa", "aaaaa"]


def test_well_known_example():
    words = {"hug": 10, "pug": 5, "pun": 12, "bun": 4, "hugs": 5}
    alphabet = sorted("hugpnbs")
    assert list(islice(learn_pieces(words, alphabet, "bpe", 1), 3)) == ["##ug", "##un", "hug"]
    # (b, ##u), (h, ##u) and (p, ##u) all score 1/36; the oldest piece wins.
    assert list(islice(learn_pieces(words, alphabet, "wordpiece", 1), 2)) == ["##gs", "bu"]


@pytest.mark.parametrize("algorithm", ["bpe", "wordpiece"])
def test_same_pieces_as_recounting_where_words_begin_like_pieces_within_words(algorithm):
    words = {"##a": 9, "##ab": 3, "xa": 2, "xab": 4, "##b": 5, "##xab": 1, "#": 2}
    expected = list(slow_learner(words, sorted("#abx"), algorithm, 1))
    assert list(learn_pieces(words, sorted("#abx"), algorithm, 1)) == expected
    assert "##a" not in expected and len(set(expected)) == len(expected)
