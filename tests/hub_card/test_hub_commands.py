"""`mybert card` and `mybert push --output`, as they are called from a shell."""

import contextlib
import errno
import io
import json
import re
import shutil
from pathlib import Path

import pytest
import yaml
from huggingface_hub import EvalResultEntry, ModelCard, parse_eval_result_entries

import mybert
from mybert import MyBertForSequenceClassification, MyBertForTokenClassification
from mybert.cards import examples
from mybert.cli import main
from mybert.hub_card import publishable_files, write_benchmark_results

# Head -> what its card's examples are called, and the Hub's name of its task.
HEADS = {
    "MyBertModel": (["Feature extraction"], "feature-extraction"),
    "MyBertForPreTraining": (["Fill mask", "Next sentence prediction"], "fill-mask"),
    "MyBertForMaskedLM": (["Fill mask"], "fill-mask"),
    "MyBertForNextSentencePrediction": (["Next sentence prediction"], None),
    "MyBertForSequenceClassification": (["Text classification"], "text-classification"),
    "MyBertForMultipleChoice": (["Multiple choice"], "multiple-choice"),
    "MyBertForTokenClassification": (["Token classification"], "token-classification"),
    "MyBertForQuestionAnswering": (["Question answering"], "question-answering"),
}
RESULT = {
    "task_type": "text-classification",
    "dataset_type": "glue",
    "dataset_name": "SST-2",
    "metric_type": "accuracy",
    "metric_value": 0.875,
}


@pytest.fixture
def copy_of(make_model_dir, tmp_path):
    """A model folder of the test's own."""
    return lambda head: shutil.copytree(make_model_dir(head), tmp_path / "tiny-bert")


def read_card(folder):
    return (folder / "README.md").read_text()


def examples_of(card):
    """(title, code, output) of each example."""
    return re.findall(r"### ([^\n]+)\n\n```python\n(.+?)\n```\n\n```text\n(.+?)\n```", card, flags=re.DOTALL)


def printed_by(code):
    output = io.StringIO()
    with contextlib.redirect_stdout(output):
        exec(code, {})
    return output.getvalue().strip()


@pytest.mark.parametrize("head", HEADS)
def test_the_examples_of_each_head_run_and_print_what_the_card_says(head, copy_of):
    folder = copy_of(head)
    assert main(["card", str(folder)]) == 0
    titles, tag = HEADS[head]
    found = examples_of(read_card(folder))
    assert [title for title, _, _ in found] == titles
    for title, code, output in found:
        assert output and printed_by(code) == output
        runs_without = title not in ("Next sentence prediction", "Multiple choice", "Question answering")
        assert code.startswith(examples.IMPORT) == runs_without
    card = ModelCard(read_card(folder))
    assert card.data.pipeline_tag == tag and "# tiny-bert\n" in card.text
    published = publishable_files(folder, "owner/name")["README.md"].decode()
    assert published.count("model='owner/name'") == len(titles) and str(folder) not in published


def test_every_head_is_tested():
    assert set(HEADS) == {name for name in mybert.__all__ if name.startswith(("MyBertFor", "MyBertModel"))}


@pytest.mark.parametrize(
    ("head", "texts", "expected"),
    [
        ("MyBertForMaskedLM", ["the [MASK] sat"], "run('the [MASK] sat')"),
        ("MyBertForNextSentencePrediction", ["the cat", "it's {0}"], """run('the cat', "it's {0}")"""),
        ("MyBertForQuestionAnswering", ["a cat", "the cat sat"], "run(question='a cat', context='the cat sat')"),
        ("MyBertForMultipleChoice", ["the", "cat", "dog", "mat"], "run(prompt='the', choices=['cat', 'dog', 'mat'])"),
        ("MyBertForPreTraining", ["the [MASK] sat"], "run('the [MASK] sat')"),
        ("MyBertForSequenceClassification", ["a cat", "it"], "run({'text': 'a cat', 'text_pair': 'it'})"),
    ],
)
def test_texts_of_ones_own(head, texts, expected, copy_of):
    folder = copy_of(head)
    assert main(["card", str(folder), "--texts", *texts]) == 0
    ((_, code, output),) = examples_of(read_card(folder))
    assert expected in code and printed_by(code) == output


