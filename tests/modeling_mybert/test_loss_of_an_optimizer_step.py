"""`num_items_in_batch`: one batch of eight and four accumulated batches of two are one and the same optimizer step."""

import pytest
import torch
import transformers


class Recorder(transformers.TrainerCallback):
    """Record the gradients that the optimizer uses."""

    def __init__(self) -> None:
        self.gradients: dict[str, torch.Tensor] = {}

    def on_pre_optimizer_step(self, args, state, control, **kwargs):
        self.gradients = {
            name: parameter.grad.clone()
            for name, parameter in kwargs["model"].named_parameters()
            if parameter.grad is not None
        }


def step(model, examples, micro_batch_size, output_dir) -> tuple[float, dict]:
    """One optimizer step of transformers' Trainer on all examples; returns the logged loss and the gradients."""
    arguments = transformers.TrainingArguments(
        output_dir=output_dir,
        per_device_train_batch_size=micro_batch_size,
        gradient_accumulation_steps=len(examples) // micro_batch_size,
        max_steps=1,
        logging_steps=1,
        max_grad_norm=0.0,
        save_strategy="no",
        report_to="none",
        disable_tqdm=True,
        use_cpu=True,
        remove_unused_columns=False,
        dataloader_pin_memory=False,
    )
    recorder = Recorder()
    trainer = transformers.Trainer(model, arguments, train_dataset=examples, callbacks=[recorder])
    trainer.train()
    losses = [entry["loss"] for entry in trainer.state.log_history if "loss" in entry]
    assert len(losses) == 1
    return losses[0], recorder.gradients


def assert_one_step_is_one_step(head, batch, tmp_path, **changes) -> None:
    """Eight examples as one batch and as four batches of two."""
    examples = [{name: tensor[row] for name, tensor in batch.items()} for row in range(8)]
    whole, parts = (step(head.model(dropout=0.0, **changes), examples, size, tmp_path) for size in (8, 2))
    plain = head.model(dropout=0.0, **changes).train()(**batch).loss
    plain.backward()
    # Trainer rounds what it logs to four digits in some versions.
    assert whole[0] == pytest.approx(plain.item(), abs=1e-4)
    assert parts[0] == pytest.approx(plain.item(), abs=1e-4)
    torch.testing.assert_close(whole[1], parts[1], rtol=0, atol=1e-6)
    assert max(gradient.abs().max() for gradient in whole[1].values()) > 1e-3


def uneven(labels: torch.Tensor) -> torch.Tensor:
    """Keep more labels in later rows, so that micro-batches have different numbers of them."""
    keep = torch.arange(labels.shape[-1]) <= torch.arange(len(labels))[:, None]
    return labels.where(keep, -100)


@pytest.mark.parametrize(
    ("name", "labels", "changes"),
    [
        ("ForMaskedLM", lambda ids: uneven(ids), {}),
        ("ForTokenClassification", lambda ids: uneven(ids % 3), {}),
        ("ForNextSentencePrediction", None, {}),
        ("ForMultipleChoice", None, {}),
        # Trainer counts only `labels`; without a count it divides by the number of accumulated batches.
        ("ForQuestionAnswering", None, {}),
        # With an equal number of masked tokens in every micro-batch even the plain Trainer is exact.
        ("ForPreTraining", lambda ids: ids.where(torch.arange(11) < 2, -100), {}),
        *(
            ("ForSequenceClassification", labels, {"problem_type": problem_type, "num_labels": num_labels})
            for problem_type, num_labels, labels in (
                (None, 3, None),
                ("single_label_classification", 3, lambda ids: torch.arange(8) % 3),
                ("multi_label_classification", 3, lambda ids: (torch.arange(24).view(8, 3) % 4 == 1).float()),
                ("regression", 1, lambda ids: torch.linspace(-1, 2, 8)),
                ("regression", 3, lambda ids: torch.linspace(-1, 2, 24).view(8, 3)),
            )
        ),
    ],
)
def test_four_parts_are_one_step(heads, name, labels, changes, tmp_path):
    batch = heads(name).batch(labels=True, batch_size=8)
    if labels is not None:
        batch["labels"] = labels(batch["input_ids"])
    assert_one_step_is_one_step(heads(name), batch, tmp_path, **changes)


def test_transformers_itself_is_off(heads, tmp_path):
    """The bug that all this works around. If this test fails, transformers has fixed it, and our code is fine."""
    head = heads("ForMaskedLM")
    batch = head.batch(labels=True, batch_size=8)
    examples = [{name: tensor[row] for name, tensor in batch.items()} for row in range(8)]
    losses = [step(head.matched_models(dropout=0.0)[1], examples, size, tmp_path)[0] for size in (8, 2)]
    assert losses[1] == pytest.approx(4 * losses[0], rel=0.1)


def test_pretraining_with_both_counts_is_exact(heads):
    head = heads("ForPreTraining")
    batch = head.batch(labels=True, batch_size=8)
    batch["labels"] = uneven(batch["input_ids"])
    counts = {"num_items_in_batch": (batch["labels"] != -100).sum(), "num_sequences_in_batch": 8}
    whole, parts = head.model(dropout=0.0).train(), head.model(dropout=0.0).train()
    whole(**batch).loss.backward()
    total = 0.0
    for start in range(0, 8, 2):
        loss = parts(**{name: tensor[start : start + 2] for name, tensor in batch.items()}, **counts).loss
        loss.backward()
        total += loss.item()
    assert total == pytest.approx(whole(**batch).loss.item(), abs=1e-5)
    for one, other in zip(whole.parameters(), parts.parameters(), strict=True):
        torch.testing.assert_close(one.grad, other.grad, rtol=0, atol=1e-6)


