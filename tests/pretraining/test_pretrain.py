import contextlib
import gzip
import hashlib
import json
import lzma
import re
import shutil
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from transformers import AutoModelForMaskedLM, AutoTokenizer, Trainer, pipeline

import mybert
from mybert import MyBertForPreTraining
from mybert.pretraining import build_store, pretrain, token_store
from mybert.pretraining import run as module
from mybert.pretraining.run import split_documents
from mybert.runs import ResumableTrainer


def test_the_evaluation_of_the_last_step_is_not_repeated(arguments, monkeypatch):
    steps, loop = [], Trainer.evaluation_loop

    def evaluated(trainer, *args, **kwargs):
        steps.append(trainer.state.global_step)
        return loop(trainer, *args, **kwargs)

    monkeypatch.setattr(Trainer, "evaluation_loop", evaluated)
    settings = {"eval_strategy": "steps", "eval_steps": 2, "max_steps": 4}
    metrics = pretrain(arguments(**settings))
    assert steps == [2, 4]
    monkeypatch.setattr(ResumableTrainer, "evaluation_in_training", lambda *_: None)
    again = pretrain(arguments(**settings, name="again"))
    assert steps == [2, 4, 2, 4, 4]
    assert metrics.keys() == again.keys()
    assert all(metrics[name] == again[name] for name in metrics if name.endswith(("loss", "accuracy", "perplexity")))


def test_pretrain_tilde_in_output_dir_is_one_folder(tmp_path, arguments, tokenizer_folder, monkeypatch):
    monkeypatch.setenv("HOME", str(tmp_path))  # transformers' arguments expand it, too
    monkeypatch.chdir(tmp_path)
    pretrain(arguments(max_steps=1, tokenizer=tokenizer_folder, output_dir="~/home"))
    assert {"checkpoint-1", "run.json", "model.safetensors"} <= {path.name for path in (tmp_path / "home").iterdir()}
    assert not (tmp_path / "~").exists()


def test_text_becomes_a_model_folder(tmp_path, arguments, tokenizer_folder, history):
    metrics = pretrain(arguments(max_steps=6, logging_steps=2, tokenizer=tokenizer_folder))
    out = tmp_path / "out"
    assert metrics["interrupted"] is False
    assert metrics["eval_loss"] == pytest.approx(metrics["eval_mlm_loss"] + metrics["eval_nsp_loss"])
    names = {path.name for path in out.iterdir()}
    assert names >= {
        *("config.json", "model.safetensors", "tokenizer.json", "vocab.txt", "README.md", "trainer_state.json"),
        *("training_curves.png", "tokens.safetensors"),
    }
    logged = [entry for entry in history() if "mlm_loss" in entry]
    assert [entry["step"] for entry in logged] == [2, 4, 6]
    assert all({"mlm_accuracy", "nsp_loss", "nsp_accuracy", "tokens_per_second"} <= set(entry) for entry in logged)
    tokenizer = AutoTokenizer.from_pretrained(out)
    model = AutoModelForMaskedLM.from_pretrained(out)
    assert model.config.vocab_size == len(tokenizer)
    assert (out / "vocab.txt").read_bytes() == Path(tokenizer_folder, "vocab.txt").read_bytes()
    for folder in (out, out / "checkpoint-6"):  # truncates to what the model reads
        assert len(AutoTokenizer.from_pretrained(folder)("the cat " * 600, truncation=True).input_ids) == 512
    answers = pipeline("fill-mask", model=str(out))("the cat [MASK] on the mat", top_k=2)
    assert len(answers) == 2
    assert "## " in (out / "README.md").read_text()