def test_card_of_a_model_with_windows_chooses_their_pipeline(copy_of, change_config):
    record = {"task": "tagging", "doc_stride": 4}
    folder = change_config(copy_of("MyBertForTokenClassification"), finetuned_for=record)
    assert main(["card", str(folder)]) == 0
    ((_, code, output),) = examples_of(read_card(folder))
    assert "pipeline_class=WindowedTokenClassificationPipeline)" in code and printed_by(code) == output


def test_card_without_texts_has_an_invented_pair_unless_too_long(copy_of, change_config, monkeypatch):
    record = {"task": "mrpc", "text_pair_column": "#2 String"}
    folder = change_config(copy_of("MyBertForSequenceClassification"), finetuned_for=record)
    assert main(["card", str(folder)]) == 0
    ((_, code, output),) = examples_of(read_card(folder))
    assert "'text_pair': " in code and printed_by(code) == output
    monkeypatch.setattr(examples, "_OF_A_PAIR", (("a " * 300, "b " * 300), examples._OF_A_PAIR[1]))
    assert main(["card", str(folder), "--overwrite"]) == 0
    assert "## Examples" not in read_card(folder)


def test_a_model_with_a_bilstm_has_an_example_and_is_not_published(make_model_dir, tmp_path, capsys):
    from mybert.modeling_mybert.bilstm import MyBertBiLstmForTokenClassification

    folder = shutil.copytree(make_model_dir("MyBertForTokenClassification"), tmp_path / "tagger")
    MyBertBiLstmForTokenClassification.from_pretrained(folder).save_pretrained(folder)
    assert main(["card", str(folder)]) == 0
    ((_, code, output),) = examples_of(read_card(folder))
    assert code.startswith("import mybert\n") and printed_by(code) == output
    assert main(["push", str(folder), "owner/name", "--output_dir", str(tmp_path / "out")]) == 2
    error = capsys.readouterr().err
    assert "is of type 'mybert-bilstm'; expected mybert or bert: the code that goes to the Hub" in error
    assert not (tmp_path / "out").exists()


def test_card_command_writes_given_facts_to_the_card(copy_of, tmp_path):
    folder = copy_of("MyBertForSequenceClassification")
    results = tmp_path / "results.json"
    results.write_text(json.dumps([RESULT]))
    flags = "--name sentiment --license apache-2.0 --languages en ko --base_model me/base --datasets glue --tags tiny"
    limits = ["--limits", "It knows English only.", "It is tiny."]
    said = ["--summary", "Film reviews.", "--corpus", "Reviews of films.", "--results", str(results)]
    assert main(["card", str(folder), *flags.split(), *limits, *said, "--examples", "false"]) == 0
    card = ModelCard(read_card(folder))
    assert card.data.license == "apache-2.0" and card.data.language == ["en", "ko"]
    assert card.data.base_model == "me/base" and card.data.datasets == ["glue"] and "tiny" in card.data.tags
    (result,) = card.data.eval_results
    assert {name: getattr(result, name) for name in RESULT} == RESULT
    assert "| Task | Data set | Metric | Value |" in card.text and "| SST-2 | accuracy | 0.875 |" in card.text
    assert "# sentiment\n\nFilm reviews.\n" in card.text and "Reviews of films." in card.text
    assert "## Limits\n\n- It knows English only.\n- It is tiny.\n" in card.text
    assert "## Examples" not in card.text


def test_card_command_adds_to_lists_and_keeps_norwegian(copy_of):
    folder = copy_of("MyBertForSequenceClassification")
    (folder / "README.md").write_text("---\nlanguage: no\ndatasets: [glue]\ntags: [x, {a: b}]\n---\n\n# mine\n")
    assert main(["card", str(folder), "--datasets", "conll2003", "--tags", "x", "y"]) == 0
    data = ModelCard(read_card(folder)).data
    assert (data.language, data.datasets, data.tags) == ("no", ["glue", "conll2003"], ["x", {"a": "b"}, "y"])
    assert main(["card", str(folder), "--languages", "en"]) == 0
    assert ModelCard(read_card(folder)).data.language == ["no", "en"]


