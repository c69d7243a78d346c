"""Pretraining heads on new data, compared with the pipelines: fill-mask and next sentence prediction."""

import json
import shutil

import pytest
import torch
from transformers import pipeline

import mybert
from mybert import MyBertForMaskedLM, MyBertForNextSentencePrediction
from mybert.finetuning import TASKS, EvaluateArguments, evaluate_model
from mybert.finetuning.tasks.fill_mask import MaskedText
from mybert.finetuning.tasks.steps import read_predictions, write_predictions

WORDS = "the cat dog sat ran on under a mat tree and slept ate fish bread it was happy sad very today".split()
TEXTS = ["the [MASK] sat on the mat", "A happy [MASK] ate [MASK] today .", "it was [MASK]"]


@pytest.fixture(scope="module")
def models(tmp_path_factory, tiny_model):
    """Folders by head of models with random weights, equal in their shared parts."""
    folder = tmp_path_factory.mktemp("pretrained")
    size = {"hidden_size": 32, "num_hidden_layers": 2, "initializer_range": 0.5}
    both = tiny_model(folder / "both", **size)
    for name, kind in (("masked", MyBertForMaskedLM), ("pairs", MyBertForNextSentencePrediction)):
        kind.from_pretrained(both).save_pretrained(shutil.copytree(both, folder / name))
    return folder


@pytest.mark.parametrize(("name", "settings"), [("masked", {}), ("both", {"task": "fill_mask"})])
def test_masks_are_filled_as_by_the_pipeline(models, name, settings):
    fill = pipeline("fill-mask", model=str(models / "masked"), device="cpu", top_k=4)
    found = mybert.predict(models / name, TEXTS, top_k=4, **settings)
    for text, row in zip(TEXTS, found, strict=True):
        masks = fill(text)
        masks = masks if isinstance(masks[0], list) else [masks]
        assert row["label"] == [best[0]["token_str"] for best in masks]
        assert row["score"] == pytest.approx([best[0]["score"] for best in masks], abs=2e-6)
        for listed, best in zip(row["best"], masks, strict=True):
            assert [item["label"] for item in listed] == [item["token_str"] for item in best]
            assert [item["score"] for item in listed] == pytest.approx([item["score"] for item in best], abs=2e-6)
        filled = text
        for token in row["label"]:
            filled = filled.replace(" [MASK]" if token == "##s" else "[MASK]", token.removeprefix("##"), 1)
        assert row["filled"] == filled
    assert [len(row["label"]) for row in found] == [1, 2, 1]


def test_masks_are_filled_by_a_model_of_few_positions(tmp_path, tiny_model):
    tiny_model(tmp_path, max_position_embeddings=24)
    (row,) = mybert.predict(tmp_path, ["the [MASK] sat " * 20], task="fill_mask")
    assert len(row["label"]) == 20
    (row,) = mybert.predict(tmp_path, [("the cat " * 20, "a dog sat")], task="next_sentence")
    assert row["label"] in ("is_next", "not_next")


def test_predictions_that_are_quotes_are_read_as_written(tmp_path):
    task = TASKS["fill_mask"]
    examples = [MaskedText("the [MASK] sat", hidden=(word,)) for word in ['"', "cat", '"a']]
    write_predictions(task, [task.gold_prediction(example) for example in examples], examples, tmp_path)
    found = read_predictions(task, tmp_path / "predictions.tsv", examples)
    assert [row.tokens for row in found] == [example.hidden for example in examples]


def test_read_predictions_with_more_words_than_masks_is_an_error(tmp_path):
    (tmp_path / "predictions.tsv").write_text("index\tprediction\n0\tcat dog\n")
    with pytest.raises(ValueError, match=r"predictions\.tsv, row 1: 2 words; expected 1, one for each mask"):
        read_predictions(
            TASKS["fill_mask"], tmp_path / "predictions.tsv", [MaskedText("the [MASK] sat", hidden=("cat",))]
        )


def test_evaluate_fill_mask_with_another_number_of_words_than_masks_is_an_error(models):
    rows = [{"text": "the [MASK] [MASK]", "label": "cat"}]
    with pytest.raises(ValueError, match=r"row 1: 2 masks and 1 masked words; expected one word for each mask\."):
        mybert.evaluate(models / "masked", rows, use_cpu=True)


def test_predict_fill_mask_by_a_tokenizer_without_mask_is_an_error(tmp_path, models):
    folder = shutil.copytree(models / "masked", tmp_path / "model")
    file = folder / "tokenizer_config.json"
    file.write_text(json.dumps(json.loads(file.read_text()) | {"mask_token": None}))
    with pytest.raises(ValueError, match=r"The tokenizer \w+ has no mask token; expected that of a masked"):
        mybert.predict(folder, ["the cat"])


