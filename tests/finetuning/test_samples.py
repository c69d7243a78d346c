import re
from dataclasses import replace

import numpy as np
import pytest
import torch
from sklearn.utils.class_weight import compute_class_weight

from mybert.finetuning import TASKS, finetune, plan_finetuning
from mybert.finetuning.data import DataRow, Labels, TaskData, joining_sign, listed
from mybert.finetuning.tasks.data_report import data_lines, data_warnings, unknown_share_warning
from mybert.finetuning.tasks.losses import ClassLoss
from mybert.finetuning.tasks.steps import is_empty
from mybert.finetuning.tasks.texts import TextExample
from mybert.finetuning.training.preparation import sample, split_off
from mybert.finetuning.training.trainer import TaskLoss, balanced_weights

ROWS = [
    (f"the {noun} sat {'happy' if good else 'sad'} {n}", "good" if good else "bad")
    for n, noun in enumerate(["cat", "dog", "tree", "mat", "fish"] * 8)
    for good in (n % 4 == 0,)
]
CLASSIFICATION = TASKS["classification"]
EXAMPLES = [TextExample((text,), label) for text, label in ROWS]


@pytest.fixture
def arguments(short_run):
    return lambda rows=ROWS, **settings: short_run(
        train_file=rows, **{"per_device_train_batch_size": 8, "num_train_epochs": 2} | settings
    )


def data(examples):
    return TaskData(examples, {"input_ids": [[0] * 5 for _ in examples]}, "train.tsv")


def test_a_share_is_held_out_by_class_and_seed():
    kept, held_out = split_off(CLASSIFICATION, EXAMPLES, 0.2, seed=1)
    assert len(kept) == 32 and len(held_out) == 8
    assert sum(example.label == "good" for example in held_out) == 2
    assert sorted(map(str, kept + held_out)) == sorted(map(str, EXAMPLES))
    assert kept == [example for example in EXAMPLES if example in kept]
    assert split_off(CLASSIFICATION, EXAMPLES, 0.2, seed=1) == (kept, held_out)
    assert split_off(CLASSIFICATION, EXAMPLES, 0.2, seed=2) != (kept, held_out)
    rare = [*EXAMPLES, TextExample(("alone",), "once")]
    assert rare[-1] in split_off(CLASSIFICATION, rare, 0.2, seed=1)[0]
    with pytest.raises(ValueError, match="validation_split gives 0 of 40 examples; expected at least"):
        split_off(CLASSIFICATION, EXAMPLES, 0.001, seed=1)


def test_equal_texts_stay_together_and_are_counted(arguments, look, caplog):
    kept, held_out = split_off(CLASSIFICATION, [*EXAMPLES, *EXAMPLES[:10], *EXAMPLES[:5]], 0.2, seed=1)
    assert not {example.texts for example in kept} & {example.texts for example in held_out}
    assert len({example.texts for example in held_out}) == 8
    assert len(split_off(CLASSIFICATION, EXAMPLES[:4] * 4, 0.1, seed=1)[1]) == 4
    for settings in ({"validation_split": 0.2}, {"folds": 2}, {}):
        caplog.clear()
        run = arguments([*ROWS, *ROWS[:3], *ROWS[:1]], **settings)
        look(run)[1]
        said = "7 of 44 training examples have a text that occurs several times; equal texts are kept together"
        assert (said in caplog.text) == bool(settings)


def test_samples_keep_the_proportions():
    drawn = sample(EXAMPLES, 12, seed=3)
    assert len(drawn) == 12 and sum(example.label == "good" for example in drawn) == 3
    assert sample(EXAMPLES, 100, seed=3) == EXAMPLES


def test_max_train_samples_does_not_change_the_held_out_part(arguments, look):
    runs = [
        look(run)[1] for run in (arguments(validation_split=0.2, max_train_samples=count) for count in (None, 8, 20))
    ]
    assert [len(run.train.examples) for run in runs] == [32, 8, 20]
    assert len({tuple(run.validation[""].examples) for run in runs}) == 1