def test_write_benchmark_results_writes_a_file_for_each_benchmark_or_none(tmp_path):
    entries = [EvalResultEntry(dataset_id=f"owner/{name}", task_id="default", value=0.5) for name in "ab"]
    wrong = EvalResultEntry(dataset_id="owner/c", task_id="default", value=float("nan"))
    with pytest.raises(ValueError, match=r"The value of owner/c is nan; expected a finite number"):
        write_benchmark_results(tmp_path, [*entries, wrong])
    assert not [*tmp_path.iterdir()]
    paths = write_benchmark_results(tmp_path, entries)
    assert paths == [tmp_path / ".eval_results" / f"{name}.yaml" for name in "ab"]
    assert [parse_eval_result_entries(yaml.safe_load(path.read_text())) for path in paths] == [
        [each] for each in entries
    ]


def test_results_on_benchmarks_go_to_files_of_their_own(copy_of, tmp_path, capsys):
    folder = copy_of("MyBertForSequenceClassification")
    (folder / "README.md").write_text("mine\n")
    rows = [
        {"dataset_id": "cais/hle", "task_id": "default", "value": 20.9, "date": "2026-11-22"},
        {"dataset_id": "cais/hle", "task_id": "text", "value": 1.5, "source_url": "https://x.org", "source_name": "x"},
        {"dataset_id": "Idavidrein/gpqa", "task_id": "gpqa_diamond", "value": 0.4},
    ]
    file = tmp_path / "benchmarks.json"
    file.write_text(json.dumps(rows))
    assert main(["card", str(folder), "--benchmarks", str(file)]) == 0
    assert (folder / "README.md").read_text() == "mine\n"
    found = {path.name: path.read_text() for path in (folder / ".eval_results").iterdir()}
    assert found.keys() == {"hle.yaml", "gpqa.yaml"}
    assert found["gpqa.yaml"] == "- dataset:\n    id: Idavidrein/gpqa\n    task_id: gpqa_diamond\n  value: 0.4\n"
    read = parse_eval_result_entries(yaml.safe_load(found["hle.yaml"]))
    assert read == [EvalResultEntry(**row) for row in rows[:2]]
    assert main(["push", str(folder), "owner/name", "--output_dir", str(tmp_path / "out")]) == 0
    assert (tmp_path / "out" / ".eval_results" / "hle.yaml").read_text() == found["hle.yaml"]
    assert main(["push", str(folder), "owner/name", "--output_dir", str(tmp_path / "out"), "--overwrite"]) == 0
    capsys.readouterr()
    assert main(["card", str(folder), "--benchmarks", str(file)]) == 2
    assert "hle.yaml exists; name another place or pass --overwrite" in capsys.readouterr().err
    (folder / ".eval_results" / "hle.yaml").write_text("- value: 1\n")
    assert main(["push", str(folder), "owner/name", "--output_dir", str(tmp_path / "other")]) == 2
    assert "hle.yaml holds no results with dataset (id, task_id) and value (KeyError" in capsys.readouterr().err


BENCHMARK = {"dataset_id": "a/b", "task_id": "c", "value": 1}


