import csv
import errno
import json
import shutil
import sys
from pathlib import Path

import numpy as np
import pytest
from transformers import pipeline

from mybert.demo import DemoArguments, demo, run_demo
from mybert.demo.run_demo import CLASSES, _hold_out, _read, _vocabulary_size
from mybert.finetuning.training.plan import plan_finetuning
from mybert.finetuning.training.preparation import read_run

SOURCES = {
    "kitchen": "bread soup flour oven salt butter knife plate spoon sugar".split(),
    "garden": "tree rose grass spade rain soil seed leaf bird worm".split(),
}


def write_sources(tmp_path, documents=14, folder=None):
    paths = []
    folder = folder or tmp_path
    folder.mkdir(exist_ok=True)
    for name, words in SOURCES.items():
        text = [
            "\n".join(
                f"The {words[(d + 3 * s) % 10]} and the {words[(d * 7 + s) % 10]} lie near the {words[(s * s) % 10]} "
                f"while the {words[(5 * d + s) % 10]} waits for more."
                for s in range(8)
            )
            for d in range(documents)
        ]
        path = folder / f"{name}.txt"
        path.write_text("\n\n".join(text) + "\n")
        paths.append(str(path))
    return paths


def arguments(tmp_path, text, **settings):
    defaults = {
        "output_dir": str(tmp_path / "demo"),
        "text": text,
        "vocab_size": 150,
        "pretraining_steps": 8,
        "finetuning_epochs": 6,
        "disable_tqdm": True,
    }
    return DemoArguments(**defaults | settings)


@pytest.mark.slow
def test_a_whole_life_on_the_users_own_text(tmp_path):
    report = demo(arguments(tmp_path, write_sources(tmp_path)))
    out = tmp_path / "demo"
    written = json.loads((out / "report.json").read_text())
    assert written == {"made_by": "mybert demo", **json.loads(json.dumps(report))}
    assert set(report["sources"]) == set(report["classes"]) == set(SOURCES)
    assert report["classifier"]["accuracy"] > 0.9
    assert 0.5 <= report["majority"] < 0.9
    assert 0 < report["pretraining"]["eval_mlm_accuracy"] <= 1
    for folder in ("pretrained", "classifier"):
        assert {"model.safetensors", "README.md", "training_curves.png"} <= {p.name for p in (out / folder).iterdir()}
    assert (out / "result.png").read_bytes().startswith(b"\x89PNG")
    with (out / "task" / "masked_words.tsv").open(encoding="utf-8", newline="") as file:
        drawn = [(row["before"], row["word"], row["after"]) for row in csv.DictReader(file, delimiter="\t")]
    words = report["masked_words"]
    shown = [(guess["before"], guess["word"], guess["after"]) for guess in words["shown"]]
    assert words["words"] == len(drawn) >= 8 == len(shown) and set(shown) <= set(drawn)
    assert sum(guess["is_right"] for guess in words["shown"]) == round(8 * words["right"] / words["words"])
    classify = pipeline("text-classification", model=str(out / "classifier"))
    assert classify("the flour and the salt")[0]["label"] == "kitchen"
    train = (out / "task" / "train.tsv").read_text().splitlines()
    test = (out / "task" / "test.tsv").read_text().splitlines()
    assert train[0] == test[0] == "text\tlabel"
    held_out = {line.split("\t")[0] for line in test[1:]}
    learned = (out / "text" / "kitchen.txt").read_text() + (out / "text" / "garden.txt").read_text()
    assert held_out
    assert not any(
        passage in learned.replace("\n", " ") for passage in held_out - {row.split("\t")[0] for row in train}
    )
    again = {"pretraining_steps": 2, "finetuning_epochs": 1}
    with pytest.raises(ValueError, match="or pass overwrite=True"):
        demo(arguments(tmp_path, write_sources(tmp_path), **again))
    (out / "classifier" / "thesis.tex").write_text("years of work")
    with pytest.raises(ValueError, match=r"holds files that no run wrote \(classifier/thesis.tex\)"):
        demo(arguments(tmp_path, write_sources(tmp_path), overwrite=True, **again))
    assert json.loads((out / "report.json").read_text()) == written
    (out / "classifier" / "thesis.tex").unlink()
    demo(arguments(tmp_path, write_sources(tmp_path), overwrite=True, **again))


