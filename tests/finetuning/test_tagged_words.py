"""Words of taggers: how raw texts are cut into them, rows of one word each, and letters of tags that come last."""

import json
from dataclasses import replace

import numpy as np
import pytest
from transformers import pipeline

import mybert
from mybert.files.source import Source
from mybert.finetuning import TASKS, Predictor
from mybert.finetuning.data import DataRow, Labels
from mybert.finetuning.prediction import predictor
from mybert.finetuning.tasks.registry import read_task_record, task_record
from mybert.finetuning.tasks.steps import read_examples, read_task_rows
from mybert.finetuning.tasks.tagging import TaggedSentence
from mybert.pipelines import WindowedTokenClassificationPipeline, WordCut

SENTENCES = ["Ann 's cat sat , and Bob 's dog / cat ran .", "the dog sat — happy .", "Ann 's dog , Bob 's cat"] * 3
LABELED = [
    {"tokens": sentence.split(), "tags": ["B-PER" if word in ("Ann", "Bob") else "O" for word in sentence.split()]}
    for sentence in SENTENCES
]
TEXT = "Ann's cat—the dog's cat/dog.  Visit cat,dog"
CUT = ["Ann", "'s", "cat", "—", "the", "dog", "'s", "cat", "/", "dog", ".", "Visit", "cat", ",", "dog"]


@pytest.fixture(scope="module")
def tagger(tmp_path_factory, tune):
    folder = tmp_path_factory.mktemp("tagger") / "out"
    tune(folder, LABELED, task="tagging", max_steps=30, learning_rate=1e-2)
    return folder


def test_case_04_texts_are_cut_as_the_training_data(tagger):
    (row,) = mybert.predict(tagger, [TEXT], use_cpu=True)
    assert row["words"] == CUT and len(row["label"]) == len(CUT)
    assert all(entity["text"] == TEXT[entity["start"] : entity["end"]] for entity in row["entities"])
    (cut_before,) = mybert.predict(tagger, [CUT], use_cpu=True)
    assert cut_before["score"] == row["score"]
    # Also on the workers of an engine.
    batch = Predictor(tagger, use_cpu=True)({"text": [TEXT]})
    assert batch["words"] == [CUT]


@pytest.mark.parametrize("strategy", ["none", "first"])
def test_case_04_windowed_pipeline_has_the_words_of_predict(tagger, changed, strategy):
    record = json.loads((tagger / "config.json").read_text())["finetuned_for"]
    folder = changed(tagger, finetuned_for=record | {"doc_stride": 4, "max_length": 12})
    text = f"{TEXT} - Ann's. " * 3
    tag = pipeline(
        "token-classification", model=str(folder), device="cpu", pipeline_class=WindowedTokenClassificationPipeline
    )
    (row,) = mybert.predict(folder, [text], use_cpu=True)
    ignored = {"ignore_labels": []}
    answers = tag(text, aggregation_strategy=strategy, **ignored)
    spans = WordCut.from_record(record["word_cut"]).spans(text)
    if strategy == "none":
        first = {spans[0][0]: answers[0]} | {answer["start"]: answer for answer in answers}
        assert [first[start]["entity"] for start, _ in spans] == row["label"]
    else:
        wanted = [(item["start"], item["end"], item["label"]) for item in row["entities"]]
        found = [(item["start"], item["end"], item["entity_group"]) for item in answers if item["entity_group"] != "O"]
        assert found == wanted != []
        scores = dict(zip((start for start, _ in spans), row["score"], strict=True))
        for item in answers:
            of_words = [score for start, score in scores.items() if item["start"] <= start < item["end"]]
            assert item["score"] == pytest.approx(np.mean(of_words), abs=3e-6)
    assert tag(["", text], aggregation_strategy=strategy, **ignored)[1] == answers


