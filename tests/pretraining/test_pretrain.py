import contextlib
import gzip
import hashlib
import json
import lzma
import shutil
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from transformers import AutoModelForMaskedLM, AutoTokenizer, Trainer, pipeline

from mybert import MyBertForPreTraining
from mybert.pretraining import PretrainingArguments, build_store, pretrain, token_store
from mybert.pretraining import run as module
from mybert.pretraining.run import split_documents
from mybert.runs import ResumableTrainer


def arguments(tmp_path, text_file, **settings):
    defaults = {
        "text": [str(text_file)],
        "output_dir": str(tmp_path / "out"),
        "vocab_size": 60,
        "layout": "compact",
        "model_size": "tiny",
        "hidden_size": 32,
        "num_hidden_layers": 1,
        "max_length": 32,
        "max_steps": 6,
        "logging_steps": 2,
        "save_steps": 3,
        "per_device_train_batch_size": 8,
        "heldout": 0.2,
        "learning_rate": 1e-3,
        "disable_tqdm": True,
        "use_cpu": True,
        "num_processes": 1,
    }
    return PretrainingArguments(**defaults | settings)


def test_the_evaluation_of_the_last_step_is_not_repeated(tmp_path, text_file, monkeypatch):
    steps, loop = [], Trainer.evaluation_loop

    def evaluated(trainer, *args, **kwargs):
        steps.append(trainer.state.global_step)
        return loop(trainer, *args, **kwargs)

    monkeypatch.setattr(Trainer, "evaluation_loop", evaluated)
    settings = {"eval_strategy": "steps", "eval_steps": 2, "max_steps": 4}
    metrics = pretrain(arguments(tmp_path, text_file, **settings))
    assert steps == [2, 4]
    monkeypatch.setattr(ResumableTrainer, "evaluation_in_training", lambda *_: None)
    again = pretrain(arguments(tmp_path, text_file, **settings, output_dir=str(tmp_path / "again")))
    assert steps == [2, 4, 2, 4, 4]
    assert metrics.keys() == again.keys()
    assert all(metrics[name] == again[name] for name in metrics if name.endswith(("loss", "accuracy", "perplexity")))


def test_text_becomes_a_model_folder(tmp_path, text_file):
    metrics = pretrain(arguments(tmp_path, text_file))
    out = tmp_path / "out"
    assert metrics["interrupted"] is False
    assert metrics["eval_loss"] == pytest.approx(metrics["eval_mlm_loss"] + metrics["eval_nsp_loss"])
    names = {path.name for path in out.iterdir()}
    assert names >= {
        "config.json",
        "model.safetensors",
        "tokenizer.json",
        "vocab.txt",
        "README.md",
        "trainer_state.json",
    }
    assert names >= {"training_curves.png", "tokens.safetensors"}
    history = json.loads((out / "trainer_state.json").read_text())["log_history"]
    logged = [entry for entry in history if "mlm_loss" in entry]
    assert [entry["step"] for entry in logged] == [2, 4, 6]
    assert all({"mlm_accuracy", "nsp_loss", "nsp_accuracy", "tokens_per_second"} <= set(entry) for entry in logged)
    tokenizer = AutoTokenizer.from_pretrained(out)
    model = AutoModelForMaskedLM.from_pretrained(out)
    assert model.config.vocab_size == len(tokenizer)
    answers = pipeline("fill-mask", model=str(out))("the cat [MASK] on the mat", top_k=2)
    assert len(answers) == 2
    assert "## " in (out / "README.md").read_text()


@pytest.mark.slow
def test_a_model_to_start_from_says_what_is_new(tmp_path, text_file, caplog, capsys):
    pretrain(arguments(tmp_path, text_file, objective="mlm", output_dir=str(tmp_path / "first")))
    capsys.readouterr()
    of_its_own = {"vocab_size": 30522, "layout": "google", "model_size": "base", "hidden_size": None}
    settings = {"model": str(tmp_path / "first"), "max_steps": 1, **of_its_own, "num_hidden_layers": None}
    with caplog.at_level("INFO", logger="mybert"):
        pretrain(arguments(tmp_path, text_file, **settings))
    assert f"Weights from {tmp_path / 'first'}; new ones: bert.pooler, cls.seq_relationship." in caplog.text
    said = capsys.readouterr()
    assert "MISSING" not in said.out + said.err + caplog.text  # transformers' report
    config = tmp_path / "first" / "config.json"
    config.write_text(config.read_text().replace('"model_type": "mybert"', '"model_type": "roberta"'))
    with pytest.raises(
        ValueError, match=r"^model is '.*first', of type 'roberta'; pretraining can continue with bert or my"
    ):
        pretrain(arguments(tmp_path, text_file, **settings, output_dir=str(tmp_path / "other")))
    assert not (tmp_path / "other").exists()


