from itertools import pairwise, product

import numpy as np
import pytest
import torch
from torch.nn.utils.rnn import pad_sequence

from mybert import MyBertTokenizer
from mybert.pretraining import MaskingRates, PretrainingCollator, mask_tokens
from mybert.pretraining.dataset import example_generator

SPECIAL = np.array([2, 3])
ORDINARY = np.arange(5, 1000)


def mask(ids, rates, generator, is_continuation=None):
    is_continuation = ids < 0 if is_continuation is None else is_continuation
    return mask_tokens(ids, np.isin(ids, SPECIAL), 4, ORDINARY, rates, generator, is_continuation)


def test_at_least_one_token_and_never_a_special_one():
    generator = np.random.default_rng(0)
    _, labels = mask(np.array([2, 7, 3, 8, 3]), MaskingRates(mlm_probability=0.0), generator)
    assert (labels != -100).sum() == 1
    _, labels = mask(np.array([2, 7, 3, 8, 3]), MaskingRates(mlm_probability=1.0), generator)
    assert labels.tolist() == [-100, 7, -100, 8, -100]
    new, labels = mask(np.array([2, 3]), MaskingRates(), generator)
    assert (labels == -100).all()
    assert new.tolist() == [2, 3]


def test_every_position_is_as_likely():
    generator = np.random.default_rng(0)
    ids = np.concatenate([[2], np.arange(5, 23), [3]])
    counts = sum((mask(ids, MaskingRates(), generator)[1] != -100).astype(int) for _ in range(6000))
    assert counts[[0, -1]].tolist() == [0, 0]
    # 3 of 18 positions: 1,000 each, standard deviation 29
    assert counts[1:-1].min() > 880
    assert counts[1:-1].max() < 1120


@pytest.mark.parametrize("unit", ["token", "word", "span"])
def test_no_more_predictions_than_allowed(unit):
    generator = np.random.default_rng(0)
    ids = np.concatenate([[2], np.arange(5, 105), [3]])
    for most in (1, 4, 15, 40):
        _, labels = mask(ids, MaskingRates(masking_unit=unit, max_predictions=most), generator)
        assert (labels != -100).sum() == min(most, 15)


def sample_of_words(rates, sequences=2500, words=60):
    """Masked sequences of words of one to three pieces (the ids 600 and above continue a word)."""
    generator = np.random.default_rng(1)
    for _ in range(sequences):
        lengths = generator.integers(1, 4, words)
        ids = generator.integers(600, 1000, lengths.sum())
        starts = np.cumsum(lengths) - lengths
        ids[starts] = generator.integers(5, 600, words)
        ids = np.insert(ids, [0, generator.choice(starts[1:]), len(ids)], [2, 3, 3])
        yield ids, *mask(ids, rates, generator, is_continuation=ids >= 600)


@pytest.mark.parametrize("unit", ["token", "word", "span"])
def test_tokens_and_whole_words_are_masked_with_the_same_rates(unit):
    predicted, total, kinds = 0, 0, np.zeros(3)
    for ids, new, labels in sample_of_words(MaskingRates(masking_unit=unit)):
        is_chosen = labels != -100
        word = np.cumsum(ids < 600) if unit != "token" else np.arange(len(ids))
        for number in np.unique(word[is_chosen]):
            assert is_chosen[word == number].all()
        assert np.array_equal(labels[is_chosen], ids[is_chosen]) and np.array_equal(new[~is_chosen], ids[~is_chosen])
        assert not np.isin(ids[is_chosen], SPECIAL).any()
        most = round(0.15 * len(ids))
        assert is_chosen.sum() == most if unit == "token" else is_chosen.sum() <= most
        predicted += is_chosen.sum()
        total += len(ids)
        chosen = new[is_chosen]
        is_kept = chosen == ids[is_chosen]
        kinds += (chosen == 4).sum(), is_kept.sum(), ((chosen != 4) & ~is_kept).sum()
        assert (chosen[(chosen != 4) & ~is_kept] >= 5).all()
    # The words that fit use almost all allowed predictions.
    assert predicted / total == pytest.approx(0.15, abs=0.003)
    # 45,000 predictions, in the case of spans about 10,000 independent draws: four standard errors
    assert kinds / predicted == pytest.approx([0.8, 0.1, 0.1], abs=0.017 if unit == "span" else 0.008)


def test_words_are_chosen_as_by_google():
    """In random order, skipping words that would exceed the number: short words fill the rest."""
    generator = np.random.default_rng(2)
    masked, googles, words = np.zeros(4), np.zeros(4), np.zeros(4)
    for ids, _, labels in sample_of_words(MaskingRates(masking_unit="word")):
        lengths = np.bincount(np.cumsum(ids < 600))[np.cumsum(ids < 600)]
        is_start = (ids < 600) & (ids > 4)
        words += np.bincount(lengths[is_start], minlength=4)
        masked += np.bincount(lengths[is_start & (labels != -100)], minlength=4)
        left = round(0.15 * len(ids))
        for length in generator.permutation(lengths[is_start]):
            if length <= left:
                left -= length
                googles[length] += 1
    # 50,000 words of each length, of which about 7,500 are chosen: four standard errors of the difference
    assert masked[1:] / words[1:] == pytest.approx(googles[1:] / words[1:], abs=0.009)


