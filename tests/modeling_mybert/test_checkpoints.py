"""Checkpoints: transformers' BERT folders in, MyBERT folders out, every form that old files have, tied weights."""

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
    my_bert, bert = model.state_dict(), other.state_dict()
    assert my_bert.keys() == bert.keys()
    assert all(torch.equal(my_bert[name], bert[name]) for name in my_bert)


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
    my_bert, report = head.my_bert_class.from_pretrained(bert_folder, output_loading_info=True)
    assert type(my_bert.config) is mybert.MyBertConfig
    assert not any(report.values())
    bert = head.matched_models()[1]
    assert_same_weights(my_bert, bert)
    agree(my_bert, bert, head.batch())


def test_a_configuration_object_of_type_bert(head, bert_folder, no_complaints):
    """As in example scripts: the configuration is loaded first, changed, and passed to the model."""
    changes = {"attn_implementation": "eager", "classifier_dropout": 0.25, "dtype": "bfloat16"}
    config = transformers.AutoConfig.from_pretrained(bert_folder, **changes)
    assert type(config) is transformers.BertConfig
    my_bert = head.my_bert_class.from_pretrained(bert_folder, config=config)
    assert type(my_bert.config) is mybert.MyBertConfig
    assert (my_bert.config._attn_implementation, my_bert.config.classifier_dropout) == ("eager", 0.25)
    assert type(config) is transformers.BertConfig and config.model_type == "bert"  # the caller's object is unchanged
    bert = head.bert_class.from_pretrained(bert_folder, config=config)
    assert my_bert.dtype == bert.dtype
    assert_same_weights(my_bert, bert)


def test_number_of_labels_in_a_configuration_of_type_bert(heads, tmp_path):
    heads("ForMaskedLM").matched_models()[1].save_pretrained(tmp_path)
    config = transformers.AutoConfig.from_pretrained(tmp_path, num_labels=5, finetuning_task="mnli")
    model = mybert.MyBertForSequenceClassification.from_pretrained(tmp_path, config=config)
    assert model(torch.ones(1, 4, dtype=torch.long)).logits.shape == (1, 5)


def test_a_model_is_not_made_from_a_configuration_of_type_bert(head):
    config = transformers.BertConfig(**head.settings())
    with pytest.raises(ValueError, match=r"^config is a BertConfig; expected a MyBertConfig\. MyBertConfig.from_dict"):
        head.my_bert_class(config)
    head.my_bert_class(mybert.MyBertConfig.from_dict(config.to_dict()))


@pytest.mark.parametrize("change", [dict, old_names])
def test_encoder_without_prefix_fills_every_head(heads, head, change, tmp_path):
    encoder = heads("Model").matched_models(num_labels=2)[1]  # what question answering needs
    encoder.save_pretrained(tmp_path)
    rewrite_weights(tmp_path, change)
    my_bert, report = head.my_bert_class.from_pretrained(tmp_path, output_loading_info=True)
    encoder_weights = encoder.state_dict()
    my_bert = my_bert.base_model
    assert all(torch.equal(tensor, encoder_weights[name]) for name, tensor in my_bert.state_dict().items())
    assert not any(name.startswith("bert.") for name in report["missing_keys"])
    assert all("pooler" in name for name in report["unexpected_keys"])


@pytest.mark.parametrize("change", [dict, old_names])
def test_encoder_loads_from_every_head(heads, head_with_loss, change, tmp_path):
    bert = head_with_loss.matched_models()[1]
    bert.save_pretrained(tmp_path)
    rewrite_weights(tmp_path, change)
    encoder, report = mybert.MyBertModel.from_pretrained(tmp_path, output_loading_info=True)
    expected = bert.bert.state_dict()
    assert all(
        torch.equal(tensor, expected[name])
        for name, tensor in encoder.state_dict().items()
        if bert.bert.pooler is not None or "pooler" not in name
    )
    assert not any(name.startswith("bert.") or "position_ids" in name for name in report["unexpected_keys"])


def test_complaints_that_apply_are_heard(heads, tmp_path, record_complaints):
    heads("Model").model().save_pretrained(tmp_path)
    with record_complaints() as complaints:
        mybert.MyBertForSequenceClassification.from_pretrained(tmp_path)
    assert any("classifier.weight" in complaint for complaint in complaints)


@pytest.mark.parametrize("name", ["ForMaskedLM", "ForPreTraining"])
def test_vocabulary_layer_stored_under_one_name(heads, name, tmp_path, no_complaints):
    bert = heads(name).matched_models()[1]
    bert.save_pretrained(tmp_path)
    rewrite_weights(
        tmp_path, lambda tensors: {key: tensor for key, tensor in tensors.items() if "predictions.decoder" not in key}
    )
    assert_same_weights(heads(name).my_bert_class.from_pretrained(tmp_path), bert)