@pytest.mark.parametrize(
    ("flag", "content", "message"),
    [
        ("--benchmarks", [BENCHMARK | {"dataset_id": "glue"}], "dataset_id is 'glue'; expected the name of a"),
        ("--benchmarks", [BENCHMARK | {"dataset_id": "a/../b"}], "dataset_id is 'a/../b'; expected the name of a"),
        ("--benchmarks", [BENCHMARK | {"dataset_id": "a/.."}], "a/.."),
        ("--benchmarks", [{"dataset_id": "a/b", "value": 1}], "given.json: a result is missing 1 required"),
        ("--benchmarks", [{"dataset": "a/b"}], "given.json does not hold a list of objects with fields of"),
        ("--benchmarks", [BENCHMARK | {"source_name": "x"}], "`source_url` must also be"),
        ("--benchmarks", [BENCHMARK | {"value": None}], "The value of a/b is None; expected a finite"),
        ("--benchmarks", [BENCHMARK | {"value": float("nan")}], "The value of a/b is nan; expected a finite"),
        ("--benchmarks", [BENCHMARK | {"task_id": 3}], "task_id of result 1 is 3; expected a text."),
        ("--results", [RESULT | {"metric_value": float("nan")}], "is nan; expected a finite number"),
        ("--results", [RESULT | {"task_type": None}], "given.json: task_type of result 1 is None; expected a text."),
        ("--results", [RESULT | {"metric_type": ["accuracy"]}], "metric_type of result 1 is ['accuracy']; expected"),
        ("--results", "[", "given.json, line 1: not JSON"),
        ("--results", {}, "given.json does not hold a list of objects with fields of EvalResult"),
        ("--results", [{"accuracy": 0.5}], "given.json does not hold a list of objects with fields of EvalResult"),
        ("--results", [{"task_type": "fill-mask"}], "given.json: a result is missing 4 required positional arguments"),
    ],
)
def test_of_results_that_cannot_be_used_nothing_is_written(flag, content, message, copy_of, tmp_path, capsys):
    folder = copy_of("MyBertForSequenceClassification")
    given, benchmarks = tmp_path / "given.json", tmp_path / "benchmarks.json"
    given.write_text(content if isinstance(content, str) else json.dumps(content))
    benchmarks.write_text(json.dumps([BENCHMARK]))
    assert main(["card", str(folder), "--no_examples", "--benchmarks", str(benchmarks), flag, str(given)]) == 2
    assert message in capsys.readouterr().err
    assert not (folder / ".eval_results").exists() and not (folder / "README.md").exists()


def test_metadata_is_not_added_when_benchmarks_may_not_be_replaced(copy_of, tmp_path):
    folder = copy_of("MyBertForSequenceClassification")
    (folder / "README.md").write_text("mine\n")
    file = tmp_path / "benchmarks.json"
    file.write_text(json.dumps([BENCHMARK]))
    assert main(["card", str(folder), "--benchmarks", str(file)]) == 0
    assert main(["card", str(folder), "--benchmarks", str(file), "--license", "mit"]) == 2
    assert (folder / "README.md").read_text() == "mine\n"


@pytest.mark.parametrize("flags", [["--overwrite"], ["--license", "mit"]])
def test_card_command_failing_in_the_benchmarks_leaves_the_card(flags, copy_of, tmp_path, monkeypatch, capsys):
    folder = copy_of("MyBertForSequenceClassification")
    (folder / "README.md").write_text("mine\n")
    file = tmp_path / "benchmarks.json"
    file.write_text(json.dumps([BENCHMARK]))
    write_bytes = Path.write_bytes

    def full(path, content):
        if path.name == "b.yaml":
            raise OSError(errno.ENOSPC, "No space left on device")
        return write_bytes(path, content)

    command = ["card", str(folder), "--no_examples", "--benchmarks", str(file), *flags]
    with monkeypatch.context() as patch:
        patch.setattr(Path, "write_bytes", full)
        assert main(command) == 2
    assert "the disk is full" in capsys.readouterr().err
    assert (folder / "README.md").read_text() == "mine\n" and not (folder / ".eval_results").exists()
    assert main(command) == 0
    assert (folder / "README.md").read_text() != "mine\n" and (folder / ".eval_results" / "b.yaml").is_file()


def test_a_card_that_is_there_is_kept(copy_of, capsys):
    folder = copy_of("MyBertModel")
    (folder / "README.md").write_text("by hand")
    assert main(["card", str(folder)]) == 2
    assert "README.md already exists; --overwrite replaces it" in capsys.readouterr().err
    assert read_card(folder) == "by hand"
    assert main(["card", str(folder), "--overwrite", "--no_examples"]) == 0
    assert re.findall("^## .+", ModelCard(read_card(folder)).text, flags=re.MULTILINE) == ["## Model"]


