"""Adapters of PEFT in `mybert finetune`."""

import json
import sys
from functools import partial

import pytest
import torch
from safetensors.torch import load_file

from mybert import MyBertForSequenceClassification
from mybert.cli import main
from mybert.conversion import to_transformers_bert
from mybert.finetuning import finetune, predict

peft = pytest.importorskip("peft")

ROWS = [(f"the {noun} sat {n}", "animal" if noun in ("cat", "dog") else "thing") for n in range(6) for noun in
        ("cat", "dog", "mat", "tree")]  # fmt: skip


@pytest.fixture
def arguments(short_run, tmp_path):
    path = tmp_path / "data.tsv"
    path.write_text("\n".join(["text\tlabel", *("\t".join(row) for row in ROWS)]) + "\n")
    defaults = {"train_file": str(path), "validation_file": str(path), "num_train_epochs": 3}
    return partial(short_run, learning_rate=1e-2, per_device_train_batch_size=8, **defaults)


def config_file(tmp_path, name="adapter.json", **settings):
    (tmp_path / name).write_text(json.dumps(settings))
    return str(tmp_path / name)


def test_lora_ends_as_an_ordinary_model_with_the_adapter_beside(arguments, pretrained, tmp_path, caplog):
    with caplog.at_level("INFO", logger="mybert"):
        metrics = finetune(arguments(lora=True))
    out = tmp_path / "out"
    before, after = load_file(pretrained / "model.safetensors"), load_file(out / "model.safetensors")
    changed = {name for name in after if name not in before or not torch.equal(before[name], after[name])}
    attention = "bert.encoder.layer.0.attention.self."
    head = {"classifier.weight", "classifier.bias", "bert.pooler.dense.weight", "bert.pooler.dense.bias"}
    assert changed == {f"{attention}query.weight", f"{attention}value.weight"} | head
    # rank 8 on two of 32 x 32, the pooler, and two classes
    learned = 2 * 2 * 8 * 32 + 32 * 32 + 32 + 2 * 32 + 2
    assert f"LORA: {learned:,} of " in caplog.text
    config = json.loads((out / "adapter" / "adapter_config.json").read_text())
    assert (config["r"], config["lora_alpha"], sorted(config["target_modules"])) == (8, 16, ["query", "value"])
    base = MyBertForSequenceClassification.from_pretrained(pretrained, num_labels=2)
    merged = peft.PeftModel.from_pretrained(base, out / "adapter").merge_and_unload().state_dict()
    assert all(torch.allclose(merged[name], after[name], atol=1e-6) for name in after)
    found = predict(out, [text for text, _ in ROWS])
    assert sum(row["label"] == label for row, (_, label) in zip(found, ROWS, strict=True)) == round(
        metrics["accuracy"] * len(ROWS)
    )
    to_transformers_bert(out, tmp_path / "bert")
    assert predict(tmp_path / "bert", ["the cat sat"])[0]["label"] == predict(out, ["the cat sat"])[0]["label"]
    assert "rank 8 on query and value" in (out / "README.md").read_text()


@pytest.mark.parametrize(
    "settings",
    [
        {"r": 2, "target_modules": "all-linear", "use_dora": True},
        {"peft_type": "HRA", "r": 2},  # on query and value by default
        {"peft_type": "LOHA", "r": 2, "target_modules": ["dense"], "modules_to_save": ["classifier"]},
        {"peft_type": "IA3", "target_modules": ["key", "value"], "feedforward_modules": []},
        {"peft_type": "OFT", "oft_block_size": 8, "target_modules": ["query"]},
    ],
    ids=lambda settings: settings.get("peft_type", "LORA"),
)
def test_other_configurations_are_merged_to_what_was_measured(arguments, tmp_path, settings):
    file = config_file(tmp_path, **settings)
    metrics = finetune(arguments(peft_config=file, max_steps=2, eval_strategy="no", save_strategy="no"))
    out = tmp_path / "out"
    model = MyBertForSequenceClassification.from_pretrained(out)
    assert not any("lora" in name for name in model.state_dict())
    found = predict(out, [text for text, _ in ROWS])
    right = sum(row["label"] == label for row, (_, label) in zip(found, ROWS, strict=True))
    assert right == round(metrics["accuracy"] * len(ROWS))
    with pytest.raises(ValueError, match=r"on other data; .*adapter\.json changed"):
        (tmp_path / "adapter.json").write_text(json.dumps(settings, indent=2))
        finetune(arguments(peft_config=file, max_steps=2, eval_strategy="no", save_strategy="no"))


def test_yaml_and_seeds(arguments, tmp_path):
    (tmp_path / "lora.yaml").write_text("r: 4\nlora_alpha: 8\ntarget_modules: [query]\n")
    finetune(arguments(peft_config=str(tmp_path / "lora.yaml"), num_seeds=2, num_train_epochs=1))
    assert json.loads((tmp_path / "out" / "adapter" / "adapter_config.json").read_text())["r"] == 4
    assert sorted(path.name for path in (tmp_path / "out" / "seed_42").iterdir()) == ["metrics.json"]


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ({"peft_type": "PROMPT_TUNING"}, r"has the peft_type PROMPT_TUNING; expected one that can be merged: LORA,"),
        ({"rank": 8}, r"adapter.json has 'rank', which LoraConfig does not have"),
        ({"target_modules": ["nowhere"]}, r"adapter does not fit MyBertForSequenceClassification: No modules"),
        (
            {"layers_pattern": "layer"},
            r"adapter\.json: When `layers_pattern` is specified, `layers_to_transform` must",
        ),
        (["r"], r"expected the fields of a PEFT configuration"),
    ],
)
def test_finetune_with_an_unfitting_adapter_raises(arguments, tmp_path, content, message):
    (tmp_path / "adapter.json").write_text(json.dumps(content))
    with pytest.raises(ValueError, match=message):
        finetune(arguments(peft_config=str(tmp_path / "adapter.json")))
    assert not (tmp_path / "out").exists()


def test_without_peft_one_sentence_says_what_to_install(arguments, pretrained, monkeypatch, capsys):
    given = arguments()
    monkeypatch.setitem(sys.modules, "peft", None)
    flags = ["finetune", str(pretrained), "--train_file", given.train_file, "--output_dir", given.output_dir]
    assert main([*flags, "--lora", "--use_cpu"]) == 2
    error = capsys.readouterr().err
    assert "Adapters need the package peft: run pip install '.[peft]' in the clone of mybert (" in error
    assert error.count("\n") == 1


def test_an_adapter_is_not_merged_into_shards(arguments):
    with pytest.raises(ValueError, match="lora is set with fsdp"):
        arguments(lora=True, fsdp=True)
