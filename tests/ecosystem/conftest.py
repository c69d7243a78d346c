"""A tiny model of each head, its folder, and a padded batch with labels for it."""

import pytest
import torch

import mybert
from mybert import MyBertConfig

TEXTS = ["the cat sat on a mat .", "a dog ran", "it was a very happy tree and the cat slept under it ."]

# Labels by head for the three texts, or the values they are drawn from.
LABELS = {
    "MyBertModel": None,
    "MyBertForPreTraining": "tokens",
    "MyBertForMaskedLM": "tokens",
    "MyBertForNextSentencePrediction": [0, 1, 0],
    "MyBertForSequenceClassification": [1, 0, 1],
    "MyBertForMultipleChoice": [2],
    "MyBertForTokenClassification": "tokens",
    "MyBertForQuestionAnswering": [1, 2, 3],
}


def make_model(head, vocab_size):
    torch.manual_seed(0)
    named = head in ("MyBertForSequenceClassification", "MyBertForTokenClassification")
    config = MyBertConfig(
        vocab_size=vocab_size,
        hidden_size=32,
        num_hidden_layers=2,
        num_attention_heads=4,
        intermediate_size=64,
        max_position_embeddings=64,
        initializer_range=0.2,
        hidden_dropout_prob=0.0,
        attention_probs_dropout_prob=0.0,
        **({"id2label": {0: "O", 1: "B-PER", 2: "I-PER"}} if named else {}),
    )
    return getattr(mybert, head)(config).eval()


@pytest.fixture(scope="session")
def model_dir(tmp_path_factory, tokenizer):
    """Head -> folder with model and tokenizer; not to be changed."""
    made = {}

    def folder_of(head):
        if head not in made:
            made[head] = tmp_path_factory.mktemp(head)
            make_model(head, len(tokenizer)).save_pretrained(made[head])
            tokenizer.save_pretrained(made[head])
        return made[head]

    return folder_of


@pytest.fixture
def load(model_dir):
    """Head -> its model, loaded from the folder."""
    return lambda head, **options: getattr(mybert, head).from_pretrained(model_dir(head), **options).eval()


@pytest.fixture
def make_batch(tokenizer):
    """Head -> a batch of three texts, padded; with labels where the head has a loss."""

    def make(head):
        batch = dict(tokenizer(TEXTS, return_tensors="pt", padding=True))
        labels = LABELS[head]
        if labels == "tokens":
            classes = 3 if head == "MyBertForTokenClassification" else len(tokenizer)
            labels = batch["input_ids"] % classes
            batch["labels"] = labels.masked_fill(batch["attention_mask"] == 0, -100)
        elif head == "MyBertForQuestionAnswering":
            batch |= {"start_positions": torch.tensor(labels), "end_positions": torch.tensor(labels) + 1}
        elif labels:
            batch["labels"] = torch.tensor(labels)
        if head == "MyBertForPreTraining":
            batch["next_sentence_label"] = torch.tensor([0, 1, 0])
        if head == "MyBertForMultipleChoice":
            batch = {name: value if name == "labels" else value[None] for name, value in batch.items()}
        return batch

    return make


@pytest.fixture
def outputs_of(make_batch):
    """(Head, model) -> every tensor that the model gives for the head's batch, without gradient."""

    def run(head, model):
        with torch.no_grad():
            outputs = model(**{name: tensor.to(model.device) for name, tensor in make_batch(head).items()})
        return {name: value for name, value in outputs.items() if isinstance(value, torch.Tensor)}

    return run