def test_spans_have_the_lengths_of_spanbert():
    """Measured where nothing interferes: long text, few predictions."""
    generator = np.random.default_rng(0)
    ids = np.concatenate([[2], np.arange(5, 600), [3]])
    counts = np.zeros(11)
    rates = MaskingRates(masking_unit="span", max_predictions=10)
    for _ in range(8000):
        _, labels = mask(ids, rates, generator, is_continuation=ids >= 600)
        positions = np.flatnonzero(labels != -100)
        runs = np.split(positions, np.flatnonzero(np.diff(positions) > 1) + 1)
        assert len(positions) == 10
        counts += np.bincount([len(run) for run in runs], minlength=11)
    # A first span of 10 words, or two that touch (one of 595 places each): 0.0336 of truncated geometric lengths
    expected = 0.2 * 0.8**9 / (1 - 0.8**10)
    assert counts[10] / 8000 == pytest.approx(expected, abs=0.009)
    drawn, shares = np.zeros(11), 0.8 ** np.arange(1, 11)
    for _ in range(8000):
        ends = np.cumsum(generator.choice(np.arange(1, 11), 10, p=shares / shares.sum())).clip(max=10)
        drawn += np.bincount(np.diff(ends, prepend=0), minlength=11)
    drawn[0] = 0
    # about 24,000 spans of each: four standard errors of a difference, and spans that touch
    assert counts / counts.sum() == pytest.approx(drawn / drawn.sum(), abs=0.02)


@pytest.mark.parametrize("unit", ["word", "span"])
def test_words_do_not_reach_across_special_tokens(unit):
    generator = np.random.default_rng(0)
    ids = np.array([2, 10, 3, 700, 701, 3])
    seen = set()
    for _ in range(300):
        _, labels = mask(
            ids, MaskingRates(mlm_probability=0.5, masking_unit=unit), generator, is_continuation=ids >= 600
        )
        seen.add(tuple(np.flatnonzero(labels != -100)))
    assert seen == {(1, 3, 4)}
    one = MaskingRates(max_predictions=1, masking_unit=unit)  # after a special token a new word starts
    _, labels = mask(ids, one, generator, is_continuation=ids >= 600)
    assert np.flatnonzero(labels != -100).tolist() == [1]
    ids = np.array([2, 10, 700, 3])
    _, labels = mask(ids, MaskingRates(masking_unit=unit), generator, is_continuation=ids >= 600)
    assert (labels == -100).all()
    ids = np.array([700, 3])  # so it does at the beginning
    _, labels = mask(ids, MaskingRates(masking_unit=unit), generator, is_continuation=ids >= 600)
    assert labels.tolist() == [700, -100]


def test_spans_end_at_special_tokens():
    """A span is masked or kept as a whole; of two words with [SEP] between them, each is by itself."""
    generator, ids = np.random.default_rng(0), np.array([2, 10, 3, 20, 3])
    rates = MaskingRates(mlm_probability=1.0, masking_unit="span", mask_replace_prob=0.5, random_replace_prob=0.0)
    differ = sum(np.diff((mask(ids, rates, generator)[0] == 4)[[1, 3]])[0] for _ in range(2000))
    assert differ == pytest.approx(1000, abs=100)  # standard deviation 22


@pytest.mark.parametrize(("unit", "differ"), [("word", 1000), ("span", 0)])
def test_pieces_of_a_word_are_masked_or_kept_one_by_one_those_of_a_span_together(unit, differ):
    generator, ids = np.random.default_rng(0), np.array([2, 10, 600, 3])
    rates = MaskingRates(mlm_probability=1.0, masking_unit=unit, mask_replace_prob=0.5, random_replace_prob=0.0)
    found = sum(np.diff((mask(ids, rates, generator, ids >= 600)[0] == 4)[[1, 2]])[0] for _ in range(2000))
    assert found == pytest.approx(differ, abs=100)  # standard deviation 22


@pytest.fixture(scope="module")
def dataset(make_dataset):
    return make_dataset()


