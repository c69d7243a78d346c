"""Windows against the tokenizer's own overflow, answers against all spans of all windows tried one by one."""

import gzip
import json
import random
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import Tokenizer, models, pre_tokenizers, processors
from transformers import BertTokenizer, ByT5Tokenizer, PreTrainedTokenizerFast

from mybert.pipelines.spans import answer_positions, best_answers, make_windows

SHARED = Path(__file__).resolve().parents[2].parent / "shared"
QUESTION = "Where did the cat sit?"
CONTEXT = "The cat lives in Berlin, the dog's house is in 北京. Who is Zoé? 가나 🙂 sat!"


def every_span(question, start_logits, end_logits, max_answer_len):
    """Window, first and last token, and score of every span of tokens, found the slow way."""
    for number, window in enumerate(question.windows):
        shift, end = window.context_start - window.first_token, window.first_token + window.context_length
        for first in range(window.first_token, end):
            for last in range(first, min(first + max_answer_len, end)):
                yield number, first, last, start_logits[number][first + shift] + end_logits[number][last + shift]


def every_answer(question, start_logits, end_logits, max_answer_len, align_to_words):
    """All different answers, best first: `{(start, end): (score, probability)}`; the same of "no answer"."""
    nulls, totals = [], [0.0, 0.0]
    for window, *logits in zip(question.windows, start_logits, end_logits, strict=True):
        in_context = slice(window.context_start, window.context_start + window.context_length)
        nulls.append([values[window.null_position] for values in logits])
        totals = [total + np.exp(values[in_context]).sum() for total, values in zip(totals, logits, strict=True)]
    null = min(nulls, key=sum)
    total = np.prod([one + np.exp(score) for one, score in zip(totals, null, strict=True)])
    spans = question.word_spans if align_to_words else question.token_spans
    best = {}
    for _, first, last, score in every_span(question, start_logits, end_logits, max_answer_len):
        span = (int(spans[first][0]), int(spans[last][1]))
        best[span] = max(best.get(span, -np.inf), score)
    ordered = sorted(best.items(), key=lambda item: -item[1])
    return {span: (score, np.exp(score) / total) for span, score in ordered}, (sum(null), np.exp(sum(null)) / total)


def random_logits(question, seed, scale=2.0):
    generator = np.random.default_rng(seed)
    lengths = [len(window.inputs["input_ids"]) for window in question.windows]
    return tuple([generator.normal(0, scale, length) for length in lengths] for _ in range(2))


def one_hot(question, positions):
    """Logits that point at the given positions of each window."""
    starts, ends = [], []
    for window, (start, end) in zip(question.windows, positions, strict=True):
        for logits, place in ((starts, start), (ends, end)):
            logits.append(np.zeros(len(window.inputs["input_ids"])))
            logits[-1][place] = 50.0
    return starts, ends


@pytest.mark.parametrize("side", ["right", "left"])
@pytest.mark.parametrize(("max_seq_len", "doc_stride"), [(20, 0), (20, 5), (24, 7), (30, 1), (64, 9), (500, 128)])
def test_windows_are_those_of_the_tokenizer(tokenizer, side, max_seq_len, doc_stride):
    tokenizer.padding_side = side
    try:
        (question,) = make_windows(tokenizer, [QUESTION], [CONTEXT], max_seq_len, doc_stride)
        expected = tokenizer(
            *((QUESTION, CONTEXT) if side == "right" else (CONTEXT, QUESTION)),
            truncation="only_second" if side == "right" else "only_first",
            max_length=max_seq_len,
            stride=doc_stride,
            return_overflowing_tokens=True,
            return_offsets_mapping=True,
        )
    finally:
        tokenizer.padding_side = "right"
    for name in tokenizer.model_input_names:
        assert [window.inputs[name].tolist() for window in question.windows] == expected[name]
    for number, window in enumerate(question.windows):
        stretch = slice(window.context_start, window.context_start + window.context_length)
        offsets = question.token_spans[window.first_token : window.first_token + window.context_length]
        assert offsets.tolist() == [list(pair) for pair in expected["offset_mapping"][number][stretch]]
        assert window.inputs["input_ids"][window.null_position] == tokenizer.cls_token_id
    alone = tokenizer(CONTEXT, add_special_tokens=False)
    assert question.word_spans.tolist() == [list(alone.word_to_chars(word)) for word in alone.word_ids()]