def test_the_card_has_held_out_sentences_with_a_word_masked_if_asked(tmp_path, arguments, tokenizer_folder):
    draw = np.random.default_rng(0)
    known = "happy sad very today tree bread fish slept".split()
    documents = [[" ".join(draw.choice(known, draw.integers(8, 20))) for _ in range(3)] for _ in range(30)]
    (tmp_path / "text.txt").write_text("\n\n".join(map("\n".join, documents)))
    pretrain(arguments(max_steps=1, tokenizer=tokenizer_folder, card_examples=True))
    card = (tmp_path / "out" / "README.md").read_text()
    words = re.findall(r"Fill-mask \(the text has: (\w+)\)", card)
    texts = re.findall(r"in run\('(.*)', top_k=5\)", card)
    _, held_out = split_documents(len(documents), 0.2)
    assert len(words) == len(texts) == 3
    assert {text.replace("[MASK]", word) for text, word in zip(texts, words, strict=True)} <= {
        sentence for number in held_out for sentence in documents[number]
    }


def test_a_run_into_the_current_folder_has_its_name_on_the_card(tmp_path, arguments, monkeypatch):
    (tmp_path / "my-bert").mkdir()
    monkeypatch.chdir(tmp_path / "my-bert")
    pretrain(arguments(output_dir=".", max_steps=1))
    assert "\n# my-bert\n" in (tmp_path / "my-bert" / "README.md").read_text()


def test_pretrain_with_minimal_pairs_reports_the_accuracy_of_the_finished_model(tmp_path, arguments, tokenizer_folder):
    file = tmp_path / "pairs.csv"
    texts = ["the cat sat on the mat", "a dog ate the bread", "it was a very happy fish", "the mats " * 9]
    pairs = [(text, " ".join(reversed(text.split()))) for text in texts] + [("a dog", "a dog")]
    file.write_text("\n".join(["good,bad", *map(",".join, pairs)]) + "\n")
    settings = {"minimal_pairs": str(file), "max_steps": 2, "tokenizer": tokenizer_folder}
    metrics = pretrain(arguments(**settings))
    scored = mybert.score(tmp_path / "out", file, max_length=24)
    right = [row["score"] > row["pair_score"] + 1e-4 for row in scored]
    assert metrics["minimal_pair_accuracy"] == sum(right) / 5 and not right[-1]
    assert pretrain(arguments(**settings))["minimal_pair_accuracy"] == metrics["minimal_pair_accuracy"]
    for content, message in (
        ("right,bad\na,b\n", "has the columns 'right', 'bad'; expected minimal pairs in sentence_good"),
        ("good,bad\na,b\n, c\n", "row 2: an empty sentence; expected a text in good and bad"),
    ):
        file.write_text(content)
        with pytest.raises(ValueError, match=message):
            pretrain(arguments(**settings, name="other"))
    assert not (tmp_path / "other").exists()


@pytest.mark.slow
def test_a_model_to_start_from_says_what_is_new(tmp_path, arguments, caplog, capsys):
    pretrain(arguments(objective="mlm", name="first"))
    capsys.readouterr()
    settings = {"model": str(tmp_path / "first"), "max_steps": 1}
    with caplog.at_level("INFO", logger="mybert"):
        pretrain(arguments(**settings))
    assert f"Weights from {tmp_path / 'first'}; new ones: bert.pooler, cls.seq_relationship." in caplog.text
    said = capsys.readouterr()
    assert "MISSING" not in said.out + said.err + caplog.text  # transformers' report
    config = tmp_path / "first" / "config.json"
    config.write_text(config.read_text().replace('"model_type": "mybert"', '"model_type": "roberta"'))
    with pytest.raises(ValueError, match=r"^model is '.*first', of type 'roberta'; pretraining can continue with"):
        pretrain(arguments(**settings, name="other"))
    assert not (tmp_path / "other").exists()


def test_pretrain_reduces_the_loss(tmp_path, arguments, history):
    """A document repeats one word, so any visible word reveals the masked ones."""
    text = tmp_path / "text.txt"
    words = ["cat", "dog", "tree", "bread"]
    text.write_text("\n\n".join("\n".join([" ".join([word] * 6)] * 6) for word in words * 15) + "\n")
    settings = {"max_steps": 150, "save_strategy": "no", "logging_steps": 10, "vocab_size": 40, "dropout": 0.0}
    settings |= {"hidden_size": 32, "learning_rate": 1e-3}
    pretrain(arguments(text=text, **settings))
    losses = [entry["mlm_loss"] for entry in history() if "mlm_loss" in entry]
    assert losses[-1] < 0.5 * losses[0]