def test_it_learns(tmp_path):
    """A document repeats one word, so any visible word reveals the masked ones."""
    text = tmp_path / "text.txt"
    words = ["cat", "dog", "tree", "bread"]
    text.write_text("\n\n".join("\n".join([" ".join([word] * 6)] * 6) for word in words * 15) + "\n")
    settings = {"max_steps": 150, "save_strategy": "no", "logging_steps": 10, "vocab_size": 40, "dropout": 0.0}
    pretrain(arguments(tmp_path, text, **settings))
    history = json.loads((tmp_path / "out" / "trainer_state.json").read_text())["log_history"]
    losses = [entry["mlm_loss"] for entry in history if "mlm_loss" in entry]
    assert losses[-1] < 0.5 * losses[0]


def test_an_interrupted_run_goes_on_to_the_same_weights(tmp_path, text_file):
    """From the checkpoint that an interruption leaves, a run reaches the weights of an uninterrupted one."""
    pretrain(arguments(tmp_path, text_file, output_dir=str(tmp_path / "whole")))
    pretrain(arguments(tmp_path, text_file))
    out = tmp_path / "out"
    shutil.rmtree(out / "checkpoint-6")
    for name in ("model.safetensors", "config.json", "README.md", "trainer_state.json", "training_curves.png"):
        (out / name).unlink()
    pretrain(arguments(tmp_path, text_file))
    whole, resumed = (MyBertForPreTraining.from_pretrained(tmp_path / name).state_dict() for name in ("whole", "out"))
    for name, value in whole.items():
        assert torch.equal(value, resumed[name]), name
    assert "Training time" in (tmp_path / "whole" / "README.md").read_text()
    assert "Training time" not in (out / "README.md").read_text()  # that of the first part is unknown


def contents(folder):
    return {path: (path.read_bytes(), path.stat().st_mtime_ns) for path in folder.rglob("*") if path.is_file()}


def test_a_finished_run_is_left_as_it_is(tmp_path, text_file):
    out = tmp_path / "out"
    metrics = pretrain(arguments(tmp_path, text_file))
    before = contents(out)
    again = pretrain(arguments(tmp_path, text_file))
    assert contents(out) == before
    assert again == again | metrics
    for name in ("trainer_state.json", "README.md"):  # killed before they were written
        (out / name).unlink()
    pretrain(arguments(tmp_path, text_file))
    history = json.loads((out / "trainer_state.json").read_text())["log_history"]
    assert not any("train_loss" in entry for entry in history)  # there was no step left: it would be 0


@pytest.mark.slow
def test_the_card_of_a_finished_run_is_its_owners(tmp_path, text_file):
    metrics = pretrain(arguments(tmp_path, text_file))
    card = tmp_path / "out" / "README.md"
    card.write_text("My own words.")
    again = pretrain(arguments(tmp_path, text_file))
    assert again["eval_mlm_loss"] == metrics["eval_mlm_loss"]
    assert card.read_text() == "My own words."
    card.unlink()
    pretrain(arguments(tmp_path, text_file))
    assert "Training time" not in card.read_text()


@pytest.mark.parametrize("name", ["text.txt", "text.txt.gz", "text.jsonl.xz", "text.parquet"])
def test_text_is_read_once_for_each_use(tmp_path, documents, tokenizer, monkeypatch, name):
    """Once for the vocabulary and once for the tokens, with the digest; a resumed run reads nothing."""
    path = tmp_path / name
    if name.endswith(".parquet"):
        pyarrow = pytest.importorskip("pyarrow")
        from pyarrow import parquet

        parquet.write_table(pyarrow.table({"text": ["\n".join(document) for document in documents]}), path)
    elif name.endswith(".xz"):
        path.write_bytes(lzma.compress("\n".join(json.dumps({"text": text}) for text in documents).encode()))
    else:
        text = "\n\n".join("\n".join(document) for document in documents).encode()
        path.write_bytes(gzip.compress(text) if name.endswith(".gz") else text)
    read = []
    open_file = Path.open

    def open_and_count(self, *args, **kwargs):
        file = open_file(self, *args, **kwargs)
        if self == path:
            read_some = file.read
            file = SimpleNamespace(
                read=lambda size=-1: (data := read_some(size), read.append(len(data)))[0],
                __enter__=lambda: file,
            )
            return contextlib.nullcontext(file)
        return file

    def passes():
        count, rest = divmod(sum(read), path.stat().st_size)
        assert rest == 0
        read.clear()
        return count

    monkeypatch.setattr(Path, "open", open_and_count)
    monkeypatch.setattr(module, "_pretrain", lambda arguments, run: {})  # which reads the token store alone
    apart = name.endswith(".parquet")  # which is not read in order, by a library: the fingerprint takes a pass
    pretrain(arguments(tmp_path, path, max_steps=1))
    look = int(
        name.endswith(".xz")
    )  # at the first row of a table, before anything runs: so small a file is read whole
    assert passes() == (1 if apart else 2 + look)
    digest = json.loads((tmp_path / "out" / "run.json").read_text())["files"][str(path)]["digest"]
    assert digest == hashlib.blake2b(path.read_bytes(), digest_size=16).hexdigest()
    read.clear()
    pretrain(arguments(tmp_path, path, max_steps=1))
    assert passes() == look
    tokenizer.save_pretrained(tmp_path / "tokenizer")
    other = {"output_dir": str(tmp_path / "other"), "tokenizer": str(tmp_path / "tokenizer"), "max_steps": 1}
    pretrain(arguments(tmp_path, path, **other))
    assert passes() == 1 + look


