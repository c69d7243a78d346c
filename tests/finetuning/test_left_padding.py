"""A text has the same result in a batch as alone, on whichever side its tokenizer pads: positions count padding."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from safetensors.numpy import load_file
from transformers import XLNetConfig, XLNetForSequenceClassification

import mybert
from mybert import MyBertTokenizer
from mybert.finetuning import TASKS, FeaturesArguments, extract_features

QUESTIONS = [{"question": "what ?", "context": "the cat sat on a mat"}, {"question": "who ate ?", "context": "a dog"}]


@pytest.fixture
def at_left(tmp_path, changed):
    """Copies a model folder, with a tokenizer that pads on the left."""

    def copy(model):
        folder = changed(model)
        tokenizer = MyBertTokenizer.from_pretrained(folder)
        tokenizer.padding_side = "left"
        tokenizer.save_pretrained(folder)
        assert MyBertTokenizer.from_pretrained(folder).padding_side == "left"
        return folder

    return copy


@pytest.mark.parametrize("name", ["sst2", "mrpc", "regression", "multilabel", "ner", "squad", "swag"])
def test_predict_with_a_tokenizer_that_pads_on_the_left_answers_as_one_by_one(models, at_left, texts, name):
    rows = {
        "mrpc": [{"sentence1": text, "sentence2": texts[-1 - number]} for number, text in enumerate(texts)],
        "regression": texts,
        "multilabel": texts,
        "ner": [text.split() for text in texts],
        "squad": QUESTIONS,
        "swag": [
            {"sent1": text, "sent2": "a"} | {f"ending{number}": texts[number + place] for number in range(4)}
            for place, text in enumerate(texts[:20])
        ],
    }.get(name, texts)
    folder = at_left(models / name)
    together = mybert.predict(folder, rows, use_cpu=True)
    if name != "squad":  # where, as in transformers, such a tokenizer has the question follow the text
        assert together == mybert.predict(models / name, rows, use_cpu=True)
    for row, answer in list(zip(rows, together, strict=True))[:4]:
        (alone,) = mybert.predict(folder, [row], use_cpu=True)
        assert alone.keys() == answer.keys() and alone["score"] == pytest.approx(answer["score"], abs=2e-5)


@pytest.mark.parametrize("settings", [{}, {"pooling": "mean"}], ids=["tokens", "texts"])
def test_features_with_a_tokenizer_that_pads_on_the_left_are_the_same(tmp_path, pretrained, at_left, texts, settings):
    (tmp_path / "texts.txt").write_text("\n".join(texts) + "\n")
    found = []
    for model in (pretrained, at_left(pretrained)):
        output = tmp_path / f"{len(found)}.safetensors"
        extract_features(
            FeaturesArguments(
                model=str(model), text=[str(tmp_path / "texts.txt")], output=str(output), use_cpu=True, **settings
            )
        )
        found.append(load_file(output)["features"])
    assert len(found[0]) >= len(texts)
    np.testing.assert_array_equal(*found)


@pytest.mark.parametrize("name", ["sst2", "swag", "squad", "ner", "fill_mask"])
def test_collator_pads_at_the_end_whatever_the_tokenizer_does(tokenizer, name):
    sequences = [{"input_ids": list(range(2, 2 + length)), "attention_mask": [1] * length} for length in (5, 3)]
    rows = [{key: [values] * 2 for key, values in row.items()} for row in sequences] if name == "swag" else sequences
    if name == "ner":
        rows = [row | {"labels": [0] * len(row["input_ids"])} for row in rows]
    left = MyBertTokenizer(vocab=tokenizer.get_vocab(), padding_side="left")
    batch = TASKS[name].collator(left)(rows)
    assert left.padding_side == "left"
    assert batch["attention_mask"].view(-1, 5).tolist()[-1] == [1, 1, 1, 0, 0]


def test_collator_pads_at_the_start_for_a_head_that_reads_the_last_token(tokenizer):
    """XLNet's, whose positions are relative."""
    torch.manual_seed(0)
    size = {"vocab_size": len(tokenizer), "d_model": 16, "n_layer": 1, "n_head": 2, "d_inner": 32}
    model = XLNetForSequenceClassification(XLNetConfig(**size)).eval()
    rows = [{"input_ids": list(range(5, 5 + length)), "attention_mask": [1] * length} for length in (6, 3)]
    task = replace(TASKS["classification"])
    with torch.no_grad():
        together, alone = (model(**task.collator(tokenizer, model)(part)).logits for part in (rows, rows[1:]))
    torch.testing.assert_close(together[1:], alone, rtol=0, atol=1e-5)
