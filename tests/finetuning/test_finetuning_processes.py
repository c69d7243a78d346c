"""Several processes fine-tune and measure as one does (gloo, on CPUs), by torchrun alone."""

import json

import pytest
import torch
from safetensors.torch import load_file

from mybert import MyBertForSequenceClassification
from mybert.cli import main

pytestmark = pytest.mark.slow

SIZE = {"hidden_size": 32, "intermediate_size": 64}
SIZE |= {"hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0, "initializer_range": 0.2}


@pytest.fixture
def launch(run_python):
    """Run a command in two processes, in the working directory, and return what it prints."""

    def run(*command):
        launcher = "-m", "torch.distributed.run", "--standalone", "--nproc_per_node=2", "-m", "mybert"
        return run_python(*launcher, *command, CUDA_VISIBLE_DEVICES="").stdout

    return run


@pytest.fixture
def save(tmp_path, tiny_model, monkeypatch):
    """Save models without dropout, in the working directory."""
    monkeypatch.chdir(tmp_path)
    return lambda name, *kind, **settings: tiny_model(tmp_path / name, *kind, **SIZE | settings)


DENSE = "bert.encoder.layer.0.output.dense.weight"


@pytest.fixture
def same_by_two_processes(tmp_path, launch):
    """Asserts that one process and two with half of its batch size train alike, and that these weights change."""

    def train(command, start, *flags_of_two, changed=(DENSE,), by=1e-3, atol=1e-6, rtol=0.0):
        command = command.split()
        for name, size in (("one", "4"), ("two", "2")):
            sizes = [f"--per_device_{split}_batch_size={size}" for split in ("train", "eval")]
            words = [*command, "--output_dir", name, *sizes]
            assert main([*words, "--use_cpu"]) == 0 if name == "one" else launch(*words, *flags_of_two) is not None
        first, one, two = (load_file(tmp_path / name / "model.safetensors") for name in (start, "one", "two"))
        assert all((one[name] - first[name]).abs().max() > by for name in changed)
        torch.testing.assert_close(one, two, atol=atol, rtol=rtol)
        metrics = [json.loads((tmp_path / name / "metrics.json").read_text()) for name in ("one", "two")]
        losses = [{key: value for key, value in each.items() if key.endswith("loss")} for each in metrics]
        assert losses[0] and losses[0] == pytest.approx(losses[1], rel=1e-4)

    return train


def test_two_processes_are_one_run(tmp_path, save, launch, same_by_two_processes):
    save("base", initializer_range=0.02)
    rows = [f"the {word} sat\t{label}" for word in ("cat", "dog", "mat", "sun") for label in "xy"]
    (tmp_path / "data.tsv").write_text("\n".join(["text\tlabel", *rows]) + "\n")
    same_by_two_processes(
        "finetune --model base --train_file data.tsv --validation_file data.tsv --max_length 16 --max_steps 4 "
        "--learning_rate 3e-3 --quiet",
        "base",
    )
    assert (tmp_path / "two" / "checkpoint-4" / "rng_state_1.pth").is_file()
    metrics = [json.loads((tmp_path / run / "metrics.json").read_text()) for run in ("one", "two")]
    assert metrics[0] == pytest.approx(metrics[1], abs=1e-6)
    said = launch("evaluate", "data.tsv", "--model", "two", "--batch_size", "2")
    measured = json.loads(said[said.index("{") :])  # once, with nothing after it
    assert measured == pytest.approx({name: metrics[0][name] for name in measured}, abs=1e-6)
    assert measured["accuracy"] > 0


@pytest.mark.parametrize(
    ("task", "count"), [("classification", 7), ("regression", 5), ("tagging", 7), ("question_answering", 5)]
)
def test_two_processes_count_no_example_twice(tmp_path, save, task, count, same_by_two_processes):
    """With five examples in batches of two, the second process has none of its own at the end of an epoch."""
    save("base")
    words = ("cat", "dog", "mat", "tree", "fish", "bread", "sun")[:count]
    rows = {
        "classification": [{"text": f"the {word} sat", "label": "xy"[n % 2]} for n, word in enumerate(words)],
        "regression": [{"text": f"the {word} sat", "score": n / 4} for n, word in enumerate(words)],
        "tagging": [
            {"tokens": [word] * (n + 1), "tags": [*"XYZ"[:n], *"ZYXZYX"][: n + 1]} for n, word in enumerate(words)
        ],
        "question_answering": [
            {"id": word, "question": "who ?", "context": f"the {word} sat", "answers": ["the", "sat"][n % 2]}
            for n, word in enumerate(words)
        ],
    }[task]
    (tmp_path / "data.json").write_text(json.dumps(rows))
    same_by_two_processes(
        f"finetune --model base --task {task} --train_file data.json --validation_file data.json --max_length 16 "
        "--num_train_epochs 3 --learning_rate 3e-3 --weight_decay 0 --optim sgd --save_strategy no --quiet",
        "base",
        by=1e-4,
    )


def test_shards_are_saved_as_one_model(tmp_path, save, same_by_two_processes):
    """With FSDP each process has a part of every weight, the output layer's that is scaled at the end included."""
    save("base", initializer_range=0.02)
    rows = [{"text": f"the {word} sat", "score": 30 * n} for n, word in enumerate(("cat", "dog", "mat", "tree") * 2)]
    (tmp_path / "data.json").write_text(json.dumps(rows))
    same_by_two_processes(
        "finetune --model base --task regression --train_file data.json --validation_file data.json --max_length 16 "
        "--max_steps 4 --learning_rate 3e-3 --quiet",
        *("base", "--fsdp"),
        atol=1e-5,
        rtol=1e-5,
    )
    assert list((tmp_path / "two" / "checkpoint-4").glob("pytorch_model_fsdp*"))  # sharding was really on


def test_two_processes_distill_as_one(tmp_path, save, same_by_two_processes):
    for name, layers in (("teacher", 2), ("begin", 1)):
        save(name, MyBertForSequenceClassification, num_hidden_layers=layers, labels="xy")
    texts = [f"the {word} {verb}" for word in ("cat", "dog", "mat", "tree") for verb in ("sat", "ran under a tree")]
    (tmp_path / "data.tsv").write_text("\n".join(["text\tlabel", *(f"{text}\tx" for text in texts), "a\ty"]) + "\n")
    (tmp_path / "more.txt").write_text("\n".join(f"{text} today" for text in texts[:6]) + "\n")
    same_by_two_processes(
        "distill teacher --student begin --train_file data.tsv --unlabeled more.txt --validation_file data.tsv "
        "--max_length 16 --max_steps 4 --learning_rate 3e-3 --hidden_state_weight 1 --relation_weight 1 --quiet",
        "begin",
        changed=(DENSE, "bert.encoder.layer.0.attention.self.key.weight"),
        atol=2e-6,
    )
    reports = [json.loads((tmp_path / run / "distillation.json").read_text()) for run in ("one", "two")]
    assert reports[0] == reports[1]
    assert len(list((tmp_path / "two" / "teacher_outputs").iterdir())) == 2  # data.tsv, twice, is one