def test_pretraining_with_uneven_masks_in_the_plain_trainer(heads):
    """Without `num_sequences_in_batch` the sentence loss weights a micro-batch by its share of masked tokens."""
    head = heads("ForPreTraining")
    batch = head.batch(labels=True, batch_size=8)
    batch["labels"] = uneven(batch["input_ids"])
    masked = (batch["labels"] != -100).sum(-1)
    model = head.model()
    logits = model(**batch).seq_relationship_logits
    sentence_losses = torch.nn.functional.cross_entropy(logits, batch["next_sentence_label"], reduction="none")
    weights = masked.view(4, 2).sum(-1) / masked.sum()
    expected = (weights * sentence_losses.view(4, 2).mean(-1)).sum()

    def sentence_loss(start):
        rows = {name: tensor[start : start + 2] for name, tensor in batch.items()}
        both = model(**rows, num_items_in_batch=masked.sum()).loss
        label = rows.pop("next_sentence_label")
        assert label.shape == (2,)
        return both - model(**rows, num_items_in_batch=masked.sum()).loss

    total = sum(sentence_loss(start) for start in range(0, 8, 2))
    torch.testing.assert_close(total, expected, rtol=0, atol=1e-5)


@pytest.mark.parametrize("count", [7, torch.tensor(7), torch.tensor([7])])
def test_the_count_is_a_number_or_a_tensor(head_with_loss, count):
    model, batch = head_with_loss.model(), head_with_loss.batch(labels=True)
    by_seven = model(**batch, num_items_in_batch=count).loss
    by_fourteen = model(**batch, num_items_in_batch=2 * count).loss
    torch.testing.assert_close(by_seven.squeeze(), 2 * by_fourteen.squeeze())


@pytest.mark.parametrize("training", [False, True])
def test_no_label_counts(heads, training):
    """A batch without masked tokens must not produce NaN."""
    for name in ("ForMaskedLM", "ForTokenClassification", "ForPreTraining"):
        head = heads(name)
        model, batch = head.model(dropout=0.0).train(training), head.batch(labels=True)
        batch["labels"] = torch.full_like(batch["labels"], -100)
        loss = model(**batch).loss
        loss.backward()
        assert loss.isfinite() and (name == "ForPreTraining" or loss == 0)
        for counts in ({"num_items_in_batch": torch.tensor(0)}, {"num_items_in_batch": 0}):  # nor in the whole step
            torch.testing.assert_close(model(**batch, **counts).loss, loss * (name != "ForPreTraining"))
        if name != "ForTokenClassification":
            model.eval().config.sparse_prediction = True
            torch.testing.assert_close(model(**batch).loss, loss)
            with torch.no_grad():  # without gradients: NaN, as in transformers' BERT
                assert model(**batch).loss.isnan()
                if torch.backends.mkldnn.is_available():
                    assert model.prepack_weights()(**batch).loss.isnan()


def test_either_loss_of_pretraining_alone(heads):
    head = heads("ForPreTraining")
    model, batch = head.model(), head.batch(labels=True)
    both = model(**batch).loss
    sentence_label = batch.pop("next_sentence_label")
    words = model(**batch).loss
    del batch["labels"]
    sentences = model(**batch, next_sentence_label=sentence_label).loss
    torch.testing.assert_close(both, words + sentences)
    assert model(**batch).loss is None


def test_logits_are_complete_unless_only_the_loss_is_wanted(heads):
    for name, logits in (("ForMaskedLM", "logits"), ("ForPreTraining", "prediction_logits")):
        head = heads(name)
        batch = head.batch(labels=True)
        labeled = int((batch["labels"] != -100).sum())
        unlabeled = {key: tensor for key, tensor in batch.items() if "label" not in key}
        assert head.model()(**batch)[logits].shape == (4, 11, 61)
        assert head.model().train()(**batch)[logits].shape == (labeled, 61)
        complete, sparse = head.model()(**batch), head.model(sparse_prediction=True)(**batch)
        torch.testing.assert_close(sparse.loss, complete.loss, rtol=0, atol=1e-6)
        torch.testing.assert_close(sparse[logits], complete[logits][batch["labels"] != -100], rtol=0, atol=1e-6)
        assert head.model(sparse_prediction=True)(**unlabeled)[logits].shape == (4, 11, 61)
        assert head.model().train()(**unlabeled)[logits].shape == (4, 11, 61)


@pytest.mark.parametrize("name", ["ForMaskedLM", "ForTokenClassification", "ForQuestionAnswering"])
def test_batches_without_a_label_do_not_count_in_an_evaluation(heads, tmp_path, name):
    """Counting their loss as 0 would make the mean over the batches too low; each batch has its own count."""
    head = heads(name)
    batch = head.batch(labels=True)
    for label in {"labels", "start_positions", "end_positions"} & batch.keys():
        batch[label][1:3] = -100 if label == "labels" else 99
    examples = [{name: tensor[row] for name, tensor in batch.items()} for row in range(4)]
    arguments = transformers.TrainingArguments(
        output_dir=tmp_path, per_device_eval_batch_size=1, report_to="none", disable_tqdm=True, use_cpu=True
    )
    losses = [
        transformers.Trainer(model, arguments, eval_dataset=examples).evaluate()["eval_loss"]
        for model in head.matched_models()
    ]
    assert losses[0] == pytest.approx(losses[1], abs=1e-5, nan_ok=True)  # older Trainers do not leave such a batch out
