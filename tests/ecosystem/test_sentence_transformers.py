"""sentence-transformers on a MyBERT folder."""

import pytest
import torch

from mybert import MyBertModel
from mybert.tokenization import MyBertTokenizer

sentence_transformers = pytest.importorskip("sentence_transformers")

SENTENCES = ["the cat sat on a mat .", "a dog ran", "it was a very happy tree and the cat slept under it .", "fish"]


def embed(folder, sentences):
    """Mean of the last hidden states of each sentence alone, so that there is no padding."""
    model, tokenizer = MyBertModel.from_pretrained(folder).eval(), MyBertTokenizer.from_pretrained(folder)
    with torch.no_grad():
        return torch.stack(
            [model(**tokenizer(text, return_tensors="pt")).last_hidden_state[0].mean(0) for text in sentences]
        )


@pytest.mark.parametrize("head", ["MyBertModel", "MyBertForPreTraining"])
def test_encode_is_the_mean_of_the_tokens(head, model_dir):
    model = sentence_transformers.SentenceTransformer(str(model_dir(head)), device="cpu")
    assert isinstance(model[0].auto_model, MyBertModel)
    embeddings = model.encode(SENTENCES, batch_size=4, convert_to_tensor=True)
    torch.testing.assert_close(embeddings, embed(model_dir(head), SENTENCES), atol=1e-5, rtol=1e-5)
    assert not torch.allclose(embeddings[0], embeddings[1], atol=1e-2)


def test_training_saving_and_loading(model_dir, tmp_path):
    datasets = pytest.importorskip("datasets")
    from sentence_transformers.sentence_transformer import losses

    model = sentence_transformers.SentenceTransformer(str(model_dir("MyBertModel")), device="cpu")
    before = model.encode(SENTENCES, convert_to_tensor=True)
    trainer = sentence_transformers.SentenceTransformerTrainer(
        model=model,
        args=sentence_transformers.SentenceTransformerTrainingArguments(
            output_dir=str(tmp_path / "run"),
            max_steps=2,
            learning_rate=1e-2,
            per_device_train_batch_size=2,
            save_strategy="no",
            use_cpu=True,
            disable_tqdm=True,
        ),
        train_dataset=datasets.Dataset.from_dict({"anchor": SENTENCES, "positive": SENTENCES[::-1]}),
        loss=losses.MultipleNegativesRankingLoss(model),
    )
    trainer.train()
    assert trainer.state.global_step == 2
    after = model.encode(SENTENCES, convert_to_tensor=True)
    assert (after - before).abs().max() > 1e-2
    model.save_pretrained(str(tmp_path / "saved"))
    again = sentence_transformers.SentenceTransformer(str(tmp_path / "saved"), device="cpu")
    torch.testing.assert_close(again.encode(SENTENCES, convert_to_tensor=True), after)
    torch.testing.assert_close(embed(tmp_path / "saved", SENTENCES), after.cpu(), atol=1e-5, rtol=1e-5)