def test_an_interrupted_run_goes_on_to_the_same_weights(tmp_path, arguments):
    """From the checkpoint that an interruption leaves, a run reaches the weights of an uninterrupted one."""
    pretrain(arguments("whole"))
    pretrain(arguments())
    out = tmp_path / "out"
    shutil.rmtree(out / "checkpoint-4")
    for name in ("model.safetensors", "config.json", "README.md", "trainer_state.json", "training_curves.png"):
        (out / name).unlink()
    pretrain(arguments())
    whole, resumed = (MyBertForPreTraining.from_pretrained(tmp_path / name).state_dict() for name in ("whole", "out"))
    for name, value in whole.items():
        assert torch.equal(value, resumed[name]), name
    assert "Training time" in (tmp_path / "whole" / "README.md").read_text()
    assert "Training time" not in (out / "README.md").read_text()  # that of the first part is unknown


def contents(folder):
    return {path: (path.read_bytes(), path.stat().st_mtime_ns) for path in folder.rglob("*") if path.is_file()}


def test_a_finished_run_is_left_as_it_is(tmp_path, arguments, history):
    out = tmp_path / "out"
    metrics = pretrain(arguments())
    before = contents(out)
    again = pretrain(arguments())
    assert contents(out) == before
    assert again == again | metrics
    card = out / "README.md"
    card.write_text("My own words.")
    pretrain(arguments())
    assert card.read_text() == "My own words."
    for file in (out / "trainer_state.json", card):  # killed before they were written
        file.unlink()
    pretrain(arguments())
    assert "Training time" not in card.read_text()
    assert not any("train_loss" in entry for entry in history())  # there was no step left: it would be 0


def test_a_finished_run_has_the_step_of_its_end_if_it_keeps_another(arguments):
    best = {"load_best_model_at_end": True, "metric_for_best_model": "loss", "greater_is_better": True}
    settings = arguments(eval_strategy="steps", eval_steps=2, **best)  # the first evaluation is the best
    metrics = pretrain(settings)
    assert metrics["step"] == 4 and pretrain(settings).items() >= metrics.items()


@pytest.mark.parametrize("name", ["text.txt", "text.txt.gz", "text.jsonl.xz", "text.parquet"])
def test_text_is_read_once_for_each_use(tmp_path, documents, arguments, tokenizer_folder, monkeypatch, name):
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
    monkeypatch.setattr(module, "_train_phases", lambda run, plan: {})  # which reads the token store alone
    apart = name.endswith(".parquet")  # which is not read in order, by a library: the fingerprint takes a pass
    pretrain(arguments(text=path))
    # At the first row of a table, before anything runs: so small a file is read whole.
    look = int(name.endswith(".xz"))
    assert passes() == (1 if apart else 2 + look)
    digest = json.loads((tmp_path / "out" / "run.json").read_text())["files"][str(path)]["digest"]
    assert digest == hashlib.blake2b(path.read_bytes(), digest_size=16).hexdigest()
    read.clear()
    pretrain(arguments(text=path))
    assert passes() == look
    pretrain(arguments("other", text=path, tokenizer=tokenizer_folder))
    assert passes() == 1 + look