def test_max_train_samples_above_the_number_of_examples_is_a_warning(arguments, look, caplog):
    for count, is_said in ((1000, True), (40, False)):
        caplog.clear()
        assert len(look(arguments(max_train_samples=count))[1].train.examples) == 40
        said = "max_train_samples is 1,000, but there are 40 training examples, all of which are used"
        assert (said in caplog.text) == is_said


def test_validation_data_of_a_folder_is_not_mixed_with_a_held_out_part(short_run, tmp_path):
    for name in ("train.tsv", "dev.tsv"):
        (tmp_path / name).write_text("sentence\tlabel\na cat\t1\na dog\t0\n")
    settings = {"task": "sst2", "data_dir": str(tmp_path)}
    with pytest.raises(ValueError, match=r"0\.5 and .* has validation data \(dev\.tsv\); use either data_dir, or"):
        short_run(**settings, validation_split=0.5)
    assert plan_finetuning(short_run(**settings, folds=2)).files.validation_file is None
    assert plan_finetuning(short_run(**settings)).files.validation_file == [str(tmp_path / "dev.tsv")]


def test_balanced_weights_and_their_loss_are_the_reference():
    labels = [0, 0, 0, 1, 0, 2, 0]
    weights = balanced_weights(TaskData([], {"labels": labels}, ""), 3)
    expected = compute_class_weight("balanced", classes=np.arange(3), y=labels)
    assert torch.allclose(weights, torch.tensor(expected, dtype=torch.float32))
    tags = balanced_weights(TaskData([], {"labels": [[-100, 0, 0, -100], [0, 1]]}, ""), 3)
    assert tags.tolist() == pytest.approx([4 / 2 / 3, 2.0, 1.0])
    logits, targets = torch.randn(2, 4, 3, requires_grad=True), torch.tensor([[0, 1, -100, 2], [-100, 0, 0, 1]])
    loss = TaskLoss(ClassLoss(weights))
    kept = targets.reshape(-1) >= 0
    single = torch.nn.functional.cross_entropy(
        logits.reshape(-1, 3)[kept], targets.reshape(-1)[kept], reduction="none"
    )
    own = weights[targets.reshape(-1)[kept]]
    for count in (6, None):  # of the labels
        found = loss({"logits": logits}, {"labels": targets}, num_items_in_batch=count)
        assert torch.allclose(found, (single * own).sum() / 6)
    smooth = torch.nn.functional.cross_entropy(
        logits.flatten(0, 1), targets.flatten(), weights, reduction="sum", label_smoothing=0.1
    )
    assert torch.allclose(TaskLoss(ClassLoss(weights, 0.1))({"logits": logits}, {"labels": targets}), smooth / 6)
    nothing = {"labels": torch.full_like(targets, -100)}  # within a very long word
    for none in (None, 0):
        assert loss({"logits": logits}, nothing, num_items_in_batch=none) == 0
        assert loss({"logits": logits.detach()}, nothing, num_items_in_batch=none).isnan()


def test_rows_without_text_or_label_are_left_out_where_asked(arguments, look, tmp_path, caplog):
    rows = [*ROWS, ("", "good"), ("the cat", ""), ("  ", "bad")]
    with pytest.raises(ValueError, match=r"train_file, row 41: an empty text"):
        finetune(arguments(rows))
    assert not (tmp_path / "out").exists()
    settings = arguments(rows, skip_empty=True)
    with caplog.at_level("INFO", logger="mybert"):
        run = look(settings)[1]
    assert len(run.train.examples) == 40
    assert "3 of 43 rows have no text or no label and are left out" in caplog.text
    question = {"question": "who", "context": "the cat sat", "answers": "the cat"}
    tagged = {"tokens": "the cat", "tags": ["a", "b"]}
    for task, whole, lacking in (
        (CLASSIFICATION, {"text": "a cat", "label": 0}, [{"text": " "}, {"label": " "}]),
        (
            TASKS["question_answering"],
            question,
            [{"question": " "}, {"context": ""}, {"answers": []}, {"answers": {"text": [], "answer_start": []}}],
        ),
        (TASKS["tagging"], tagged, [{"tokens": " "}, {"tokens": []}, {"tags": " "}, {"tags": []}]),
    ):
        without = [{name: whole[name] for name in whole if name != left_out} for left_out in whole]
        rows_without = [DataRow(row, "data", 1) for row in (*without, *(whole | what for what in lacking))]
        assert all(is_empty(task, row) for row in rows_without)
        assert not is_empty(task, DataRow(whole, "data", 1))