def test_words_at_the_border_of_a_window_stay_whole(tokenizer):
    (question,) = make_windows(tokenizer, ["who"], ["the zebra"], max_seq_len=8, doc_stride=1)
    # "zebra" is five pieces and the window has space for four tokens of context: the, z, ##e, ##b
    assert [window.context_length for window in question.windows] == [4, 3]
    starts, ends = one_hot(question, [(6, 6), (0, 0)])
    (answer,), _ = best_answers(question, starts, ends)
    assert answer.text == "zebra"
    (answer,), _ = best_answers(question, starts, ends, align_to_words=False)
    assert answer.text == "b"


@pytest.mark.parametrize("align_to_words", [True, False])
@pytest.mark.parametrize(("max_seq_len", "doc_stride"), [(20, 5), (26, 12), (64, 0)])
@pytest.mark.parametrize("max_answer_len", [1, 4, 30])
def test_answers_are_the_best_of_all_spans(tokenizer, align_to_words, max_seq_len, doc_stride, max_answer_len):
    (question,) = make_windows(tokenizer, [QUESTION], [CONTEXT], max_seq_len, doc_stride)
    for seed in range(3):
        starts, ends = random_logits(question, seed)
        expected, null_expected = every_answer(question, starts, ends, max_answer_len, align_to_words)
        for top_k in (1, 3, 20, 10_000):
            answers, null = best_answers(question, starts, ends, top_k, max_answer_len, align_to_words)
            assert len(answers) == min(top_k, len(expected))
            assert [(answer.start, answer.end) for answer in answers] == list(expected)[:top_k]
            for answer in answers:
                score, probability = expected[answer.start, answer.end]
                assert answer.score == pytest.approx(score)
                assert answer.probability == pytest.approx(probability)
                assert answer.text == CONTEXT[answer.start : answer.end] != ""
            assert (null.score, null.probability) == pytest.approx(null_expected)
            assert (null.text, null.start, null.end) == ("", 0, 0)


def google_best(question, start_logits, end_logits, max_answer_len):
    """Texts from best to worst, as `run_squad.py` finds them: begins of maximum context only, and each text once."""
    tokens = len(question.token_spans)

    def context(window, token):
        end = window.first_token + window.context_length - 1
        if not window.first_token <= token <= end:
            return -1.0
        return min(token - window.first_token, end - token) + 0.01 * window.context_length

    owner = [
        max(range(len(question.windows)), key=lambda number: (context(question.windows[number], token), -number))
        for token in range(tokens)
    ]
    spans = question.token_spans
    found = [
        (-score, question.context[spans[first][0] : spans[last][1]])
        for number, first, last, score in every_span(question, start_logits, end_logits, max_answer_len)
        if owner[first] == number
    ]
    return list(dict.fromkeys(text for _, text in sorted(found)))


@pytest.mark.parametrize(("max_seq_len", "doc_stride"), [(20, 5), (24, 12), (17, 3), (310, 50), (500, 128)])
def test_answers_by_googles_rule(tokenizer, max_seq_len, doc_stride):
    context = " ".join(["the cat", *random.Random(0).choices("abcdefgh", k=350), "the cat"])
    (question,) = make_windows(tokenizer, [QUESTION], [context], max_seq_len, doc_stride)
    logits = random_logits(question, 0)
    answers, null = best_answers(question, *logits, 5000, 6, align_to_words=False, max_context=True)
    assert [answer.text for answer in answers] == google_best(question, *logits, 6)
    plain, same_null = best_answers(question, *logits, 5000, 6, align_to_words=False)
    assert null == same_null
    assert [answer.text for answer in plain] != [answer.text for answer in answers]