def test_a_mask_behind_the_longest_sequence(models, tokenizer):
    words = [WORDS[(5 * number) % len(WORDS)] for number in range(60)]
    words[2] = words[50] = "[MASK]"
    (row,) = mybert.predict(models / "masked", [" ".join(words)], max_length=22)
    # Windows of 20 that share 10: 0-20, ..., 30-50, 40-60; 50 is in the middle of the last one.
    model = MyBertForMaskedLM.from_pretrained(models / "masked").eval()
    wanted = []
    for start, place in ((0, 2), (40, 50)):
        batch = tokenizer(" ".join(words[start : start + 20]), return_tensors="pt")
        with torch.no_grad():
            wanted.append(model(**batch).logits[0, place - start + 1].softmax(-1).max().item())
    assert row["score"] == pytest.approx(wanted, abs=2e-6)


def test_evaluate_fill_mask_measures_masked_words(tmp_path, tune, models):
    best = [row["label"] for row in mybert.predict(models / "masked", TEXTS)]
    rows = [{"text": text, "label": " ".join(words)} for text, words in zip(TEXTS, best, strict=True)]
    rows[1]["label"] = [best[1][0].title(), "nothing"]  # the tokenizer lower-cases it
    (tmp_path / "t.json").write_text(json.dumps(rows))
    data, folder = str(tmp_path / "t.json"), tmp_path / "written"
    found = mybert.evaluate(models / "masked", data, predictions_dir=folder, use_cpu=True)
    assert found == {"accuracy": 0.75}
    file = str(folder / "predictions.tsv")
    assert evaluate_model(EvaluateArguments(task="fill_mask", predictions=file, data=data)) == found
    with pytest.raises(ValueError, match=r"fill_mask is only for predict and evaluate"):
        tune(tmp_path / "out", data, task="fill_mask", model=models / "masked")


@pytest.mark.parametrize(("name", "settings"), [("pairs", {}), ("both", {"task": "next_sentence"})])
def test_pairs_are_judged_as_by_the_pipeline(models, name, settings):
    pairs = [(WORDS[number], " ".join(WORDS[number : number + 4])) for number in range(12)]
    follows = pipeline("next-sentence-prediction", model=str(models / "pairs"), device="cpu")
    wanted = follows(pairs)
    for data in (pairs, [{"sentence1": a, "sentence2": b} for a, b in pairs]):
        found = mybert.predict(models / name, data, **settings)
        assert [row["label"] for row in found] == [answer["label"] for answer in wanted]
        assert [row["score"] for row in found] == pytest.approx([answer["score"] for answer in wanted], abs=2e-6)
    assert {row["label"] for row in found} <= {"is_next", "not_next"}
    rows = [{"text": a, "text_pair": b, "label": row["label"]} for (a, b), row in zip(pairs, found, strict=True)]
    assert mybert.evaluate(models / name, rows, use_cpu=True, **settings)["accuracy"] == 1.0


def test_the_head_of_next_sentence_prediction_is_trained_on(tmp_path, tune, models):
    rows = [{"text": a, "text_pair": b, "label": "is_next" if a < b else "not_next"} for a in WORDS for b in WORDS[:2]]
    out = tmp_path / "out"
    tune(out, rows, task="next_sentence", model=models / "both", learning_rate=0.0)
    (found,), (wanted,) = (mybert.predict(model, [("a cat", "sat")]) for model in (out, models / "pairs"))
    assert found == wanted
    assert "next-sentence-prediction" in (out / "README.md").read_text()


@pytest.mark.parametrize(
    ("name", "data", "settings", "message"),
    [
        ("masked", ["a [MASK]", "a cat"], {}, r"data, row 2: a text without \[MASK\]"),
        ("masked", ["a [MASK]"], {"top_k": 101}, "--top_k"),
        ("both", ["a cat"], {}, r"is MyBertForPreTraining, .* task='fill_mask' or next_sentence"),
        ("pairs", ["a [MASK]"], {"task": "fill_mask"}, r"has no head for this task"),
        ("pairs", ["a cat"], {}, r"no column 'text_pair'; its columns are 'text'; .* text_pair_column="),
    ],
)
def test_predict_of_pretraining_tasks_wrong_data_is_an_error(models, name, data, settings, message, user_error):
    with user_error(message):
        mybert.predict(models / name, data, **settings)
