"""Checkpoints: transformers' BERT folders in, ours out, every form that old files have, tied weights."""

import json
from pathlib import Path

import pytest
import torch
import transformers
from safetensors.torch import load_file, save_file

import mybert

WEIGHTS, CONFIG = "model.safetensors", "config.json"


def rewrite_weights(folder: Path, change) -> None:
    """Rewrite the folder's tensors with those that `change` returns."""
    save_file(change(load_file(folder / WEIGHTS)), folder / WEIGHTS, metadata={"format": "pt"})


def rewrite_config(folder: Path, **changes) -> None:
    """Set fields of the folder's configuration; None removes a field."""
    config = json.loads((folder / CONFIG).read_text()) | changes
    (folder / CONFIG).write_text(json.dumps({name: value for name, value in config.items() if value is not None}))


def assert_same_weights(model, other) -> None:
    ours, theirs = model.state_dict(), other.state_dict()
    assert ours.keys() == theirs.keys()
    assert all(torch.equal(ours[name], theirs[name]) for name in ours)


def old_names(tensors: dict) -> dict:
    """Rename the tensors as in the first BERT releases, with position ids among the weights."""
    tensors = {
        name.replace("LayerNorm.weight", "LayerNorm.gamma").replace("LayerNorm.bias", "LayerNorm.beta"): tensor
        for name, tensor in tensors.items()
    }
    prefix = "bert." if any(name.startswith("bert.") for name in tensors) else ""
    return {**tensors, f"{prefix}embeddings.position_ids": torch.arange(24)[None]}


@pytest.fixture
def bert_folder(head, tmp_path) -> Path:
    """A checkpoint of type `bert` of each head in turn."""
    head.matched_models()[1].save_pretrained(tmp_path)
    return tmp_path


def of_the_first_releases(head, folder) -> None:
    """Write the configuration that BERT's first releases have, among them fields that nobody reads."""
    fields = {
        "architectures": ["BertForMaskedLM"],
        "attention_probs_dropout_prob": 0.1,
        "directionality": "bidi",
        "gradient_checkpointing": False,
        "hidden_act": "gelu",
        "layer_norm_eps": 1e-12,
        "model_type": "bert",
        "pad_token_id": 0,
        "pooler_fc_size": 768,
        "pooler_type": "first_token_transform",
        "position_embedding_type": "absolute",
        "transformers_version": "4.6.0.dev0",
        "use_cache": True,
    }
    (folder / CONFIG).write_text(json.dumps({**head.settings(), **fields}))


@pytest.mark.parametrize(
    "change",
    [
        lambda head, folder: None,
        lambda head, folder: rewrite_weights(folder, old_names),
        lambda head, folder: rewrite_config(folder, model_type=None, architectures=None, transformers_version=None),
        of_the_first_releases,
    ],
    ids=["as saved", "old names", "no model type", "first releases"],
)
def test_a_bert_folder_loads_without_complaint(head, bert_folder, change, agree, no_complaints):
    """Every weight is used, and all outputs are the same."""
    change(head, bert_folder)
    ours, report = head.ours.from_pretrained(bert_folder, output_loading_info=True)
    assert type(ours.config) is mybert.MyBertConfig
    assert not any(report.values())
    theirs = head.matched_models()[1]
    assert_same_weights(ours, theirs)
    agree(ours, theirs, head.batch())


def test_a_configuration_object_of_type_bert(head, bert_folder, no_complaints):
    """As in example scripts: the configuration is loaded first, changed, and passed to the model."""
    changes = {"attn_implementation": "eager", "classifier_dropout": 0.25, "dtype": "bfloat16"}
    config = transformers.AutoConfig.from_pretrained(bert_folder, **changes)
    assert type(config) is transformers.BertConfig
    ours = head.ours.from_pretrained(bert_folder, config=config)
    assert type(ours.config) is mybert.MyBertConfig
    assert (ours.config._attn_implementation, ours.config.classifier_dropout) == ("eager", 0.25)
    assert type(config) is transformers.BertConfig and config.model_type == "bert"  # the caller's object is unchanged
    theirs = head.theirs.from_pretrained(bert_folder, config=config)
    assert ours.dtype == theirs.dtype
    assert_same_weights(ours, theirs)


