"""Features of frozen encoders, in files and under a tagger."""

import json
import os
import shutil
import signal

import numpy as np
import pytest
import torch
from safetensors import safe_open
from safetensors.numpy import load_file

from mybert import MyBertModel
from mybert.finetuning import (
    FEATURES,
    TABLE_7,
    EvaluateArguments,
    FeaturesArguments,
    FeatureTagger,
    evaluate_model,
    extract_features,
    features,
    finetune,
    predict,
    tag_words,
)
from mybert.finetuning.prediction import predictor
from mybert.finetuning.training import run as training_run
from mybert.modeling_mybert.bilstm import run_lstm

TEXTS = ["the cat sat on the mats", "a dog ||| fish and bread", "tree"]


@pytest.fixture(scope="module")
def encoder(tmp_path_factory, tiny_model):
    return tiny_model(tmp_path_factory.mktemp("encoder"), hidden_size=8, num_hidden_layers=5)


@pytest.fixture
def text_file(tmp_path):
    path = tmp_path / "texts.txt"
    path.write_text("\n".join(TEXTS) + "\n\n")
    return path


def hidden(encoder, tokenizer, text):
    """All hidden states of a text (tokens, layers + 1, hidden size)."""
    model = MyBertModel.from_pretrained(encoder).eval()
    with torch.no_grad():
        states = model(**tokenizer(*text.split(" ||| "), return_tensors="pt"), output_hidden_states=True).hidden_states
    return torch.stack(states, dim=2)[0].numpy()


EXPECTED = {
    "embeddings": lambda h: h[:, 0],
    "second_to_last": lambda h: h[:, 4],
    "last": lambda h: h[:, 5],
    "weighted_last_four": lambda h: h[:, 2:].mean(1),
    "concat_last_four": lambda h: np.concatenate([h[:, n] for n in (2, 3, 4, 5)], axis=1),
    "weighted_all": lambda h: h[:, 1:].mean(1),
    "sum_last_four": lambda h: h[:, 2:].sum(1),
    "sum_all": lambda h: h[:, 1:].sum(1),
}


@pytest.mark.parametrize("name", FEATURES)
def test_features_in_both_formats(name, encoder, text_file, tokenizer, tmp_path):
    wanted = [EXPECTED[name](hidden(encoder, tokenizer, text)) for text in TEXTS]
    for ending in ("safetensors", "jsonl"):
        output = str(tmp_path / f"features.{ending}")
        result = extract_features(
            FeaturesArguments(model=str(encoder), text=[str(text_file)], output=output, features=name, batch_size=2)
        )
        assert result == {"texts": 3, "tokens": sum(map(len, wanted)), "size": wanted[0].shape[1], "cut": 0}
    tensors = load_file(tmp_path / "features.safetensors")
    np.testing.assert_allclose(tensors["features"], np.concatenate(wanted), atol=1e-5)
    assert tensors["text_starts"].tolist() == np.cumsum([0, *map(len, wanted)]).tolist()
    with safe_open(tmp_path / "features.safetensors", "np") as file:
        assert file.metadata()["features"] == name
    lines = [json.loads(line) for line in (tmp_path / "features.jsonl").read_text().splitlines()]
    assert [line["text"] for line in lines] == TEXTS
    found = [np.array([token["features"] for token in line["tokens"]]) for line in lines]
    for array, expected in zip(found, wanted, strict=True):
        np.testing.assert_allclose(array, expected, atol=1e-5)
    # The last four of three layers are three, without the embeddings.
    assert FEATURES[name].states(3) == {"embeddings": [0], "second_to_last": [2], "last": [3]}.get(name, [1, 2, 3])


@pytest.mark.parametrize("layer", [0, 3, -1, -3])
def test_extract_features_layer_is_that_hidden_state(layer, encoder, text_file, tokenizer, tmp_path):
    wanted = [hidden(encoder, tokenizer, text)[:, layer] for text in TEXTS]
    for pooling in (None, "mean"):
        output = tmp_path / f"{pooling}.safetensors"
        settings = FeaturesArguments(
            model=str(encoder), text=[str(text_file)], output=str(output), layer=layer, pooling=pooling
        )
        assert extract_features(settings)["size"] == 8
        expected = np.stack([states.mean(0) for states in wanted]) if pooling else np.concatenate(wanted)
        np.testing.assert_allclose(load_file(output)["features"], expected, atol=1e-5)
        with safe_open(output, "np") as file:
            assert file.metadata()["features"] == f"layer {layer % 6}"