def test_pretraining_checkpoint_complains_about_what_transformers_complains_about(heads, tmp_path):
    heads("ForPreTraining").matched_models()[1].save_pretrained(tmp_path)
    rewrite_weights(tmp_path, old_names)
    for name in ("ForMaskedLM", "ForNextSentencePrediction", "ForSequenceClassification"):
        head = heads(name)
        _, my_bert = head.my_bert_class.from_pretrained(tmp_path, output_loading_info=True)
        _, bert = head.bert_class.from_pretrained(tmp_path, output_loading_info=True)
        bert["unexpected_keys"] = {key for key in bert["unexpected_keys"] if "position_ids" not in key}
        assert {key: set(value) for key, value in my_bert.items()} == {key: set(value) for key, value in bert.items()}


def test_our_folder_is_transformers_after_its_type_is_changed(head, tmp_path, agree, no_complaints):
    my_bert = head.matched_models()[0]
    my_bert.save_pretrained(tmp_path)
    rewrite_config(tmp_path, model_type="bert")
    bert, report = head.bert_class.from_pretrained(tmp_path, output_loading_info=True)
    assert not any(report.values())
    assert_same_weights(my_bert, bert)
    agree(my_bert, bert, head.batch())


def test_save_pretrained_round_trip_is_equal(head, tmp_path, no_complaints):
    model = head.model(classifier_dropout=0.25, layer_norm_eps=1e-6, sparse_prediction=True)
    model.save_pretrained(tmp_path)
    again = head.my_bert_class.from_pretrained(tmp_path)
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
    again = predicting_head.my_bert_class.from_pretrained(tmp_path)
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
    for model_class in (predicting_head.my_bert_class, predicting_head.bert_class):
        again = model_class.from_pretrained(tmp_path, tie_word_embeddings=False).get_output_embeddings()
        assert torch.equal(again.bias, decoder.bias) and torch.equal(again.weight, decoder.weight)


def test_construction_on_the_meta_device(head):
    with torch.device("meta"):
        model = head.my_bert_class(mybert.MyBertConfig(**head.settings()))
    assert {tensor.device.type for tensor in model.state_dict().values()} == {"meta"}
    source = head.model()
    model.load_state_dict(source.state_dict(), assign=True)
    model.tie_weights()
    batch = head.batch()
    assert torch.equal(model.eval()(**batch)[0], source(**batch)[0])


def test_loading_leaves_nothing_on_the_meta_device(head, tmp_path):
    head.model().save_pretrained(tmp_path)
    model = head.my_bert_class.from_pretrained(tmp_path, device_map="cpu")
    tensors = [*model.parameters(), *model.buffers()]
    assert {tensor.device.type for tensor in tensors} == {"cpu"}


def test_same_seed_initializes_as_transformers(head):
    torch.manual_seed(11)
    my_bert = head.my_bert_class(mybert.MyBertConfig(**head.settings()))
    torch.manual_seed(11)
    bert = head.bert_class(transformers.BertConfig(**head.settings()))
    assert_same_weights(my_bert, bert)


def test_saved_dtype_comes_back(heads, tmp_path):
    heads("ForMaskedLM").model().to(torch.bfloat16).save_pretrained(tmp_path)
    assert mybert.MyBertForMaskedLM.from_pretrained(tmp_path).dtype == torch.bfloat16


@pytest.mark.parametrize("fields", [{}, {"auto_map": {"AutoConfig": "configuration.OfAnother"}}])
def test_push_to_hub_leaves_the_configuration_as_it_is(heads, monkeypatch, fields):
    uploaded = []
    monkeypatch.setattr(
        transformers.PreTrainedModel, "push_to_hub", lambda model, *args: uploaded.append(model.config.auto_map)
    )
    model = heads("ForMaskedLM").model(**fields)
    before = dict(vars(model.config))
    model.push_to_hub("owner/name")
    assert uploaded[0]["AutoConfig"] == "configuration_mybert.MyBertConfig"
    assert vars(model.config) == before


def test_push_to_hub_of_a_users_class_uploads_as_transformers(monkeypatch):
    class OwnModel(mybert.MyBertModel):
        pass

    uploaded = []
    monkeypatch.setattr(
        transformers.PreTrainedModel, "push_to_hub", lambda model, *args: uploaded.append((args, model.config))
    )
    config = mybert.MyBertConfig(hidden_size=16, num_hidden_layers=0, num_attention_heads=2, vocab_size=9)
    OwnModel(config).push_to_hub("owner/name")
    assert uploaded == [(("owner/name",), config)] and getattr(config, "auto_map", None) is None