def test_number_of_labels_in_a_configuration_of_type_bert(heads, tmp_path):
    heads("ForMaskedLM").matched_models()[1].save_pretrained(tmp_path)
    config = transformers.AutoConfig.from_pretrained(tmp_path, num_labels=5, finetuning_task="mnli")
    model = mybert.MyBertForSequenceClassification.from_pretrained(tmp_path, config=config)
    assert model(torch.ones(1, 4, dtype=torch.long)).logits.shape == (1, 5)


def test_a_model_is_not_made_from_a_configuration_of_type_bert(head):
    config = transformers.BertConfig(**head.settings())
    with pytest.raises(ValueError, match=r"^config is a BertConfig; expected a MyBertConfig\. MyBertConfig.from_dict"):
        head.ours(config)
    head.ours(mybert.MyBertConfig.from_dict(config.to_dict()))


@pytest.mark.parametrize("change", [dict, old_names])
def test_trunk_without_prefix_fills_every_head(heads, head, change, tmp_path):
    trunk = heads("Model").matched_models(num_labels=2)[1]  # what question answering needs
    trunk.save_pretrained(tmp_path)
    rewrite_weights(tmp_path, change)
    ours, report = head.ours.from_pretrained(tmp_path, output_loading_info=True)
    trunk_weights = trunk.state_dict()
    ours = ours.base_model
    assert all(torch.equal(tensor, trunk_weights[name]) for name, tensor in ours.state_dict().items())
    assert not any(name.startswith("bert.") for name in report["missing_keys"])
    assert all("pooler" in name for name in report["unexpected_keys"])


@pytest.mark.parametrize("change", [dict, old_names])
def test_trunk_from_every_head(heads, head_with_loss, change, tmp_path):
    theirs = head_with_loss.matched_models()[1]
    theirs.save_pretrained(tmp_path)
    rewrite_weights(tmp_path, change)
    trunk, report = mybert.MyBertModel.from_pretrained(tmp_path, output_loading_info=True)
    their_weights = theirs.bert.state_dict()
    assert all(
        torch.equal(tensor, their_weights[name])
        for name, tensor in trunk.state_dict().items()
        if theirs.bert.pooler is not None or "pooler" not in name
    )
    assert not any(name.startswith("bert.") or "position_ids" in name for name in report["unexpected_keys"])


def test_complaints_that_apply_are_heard(heads, tmp_path, record_complaints):
    heads("Model").model().save_pretrained(tmp_path)
    with record_complaints() as complaints:
        mybert.MyBertForSequenceClassification.from_pretrained(tmp_path)
    assert any("classifier.weight" in complaint for complaint in complaints)


@pytest.mark.parametrize("name", ["ForMaskedLM", "ForPreTraining"])
def test_vocabulary_layer_stored_under_one_name(heads, name, tmp_path, no_complaints):
    theirs = heads(name).matched_models()[1]
    theirs.save_pretrained(tmp_path)
    rewrite_weights(
        tmp_path, lambda tensors: {key: tensor for key, tensor in tensors.items() if "predictions.decoder" not in key}
    )
    assert_same_weights(heads(name).ours.from_pretrained(tmp_path), theirs)


def test_pretraining_checkpoint_complains_about_what_transformers_complains_about(heads, tmp_path):
    heads("ForPreTraining").matched_models()[1].save_pretrained(tmp_path)
    rewrite_weights(tmp_path, old_names)
    for name in ("ForMaskedLM", "ForNextSentencePrediction", "ForSequenceClassification"):
        head = heads(name)
        _, ours = head.ours.from_pretrained(tmp_path, output_loading_info=True)
        _, theirs = head.theirs.from_pretrained(tmp_path, output_loading_info=True)
        theirs["unexpected_keys"] = {key for key in theirs["unexpected_keys"] if "position_ids" not in key}
        assert {key: set(value) for key, value in ours.items()} == {key: set(value) for key, value in theirs.items()}


def test_our_folder_is_transformers_after_its_type_is_changed(head, tmp_path, agree, no_complaints):
    ours = head.matched_models()[0]
    ours.save_pretrained(tmp_path)
    rewrite_config(tmp_path, model_type="bert")
    theirs, report = head.theirs.from_pretrained(tmp_path, output_loading_info=True)
    assert not any(report.values())
    assert_same_weights(ours, theirs)
    agree(ours, theirs, head.batch())


