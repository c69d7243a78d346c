"""LoRA with PEFT on every head: train, save, load, merge."""

import pytest
import torch
import transformers
from packaging import version
from transformers.integrations.peft import MIN_PEFT_VERSION

import mybert

peft = pytest.importorskip("peft")

# Head -> PEFT's name of the task, if it has one, and the new layer of a fine-tuned head, all of which is trained.
HEADS = {
    "MyBertModel": ("FEATURE_EXTRACTION", None),
    "MyBertForPreTraining": (None, None),
    "MyBertForMaskedLM": (None, None),
    "MyBertForNextSentencePrediction": (None, "seq_relationship"),
    "MyBertForSequenceClassification": ("SEQ_CLS", "classifier"),
    "MyBertForMultipleChoice": (None, "classifier"),
    "MyBertForTokenClassification": ("TOKEN_CLS", "classifier"),
    "MyBertForQuestionAnswering": ("QUESTION_ANS", "qa_outputs"),
}


def assert_close(outputs, expected):
    assert outputs.keys() == expected.keys()
    for name, tensor in expected.items():
        torch.testing.assert_close(
            outputs[name], tensor, atol=1e-5, rtol=1e-5, msg=lambda text, name=name: name + text
        )


def train(model, batch):
    """Two steps; the loss before and after."""
    optimizer = torch.optim.AdamW([p for p in model.parameters() if p.requires_grad], lr=5e-3)
    losses = []
    for _ in range(3):
        outputs = model.train()(**batch)
        loss = outputs.loss if "loss" in outputs else outputs.last_hidden_state[..., 0].square().mean()
        losses.append(loss.item())
        if len(losses) < 3:
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
    model.eval()
    return losses[0], losses[-1]


@pytest.mark.parametrize("targets", [["query", "value"], "all-linear"], ids=["query and value", "all-linear"])
@pytest.mark.parametrize("head", HEADS)
def test_lora_is_trained_saved_loaded_and_merged(head, targets, load, make_batch, outputs_of, tmp_path):
    base = load(head)
    untrained = outputs_of(head, base)
    names = base.state_dict().keys()
    task, new_layer = HEADS[head]
    config = peft.LoraConfig(
        task_type=task,
        target_modules=targets,
        modules_to_save=[new_layer] if new_layer and not task else None,  # of a task it knows PEFT finds it
        exclude_modules=[new_layer] if new_layer else None,  # "all-linear" would take it as well
        r=4,
    )
    model = peft.get_peft_model(base, config)
    assert_close(outputs_of(head, model.eval()), untrained)  # LoRA starts as nothing
    trainable = {name for name, parameter in model.named_parameters() if parameter.requires_grad}
    new = {name for name in trainable if f".{new_layer}.modules_to_save." in name}
    assert len(new) == (2 if new_layer else 0) and all(".lora_" in name for name in trainable - new)

    before, after = train(model, make_batch(head))
    assert after < before
    trained = outputs_of(head, model)
    assert any((trained[name] - untrained[name]).abs().max() > 1e-3 for name in untrained)

    model.save_pretrained(tmp_path / "adapter")
    assert [path.name for path in (tmp_path / "adapter").glob("*.safetensors")] == ["adapter_model.safetensors"]
    loaded = peft.PeftModel.from_pretrained(load(head), tmp_path / "adapter").eval()
    assert_close(outputs_of(head, loaded), trained)

    loaded.merge_and_unload().save_pretrained(tmp_path / "merged")
    merged = getattr(mybert, head).from_pretrained(tmp_path / "merged").eval()
    assert merged.state_dict().keys() == names
    assert_close(outputs_of(head, merged), trained)


ADAPTERS = [  # PEFT's class, and its settings
    ("LoraConfig", {}),
    ("LoraConfig", {"use_dora": True, "modules_to_save": ["pooler"]}),
    ("LoraConfig", {"target_modules": "all-linear"}),
    ("LoHaConfig", {}),
    ("LoKrConfig", {}),
    ("AdaLoraConfig", {"total_step": 10}),
    ("IA3Config", {"target_modules": ["key", "output.dense"], "feedforward_modules": ["output.dense"]}),
    ("OFTConfig", {"oft_block_size": 4}),
    ("HRAConfig", {}),
    ("VeraConfig", {}),
    ("FourierFTConfig", {"n_frequency": 10}),
    ("LNTuningConfig", {"target_modules": ["LayerNorm"]}),
    ("RandLoraConfig", {}),
    ("TrainableTokensConfig", {"target_modules": ["word_embeddings"], "token_indices": [1, 2]}),
]


