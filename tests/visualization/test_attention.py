import json
import re
import shutil

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from transformers import AutoModel, AutoTokenizer, FNetConfig, FNetModel, RobertaConfig, RobertaModel

from mybert import MyBertModel
from mybert.cli import main
from mybert.files.errors import SettingError
from mybert.files.settings import build
from mybert.visualization import AttentionMap, attention_map, attention_rollout
from mybert.visualization.commands import draw_attention, draw_run
from mybert.visualization.settings import AttentionSettings, CurvesSettings

imread = pytest.importorskip("matplotlib.image", reason="PNG pictures need matplotlib").imread

HOSTILE = [
    "</script><script>window.hacked = 1</script>",
    '<img src="x" onerror="window.hacked = 1">',
    "<!--",
    "&lt;&amp;&",
    "\"'`\\",
    "{{data}}{{title}}\\u003c\\1",
    "\u2028\u2029\u202e\x00",
    "\ud83d",
    "한국어",
    "$x^2_",
]


def example_map(tokens=6, layers=2, heads=3, segments=None, name="example"):
    weights = np.random.default_rng(0).dirichlet(np.full(tokens, 0.3), size=(layers, heads, tokens))
    return AttentionMap([f"token{i}" for i in range(tokens)], segments or [0] * tokens, weights, name)


@pytest.mark.parametrize("name", ["a-very-long-name-of-a-model-without-any-space" * 2, "αβγδ " * 20])
@pytest.mark.parametrize("choice", [{"layer": 0, "head": 0}, {"layer": 1, "view": "rollout"}, {"view": "rollout"}])
def test_figure_title_is_never_cut(name, choice):
    figure = example_map(name=name).figure(**choice)
    figure.canvas.draw()
    (heading,) = figure.texts
    box = heading.get_window_extent()
    assert box.x1 <= figure.bbox.x1 and box.y1 <= figure.bbox.y1
    assert name.replace(" ", "") in re.sub(r"\s", "", heading.get_text())


@pytest.mark.parametrize("name", ["Model", "ForPreTraining", "ForSequenceClassification"])
@pytest.mark.parametrize("is_ours", [True, False])
@pytest.mark.parametrize("pair", [None, "it was happy."])
def test_weights_are_those_of_the_model(name, is_ours, pair, heads, tokenizer):
    my_bert, bert = heads(name).matched_models()
    model = my_bert if is_ours else bert
    attention = attention_map(model, tokenizer, "the cat sat on a mat.", pair)
    inputs = tokenizer("the cat sat on a mat.", pair, return_tensors="pt")
    model.set_attn_implementation("eager")
    expected = torch.cat(model(**inputs, output_attentions=True).attentions).detach().numpy()
    np.testing.assert_allclose(attention.weights, expected, atol=1e-5)
    np.testing.assert_allclose(attention.weights.sum(-1), 1, atol=1e-5)
    assert attention.weights.std() > 0.05  # not the same everywhere
    assert attention.segments == inputs["token_type_ids"][0].tolist()
    words = ["[CLS]", "the", "cat", "sat", "on", "a", "mat", ".", "[SEP]"]
    assert attention.tokens == words + (["it", "was", "happy", ".", "[SEP]"] if pair else [])


def test_model_is_left_as_it_was(heads, tokenizer):
    model = heads("Model").model(dropout=0.5)
    plain = attention_map(model, tokenizer, "the cat sat").weights
    model.train()
    model.embeddings.eval()
    before = [module.training for module in model.modules()]
    assert model.config._attn_implementation == "sdpa"
    np.testing.assert_array_equal(attention_map(model, tokenizer, "the cat sat").weights, plain)
    assert [module.training for module in model.modules()] == before
    assert model.config._attn_implementation == "sdpa"

    model.forward = lambda **_: 1 / 0
    with pytest.raises(ZeroDivisionError):
        attention_map(model, tokenizer, "the cat sat")
    assert [module.training for module in model.modules()] == before
    assert model.config._attn_implementation == "sdpa"


def test_a_tokenizer_that_pads_does_not_pad_here(heads, tokenizer):
    padding = type(tokenizer)(vocab=tokenizer.get_vocab())
    padding("the cat", padding="max_length", max_length=12)  # leaves padding switched on in the backend
    attention = attention_map(heads("Model").model(), padding, "the cat")
    assert attention.tokens == ["[CLS]", "the", "cat", "[SEP]"] and attention.weights.shape == (2, 4, 4, 4)