@settings(max_examples=60, deadline=None)
@given(
    context=st.text(alphabet="ab .,é가北🙂\n\u200b\u0301", min_size=1, max_size=60).filter(
        lambda text: any(letter in text for letter in "ab.,é가北🙂")
    ),
    seed=st.integers(0, 1000),
    max_seq_len=st.integers(8, 40),
)
def test_any_text_gives_exact_substrings(tokenizer, context, seed, max_seq_len):
    (question,) = make_windows(tokenizer, ["who"], [context], max_seq_len)
    starts, ends = random_logits(question, seed)
    answers, _ = best_answers(question, starts, ends, top_k=1000)
    assert answers
    spans = [(answer.start, answer.end) for answer in answers]
    assert len(set(spans)) == len(spans)
    for answer in answers:
        assert 0 <= answer.start < answer.end <= len(context)
        assert answer.text == context[answer.start : answer.end] == answer.text.strip()
    assert sum(answer.probability for answer in answers) <= 1 + 1e-9


def test_no_answer_outside_the_context(tokenizer):
    (question,) = make_windows(tokenizer, ["the cat sat"], ["a dog"])
    ids = question.windows[0].inputs["input_ids"]
    logits = [np.where(np.isin(np.arange(len(ids)), [0, 1, 2, 3, 4, len(ids) - 1]), 100.0, 0.0)]
    answers, null = best_answers(question, logits, logits, top_k=9)
    assert sorted(answer.text for answer in answers) == ["a", "a dog", "dog"]
    assert null.score == 200.0


def test_equal_scores_come_from_left_to_right_and_only_once(tokenizer):
    (question,) = make_windows(tokenizer, ["who"], ["the cat sat in the house"], max_seq_len=8, doc_stride=3)
    assert len(question.windows) == 3
    zeros = [np.zeros(len(window.inputs["input_ids"])) for window in question.windows]
    answers, _ = best_answers(question, zeros, zeros, top_k=100, max_answer_len=2)
    assert [answer.text for answer in answers] == [
        "the", "the cat", "cat", "cat sat", "sat", "sat in", "in", "in the", "the", "the house", "house",
    ]  # fmt: skip


def test_null_score_is_the_smallest_of_all_windows(tokenizer):
    (question,) = make_windows(tokenizer, ["who"], ["the cat sat in the house"], max_seq_len=8, doc_stride=1)
    starts, ends = random_logits(question, seed=0)
    for number, (start, end) in enumerate([(9.0, 1.0), (2.0, 3.0)]):
        starts[number][0], ends[number][0] = start, end
    _, null = best_answers(question, starts, ends)
    assert (null.start_logit, null.end_logit, null.score) == (2.0, 3.0, 5.0)


def test_answer_positions_in_each_window(tokenizer):
    context = "the cat sat in the house"
    (question,) = make_windows(tokenizer, ["who"], [context], max_seq_len=8, doc_stride=1)
    start = context.index("in the")
    # the windows hold "the cat sat in" and "in the house", behind [CLS] who [SEP]
    assert answer_positions(question, start, start + len("in the")) == [(0, 0), (3, 4)]
    assert answer_positions(question, start, start + len("in")) == [(6, 6), (3, 3)]
    assert answer_positions(question, 0, 0) == [(0, 0), (0, 0)]
    assert answer_positions(question, 1, 2) == [(3, 3), (0, 0)]  # inside of "the"


def test_default_overlap_leaves_room_for_progress(tokenizer):
    (question,) = make_windows(tokenizer, ["who is the cat?"], ["the " * 40], max_seq_len=10)
    assert [window.first_token for window in question.windows[:3]] == [0, 1, 2]  # space for two tokens, one shared
    assert question.windows[-1].first_token + question.windows[-1].context_length == 40


def test_long_questions_are_cut(tokenizer):
    (question,) = make_windows(tokenizer, ["the cat zebra " * 50], ["a dog"], max_question_len=4)
    assert tokenizer.decode(question.windows[0].inputs["input_ids"]) == "[CLS] the cat ze [SEP] a dog [SEP]"


def test_tokens_with_their_space():
    """Metaspace tokenizers count the space before a word to it, and RoBERTa's have no token types."""
    pieces = ["<pad>", "<s>", "</s>", "<unk>", "▁", "▁the", "▁cat", "▁sat"]
    backend = Tokenizer(models.WordLevel({piece: number for number, piece in enumerate(pieces)}, unk_token="<unk>"))
    backend.pre_tokenizer = pre_tokenizers.Metaspace()
    backend.post_processor = processors.TemplateProcessing(
        single="<s> $A </s>", pair="<s> $A </s> </s> $B </s>", special_tokens=[("<s>", 1), ("</s>", 2)]
    )
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=backend, pad_token="<pad>", cls_token="<s>", sep_token="</s>", unk_token="<unk>"
    )
    context = "the cat  sat "
    (question,) = make_windows(tokenizer, ["cat"], [context])
    zeros = [np.zeros(len(question.windows[0].inputs["input_ids"]))]
    answers, _ = best_answers(question, zeros, zeros, top_k=100, align_to_words=False)
    assert {answer.text for answer in answers} == {"the", "the cat", "the cat  sat", "cat", "cat  sat", "sat"}
    assert all(answer.text == context[answer.start : answer.end] for answer in answers)


