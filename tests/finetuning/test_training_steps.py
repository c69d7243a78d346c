"""Steps of every kind of task: accumulated batches have the gradient of a large one, and no GPU is waited for."""

import json
import sys
from types import SimpleNamespace

import pytest
import torch
from torch import nn
from transformers import BertModel, TrainerCallback

from mybert import MyBertModel
from mybert.files.source import HubSplit
from mybert.finetuning import FinetuningArguments
from mybert.finetuning.tasks.feature_tagging import feature_task
from mybert.finetuning.training.plan import completed, plan_finetuning, sources, training_length
from mybert.finetuning.training.preparation import read_run, starting_model
from mybert.finetuning.training.trainer import TaskTrainer

# Seven examples in batches of two: the last one is smaller. Later sentences have more labels.
WORDS = "the cat sat on the mat and the dog ran".split()
SENTENCES = [" ".join(WORDS[: 2 + number]) for number in range(7)]
DATA = {
    "classification": [{"text": text, "label": number % 2} for number, text in enumerate(SENTENCES)],
    "tagging": [{"tokens": text.split(), "tags": ["DET", *["X"] * (len(text.split()) - 1)]} for text in SENTENCES],
    "multiple_choice": [{"text": "the cat", "choices": [text, "fish"], "label": 1} for text in SENTENCES],
    "question_answering": [{"question": "what ?", "context": text, "answers": "cat"} for text in SENTENCES],
}


