"""transformers' own pipelines run on MyBERT models without warnings."""

import numpy as np
import pytest
import transformers

import mybert

TEXT = "the cat sat on the mat ."


@pytest.fixture
def build(heads, tokenizer):
    """A pipeline of a task on a tiny model of a head."""

    def pipeline(task, name, **changes):
        model = heads(name).model(vocab_size=len(tokenizer), max_position_embeddings=32, **changes)
        return transformers.pipeline(task, model=model, tokenizer=tokenizer, device="cpu")

    return pipeline


def test_fill_mask(build, tokenizer, no_complaints):
    texts = ["the cat [MASK] on the mat .", "the [MASK] sat on the [MASK]"]
    once, twice = build("fill-mask", "ForMaskedLM")(texts, top_k=3, batch_size=2)
    assert len(once) == 3 and [len(answers) for answers in twice] == [3, 3]
    assert all(answer["token_str"] in tokenizer.get_vocab() and 0 < answer["score"] <= 1 for answer in once)


def test_text_classification(build, no_complaints):
    answers = build("text-classification", "ForSequenceClassification")([TEXT, "it ran"], top_k=None, batch_size=2)
    assert [{answer["label"] for answer in row} for row in answers] == [{"LABEL_0", "LABEL_1", "LABEL_2"}] * 2
    assert sum(answer["score"] for answer in answers[0]) == pytest.approx(1)
    score = build("text-classification", "ForSequenceClassification", num_labels=1, problem_type="regression")
    assert "score" in score({"text": TEXT, "text_pair": "it ran"}, function_to_apply="none")


@pytest.mark.parametrize("aggregation_strategy", ["none", "simple"])
def test_token_classification(build, aggregation_strategy, no_complaints):
    answers = build("token-classification", "ForTokenClassification")(TEXT, aggregation_strategy=aggregation_strategy)
    found = "".join(TEXT[answer["start"] : answer["end"]] for answer in answers)
    assert found.replace(" ", "") == TEXT.replace(" ", "")


def test_feature_extraction_and_zero_shot_classification(build, no_complaints):
    assert np.shape(build("feature-extraction", "Model")(TEXT)) == (1, 9, 32)
    labels = {"id2label": {0: "contradiction", 1: "neutral", 2: "entailment"}}
    labels["label2id"] = {label: number for number, label in labels["id2label"].items()}
    classify = build("zero-shot-classification", "ForSequenceClassification", **labels)
    answer = classify(TEXT, candidate_labels=["bread", "fish"], hypothesis_template="it was {} .")
    assert set(answer["labels"]) == {"bread", "fish"} and sum(answer["scores"]) == pytest.approx(1)


def test_pipeline_of_a_saved_folder(heads, tokenizer, tmp_path, no_complaints):
    heads("ForMaskedLM").model(vocab_size=len(tokenizer)).save_pretrained(tmp_path)
    tokenizer.save_pretrained(tmp_path)
    pipeline = transformers.pipeline("fill-mask", model=str(tmp_path), device="cpu")
    assert type(pipeline.model) is mybert.MyBertForMaskedLM
    assert len(pipeline("a [MASK] ran .", top_k=2)) == 2


@pytest.mark.parametrize("task", ["feature-extraction", "text-classification"])
def test_batches_of_a_pipeline_run_packed(build, watch, task):
    """Texts of different lengths in one batch: the same answers as one at a time, computed without padding."""
    texts = ["a cat sat .", TEXT, "fish", "a cat ran ."]
    pipeline = build(task, {"feature-extraction": "Model"}.get(task, "ForSequenceClassification"))
    seen = watch(pipeline.model.base_model.encoder.layer[0])
    together = pipeline(texts, batch_size=4)
    lengths = [len(pipeline.tokenizer(text)["input_ids"]) for text in texts]
    assert seen == [(1, sum(lengths), 32)]
    for text, answer, length in zip(texts, together, lengths, strict=True):
        alone = pipeline(text)
        if task == "text-classification":
            assert answer["score"] == pytest.approx(alone[0]["score"], rel=1e-5)
        else:
            np.testing.assert_allclose(np.array(answer)[:, :length], np.array(alone), atol=1e-5)
