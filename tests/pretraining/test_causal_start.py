"""Pretraining that starts left to right: the labels, the switch, and the metrics before it."""

import numpy as np
import pytest
import torch

from mybert import MyBertConfig, MyBertForPreTraining
from mybert.pretraining import (
    MaskingRates,
    PretrainingArguments,
    PretrainingCollator,
    PretrainingDataset,
    PretrainingTrainer,
    build_token_store,
    pretrain,
)
from mybert.pretraining.token_store import TokenStore

SIZE = {"hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 32}


def arguments(tmp_path, **settings) -> PretrainingArguments:
    given = {"text": ["text.txt"], "output_dir": str(tmp_path / "run"), "max_steps": 10, "use_cpu": True}
    return PretrainingArguments(**given | settings)


@pytest.fixture
def store(tmp_path, documents, tokenizer) -> TokenStore:
    build_token_store(iter(documents), tokenizer, tmp_path / "store")
    return TokenStore(tmp_path / "store")


def data(store, tokenizer, objective, documents=None) -> PretrainingDataset:
    ids = {"cls_token_id": tokenizer.cls_token_id, "sep_token_id": tokenizer.sep_token_id}
    return PretrainingDataset(store, documents=documents, **ids, objective=objective, max_length=24, seed=1)


def test_phases_share_the_steps(tmp_path):
    phases = arguments(tmp_path, causal_share=0.4).phases()
    assert [(phase.objective, phase.last_step) for phase in phases] == [("ltr", 4), ("mlm+nsp", None)]
    phases = arguments(tmp_path, causal_share=0.4, phase2_max_length=256, phase2_steps=2).phases()
    found = [(phase.objective, phase.max_length, phase.last_step) for phase in phases]
    assert found == [("ltr", 128, 4), ("mlm+nsp", 128, 8), ("mlm+nsp", 256, None)]
    assert [phase.objective for phase in arguments(tmp_path).phases()] == ["mlm+nsp"]


def test_a_share_of_the_tokens_is_learnt_left_to_right(store, tokenizer):
    examples = [data(store, tokenizer, "ltr")[index] for index in range(100)]
    every = PretrainingCollator(tokenizer, objective="ltr")(examples)
    some = PretrainingCollator(tokenizer, objective="ltr", rates=MaskingRates(ltr_probability=0.4))(examples)
    assert torch.equal(every["input_ids"], some["input_ids"])
    labelled = every["labels"] != -100
    assert torch.equal(every["labels"][:, :-1][labelled[:, :-1]], every["input_ids"][:, 1:][labelled[:, :-1]])
    kept = some["labels"] != -100
    assert torch.equal(some["labels"][kept], every["labels"][kept])
    assert not (kept & ~labelled).any()
    share = kept.sum() / labelled.sum()
    assert abs(share - 0.4) < 4 * (0.4 * 0.6 / labelled.sum()) ** 0.5


def test_evaluation_is_in_both_directions_at_the_papers_rates(tmp_path, store, tokenizer):
    torch.manual_seed(0)
    model = MyBertForPreTraining(MyBertConfig(vocab_size=len(tokenizer), **SIZE, initializer_range=0.5))
    heldout = data(store, tokenizer, "mlm+nsp", np.arange(10))

    def measure(**settings) -> dict[str, float]:
        trainer = PretrainingTrainer(
            model=model,
            args=arguments(tmp_path, per_device_eval_batch_size=64),
            train_dataset=data(store, tokenizer, "ltr"),
            eval_dataset=heldout,
            processing_class=tokenizer,
            **settings,
        )
        inside = model.config.is_decoder
        metrics = trainer.evaluate()
        assert model.config.is_decoder == inside
        model.config.is_decoder = False
        return {name: metrics[f"eval_{name}"] for name in ("mlm_loss", "nsp_loss", "mlm_accuracy")}

    masked = PretrainingCollator(tokenizer, seed=3)
    expected = measure(data_collator=masked)
    causal = PretrainingCollator(tokenizer, objective="ltr")
    assert measure(data_collator=causal, eval_collator=masked, is_causal=True) == expected
    batch = masked([heldout[index] for index in range(len(heldout))])
    with torch.no_grad():
        outputs = model.eval()(**batch)
    assert float(outputs.mlm_loss) == pytest.approx(expected["mlm_loss"], abs=1e-5)
    model.config.is_decoder = True
    with torch.no_grad():
        assert abs(float(model(**batch).mlm_loss) - expected["mlm_loss"]) > 1e-3


@pytest.mark.parametrize("pack", [False, True])
def test_the_model_is_an_ordinary_bert_and_the_border_is_said(tmp_path, text_file, tokenizer, caplog, pack):
    tokenizer.save_pretrained(tmp_path / "tokenizer")
    settings = arguments(
        tmp_path,
        text=[str(text_file)],
        tokenizer=str(tmp_path / "tokenizer"),
        model_size="tiny",
        hidden_size=16,
        num_hidden_layers=1,
        max_length=24,
        pack=pack,
        causal_share=0.5,
        mlm_probability=0.4,
        optim="muon",
        learning_rate=1e-2,
        row_length=48,
        max_steps=8,
        logging_steps=2,
        per_device_train_batch_size=4,
        heldout=0.2,
        report_to="none",
        disable_tqdm=True,
    )
    with caplog.at_level("INFO", logger="mybert"):
        pretrain(settings)
    assert "Phase 1 of 2: left to right, sequences of up to 24 tokens, batches of 4, up to step 4." in caplog.text
    assert "Phase 2 of 2: sequences of up to 24 tokens, batches of 4." in caplog.text
    model = MyBertForPreTraining.from_pretrained(tmp_path / "run")
    assert not model.config.is_decoder
    assert not any(module.is_causal for module in model.modules() if hasattr(module, "is_causal"))
    card = (tmp_path / "run" / "README.md").read_text()
    rows = dict(line[2:-2].split(" | ") for line in card.splitlines() if line.startswith("| ") and "---" not in line)
    assert rows["optimizer"].startswith("Muon for the layers' matrices")
    assert rows["learning rate"] == "0.02 (Muon), 0.01 (AdamW)"
    assert (rows["batch size"], rows["steps"]) == ("4", "8")
    assert (rows["share of predicted tokens"], rows["left to right at first"]) == ("0.4", "50 % of the steps")
