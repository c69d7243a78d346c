"""Published models load by name, folder, revision, subfolder and from the cache, with this package and without it."""

import importlib.metadata
import json
import subprocess
import sys
import venv
from pathlib import Path

import huggingface_hub
import pytest
from packaging.requirements import Requirement

import mybert
from mybert.conversion import from_transformers_bert, to_transformers_bert
from mybert.hub_card import publish, write_publishable

HEADS = [name for name in mybert.__all__ if name.startswith(("MyBertFor", "MyBertModel"))]

# Loads every head of sources (name -> folder or repository), runs padded and packed batches and stock pipelines, and
# saves what came out. With mybert installed nothing remote is trusted; without it everything has to come along.
RUN_HEADS = """
import importlib.util, json, sys
import torch, transformers
from safetensors.torch import save_file
has_mybert = importlib.util.find_spec("mybert") is not None
if has_mybert:
    import mybert
sources, output, saved_again = json.loads(sys.argv[1]), sys.argv[2], sys.argv[3]
trust = {} if has_mybert else {"trust_remote_code": True}
tensors, answers = {}, {}
texts = ["the cat sat on a mat .", "dog ran", "it was a happy tree and the cat slept under it ."]
for head, source in sources.items():
    model_class = getattr(transformers, head.replace("MyBert", "AutoModel").replace("ModelModel", "Model"))
    model = model_class.from_pretrained(source, **trust)
    assert type(model).__name__ == head, type(model)
    assert type(model).__module__.startswith("mybert." if has_mybert else "transformers_modules."), type(model)
    tokenizer = transformers.AutoTokenizer.from_pretrained(source, **trust)  # trust: it reads the configuration first
    assert type(tokenizer).__module__.startswith("transformers."), "a plain tokenizer, without code of its own"
    batch = tokenizer(texts, return_tensors="pt", padding=True)
    padding = batch["attention_mask"] == 0
    assert padding.any()
    if head == "MyBertForMultipleChoice":
        batch = {name: tensor[None] for name, tensor in batch.items()}
    flat = transformers.DataCollatorWithFlattening(return_flash_attn_kwargs=True)
    packed = flat([{"input_ids": ids} for ids in tokenizer(texts)["input_ids"]])
    packed.pop("labels")
    inputs = {"padded": batch} | ({} if head == "MyBertForMultipleChoice" else {"packed": packed})
    for kind, batch in inputs.items():
        with torch.no_grad():
            outputs = model(**batch)
        for name, tensor in outputs.items():
            tensors[f"{head}.{kind}.{name}"] = tensor.contiguous()
        if kind == "padded" and head == "MyBertModel":
            assert not outputs.last_hidden_state[padding].any(), "the encoder runs without padding"
    task = {
        "MyBertForPreTraining": "fill-mask", "MyBertForMaskedLM": "fill-mask", "MyBertModel": "feature-extraction",
        "MyBertForSequenceClassification": "text-classification",
        "MyBertForTokenClassification": "token-classification",
    }.get(head)
    if task:
        pipeline = transformers.pipeline(task, model=source, **trust)
        answers[head] = pipeline("the cat [MASK] ." if task == "fill-mask" else texts, batch_size=1)
    if not has_mybert:  # who loaded it from the Hub may save it and load that
        model.save_pretrained(f"{saved_again}/{head}")
        again = model_class.from_pretrained(f"{saved_again}/{head}", **trust)
        assert all(torch.equal(a, b) for a, b in zip(model.parameters(), again.parameters()))
save_file(tensors, output)
answers = json.loads(json.dumps(answers, default=float))
print(json.dumps({"has_mybert": has_mybert, "answers": answers}))
"""


def run_python(python, script, *arguments, environment=None, cwd=None):
    command = [str(python), "-I", "-c", script, *map(str, arguments)]  # what is in its environment, no PYTHONPATH
    result = subprocess.run(command, env=environment, capture_output=True, text=True, cwd=cwd)
    assert result.returncode == 0, result.stderr
    reports = [line for line in result.stdout.splitlines() if line.startswith("{")]  # among what libraries print
    assert len(reports) == 1, result.stdout
    return json.loads(reports[0])


def requirements_of(name):
    """A distribution and all that it needs, extras apart."""
    found, pending = {}, [name]
    while pending:
        name = pending.pop()
        if name in found:
            continue
        found[name] = importlib.metadata.distribution(name)
        for line in found[name].requires or []:
            requirement = Requirement(line)
            if requirement.marker is None or requirement.marker.evaluate({"extra": ""}):
                pending.append(requirement.name.lower().replace("_", "-"))
    return found


@pytest.fixture(scope="module")
def bare_python(tmp_path_factory):
    """The interpreter of an environment with torch, transformers and what they need, and nothing else."""
    folder = tmp_path_factory.mktemp("bare")
    venv.create(folder, with_pip=False)
    (site_packages,) = folder.glob("lib/python*/site-packages")
    distributions = requirements_of("torch") | requirements_of("transformers")
    assert "mybert" not in distributions and "accelerate" not in distributions
    entries = {
        item.locate_file(file.parts[0])
        for item in distributions.values()
        for file in item.files
        if file.parts[0] != ".."
    }
    for entry in map(Path, entries):
        if entry.exists() and not (site_packages / entry.name).exists():
            (site_packages / entry.name).symlink_to(entry)
    return folder / "bin" / "python"