@pytest.mark.filterwarnings("ignore:Unsupported layer type", "ignore:`is_gradient_checkpointing` is deprecated")
@pytest.mark.parametrize(("kind", "settings"), ADAPTERS, ids=lambda part: part if isinstance(part, str) else "")
def test_a_batch_under_an_adapter_stays_packed(kind, settings, load, make_batch, watch):
    base = load("MyBertForSequenceClassification")
    config = getattr(peft, kind)(task_type="SEQ_CLS", **{"target_modules": ["query", "value"], **settings})
    model, batch = peft.get_peft_model(base, config).eval(), make_batch("MyBertForSequenceClassification")
    shapes = watch(base.bert.encoder.layer[0])
    model(**batch)
    assert shapes == [(1, int(batch["attention_mask"].sum()), 32)]


def test_an_adapter_is_loaded_by_the_model_itself(load, make_batch, outputs_of, tmp_path):
    """transformers' own way: `model.load_adapter`, `disable_adapters`."""
    head = "MyBertForSequenceClassification"
    model = peft.get_peft_model(load(head), peft.LoraConfig(target_modules=["query", "value"]))
    train(model, make_batch(head))
    trained = outputs_of(head, model)
    model.save_pretrained(tmp_path)
    plain = load(head)
    untrained = outputs_of(head, plain)
    plain.load_adapter(str(tmp_path))
    assert_close(outputs_of(head, plain), trained)
    if version.parse(peft.__version__) < version.parse(MIN_PEFT_VERSION):
        pytest.skip(f"transformers {transformers.__version__} disables adapters of PEFT {MIN_PEFT_VERSION} and later")
    plain.disable_adapters()
    assert_close(outputs_of(head, plain), untrained)


def test_prepacked_weights_do_not_hide_an_adapter_and_are_packed_anew_after_merging(load, make_batch, outputs_of):
    head = "MyBertForSequenceClassification"
    base = load(head).prepack_weights()
    untrained = outputs_of(head, base)
    model = peft.get_peft_model(base, peft.LoraConfig(task_type="SEQ_CLS", target_modules=["query", "value"]))
    train(model, make_batch(head))
    trained = outputs_of(head, model)
    assert (trained["logits"] - untrained["logits"]).abs().max() > 1e-3
    assert_close(outputs_of(head, model.merge_and_unload().prepack_weights()), trained)


@pytest.mark.parametrize("targets", [["query", "value"], ["word_embeddings"]], ids=["layers", "word embeddings"])
def test_each_row_of_a_padded_batch_has_its_own_adapter(load, make_batch, targets):
    """PEFT's mixed batches: its hooks on the modules inside choose the adapter by row."""
    head = "MyBertForTokenClassification"
    torch.manual_seed(0)
    model = peft.get_peft_model(
        load(head), peft.LoraConfig(target_modules=targets, init_lora_weights=False), adapter_name="first"
    )
    model.add_adapter("second", peft.LoraConfig(target_modules=targets, init_lora_weights=False))
    model.eval()
    batch = {name: value for name, value in make_batch(head).items() if name != "labels"}
    tokens = batch["attention_mask"].bool()
    assert not tokens.all()
    names = [("first", "second", "__base__")[row % 3] for row in range(len(tokens))]
    with torch.no_grad():
        mixed = model(**batch, adapter_names=names).logits
        for row, name in enumerate(names):
            one = {key: value[row : row + 1] for key, value in batch.items()}
            if name == "__base__":
                with model.disable_adapter():
                    alone = model(**one).logits
            else:
                model.set_adapter(name)
                alone = model(**one).logits
            torch.testing.assert_close(mixed[row][tokens[row]], alone[0][tokens[row]], rtol=0, atol=1e-5)
    assert (mixed[0] - mixed[1]).abs().max() > 1e-3


def test_virtual_tokens(load, make_batch):
    """Prompts are trained in front of the words; prefixes are past keys and values, which an encoder lacks."""
    head = "MyBertForSequenceClassification"
    prompt = peft.PromptTuningConfig(task_type="SEQ_CLS", num_virtual_tokens=3)
    before, after = train(peft.get_peft_model(load(head), prompt), make_batch(head))
    assert after < before
    prefix = peft.PrefixTuningConfig(task_type="SEQ_CLS", num_virtual_tokens=3)
    with pytest.raises(ValueError, match="does not support past key values"):
        peft.get_peft_model(load(head), prefix)(**make_batch(head))
