"""The folder of `mybert convert to-bert`, for servers that know only `bert`, loaded without mybert."""

import json

import pytest
import torch
from safetensors.torch import load_file, save_file

import mybert
from mybert.conversion import to_transformers_bert

CLASSES = mybert.modeling_mybert.auto_map()
HEADS = {source.split(".")[-1]: auto for auto, source in CLASSES.items() if auto != "AutoConfig"}

# Loads each folder (head -> [Auto class, folder]) without mybert and saves what the model gives for the inputs.
LOAD = """
import json, sys
sys.modules["mybert"] = None
import torch, transformers
from safetensors.torch import load_file, save_file
inputs, outputs = load_file(sys.argv[2]), {}
for head, (auto_class, folder) in json.loads(sys.argv[1]).items():
    model, report = getattr(transformers, auto_class).from_pretrained(folder, output_loading_info=True)
    assert type(model).__module__ == "transformers.models.bert.modeling_bert", type(model)
    assert not any(report[key] for key in ("missing_keys", "unexpected_keys", "mismatched_keys")), report
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    assert type(tokenizer).__module__.startswith("transformers."), type(tokenizer)
    batch = {name.split(".")[1]: tensor for name, tensor in inputs.items() if name.startswith(head + ".")}
    with torch.no_grad():
        found = model(**batch)
    outputs |= {f"{head}.{name}": value.contiguous() for name, value in found.items()}
    if head == "MyBertModel":
        outputs["ids"] = tokenizer("the cat sat on a mat .", "dog ran", return_tensors="pt")["input_ids"]
save_file(outputs, sys.argv[3])
"""


@pytest.mark.slow
def test_every_head_is_a_plain_bert(model_dir, load, make_batch, outputs_of, tokenizer, run_python, tmp_path):
    folders, inputs = {}, {}
    for head, auto_class in HEADS.items():
        to_transformers_bert(model_dir(head), tmp_path / head)
        config = json.loads((tmp_path / head / "config.json").read_text())
        assert config["model_type"] == "bert" and config["architectures"] == [head.replace("MyBert", "Bert")]
        assert "auto_map" not in config and not list((tmp_path / head).glob("*.py"))
        folders[head] = (auto_class, str(tmp_path / head))
        inputs |= {f"{head}.{name}": tensor.contiguous() for name, tensor in make_batch(head).items()}

    save_file(inputs, tmp_path / "inputs.safetensors")
    run_python("-c", LOAD, json.dumps(folders), "inputs.safetensors", "outputs.safetensors", cwd=tmp_path)
    served = load_file(tmp_path / "outputs.safetensors")
    assert (
        served.pop("ids").tolist()
        == tokenizer("the cat sat on a mat .", "dog ran", return_tensors="pt")["input_ids"].tolist()
    )
    mask = make_batch("MyBertModel")["attention_mask"]
    for head in HEADS:
        expected = outputs_of(head, load(head))
        for name in expected.keys() - {"mlm_loss", "nsp_loss"}:  # BERT gives their sum alone
            tensor = expected[name]
            other = served[f"{head}.{name}"]
            if tensor.dim() > 1 and tensor.shape[:2] == mask.shape:  # at padding there is nothing to compare
                tensor, other = tensor[mask.bool()], other[mask.bool()]
            torch.testing.assert_close(tensor, other, atol=1e-5, rtol=1e-5, msg=f"{head}: {name}")