@pytest.mark.skipif(not torch.ops.mkldnn._is_mkldnn_bf16_supported(), reason="this CPU has no bfloat16 kernels")
def test_extract_features_bfloat16_is_computed_in_it(encoder, text_file, tmp_path):
    found = []
    for dtype in ("float32", "bfloat16"):
        output = str(tmp_path / f"{dtype}.safetensors")
        extract_features(FeaturesArguments(model=str(encoder), text=[str(text_file)], output=output, dtype=dtype))
        found.append(load_file(output)["features"])
    np.testing.assert_allclose(found[0], found[1], atol=0.1)
    assert np.abs(found[0] - found[1]).max() > 1e-4


@pytest.mark.parametrize("layer", [6, -7])
def test_extract_features_layer_out_of_range_is_an_error(layer, encoder, text_file, tmp_path):
    arguments = FeaturesArguments(
        model=str(encoder), text=[str(text_file)], output=str(tmp_path / "f.jsonl"), layer=layer
    )
    with pytest.raises(ValueError, match=rf"^layer is {layer}; expected -6 to 5: .*encoder.* \(0\) and 5 layers\.$"):
        extract_features(arguments)
    assert not (tmp_path / "f.jsonl").exists()


def test_alignment_with_the_text(encoder, text_file, tmp_path):
    output = tmp_path / "features.jsonl"
    extract_features(FeaturesArguments(model=str(encoder), text=[str(text_file)], output=str(output)))
    first, pair, _ = [json.loads(line) for line in output.read_text().splitlines()]
    for token in first["tokens"][1:-1]:
        assert first["text"][token["start"] : token["end"]] == token["token"].removeprefix("##")
    assert [token["token"] for token in pair["tokens"] if token["sentence"] == 1] == "fish and bread".split()
    assert [token["start"] for token in pair["tokens"] if token["sentence"] == 1] == [0, 5, 9]


def test_a_pair_is_parted_at_the_last_bars_and_cut_as_googles_code_does(encoder, tmp_path):
    (tmp_path / "t.txt").write_text("the cat ||| a dog ||| fish and bread ran\n")
    output = tmp_path / "f.jsonl"
    extract_features(
        FeaturesArguments(model=str(encoder), text=[str(tmp_path / "t.txt")], output=str(output), max_length=12)
    )
    tokens = json.loads(output.read_text())["tokens"]
    assert [token["token"] for token in tokens if token["sentence"]] == ["fish", "and", "bread", "ran"]
    first = [token["token"] for token in tokens if not token["sentence"]]
    # Five of eight pieces are kept.
    assert first == ["[CLS]", "the", "cat", "[UNK]", "[UNK]", "[UNK]", "[SEP]", "[SEP]"]


def test_a_pair_for_a_model_of_one_token_type_is_named(tiny_model, text_file, tmp_path):
    model = tiny_model(tmp_path / "model", type_vocab_size=1)
    output = tmp_path / "f.jsonl"
    arguments = {"model": str(model), "output": str(output)}
    with pytest.raises(
        ValueError, match=r"texts.txt: the text with index 1 is a pair .*/model has 1 \(type_vocab_size"
    ):
        extract_features(FeaturesArguments(text=[str(text_file)], **arguments))
    assert not output.exists()
    text_file.write_text("the cat\n")
    assert extract_features(FeaturesArguments(text=[str(text_file)], **arguments))["texts"] == 1


def test_given_weights(encoder, text_file, tokenizer, tmp_path):
    output = str(tmp_path / "f.safetensors")
    weights = [0.1, 0.2, 0.3, 0.5]
    extract_features(
        FeaturesArguments(
            model=str(encoder), text=[str(text_file)], output=output, features="weighted_last_four", weights=weights
        )
    )
    states = hidden(encoder, tokenizer, TEXTS[0])[:, 2:]
    expected = sum(weight * states[:, n] for n, weight in enumerate(weights))
    np.testing.assert_allclose(load_file(output)["features"][: len(expected)], expected, atol=1e-5)


