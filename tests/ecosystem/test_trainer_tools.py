"""transformers' hyper-parameter search and callbacks with the trainers of pretraining and fine-tuning."""

import optuna
import pytest
import torch
from transformers import EarlyStoppingCallback, TrainerCallback, TrainingArguments

from mybert.finetuning import FinetuningArguments
from mybert.finetuning.training.preparation import read_run
from mybert.finetuning.training.trainer import TaskTrainer
from mybert.pretraining import PretrainingTrainer

QUIET = {"report_to": "none", "disable_tqdm": True, "use_cpu": True, "logging_steps": 1}


@pytest.fixture
def examples(tokenizer):
    generator = torch.Generator().manual_seed(0)
    ids = torch.randint(5, len(tokenizer), (16, 12), generator=generator)
    masked = torch.rand(ids.shape, generator=generator) < 0.3
    return [
        {
            "input_ids": row.masked_fill(hidden, tokenizer.mask_token_id),
            "attention_mask": torch.ones_like(row),
            "labels": row.masked_fill(~hidden, -100),
            "next_sentence_label": torch.tensor(number % 2),
        }
        for number, (row, hidden) in enumerate(zip(ids, masked, strict=True))
    ]


@pytest.fixture
def make_pretraining_trainer(examples, load, tmp_path):
    def make(callbacks=(), model_init=None, **settings):
        defaults = {"max_steps": 2, "eval_strategy": "steps", "eval_steps": 1, "save_strategy": "no"}
        return PretrainingTrainer(
            model=None if model_init else load("MyBertForPreTraining"),
            model_init=model_init,
            args=TrainingArguments(output_dir=str(tmp_path / "run"), **QUIET | defaults | settings),
            train_dataset=examples,
            eval_dataset=examples,
            callbacks=list(callbacks),
        )

    return make


@pytest.fixture
def finetuning(model_dir, tmp_path):
    """Arguments and data of a small classification."""
    rows = "\n".join(f"the {noun} was {word}\t{word}" for noun in ("cat", "dog", "tree") for word in ("happy", "sad"))
    for name in ("train.tsv", "dev.tsv"):
        (tmp_path / name).write_text(f"text\tlabel\n{rows}\n")
    arguments = FinetuningArguments(
        model=str(model_dir("MyBertForPreTraining")),
        output_dir=str(tmp_path / "run"),
        train_file=str(tmp_path / "train.tsv"),
        validation_file=str(tmp_path / "dev.tsv"),
        max_length=16,
        max_steps=2,
        eval_strategy="steps",
        eval_steps=1,
        save_strategy="no",
        **QUIET,
    )
    task = arguments.resolve_task()
    return arguments, task, read_run(arguments, task)


def search(trainer, **settings):
    return trainer.hyperparameter_search(
        hp_space=lambda trial: {"learning_rate": trial.suggest_float("learning_rate", 1e-5, 1e-1, log=True)},
        backend="optuna",
        sampler=optuna.samplers.RandomSampler(seed=0),
        **settings,
    )


@pytest.mark.slow
def test_search_with_the_pretraining_trainer(make_pretraining_trainer, load):
    started = []

    def model_init(trial=None):
        model = load("MyBertForPreTraining")
        started.append(model.bert.embeddings.word_embeddings.weight.sum().item())
        return model

    trainer = make_pretraining_trainer(model_init=model_init)
    found = []

    def objective(metrics):
        found.append(metrics["eval_mlm_loss"])
        return metrics["eval_mlm_loss"]

    best = search(trainer, n_trials=3, compute_objective=objective, direction="minimize")
    assert len(set(found)) == 6, "each of the three trials trains with another learning rate and is evaluated twice"
    assert best.objective == min(found[1::2]) and set(best.hyperparameters) == {"learning_rate"}
    assert len(set(started)) == 1, "each trial starts with the same weights"


@pytest.mark.slow
def test_search_with_the_fine_tuning_trainer(finetuning):
    arguments, task, run = finetuning

    def model_init(trial=None):
        torch.manual_seed(0)
        return task.load_model(arguments.model, run.labels)[0]

    trainer = TaskTrainer(run, arguments, model_init=model_init)
    best = search(
        trainer, n_trials=2, compute_objective=lambda metrics: metrics["eval_accuracy"], direction="maximize"
    )
    assert 0 <= best.objective <= 1 and set(best.hyperparameters) == {"learning_rate"}


class Watch(TrainerCallback):
    """What a callback is told."""

    def __init__(self):
        self.events, self.logs, self.metrics = [], [], []

    def on_train_begin(self, args, state, control, model=None, optimizer=None, **kwargs):
        assert model is not None and optimizer is not None
        self.events.append("begin")

    def on_step_end(self, args, state, control, **kwargs):
        self.events.append("step")

    def on_log(self, args, state, control, logs=None, **kwargs):
        self.logs.append(logs)

    def on_evaluate(self, args, state, control, metrics=None, **kwargs):
        self.metrics.append(metrics)

    def on_train_end(self, args, state, control, **kwargs):
        self.events.append("end")


def test_callbacks_see_what_pretraining_logs(make_pretraining_trainer):
    watch = Watch()
    make_pretraining_trainer([watch]).train()
    assert watch.events == ["begin", "step", "step", "end"]
    losses = [logs for logs in watch.logs if "mlm_loss" in logs]
    assert len(losses) == 2 and {"nsp_loss", "mlm_accuracy", "nsp_accuracy"} <= set(losses[0])
    assert len(watch.metrics) == 2 and {"eval_mlm_loss", "eval_perplexity"} <= set(watch.metrics[0])


def test_early_stopping_ends_pretraining(make_pretraining_trainer):
    stop = EarlyStoppingCallback(early_stopping_patience=1)
    trainer = make_pretraining_trainer(
        [stop],
        max_steps=20,
        learning_rate=1e-12,  # nothing gets better
        metric_for_best_model="eval_mlm_loss",
        greater_is_better=False,
        load_best_model_at_end=True,
        save_strategy="steps",
        save_steps=1,
    )
    trainer.train()
    assert trainer.state.global_step < 20 and trainer.state.best_metric is not None


def test_callbacks_see_what_fine_tuning_logs(finetuning):
    arguments, task, run = finetuning
    watch = Watch()
    trainer = TaskTrainer(run, arguments, model=task.load_model(arguments.model, run.labels)[0], callbacks=[watch])
    trainer.train()
    assert watch.events == ["begin", "step", "step", "end"]
    assert [metrics["eval_accuracy"] for metrics in watch.metrics] == [
        entry["eval_accuracy"] for entry in trainer.state.log_history if "eval_accuracy" in entry
    ]
    assert len(watch.metrics) == 2
