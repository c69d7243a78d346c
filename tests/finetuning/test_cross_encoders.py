"""Cross-encoders of sentence-transformers: their score is the one that the library gives."""

import json
import shutil

import numpy as np
import pytest
import torch
import transformers
from safetensors.numpy import load_file

import mybert
from mybert.cli import main
from mybert.conversion import export_openvino, from_transformers_bert

sentence_transformers = pytest.importorskip("sentence_transformers")

PAIRS = [("the cat sat", "a dog ran under the tree"), ("it was a mat", "the cat slept on a mat"), ("bread", "fish")]
SIGMOID, IDENTITY = "torch.nn.modules.activation.Sigmoid", "torch.nn.modules.linear.Identity"
RECORDS = {
    "new": lambda path: {"sentence_transformers": {"activation_fn": path, "version": "5.2.0"}},
    "old": lambda path: {"sbert_ce_default_activation_function": path},
}


@pytest.fixture(scope="module")
def plain(tmp_path_factory, tiny_model):
    """A cross-encoder with one output and no record."""

    def spread(model):
        model.classifier.bias.data.fill_(0.5)
        model.classifier.weight.data.mul_(20)

    folder = tmp_path_factory.mktemp("cross") / "encoder"
    return tiny_model(folder, transformers.BertForSequenceClassification, num_labels=1, change=spread)


@pytest.fixture
def recorded(plain, tmp_path, change_config):
    """A copy whose configuration has these fields."""

    def record(**fields):
        folder = shutil.copytree(plain, tmp_path / "recorded", dirs_exist_ok=True)
        return change_config(folder, **fields)

    return record


def scores_of(folder, **settings):
    return [row["score"] for row in mybert.predict(folder, PAIRS, **settings)]


def scores_by_library(folder):
    from sentence_transformers import CrossEncoder

    return CrossEncoder(str(folder), device="cpu").predict(PAIRS)


@pytest.mark.parametrize("path", [SIGMOID, IDENTITY, "torch.nn.modules.activation.Tanh"])
@pytest.mark.parametrize("record", RECORDS)
def test_case_11_predict_of_a_cross_encoder_gives_the_score_of_the_library(record, path, recorded, plain):
    folder = recorded(**RECORDS[record](path))
    expected = scores_by_library(folder)
    np.testing.assert_allclose(scores_of(folder), expected, atol=1e-5)
    assert np.allclose(expected, scores_of(plain), atol=1e-5) is (path == SIGMOID)


@pytest.mark.parametrize("problem", [None, "regression"])
def test_predict_of_one_output_without_a_record_gives_the_score_of_the_pipeline(problem, recorded):
    folder = recorded(problem_type=problem)
    run = transformers.pipeline("text-classification", model=str(folder), device="cpu")
    by_pipeline = [run({"text": text, "text_pair": pair})["score"] for text, pair in PAIRS]
    np.testing.assert_allclose(scores_of(folder), by_pipeline, atol=1e-5)
    if problem is None:  # else the library has a probability, too
        np.testing.assert_allclose(scores_of(folder), scores_by_library(folder), atol=1e-5)


def test_predict_of_a_cross_encoder_reads_as_much_as_its_tokenizer_says(plain, tmp_path):
    from sentence_transformers import CrossEncoder

    CrossEncoder(str(plain), max_length=7, device="cpu").save_pretrained(str(tmp_path / "short"))
    np.testing.assert_allclose(scores_of(tmp_path / "short"), scores_by_library(tmp_path / "short"), atol=1e-5)
    assert scores_of(tmp_path / "short") != scores_of(plain)


def test_predict_of_a_cross_encoder_with_a_prompt_is_an_error(plain, tmp_path):
    from sentence_transformers import CrossEncoder

    options = {"prompts": {"query": "the "}, "default_prompt_name": "query"}
    CrossEncoder(str(plain), device="cpu", **options).save_pretrained(str(tmp_path / "prompted"))
    with pytest.raises(ValueError, match=r"has the default prompt 'query' for texts, which no score has here"):
        scores_of(tmp_path / "prompted")