def test_case_04_record_of_a_tagger_cuts_as_its_words(tmp_path, tune):
    joined = [{"tokens": ["Ann's", "cat/dog", "sat."], "tags": ["B-PER", "O", "O"]}] * 4
    tune(tmp_path / "out", joined, task="ner")
    record = json.loads((tmp_path / "out" / "config.json").read_text())["finetuned_for"]
    assert record["word_cut"] == WordCut.learn([row["tokens"] for row in joined]).record
    (row,) = mybert.predict(tmp_path / "out", ["Bob's cat/dog ran."], use_cpu=True)
    assert row["words"] == ["Bob's", "cat/dog", "ran."]
    assert mybert.predict(tmp_path / "out", ["Bob's cat/dog ran."], task="tagging", use_cpu=True) == [row]


def test_read_task_record_without_word_cut_has_usual_words():
    """As those of earlier versions."""
    record = {name: value for name, value in task_record("ner", TASKS["ner"]).items() if name != "word_cut"}
    _, task = read_task_record("model", record)
    (row,) = read_task_rows(TASKS["ner"], Source.of([{"tokens": "Obama's", "tags": "O"}]), labeled=False)
    assert task.examples([row], labeled=False, new=True)[0].words == ("Obama", "'s")
    with pytest.raises(ValueError, match=r"has .* as word_cut; expected .*Mapping"):
        read_task_record("model", record | {"word_cut": {"before": 3}})


def test_case_02_ideographs_are_words_and_thai_is_warned_of(models, caplog, monkeypatch):
    monkeypatch.setattr(predictor.Predictor, "rows_per_part", 2)
    answers = mybert.predict(models / "ner", ["小明在北京", "สวัสดีครับ", "ไทยไทย"], use_cpu=True)
    assert answers[0]["words"] == list("小明在北京") and answers[1]["words"] == ["สวัสดีครับ"]
    assert caplog.text.count("Texts in Thai have no spaces between words") == 1
    mybert.predict(models / "ner", [["สวัสดี", "ครับ"], "小明在北京 cat"], use_cpu=True)
    assert caplog.text.count("no spaces between words") == 1


KAGGLE = [
    ("Sentence: 1", "Bob", "B-per"),
    ("", "visited", "O"),
    ("", "Paris", "B-geo"),
    ("Sentence: 2", "Ada", "B-per"),
    ("", "ran", "O"),
]
NUMBERED = [{"sentence_id": 0, "words": "Bob", "labels": "B-per"}, {"sentence_id": 0, "words": "ran", "labels": "O"}]
NUMBERED += [{"sentence_id": 1, "words": word, "labels": "O"} for word in ("it", "is")]


def kaggle(mark=",", blank=""):
    return "\n".join(mark.join(row) for row in [("Sentence #", "Word", "Tag"), *KAGGLE])


@pytest.mark.parametrize("kind", ["t.csv", "t.tsv", "t.jsonl", "frame", "dataset", "rows"])
def test_case_05_rows_of_words_become_sentences(tmp_path, kind):
    rows = [dict(zip(("Sentence #", "Word", "Tag"), row, strict=True)) for row in KAGGLE]
    data = rows = [row | {"Sentence #": row["Sentence #"] or None} for row in rows]
    if kind == "frame":
        data = pytest.importorskip("pandas").DataFrame(rows)
    elif kind == "dataset":
        data = pytest.importorskip("datasets").Dataset.from_list(rows)
    elif kind == "t.jsonl":
        data = tmp_path / kind
        data.write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    elif kind != "rows":
        data = tmp_path / kind
        data.write_text(kaggle("," if kind == "t.csv" else "\t"))
    task = replace(TASKS["ner"], text_column="Word", label_column="Tag")
    examples = read_examples(task, Source.of(data))
    assert [example.words for example in examples] == [("Bob", "visited", "Paris"), ("Ada", "ran")]
    assert [example.tags for example in examples] == [("B-per", "O", "B-geo"), ("B-per", "O")]
    assert [example.row for example in examples] == [1, 4]


