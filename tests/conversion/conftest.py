"""Tiny models, Google's checkpoints changed or converted, and their vocabularies."""

import shutil
from pathlib import Path

import pytest
import torch
import transformers
from safetensors.torch import load_file, save_file

import mybert
from mybert.conversion import convert_google_checkpoint, key_map, read_tensor_bundle, write_tensor_bundle
from mybert.conversion.google_source import open_source

TF1 = Path(__file__).parents[1] / "fixtures" / "google_tf1"
SIZES = {
    "vocab_size": 61, "hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 48,
    "max_position_embeddings": 24,
}  # fmt: skip


@pytest.fixture(scope="session")
def pieces():
    """The vocabulary of tiny models."""
    return ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "the", "quick", "##er", "fox", *(f"w{i}" for i in range(52))]


@pytest.fixture(scope="session")
def write_vocab(pieces):
    """Write `vocab.txt` into a folder."""

    def write(folder, content=pieces):
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "vocab.txt").write_text("".join(f"{piece}\n" for piece in content), encoding="utf-8")
        return folder / "vocab.txt"

    return write


@pytest.fixture(scope="session")
def save_model(write_vocab):
    """Save a tiny model with weights at which every term matters, and a tokenizer; gives the model."""

    def save(folder, head, library=mybert, tokenizer=True, dtype=torch.float32, options=None, **fields):
        prefix, config = ("MyBert", mybert.MyBertConfig) if library is mybert else ("Bert", transformers.BertConfig)
        defaults = {"hidden_act": "gelu_pytorch_tanh"}
        if "classifier" in key_map.HEADS[head].groups and "id2label" not in fields:
            defaults["num_labels"] = 3
        model_class = getattr(library, prefix + key_map.HEADS[head].class_suffix)
        model = model_class(config(**SIZES | defaults | fields), **options or {})
        generator = torch.Generator().manual_seed(3)
        with torch.no_grad():
            for name, parameter in model.named_parameters():
                noise = 0.2 * torch.randn(parameter.shape, generator=generator)
                parameter.copy_(noise + 1 if name.endswith("LayerNorm.weight") else noise)
        model.to(dtype).save_pretrained(folder)
        if tokenizer:
            mybert.MyBertTokenizer(write_vocab(folder), do_lower_case=True).save_pretrained(folder)
        return model

    return save


@pytest.fixture(scope="session")
def save_old_bert(save_model, change_config):
    """Save a BERT like `bert-base-uncased`, a masked LM by name with all of pretraining; gives its weights."""

    def save(folder):
        save_model(folder, "pretraining", library=transformers)
        change_config(folder, architectures=["BertForMaskedLM"])
        weights = load_file(folder / "model.safetensors")
        old = {  # names, and a buffer, of before 2020
            name.replace("Norm.weight", "Norm.gamma").replace("Norm.bias", "Norm.beta"): value
            for name, value in (weights | {"bert.embeddings.position_ids": torch.arange(24)[None]}).items()
        }
        save_file(old, folder / "model.safetensors", metadata={"format": "pt"})
        return weights

    return save


@pytest.fixture(scope="session")
def copy_checkpoint():
    """Copy a checkpoint with its configuration; a value of None leaves a variable out, another one replaces it."""

    def copy(source, folder, **tensors):
        with open_source(source) as found:
            content = dict(read_tensor_bundle(found.prefix)) | tensors
            write_tensor_bundle(folder / "bert_model.ckpt", {k: v for k, v in content.items() if v is not None})
            if found.config_file:
                shutil.copy(found.config_file, folder / "bert_config.json")
        return folder

    return copy


@pytest.fixture(scope="session")
def converted(tmp_path_factory):
    """A converted checkpoint of `google_tf1` and the report, for tests that only read it."""
    made = {}

    def convert(name, head=None, **options):
        key = (name, head, *options.items())
        if key not in made:
            folder = tmp_path_factory.mktemp("converted") / name
            made[key] = folder, convert_google_checkpoint(TF1 / name, folder, head, **options)
        return made[key]

    return convert