@pytest.mark.parametrize("activation", [torch.nn.Sigmoid(), torch.nn.Identity()])
def test_predict_of_a_cross_encoder_that_the_library_saved_gives_its_score(activation, plain, tmp_path):
    from sentence_transformers import CrossEncoder

    CrossEncoder(str(plain), activation_fn=activation, device="cpu").save(str(tmp_path / "saved"))
    np.testing.assert_allclose(scores_of(tmp_path / "saved"), scores_by_library(tmp_path / "saved"), atol=1e-5)


def test_case_11_every_command_and_conversion_gives_the_score(recorded, tmp_path, capsys):
    folder = recorded(**RECORDS["new"](SIGMOID))
    expected = scores_by_library(folder)
    from_transformers_bert(folder, tmp_path / "mybert")
    np.testing.assert_allclose(scores_of(tmp_path / "mybert"), expected, atol=1e-5)
    data = tmp_path / "dev.jsonl"
    rows = [
        {"text": first, "text_pair": second, "score": float(score)}
        for (first, second), score in zip(PAIRS, expected, strict=True)
    ]
    data.write_text("".join(json.dumps(row) + "\n" for row in rows))
    assert mybert.evaluate(folder, data)["mae"] < 1e-5
    report = tmp_path / "report.json"
    command = ["compare", str(folder), str(tmp_path / "mybert"), "--data", str(data), "--report", str(report)]
    assert main([*command, "--use_cpu"]) == 0
    sides = json.loads(report.read_text())["metrics"]["mae"]
    assert sides["a"]["value"] < 1e-5 and sides["b"]["value"] < 1e-5


def test_case_11_open_vino_gives_the_score(recorded, tmp_path):
    pytest.importorskip("openvino", reason="needs the extra 'openvino'")
    folder = recorded(**RECORDS["new"](SIGMOID))
    export_openvino(folder, tmp_path / "graph")
    np.testing.assert_allclose(scores_of(tmp_path / "graph"), scores_by_library(folder), atol=1e-5)


def test_predict_of_a_cross_encoder_with_code_of_its_own_is_an_error(recorded):
    folder = recorded(**RECORDS["new"]("folder.code.Activation"))
    with pytest.raises(
        ValueError, match=r"recorded records 'folder\.code\.Activation' as the activation of its scores"
    ):
        mybert.predict(folder, PAIRS)


def test_finetune_of_a_cross_encoder_learns_the_numbers_and_drops_the_record(recorded, tmp_path):
    folder, rows = recorded(**RECORDS["new"](SIGMOID)), [(*pair, 5.0 + place) for place, pair in enumerate(PAIRS)] * 4
    settings = {"task": "regression", "max_steps": 1, "card_examples": False, "use_cpu": True, "learning_rate": 0.0}
    data = [{"text": first, "text_pair": second, "score": number} for first, second, number in rows]
    mybert.finetune(model=str(folder), train_file=data, output_dir=str(tmp_path / "tuned"), **settings)
    assert "sentence_transformers" not in json.loads((tmp_path / "tuned" / "config.json").read_text())


def test_distill_of_a_cross_encoder_teaches_its_score(recorded, tmp_path):
    folder = recorded(**RECORDS["old"](SIGMOID))
    settings = {"task": "regression", "max_steps": 1, "card_examples": False, "use_cpu": True}
    data = [{"text": first, "text_pair": second, "score": 0.5} for first, second in PAIRS]
    mybert.distill(
        teacher=str(folder), student=str(folder), train_file=data, output_dir=str(tmp_path / "student"), **settings
    )
    (file,) = (tmp_path / "student" / "teacher_outputs").glob("*.safetensors")
    taught = sorted(load_file(file)["logits"].ravel().tolist())
    np.testing.assert_allclose(taught, sorted(scores_by_library(folder)), atol=1e-5)