@pytest.mark.parametrize("name", ["dev-v1.1.json.gz", "dev-v2.0.json.gz"])
def test_real_answers_survive_the_way_to_tokens_and_back(name):
    path, vocabulary = SHARED / "data/squad" / name, SHARED / "fixtures/google_tokenization/vocab.txt"
    if not path.exists() or not vocabulary.exists():
        pytest.skip(f"{path} or {vocabulary} is missing")
    pieces = vocabulary.read_text(encoding="utf-8").splitlines()
    tokenizer = BertTokenizer(vocab={piece: number for number, piece in enumerate(pieces)})
    with gzip.open(path, "rt", encoding="utf-8") as file:
        articles = json.load(file)["data"]
    examples = [
        (question["question"], paragraph["context"], answer)
        for article in articles
        for paragraph in article["paragraphs"]
        for question in paragraph["qas"]
        for answer in (question["answers"] or [None])[:1]
    ][::40]
    windowed = make_windows(tokenizer, [e[0] for e in examples], [e[1] for e in examples], 128, 48)
    exact = answerable = 0
    for (_, context, answer), question in zip(examples, windowed, strict=True):
        start = answer["answer_start"] if answer else 0
        end = start + len(answer["text"]) if answer else 0
        starts, ends = one_hot(question, answer_positions(question, start, end))
        (found,), null = best_answers(question, starts, ends, max_answer_len=100, align_to_words=False)
        if answer is None:
            assert null.score == 100.0 > found.score
            continue
        answerable += 1
        assert found.score == 100.0 and found.text == context[found.start : found.end]
        assert found.start <= start and end <= found.end  # at least the answer, whole tokens around it
        exact += (found.start, found.end) == (start, end)
    assert exact > 0.99 * answerable > 100


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"doc_stride": 16, "max_seq_len": 16}, r"doc_stride is 16; expected 0 or more and less than max_seq_len"),
        ({"doc_stride": -1}, "doc_stride is -1"),
        ({"doc_stride": 8, "max_seq_len": 16}, r"doc_stride \(8\) is not less than the space .* 5 tokens"),
        ({"max_seq_len": 11}, r"max_seq_len \(11\) leaves no space for the context after .* 11 tokens"),
        ({"max_question_len": 0}, "max_question_len is 0; expected at least 1"),
        ({"questions": [" "]}, "found ' ' as question"),
        ({"contexts": [""]}, "found '' as context"),
        ({"contexts": [None]}, "found None as context"),
        ({"contexts": ["\u200b"]}, "holds no token that the tokenizer knows"),
        ({"questions": ["who", "where"]}, "found 2 questions and 1 contexts"),
        ({"tokenizer": ByT5Tokenizer()}, "ByT5Tokenizer gives no character offsets: .* needs a fast tokenizer"),
    ],
)
def test_make_windows_wrong_options_are_errors(tokenizer, options, message):
    arguments = {"tokenizer": tokenizer, "questions": [QUESTION], "contexts": [CONTEXT], **options}
    with pytest.raises(ValueError, match=message):
        make_windows(**arguments)


def test_unusable_logits_and_limits(tokenizer):
    (question,) = make_windows(tokenizer, ["who"], ["the cat"])
    logits = [np.full(6, np.nan)]
    with pytest.raises(ValueError, match="not finite numbers"):
        best_answers(question, logits, logits)
    with pytest.raises(ValueError, match="top_k is 0; expected at least 1"):
        best_answers(question, logits, logits, top_k=0)
    with pytest.raises(ValueError, match="max_answer_len is -1; expected at least 1"):
        best_answers(question, logits, logits, max_answer_len=-1)