def test_round_trip(head, tmp_path, no_complaints):
    model = head.model(classifier_dropout=0.25, layer_norm_eps=1e-6, sparse_prediction=True)
    model.save_pretrained(tmp_path)
    again = head.ours.from_pretrained(tmp_path)
    assert_same_weights(model, again)
    assert again.config.to_dict() == {**model.config.to_dict(), "_name_or_path": str(tmp_path)}
    files = sorted(path.name for path in tmp_path.iterdir())
    assert files == [CONFIG, WEIGHTS]


def assert_tied(model) -> None:
    predictions = model.cls.predictions
    assert predictions.decoder.weight is model.get_input_embeddings().weight
    assert predictions.decoder.bias is predictions.bias


@pytest.fixture(params=["ForMaskedLM", "ForPreTraining"])
def predicting_head(request, heads):
    """Each head with a masked-LM output layer in turn."""
    return heads(request.param)


def test_tied_after_training(predicting_head):
    model = predicting_head.model().train()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    before = model.get_input_embeddings().weight.detach().clone()
    model(**predicting_head.batch(labels=True)).loss.backward()
    optimizer.step()
    assert_tied(model)
    assert not torch.equal(model.get_input_embeddings().weight, before)


@pytest.mark.parametrize("size", [70, 61, 40])
def test_resized_vocabulary(predicting_head, size, tmp_path):
    model = predicting_head.model()
    assert_tied(model)
    before = model.state_dict()["bert.embeddings.word_embeddings.weight"].clone()
    model.resize_token_embeddings(size)
    assert_tied(model)
    assert model.config.vocab_size == size
    kept = min(size, 61)
    assert torch.equal(model.get_input_embeddings().weight[:kept], before[:kept])
    batch = predicting_head.batch(labels=True)
    batch["input_ids"] = batch["input_ids"] % size
    batch["labels"] = batch["labels"].clamp(max=size - 1)
    outputs = model(**batch)
    assert outputs[1].shape == (4, 11, size) and outputs.loss.isfinite()
    model.save_pretrained(tmp_path)
    again = predicting_head.ours.from_pretrained(tmp_path)
    assert_tied(again)
    assert_same_weights(model, again)


@pytest.mark.parametrize("size", [61, 70])
def test_untied_weights_stay_apart(predicting_head, size, tmp_path):
    """Also after resizing, with their bias."""
    model = predicting_head.model(tie_word_embeddings=False)
    torch.nn.init.normal_(model.get_output_embeddings().bias)
    if size != 61:
        model.resize_token_embeddings(size)
    decoder, embeddings = model.get_output_embeddings(), model.get_input_embeddings()
    assert not torch.equal(decoder.weight, embeddings.weight)
    model.save_pretrained(tmp_path)
    for model_class in (predicting_head.ours, predicting_head.theirs):
        again = model_class.from_pretrained(tmp_path, tie_word_embeddings=False).get_output_embeddings()
        assert torch.equal(again.bias, decoder.bias) and torch.equal(again.weight, decoder.weight)


def test_construction_on_the_meta_device(head):
    with torch.device("meta"):
        model = head.ours(mybert.MyBertConfig(**head.settings()))
    assert {tensor.device.type for tensor in model.state_dict().values()} == {"meta"}
    source = head.model()
    model.load_state_dict(source.state_dict(), assign=True)
    model.tie_weights()
    batch = head.batch()
    assert torch.equal(model.eval()(**batch)[0], source(**batch)[0])


def test_loading_leaves_nothing_on_the_meta_device(head, tmp_path):
    head.model().save_pretrained(tmp_path)
    model = head.ours.from_pretrained(tmp_path, device_map="cpu")
    tensors = [*model.parameters(), *model.buffers()]
    assert {tensor.device.type for tensor in tensors} == {"cpu"}


def test_same_seed_initializes_as_transformers(head):
    torch.manual_seed(11)
    ours = head.ours(mybert.MyBertConfig(**head.settings()))
    torch.manual_seed(11)
    theirs = head.theirs(transformers.BertConfig(**head.settings()))
    assert_same_weights(ours, theirs)


def test_saved_dtype_comes_back(heads, tmp_path):
    heads("ForMaskedLM").model().to(torch.bfloat16).save_pretrained(tmp_path)
    assert mybert.MyBertForMaskedLM.from_pretrained(tmp_path).dtype == torch.bfloat16
