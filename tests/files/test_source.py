"""Tables in memory: missing values are None, whatever the library's own form."""

import io

import numpy as np
import pytest

from mybert.files.progress import without_bars
from mybert.files.source import FileSource, HubSplit, InMemoryData, check_kept_columns, frame_rows, rows_of_batch
from mybert.files.tables import Reading

pandas = pytest.importorskip("pandas", reason="data frames are pandas'")

TEXTS = ["the cat", None, "a dog"]


@pytest.mark.parametrize("dtype", ["object", "string"])
def test_missing_texts_of_data_frames(dtype):
    frame = pandas.DataFrame({"text": pandas.Series(TEXTS, dtype=dtype), "number": [1.5, np.nan, 2]})
    assert list(InMemoryData("data", frame).column("text")) == TEXTS
    rows = [{"text": text, "number": number} for text, number in zip(TEXTS, (1.5, None, 2.0), strict=True)]
    assert list(frame_rows(frame)) == rows
    assert rows_of_batch({name: frame[name].to_numpy() for name in frame}) == rows


def test_a_column_whose_name_is_a_number():
    assert list(InMemoryData("data", pandas.DataFrame({0: TEXTS, 1: TEXTS})).column("0")) == TEXTS


def test_columns_of_one_name_are_refused():
    frame = pandas.DataFrame([["a", "b", "c"]], columns=["text", "label", "label"])
    with pytest.raises(ValueError, match="The DataFrame has 2 columns named 'label'; expected a name for each"):
        list(frame_rows(frame))
    assert list(InMemoryData("data", frame).column("text")) == ["a"]


def test_arrays_in_a_data_set_are_lists():
    datasets = pytest.importorskip("datasets", reason="a data set is datasets'")
    data = datasets.Dataset.from_dict({"text": [["the", "cat"], ["a", "dog"]]}).with_format("numpy")
    assert list(InMemoryData("data", data).column("text")) == [["the", "cat"], ["a", "dog"]]


def test_a_streamed_data_set_that_does_not_know_its_columns():
    datasets = pytest.importorskip("datasets", reason="a data set is datasets'")
    given = InMemoryData("data", datasets.IterableDataset.from_generator(lambda: iter([{"text": "a", "id": 1}])))
    assert list(given.column("text")) == ["a"]
    with pytest.raises(ValueError, match=r"^data, row 1 has no 'body', only 'text', 'id'"):
        list(given.column("body"))


def test_tables_of_pyarrow():
    pyarrow = pytest.importorskip("pyarrow")
    table = pyarrow.table({"text": TEXTS, "words": [["a"], None, []]})
    rows = [{"text": text, "words": words} for text, words in zip(TEXTS, (["a"], None, []), strict=True)]
    assert list(InMemoryData("data", table).rows()) == rows_of_batch(table) == rows
    assert list(InMemoryData("data", table).column("text")) == TEXTS


def test_a_column_that_a_table_in_memory_lacks_is_an_error():
    pandas = pytest.importorskip("pandas")
    frame = pandas.DataFrame({"text": ["a"]})
    with pytest.raises(ValueError, match="The DataFrame has no 'label', only 'text'"):
        list(frame_rows(frame, "label"))
    with pytest.raises(ValueError, match="'label' is no column of the data frame, but in one"):
        check_kept_columns(frame, ["text", "label"])


@pytest.mark.parametrize("form", ["pandas", "arrow", "numpy"])
def test_rows_of_a_data_set_in_any_format_are_values_of_python(form):
    datasets = pytest.importorskip("datasets", reason="a data set is datasets'")
    labels = datasets.Features(text=datasets.Value("string"), label=datasets.ClassLabel(names=["bad", "good"]))
    plain = datasets.Dataset.from_dict({"text": ["a", "b"], "label": [1, 0]}, features=labels)
    data = plain.add_column("other", [0, 0]).with_format(form, columns=["text", "label"])
    expected = [{"text": "a", "label": "good"}, {"text": "b", "label": "bad"}]
    assert list(InMemoryData("data", data).rows(Reading(class_names=True))) == expected
    assert list(frame_rows(plain.to_iterable_dataset().with_format(form), "text")) == [{"text": "a"}, {"text": "b"}]


def test_rows_of_a_data_set_have_what_a_transform_makes():
    datasets = pytest.importorskip("datasets", reason="a data set is datasets'")
    data = datasets.Dataset.from_dict({"text": ["a"], "label": [1]})
    data = data.cast_column("label", datasets.ClassLabel(names=["bad", "good"]))
    data = data.with_transform(lambda batch: {"text": [text.upper() for text in batch["text"]]})
    assert list(InMemoryData("data", data).rows(Reading(class_names=True))) == [{"text": "A"}]


def test_rows_of_batch_of_sets_are_lists_in_one_order():
    words = {f"{number}" for number in range(20)}
    batch = {"words": [words, frozenset("ba")], "nested": [{"of": {2, 1}}, {}]}
    expected = [{"words": sorted(words), "nested": {"of": [1, 2]}}, {"words": ["a", "b"], "nested": {}}]
    assert rows_of_batch(batch) == expected


def test_rows_of_standard_input_with_nothing_in_it_are_none(monkeypatch):
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(b"")))
    assert list(FileSource("-").rows(Reading(as_row=lambda line: {"text": line}))) == []


def test_rows_of_a_hub_split_where_bars_are_hidden_load_without_bars(monkeypatch):
    datasets = pytest.importorskip("datasets", reason="a data set is datasets'")
    shown, data = [], datasets.Dataset.from_dict({"text": ["a"]})

    def load(name, config):
        shown.append(datasets.are_progress_bars_disabled())
        return {"train": data}

    monkeypatch.setattr(datasets, "load_dataset", load)
    try:
        assert list(HubSplit("owner/name").rows()) == [{"text": "a"}]
        with without_bars():
            assert list(HubSplit("owner/name").rows()) == [{"text": "a"}]
    finally:
        datasets.enable_progress_bars()
    assert shown == [False, True]
