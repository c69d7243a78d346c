"""sentence-transformers on a MyBERT folder."""

import json
import shutil

import numpy as np
import pytest
import torch

from mybert import MyBertModel
from mybert.finetuning import FeaturesArguments, extract_features
from mybert.finetuning.features import SentenceSettings, sentence_settings
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


@pytest.mark.parametrize(("mode", "normalize"), [("mean", False), ("mean", True), ("cls", True), ("max", False)])
def test_features_are_the_same_vectors(tmp_path, model_dir, mode, normalize):
    from safetensors.numpy import load_file
    from sentence_transformers.sentence_transformer.modules import Normalize, Pooling, Transformer

    transformer = Transformer(str(model_dir("MyBertModel")), max_seq_length=9)
    pooling = Pooling(transformer.get_embedding_dimension(), mode)
    modules = [transformer, pooling, *([Normalize()] if normalize else [])]
    model = sentence_transformers.SentenceTransformer(modules=modules, device="cpu")
    model.save(str(tmp_path / "model"))
    expected = model.encode(SENTENCES)
    (tmp_path / "texts.txt").write_text("\n".join(SENTENCES))
    settings = {"model": str(tmp_path / "model"), "text": [str(tmp_path / "texts.txt")]}
    found = extract_features(FeaturesArguments(**settings, output=str(tmp_path / "own.safetensors"), pooling="own"))
    assert (found["size"], found["cut"]) == (expected.shape[1], sum(len(text.split()) > 7 for text in SENTENCES))
    np.testing.assert_allclose(load_file(tmp_path / "own.safetensors")["features"], expected, atol=1e-5)
    if not normalize:
        extract_features(
            FeaturesArguments(**settings, output=str(tmp_path / "named.jsonl"), pooling=mode, max_length=9)
        )
        rows = [json.loads(line) for line in (tmp_path / "named.jsonl").read_text().splitlines()]
        assert [row["text"] for row in rows] == SENTENCES
        np.testing.assert_allclose([row["features"] for row in rows], expected, atol=1e-5)


def test_texts_are_lower_cased_where_the_folder_says_so(tmp_path, model_dir):
    from safetensors.numpy import load_file

    folder = tmp_path / "model"
    sentence_transformers.SentenceTransformer(str(model_dir("MyBertModel")), device="cpu").save(str(folder))
    vocab = MyBertTokenizer.from_pretrained(folder).get_vocab()
    MyBertTokenizer(vocab=vocab, do_lower_case=False).save_pretrained(folder)
    (folder / "sentence_bert_config.json").write_text('{"max_seq_length": 16, "do_lower_case": true}')
    texts = ["The Cat sat", "A DOG ran"]
    expected = sentence_transformers.SentenceTransformer(str(folder), device="cpu").encode(texts)
    (tmp_path / "texts.txt").write_text("\n".join(texts))
    settings = {"model": str(folder), "text": [str(tmp_path / "texts.txt")], "pooling": "own"}
    extract_features(FeaturesArguments(**settings, output=str(tmp_path / "own.safetensors")))
    np.testing.assert_allclose(load_file(tmp_path / "own.safetensors")["features"], expected, atol=1e-5)


def test_modules_that_are_not_computed_are_named(tmp_path, model_dir):
    folder = shutil.copytree(model_dir("MyBertModel"), tmp_path / "model")
    (tmp_path / "texts.txt").write_text("a cat")
    settings = {"model": str(folder), "text": [str(tmp_path / "texts.txt")], "output": str(tmp_path / "o.jsonl")}
    pooling = {"path": "1_Pooling", "type": "sentence_transformers.models.Pooling"}
    (folder / "1_Pooling").mkdir()
    (folder / "1_Pooling" / "config.json").write_text('{"pooling_mode_lasttoken": true}')
    for modules, message in (
        ([{"path": "2_Dense", "type": "sentence_transformers.models.Dense"}], "names 'Dense', which is not supported"),
        ([pooling], r"pools by \['pooling_mode_lasttoken'\]; expected mean, cls, max, of all tokens"),
    ):
        (folder / "modules.json").write_text(json.dumps(modules))
        with pytest.raises(ValueError, match=message):
            extract_features(FeaturesArguments(**settings, pooling="own"))
    (folder / "1_Pooling" / "config.json").write_text('{"pooling_mode_cls_token": true}')
    assert sentence_settings(folder) == SentenceSettings("cls")
    assert not (tmp_path / "o.jsonl").exists()


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
