"""`mybert bench`: engines and types on a model of one's own."""

import json
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from transformers import AutoConfig

from mybert import MyBertForMultipleChoice, MyBertForQuestionAnswering, MyBertForSequenceClassification
from mybert.cli import main
from mybert.files.processes import own_process
from mybert.studies import BenchSettings, engines
from mybert.studies.engines import agreement, measure_engines
from mybert.studies.timing import evenly

TEXTS = ["the cat sat", "a dog ran under the tree", "it was very happy", "the cat slept on a mat today", "a dog"] * 4


def answers_of(folder):
    return {"type": lambda: [AutoConfig.from_pretrained(folder).model_type]}


@pytest.fixture
def in_this_process(run_processes_here):
    """Run separate processes' work in this process; returns the names of what would have started."""
    return run_processes_here(engines)


@pytest.fixture
def bench(tmp_path, capsys, in_this_process):
    """Run `mybert bench`; the cells of each row by its name, and all that is displayed."""

    def run(model, data, *flags):
        assert main(["bench", "--model", str(model), "--data", str(data), "--repeats", "1", *flags]) == 0
        shown = capsys.readouterr().out
        rows = [[cell.strip() for cell in line.split("|")[1:-1]] for line in shown.splitlines() if line[:2] == "| "]
        return {name: cells for name, *cells in rows if name}, shown

    return run


@pytest.fixture
def classifier(tmp_path, tiny_model):
    """A classifier that gives both labels, and its data."""
    (tmp_path / "texts.tsv").write_text("sentence\n" + "\n".join(TEXTS) + "\n")
    names = {"labels": ["0", "1"], "task": "sst2", "initializer_range": 0.5}
    return tiny_model(tmp_path / "model", MyBertForSequenceClassification, **names), tmp_path / "texts.tsv"


@pytest.mark.parametrize(
    ("found", "expected", "result"),
    [
        ([{"label": "a", "score": 0.5}], [{"label": "a", "score": 0.75}], (1.0, 0.25)),
        ([{"label": "b", "score": 0.5}], [{"label": "a", "score": 0.75}], (0.0, 0.0)),
        ([{"label": "LABEL_1", "score": 0.5}], [{"label": "1", "score": 0.5}], (1.0, 0.0)),
        ([{"score": 0.5}] * 2, [{"score": 0.5}, {"score": 1.5}], (0.5, 1.0)),
        ([{"label": "a", "score": 0.5}], [{"label": ["a"], "score": [0.5]}], (None, 0.0)),
        ([{"label": ["O", "B"], "score": [0.5, 0.5]}], [{"label": ["O", "O"], "score": [0.5, 0.5]}], (0.0, 0.0)),
        ([{"score": 0.25, "answer": "x"}], [{"answer": "x", "score": 0.5}], (1.0, 0.25)),
        ([{"word": "x"}], [{"label": "x"}], (None, 0.0)),
        ([[{"word": "x"}]], [{"label": "x"}], (None, 0.0)),
    ],
)
def test_agreement_counts_equal_words_and_measures_their_numbers(found, expected, result):
    assert agreement(found, expected) == result


@pytest.mark.parametrize("kind", [ImportError, RuntimeError, ValueError])
def test_own_model_without_openvino_is_measured_in_pytorch(bench, classifier, monkeypatch, in_this_process, kind):
    def not_installed(*_, **options):
        raise kind("OpenVINO is not installed; install it.")

    monkeypatch.setattr(engines, "export_openvino", not_installed)
    monkeypatch.setattr(engines, "bfloat16_features", lambda: ())
    rows, shown = bench(*classifier, "--num_sentences", "10", "--threads", "1")
    pipeline = "transformers' pipeline, batches of 32"
    assert in_this_process == [pipeline, "PyTorch"]
    assert list(rows) == [pipeline, f"{pipeline}, sorted", "PyTorch"]
    assert rows[pipeline][1] == "1.00"
    for _, _, peak, equal, difference in rows.values():
        assert float(peak.replace(",", "")) > 0 and equal == "100.0%" and float(difference) < 1e-5
    assert "model: 10 rows of" in shown and "Without OpenVINO: OpenVINO is not installed; install it." in shown
    assert shown.splitlines()[-1] == f"    mybert predict {' '.join(map(str, classifier))} --output predictions.csv"


