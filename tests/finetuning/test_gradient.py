"""Accumulated batches give the gradient of one large batch, in every kind of task and with models of other kinds."""

import json

import pytest
import torch
from torch import nn
from transformers import BertConfig, BertModel, TrainerCallback

from mybert import MyBertConfig, MyBertModel
from mybert.finetuning import FinetuningArguments
from mybert.finetuning.tasks import feature_tasks
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
def models(tmp_path_factory, tokenizer):
    """Folders of models without dropout: MyBERT, and transformers' BERT."""
    size = {"hidden_size": 8, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 8}
    size |= {
        "hidden_dropout_prob": 0.0,
        "attention_probs_dropout_prob": 0.0,
        "initializer_range": 0.2,
        "vocab_size": len(tokenizer),
    }
    folders = {}
    for model_type, kind, config in (("mybert", MyBertModel, MyBertConfig), ("bert", BertModel, BertConfig)):
        folders[model_type] = tmp_path_factory.mktemp(model_type)
        torch.manual_seed(0)
        kind(config(**size)).save_pretrained(folders[model_type])
        tokenizer.save_pretrained(folders[model_type])
    return folders


class KeepGradients(TrainerCallback):
    def on_pre_optimizer_step(self, args, state, control, model=None, **kwargs):
        self.gradients = {name: p.grad.clone() for name, p in model.named_parameters() if p.grad is not None}


def gradients(folder, model, task, batch_size, accumulation, gpus=0, **settings):
    """Gradients of one step on the first sequences of the data, and the logged loss.

    With `gpus`, as if one process split its batches among so many GPUs and computed the loss of all outputs.
    """
    (folder / "data.json").write_text(json.dumps(DATA[task]))
    settings |= {"lstm_size": 8} if settings.get("approach") == "features" else {}
    arguments = FinetuningArguments(
        task=task,
        model=str(model),
        train_file=str(folder / "data.json"),
        output_dir=str(folder / "out"),
        per_device_train_batch_size=batch_size,
        gradient_accumulation_steps=accumulation,
        max_steps=1,
        max_grad_norm=0.0,
        logging_steps=1,
        max_length=settings.pop("max_length", 32),
        save_strategy="no",
        disable_tqdm=True,
        use_cpu=True,
        **settings,
    )
    assert not arguments.n_gpu
    arguments._n_gpu = gpus
    task = arguments.resolve_task()
    if arguments.approach == "features":
        task = feature_tasks(task, "concat_last_four", str(model), arguments.lstm_size, "cpu")[""]
    run = read_run(arguments, task)
    network, _ = starting_model(run, arguments, seed=0)
    for module in network.modules():
        if isinstance(module, nn.Dropout):
            module.p = 0.0
        elif isinstance(module, nn.LSTM):
            module.dropout = 0.0
    keep = KeepGradients()
    trainer = TaskTrainer(run, arguments, model=network, callbacks=[keep])
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
def test_several_gpus_of_one_process_give_the_gradient_of_one(tmp_path, models, settings):
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