def test_card_command_on_a_runs_card_adds_metadata(copy_of, capsys):
    folder = copy_of("MyBertModel")
    assert main(["card", str(folder), "--no_examples", "--summary", "Made by a run."]) == 0
    text = ModelCard(read_card(folder)).text
    flags = ["--license", "mit", "--languages", "en", "ko", "--tags", "films", "mybert"]
    assert main(["card", str(folder), *flags]) == 0
    card = ModelCard(read_card(folder))
    assert (card.text, card.data.license, card.data.language) == (text, "mit", ["en", "ko"])
    assert card.data.tags == ["mybert", "films"] and card.data.pipeline_tag == "feature-extraction"
    before = read_card(folder)
    assert main(["card", str(folder), "--license", "mit", "--summary", "Another text."]) == 2
    assert "--overwrite replaces it" in capsys.readouterr().err and read_card(folder) == before
    for broken, message in (("a: [", "is not YAML"), ("- a", "is no map of names and values")):
        (folder / "README.md").write_text(f"---\n{broken}\n---\n")
        assert main(["card", str(folder), "--license", "mit"]) == 2
        assert message in capsys.readouterr().err


def test_hub_commands_wrong_flags_are_errors(copy_of, tmp_path, capsys):
    def error_of(*flags):
        assert main(["card", *map(str, flags)]) == 2
        error = capsys.readouterr().err.splitlines()[-1]
        assert error.startswith("mybert card: ") and error.endswith(".")
        return error

    folder = copy_of("MyBertForMaskedLM")
    assert "nowhere; expected a model folder" in error_of(tmp_path / "nowhere")
    assert "There is no file or folder" in error_of(folder, "--results", tmp_path / "nothing.json")
    assert "The text for fill-mask is 'a cat'; expected one with [MASK]" in error_of(folder, "--texts", "a cat")
    for head, task in (
        (MyBertForSequenceClassification, None),
        (mybert.MyBertForNextSentencePrediction, "next-sentence-prediction"),
        (mybert.MyBertForQuestionAnswering, "question-answering"),
        (mybert.MyBertForMultipleChoice, "multiple-choice"),
    ):
        head(mybert.MyBertConfig.from_pretrained(folder)).save_pretrained(folder)
        if task:
            assert f"{task} needs 2 texts or more, there is 1." in error_of(folder, "--texts", "a cat")
    assert not (folder / "README.md").exists()


def test_push_writes_the_folder_that_it_uploads(client, hub, copy_of, tmp_path, capsys):
    folder, output = copy_of("MyBertForTokenClassification"), tmp_path / "published"
    assert main(["card", str(folder)]) == 0
    before = {path.name: path.read_bytes() for path in folder.iterdir()}
    assert main(["push", str(folder), "owner/name", "--format", "mybert", "--output_dir", str(output)]) == 0
    assert {path.name: path.read_bytes() for path in folder.iterdir()} == before
    files = publishable_files(folder, "owner/name")
    assert {path.name for path in output.iterdir()} == set(files)
    assert "model='owner/name'" in read_card(output)
    assert json.loads((output / "config.json").read_text())["auto_map"]["AutoModelForTokenClassification"]
    MyBertForTokenClassification.from_pretrained(output)
    assert main(["push", str(folder), "owner/name", "--private", "--format", "mybert"]) == 0
    assert hub.repositories["owner/name"].private
    assert set(hub.files("owner/name")) == {*files, ".gitattributes"}
    assert f"{hub.url}/owner/name/commit/" in capsys.readouterr().out


def test_metadata_on_a_full_disk_leave_the_card(copy_of, monkeypatch, capsys):
    folder = copy_of("MyBertModel")
    assert main(["card", str(folder), "--no_examples"]) == 0
    before = read_card(folder)

    def full(path, data):
        path.write_text("half")
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr("mybert.hub_card.commands.metadata_save", full)
    assert main(["card", str(folder), "--license", "mit"]) == 2
    assert "README.md could not be written (the disk is full" in capsys.readouterr().err
    assert read_card(folder) == before and not list(folder.glob(".*"))
    (folder / "README.md").write_bytes(b"\xff\xfe")
    for command in (
        ["card", str(folder), "--license", "mit"],
        ["push", str(folder), "owner/name", "--output_dir", "x"],
    ):
        assert main(command) == 2
        assert "README.md is not UTF-8 text" in capsys.readouterr().err