@pytest.mark.parametrize(
    ("name", "content", "said", "rows"),
    [
        ("t.txt", "a cat\n\n \na dog\n", "t.txt: 2 empty lines are left out", [0, 3]),
        ("t.csv", 'text,id\na cat,1\n,2\n"a\ndog",3\n" ",4\n', "t.csv: 2 rows without text are left out", [0, 2]),
        ("t.jsonl", '{"text": null}\n{"text": "cat"}\n{"text": "a"}\n', "t.jsonl: 1 rows without text", [1, 2]),
    ],
)
@pytest.mark.parametrize("pooling", ["mean", None])
def test_texts_keep_their_rows_if_others_are_empty(encoder, tmp_path, caplog, name, content, said, rows, pooling):
    (tmp_path / name).write_text(content)
    (tmp_path / "more.txt").write_text("\nbread\n")
    found = {}
    for ending in ("jsonl", "safetensors"):
        texts, found[ending] = [str(tmp_path / name), str(tmp_path / "more.txt")], tmp_path / f"f.{ending}"
        arguments = FeaturesArguments(model=str(encoder), text=texts, output=str(found[ending]), pooling=pooling)
        assert extract_features(arguments)["texts"] == 3
    assert said in caplog.text
    rows = [*rows, {"t.txt": 4, "t.csv": 4, "t.jsonl": 3}[name] + 1]
    assert [json.loads(line)["index"] for line in found["jsonl"].read_text().splitlines()] == rows
    assert load_file(found["safetensors"])["rows"].tolist() == rows


def test_lone_surrogates_are_unknown_characters_in_features(encoder, tmp_path):
    (tmp_path / "t.jsonl").write_text('{"text": "the \\ud800 cat\\u2028sat"}\n{"text": "the \\uffff cat sat"}\n')
    output = tmp_path / "f.jsonl"
    extract_features(
        FeaturesArguments(model=str(encoder), text=[str(tmp_path / "t.jsonl")], output=str(output), pooling="mean")
    )
    first, second = map(json.loads, output.read_text().splitlines())
    assert first["features"] == second["features"] and first["text"] == "the \uffff cat\u2028sat"


@pytest.fixture(scope="module")
def short(tmp_path_factory, tiny_model):
    """An encoder that reads at most 16 tokens."""
    folder = tmp_path_factory.mktemp("encoder") / "short"
    return tiny_model(folder, MyBertModel, hidden_size=8, max_position_embeddings=16)


def test_texts_longer_than_the_model_reads_are_cut_and_counted(short, tmp_path):
    (tmp_path / "t.txt").write_text("the cat sat " * 9 + "\na dog\nfish and bread\n")
    for length, cut in ((None, 1), (4, 2)):
        output = str(tmp_path / f"{length}.jsonl")
        settings = {"features": "last", "max_length": length, "pooling": "mean"}
        assert (
            extract_features(
                FeaturesArguments(model=str(short), text=[str(tmp_path / "t.txt")], output=output, **settings)
            )["cut"]
            == cut
        )


def test_a_model_on_the_hub_pools_as_its_own_files_say(encoder, text_file, tmp_path, monkeypatch):
    cached = tmp_path / "hub" / "models--me--encoder"
    folder = shutil.copytree(encoder, cached / "snapshots" / "1a")
    (cached / "refs").mkdir()
    (cached / "refs" / "main").write_text("1a")
    kinds = (("Transformer", ""), ("Pooling", "1_Pooling"), ("Normalize", "2_Normalize"))
    modules = [{"type": f"sentence_transformers.models.{kind}", "path": path} for kind, path in kinds]
    (folder / "1_Pooling").mkdir()
    (folder / "modules.json").write_text(json.dumps(modules))
    (folder / "1_Pooling" / "config.json").write_text(json.dumps({"pooling_mode_cls_token": True}))
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path / "hub"))
    found = []
    for model in (str(folder), "me/encoder"):
        output = tmp_path / f"{len(found)}.safetensors"
        extract_features(FeaturesArguments(model=model, text=[str(text_file)], output=str(output), pooling="own"))
        found.append(load_file(output)["features"])
    np.testing.assert_array_equal(*found)
    np.testing.assert_allclose(np.linalg.norm(found[1], axis=1), 1, atol=1e-6)


@pytest.mark.parametrize("prompt", ["", "the cat "])
def test_a_model_of_its_own_pooling_reads_the_default_prompt_and_is_a_mean_without_settings(encoder, tmp_path, prompt):
    folder = shutil.copytree(encoder, tmp_path / "model")
    if prompt:  # else the folder is of no sentence-transformers
        (folder / "modules.json").write_text('[{"type": "sentence_transformers.models.Transformer", "path": ""}]')
        settings = {"prompts": {"query": prompt, "other": "a "}, "default_prompt_name": "query"}
        (folder / "config_sentence_transformers.json").write_text(json.dumps(settings))
    found = []
    for model, pooling, text in ((folder, "own", "sat on"), (encoder, "mean", f"{prompt}sat on")):
        (tmp_path / "t.txt").write_text(text)
        output = str(tmp_path / f"{pooling}.safetensors")
        files = {"text": [str(tmp_path / "t.txt")], "output": output}
        extract_features(FeaturesArguments(model=str(model), pooling=pooling, **files))
        found.append(load_file(output)["features"])
    np.testing.assert_array_equal(*found)