def test_case_05_a_model_is_trained_measured_and_used_on_rows_of_words(tmp_path, tune, monkeypatch):
    columns = {"text_column": "words", "label_column": "labels"}
    metrics = tune(tmp_path / "out", NUMBERED, validation_file=NUMBERED, task="ner", max_steps=2, **columns)
    assert {"per_f1", "precision"} <= metrics.keys()
    measured = mybert.evaluate(tmp_path / "out", NUMBERED, use_cpu=True)
    assert measured["f1"] == metrics["f1"]
    sentences = [["Bob", "ran"], ["it", "is"]]
    expected = mybert.predict(tmp_path / "out", sentences, use_cpu=True)
    found = mybert.predict(tmp_path / "out", NUMBERED, use_cpu=True)
    assert [row["label"] for row in found] == [tag for row in expected for tag in row["label"]]
    assert [row["score"] for row in found] == pytest.approx([score for row in expected for score in row["score"]])
    # Sentences are not cut where a part ends.
    monkeypatch.setattr(predictor.Predictor, "rows_per_part", 1)
    assert mybert.predict(tmp_path / "out", NUMBERED, use_cpu=True) == found


def test_a_part_whose_sentences_have_one_word_has_the_format_of_the_data(models, monkeypatch):
    rows = [{"sentence_id": number, "text": word} for number, word in enumerate("a the cat sat it".split())]
    rows[1]["sentence_id"] = 0
    expected = mybert.predict(models / "ner", rows, use_cpu=True)
    assert [type(row["label"]) for row in expected] == [str] * 5
    monkeypatch.setattr(predictor.Predictor, "rows_per_part", 2)
    assert mybert.predict(models / "ner", rows, use_cpu=True) == expected
    batches = predictor.Predictor(models / "ner", use_cpu=True)
    first = batches({"sentence_id": [1, 1], "text": ["a", "cat"]})
    assert batches({"sentence_id": [2], "text": ["a"]}).keys() == first.keys()
    assert batches({"sentence_id": [3, 3], "text": ["a cat", "it"]})["label"][0][0]  # whole texts


@pytest.mark.parametrize(
    "rows",
    [
        [{"words": word, "labels": tag} for _, word, tag in KAGGLE],
        [{"sentence_id": number, "words": word, "labels": tag} for number, (_, word, tag) in enumerate(KAGGLE)],
    ],
)
def test_case_05_rows_of_words_without_sentences_are_an_error(rows):
    task = replace(TASKS["tagging"], text_column="words", label_column="labels")
    with pytest.raises(ValueError, match=r"data has one word in every row, and no column that .* named sentence_id"):
        read_examples(task, Source.of(rows))


def test_rows_of_whole_sentences_with_their_number_stay_sentences():
    rows = [{"sentence_id": 0, "tokens": "a cat", "tags": "O O"}, {"sentence_id": 0, "tokens": "it", "tags": "O"}]
    assert len(read_examples(TASKS["ner"], Source.of(rows))) == 2
    lists = [{"tokens": ["a"], "tags": ["O"]}] * 2  # words in lists may be sentences of one word
    assert len(read_examples(TASKS["ner"], Source.of(lists))) == 2


SUFFIX = [TaggedSentence(("a", "cat", "sat", "a"), ("PER-B", "PER-I", "O", "LOC-B"))]


@pytest.mark.parametrize("name", ["ner", "tagging"])
def test_case_14_letters_that_come_last_are_of_entities(name, tokenizer):
    task = TASKS[name]
    labels = task.labels(SUFFIX, "x")
    assert labels.names == ("LOC-B", "LOC-I", "O", "PER-B", "PER-I")
    task = task.with_classes(labels)
    predictions = [("PER-B", "PER-I", "O", "O")]
    scores = task.measures(predictions, SUFFIX).scores()
    assert (scores["precision"], scores["recall"], scores["PER_f1"], scores["LOC_f1"]) == (1, 0.5, 1, 0)
    report = task.measures(predictions, SUFFIX).report()
    assert report.counted == "entities" and report.confusion["LOC", "O"] == 1
    resampled = task.measures(predictions, SUFFIX).resampled()(np.ones((1, 1)))
    assert resampled["recall"] == scores["recall"]
    inside = replace(task, continuation_labels="inside")
    data = inside.encode([TaggedSentence(("cats",), ("PER-B",))], labels, tokenizer, "x")
    assert data[0]["labels"] == [-100, 3, 4, -100]


