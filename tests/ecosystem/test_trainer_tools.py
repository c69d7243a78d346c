"""transformers' hyper-parameter search and callbacks with the trainers of pretraining and fine-tuning."""

from functools import partial

import optuna
import pytest
import torch
from transformers import EarlyStoppingCallback, TrainerCallback, TrainingArguments

from mybert.finetuning import FinetuningArguments
from mybert.finetuning.tasks.steps import load_task_model
from mybert.finetuning.training.plan import completed, plan_finetuning
from mybert.finetuning.training.preparation import read_run
from mybert.finetuning.training.trainer import TaskTrainer
from mybert.pretraining import PretrainingTrainer

SHORT = {"report_to": "none", "disable_tqdm": True, "use_cpu": True, "logging_steps": 1, "max_steps": 2}
SHORT |= {"eval_strategy": "steps", "eval_steps": 1, "save_strategy": "no"}
# What each trainer logs and measures.
LOGGED = {"pretraining": {"mlm_loss", "nsp_loss", "mlm_accuracy", "nsp_accuracy"}, "finetuning": {"loss"}}
MEASURED = {"pretraining": {"eval_mlm_loss", "eval_perplexity"}, "finetuning": {"eval_accuracy"}}


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


@pytest.fixture(params=["pretraining", "finetuning"])
def kind(request):
    return request.param


@pytest.fixture
def make_trainer(kind, examples, load, model_dir, tmp_path):
    """Makes the trainer of pretraining or of a small classification; if it is to begin with models, they are noted."""

    def make(callbacks=(), begun=None, **settings):
        settings = {"output_dir": str(tmp_path / "run"), **SHORT, **settings}
        if kind == "pretraining":
            begin = partial(load, "MyBertForPreTraining")
            data = {"train_dataset": examples, "eval_dataset": examples}
            trainer_of = partial(PretrainingTrainer, args=TrainingArguments(**settings), **data)
        else:
            rows = [(f"the {noun} was {word}", word) for noun in ("cat", "dog", "tree") for word in ("happy", "sad")]
            data = {"train_file": rows, "validation_file": rows, "max_length": 16}
            arguments = FinetuningArguments(model=str(model_dir("MyBertForPreTraining")), **data, **settings)
            plan = plan_finetuning(arguments)
            task = plan.task
            run = read_run(plan, task)
            plan = completed(plan, run.task, len(run.train.examples), run.validation)
            trainer_of = partial(TaskTrainer, run, plan, plan.training)

            def begin():
                torch.manual_seed(0)
                return load_task_model(task, arguments.model, run.labels)[0]

        def model_init(trial=None):
            model = begin()
            begun.append([parameter.sum().item() for parameter in model.parameters()])
            return model

        start = {"model": begin()} if begun is None else {"model_init": model_init}
        return trainer_of(**start, callbacks=list(callbacks))

    return make


@pytest.mark.slow
def test_hyperparameter_search(make_trainer):
    begun, found = [], []

    def objective(metrics):
        found.append(metrics["eval_loss"])
        return metrics["eval_loss"]

    best = make_trainer(begun=begun, warmup_steps=0).hyperparameter_search(
        hp_space=lambda trial: {"learning_rate": trial.suggest_float("learning_rate", 1e-5, 1e-1, log=True)},
        backend="optuna",
        sampler=optuna.samplers.RandomSampler(seed=0),
        n_trials=3,
        compute_objective=objective,
        direction="minimize",
    )
    assert len(set(found)) == 6, "each of the three trials trains with another learning rate and is evaluated twice"
    assert best.objective == min(found[1::2]) and set(best.hyperparameters) == {"learning_rate"}
    assert len(begun) >= 3 and all(sums == begun[0] for sums in begun), "each trial starts with the same weights"


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


def test_callbacks_see_what_is_logged(make_trainer, kind):
    watch = Watch()
    trainer = make_trainer([watch])
    trainer.train()
    assert watch.events == ["begin", "step", "step", "end"]
    assert [LOGGED[kind] <= logs.keys() for logs in watch.logs].count(True) == 2
    assert len(watch.metrics) == 2 and all(MEASURED[kind] <= metrics.keys() for metrics in watch.metrics)
    for name in MEASURED[kind]:
        measured = [entry[name] for entry in trainer.state.log_history if name in entry]
        assert [metrics[name] for metrics in watch.metrics] == measured


@pytest.mark.parametrize("kind", ["pretraining"])
def test_early_stopping_ends_pretraining(make_trainer):
    trainer = make_trainer(
        [EarlyStoppingCallback(early_stopping_patience=1)],
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