def test_vectors_of_own_pooling_end_where_the_library_ends_them(encoder, tmp_path):
    from sentence_transformers import SentenceTransformer

    folder = tmp_path / "short"
    SentenceTransformer(str(encoder), device="cpu", truncate_dim=3).save_pretrained(str(folder))
    output = str(tmp_path / "f.safetensors")
    lines = ["the cat sat", "a dog ran under the tree"]
    (tmp_path / "t.txt").write_text("\n".join(lines))
    files = {"text": [str(tmp_path / "t.txt")], "output": output}
    found = extract_features(FeaturesArguments(model=str(folder), pooling="own", **files))
    vectors = load_file(output)["features"]
    assert found["size"] == vectors.shape[1] == 3
    np.testing.assert_allclose(vectors, SentenceTransformer(str(folder), device="cpu").encode(lines), atol=1e-5)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"features": "weighted_all", "weights": [1.0]}, "1 weights; expected 5, one for each layer of weighted_all"),
        ({"max_length": 600}, "--max_length"),
    ],
)
def test_extract_features_wrong_settings_are_errors(settings, message, encoder, text_file, tmp_path, user_error):
    defaults = {"model": str(encoder), "text": [str(text_file)], "output": str(tmp_path / "f.jsonl")}
    with user_error(message):
        extract_features(FeaturesArguments(**defaults | settings))
    assert not list(tmp_path.glob("*f.jsonl*"))


WORDS = {"cat": "B-A", "dog": "B-A", "mats": "B-P", "tree": "B-P"}
SENTENCES = [f"the {noun} was {end}".split() for noun in (*WORDS, "fish") for end in ("happy", "sad", "under")]
TAGGED = [(words, [WORDS.get(word, "O") for word in words]) for words in SENTENCES]


@pytest.fixture
def tagging(short_run, encoder):
    defaults = {"task": "ner", "model": str(encoder), "train_file": TAGGED, "validation_file": TAGGED}
    defaults |= {"approach": "features", "lstm_size": 16, "learning_rate": 1e-2, "num_train_epochs": 100}
    defaults |= {"per_device_train_batch_size": 4, "save_strategy": "no", "eval_strategy": "no"}
    return lambda **settings: short_run(**defaults | settings)


def test_a_dry_run_counts_the_parameters_of_a_tagger_on_features(tagging, tmp_path):
    said = finetune(tagging(dry_run=True, max_steps=1))["model"]["parameters"]
    assert not (tmp_path / "out").exists()
    finetune(tagging(max_steps=1))
    assert said == FeatureTagger.from_pretrained(tmp_path / "out").num_parameters()


def test_a_signal_during_one_kind_of_features_leaves_the_next_ones_out(tagging, tmp_path, monkeypatch):
    class Stop(training_run.StopOnInterrupt):
        def on_step_begin(self, args, state, control, **kwargs):
            os.kill(os.getpid(), signal.SIGINT)

    with monkeypatch.context() as patch:
        patch.setattr(training_run, "StopOnInterrupt", Stop)
        assert finetune(tagging(features="all", max_steps=2)) == {"interrupted": True}
    assert [path.name for path in (tmp_path / "out").iterdir() if path.is_dir()] == [TABLE_7[0]]
    assert not (tmp_path / "out" / "metrics.json").exists()


@pytest.mark.slow
def test_a_tagger_learns_on_frozen_features(tagging, tmp_path, encoder):
    before = (encoder / "model.safetensors").read_bytes()
    metrics = finetune(tagging(features="weighted_last_four"))
    assert metrics["f1"] > 0.9
    tagger = FeatureTagger.from_pretrained(tmp_path / "out")
    assert tagger.weights.abs().max() > 0  # the weights of the sum are trained
    assert tagger.lstm.num_layers == 2
    tags = tag_words(tmp_path / "out", SENTENCES)
    assert sum(list(a) == b for a, (_, b) in zip(tags, TAGGED, strict=True)) >= 0.9 * len(TAGGED)
    assert (encoder / "model.safetensors").read_bytes() == before


def test_words_are_tagged_by_a_model_that_was_fine_tuned_whole(tagging, tmp_path):
    settings = {
        "approach": "finetune",
        "lstm_size": 768,
        "learning_rate": 1e-3,
        "num_train_epochs": 2,
        "output_dir": str(tmp_path / "ner"),
    }
    metrics = finetune(tagging(**settings))
    tags = tag_words(tmp_path / "ner", SENTENCES)
    predicted = (tmp_path / "ner" / "predictions.conll").read_text().split("\n\n")
    assert [[line.split("\t")[2] for line in rows.splitlines()] for rows in predicted] == [list(row) for row in tags]
    assert "f1" in metrics


