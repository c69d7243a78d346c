"""Question answering as other tools write it: lists of paragraphs, questions without ids, odd positions."""

import json

import pytest

import mybert
from mybert.cli import main
from mybert.files.source import Source
from mybert.finetuning import TASKS
from mybert.finetuning.data import DataRow
from mybert.finetuning.tasks.steps import read_examples, read_task_rows

CONTEXT = "Ada lives in  London.\nShe was born in Warsaw, and Warsaw is old."
QUESTION = {"question": "Where?", "answers": [{"text": "London", "answer_start": 14}]}
PARAGRAPH = {"context": CONTEXT, "qas": [QUESTION | {"id": "a"}, QUESTION | {"id": "b", "is_impossible": False}]}
WITHOUT_IDS = {"context": CONTEXT, "qas": [QUESTION, QUESTION]}
FORMS = {
    "squad.json": {"version": "1", "data": [{"title": "t", "paragraphs": [PARAGRAPH]}]},
    "simpletransformers.json": [PARAGRAPH],
    "one_line.jsonl": PARAGRAPH,
    "articles.json": [{"paragraphs": [PARAGRAPH]}],
    "paragraphs_in_data.json": {"data": [PARAGRAPH]},
    "cdqa.json": {"data": [{"paragraphs": [WITHOUT_IDS]}]},
    "farm.json": {"data": [{"paragraphs": [PARAGRAPH | {"document_id": 3}]}]},
}
TASK = TASKS["question_answering"]


def example_of(answers, **columns):
    row = DataRow({"question": "Where?", "context": CONTEXT, "answers": answers, **columns}, "x", 1)
    return TASK.examples([row], labeled=True)[0]


@pytest.mark.parametrize("name", FORMS)
@pytest.mark.parametrize("in_memory", [False, True])
def test_case_16_questions_are_read_in_every_form(tmp_path, name, in_memory):
    data = FORMS[name]
    (tmp_path / name).write_text(json.dumps(data))
    rows = data if isinstance(data, list) else data.get("data", [data])
    found = read_examples(TASK, Source.of(rows if in_memory else tmp_path / name))
    assert [example.answers for example in found] == [((14, "London"),)] * 2
    assert [example.id for example in found] == (["1", "2"] if name == "cdqa.json" else ["a", "b"])


def test_case_16_commands_read_a_list_of_paragraphs(tmp_path, models, capsys):
    (tmp_path / "t.json").write_text(json.dumps([PARAGRAPH]))
    squad = {"data": [{"paragraphs": [PARAGRAPH]}]}
    (tmp_path / "squad.json").write_text(json.dumps(squad))
    model, data, expected = str(models / "squad"), str(tmp_path / "t.json"), str(tmp_path / "squad.json")
    assert mybert.evaluate(model, data, use_cpu=True) == mybert.evaluate(model, expected, use_cpu=True)
    assert mybert.evaluate(model, [PARAGRAPH], use_cpu=True) == mybert.evaluate(model, expected, use_cpu=True)
    assert mybert.predict(model, data, use_cpu=True) == mybert.predict(model, expected, use_cpu=True)
    assert len(mybert.predict(model, [PARAGRAPH], use_cpu=True)) == 2
    train = ["finetune", model, "--output_dir", str(tmp_path / "out"), "--task", "squad", "--max_length", "32"]
    train += ["--doc_stride", "4", "--max_steps", "1", "--use_cpu", "--save_strategy", "no", "--train_file", data]
    assert main([*train, "--validation_file", data]) == 0
    capsys.readouterr()


@pytest.mark.parametrize("name", ["t.json", "t.csv"])
def test_case_16_a_file_for_another_task_names_its_columns(tmp_path, name):
    rows = {"version": "1", "data": [{"text": "a", "label": "x"}, {"text": "b", "label": "y"}]}
    (tmp_path / name).write_text(json.dumps(rows) if name == "t.json" else "text,label\na,x\nb,y\n")
    source = Source.of(tmp_path / name)
    assert [example.label for example in read_examples(TASKS["classification"], source)] == ["x", "y"]
    with pytest.raises(
        ValueError, match=r"has no columns 'question', 'answers' and 'context'; its columns are 'text'"
    ):
        read_examples(TASK, source)


def test_case_16_questions_for_classification_name_their_task(tmp_path):
    (tmp_path / "q.json").write_text(json.dumps([PARAGRAPH]))
    with pytest.raises(ValueError, match=r"and label_column='NAME'; task='question_answering' reads questions with"):
        read_examples(TASKS["classification"], Source.of(tmp_path / "q.json"))


def test_case_16_columns_called_as_squads_keys_stay_columns(tmp_path):
    rows = [{"text": "a", "label": "x", "paragraphs": ["b"], "qas": "c"}, {"text": "b", "label": "y", "qas": []}]
    read = read_task_rows(TASKS["classification"], Source.of(rows), labeled=True)
    assert [row.values for row in read] == rows


@pytest.mark.parametrize("start", [14, 14.0, "14", "14.0", " 14 "])
def test_case_15_answer_start_may_be_a_whole_float(start):
    for answers in (
        [{"text": "London", "answer_start": start}],
        {"text": "London", "answer_start": start},
        {"text": ["London"], "answer_start": [start]},
    ):
        assert example_of(answers).answers == ((14, "London"),)
    example = example_of("Warsaw", answer_start=start)
    assert example.answers == ((38, "Warsaw"),) and example.moved


@pytest.mark.parametrize("start", [None, "", float("nan"), -1, "-1.0"])
def test_case_15_an_answer_without_a_start_is_looked_for(start):
    example = example_of([{"text": "Warsaw", "answer_start": start}])
    assert example.answers == ((38, "Warsaw"),) and not example.moved


@pytest.mark.parametrize("start", [14.5, "14.5", "x", [14], "1_4", float("inf")])
def test_case_15_another_answer_start_is_an_error(start):
    with pytest.raises(ValueError, match=r"x, row 1: .* as answers; answer_start is '.*'; expected a whole number"):
        example_of([{"text": "London", "answer_start": start}])


def test_case_15_an_id_may_be_a_whole_float():
    assert [example_of("London", id=name).id for name in (7, 7.0, "7.0", " 7 ")] == ["7", "7", "7.0", "7"]


@pytest.mark.parametrize(
    ("text", "start", "place", "found", "moved"),
    [
        (" London", 13, 14, "London", False),
        (" London ", 14, 14, "London", False),  # the position of the answer without the blank
        ("London\n", 14, 14, "London", False),
        (" Warsaw ", 49, 50, "Warsaw", False),
        (" Warsaw ", 44, 50, "Warsaw", True),
        ("in London", 10, 10, "in  London", False),  # another number of blanks
        ("London. She", 14, 14, "London.\nShe", False),
        ("Paris ", 3, -1, "Paris ", False),
    ],
)
def test_blanks_around_and_within_answers_do_not_count(text, start, place, found, moved):
    example = example_of([{"text": text, "answer_start": start}])
    assert (example.answers, example.moved) == (((place, found),), moved)


@pytest.mark.parametrize("text", ["{'text': ['London'], 'answer_start': [14]}", "['London']", '["London"]'])
def test_written_lists_are_no_answers(text):
    with pytest.raises(ValueError, match=r"x, row 1: .* as answers; expected a list \(.jsonl, .parquet\)"):
        example_of(text)


def test_answers_in_brackets_that_the_text_has_stay():
    row = DataRow({"question": "q", "context": "see ['a'] there", "answers": "['a']"}, "x", 1)
    assert TASK.examples([row], labeled=True)[0].answers == ((4, "['a']"),)