def test_answering_sides_in_a_process_of_a_command_read_mybert(classifier, monkeypatch):
    """`import mybert` registers nothing there, as in the command `mybert` itself."""
    monkeypatch.setattr(sys, "argv", ["mybert"])
    with own_process("folder", engines.AnsweringSides, answers_of, str(classifier[0])) as ask:
        assert ask("answers", "type") == ["mybert"]


@pytest.mark.slow
def test_own_model_in_openvino_gets_the_commands_of_the_fastest(bench, classifier, monkeypatch):
    pytest.importorskip("nncf", reason="needs the extra 'openvino'")
    monkeypatch.setattr(engines, "bfloat16_features", lambda: ())
    monkeypatch.setattr(engines, "_ENOUGH", 0)
    monkeypatch.setattr(engines.AnsweringSides, "seconds", lambda self, name: 1.0 + ("int8" not in name))
    rows, shown = bench(*classifier)
    assert list(rows)[2:] == ["PyTorch", "OpenVINO", "OpenVINO int8"]
    assert rows["OpenVINO int8"][:2] == ["20.0", "2.00"] and rows["OpenVINO"][3] == "100.0%"
    model, data = classifier
    assert shown.splitlines()[-2:] == [
        f"    mybert convert openvino {model} {model}-openvino-int8 --dtype int8 --data {data} --text_column sentence",
        f"    mybert predict {model}-openvino-int8 {data} --output predictions.csv",
    ]


@pytest.mark.slow
def test_own_model_that_reads_pairs_is_calibrated_with_pairs(bench, tmp_path, tiny_model, monkeypatch):
    pytest.importorskip("nncf", reason="needs the extra 'openvino'")
    calibrated, export = [], engines.export_openvino

    def noted(*places, **options):
        calibrated.extend(Path(file).read_text() for file in options.get("data", ()))
        return export(*places, **options)

    monkeypatch.setattr(engines, "export_openvino", noted)
    data = tmp_path / "questions.jsonl"
    data.write_text(
        "".join(f'{{"question": "who sat", "context": "{text} {row}"}}\n' for row, text in enumerate(TEXTS))
    )
    model = tiny_model(tmp_path / "model", MyBertForQuestionAnswering, task="squad", initializer_range=0.5)
    rows, _ = bench(model, data)
    assert rows["OpenVINO"][3] == "100.0%"
    assert calibrated[0].splitlines() == [f"who sat ||| {TEXTS[row]} {row}" for row in range(0, 20, 2)]


def test_own_model_that_only_mybert_computes_is_measured_without_the_pipeline(
    bench, classifier, monkeypatch, change_config
):
    change_config(classifier[0], classifier_pooling="mean")
    monkeypatch.setattr(engines, "bfloat16_features", lambda: ())
    monkeypatch.setattr(engines, "_converted", lambda *_: {})
    rows, shown = bench(*classifier)
    assert list(rows) == ["PyTorch"] and rows["PyTorch"][3] == "100.0%"
    assert (
        f"Without transformers' pipeline, batches of 32: {classifier[0]}: classifier_pooling is 'mean', and" in shown
    )


def test_own_model_that_an_engine_cannot_read_is_an_error(bench, classifier, tmp_path, monkeypatch):
    (tmp_path / "made").mkdir()
    (tmp_path / "made" / "config.json").write_text('{"model_type": "gpt2"}')
    monkeypatch.setattr(engines, "bfloat16_features", lambda: ())
    monkeypatch.setattr(engines, "_converted", lambda *_: {"OpenVINO": tmp_path / "made"})
    with pytest.raises(ValueError, match="gpt2"):
        measure_engines(BenchSettings(model=str(classifier[0]), data=[str(classifier[1])]))