@pytest.mark.slow
def test_everything_is_prepared_once(tmp_path, text_file, monkeypatch):
    calls = []

    def counted(module, name):
        function = getattr(module, name)
        monkeypatch.setattr(module, name, lambda *args, **kw: calls.append(name) or function(*args, **kw))

    counted(PretrainingArguments, "model_config")
    counted(token_store, "tokenizer_fingerprint")
    counted(build_store, "tokenizer_fingerprint")
    counted(token_store, "_map")
    settings = arguments(tmp_path, text_file, phase2_max_length=64, max_steps=4)
    for _ in range(2):
        pretrain(settings)
        assert sorted(calls) == ["_map", "model_config", "tokenizer_fingerprint"]
        calls.clear()


def test_a_given_tokenizer_is_used(tmp_path, text_file, tokenizer):
    tokenizer.save_pretrained(tmp_path / "tokenizer")
    pretrain(arguments(tmp_path, text_file, tokenizer=str(tmp_path / "tokenizer"), max_steps=1))
    assert (tmp_path / "out" / "vocab.txt").read_text() == (tmp_path / "tokenizer" / "vocab.txt").read_text()


def test_the_tokenizer_truncates_to_what_the_model_reads(tmp_path, text_file):
    pretrain(arguments(tmp_path, text_file, max_steps=1, save_steps=1))
    for folder in (tmp_path / "out", tmp_path / "out" / "checkpoint-1"):
        tokenizer = AutoTokenizer.from_pretrained(folder)
        assert len(tokenizer("the cat " * 600, truncation=True).input_ids) == 512


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "empty"),
        (b"\n \n\n", "empty"),
        (b"One sentence.\nAnother sentence of the same document.\n", "only one document"),
        (b"caf\xe9 au lait\n", r"bad byte at offset 3 .*--encoding"),
    ],
)
def test_text_that_cannot_be_used(tmp_path, content, message):
    path = tmp_path / "text.txt"
    path.write_bytes(content)
    with pytest.raises(ValueError, match=message):
        pretrain(arguments(tmp_path, path))
    assert not (tmp_path / "out").exists()


def test_mistakes_in_the_settings(tmp_path, text_file):
    with pytest.raises(ValueError, match="text is empty"):
        arguments(tmp_path, text_file, text=[])
    with pytest.raises(ValueError, match="output_dir is not set"):
        arguments(tmp_path, text_file, output_dir=None)
    with pytest.raises(ValueError, match="model_size is 'huge'; expected one of tiny, mini"):
        arguments(tmp_path, text_file, model_size="huge")
    with pytest.raises(ValueError, match="model_size is 0x64; expected at least 1 layer"):
        arguments(tmp_path, text_file, model_size="0x64")
    with pytest.raises(ValueError, match="heldout is 1"):
        arguments(tmp_path, text_file, heldout=1.0)
    with pytest.raises(FileNotFoundError, match="nowhere"):
        pretrain(arguments(tmp_path, tmp_path / "nowhere"))
    with pytest.raises(ValueError, match="must be a multiple of num_attention_heads"):
        pretrain(arguments(tmp_path, text_file, num_attention_heads=5))
    with pytest.raises(ValueError, match="Hold out more, or pass --eval_strategy no"):
        pretrain(arguments(tmp_path, text_file, heldout=0.0, eval_strategy="steps", eval_steps=1))
    assert not (tmp_path / "out").exists()
    pretrain(arguments(tmp_path, text_file, max_steps=1))
    with pytest.raises(ValueError, match="seed was 42, is 1"):
        pretrain(arguments(tmp_path, text_file, max_steps=1, seed=1))


def test_split_documents():
    training, heldout = split_documents(100, 0.05)
    assert sorted([*training, *heldout]) == list(range(100))
    assert heldout.tolist() == [0, 25, 50, 74, 99]
    for count, share in ((100, 0.0), (100, 0.014), (3, 0.01)):
        assert len(split_documents(count, share)[1]) == 0