@pytest.mark.slow
@pytest.mark.parametrize("first", ["가", "一", "あ"], ids=["Korean", "Chinese", "Japanese"])
def test_demo_of_one_file_of_a_script_of_many_characters_shows_words(tmp_path, first):
    characters = [chr(ord(first) + number) for number in range(80 if first == "あ" else 2500)]
    generator = np.random.default_rng(0)
    space = " " if first == "가" else ""
    documents = [
        "\n".join(space.join("".join(generator.choice(characters, 3)) for _ in range(8)) + "." for _ in range(12))
        for _ in range(12)
    ]
    (tmp_path / "text.txt").write_text("\n\n".join(documents), encoding="utf-8")
    settings = {"vocab_size": None, "pretraining_steps": 2, "finetuning_epochs": 1}
    report = demo(arguments(tmp_path, [str(tmp_path / "text.txt")], **settings))
    assert len(report["classes"]) == len(report["masked_words"]["shown"]) == 8


def test_vocabulary_size_follows_the_number_of_characters():
    assert _vocabulary_size({"en": [["The quick brown fox."]]}) == 6000
    assert _vocabulary_size({"zh": [["".join(chr(0x4E00 + number) for number in range(5000))]]}) == 3000 + 2 * 5000
    text = {"ko": [["".join(chr(0xAC00 + number) for number in range(2000)) * 9, "\uac00" * 10**6 + "\ud7a3"]]}
    assert _vocabulary_size(text) < 6000 + 2 * 1500  # rare ones have no entries


def test_hold_out_leaves_out_sources_that_are_too_small():
    long = [[f"Sentence number {number} of the document is here." for number in range(20)]]
    sources = {"small": [["Short."]], "a": long, "b": long}
    task = _hold_out(sources, np.random.default_rng(0), "x.txt")
    assert {label for _, label in task["train"]} == {label for _, label in task["test"]} == {"a", "b"}
    assert sources["small"] == [["Short."]] and sum(map(len, sources["a"])) < 20
    many = {str(number): long for number in range(CLASSES + 1)}
    assert {label for _, label in _hold_out(many, np.random.default_rng(0), "x.txt")["test"]} == {*"01234567"}
    assert many["8"] == long  # all of it is for pretraining
    with pytest.raises(ValueError, match=r"x\.txt: too little text\. 1 of 2 documents or files have enough"):
        _hold_out({"small": [["Short."]], "a": long}, np.random.default_rng(0), "x.txt")


def test_demo_of_too_little_text_to_pretrain_on_is_an_error_before_training(tmp_path):
    sentence = "Two of these sentences are a passage.\n"
    (tmp_path / "text.txt").write_text("\n".join(sentence * 6 for _ in range(2)))
    with pytest.raises(
        ValueError, match=r"too little text\. 2 documents are left for pretraining; expected 4 or more"
    ):
        demo(arguments(tmp_path, [str(tmp_path / "text.txt")]))
    assert not (tmp_path / "demo").exists()


def test_demo_takes_files_named_like_missing_values(tmp_path, tiny_model, monkeypatch):
    def read(settings):
        assert read_run(plan_finetuning(settings), settings.resolve_task()).labels.names == ("NA", "null")
        return {"interrupted": True}

    for name, path in zip(("NA", "null"), write_sources(tmp_path), strict=True):
        shutil.move(path, tmp_path / f"{name}.txt")

    def pretrained(settings):
        tiny_model(settings.output_dir)
        return {"interrupted": False}

    monkeypatch.setattr(run_demo, "pretrain", pretrained)
    monkeypatch.setattr(run_demo, "finetune", read)
    files = [str(tmp_path / "NA.txt"), str(tmp_path / "null.txt")]
    assert demo(arguments(tmp_path, files)) == {"interrupted": True}


