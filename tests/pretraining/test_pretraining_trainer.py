import itertools
import logging
import os
import signal
from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace

import pytest
import torch
from transformers import TrainerCallback, TrainingArguments

from mybert import MyBertConfig, MyBertForMaskedLM, MyBertForPreTraining
from mybert.pretraining import PretrainingTrainer
from mybert.runs import Lamb, MyBertAdamW, StopOnInterrupt

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


def make_model(kind=MyBertForPreTraining):
    torch.manual_seed(0)
    return kind(
        MyBertConfig(
            vocab_size=VOCAB,
            hidden_size=16,
            num_hidden_layers=1,
            num_attention_heads=2,
            intermediate_size=32,
            max_position_embeddings=16,
            hidden_dropout_prob=0.0,
            attention_probs_dropout_prob=0.0,
        )
    )


class KeepGradients(TrainerCallback):
    def on_pre_optimizer_step(self, args, state, control, model=None, **kwargs):
        self.gradients = {name: p.grad.clone() for name, p in model.named_parameters()}


def run(tmp_path, data, batch_size, accumulation, kind=MyBertForPreTraining, **settings):
    keep = KeepGradients()
    trainer = PretrainingTrainer(
        model=make_model(kind),
        args=TrainingArguments(
            output_dir=str(tmp_path),
            per_device_train_batch_size=batch_size,
            gradient_accumulation_steps=accumulation,
            max_steps=1,
            max_grad_norm=0.0,
            logging_steps=1,
            save_strategy="no",
            disable_tqdm=True,
            use_cpu=True,
            **settings,
        ),
        train_dataset=data,
        callbacks=[keep],
    )
    trainer.train()
    return next(entry for entry in trainer.state.log_history if "loss" in entry), keep.gradients


def test_accumulated_batches_give_the_gradient_of_one_large_batch(tmp_path):
    """For both means: masked LM over masked tokens, next sentence over sequences."""
    data = examples()
    model = make_model().train()
    outputs = model(**{name: torch.stack([example[name] for example in data]) for name in data[0]})
    outputs.loss.backward()
    for batch_size, accumulation in ((8, 1), (2, 4), (1, 8)):
        logged, gradients = run(tmp_path, data, batch_size, accumulation)
        assert logged["loss"] == pytest.approx(outputs.loss.item(), abs=1e-5)
        assert logged["mlm_loss"] + logged["nsp_loss"] == pytest.approx(outputs.loss.item(), abs=2e-4)
        for name, parameter in model.named_parameters():
            torch.testing.assert_close(gradients[name], parameter.grad, atol=1e-7, rtol=1e-5, msg=name)


