"""Settings that change during a run: the masking rate and the batch size."""

import pytest
import torch

from mybert.pretraining import (
    PretrainingArguments,
    PretrainingCollator,
    PretrainingDataset,
    build_token_store,
    pretrain,
)
from mybert.pretraining.masking import ChangingRate
from mybert.pretraining.token_store import TokenStore


def arguments(tmp_path, **settings) -> PretrainingArguments:
    given = {"text": ["text.txt"], "output_dir": str(tmp_path / "run"), "max_steps": 100, "use_cpu": True}
    return PretrainingArguments(**given | settings)


def test_the_rate_is_that_of_the_examples_step():
    rate = ChangingRate(first=0.3, last=0.15, begin=10, end=110, batch_size=8, examples=83)
    assert rate(0, 0) == rate(0, 79) == rate(1, 7) == 0.3  # steps 0, 9 and 10: an epoch has ten whole batches
    assert rate(1, 8) == pytest.approx(0.2985)  # step 11
    assert rate(6, 5) == pytest.approx(0.225)  # step 60
    assert rate(11, 0) == rate(12, 0) == pytest.approx(0.15)
    assert ChangingRate(0.1, 0.2, 0, 10, batch_size=8, examples=5)(3, 4) == pytest.approx(0.13)  # an epoch is a step


def test_masks_follow_the_rate(tmp_path, documents, tokenizer):
    build_token_store(iter(documents), tokenizer, tmp_path / "store")
    ids = {"cls_token_id": tokenizer.cls_token_id, "sep_token_id": tokenizer.sep_token_id}
    data = PretrainingDataset(TokenStore(tmp_path / "store"), **ids, max_length=24, seed=1)
    fixed = PretrainingCollator(tokenizer, seed=3)
    rate = ChangingRate(0.5, 0.15, begin=0, end=2, batch_size=len(data) // 2, examples=len(data))
    changing = PretrainingCollator(tokenizer, seed=3, changing_rate=rate)
    for epoch, share in ((0, 0.5), (1, 0.15), (5, 0.15)):
        data.set_epoch(epoch)
        examples = [data[index] for index in range(len(data) // 2)]
        batch = changing(examples)
        counts = (batch["labels"] != -100).sum(1).tolist()
        assert counts == [max(1, round(len(example["input_ids"]) * share)) for example in examples]
        assert torch.equal(batch["labels"], fixed(examples)["labels"]) == (share == 0.15)


def test_the_batch_grows(tmp_path):
    phases = arguments(tmp_path, batch_ramp=0.3, gradient_accumulation_steps=8).phases()
    assert [(phase.gradient_accumulation_steps, phase.last_step) for phase in phases] == [
        (1, 10),
        (2, 20),
        (4, 30),
        (8, None),
    ]
    settings = {"causal_share": 0.15, "phase2_max_length": 256, "phase2_gradient_accumulation_steps": 5}
    phases = arguments(tmp_path, batch_ramp=0.2, gradient_accumulation_steps=3, **settings).phases()
    found = [(each.objective, each.max_length, each.gradient_accumulation_steps, each.last_step) for each in phases]
    assert found == [
        ("ltr", 128, 1, 10),
        ("ltr", 128, 2, 15),
        ("mlm+nsp", 128, 2, 20),
        ("mlm+nsp", 128, 3, 90),
        ("mlm+nsp", 256, 5, None),
    ]


def test_a_run_with_both(tmp_path, text_file, tokenizer, caplog, monkeypatch):
    tokenizer.save_pretrained(tmp_path / "tokenizer")
    rates = []
    monkeypatch.setattr(ChangingRate, "__call__", lambda rate, *place: rates.append((rate, place)) or 0.2)
    settings = arguments(
        tmp_path,
        text=[str(text_file)],
        tokenizer=str(tmp_path / "tokenizer"),
        model_size="tiny",
        hidden_size=16,
        num_hidden_layers=1,
        max_length=24,
        max_steps=6,
        heldout=0.2,
        per_device_train_batch_size=2,
        gradient_accumulation_steps=2,
        batch_ramp=0.34,
        causal_share=0.5,
        mlm_probability=0.4,
        mlm_probability_end=0.15,
        report_to="none",
        disable_tqdm=True,
    )
    with caplog.at_level("INFO", logger="mybert"):
        pretrain(settings)
    assert "Phase 1 of 3: left to right, sequences of up to 24 tokens, batches of 2, up to step 2." in caplog.text
    assert "Phase 3 of 3: sequences of up to 24 tokens, batches of 4." in caplog.text
    rate = rates[0][0]
    assert (rate.first, rate.last, rate.begin, rate.end, rate.batch_size) == (0.4, 0.15, 3, 6, 4)