def test_collator_pads_and_marks(dataset, tokenizer):
    examples = [dataset[index] for index in range(6)]
    batch = PretrainingCollator(tokenizer)(examples)
    assert all(value.dtype == torch.int64 for value in batch.values())
    assert batch["input_ids"].shape[1] == max(len(example["input_ids"]) for example in examples)
    for row, example in enumerate(examples):
        length = len(example["input_ids"])
        assert batch["attention_mask"][row].tolist() == [1] * length + [0] * (batch["input_ids"].shape[1] - length)
        assert (batch["input_ids"][row, length:] == tokenizer.pad_token_id).all()
        assert (batch["labels"][row, length:] == -100).all()
        assert batch["token_type_ids"][row, :length].tolist() == example["token_type_ids"].tolist()
        original = torch.where(batch["labels"][row] == -100, batch["input_ids"][row], batch["labels"][row])
        assert original[:length].tolist() == example["input_ids"].tolist()
    assert batch["next_sentence_label"].tolist() == [example["next_sentence_label"] for example in examples]


def test_masks_depend_on_the_example_not_on_the_batch(dataset, tokenizer):
    collator = PretrainingCollator(tokenizer, seed=1)
    together = collator([dataset[index] for index in (4, 9, 2)])
    alone = collator([dataset[9]])
    length = alone["input_ids"].shape[1]
    assert torch.equal(together["labels"][1, :length], alone["labels"][0])
    assert torch.equal(together["input_ids"][1, :length], alone["input_ids"][0])


def masked_alone(collator, ids, example=(0, 0)):
    return collator([{"input_ids": ids, "token_type_ids": np.zeros_like(ids), "example": example}])


def test_every_example_epoch_and_purpose_has_a_stream_of_its_own(tokenizer):
    draws = {example_generator(*key).random() for key in product((0, 1), repeat=4)}
    assert len(draws) == 16
    ids = np.array([2, *range(5, 25), 3])
    for epoch, index in ((0, 5), (1, 5), (1, 6)):
        batch = masked_alone(PretrainingCollator(tokenizer, seed=7), ids, (epoch, index))
        _, labels = mask(ids, MaskingRates(), example_generator(7, epoch, index, purpose=1))
        assert batch["labels"][0].tolist() == labels.tolist()  # truncation uses the stream of purpose 0


def test_words_are_masked_whole(tokenizer):
    ids = np.array([2, *[6, tokenizer.convert_tokens_to_ids("##s")] * 50, 3])
    labels = masked_alone(PretrainingCollator(tokenizer, rates=MaskingRates(masking_unit="word")), ids)["labels"][0]
    assert (labels[1:-1:2] != -100).tolist() == (labels[2:-1:2] != -100).tolist()
    assert (labels != -100).sum() == 14  # 15.3 are allowed, and words are two tokens