def test_a_decoder_looks_back_only(heads, tokenizer):
    weights = attention_map(heads("Model").model(is_decoder=True), tokenizer, "the cat sat on a mat").weights
    assert not np.triu(weights, 1).any() and (np.tril(weights).sum(-1) > 0.99999).all()


def test_prepacked_weights_give_the_same_map(heads, tokenizer):
    model = heads("Model").model()
    plain = attention_map(model, tokenizer, "the cat sat on a mat").weights
    model.prepack_weights()
    np.testing.assert_allclose(attention_map(model, tokenizer, "the cat sat on a mat").weights, plain, atol=1e-4)


def test_name_is_that_of_the_folder(tmp_path, heads, tokenizer):
    model = heads("Model").model()
    assert attention_map(model, tokenizer, "the cat").name == ""
    model.save_pretrained(tmp_path / "my-bert")
    loaded = MyBertModel.from_pretrained(tmp_path / "my-bert")
    assert attention_map(loaded, tokenizer, "the cat").name == "my-bert"
    loaded.name_or_path = "someone/bert-base"
    assert attention_map(loaded, tokenizer, "the cat").name == "someone/bert-base"


@pytest.mark.parametrize(
    ("texts", "message"),
    [
        (("the cat " * 12,), "The text has 26 tokens with the special ones; the model takes 24 at most."),
        (("",), "text is empty"),
        (("the cat", " \n"), "text_pair is empty"),
    ],
)
def test_texts_that_cannot_be_shown(texts, message, heads, tokenizer):
    with pytest.raises(ValueError, match=message):
        attention_map(heads("Model").model(), tokenizer, *texts)