@pytest.mark.slow
def test_everything_is_prepared_once(arguments, monkeypatch):
    calls = []

    def counted(module, name):
        function = getattr(module, name)
        monkeypatch.setattr(module, name, lambda *args, **kw: calls.append(name) or function(*args, **kw))

    counted(module, "model_config")
    counted(token_store, "tokenizer_fingerprint")
    counted(build_store, "tokenizer_fingerprint")
    counted(token_store, "_map")
    settings = arguments(phase2_max_length=64, max_steps=4)
    for _ in range(2):
        pretrain(settings)
        assert sorted(calls) == ["_map", "model_config", "tokenizer_fingerprint"]
        calls.clear()


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (b"", "There is no text in .*text.txt"),
        (b"\n \n\n", "There is no text in .*text.txt"),
        (b"One sentence.\nAnother sentence of the same document.\n", "only one document"),
        (b"caf\xe9 au lait\n", r"bad byte at offset 3 .*encoding="),
        (3, "^text is 3; expected a file"),
        ({"text": ["a"]}, "^text is a dict"),
        ([["a cat"], 3], "^text, row 2: .* is int"),
        ([[]], "^There is no text in text"),
    ],
)
def test_text_that_cannot_be_used(tmp_path, text, message):
    if isinstance(text, bytes):  # of a file
        (tmp_path / "text.txt").write_bytes(text)
        text = tmp_path / "text.txt"
    with pytest.raises(ValueError, match=message):
        mybert.pretrain(text=text, output_dir=tmp_path / "out", use_cpu=True)
    assert not (tmp_path / "out").exists()


def test_pretrain_wrong_inputs_are_errors(tmp_path, arguments):
    for settings, message in (
        ({"text": str(tmp_path / "nowhere")}, "nowhere"),
        ({"num_attention_heads": 5}, "must be a multiple of num_attention_heads"),
        ({"validation_split": 0.0, "eval_strategy": "steps", "eval_steps": 1}, "validation_split is 0.0"),
    ):
        with pytest.raises((ValueError, FileNotFoundError), match=message):
            pretrain(arguments(**settings))
    assert not (tmp_path / "out").exists()
    pretrain(arguments(max_steps=1))
    with pytest.raises(ValueError, match="seed was 42, is 1"):
        pretrain(arguments(max_steps=1, seed=1))


def test_split_documents():
    training, validation = split_documents(100, 0.05)
    assert sorted([*training, *validation]) == list(range(100))
    assert validation.tolist() == [0, 25, 50, 74, 99]
    for count, share in ((100, 0.0), (100, 0.014), (3, 0.01)):
        assert len(split_documents(count, share)[1]) == 0


def test_text_in_memory_gives_what_a_file_gives(tmp_path, arguments, documents, monkeypatch):
    pandas = pytest.importorskip("pandas", reason="a data frame is pandas'")
    datasets = pytest.importorskip("datasets", reason="a data set is datasets'")
    texts = ["\n".join(document) for document in documents]
    kinds = {
        "frame": pandas.DataFrame({"text": texts}),
        "dataset": datasets.Dataset.from_dict({"text": documents}),
        "documents": documents,
        "texts": (text for text in texts),
    }
    monkeypatch.chdir(tmp_path)
    (tmp_path / "text").write_text("A file that has the argument's name.")
    pretrain(arguments("file", max_steps=1))
    for kind, text in kinds.items():
        pretrain(arguments(kind, text=text, max_steps=1))
        for name in ("vocab.txt", "tokens.safetensors", "model.safetensors"):
            assert (tmp_path / kind / name).read_bytes() == (tmp_path / "file" / name).read_bytes(), (kind, name)
        assert "in memory" in (tmp_path / kind / "README.md").read_text()
        assert json.loads((tmp_path / kind / "run.json").read_text())["files"] == {}


@pytest.mark.slow
def test_other_text_in_memory_is_refused(tmp_path, arguments, documents):
    pretrain(arguments(text=documents, max_steps=1))
    (recorded,) = json.loads((tmp_path / "out" / "run.json").read_text())["text"]
    assert recorded.startswith("list ")
    pretrain(arguments(text=[list(document) for document in documents], max_steps=1))
    with pytest.raises(ValueError, match="holds a run with other settings"):
        pretrain(arguments(text=documents[::-1], max_steps=1))


def test_text_in_memory_has_the_name_of_its_argument(arguments, documents):
    assert list(map(str, arguments(text=documents).text)) == ["text"]
    assert arguments(text=["a", "b"]).text == ["a", "b"]