def test_demo_without_matplotlib_ends_without_its_picture(tmp_path, tiny_model, monkeypatch, caplog):
    measured = dict.fromkeys(("eval_mlm_share", "eval_mlm_accuracy", "eval_nsp_accuracy", "eval_nsp_majority"), 0.25)

    def pretrained(settings):
        folder = tiny_model(Path(settings.output_dir))
        (folder / "trainer_state.json").write_text('{"log_history": []}')
        return measured | {"interrupted": False}

    monkeypatch.setattr(run_demo, "pretrain", pretrained)
    monkeypatch.setattr(run_demo, "finetune", lambda settings: {"accuracy": 0.75, "interrupted": False})
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    with caplog.at_level("INFO", logger="mybert"):
        report = demo(arguments(tmp_path, write_sources(tmp_path)))
    out = tmp_path / "demo"
    assert json.loads((out / "report.json").read_text()) == json.loads(json.dumps({"made_by": "mybert demo"} | report))
    assert not (out / "result.png").exists() and "PNG pictures need matplotlib" in caplog.text
    assert "Masked tokens of held-out text, 25 % of all: 25.0 % right" in caplog.text
    assert "Source of a passage, without pretraining: 75.0 %" in caplog.text
    assert report["masked_words"]["words"] == 48 and len(report["masked_words"]["shown"]) == 8


@pytest.mark.parametrize("sentence", ["x" * 3000, "한 " * 900, "word " * 700])
def test_passages_of_text_without_sentence_ends_are_cut(sentence):
    passages = run_demo._passages([sentence.strip()])
    assert len(passages) > 5 and all(len(passage.encode()) <= 400 for passage in passages)
    assert "".join(passages).replace(" ", "") == sentence.replace(" ", "")


@pytest.mark.parametrize("exists", [False, True])
def test_demo_error_in_training_leaves_nothing(tmp_path, monkeypatch, exists):
    def fail(settings):
        (tmp_path / "demo" / "pretrained").mkdir()
        (tmp_path / "demo" / "pretrained" / "vocab.txt").write_text("[PAD]")
        raise ValueError("no more")

    monkeypatch.setattr(run_demo, "pretrain", fail)
    if exists:
        (tmp_path / "demo").mkdir()
    for _ in range(2):  # the next call begins as the first one
        with pytest.raises(ValueError, match="no more"):
            demo(arguments(tmp_path, write_sources(tmp_path)))
        assert (tmp_path / "demo").exists() == exists and not list(tmp_path.glob("demo/*"))


@pytest.mark.parametrize("error", [OSError(errno.ENOSPC, "No space left on device"), MemoryError()])
def test_demo_after_an_error_that_may_pass_continues(tmp_path, monkeypatch, error):
    def fail(settings):
        kept = tmp_path / "demo" / "pretrained" / "vocab.txt"
        found.append(kept.exists())
        kept.parent.mkdir(exist_ok=True)
        kept.write_text("[PAD]")
        raise error

    found = []
    monkeypatch.setattr(run_demo, "pretrain", fail)
    for _ in range(2):
        with pytest.raises(type(error)):
            demo(arguments(tmp_path, write_sources(tmp_path)))
    assert found == [False, True]


def test_demo_after_an_interruption_continues_with_the_same_settings_only(tmp_path, monkeypatch):
    def interrupt(settings):
        kept = tmp_path / "demo" / "pretrained" / "vocab.txt"
        found.append(kept.exists())
        kept.parent.mkdir(exist_ok=True)
        kept.write_text("[PAD]")
        return {"interrupted": True}

    found = []
    monkeypatch.setattr(run_demo, "pretrain", interrupt)
    text = write_sources(tmp_path)
    assert demo(arguments(tmp_path, text)) == demo(arguments(tmp_path, text)) == {"interrupted": True}
    with pytest.raises(ValueError, match=r"exists and holds other things.*or pass overwrite=True"):
        demo(arguments(tmp_path, text, seed=1))
    demo(arguments(tmp_path, text, overwrite=True))
    assert found == [False, True, False]