@pytest.mark.parametrize("unit", ["word", "span"])
def test_text_without_spaces_is_masked_with_the_same_rates(unit):
    """Words of 90 tokens, longer than all predictions together, and of 15, of which one fits."""
    generator, chosen = np.random.default_rng(0), np.zeros(182)
    for length in (90, 15) * 300:
        ids = np.array([2, *[10, *range(600, 599 + length)] * (180 // length), 3])
        new, labels = mask(ids, MaskingRates(masking_unit=unit), generator, is_continuation=ids >= 600)
        chosen += labels != -100
        assert (labels != -100).sum() == 27 and (new == 4).any()
    # every token 89 times; standard deviation 9, and words of 15 are chosen together
    assert chosen[0] == chosen[-1] == 0 and (np.abs(chosen[1:-1] - 90) < 50).all()


@pytest.mark.parametrize("pack", [False, True])
def test_left_to_right_labels_are_the_next_tokens(make_dataset, tokenizer, pack):
    single = make_dataset(objective="ltr", pack=pack, row_length=80 if pack else None)
    examples = [single[index] for index in range(5)]
    batch = PretrainingCollator(tokenizer, objective="ltr")(examples)
    assert "next_sentence_label" not in batch
    for row, example in enumerate(examples):
        ids, labels = batch["input_ids"][row], batch["labels"][row]
        assert ids[: len(example["input_ids"])].tolist() == example["input_ids"].tolist()
        lengths = example.get("sequence_lengths", [len(example["input_ids"])])
        begin = 0
        for length in lengths:
            assert labels[begin : begin + length].tolist() == [*ids[begin + 1 : begin + length].tolist(), -100]
            begin += length
        assert (labels[begin:] == -100).all()


@pytest.fixture(scope="module")
def packed(make_dataset):
    return make_dataset(pack=True, row_length=120)


def sequences_of(batch):
    """(row, slice) of each sequence of a packed batch."""
    length = batch["input_ids"].shape[1]
    limits = batch["cu_seq_lens_q"].tolist()
    for begin, end in pairwise(limits):
        assert begin // length == (end - 1) // length, "a sequence lies in one row"
        yield begin // length, slice(begin % length, (end - 1) % length + 1)


def test_a_packed_batch(packed, tokenizer):
    examples = [packed[index] for index in range(len(packed))]
    batch = PretrainingCollator(tokenizer)(examples)
    rows = len(examples)
    for name in ("input_ids", "token_type_ids", "position_ids", "labels"):
        assert batch[name].shape == (rows, 120)
        assert batch[name].dtype == torch.int64
    assert "attention_mask" not in batch
    assert batch["cu_seq_lens_q"].dtype == torch.int32
    assert torch.equal(batch["cu_seq_lens_q"], batch["cu_seq_lens_k"])
    assert batch["cu_seq_lens_q"][0] == 0
    assert batch["cu_seq_lens_q"][-1] == rows * 120
    assert batch["max_length_q"] == batch["max_length_k"] == batch["cu_seq_lens_q"].diff().max()
    shortest_first = sorted(examples, key=lambda example: example["sequence_lengths"][0])
    again = PretrainingCollator(tokenizer)(shortest_first)
    assert again["max_length_q"] == batch["max_length_q"] > again["cu_seq_lens_q"][1]
    sequences = list(sequences_of(batch))
    assert len(batch["next_sentence_label"]) == len(sequences)
    labels, tails = [], 0
    for (row, where), label in zip(sequences, batch["next_sentence_label"].tolist(), strict=True):
        ids = batch["input_ids"][row, where]
        assert batch["position_ids"][row, where].tolist() == list(range(len(ids)))
        chosen = batch["labels"][row, where] != -100
        if label == -100:
            tails += 1
            assert (ids == tokenizer.pad_token_id).all()
            assert not chosen.any()
            assert not batch["token_type_ids"][row, where].any()
        else:
            labels.append(label)
            assert chosen.sum() == max(1, round(0.15 * len(ids)))
            original = torch.where(chosen, batch["labels"][row, where], ids)
            assert original[0] == 2
            assert original[-1] == 3
    assert labels == [label for example in examples for label in example["next_sentence_label"]]
    assert 0 < tails < rows


def test_padding_of_packed_rows_has_no_positions_of_its_own(make_dataset, tokenizer):
    """Most of a row as long as all text is padding: more than the model has positions for."""
    rows = make_dataset(pack=True, row_length=40_000)
    batch = PretrainingCollator(tokenizer)([rows[0]])
    assert len(rows[0]["input_ids"]) < 40_000 - 40
    assert batch["position_ids"].max() < 40
    assert batch["max_length_q"] == batch["cu_seq_lens_q"].diff().max() == rows[0]["sequence_lengths"].max()
    assert batch["cu_seq_lens_q"][-1] == 40_000
    tails = len(batch["next_sentence_label"]) - len(rows[0]["sequence_lengths"])
    assert tails > 1
    assert (batch["next_sentence_label"][-tails:] == -100).all()


def test_packed_rows_give_the_losses_of_their_sequences(packed, make_model, tokenizer):
    """Attention does not cross sequences: results equal those of padded single sequences."""
    model = make_model(num_hidden_layers=2).eval()
    batch = PretrainingCollator(tokenizer)([packed[index] for index in range(6)])
    sequences = [
        (row, where)
        for (row, where), label in zip(sequences_of(batch), batch["next_sentence_label"], strict=True)
        if label != -100
    ]
    lengths = [where.stop - where.start for _, where in sequences]
    padded = {
        name: pad_sequence([batch[name][row, where] for row, where in sequences], True, padding)
        for name, padding in (("input_ids", 0), ("token_type_ids", 0), ("labels", -100))
    }
    padded["attention_mask"] = (torch.arange(max(lengths)) < torch.tensor(lengths)[:, None]).long()
    padded["next_sentence_label"] = batch["next_sentence_label"][batch["next_sentence_label"] != -100]
    with torch.no_grad():
        assert model(**batch).loss.item() == pytest.approx(model(**padded).loss.item(), rel=1e-5)


def test_collator_says_what_it_misses(tokenizer):
    with pytest.raises(ValueError, match="remove_unused_columns=False"):
        PretrainingCollator(tokenizer)([{"input_ids": np.array([1])}])


def test_random_words_are_words():
    """Never a special token, and never one of the reserved entries of Google's layout."""
    pieces = ["[PAD]", *(f"[unused{n}]" for n in range(90)), "[UNK]", "[CLS]", "[SEP]", "[MASK]", "one", "two", "##s"]
    tokenizer = MyBertTokenizer(vocab=pieces)
    collator = PretrainingCollator(
        tokenizer, rates=MaskingRates(mlm_probability=0.9, mask_replace_prob=0.0, random_replace_prob=1.0)
    )
    words = tokenizer.convert_tokens_to_ids(["one", "two", "##s"])
    ids = np.array([tokenizer.cls_token_id, *words * 100, tokenizer.sep_token_id])
    batch = masked_alone(collator, ids)
    replaced = batch["input_ids"][0][batch["labels"][0] != -100]
    assert set(replaced.tolist()) == set(words)