def test_data_is_described_in_80_columns():
    long = TextExample(("the cat " * 40,), "good")
    lines = data_lines(CLASSIFICATION, data([long, *EXAMPLES]))
    assert lines[0] == "Training data: 41 examples."
    assert [line.split() for line in lines[1:3]] == [["bad", "30", "73.2%"], ["good", "11", "26.8%"]]
    assert lines[3] == "The first example (good):"
    assert lines[-1] == "Length: 5.0 tokens on average, 5 at most (max_length 128)."
    assert all(len(line) <= 80 for line in lines)
    several = [TextExample(("text",), frozenset(labels)) for labels in ("ab", "a")]
    head, *counted = data_lines(TASKS["multilabel"], data(several))[1:4]
    assert head == "Labels, in percent of the examples, each of which may have several:"
    assert [line.split() for line in counted] == [["a", "2", "100.0%"], ["b", "1", "50.0%"]]


def test_data_lines_of_numbers_have_their_range_and_spread():
    lines = data_lines(TASKS["regression"], data([TextExample(("text",), value) for value in (1.0, 2.5, 4.0)]))
    assert lines[1] == "Values in 'score': 1 to 4, mean 2.5, standard deviation 1.225."


@pytest.mark.parametrize(
    ("names", "is_asked"),
    [("12345", True), ("123", True), ("01234", False), ("1246", False), ("12", False), ("abc", False)],
)
def test_data_lines_of_classes_that_may_be_grades_offer_regression(names, is_asked):
    lines = data_lines(CLASSIFICATION, data([TextExample(("text",), name) for name in names]))
    assert (f"Are the classes 1 to {len(names)} grades, such as stars? Then their order counts:" in lines) == is_asked
    assert ("  --task regression --label_column label" in lines) == is_asked


@pytest.mark.parametrize("ids", [[[1, 2, 3]], [np.array([1, 2, 3])], [[[1, 2, 3], [1]]]])
def test_lengths_are_those_of_sequences_of_every_kind_of_task(ids):
    found = data_lines(CLASSIFICATION, TaskData(EXAMPLES[:1], {"input_ids": ids}, ""))
    assert found[-1] == "Length: 3.0 tokens on average, 3 at most (max_length 128)."