@pytest.mark.parametrize(
    "tags", ["B-X M-X E-X O S-X", "B-X I-X L-X O U-X", "X-B X-I X-L O X-U", "B M E O S", "I-X I-X I-X O B-X"]
)
def test_tags_of_every_scheme_are_of_entities(tags):
    sentences = [TaggedSentence(tuple("abcde"), tuple(tags.split()))]
    task = TASKS["tagging"].with_classes(TASKS["ner"].labels(sentences, "x"))
    report = task.measures([sentences[0].tags], sentences).report()
    assert report.counted == "entities" and report.averages["micro"]["f1"] == 1
    assert report.classes["_" if tags[1] == " " else "X"]["support"] == 2


def test_case_14_entities_of_letters_that_come_last_are_predicted(tmp_path, tune):
    (tmp_path / "t.tsv").write_text("a cat sat\tO PER-B PER-I\nthe dog ran\tO PER-B O\n" * 4)
    settings = {"validation_file": tmp_path / "t.tsv", "max_steps": 30, "learning_rate": 1e-2}
    for task in ("ner", "tagging"):
        assert tune(tmp_path / task, tmp_path / "t.tsv", task=task, **settings)["PER_f1"] == 1
    first, second, *_ = mybert.predict(tmp_path / "ner", tmp_path / "t.tsv", use_cpu=True)
    assert [(entity["label"], entity["text"]) for entity in first["entities"]] == [("PER", "cat sat")]
    assert [(entity["label"], entity["text"]) for entity in second["entities"]] == [("PER", "dog")]


def test_words_in_memory_with_no_break_space_are_words(models):
    (row,) = mybert.predict(models / "ner", [["10\u00a0000", "cats"]], use_cpu=True)
    assert len(row["label"]) == 2


def test_words_of_a_text_with_no_break_space_keep_it():
    (example,) = read_examples(TASKS["ner"], Source.of([{"tokens": "10\u00a0000 euros", "tags": "B-NUM O"}]))
    assert example.words == ("10\u00a0000", "euros")


def test_labels_of_other_tags_name_tagging(user_error):
    with user_error("--task"):
        TASKS["ner"].labels([TaggedSentence(("a", "b"), ("DET", "NOUN"))], "x")
    assert TASKS["tagging"].with_classes(Labels(("DET", "NOUN"))).letters == "none"


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("case_13.tsv", "Aspirin\tB\ninhibits\tO\n\nIt\tO\nworks\tO\n"),
        ("case_14.tsv", "Ada lives\tPER-B O\nin London\tO LOC-B\n"),
        ("case_13.conll", "Aspirin B\ninhibits O\n\nIt O\n"),
    ],
)
def test_case_13_and_14_tagged_words_for_classification_name_their_task(tmp_path, name, content):
    (tmp_path / name).write_text(content)
    with pytest.raises(ValueError, match="task='ner' reads words with tags"):
        read_examples(TASKS["classification"], Source.of(tmp_path / name))


def test_examples_of_rows_out_of_order_are_warned_about(caplog):
    rows = [{"sentence_id": number, "tokens": "Bob", "tags": "O"} for number in (1, 1, 2, 1, 3)]
    task = TASKS["ner"]
    assert len(task.examples([DataRow(row, "t.csv", 1) for row in rows], labeled=True)) == 4
    (message,) = caplog.messages
    assert message.startswith("t.csv: the number of a sentence, '1', returns after another one, so its words are seve")
    caplog.clear()
    task.examples([DataRow(row, "t.csv", 1) for row in rows[:3]], labeled=True)
    task.examples([DataRow(row, "t.csv", 1) for row in rows], labeled=False, new=True)
    assert caplog.messages == []
