"""A model of sentence-transformers keeps its pooling, normalization and prompts in every conversion of folders."""

import json

import numpy as np
import pytest

from mybert import MyBertModel
from mybert.conversion import export_google_checkpoint, from_transformers_bert, to_transformers_bert

sentence_transformers = pytest.importorskip("sentence_transformers")

TEXTS = ["the cat sat", "bread bread", "it", "a cat a cat a happy cat on a mat"]


@pytest.fixture(scope="module")
def folder(tmp_path_factory, tiny_model):
    """A MyBERT folder that sentence-transformers pools by the maximum, normalizes and prompts."""
    from sentence_transformers import SentenceTransformer, models

    path = tmp_path_factory.mktemp("sentences")
    tiny_model(path / "plain", MyBertModel, initializer_range=0.5)
    modules = [models.Transformer(str(path / "plain")), models.Pooling(16, pooling_mode="max"), models.Normalize()]
    model = SentenceTransformer(modules=modules, prompts={"query": "it was "}, device="cpu")
    model.save(str(path / "model"))
    return path / "model"


def vectors(folder):
    from sentence_transformers import SentenceTransformer

    model = SentenceTransformer(str(folder), device="cpu")
    assert model.prompts["query"] == "it was "
    return np.concatenate([model.encode(TEXTS), model.encode(TEXTS, prompt_name="query")])


def test_vectors_stay_the_same(folder, tmp_path):
    report = to_transformers_bert(folder, tmp_path / "bert")
    assert any(decision.startswith("sentence-transformers: ") for decision in report.decisions)
    from_transformers_bert(tmp_path / "bert", tmp_path / "back")
    expected = vectors(folder)
    np.testing.assert_allclose(np.linalg.norm(expected, axis=1), 1, atol=1e-5)
    for name in ("bert", "back"):
        np.testing.assert_allclose(vectors(tmp_path / name), expected, atol=1e-5)
        modules = json.loads((tmp_path / name / "modules.json").read_text())
        for module in modules[1:2]:
            for file in (folder / module["path"]).iterdir():
                assert (tmp_path / name / module["path"] / file.name).read_bytes() == file.read_bytes()
    (tmp_path / "back" / "modules.json").unlink()
    (tmp_path / "back" / "1_Pooling" / "config.json").unlink()
    from sentence_transformers import SentenceTransformer

    other = SentenceTransformer(str(tmp_path / "back"), device="cpu").encode(TEXTS)
    assert np.abs(other - expected[: len(TEXTS)]).max() > 0.1  # which is what was lost


def test_a_second_conversion_replaces_the_first(folder, tmp_path):
    to_transformers_bert(folder, tmp_path / "bert")
    (tmp_path / "bert" / "12_Dense").mkdir()
    (tmp_path / "bert" / "12_Dense" / "config.json").write_text("{}")
    to_transformers_bert(folder, tmp_path / "bert", overwrite=True)
    assert not (tmp_path / "bert" / "12_Dense").exists()
    (tmp_path / "bert" / "thesis.tex").write_text("mine")
    with pytest.raises(ValueError, match=r"thesis\.tex"):
        to_transformers_bert(folder, tmp_path / "bert", overwrite=True)
    assert (tmp_path / "bert" / "thesis.tex").read_text() == "mine"


def test_google_has_no_place_for_it(folder, tmp_path):
    report = export_google_checkpoint(folder, tmp_path / "google" / "m", allow_other_activation=True)
    assert any("sentence-transformers' files are left out" in decision for decision in report.decisions)