@pytest.mark.parametrize(
    ("examples", "message"),
    [
        ([TextExample((f"text {n}",), f"id{n}") for n in range(100)], "100 classes in 'label', 100 of them with"),
        ([TextExample((f"text {n}",), f"{n},5") for n in range(100)], "is this a number? For"),
        ([TextExample(("text",), label) for label in ("a;b", "b;c", "a;c", "c")], "joined by ';', as 'a;b'"),
        ([TextExample((f"text {n}",), "no" if n else "yes") for n in range(100)], "99.0% of the examples"),
        ([TextExample((f"text {n}",), ["Good", "good"][n % 2]) for n in range(9)], "'Good' and 'good' look alike"),
        ([TextExample((f"text {n}",), ["x", "x\u200b"][n % 2]) for n in range(9)], r"'x' and 'x\u200b' look alike"),
        ([TextExample((f"text {n}",), ["R&D", "R&amp;D"][n % 2]) for n in range(9)], "'R&D' and 'R&amp;D' look alike"),
        ([TextExample((f"text {n}",), ["1", "01", "2"][n % 3]) for n in range(9)], "'1' and '01' look alike"),
        ([TextExample((["a", ""][n % 2], "b"), "xy"[n % 2]) for n in range(4)], "2 of 4 training examples have"),
        ([TextExample(("same",), "xy"[n % 2]) for n in range(4)], "One text appears in the training data"),
        # SNLI's files, and its copy on the Hub.
        ([TextExample((f"text {n}",), ["yes", "no", "-"][n % 3]) for n in range(9)], "3 examples are of class '-'"),
        (
            [TextExample((f"text {n}",), str(n % 4 - 1)) for n in range(12)],
            "3 examples are of class '-1', which means",
        ),
        (
            [TextExample((f"text {n}",), f'"{"xy"[n % 2]}"') for n in range(9)],
            """The class '"x"' is in quotes; in CSV""",
        ),
        (
            [TextExample((f"{n} sing ##ing",), "xy"[n % 2]) for n in range(9)],
            "9 of 9 training examples have pieces such",
        ),
        ([TextExample((str(n),), "xy"[n % 2]) for n in range(9)], "All training texts are numbers; are they ids?"),
        ([TextExample((["nan", "a", "\\N", "b"][n],), "xy"[n % 2]) for n in range(4)], "2 training texts are nan or"),
    ],
)
def test_data_warnings_of_suspicious_data_name_the_problem(examples, message):
    assert any(message in warning for warning in data_warnings(CLASSIFICATION, data(examples), {}))
    assert data_warnings(CLASSIFICATION, data(EXAMPLES), {}) == []


@pytest.mark.parametrize(
    "names", [["-1", "0", "1"], ["-2", "-1", "0", "1", "2"], ["+", "-"], ["0", "1", "2"], ["-", "?"]]
)
def test_data_warnings_of_signs_and_negative_grades_are_none(names):
    examples = [TextExample((f"{text} {name}",), name) for name in names for text in "ab"]
    assert data_warnings(CLASSIFICATION, data(examples), {}) == []


def test_names_of_ids_says_which_class_each_is(caplog):
    caplog.set_level("INFO", "mybert")
    labels = Labels(("ham", "spam"))
    assert labels.names_of(["1", "0", "1"], "dev.csv") == {"1": "spam", "0": "ham"}
    assert caplog.messages == ["dev.csv: its labels are read as classes: 0 is 'ham', 1 is 'spam'."]
    caplog.clear()
    labels.names_of(["spam", "ham"], "dev.csv")
    assert caplog.messages == []


def test_data_warnings_of_validation_data_of_one_class_name_it():
    examples = [TextExample((f"text {n}",), "xy"[n % 2]) for n in range(9)]
    new = [replace(example, texts=("new",)) for example in examples]
    (message,) = data_warnings(CLASSIFICATION, data(examples), {"dev": data(new[::2])})
    assert message == "All 5 validation examples (dev) are of class 'x'; scores on them say nothing about the others."
    assert data_warnings(CLASSIFICATION, data(examples), {"dev": data(new), "test": data(new[:1])}) == []


def test_labels_that_look_joined_are_asked_about():
    labels = Labels(("a;b", "b;c"))
    with pytest.raises(ValueError, match=r"the label 'a;c'; .* joined by ';' \(task='multilabel'\)\?"):
        labels.ids(["a;c"], "dev.csv")
    with pytest.raises(ValueError, match=r"expected one of 'a;b', 'b;c'\.$"):
        labels.ids(["d"], "dev.csv")


def test_data_warnings_of_several_labels_are_not_of_numbers():
    joined = [TextExample(("text",), frozenset([name])) for name in ("a/b", "b/c", "a/c")]
    assert "--label_separator '/'" in data_warnings(TASKS["multilabel"], data(joined), {})[0]
    numbers = [TextExample((f"text {n}",), frozenset([str(n)])) for n in range(30)]
    assert "an id or a text" in data_warnings(TASKS["multilabel"], data(numbers), {})[0]


@pytest.mark.parametrize("names", [["A", "A+", "B", "B+"], ["rec/autos", "sci/med"], ["1,5", "1,0", "2,5", "2,0"], []])
def test_joining_sign_of_single_labels(names):
    assert joining_sign(names) == ""