def test_words_are_not_tagged_by_other_models(encoder):
    with pytest.raises(ValueError, match=r"has no head for this task .*; expected a model that was fine-tuned"):
        tag_words(encoder, SENTENCES)


def test_a_tagger_on_an_encoder_of_short_texts(tagging, tmp_path, short, user_error):
    finetune(tagging(model=str(short), max_steps=1))
    tags = tag_words(tmp_path / "out", [SENTENCES[0] * 10, SENTENCES[1]])
    assert [len(sentence) for sentence in tags] == [10 * len(SENTENCES[0]), len(SENTENCES[1])]
    with user_error("--max_length"):
        tag_words(tmp_path / "out", SENTENCES, max_length=17)
    settings = {"model": str(tmp_path / "out"), "data": TAGGED}
    assert "f1" in evaluate_model(EvaluateArguments(**settings))
    with user_error("--max_length"):
        evaluate_model(EvaluateArguments(task="ner", max_length=128, **settings))


def test_predict_with_a_feature_tagger_loads_its_encoder_once(tagging, tmp_path, short, monkeypatch):
    finetune(tagging(model=str(short), max_steps=1))
    loaded, load = [], features.load_model
    monkeypatch.setattr(features, "load_model", lambda *args: loaded.append(args) or load(*args))
    monkeypatch.setattr(predictor.Predictor, "rows_per_part", 2)
    rows = predict(tmp_path / "out", SENTENCES)
    assert [len(row["label"]) for row in rows] == list(map(len, SENTENCES)) and len(loaded) == 1


def test_a_tagger_reads_its_encoder_from_any_folder(tagging, tmp_path, short, monkeypatch, change_config):
    shutil.copytree(short, tmp_path / "first" / "model")
    monkeypatch.chdir(tmp_path / "first")
    finetune(tagging(model="model", max_steps=1))
    (tmp_path / "second" / "model").mkdir(parents=True)  # another model of that name
    monkeypatch.chdir(tmp_path / "second")
    assert list(map(len, tag_words(tmp_path / "out", SENTENCES))) == list(map(len, SENTENCES))
    (tmp_path / "first" / "model").rename(tmp_path / "elsewhere")
    for read in (tag_words, predict):
        with pytest.raises(OSError, match=r"out reads features of the encoder .*first.model, which cannot be loaded"):
            read(tmp_path / "out", SENTENCES)
    change_config(tmp_path / "out", encoder=str(tmp_path / "elsewhere"))
    assert len(predict(tmp_path / "out", SENTENCES)) == len(SENTENCES)


def test_a_sentence_without_words(tmp_path):
    with pytest.raises(ValueError, match="Sentence 2 has no words; expected its words"):
        tag_words(tmp_path, [["a"], []])
    with pytest.raises(ValueError, match=r"Sentence 1 is the text 'the cat'; expected its words \(mybert.predict"):
        tag_words(tmp_path, ["the cat"])
    assert tag_words(tmp_path, []) == []


@pytest.mark.slow
def test_all_rows_are_those_of_table_7(tagging, tmp_path):
    metrics = finetune(tagging(features="all", num_train_epochs=1))
    assert tuple(name for name in metrics if name != "interrupted") == TABLE_7
    sizes = {name: FeatureTagger.from_pretrained(tmp_path / "out" / name).lstm.input_size for name in TABLE_7}
    assert sizes == dict.fromkeys(TABLE_7, 8) | {"concat_last_four": 32}


def test_finetune_on_features_wrong_settings_are_errors(tagging, user_error):
    with user_error("--features"):
        finetune(tagging(features="best"))
    with pytest.raises(ValueError, match="is only for tagging words"):
        finetune(tagging(task="classification", train_file=[("a", "x"), ("b", "y")], validation_file=None))


def test_run_lstm_with_row_of_padding_computes_its_first_state():
    states, mask = torch.randn(2, 3, 4), torch.tensor([[1, 1, 0], [0, 0, 0]])
    lstm = torch.nn.LSTM(4, 2, batch_first=True, bidirectional=True)
    outputs = run_lstm(lstm, states, mask)
    assert torch.allclose(outputs[0, :2], lstm(states[:1, :2])[0][0], atol=1e-6) and not outputs[0, 2].any()
    assert outputs.shape == (2, 3, 4) and outputs[1, 0].any()
