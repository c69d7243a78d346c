"""`mybert finetune --pooling`: classifiers of the mean of all tokens, also in other tools."""

import json
import logging

import pytest
import torch
from transformers import AutoModelForSequenceClassification, AutoTokenizer, RobertaModel, pipeline

from mybert import MyBertForSequenceClassification, MyBertModel
from mybert.conversion import export_google_checkpoint, to_transformers_bert
from mybert.finetuning import finetune, predict
from mybert.finetuning.features import classifies_mean


@pytest.fixture
def sentence_encoder(tmp_path, tiny_model):
    """A folder of sentence-transformers with this pooling mode."""

    def make(mode):
        folder = tiny_model(tmp_path / mode, MyBertModel, hidden_size=32, intermediate_size=64)
        modules = [{"idx": 0, "name": "0", "path": "", "type": "sentence_transformers.models.Transformer"}]
        modules += [{"idx": 1, "name": "1", "path": "1_Pooling", "type": "sentence_transformers.models.Pooling"}]
        (folder / "modules.json").write_text(json.dumps(modules))
        (folder / "1_Pooling").mkdir()
        (folder / "1_Pooling" / "config.json").write_text(json.dumps({"pooling_mode": mode}))
        return folder

    return make


def pooling_of(folder):
    return json.loads((folder / "config.json").read_text()).get("classifier_pooling", "cls")


@pytest.mark.parametrize(
    ("mode", "settings", "expected"),
    [
        ("mean", {}, "mean"),
        ("mean", {"pooling": "cls"}, "cls"),
        ("mean", {"from_scratch": True}, "cls"),
        ("cls", {}, "cls"),
        ("cls", {"pooling": "mean"}, "mean"),
        ("weightedmean", {}, "cls"),  # which mybert does not support
    ],
)
def test_pooling_is_that_of_the_sentence_vectors_by_default(
    sentence_encoder, tune, rows, tmp_path, caplog, mode, settings, expected
):
    caplog.set_level(logging.INFO)
    folder = sentence_encoder(mode)
    tune(tmp_path / "out", rows, model=folder, **settings)
    assert pooling_of(tmp_path / "out") == expected
    assert (f"the mean of all tokens, as the sentence-transformers files of {folder} say" in caplog.text) is (
        not settings and expected == "mean"
    )


def test_a_classifier_of_the_mean_is_the_same_in_other_tools(tune, rows, tmp_path):
    sentence_transformers = pytest.importorskip("sentence_transformers")
    out, texts = tmp_path / "out", [text for text, _ in rows[:7]] + ["cat"]
    tune(out, rows, pooling="mean", max_length=32)
    assert "| pooling | mean |" in (out / "README.md").read_text()
    answers = predict(out, texts, probabilities=True)
    model, tokenizer = AutoModelForSequenceClassification.from_pretrained(out), AutoTokenizer.from_pretrained(out)
    run = pipeline("text-classification", model=model, tokenizer=tokenizer, top_k=None)
    for answer, found in zip(answers, run(texts, batch_size=3), strict=True):
        for each in found:
            assert each["score"] == pytest.approx(answer[f"probability_{each['label']}"], abs=1e-5)
    vectors = sentence_transformers.SentenceTransformer(str(out), device="cpu").encode(texts)
    with torch.no_grad():
        logits = model.cpu().classifier(torch.from_numpy(vectors))
        expected = model.eval()(**tokenizer(texts, padding=True, return_tensors="pt")).logits
    torch.testing.assert_close(logits, expected, rtol=0, atol=1e-5)


def test_another_pooling_gives_a_new_head_and_the_same_keeps_it(tune, rows, tmp_path, caplog):
    caplog.set_level(logging.INFO)
    tune(tmp_path / "mean", rows, pooling="mean")
    new_ones = ", ".join(f"{name}.bias, {name}.weight" for name in ("bert.pooler.dense", "classifier"))
    for number, (settings, new) in enumerate(
        [({}, "none"), ({"pooling": "mean"}, "none"), ({"pooling": "cls"}, new_ones)]
    ):
        caplog.clear()
        tune(tmp_path / str(number), rows, model=tmp_path / "mean", **settings)
        assert f"new ones: {new}." in caplog.text
        assert pooling_of(tmp_path / str(number)) == settings.get("pooling", "mean")


def test_plain_bert_and_google_reject_a_classifier_of_the_mean(tiny_model, tmp_path):
    tiny_model(tmp_path / "out", MyBertForSequenceClassification, classifier_pooling="mean")
    for convert, target in ((to_transformers_bert, "bert"), (export_google_checkpoint, "google/model")):
        with pytest.raises(
            ValueError,
            match=r"out: classifier_pooling is 'mean', and other BERTs .* convert onnx` and .* openvino` keep",
        ):
            convert(tmp_path / "out", tmp_path / target)
        assert not (tmp_path / target).exists()


def test_pooling_of_a_model_or_task_without_it_is_an_error(short_run, rows, tmp_path, tiny_model):
    folder = tiny_model(tmp_path / "roberta", RobertaModel)
    (folder / "modules.json").write_text("[]")
    assert not classifies_mean(str(folder), is_probe=True)
    with pytest.raises(ValueError, match=r"pooling is 'mean' and .*roberta of type roberta, whose classifiers have"):
        finetune(short_run(model=str(folder), train_file=rows, pooling="mean"))
    assert not (tmp_path / "out").exists()
    with pytest.raises(ValueError, match="pooling is 'mean' and task 'ner'; expected a task that classifies texts"):
        short_run(task="ner", train_file="t.conll", pooling="mean")
