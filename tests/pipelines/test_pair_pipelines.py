"""Next sentence prediction and multiple choice against the bare models."""

import sys

import pytest
import torch
from transformers import (
    BertForMultipleChoice,
    BertForNextSentencePrediction,
    XLNetConfig,
    XLNetForMultipleChoice,
    pipeline,
)
from transformers.pipelines.pt_utils import KeyPairDataset

import mybert  # noqa: F401  brings the tasks

PAIRS = [("the cat sat.", "who is the dog?"), ("a dog", "in the house of berlin"), ("who?", "what did the cat sat in")]


@pytest.fixture(scope="module")
def follows(tokenizer, tiny):
    return pipeline("next-sentence-prediction", model=tiny(BertForNextSentencePrediction, seed=1), tokenizer=tokenizer)


@pytest.fixture(scope="module")
def choose(tokenizer, tiny):
    return pipeline("multiple-choice", model=tiny(BertForMultipleChoice, seed=1), tokenizer=tokenizer)


def test_next_sentence_labels_and_scores(follows):
    expected = []
    for pair in PAIRS:
        with torch.no_grad():
            probabilities = (
                follows.model(**follows.tokenizer(*pair, return_tensors="pt").to(follows.device)).logits[0].softmax(0)
            )
        label = ("is_next", "not_next")[probabilities.argmax()]
        expected.append({"label": label, "score": pytest.approx(probabilities.max().item(), abs=1e-5)})
    assert {found["label"] for found in expected} == {"is_next", "not_next"}
    assert follows(PAIRS) == expected
    assert follows(PAIRS, batch_size=2) == expected
    assert follows([{"text": first, "text_pair": second} for first, second in PAIRS]) == expected
    assert list(follows(pair for pair in PAIRS)) == expected
    columns = [{"first": first, "second": second} for first, second in PAIRS]
    assert list(follows(KeyPairDataset(columns, "first", "second"))) == expected
    first, second = PAIRS[0]
    for found in (
        follows(*PAIRS[0]),
        follows(PAIRS[0]),
        follows([first, second]),
        follows(text=first, text_pair=second),
    ):
        assert found == expected[0]
    assert follows("the cat " * 100, "a dog")["label"] in ("is_next", "not_next")  # truncated to the model


def test_multiple_choice_scores(choose):
    examples = [
        {"prompt": "the cat", "choices": ["sat.", "lives in the house of berlin", "is a dog"]},
        {"prompt": "where?", "choices": ["in berlin", "who"]},
        {"prompt": "what", "choices": ["did"]},
    ]
    expected = []
    for example in examples:
        prompts = [example["prompt"]] * len(example["choices"])
        encoded = choose.tokenizer(prompts, example["choices"], padding=True, return_tensors="pt").to(choose.device)
        with torch.no_grad():
            logits = choose.model(**{name: values.unsqueeze(0) for name, values in encoded.items()}).logits[0]
        scores = logits.softmax(0).tolist()
        ranked = [
            {"label": label, "answer": example["choices"][label], "score": pytest.approx(scores[label], abs=1e-5)}
            for label in sorted(range(len(scores)), key=lambda label: -scores[label])
        ]
        expected.append(ranked)
    assert choose(examples) == [ranked[0] for ranked in expected]
    assert choose(examples, top_k=10) == expected
    assert choose(examples, top_k=10, batch_size=2) == expected
    assert choose(**examples[0]) == choose(examples[0]["prompt"], examples[0]["choices"]) == expected[0][0]


def test_model_and_tokenizer_without_a_longest_length(tokenizer):
    sizes = {"vocab_size": len(tokenizer), "d_model": 32, "n_layer": 1, "n_head": 2, "d_inner": 32}
    model = XLNetForMultipleChoice(XLNetConfig(**sizes))
    choose = pipeline("multiple-choice", model=model, tokenizer=tokenizer)
    assert tokenizer.model_max_length > sys.maxsize
    prompt = "the cat " * 100
    rows = choose.preprocess([{"prompt": prompt, "choices": ["sat", "is"]}])["rows"]
    assert [len(row["input_ids"]) for row in rows] == [204, 204]
    assert choose(prompt, ["sat", "is"])["answer"] in ("sat", "is")


@pytest.mark.parametrize("fixture", ["follows", "choose"])
def test_number_of_workers_changes_nothing(fixture, request):
    run = request.getfixturevalue(fixture)
    examples = PAIRS if fixture == "follows" else [{"prompt": "who", "choices": ["sat", "is"]}]
    assert run(examples, num_workers=2) == run(examples)
    with pytest.raises(TypeError, match="num_worker"):
        run(examples, num_worker=2)


@pytest.mark.parametrize(("task", "fixture"), [("next-sentence-prediction", "follows"), ("multiple-choice", "choose")])
def test_saved_folders_load_by_task(task, fixture, request, tmp_path):
    original = request.getfixturevalue(fixture)
    original.save_pretrained(tmp_path)
    arguments = ("the cat", ["sat", "is"]) if task == "multiple-choice" else ("the cat", "sat")
    again = pipeline(task, model=str(tmp_path))(*arguments)
    assert again == {**original(*arguments), "score": pytest.approx(again["score"], abs=1e-6)}