@pytest.fixture(scope="module")
def models(tmp_path_factory, tiny_model):
    """Folders of models without dropout: MyBERT, and transformers' BERT."""
    fields = {"hidden_size": 8, "intermediate_size": 8, "initializer_range": 0.2}
    fields |= {"hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0}
    kinds = {"mybert": MyBertModel, "bert": BertModel}
    return {name: tiny_model(tmp_path_factory.mktemp(name), kind, **fields) for name, kind in kinds.items()}


class KeepGradients(TrainerCallback):
    def on_pre_optimizer_step(self, args, state, control, model=None, **kwargs):
        self.gradients = {name: p.grad.clone() for name, p in model.named_parameters() if p.grad is not None}


def trainer_of(folder, model, task, callback, gpus=0, **settings):
    """The trainer of a task; with `gpus`, as if one process split its batches among so many."""
    (folder / "data.json").write_text(json.dumps(DATA[task]))
    shared = {"max_grad_norm": 0.0, "save_strategy": "no", "disable_tqdm": True, "dataloader_pin_memory": False}
    shared |= {"train_file": str(folder / "data.json"), "output_dir": str(folder / "out")}
    shared |= {"max_length": 32, "use_cpu": True}
    arguments = FinetuningArguments(task=task, model=str(model), **shared | settings)
    plan = plan_finetuning(arguments)
    task = plan.task
    if arguments.approach == "features":
        task = feature_task(task, "concat_last_four", str(model), arguments.lstm_size, "cpu")
    run = read_run(plan, task)
    plan = completed(plan, run.task, len(run.train.examples), run.validation)
    assert not plan.training.n_gpu
    plan.training._n_gpu = gpus
    network, _ = starting_model(run, plan, arguments.trained.method, seed=0)
    return TaskTrainer(run, plan, plan.training, model=network, callbacks=[callback])


def gradients(folder, model, task, batch_size, accumulation, **settings):
    """Gradients of one step on the first sequences of the data, without dropout, and the logged loss."""
    settings |= {"per_device_train_batch_size": batch_size, "gradient_accumulation_steps": accumulation}
    keep = KeepGradients()
    trainer = trainer_of(folder, model, task, keep, max_steps=1, logging_steps=1, use_cpu=True, **settings)
    for module in trainer.model.modules():
        if isinstance(module, nn.Dropout):
            module.p = 0.0
        elif isinstance(module, nn.LSTM):
            module.dropout = 0.0
    trainer.train()
    return keep.gradients, next(entry["loss"] for entry in trainer.state.log_history if "loss" in entry)


def assert_same(found, expected):
    assert found[1] == pytest.approx(expected[1], abs=1e-4)
    assert any(gradient.abs().max() > 1e-4 for gradient in expected[0].values())
    for name, gradient in expected[0].items():
        torch.testing.assert_close(found[0][name], gradient, atol=1e-7, rtol=1e-4, msg=name)


@pytest.mark.parametrize(
    ("task", "settings"), [*((task, {}) for task in DATA), ("tagging", {"approach": "features", "lstm_size": 8})]
)
def test_accumulated_batches_give_the_gradient_of_one_large_batch(tmp_path, models, task, settings):
    expected = gradients(tmp_path, models["mybert"], task, 7, 1, **settings)
    assert_same(gradients(tmp_path, models["mybert"], task, 2, 4, **settings), expected)


def test_windows_of_one_text_may_be_in_different_batches(tmp_path, models):
    """Eight windows of seven texts: the last text has two, each with weight 1/2."""
    settings = {"window_pooling": "mean", "max_length": 9}
    expected = gradients(tmp_path, models["mybert"], "classification", 8, 1, **settings)
    assert_same(gradients(tmp_path, models["mybert"], "classification", 3, 3, **settings), expected)
    assert_same(
        gradients(tmp_path, models["bert"], "classification", 3, 3, keep_model_type=True, **settings), expected
    )


@pytest.mark.parametrize(
    "settings",
    [{"class_weights": "balanced"}, {"label_smoothing_factor": 0.1}, {"window_pooling": "mean", "max_length": 9}],
)
def test_several_gpus_of_one_process_give_the_gradient_of_one(tmp_path, models, settings, monkeypatch):
    # `DataParallel` would want real GPUs for the model, where there are some.
    monkeypatch.setattr(sys.modules["torch.nn.parallel.data_parallel"], "_get_available_device_type", lambda: None)
    expected = gradients(tmp_path, models["mybert"], "classification", 8, 1, **settings)
    assert_same(gradients(tmp_path, models["mybert"], "classification", 4, 1, gpus=2, **settings), expected)


@pytest.mark.parametrize(
    ("task", "different"), [("classification", 2), ("multiple_choice", 1), ("question_answering", 1)]
)
def test_a_model_that_knows_nothing_of_other_batches(tmp_path, models, task, different, monkeypatch):
    """Each batch has its own mean: correct for batches of equal size and, in transformers' BERT, equal padding."""
    monkeypatch.setitem(DATA, task, DATA[task][:different] * (6 // different))
    expected = gradients(tmp_path, models["bert"], task, 6, 1, keep_model_type=True)
    assert_same(gradients(tmp_path, models["bert"], task, 2, 3, keep_model_type=True), expected)


@pytest.mark.parametrize("task", DATA)
@pytest.mark.parametrize("settings", [{}, {"label_smoothing_factor": 0.1}, {"class_weights": "balanced"}])
def test_loss_of_a_network_in_float64_is_in_float64(tmp_path, models, task, settings):
    if settings and task in ("multiple_choice", "question_answering"):
        pytest.skip("choices and answers have no classes")
    trainer = trainer_of(tmp_path, models["mybert"], task, TrainerCallback(), use_cpu=True, **settings)
    batch = trainer.data_collator([trainer.train_dataset[row] for row in range(3)])
    losses = [trainer.compute_loss(trainer.model.to(dtype), dict(batch)) for dtype in (torch.float32, torch.float64)]
    assert losses[1].dtype == torch.float64 and losses[1].item() == pytest.approx(losses[0].item(), rel=1e-5)


@pytest.mark.parametrize("count", [2, 3, 5, 6])
@pytest.mark.parametrize(
    ("task", "model", "settings"),
    [
        *((task, "mybert", {}) for task in DATA),
        ("classification", "mybert", {"window_pooling": "mean", "max_length": 9}),
        ("tagging", "mybert", {"label_smoothing_factor": 0.1}),
        ("classification", "bert", {"keep_model_type": True}),
    ],
)
def test_prediction_step_of_two_processes_is_that_of_one(tmp_path, models, monkeypatch, task, model, settings, count):
    """Each has three examples; those beyond the first `count` are the first ones again, and do not count."""
    trainer = trainer_of(tmp_path, models[model], task, TrainerCallback(), **settings)
    trainer.model.eval()
    first = 2 if "window_pooling" in settings else 0  # the last two are windows of one text
    rows = [trainer.train_dataset[number] for number in range(first, first + count)]
    if task == "tagging":  # a process may have no label
        rows[3:] = [row | {"labels": [-100] * len(row["labels"])} for row in rows[3:]]
    loss, logits, _ = trainer.prediction_step(trainer.model, trainer.data_collator(rows), False)
    filled, sums, parts = (rows * 3)[:6], [], []
    monkeypatch.setattr(type(trainer.args), "world_size", 2)
    monkeypatch.setattr(type(trainer.accelerator), "num_processes", 2)
    monkeypatch.setattr(trainer.accelerator, "reduce", lambda values, reduction: sums.append(values) or values)
    state = SimpleNamespace(end_of_dataloader=True, remainder=count % 6)
    monkeypatch.setattr(trainer.accelerator, "gradient_state", state)
    for process in (0, 1):
        monkeypatch.setattr(type(trainer.args), "process_index", process)
        batch = trainer.data_collator(filled[3 * process : 3 * process + 3])
        parts.append(trainer.prediction_step(trainer.model, batch, False)[1:])
    total, items = sum(sums)
    torch.testing.assert_close(total / items, loss, rtol=1e-5, atol=1e-6)
    for first, second in ((part[0], part[1]) if isinstance(part, tuple) else (part, part) for part, _ in parts):
        assert len(first) == len(second) == 3
    if task in ("classification", "multiple_choice"):
        found = torch.cat([part for part, _ in parts])[:count]
        torch.testing.assert_close(found, logits, rtol=1e-5, atol=1e-5)


class EnoughError(Exception):
    """Ends training after the steps; later code may read values."""


class AfterTwoSteps(TrainerCallback):
    def on_step_end(self, args, state, control, **kwargs):
        if state.global_step == 2:
            raise EnoughError


def waiting_trainer(folder, model, task, **settings):
    settings |= {"per_device_train_batch_size": 2, "gradient_accumulation_steps": 2}
    return trainer_of(folder, model, task, AfterTwoSteps(), max_steps=100, logging_steps=100, **settings)


@pytest.mark.usefixtures("like_a_gpu")
@pytest.mark.parametrize(
    ("task", "settings"),
    [
        *((task, {}) for task in DATA),
        ("classification", {"window_pooling": "mean", "max_length": 9}),
        ("classification", {"class_weights": "balanced"}),
    ],
)
def test_steps_read_no_value_of_an_accelerator(tmp_path, pretrained, no_value_read, task, settings):
    trainer = waiting_trainer(tmp_path, pretrained, task, **settings)
    with pytest.raises(EnoughError), no_value_read():
        trainer.train()
    assert next(trainer.model.parameters()).is_meta


@pytest.mark.usefixtures("like_a_gpu")
def test_the_proof_can_fail(tmp_path, pretrained, no_value_read):
    trainer = waiting_trainer(tmp_path, pretrained, "classification")
    trainer.data_collator = trainer.data_collator.args[0]
    with pytest.raises(AssertionError, match="reads values"), no_value_read():
        trainer.train()


def test_batches_of_training_hold_the_indices_of_their_tokens(tmp_path, pretrained):
    trainer = waiting_trainer(tmp_path, pretrained, "classification", use_cpu=True)
    batch = trainer.data_collator([trainer.train_dataset[row] for row in range(3)])
    assert not batch["attention_mask"].all()
    assert batch["token_indices"].tolist() == batch["attention_mask"].flatten().nonzero()[:, 0].tolist()


@pytest.mark.parametrize(
    ("settings", "sequences", "expected"),
    [
        ({}, 100, (1, 12, 3, 32)),  # three epochs of four batches
        ({"gradient_accumulation_steps": 3}, 100, (1, 6, 3, 96)),
        ({"max_steps": 5}, 100, (1, 5, 5 / 4, 32)),
        ({"max_steps": 1}, 100, (1, 1, 1 / 4, 32)),
        ({"num_train_epochs": 0.6, "per_device_train_batch_size": 10}, 101, (1, 7, 7 / 11, 10)),
        ({"num_train_epochs": 1}, 1, (1, 1, 1, 32)),
        ({"folds": 4}, 100, (5, 12, 3, 32)),  # the last one on all data
        ({"num_seeds": 3, "validation_split": 0.5}, 100, (3, 12, 3, 32)),
        ({"approach": "auto", "folds": 4}, 100, (13, 12, 3, 32)),  # each fold with three approaches
        ({"approach": "features", "task": "ner", "num_train_epochs": 2}, 64, (1, 4, 2, 32)),
    ],
)
def test_training_length_counts_trainings_steps_and_epochs(short_run, settings, sequences, expected):
    plan = plan_finetuning(short_run(train_file=DATA["classification"], **settings))
    names = ("trainings", "steps", "epochs", "batch size")
    assert training_length(plan, sequences) == pytest.approx(dict(zip(names, expected, strict=True)))


@pytest.mark.parametrize(("settings", "trainings"), [({}, 1), ({"folds": 4}, 5)])
def test_training_length_of_a_linear_probe_has_no_steps(short_run, settings, trainings):
    plan = plan_finetuning(short_run(train_file=DATA["classification"], approach="linear_probe", **settings))
    assert training_length(plan, 100) == {"trainings": trainings}


@pytest.mark.parametrize(
    ("settings", "epochs", "why"),
    [
        ({}, 3, "default of classification"),
        ({"task": "ner", "approach": "features"}, 20, "for the approach features"),
        ({"num_train_epochs": 4}, 4, ""),
    ],
)
def test_plan_explains_the_number_of_epochs(short_run, settings, epochs, why):
    plan = plan_finetuning(short_run(train_file=DATA["classification"], **settings))
    assert (plan.value("num_train_epochs"), plan.reason("num_train_epochs")) == (epochs, why)
    assert plan.training.num_train_epochs == epochs and plan.training.per_device_train_batch_size == 32


@pytest.mark.parametrize(
    ("splits", "settings", "expected"),
    [
        (["train", "validation", "test"], {}, (["train"], ["validation"], ["test"])),
        (["train", "dev"], {}, (["train"], ["dev"], [])),
        (["train_a", "train_b", "val_1", "val_2"], {}, (["train_a"], ["val_1", "val_2"], [])),
        (["train", "validation"], {"folds": 3}, (["train"], [], [])),
        (["train", "test"], {"validation_split": 0.1}, (["train"], [], ["test"])),
    ],
)
def test_splits_of_the_hub_are_found_by_how_their_names_begin(short_run, monkeypatch, splits, settings, expected):
    monkeypatch.setattr(HubSplit, "_load", staticmethod(lambda name, config: splits))
    found = sources(plan_finetuning(short_run(dataset="owner/name", **settings)))
    assert tuple([each.split for each in found[kind].values()] for kind in ("train", "validation", "test")) == expected
    assert list(found["train"]) == [""]


@pytest.mark.parametrize(
    ("settings", "validation", "metric"),
    [
        ({}, {"": None}, "accuracy"),
        ({}, {"matched": None, "mismatched": None}, "matched_accuracy"),
        ({"folds": 3}, {}, "accuracy"),
        ({"metric_for_best_model": "loss"}, {"matched": None, "mismatched": None}, "loss"),
    ],
)
def test_metric_for_best_model_is_that_of_the_first_split_of_the_hub(short_run, settings, validation, metric):
    plan = plan_finetuning(short_run(dataset="owner/name", **settings))
    assert completed(plan, plan.task, 7, validation).metric == metric


@pytest.mark.parametrize(
    ("splits", "settings", "message"),
    [
        (["validation", "test"], {}, "owner/name has no split train; it has validation, test"),
        (["train", "validation"], {"validation_split": 0.1}, "--validation_split"),
        (["train"], {"load_best_model_at_end": True}, "--load_best_model_at_end"),
    ],
)
def test_splits_of_the_hub_that_do_not_fit_are_errors(short_run, monkeypatch, user_error, splits, settings, message):
    monkeypatch.setattr(HubSplit, "_load", staticmethod(lambda name, config: splits))
    plan = plan_finetuning(short_run(dataset="owner/name", **settings))
    with user_error(message):
        sources(plan)


@pytest.mark.parametrize(
    ("settings", "keeps_best", "is_warned"),
    [
        ({"eval_strategy": "epoch", "save_strategy": "epoch"}, True, False),
        ({"eval_strategy": "epoch", "save_strategy": "steps"}, False, True),
        ({"eval_strategy": "epoch", "save_strategy": "best"}, True, False),
        ({"eval_strategy": "epoch", "save_strategy": "no"}, False, False),
        ({"eval_strategy": "no", "save_strategy": "epoch"}, False, False),
    ],
)
def test_best_checkpoint_is_kept_where_it_is_saved_as_often_as_evaluated(
    short_run, caplog, settings, keeps_best, is_warned
):
    plan = plan_finetuning(short_run(train_file=DATA["classification"], validation_split=0.5, **settings))
    assert "last model is kept" not in caplog.text  # once, where the data is known
    plan = completed(plan, plan.task, 7, {"": None})
    assert plan.training.load_best_model_at_end is keeps_best
    assert ("the last model is kept, not the best" in caplog.text) is is_warned


@pytest.mark.parametrize(
    ("settings", "reason"),
    [
        ({"approach": "linear_probe"}, "for the approach linear_probe"),
        ({"approach": "linear_probe", "pooling": "mean"}, None),
        ({"approach": "linear_probe", "pooling": "cls"}, None),
        ({}, None),
    ],
)
def test_pooling_is_a_decision_where_it_is_not_what_was_asked_for(short_run, settings, reason):
    plan = plan_finetuning(short_run(train_file=DATA["classification"], **settings))
    decision = completed(plan, plan.task, 7, {}).decisions.get("pooling")
    assert decision == (None if reason is None else ("mean", reason))