@pytest.mark.slow
def test_every_head_runs_without_this_package_and_gives_the_same_bits(
    client, hub_environment, make_model_dir, bare_python, tmp_path
):
    folders, repositories = {}, {}
    for head in HEADS:
        repositories[head] = f"owner/{head}"
        publish(make_model_dir(head), repositories[head], format="mybert")
        folder = tmp_path / "published" / head
        folders[head] = str(write_publishable(make_model_dir(head), folder, repositories[head], format="mybert"))

    def run(python, sources, name, **variables):
        environment = hub_environment | {"OMP_NUM_THREADS": "1"} | variables
        report = run_python(
            python,
            RUN_HEADS,
            json.dumps(sources),
            tmp_path / name,
            tmp_path / f"{name}-saved",
            environment=environment,
            cwd=tmp_path,
        )
        return report, (tmp_path / name).read_bytes()

    with_mybert, tensors = run(sys.executable, folders, "with_mybert")
    assert with_mybert["has_mybert"] and set(with_mybert["answers"]) >= {"MyBertForMaskedLM", "MyBertModel"}
    for sources, name, variables in (
        (folders, "from_folders", {}),
        (repositories, "from_the_hub", {}),
        (repositories, "from_the_cache", {"HF_HUB_OFFLINE": "1"}),
    ):
        bare, bare_tensors = run(bare_python, sources, name, **variables)
        assert not bare["has_mybert"]
        assert bare["answers"] == with_mybert["answers"], name
        assert bare_tensors == tensors, name


LOAD = """
import hashlib, json, os, sys
import mybert
from transformers import AutoModel, AutoModelForMaskedLM, AutoTokenizer
def digest(model):
    tensors = sorted(model.state_dict().items())
    return hashlib.sha256(b"".join(tensor.numpy().tobytes() for _, tensor in tensors)).hexdigest()
repo, folder = "owner/tiny", sys.argv[1]
first = AutoModelForMaskedLM.from_pretrained(folder)
print(json.dumps({
    "folder": digest(first),
    "name": digest(AutoModelForMaskedLM.from_pretrained(repo)),
    "own class": digest(mybert.MyBertForMaskedLM.from_pretrained(repo)),
    "revision": digest(AutoModelForMaskedLM.from_pretrained(repo, revision="v2")),
    "subfolder": digest(AutoModelForMaskedLM.from_pretrained(repo, subfolder="other")),
    "encoder of the head": type(AutoModel.from_pretrained(repo)).__name__,
    "tokens": AutoTokenizer.from_pretrained(repo)("the cat", "dog")["token_type_ids"],
    "tokens of the subfolder": AutoTokenizer.from_pretrained(repo, subfolder="other")("the cat")["input_ids"],
}))
"""


@pytest.mark.slow
def test_name_folder_revision_subfolder_and_cache(client, hub, hub_environment, make_model_dir, tmp_path):
    model_dir = make_model_dir("MyBertForMaskedLM")
    publish(model_dir, "owner/tiny", private=True, format="mybert")
    other = tmp_path / "other"
    model = mybert.MyBertForMaskedLM.from_pretrained(model_dir)
    model.bert.embeddings.word_embeddings.weight.data += 1
    model.save_pretrained(other)
    mybert.MyBertTokenizer.from_pretrained(model_dir).save_pretrained(other)
    publish(other, "owner/tiny", revision="v2", format="mybert")
    client.upload_folder(repo_id="owner/tiny", folder_path=other, path_in_repo="other")

    online = run_python(sys.executable, LOAD, model_dir, environment=hub_environment, cwd=tmp_path)
    assert online["folder"] == online["name"] == online["own class"]
    assert online["revision"] == online["subfolder"] != online["name"]
    assert online["encoder of the head"] == "MyBertModel"
    assert online["tokens"] == [0, 0, 0, 0, 1, 1]
    assert len(online["tokens of the subfolder"]) == 4

    hub.requests.clear()
    offline = run_python(
        sys.executable, LOAD, model_dir, environment=hub_environment | {"HF_HUB_OFFLINE": "1"}, cwd=tmp_path
    )
    assert offline == online
    assert not hub.requests


def test_a_bert_of_the_hub_is_converted_by_its_name(client, hub, make_model_dir, monkeypatch, tmp_path):
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_CACHE", str(tmp_path / "cache"))
    to_transformers_bert(make_model_dir("MyBertForMaskedLM"), tmp_path / "plain")
    (tmp_path / "plain" / "pytorch_model.bin").write_bytes(b"not read")
    client.create_repo("owner/plain")
    client.upload_folder(repo_id="owner/plain", folder_path=tmp_path / "plain")
    report = from_transformers_bert("owner/plain", tmp_path / "model")
    assert report.source == "owner/plain"
    assert report.verification.ok
    assert not list((tmp_path / "cache").rglob("pytorch_model.bin"))
    with pytest.raises(OSError, match=r"model is 'owner/nothing'; .* the Hub has none of that name"):
        from_transformers_bert("owner/nothing", tmp_path / "model")