def test_read_without_text_has_the_sentences_of_docstrings_by_package(tmp_path, monkeypatch):
    found = {"zebra": [["It runs. It stops."], ["Another file.", "Its second paragraph."]]}
    monkeypatch.setattr(run_demo, "collect_docstrings", lambda show_progress: {} if show_progress else found)
    wanted = [["It runs.", "It stops."], ["Another file.", "Its second paragraph."]]
    assert _read(arguments(tmp_path, [])) == {"zebra": wanted}


def test_read_names_that_differ_in_case_become_different_files(tmp_path):
    for folder, name in (("a", "Text"), ("b", "text")):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / f"{name}.txt").write_text("One sentence.\n\nAnother one.\n")
    assert list(_read(arguments(tmp_path, [str(tmp_path / "a"), str(tmp_path / "b")]))) == ["Text", "text_2"]


def test_demo_wrong_settings_are_errors(tmp_path, user_error):
    (tmp_path / "empty.txt").write_text("\n")
    with pytest.raises(ValueError, match=r"There is no text in .*empty\.txt"):
        demo(arguments(tmp_path, [str(tmp_path / "empty.txt")]))
    (tmp_path / "one.txt").write_text("One sentence. Another one.\n")
    with pytest.raises(ValueError, match="only one document"):
        demo(arguments(tmp_path, [str(tmp_path / "one.txt")]))
    (tmp_path / "two.txt").write_text("Short.\n\nShorter.\n")
    with pytest.raises(ValueError, match="too little text"):
        demo(arguments(tmp_path, [str(tmp_path / "two.txt")]))
    (tmp_path / "numbers.txt").write_text(f"{'1998 2003 ' * 9}.\n" * 8 + "\n" + "12 13 15 16.\n" * 40)
    with pytest.raises(ValueError, match=r"numbers\.txt: there are no words of letters; expected sentences"):
        demo(arguments(tmp_path, [str(tmp_path / "numbers.txt")]))
    with pytest.raises(FileNotFoundError, match="nowhere"):
        demo(arguments(tmp_path, [str(tmp_path / "nowhere.txt")]))
    assert not (tmp_path / "demo").exists()
    with user_error("--vocab_size"):
        demo(arguments(tmp_path, write_sources(tmp_path), vocab_size=9))
    assert not (tmp_path / "demo").exists()  # an error leaves nothing
    write_sources(tmp_path, folder=tmp_path / "demo")
    with pytest.raises(ValueError, match=r"exists and holds other things \(garden.txt"):
        demo(arguments(tmp_path, write_sources(tmp_path)))
    (tmp_path / "demo" / "report.json").write_text('{"made_by": "mybert demo", "sources": ["garden", "kitchen"]}')
    with pytest.raises(ValueError, match=r"garden.txt is in .*demo, which the demo replaces"):
        demo(arguments(tmp_path, [str(tmp_path / "demo")], overwrite=True))
    shutil.rmtree(tmp_path / "demo")
    (tmp_path / "demo").mkdir()
    (tmp_path / "demo" / "thesis.tex").write_text("years of work")
    with pytest.raises(ValueError, match="exists and holds other things"):
        demo(arguments(tmp_path, write_sources(tmp_path)))
    with pytest.raises(ValueError, match=r"holds files that no run wrote \(thesis.tex\)"):
        demo(arguments(tmp_path, write_sources(tmp_path), overwrite=True))
    # Other programs write reports too.
    for foreign in ('{"interrupted": true, "seconds": 1.0, "sources": {}}', '["made_by"]', "no JSON", "[" * 9999):
        (tmp_path / "demo" / "report.json").write_text(foreign)
        with pytest.raises(ValueError, match="holds files that no run wrote"):
            demo(arguments(tmp_path, write_sources(tmp_path), overwrite=True))
        assert (tmp_path / "demo" / "report.json").read_text() == foreign
    assert (tmp_path / "demo" / "thesis.tex").exists()
