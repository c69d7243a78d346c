import json
import shutil

import pytest
from transformers import pipeline

from mybert.demo import DemoArguments, demo
from mybert.demo.run_demo import _read

SOURCES = {
    "kitchen": "bread soup flour oven salt butter knife plate spoon sugar".split(),
    "garden": "tree rose grass spade rain soil seed leaf bird worm".split(),
}


def write_sources(folder, documents=14):
    paths = []
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
    with pytest.raises(ValueError, match="or pass --overwrite"):
        demo(arguments(tmp_path, write_sources(tmp_path), **again))
    (out / "classifier" / "thesis.tex").write_text("years of work")
    with pytest.raises(ValueError, match=r"holds files that no run wrote \(classifier/thesis.tex\)"):
        demo(arguments(tmp_path, write_sources(tmp_path), overwrite=True, **again))
    assert json.loads((out / "report.json").read_text()) == written
    (out / "classifier" / "thesis.tex").unlink()
    demo(arguments(tmp_path, write_sources(tmp_path), overwrite=True, **again))


def test_read_names_that_differ_in_case_become_different_files(tmp_path):
    for folder, name in (("a", "Text"), ("b", "text")):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / f"{name}.txt").write_text("One sentence.\n\nAnother one.\n")
    assert list(_read(arguments(tmp_path, [str(tmp_path / "a"), str(tmp_path / "b")]))) == ["Text", "text_2"]


def test_demo_wrong_settings_are_errors(tmp_path):
    (tmp_path / "empty.txt").write_text("\n")
    with pytest.raises(ValueError, match=r"There is no text in .*empty\.txt"):
        demo(arguments(tmp_path, [str(tmp_path / "empty.txt")]))
    (tmp_path / "one.txt").write_text("One sentence. Another one.\n")
    with pytest.raises(ValueError, match="only one document"):
        demo(arguments(tmp_path, [str(tmp_path / "one.txt")]))
    (tmp_path / "two.txt").write_text("Short.\n\nShorter.\n")
    with pytest.raises(ValueError, match="too little text"):
        demo(arguments(tmp_path, [str(tmp_path / "two.txt")]))
    with pytest.raises(FileNotFoundError, match="nowhere"):
        demo(arguments(tmp_path, [str(tmp_path / "nowhere.txt")]))
    assert not (tmp_path / "demo").exists()
    for _ in range(2):  # an unfinished demo is replaced like any other
        with pytest.raises(ValueError, match="vocab_size is 9, but"):
            demo(arguments(tmp_path, write_sources(tmp_path), vocab_size=9, overwrite=True))
    with pytest.raises(ValueError, match=r"garden.txt is in .*demo, which the demo replaces"):
        demo(arguments(tmp_path, [str(tmp_path / "demo" / "text")], overwrite=True))
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