@pytest.mark.parametrize("ids", [[2, 1, 1, 9, 8, 3], np.array([2, 1, 1, 9, 8, 3]), [[2, 1, 1, 9], [8, 3]]])
def test_texts_of_another_language_are_said(tokenizer, ids):
    """The pieces 8 and 9 are known, 1 is [UNK]; [CLS] and [SEP] do not count."""
    assert tokenizer.convert_ids_to_tokens([1, 2, 3]) == ["[UNK]", "[CLS]", "[SEP]"]
    known = [[9] * 19] if isinstance(ids[0], list) else [9] * 19
    found = [
        unknown_share_warning(TaskData(EXAMPLES[:1], {"input_ids": [ids, *more]}, ""), tokenizer)
        for more in ([], [known])
    ]
    assert found[0].startswith("50 % of the tokens are [UNK], from which nothing can be learned")
    assert found[1] == ""
    assert unknown_share_warning(TaskData(EXAMPLES[:1], {"labels": [1]}, ""), tokenizer) == ""


def test_texts_that_are_validated_on_and_learned_are_said():
    (warning,) = data_warnings(CLASSIFICATION, data(EXAMPLES), {"": data(EXAMPLES[:3])})
    assert "3 of 3 validation examples are in the training data as well" in warning


def test_labels_that_leave_no_mark_between_them_are_an_error(arguments, look):
    rows = [{"text": "a cat", "labels": ["a,b", "c;d|e"]}, {"text": "a dog", "labels": ["x"]}]
    settings = arguments(rows, task="multilabel")
    with pytest.raises(ValueError, match=r"train_file has labels with , ; \|: none of them could separate"):
        look(settings)[1]


@pytest.mark.parametrize("mark", [",", ";", "|"])
def test_the_mark_between_labels_is_found_and_remembered(arguments, look, mark):
    rows = [(text, mark.join(["animal", label]) if n % 2 else label) for n, (text, label) in enumerate(ROWS)]
    settings = arguments(rows, task="multilabel", label_column="label")
    run = look(settings)[1]
    assert set(run.labels.names) == {"animal", "good", "bad"}
    assert run.task.label_separator == mark


def test_two_marks_between_labels_are_asked_for(arguments, look):
    rows = [(text, "a|b, c" if n else "a|d") for n, (text, _) in enumerate(ROWS)]
    settings = arguments(rows, task="multilabel", label_column="label")
    with pytest.raises(ValueError, match=r"has ',' and '\|' in 'label'; set label_separator"):
        look(settings)[1]
    settings = arguments(rows, task="multilabel", label_column="label", label_separator="|")
    assert set(look(settings)[1].labels.names) == {"a", "b, c", "d"}


@pytest.mark.parametrize(("count", "last", "more"), [(20, "c19", ""), (21, "c19", ", ...")])
def test_an_unknown_label_shows_at_most_twenty_known_ones(count, last, more):
    labels = Labels(tuple(f"c{number}" for number in range(count)))
    with pytest.raises(ValueError, match=rf"'x'; expected one of 'c0', .*'{last}'{re.escape(more)}\.$"):
        labels.ids(["c1", "x"], "data")


@pytest.mark.parametrize(("count", "text"), [(5, "0, 1, 2, 3, 4"), (6, "0, 1, 2, 3, 4, ...")])
def test_listed_shows_at_most_five_names(count, text):
    assert listed(list(map(str, range(count)))) == text


@pytest.mark.parametrize(("stride", "is_right"), [(-1, False), (0, True), (29, True), (30, False)])
def test_doc_stride_is_less_than_the_space_for_text(stride, is_right):
    if is_right:
        assert replace(TASKS["question_answering"], max_length=32, doc_stride=stride).doc_stride == stride
        return
    with pytest.raises(ValueError, match=f"doc_stride is {stride}; expected 0 or more and less than 30"):
        replace(TASKS["question_answering"], max_length=32, doc_stride=stride)