def test_attention_map_limit_does_not_count_positions_before_the_first(tokenizer):
    size = {"hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 16}
    config = RobertaConfig(**size, vocab_size=len(tokenizer), max_position_embeddings=20, pad_token_id=1)
    model = RobertaModel(config)
    assert len(attention_map(model, tokenizer, "the " * 16).tokens) == 18
    with pytest.raises(ValueError, match="The text has 19 tokens with the special ones; the model takes 18 at most"):
        attention_map(model, tokenizer, "the " * 17)


def test_attention_map_of_a_model_without_attention_is_rejected(tokenizer):
    config = FNetConfig(hidden_size=16, num_hidden_layers=1, intermediate_size=16, vocab_size=len(tokenizer))
    with pytest.raises(ValueError, match="FNetModel gives no attention weights, not even with eager attention"):
        attention_map(FNetModel(config), tokenizer, "the cat")


def test_attention_map_weights_that_are_not_finite_are_rejected(heads, tokenizer):
    model = heads("Model").model()
    model.encoder.layer[1].attention.self.query.weight.data.fill_(float("nan"))
    with pytest.raises(ValueError, match="attention weights are not finite numbers"):
        attention_map(model, tokenizer, "the cat")


def test_rollout_by_hand():
    first = [
        [[1, 0], [1, 0]],
        [[0, 1], [1, 0]],
    ]  # mean [[1/2, 1/2], [1, 0]], with the residual [[3/4, 1/4], [1/2, 1/2]]
    second = [[[0, 1], [1, 0]], [[0, 1], [0, 1]]]  # mean [[0, 1], [1/2, 1/2]], [[1/2, 1/2], [1/4, 3/4]]
    rollout = attention_rollout(np.array([first, second], dtype=np.float32))
    np.testing.assert_array_equal(rollout[0], [[0.75, 0.25], [0.5, 0.5]])
    np.testing.assert_array_equal(rollout[1], [[0.625, 0.375], [0.5625, 0.4375]])


@settings(max_examples=30, deadline=None)
@given(seed=st.integers(0, 2**32 - 1), layers=st.integers(1, 5), heads=st.integers(1, 4), tokens=st.integers(1, 9))
def test_rollout_keeps_all_that_comes_in(seed, layers, heads, tokens):
    weights = np.random.default_rng(seed).dirichlet(np.ones(tokens), size=(layers, heads, tokens))
    rollout = attention_rollout(weights)
    assert rollout.shape == (layers, tokens, tokens)
    assert (rollout >= 0).all() and np.allclose(rollout.sum(-1), 1)
    looking_at_itself = np.broadcast_to(np.eye(tokens), weights.shape)
    assert (attention_rollout(looking_at_itself) == np.eye(tokens)).all()


@pytest.mark.parametrize(
    ("choice", "message"),
    [
        ({"layer": 2}, "the model's 2 layers are counted from 0 to 1"),
        ({"layer": -1}, "layer is -1; the model's 2 layers are counted from 0 to 1"),
        ({"layer": 1.0}, "layer is 1.0; the model's 2 layers are counted from 0 to 1"),
        ({"head": "1"}, "head is 1; the 3 heads"),
        ({"head": 3}, "the 3 heads of a layer are counted from 0 to 2"),
        ({"head": -1}, "head is -1; the 3 heads of a layer are counted from 0 to 2"),
        ({"head": 1, "view": "rollout"}, "a rollout is the mean over all heads"),
        ({"view": "gradient"}, "expected attention or rollout"),
    ],
)
def test_a_choice_that_does_not_exist(choice, message, tmp_path):
    with pytest.raises(SettingError, match=message) as error:
        example_map().save(tmp_path / "picture.png", **choice)
    assert (error.value.option, error.value.value) == next(iter(choice.items()))
    assert not list(tmp_path.iterdir())


def test_files_that_cannot_be_written(tmp_path):
    for name in ("picture.pdf", "picture", "picture.html"):
        with pytest.raises(ValueError, match=rf"{name}' must end in \.png"):
            example_map().save(tmp_path / name)
    with pytest.raises(FileNotFoundError, match=r"absent: this folder for picture\.png does not exist"):
        example_map().save(tmp_path / "absent" / "picture.png")


@pytest.mark.parametrize(
    ("choice", "maps"),
    [
        ({}, 6),
        ({"layer": 1}, 3),
        ({"head": 2}, 2),
        ({"layer": 1, "head": 2}, 1),
        ({"view": "rollout"}, 2),
        ({"view": "rollout", "layer": 1}, 1),
    ],
)
def test_picture_shows_the_weights(choice, maps):
    attention = example_map(segments=[0, 0, 0, 1, 1, 1])
    figure = attention.figure(**choice)
    drawn = [np.asarray(ax.images[0].get_array()) for ax in figure.axes if ax.images]
    source = attention.rollout if choice.get("view") == "rollout" else attention.weights
    source = source[choice["layer"]][None] if "layer" in choice else source
    source = source[:, choice["head"]] if "head" in choice else source
    np.testing.assert_array_equal(drawn, source.reshape(maps, 6, 6))
    names = [ax.get_title(loc="left") for ax in figure.axes if ax.images]
    assert len(set(names)) == maps
    if choice == {}:
        assert names[0] == "layer 0, head 0" and names[-1] == "layer 1, head 2"
    if choice == {"layer": 1, "head": 2}:
        assert figure.get_suptitle() == "Attention of example, layer 1, head 2"
        labels = [label.get_text() for label in figure.axes[0].get_yticklabels()]
        assert labels == attention.tokens
        assert figure.axes[0].get_yticklabels()[0].get_color() != figure.axes[0].get_yticklabels()[5].get_color()


@pytest.mark.parametrize(("tokens", "step"), [(6, 1), (40, 1), (100, 3)])
def test_figure_of_all_heads_names_tokens_at_the_left_and_at_the_bottom(tokens, step):
    attention = example_map(tokens=tokens)
    figure = attention.figure()
    names = attention.tokens[::step]
    for number, ax in enumerate(figure.axes):  # 2 layers, 3 heads
        for axis, is_named in ((ax.xaxis, number >= 3), (ax.yaxis, number % 3 == 0)):
            labels = axis.get_ticklabels()
            assert [label.get_text() for label in labels] == (names if is_named else [])
            assert all(label.get_fontsize() >= 5 for label in labels)
    rollouts = attention.figure(view="rollout").axes
    assert [bool(ax.get_yticklabels()) for ax in rollouts] == [True, False]


@pytest.mark.parametrize("tokens", [6, 100])
def test_picture_file(tmp_path, tokens):
    attention = example_map(tokens=tokens)
    path = attention.save(tmp_path / "one.png", layer=0, head=1)
    image = imread(path)
    assert len(np.unique(image.reshape(-1, image.shape[-1]), axis=0)) > 20
    assert attention.save(tmp_path / "again.png", layer=0, head=1).read_bytes() == path.read_bytes()
    assert sorted(file.name for file in tmp_path.iterdir()) == ["again.png", "one.png"]


def test_picture_takes_hostile_tokens(tmp_path):
    tokens = [re.sub(r"[\x00\u2028\u2029\ud83d가-힣]", "", token) for token in HOSTILE]  # some have no font everywhere
    weights = np.full((1, 1, len(tokens), len(tokens)), 1 / len(tokens))
    attention = AttentionMap(tokens, [0] * len(tokens), weights, "$a_{")
    assert attention.save(tmp_path / "picture.png").stat().st_size > 1000


@pytest.fixture(scope="module")
def model_dir(tmp_path_factory, tiny_model):
    return tiny_model(tmp_path_factory.mktemp("models") / "tiny", num_hidden_layers=3, max_position_embeddings=24)


def test_command_draws_the_head_of_a_pair(tmp_path, model_dir):
    path = tmp_path / "head.png"
    path.write_text("mine")
    arguments = ["attention", str(model_dir), "the cat sat", "it was happy", "--output", str(path), "--overwrite"]
    assert not main([*arguments, "--attention_layer", "2", "--attention_head", "1"])
    model, tokenizer = AutoModel.from_pretrained(model_dir), AutoTokenizer.from_pretrained(model_dir)
    attention = attention_map(model, tokenizer, "the cat sat", "it was happy")
    assert path.read_bytes() == attention.save(tmp_path / "again.png", layer=2, head=1).read_bytes()


def test_command_writes_each_view(tmp_path, model_dir):
    pictures = set()
    for name in ("attention.png", "rollout.png", "input.png"):
        output = tmp_path / name
        arguments = build(
            AttentionSettings,
            {"model": str(model_dir), "sentences": ["the cat sat"], "output": str(output), "view": output.stem},
        )
        assert draw_attention(arguments) == output
        pictures.add(output.read_bytes())
    assert len(pictures) == 3


@pytest.mark.parametrize(
    ("change", "error", "message"),
    [
        ({"output": "map.html"}, ValueError, "must end in .png"),
        ({"attention_layer": 9}, ValueError, "^attention_layer is 9"),
        ({"attention_head": -1}, ValueError, "^attention_head is -1"),
        ({"view": "input", "attention_layer": 1}, ValueError, "no layer and no head to choose"),
        ({"sentences": ["the " * 30]}, ValueError, "32 tokens"),
        ({"sentences": ["a", "b", "c"]}, ValueError, "There are 3 texts; expected one, or the two of a pair"),
        ({"output": "a\nb.png"}, ValueError, "has a line break"),
        ({"model": "absent-folder"}, OSError, "model is 'absent-folder'; there is no such folder"),
    ],
)
def test_command_names_the_mistake(change, error, message, tmp_path, model_dir, monkeypatch):
    monkeypatch.chdir(tmp_path)
    arguments = build(AttentionSettings, {"model": str(model_dir), "sentences": ["the cat"], **change})
    with pytest.raises(error, match=message):
        draw_attention(arguments)
    assert not list(tmp_path.iterdir())


def test_command_names_what_a_folder_lacks(tmp_path, model_dir):
    folder = shutil.copytree(model_dir, tmp_path / "folder")
    for file in folder.glob("*tokenizer*"):
        file.unlink()
    (folder / "vocab.txt").unlink(missing_ok=True)
    with pytest.raises(OSError, match=r"^[^:]*folder holds neither tokenizer\.json nor vocab\.txt; expected"):
        draw_attention(AttentionSettings(model=str(folder), sentences=["the cat"], output=str(tmp_path / "map.png")))


def test_curves_command(tmp_path):
    state = {"log_history": [{"step": 10, "loss": 2.0}, {"step": 20, "loss": 1.0}]}
    (tmp_path / "trainer_state.json").write_text(json.dumps(state))
    assert draw_run(build(CurvesSettings, {"run_dirs": str(tmp_path)})) == tmp_path / "training_curves.png"
    assert not main(["curves", str(tmp_path), "--output", str(tmp_path / "other.png")])
    assert (tmp_path / "other.png").read_bytes() == (tmp_path / "training_curves.png").read_bytes()
    (tmp_path / "other.png").write_text("mine")
    assert not main(["curves", str(tmp_path), "--output", str(tmp_path / "other.png"), "--overwrite"])
    (tmp_path / "training_curves.png").write_text("an earlier one")
    assert not main(["curves", str(tmp_path)])  # the run's own picture is redrawn
    assert (tmp_path / "training_curves.png").read_bytes() == (tmp_path / "other.png").read_bytes()


def test_curves_command_takes_the_file_of_a_run(tmp_path):
    state = {"log_history": [{"step": 10, "loss": 2.0}, {"step": 20, "loss": 1.0}]}
    for name in ("first", "second"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "trainer_state.json").write_text(json.dumps(state))
    file = str(tmp_path / "first" / "trainer_state.json")
    assert not main(["curves", file])
    assert not main(["curves", file, str(tmp_path / "second"), "--output", str(tmp_path / "both.png")])
    assert (tmp_path / "first" / "training_curves.png").is_file() and (tmp_path / "both.png").is_file()
