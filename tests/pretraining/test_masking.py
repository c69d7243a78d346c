import numpy as np
import pytest
import torch

from mybert import MyBertTokenizer
from mybert.pretraining import (
    MaskingRates,
    PretrainingCollator,
    PretrainingDataset,
    TokenStore,
    build_token_store,
    mask_tokens,
)

SPECIAL = np.array([2, 3])


def mask(ids, rates, generator):
    ordinary = np.setdiff1d(np.arange(1000), np.arange(5))
    return mask_tokens(ids, np.isin(ids, SPECIAL), 4, ordinary, rates, generator)


def test_rates_on_a_large_sample():
    generator = np.random.default_rng(0)
    chosen = masked = kept = replaced = total = 0
    for _ in range(1000):
        ids = np.concatenate([[2], generator.integers(5, 1000, 100), [3], generator.integers(5, 1000, 25), [3]])
        new, labels = mask(ids, MaskingRates(), generator)
        is_chosen = labels != -100
        assert np.array_equal(labels[is_chosen], ids[is_chosen])
        assert np.array_equal(new[~is_chosen], ids[~is_chosen])
        assert not np.isin(ids[is_chosen], SPECIAL).any()
        assert is_chosen.sum() == round(0.15 * len(ids))
        total += len(ids)
        chosen += is_chosen.sum()
        masked += (new[is_chosen] == 4).sum()
        kept += (new[is_chosen] == ids[is_chosen]).sum()
        changed = new[is_chosen & (new != ids) & (new != 4)]
        assert (changed >= 5).all()
        replaced += len(changed)
    # 19,000 predictions: three standard errors are 0.009 and 0.0065
    assert chosen / total == pytest.approx(0.15, abs=0.003)
    assert masked / chosen == pytest.approx(0.8, abs=0.009)
    assert kept / chosen == pytest.approx(0.1, abs=0.0066)
    assert replaced / chosen == pytest.approx(0.1, abs=0.0066)


def test_at_least_one_token_and_never_a_special_one():
    generator = np.random.default_rng(0)
    _, labels = mask(np.array([2, 7, 3, 8, 3]), MaskingRates(predicted=0.0), generator)
    assert (labels != -100).sum() == 1
    _, labels = mask(np.array([2, 7, 3, 8, 3]), MaskingRates(predicted=1.0), generator)
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


def test_mistakes():
    with pytest.raises(ValueError, match=r"rate predicted is 1.5; expected a share"):
        MaskingRates(predicted=1.5)
    with pytest.raises(ValueError, match=r"masked \(0.9\) and random \(0.2\) exceed 1"):
        MaskingRates(masked=0.9, random=0.2)


@pytest.fixture(scope="module")
def dataset(tmp_path_factory, documents, tokenizer):
    path = tmp_path_factory.mktemp("store") / "store.safetensors"
    build_token_store(documents, tokenizer, path, show_progress=False)
    return PretrainingDataset(TokenStore(path), cls_token_id=2, sep_token_id=3, max_length=40)


def test_collator_pads_and_marks(dataset, tokenizer):
    examples = [dataset[index] for index in range(6)]
    batch = PretrainingCollator(tokenizer, pad_to_multiple_of=8)(examples)
    assert all(value.dtype == torch.int64 for value in batch.values())
    assert batch["input_ids"].shape[1] % 8 == 0
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
    assert not torch.equal(alone["labels"], PretrainingCollator(tokenizer, seed=2)([dataset[9]])["labels"])
    first = collator([dataset[index] for index in range(20)])["labels"]
    dataset.set_epoch(1)
    second = collator([dataset[index] for index in range(20)])["labels"]
    dataset.set_epoch(0)
    assert first.shape != second.shape or not torch.equal(first, second)


def test_collator_says_what_it_misses(tokenizer):
    with pytest.raises(ValueError, match="remove_unused_columns=False"):
        PretrainingCollator(tokenizer)([{"input_ids": np.array([1])}])


def test_random_words_are_words(documents, tmp_path):
    """Never a special token, and never one of the reserved entries of Google's layout."""
    pieces = ["[PAD]", *(f"[unused{n}]" for n in range(90)), "[UNK]", "[CLS]", "[SEP]", "[MASK]", "one", "two", "##s"]
    tokenizer = MyBertTokenizer(vocab=pieces)
    collator = PretrainingCollator(tokenizer, rates=MaskingRates(predicted=0.9, masked=0.0, random=1.0))
    words = tokenizer.convert_tokens_to_ids(["one", "two", "##s"])
    ids = np.array([tokenizer.cls_token_id, *words * 100, tokenizer.sep_token_id])
    example = {"input_ids": ids, "token_type_ids": np.zeros_like(ids), "next_sentence_label": 0, "example": (0, 0)}
    batch = collator([example])
    replaced = batch["input_ids"][0][batch["labels"][0] != -100]
    assert set(replaced.tolist()) == set(words)
