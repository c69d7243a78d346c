"""A tiny model of each head, its folder, and a padded batch with labels for it."""

import pytest
import torch

import mybert


@pytest.fixture(scope="session")
def model_dir(tmp_path_factory, tokenizer, heads):
    """Head -> folder with model and tokenizer; not to be changed."""
    made = {}

    def folder_of(head):
        if head not in made:
            named = head in ("MyBertForSequenceClassification", "MyBertForTokenClassification")
            labels = {"id2label": {0: "B-PER", 1: "I-PER", 2: "O"}} if named else {}
            made[head] = tmp_path_factory.mktemp(head)
            heads(head.removeprefix("MyBert")).model(dropout=0.0, **labels).save_pretrained(made[head])
            tokenizer.save_pretrained(made[head])
        return made[head]

    return folder_of


@pytest.fixture
def load(model_dir):
    """Head -> its model, loaded from the folder."""
    return lambda head, **options: getattr(mybert, head).from_pretrained(model_dir(head), **options).eval()


@pytest.fixture
def make_batch(heads):
    """Head -> a batch of three sequences, padded; with labels where the head has a loss."""
    return lambda head: heads(head.removeprefix("MyBert")).batch(labels=True, batch_size=3)


@pytest.fixture
def outputs_of(make_batch):
    """(Head, model) -> every tensor that the model gives for the head's batch, without gradient."""

    def run(head, model):
        with torch.no_grad():
            outputs = model(**{name: tensor.to(model.device) for name, tensor in make_batch(head).items()})
        return {name: value for name, value in outputs.items() if isinstance(value, torch.Tensor)}

    return run