@pytest.mark.parametrize(
    ("task", "head", "row"),
    [
        ("squad", MyBertForQuestionAnswering, {"question": "who sat", "context": "the cat sat under the tree"}),
        ("multiple_choice", MyBertForMultipleChoice, {"text": "a dog", "choices": ["sat", "ran on a mat", "ate"]}),
    ],
)
def test_pipelines_of_transformers_read_the_texts_of_every_task(
    bench, tmp_path, tiny_model, monkeypatch, task, head, row
):
    monkeypatch.setattr(engines, "bfloat16_features", lambda: ())
    monkeypatch.setattr(engines, "_converted", lambda *_: {})
    (tmp_path / "rows.jsonl").write_text(f"{json.dumps(row)}\n" * 4)
    rows, _ = bench(tiny_model(tmp_path / "model", head, task=task, initializer_range=0.5), tmp_path / "rows.jsonl")
    assert len(rows) == 3 and all(cells[3] == "100.0%" for cells in rows.values())


def test_lone_surrogates_in_texts_for_calibration_are_replaced(tmp_path, monkeypatch):
    monkeypatch.setattr(engines, "export_openvino", lambda *places, **options: None)
    engines._converted("model", [["a \ud800 cat"]], tmp_path)
    assert (tmp_path / "calibration.txt").read_text(encoding="utf-8") == "a \uffff cat"


def test_own_model_on_a_single_row_is_one_sentence(classifier, tmp_path, capsys):
    (tmp_path / "one.txt").write_text("the cat\n")
    assert main(["bench", "--model", str(classifier[0]), "--data", str(tmp_path / "one.txt")]) == 2
    said = capsys.readouterr().err
    assert (
        said == f"mybert bench: {tmp_path}/one.txt has 1 rows; expected at least 2, since one half calibrates int8.\n"
    )


@pytest.mark.parametrize(
    ("rows", "number", "expected"),
    [(7, 3, [0, 2, 4]), (1279, 640, [*range(0, 1279, 2)][:640]), (3, 5, [0, 1, 2]), (0, 5, []), (6, 2, [0, 3])],
)
def test_evenly_takes_rows_from_all_parts(rows, number, expected):
    found = evenly(range(rows), number)
    assert len(found) == len(expected) and np.abs(np.subtract(found, expected)).max(initial=0) <= 1
    assert len(set(found)) == len(found)


def test_measure_engines_restores_the_number_of_threads(classifier, monkeypatch):
    used, before = [], torch.get_num_threads()
    monkeypatch.setattr(engines, "compare_engines", lambda *_: used.append(torch.get_num_threads()) or ("", ""))
    model, data = map(str, classifier)
    measure_engines(BenchSettings(model=model, data=[data], threads=before + 2))
    assert used == [before + 2] and torch.get_num_threads() == before


@pytest.mark.parametrize(
    ("flags", "sentence"),
    [
        (["--output", "nowhere/results.md"], "--output is 'nowhere/results.md'; expected a file in a folder"),
        (["--output", "."], "name another place."),
        (["--output", "texts.tsv", "--overwrite"], "texts.tsv is already read or written by this call; name another"),
        (["--workloads", "query"], "unknown flag '--workloads'"),
    ],
)
def test_bench_wrong_flags_are_errors(flags, sentence, classifier, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    before = sorted(tmp_path.iterdir())
    assert main(["bench", "model", "texts.tsv", *flags]) == 2
    shown = capsys.readouterr()
    assert sentence in shown.err and "Machine:" not in shown.out
    assert sorted(tmp_path.iterdir()) == before


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["nowhere", "texts.tsv"], "There is no folder nowhere; expected a model folder."),
        (["model"], "--data is not set"),
        ([], "--model and --data are not set"),
    ],
)
def test_bench_needs_a_model_and_texts(words, sentence, classifier, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert main(["bench", *words]) == 2
    assert sentence in capsys.readouterr().err


def test_bench_writes_its_table(bench, classifier, tmp_path, monkeypatch):
    monkeypatch.setattr(engines, "bfloat16_features", lambda: ())
    monkeypatch.setattr(engines, "_converted", lambda *_: {})
    _, shown = bench(*classifier, "--output", str(tmp_path / "table.md"))
    table = (tmp_path / "table.md").read_text()
    assert table.startswith("Machine: ") and "| PyTorch | " in table
    assert all(line in shown for line in table.splitlines() if line.startswith("|"))
