import itertools
import logging
import os
import signal
from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from transformers import Trainer, TrainerCallback, TrainingArguments

from mybert import MyBertForMaskedLM, MyBertForPreTraining
from mybert.pretraining import PretrainingCollator, PretrainingTrainer
from mybert.runs import MyBertAdamW, StopOnInterrupt

VOCAB, LENGTH = 50, 12


def examples(count: int = 8) -> list[dict[str, torch.Tensor]]:
    """Examples with very different numbers of labels."""
    generator = torch.Generator().manual_seed(0)
    found = []
    for number in range(count):
        labels = torch.full((LENGTH,), -100)
        labels[: 1 + number] = torch.randint(VOCAB, (1 + number,), generator=generator)
        found.append(
            {
                "input_ids": torch.randint(VOCAB, (LENGTH,), generator=generator),
                "attention_mask": torch.ones(LENGTH, dtype=torch.long),
                "labels": labels,
                "next_sentence_label": torch.tensor(int(number in (0, 3, 4))),
            }
        )
    return found


@pytest.fixture
def plain(make_model):
    """Make a model without dropout."""
    without = {"hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0}
    return lambda kind=MyBertForPreTraining: make_model(kind, vocab_size=VOCAB, max_position_embeddings=16, **without)


@pytest.fixture
def make_trainer(tmp_path, plain):
    def make(data=None, model=None, callbacks=(), eval_dataset=None, **settings):
        settings = {"save_strategy": "no", "disable_tqdm": True, "use_cpu": True} | settings
        return PretrainingTrainer(
            model=model or plain(),
            args=TrainingArguments(output_dir=str(tmp_path), **settings),
            train_dataset=data,
            eval_dataset=eval_dataset,
            callbacks=list(callbacks),
        )

    return make


class KeepGradients(TrainerCallback):
    def on_pre_optimizer_step(self, args, state, control, model=None, **kwargs):
        self.gradients = {name: p.grad.clone() for name, p in model.named_parameters()}


@pytest.fixture
def run(make_trainer, plain):
    """Train a step; return what was logged, and the gradients."""

    def step(data, batch_size, accumulation, kind=MyBertForPreTraining, **settings):
        keep = KeepGradients()
        sizes = {"per_device_train_batch_size": batch_size, "gradient_accumulation_steps": accumulation}
        fixed = {"max_steps": 1, "max_grad_norm": 0.0, "logging_steps": 1}
        trainer = make_trainer(data, plain(kind), [keep], **sizes, **fixed, **settings)
        trainer.train()
        return next(entry for entry in trainer.state.log_history if "loss" in entry), keep.gradients

    return step


def without_pairs(data):
    return [{name: value for name, value in row.items() if name != "next_sentence_label"} for row in data]


@pytest.mark.parametrize("kind", [MyBertForPreTraining, MyBertForMaskedLM])
def test_accumulated_batches_have_gradient_and_log_of_one_large_batch(run, plain, monkeypatch, kind):
    """For both means, masked LM over masked tokens and next sentence over sequences; and without a second softmax."""
    both = kind is MyBertForPreTraining
    data = examples() if both else without_pairs(examples())
    batch = {name: torch.stack([example[name] for example in data]) for name in data[0]}
    model = plain(kind).train()
    outputs = model(**batch)
    outputs.loss.backward()
    calls, cross_entropy, softmax = [], torch.nn.functional.cross_entropy, torch.softmax
    labels = batch["labels"][batch["labels"] != -100]
    logits = outputs.prediction_logits if both else outputs.logits
    expected = {
        "mlm_loss": cross_entropy(logits, labels),
        "mlm_accuracy": (logits.argmax(-1) == labels).float().mean(),
    }
    if both:
        expected["nsp_loss"] = cross_entropy(outputs.seq_relationship_logits, batch["next_sentence_label"])
    monkeypatch.setattr(
        torch.nn.functional, "cross_entropy", lambda *args, **kw: calls.append(1) or cross_entropy(*args, **kw)
    )
    monkeypatch.setattr(torch, "softmax", lambda *args, **kw: calls.append(1) or softmax(*args, **kw))
    for batch_size, accumulation in ((8, 1), (2, 4), (1, 8)):
        calls.clear()
        logged, gradients = run(data, batch_size, accumulation, kind)
        assert len(calls) == accumulation * (1 + both)
        assert logged["loss"] == pytest.approx(outputs.loss.item(), abs=1e-5)
        assert ("nsp_loss" in logged) is both
        for name, value in expected.items():
            assert logged[name] == pytest.approx(value.item(), abs=6e-5)
        for name, parameter in model.named_parameters():
            torch.testing.assert_close(gradients[name], parameter.grad, atol=1e-7, rtol=1e-5, msg=name)


@pytest.mark.parametrize("kind", [MyBertForPreTraining, MyBertForMaskedLM])
def test_a_step_without_a_hidden_token_is_logged_as_what_it_is(run, kind):
    data = [{**example, "labels": torch.full((LENGTH,), -100)} for example in examples()]
    if kind is MyBertForMaskedLM:
        data = without_pairs(data)
    logged, gradients = run(data, 4, 2, kind=kind)
    assert logged["loss"] == pytest.approx(logged.get("nsp_loss", 0.0), abs=1e-4)
    assert ("nsp_loss" in logged) == (kind is MyBertForPreTraining) and "mlm_loss" not in logged
    assert all(gradient.isfinite().all() for gradient in gradients.values())


def test_an_evaluation_without_a_hidden_token_has_no_perplexity(make_trainer):
    found = make_trainer().evaluate([row | {"labels": torch.full((LENGTH,), -100)} for row in examples()])
    assert "eval_perplexity" not in found and found["eval_loss"] == found["eval_nsp_loss"] > 0


def test_data_of_unknown_length_is_trained_on(make_trainer):
    class Stream(torch.utils.data.IterableDataset):
        def __iter__(self):
            return itertools.cycle(examples())

    trainer = make_trainer(Stream(), max_steps=2, per_device_train_batch_size=3, logging_steps=1)
    trainer.train()
    assert [entry["step"] for entry in trainer.state.log_history if "mlm_loss" in entry] == [1, 2]


@pytest.mark.slow
def test_mixed_precision_has_the_same_gradients_but_for_rounding(run):
    exact = run(examples(), 8, 1)[1]
    for batch_size, accumulation in ((8, 1), (2, 4)):
        rounded = run(examples(), batch_size, accumulation, bf16=True)[1]
        assert all(gradient.dtype == torch.float32 for gradient in rounded.values())
        whole, other = (torch.cat([g.flatten() for g in gradients.values()]) for gradients in (exact, rounded))
        assert 0 < (whole - other).norm() < 0.02 * whole.norm()


def test_the_sums_are_kept_on_apple_silicon(make_trainer, monkeypatch):
    def zeros(size, dtype, device):
        assert (device.type, dtype) == ("mps", torch.float32)  # it has no float64
        return torch.empty(size, dtype=dtype)

    trainer = make_trainer()
    monkeypatch.setattr(TrainingArguments, "device", torch.device("mps"))
    monkeypatch.setattr(torch, "zeros", zeros)
    assert "tokens" in trainer._zeros()


def test_an_epoch_ends_with_its_last_whole_batch(make_trainer):
    steps = []

    class Count(TrainerCallback):
        def on_step_end(self, args, state, control, **kwargs):
            steps.append(state.epoch)

    sizes = {"per_device_train_batch_size": 1, "gradient_accumulation_steps": 3}
    trainer = make_trainer(examples(8), callbacks=[Count()], num_train_epochs=2, **sizes)
    trainer.train()
    assert steps == [0.5, 1.0, 1.5, 2.0]  # 6 of the 8 examples, 3 a step


def test_log_and_evaluation_hold_what_a_plain_computation_gives(make_trainer):
    data = examples()
    for row in data[3:6]:  # a batch
        row["labels"].fill_(-100)
    trainer = make_trainer(eval_dataset=data, per_device_eval_batch_size=3)
    model = trainer.model
    metrics = trainer.evaluate()
    batch = {name: torch.stack([example[name] for example in data]) for name in data[0]}
    with torch.no_grad():
        outputs = model.eval()(**{k: v for k, v in batch.items() if "label" not in k})
    is_labeled = batch["labels"] != -100
    logits, labels = outputs.prediction_logits[is_labeled], batch["labels"][is_labeled]
    mlm_loss = torch.nn.functional.cross_entropy(logits, labels)
    nsp = outputs.seq_relationship_logits
    nsp_loss = torch.nn.functional.cross_entropy(nsp, batch["next_sentence_label"])
    assert metrics["eval_mlm_loss"] == pytest.approx(mlm_loss.item(), abs=1e-5)
    assert metrics["eval_nsp_loss"] == pytest.approx(nsp_loss.item(), abs=1e-5)
    assert metrics["eval_loss"] == pytest.approx((mlm_loss + nsp_loss).item(), abs=1e-5)
    assert metrics["eval_perplexity"] == pytest.approx(mlm_loss.exp().item(), rel=1e-4)
    assert metrics["eval_mlm_accuracy"] == pytest.approx((logits.argmax(-1) == labels).float().mean().item())
    assert metrics["eval_mlm_share"] == pytest.approx(
        is_labeled.sum().item() / batch["attention_mask"][is_labeled.any(-1)].sum().item()
    )
    expected = (nsp.argmax(-1) == batch["next_sentence_label"]).float().mean().item()
    assert metrics["eval_nsp_accuracy"] == pytest.approx(expected)
    random = batch["next_sentence_label"].float().mean().item()
    assert metrics["eval_nsp_majority"] == pytest.approx(max(random, 1 - random)) != pytest.approx(0.5)
    assert model.config.sparse_prediction is False


def test_evaluate_majority_leaves_ignored_sequences_out(make_trainer):
    data = examples()
    for row in (data[1], data[2], data[5]):
        row["next_sentence_label"].fill_(-100)
    metrics = make_trainer(eval_dataset=data, per_device_eval_batch_size=3).evaluate()
    assert metrics["eval_nsp_majority"] == pytest.approx(3 / 5)  # random are 0, 3 and 4; not 6 and 7


@pytest.mark.parametrize("is_packed", [False, True])
def test_prediction_step_ignores_labels_of_repeated_rows(make_trainer, monkeypatch, is_packed):
    """Of two processes with two rows each, three of them real; packed rows hold two and three sequences."""
    trainer, steps = make_trainer(), []
    monkeypatch.setattr(Trainer, "prediction_step", lambda trainer, model, inputs: steps.append(inputs))
    state = SimpleNamespace(end_of_dataloader=True, remainder=3)
    monkeypatch.setattr(trainer.accelerator, "gradient_state", state)
    monkeypatch.setattr(TrainingArguments, "world_size", 2)
    for process, own in ((0, 2), (1, 1)):
        monkeypatch.setattr(TrainingArguments, "process_index", process)
        pairs = [0, 0, 1, 1, 1] if is_packed else [0, 1]
        batch = {"labels": torch.tensor([[7] * 3, [8] * 3]), "next_sentence_label": torch.tensor(pairs)}
        if is_packed:
            batch["cu_seq_lens_q"] = torch.tensor([0, 1, 3, 4, 5, 6])
        trainer.prediction_step(trainer.model, batch)
        assert steps[-1]["labels"].tolist() == [[7] * 3, [8 if own == 2 else -100] * 3]
        assert steps[-1]["next_sentence_label"].tolist() == [pair if own == 2 or not pair else -100 for pair in pairs]


def test_tokens_per_second_count_no_padding(run, monkeypatch):
    seconds = itertools.count()
    clock = SimpleNamespace(perf_counter=lambda: float(next(seconds)))
    monkeypatch.setattr("mybert.pretraining.trainer.time", clock)
    data = examples()
    for example in data:
        example["input_ids"] = torch.cat([torch.ones(LENGTH - 3, dtype=torch.long), torch.zeros(3, dtype=torch.long)])
        example["attention_mask"] = example["input_ids"].clone()
    assert run(data, 8, 1)[0]["tokens_per_second"] == 8 * (LENGTH - 3)
    for example in data:
        del example["attention_mask"]  # as packed rows come
    assert run(data, 8, 1)[0]["tokens_per_second"] == 8 * (LENGTH - 3)


def test_defaults_are_googles(make_trainer):
    trainer = make_trainer(warmup_steps=0.1)
    trainer.create_optimizer_and_scheduler(100)
    assert isinstance(trainer.optimizer, MyBertAdamW)
    assert not trainer.optimizer.defaults["correct_bias"]
    rates = []
    for _ in range(30):
        rates.append(trainer.lr_scheduler.get_last_lr()[0] / trainer.args.learning_rate)
        trainer.optimizer.step()
        trainer.lr_scheduler.step()
    assert rates[5] == pytest.approx(0.5)
    assert rates[20] == pytest.approx(0.8)


def test_resuming_misses_no_tied_weights(make_trainer, monkeypatch, caplog):
    monkeypatch.setattr(logging.getLogger("transformers"), "propagate", True)
    settings = {"per_device_train_batch_size": 4, "save_steps": 1, "save_strategy": "steps"}
    for steps in (1, 2):
        trainer = make_trainer(examples(), max_steps=steps, **settings)
        trainer.train(resume_from_checkpoint=steps == 2)
    assert trainer.state.global_step == 2
    assert "missing keys" not in caplog.text


class PressCtrlC(TrainerCallback):
    def on_step_begin(self, args, state, control, **kwargs):
        if state.global_step == 2:
            os.kill(os.getpid(), signal.SIGINT)


def test_evaluation_of_both_heads_on_data_without_pairs(make_trainer, plain):
    data = without_pairs(examples())
    model = plain().eval()
    with torch.no_grad():
        expected = model(**{name: torch.stack([row[name] for row in data]) for name in data[0]}).loss.item()
    metrics = make_trainer(model=model, eval_dataset=data, per_device_eval_batch_size=3).evaluate()
    assert metrics["eval_loss"] == metrics["eval_mlm_loss"] == pytest.approx(expected, abs=1e-5)
    assert "eval_nsp_loss" not in metrics


@pytest.mark.parametrize(
    ("name", "settings", "arguments"),
    [
        ("label_smoothing_factor", {"label_smoothing_factor": 0.1}, {}),
        ("compute_loss_func", {}, {"compute_loss_func": lambda outputs, labels, num_items_in_batch: outputs.loss}),
        ("compute_metrics", {}, {"compute_metrics": lambda prediction: {}}),
    ],
)
def test_other_losses_and_metrics_are_refused(tmp_path, plain, name, settings, arguments):
    settings = TrainingArguments(output_dir=str(tmp_path), use_cpu=True, **settings)
    with pytest.raises(ValueError, match=f"{name} is set"):
        PretrainingTrainer(model=plain(), args=settings, **arguments)


def test_training_in_a_thread_leaves_the_signals_alone(make_trainer):
    trainer = make_trainer(examples(), callbacks=[StopOnInterrupt()], per_device_train_batch_size=1, max_steps=1)
    with ThreadPoolExecutor(1) as pool:
        pool.submit(trainer.train).result()
    assert trainer.state.global_step == 1


def test_interrupt_saves_and_stops(tmp_path, make_trainer):
    interrupt = StopOnInterrupt()
    before = signal.getsignal(signal.SIGINT)
    settings = {"per_device_train_batch_size": 1, "max_steps": 6, "save_strategy": "steps"}
    trainer = make_trainer(examples(), callbacks=[interrupt, PressCtrlC()], **settings)
    trainer.train()
    assert interrupt.interrupted
    assert trainer.state.global_step == 3
    assert (tmp_path / "checkpoint-3" / "model.safetensors").is_file()
    assert signal.getsignal(signal.SIGINT) is before


def test_results_do_not_depend_on_the_number_of_workers(make_trainer, make_model, make_dataset, tokenizer):
    def weights(workers):
        settings = {"per_device_train_batch_size": 16, "num_train_epochs": 2, "dataloader_num_workers": workers}
        model = make_model()  # with dropout
        trainer = make_trainer(make_dataset(max_length=24, documents=np.arange(20)), model, **settings)
        trainer.data_collator = PretrainingCollator(tokenizer)
        trainer.train()
        assert trainer.state.global_step > 4
        return model.state_dict()

    alone, together = weights(0), weights(2)
    assert all(torch.equal(weight, together[name]) for name, weight in alone.items())
