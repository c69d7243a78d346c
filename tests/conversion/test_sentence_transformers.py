"""A model of sentence-transformers keeps its pooling, normalization and prompts in every conversion of folders."""

import json

import numpy as np
import pytest

import mybert
from mybert import MyBertModel
from mybert.conversion import export_google_checkpoint, from_transformers_bert, to_transformers_bert
from mybert.finetuning import FeaturesArguments, extract_features
from mybert.visualization.commands import draw_attention
from mybert.visualization.settings import AttentionSettings

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


@pytest.fixture
def version_1(folder, tmp_path):
    """The folder as sentence-transformers 1 wrote it, with the model in a folder of its own, as type `bert`."""
    to_transformers_bert(folder, tmp_path / "bert")
    old = tmp_path / "old"
    (old / "0_Transformer").mkdir(parents=True)
    for path in (tmp_path / "bert").iterdir():
        in_root = path.name in ("modules.json", "config_sentence_transformers.json") or path.is_dir()
        path.rename(old / path.name if in_root else old / "0_Transformer" / path.name)
    modules = json.loads((old / "modules.json").read_text())
    names = {0: "0_Transformer", **{number: modules[number]["path"] for number in range(1, len(modules))}}
    modules = [
        module | {"path": names[number], "type": f"sentence_transformers.models.{module['type'].rpartition('.')[2]}"}
        for number, module in enumerate(modules)
    ]
    (old / "modules.json").write_text(json.dumps(modules))
    return old


def test_folder_of_sentence_transformers_1_has_the_library_s_vectors(version_1, tmp_path):
    (tmp_path / "texts.txt").write_text("\n".join(TEXTS))
    output = tmp_path / "vectors.jsonl"
    extract_features(
        FeaturesArguments(model=str(version_1), text=[str(tmp_path / "texts.txt")], output=str(output), pooling="own")
    )
    found = [json.loads(line)["features"] for line in output.read_text().splitlines()]
    np.testing.assert_allclose(found, vectors(version_1)[: len(TEXTS)], atol=1e-6)


def test_folder_of_sentence_transformers_1_is_converted_to_the_present_layout(version_1, tmp_path):
    from_transformers_bert(version_1, tmp_path / "back")
    assert {path.name for path in (tmp_path / "back").iterdir()} >= {"config.json", "modules.json", "1_Pooling"}
    assert not (tmp_path / "back" / "0_Transformer").exists()
    np.testing.assert_allclose(vectors(tmp_path / "back"), vectors(version_1), atol=1e-6)


def test_folder_of_sentence_transformers_1_is_fine_tuned_and_drawn(version_1, tmp_path):
    rows = [(text, str(place % 2)) for place, text in enumerate(TEXTS * 3)]
    settings = {"max_steps": 1, "card_examples": False, "use_cpu": True}
    mybert.finetune(model=str(version_1), train_file=rows, output_dir=str(tmp_path / "tuned"), **settings)
    assert len(mybert.predict(tmp_path / "tuned", TEXTS)) == len(TEXTS)
    settings = AttentionSettings(model=str(version_1), sentences=["the cat"], output=str(tmp_path / "map.png"))
    draw_attention(settings)