@pytest.mark.parametrize("accumulation", [1, 4])
def test_the_log_has_the_means_of_both_losses_and_costs_no_second_softmax(tmp_path, monkeypatch, accumulation):
    data = examples()
    batch = {name: torch.stack([example[name] for example in data]) for name in data[0]}
    calls, cross_entropy, softmax = [], torch.nn.functional.cross_entropy, torch.softmax
    monkeypatch.setattr(
        torch.nn.functional, "cross_entropy", lambda *args, **kw: calls.append(1) or cross_entropy(*args, **kw)
    )
    monkeypatch.setattr(torch, "softmax", lambda *args, **kw: calls.append(1) or softmax(*args, **kw))
    for kind in (MyBertForPreTraining, MyBertForMaskedLM):
        both = kind is MyBertForPreTraining
        rows = data if both else [{k: v for k, v in row.items() if k != "next_sentence_label"} for row in data]
        model = make_model(kind).train()
        outputs = model(**{name: torch.stack([row[name] for row in rows]) for name in rows[0]})
        labels = batch["labels"][batch["labels"] != -100]
        logits = outputs.prediction_logits if both else outputs.logits
        calls.clear()
        logged, _ = run(tmp_path, rows, 8 // accumulation, accumulation, kind=kind)
        assert len(calls) == accumulation * (1 + both)
        assert logged["mlm_loss"] == pytest.approx(cross_entropy(logits, labels).item(), abs=6e-5)
        assert logged["mlm_accuracy"] == pytest.approx((logits.argmax(-1) == labels).float().mean().item(), abs=6e-5)
        if both:
            sentences = batch["next_sentence_label"]
            nsp_loss = cross_entropy(outputs.seq_relationship_logits, sentences)
            assert logged["nsp_loss"] == pytest.approx(nsp_loss.item(), abs=6e-5)
            assert logged["loss"] == pytest.approx(logged["mlm_loss"] + logged["nsp_loss"], abs=2e-4)


@pytest.mark.parametrize("kind", [MyBertForPreTraining, MyBertForMaskedLM])
def test_a_step_without_a_hidden_token_is_logged_as_what_it_is(tmp_path, kind):
    data = [{**example, "labels": torch.full((LENGTH,), -100)} for example in examples()]
    if kind is MyBertForMaskedLM:
        data = [{k: v for k, v in row.items() if k != "next_sentence_label"} for row in data]
    logged, gradients = run(tmp_path, data, 4, 2, kind=kind)
    assert logged["loss"] == pytest.approx(logged.get("nsp_loss", 0.0), abs=1e-4)
    assert ("nsp_loss" in logged) == (kind is MyBertForPreTraining) and "mlm_loss" not in logged
    assert all(gradient.isfinite().all() for gradient in gradients.values())


@pytest.mark.slow
def test_mixed_precision_has_the_same_gradients_but_for_rounding(tmp_path):
    exact = run(tmp_path, examples(), 8, 1)[1]
    for batch_size, accumulation in ((8, 1), (2, 4)):
        rounded = run(tmp_path, examples(), batch_size, accumulation, bf16=True)[1]
        assert all(gradient.dtype == torch.float32 for gradient in rounded.values())
        whole, other = (torch.cat([g.flatten() for g in gradients.values()]) for gradients in (exact, rounded))
        assert 0 < (whole - other).norm() < 0.02 * whole.norm()


@pytest.mark.parametrize(
    ("optim", "kind", "correct_bias"),
    [
        ("google", MyBertAdamW, False),
        ("adamw", MyBertAdamW, True),
        ("lamb", Lamb, None),
        ("sgd", torch.optim.SGD, None),
    ],
)
def test_optim_names_the_optimizer(tmp_path, optim, kind, correct_bias):
    arguments = TrainingArguments(output_dir=str(tmp_path), use_cpu=True, optim="sgd", weight_decay=0.3)
    arguments.optim = optim if optim != "sgd" else arguments.optim
    optimizer = PretrainingTrainer(model=make_model(), args=arguments).create_optimizer()
    assert type(optimizer) is kind
    assert optimizer.defaults.get("correct_bias") == correct_bias
    assert sorted({group["weight_decay"] for group in optimizer.param_groups}) == [0.0, 0.3]


def test_the_sums_are_kept_on_apple_silicon(tmp_path, monkeypatch):
    def zeros(size, dtype, device):
        assert (device.type, dtype) == ("mps", torch.float32)  # it has no float64
        return torch.empty(size, dtype=dtype)

    arguments = TrainingArguments(output_dir=str(tmp_path), use_cpu=True)
    trainer = PretrainingTrainer(model=make_model(), args=arguments)
    monkeypatch.setattr(TrainingArguments, "device", torch.device("mps"))
    monkeypatch.setattr(torch, "zeros", zeros)
    assert "tokens" in trainer._zeros()


def test_an_epoch_ends_with_its_last_whole_batch(tmp_path):
    steps = []

    class Count(TrainerCallback):
        def on_step_end(self, args, state, control, **kwargs):
            steps.append(state.epoch)

    trainer = PretrainingTrainer(
        model=make_model(),
        args=TrainingArguments(
            output_dir=str(tmp_path),
            per_device_train_batch_size=1,
            gradient_accumulation_steps=3,
            num_train_epochs=2,
            save_strategy="no",
            disable_tqdm=True,
            use_cpu=True,
        ),
        train_dataset=examples(8),
        callbacks=[Count()],
    )
    trainer.train()
    assert steps == [0.5, 1.0, 1.5, 2.0]  # 6 of the 8 examples, 3 a step


def test_masked_lm_alone(tmp_path):
    data = [{k: v for k, v in example.items() if k != "next_sentence_label"} for example in examples()]
    whole, gradients = run(tmp_path, data, 8, 1, MyBertForMaskedLM)
    parts, accumulated = run(tmp_path, data, 2, 4, MyBertForMaskedLM)
    assert "nsp_loss" not in whole
    assert whole["loss"] == pytest.approx(parts["loss"], abs=1e-5)
    for name, gradient in gradients.items():
        torch.testing.assert_close(gradient, accumulated[name], atol=1e-7, rtol=1e-5)


def test_log_and_evaluation_hold_what_a_plain_computation_gives(tmp_path):
    data = examples()
    for row in data[3:6]:  # a batch
        row["labels"].fill_(-100)
    model = make_model()
    trainer = PretrainingTrainer(
        model=model,
        args=TrainingArguments(
            output_dir=str(tmp_path), per_device_eval_batch_size=3, disable_tqdm=True, use_cpu=True
        ),
        eval_dataset=data,
    )
    metrics = trainer.evaluate()
    batch = {name: torch.stack([example[name] for example in data]) for name in data[0]}
    with torch.no_grad():
        outputs = model.eval()(**{k: v for k, v in batch.items() if "label" not in k})
    is_labelled = batch["labels"] != -100
    logits, labels = outputs.prediction_logits[is_labelled], batch["labels"][is_labelled]
    mlm_loss = torch.nn.functional.cross_entropy(logits, labels)
    nsp = outputs.seq_relationship_logits
    nsp_loss = torch.nn.functional.cross_entropy(nsp, batch["next_sentence_label"])
    assert metrics["eval_mlm_loss"] == pytest.approx(mlm_loss.item(), abs=1e-5)
    assert metrics["eval_nsp_loss"] == pytest.approx(nsp_loss.item(), abs=1e-5)
    assert metrics["eval_loss"] == pytest.approx((mlm_loss + nsp_loss).item(), abs=1e-5)
    assert metrics["eval_perplexity"] == pytest.approx(mlm_loss.exp().item(), rel=1e-4)
    assert metrics["eval_mlm_accuracy"] == pytest.approx((logits.argmax(-1) == labels).float().mean().item())
    expected = (nsp.argmax(-1) == batch["next_sentence_label"]).float().mean().item()
    assert metrics["eval_nsp_accuracy"] == pytest.approx(expected)
    random = batch["next_sentence_label"].float().mean().item()
    assert metrics["eval_nsp_majority"] == pytest.approx(max(random, 1 - random)) != pytest.approx(0.5)
    assert model.config.sparse_prediction is False


def test_tokens_per_second_count_no_padding(tmp_path, monkeypatch):
    seconds = itertools.count()
    clock = SimpleNamespace(perf_counter=lambda: float(next(seconds)))
    monkeypatch.setattr("mybert.pretraining.trainer.time", clock)
    data = examples()
    for example in data:
        example["input_ids"] = torch.cat([torch.ones(LENGTH - 3, dtype=torch.long), torch.zeros(3, dtype=torch.long)])
        example["attention_mask"] = example["input_ids"].clone()
    assert run(tmp_path, data, 8, 1)[0]["tokens_per_second"] == 8 * (LENGTH - 3)
    for example in data:
        del example["attention_mask"]  # as packed rows come
    assert run(tmp_path, data, 8, 1)[0]["tokens_per_second"] == 8 * (LENGTH - 3)


def test_defaults_are_googles(tmp_path):
    trainer = PretrainingTrainer(
        model=make_model(), args=TrainingArguments(output_dir=str(tmp_path), use_cpu=True, warmup_steps=0.1)
    )
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


def test_resuming_misses_no_tied_weights(tmp_path, monkeypatch, caplog):
    monkeypatch.setattr(logging.getLogger("transformers"), "propagate", True)
    settings = {"per_device_train_batch_size": 4, "save_steps": 1, "disable_tqdm": True, "use_cpu": True}
    for steps in (1, 2):
        arguments = TrainingArguments(str(tmp_path), max_steps=steps, **settings)
        trainer = PretrainingTrainer(model=make_model(), args=arguments, train_dataset=examples())
        trainer.train(resume_from_checkpoint=steps == 2)
    assert trainer.state.global_step == 2
    assert "missing keys" not in caplog.text


class PressCtrlC(TrainerCallback):
    def on_step_begin(self, args, state, control, **kwargs):
        if state.global_step == 2:
            os.kill(os.getpid(), signal.SIGINT)


def test_evaluation_of_both_heads_on_data_without_pairs(tmp_path):
    data = [{name: value for name, value in row.items() if name != "next_sentence_label"} for row in examples()]
    model = make_model().eval()
    with torch.no_grad():
        expected = model(**{name: torch.stack([row[name] for row in data]) for name in data[0]}).loss.item()
    settings = TrainingArguments(output_dir=str(tmp_path), per_device_eval_batch_size=3, use_cpu=True)
    metrics = PretrainingTrainer(model=model, args=settings, eval_dataset=data).evaluate()
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
def test_other_losses_and_metrics_are_refused(tmp_path, name, settings, arguments):
    settings = TrainingArguments(output_dir=str(tmp_path), use_cpu=True, **settings)
    with pytest.raises(ValueError, match=f"{name} is set; PretrainingTrainer learns"):
        PretrainingTrainer(model=make_model(), args=settings, **arguments)


def test_training_in_a_thread_leaves_the_signals_alone(tmp_path):
    trainer = PretrainingTrainer(
        model=make_model(),
        args=TrainingArguments(
            output_dir=str(tmp_path), per_device_train_batch_size=1, max_steps=1, disable_tqdm=True, use_cpu=True
        ),
        train_dataset=examples(),
        callbacks=[StopOnInterrupt()],
    )
    with ThreadPoolExecutor(1) as pool:
        pool.submit(trainer.train).result()
    assert trainer.state.global_step == 1


def test_interrupt_saves_and_stops(tmp_path):
    interrupt = StopOnInterrupt()
    before = signal.getsignal(signal.SIGINT)
    trainer = PretrainingTrainer(
        model=make_model(),
        args=TrainingArguments(
            output_dir=str(tmp_path), per_device_train_batch_size=1, max_steps=6, disable_tqdm=True, use_cpu=True
        ),
        train_dataset=examples(),
        callbacks=[interrupt, PressCtrlC()],
    )
    trainer.train()
    assert interrupt.interrupted
    assert trainer.state.global_step == 3
    assert (tmp_path / "checkpoint-3" / "model.safetensors").is_file()
    assert signal.getsignal(signal.SIGINT) is before
