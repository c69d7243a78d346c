"""The scripts of `benchmarks/` run at a tiny size, and do not repeat finished runs."""

import json
from pathlib import Path

import pytest

from mybert import MyBertForSequenceClassification
from mybert.benchmarks import topics
from mybert.files.source import read_rows
from mybert.pretraining import build_token_store

SCRIPTS = {
    path.stem
    for path in (Path(__file__).parents[2] / "benchmarks").glob("*.py")
    if "__main__" in path.read_text(encoding="utf-8")
}

slow = pytest.mark.slow
# Flags, and what must be shown.
RUNS = [
    (
        "tokenization_speed train TEXT --vocab_size 100 --repeats 1",
        ["| tokenizers WordPieceTrainer |", "| mybert bpe |"],
    ),
    (
        "tokenization_speed encode TEXT --vocab VOCAB --megabytes 0.01 --repeats 1",
        ["ids equal on every line", "| mybert BulkEncoder, empty memo |"],
    ),
    pytest.param("tokenization_speed processes TEXT --vocab VOCAB --repeats 1", ["| 1 |", "| 2 |"], marks=slow),
    pytest.param("tokenization_speed memory TEXT --vocab_size 1100", ["| 1 |", "| 2 |"], marks=slow),
    pytest.param(
        "waiting_threads --sizes tiny --busy 0 1 --threads 1 --repeats 1",
        ["## tiny training, "] * 2 + ["| passive |"] * 6,
        marks=slow,
    ),
    pytest.param(
        "many_ranks STORE --tokenizer TOKENIZER --ranks 1 4 --model_size tiny --batch_size 2",
        ["\n| 1 |", "\n| 4 |", "A checkpoint of tiny: 0.05 GB", "ms of it to seal."],
        marks=slow,
    ),
    pytest.param(
        "pretraining_data speed TEXT --vocab VOCAB --repeats 1",
        [
            "| mybert, an epoch of masked pairs, packed in rows of 512 |",
            "Its tokens are those of tokenizers.",
            "Peak memory",
        ],
        marks=slow,
    ),
    pytest.param(
        "pretraining_data building TEXT --vocab VOCAB --megabytes 0.05", ["| 1 |", "| 2 |", "peak MiB"], marks=slow
    ),
    pytest.param(
        "other_encoders bert --tiny --workloads sentences --repeats 1 --training --threads 1",
        [
            "## bert: 32 sentences",
            "| mybert.speed_up |",
            "| mybert.speed_up, training step |",
            "| transformers SDPA, sorted |",
            "\n| mybert |",
            "\n| ONNX Runtime |",
            "\n| OpenVINO |",
        ],
        marks=slow,
    ),
    pytest.param(
        "sentence_scores MODEL PAIRS --pairs 2 --repeats 1 --threads 1",
        ["2 pairs, within_word_l2r:", "| plain masked loop |", "| mybert |", "differs by"],
        marks=slow,
    ),
    pytest.param("pretraining_data drawing --tokens 1e5", ["| epoch 1, example 0 |"], marks=slow),
]


@pytest.mark.parametrize(("command", "expected"), RUNS)
def test_scripts_print_their_tables(command, expected, run, text_file, tokenizer, tiny_model, tmp_path):
    folder, store = tmp_path / "tokenizer", tmp_path / "store.safetensors"
    tokenizer.save_pretrained(folder)
    places = {"TEXT": text_file, "VOCAB": folder / "vocab.txt", "TOKENIZER": folder, "STORE": store}
    if "PAIRS" in command:
        places |= {"MODEL": tiny_model(tmp_path / "model"), "PAIRS": tmp_path / "pairs.csv"}
        places["PAIRS"].write_text("good,bad\nthe cat sat,cat the sat\na dog,dog a\n")
    if "STORE" in command:
        build_token_store(text_file, tokenizer, store, show_progress=False)
    shown = run(*(places.get(word, word) for word in command.split()))
    assert "torch " in shown.partition("\n")[0]  # the machine
    for part in expected:
        assert shown.count(part) >= expected.count(part)


@pytest.mark.slow
def test_checkpoints(run, monkeypatch, tmp_path):
    from mybert.benchmarks import conversion_speed

    tiny = {"vocab_size": 60, "hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2}
    configuration = conversion_speed.CONFIGURATION | tiny | {"intermediate_size": 32}
    monkeypatch.setattr(conversion_speed, "CONFIGURATION", configuration)
    shown = run("conversion_speed", "--repeats", 1, "--folder", tmp_path)
    assert "| convert to a model folder, verified |" in shown and "peak memory +" in shown
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("command", "sentence"),
    [
        ("conversion_speed --folder nowhere", "nowhere"),
        ("gpu_report --sizes tiny --sections training --tests nowhere.xml", "There is no file or folder nowhere.xml."),
        ("many_ranks nowhere --tokenizer tokenizer", "There is no token store nowhere."),
        ("pretraining_data building nowhere --vocab nowhere", "There is no file or folder nowhere."),
        ("pretraining_data speed nowhere --vocab nowhere", "There is no file or folder nowhere."),
        ("time_to_quality t.tsv --validation_file nowhere --ours r.yaml", "There is no file or folder nowhere."),
        ("time_to_quality t.tsv --validation_file t.tsv --ours nowhere", "There is no file or folder nowhere."),
        ("time_to_quality t.tsv --validation_file t.tsv --ours t.tsv", "t.tsv is not a recipe; expected YAML"),
        ("tokenization_speed train nowhere", "There is no file or folder nowhere."),
        ("tokenization_speed encode t.tsv --vocab nowhere", "There is no file or folder nowhere."),
        ("tokenization_speed encode t.tsv", "encode needs a --vocab"),
        ("pretraining_data building", "building needs files and their --vocab."),
    ],
)
def test_mistakes_are_sentences(command, sentence, run, tmp_path, tokenizer, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    tokenizer.save_pretrained("tokenizer")
    (tmp_path / "t.tsv").write_text("a\tlabel\nx\t0\n")
    (tmp_path / "r.yaml").write_text("max_length: 24\n")
    with pytest.raises(SystemExit) as ended:
        run(*command.split())
    said = capsys.readouterr().err
    assert ended.value.code == 2 and sentence in said and "Traceback" not in said
    assert said.splitlines()[-1].startswith(command.partition(" ")[0])


def test_every_script_is_run_somewhere():
    tests = "".join(path.read_text(encoding="utf-8") for path in Path(__file__).parent.glob("*.py"))
    assert SCRIPTS
    assert not {name for name in SCRIPTS if f'"{name} ' not in tests and f'"{name}"' not in tests}


def test_few_labels_measures_each_draw_once(run, tmp_path, tiny_model):
    rows = [
        f"{text} {noun}\t{label}" for noun in ("cat", "dog", "mat") for text, label in (("ate", "a"), ("sat", "b"))
    ]
    for name in ("train", "test"):
        (tmp_path / f"{name}.tsv").write_text("\n".join(["text\tlabel", *rows]) + "\n")
    flags = ["--train", tmp_path / "train.tsv", "--test", tmp_path / "test.tsv", "--labels", 2, "--draws", 2]
    flags += ["--approaches", "linear_probe", "contrastive", "--output", tmp_path / "results.jsonl"]
    shown = run("few_labels", tiny_model(tmp_path / "model"), *flags)
    results = [json.loads(line) for line in (tmp_path / "results.jsonl").read_text().splitlines()]
    assert [(each["approach"], each["draw"]) for each in results] == [
        (approach, draw) for draw in (0, 1) for approach in ("linear_probe", "contrastive")
    ]
    assert all(0 <= each["score"] <= 100 and each["seconds"] > 0 for each in results)
    again = run("few_labels", tmp_path / "model", *flags)
    assert again.splitlines()[-2:] == shown.splitlines()[-2:] and "| contrastive | 2 | 2 | " in again
    assert len((tmp_path / "results.jsonl").read_text().splitlines()) == 4


def test_texts_of_topics_are_consecutive_sentences_of_separate_documents(run, tmp_path):
    for name in ("sea", "sky"):
        documents = ("\n".join(f"{name} {document} {n}." for n in range(3)) for document in range(4))
        (tmp_path / f"{name}.txt").write_text("\n\n".join(["Alone.", *documents]))
    flags = [f"water={tmp_path / 'sea.txt'}", f"air={tmp_path / 'sky.txt'}", "--output_dir", tmp_path / "topics"]
    run("topics", *flags)
    seen = []
    for part, count in topics.TEXTS.items():
        rows = read_rows(tmp_path / "topics" / f"{part}.csv")
        assert [each["label"] for each in rows] == ["water"] * count + ["air"] * count
        words = [each["text"].replace(".", "").split() for each in rows]
        assert {tuple(each) for each in words} <= {
            (name, document, str(first), name, document, str(first + 1))
            for name, document in {(each[0], each[1]) for each in words}
            for first in (0, 1)
        }
        assert {each[0] for each in words[:count]} == {"sea"}
        seen.append({(each[0], each[1]) for each in words})
    assert len(set.union(*seen)) == sum(map(len, seen)) == 8  # every document, in one part


@pytest.mark.parametrize(
    ("sources", "sentence"),
    [
        (["a"], "found 'a'; expected NAME=FILE,FILE"),
        (["a=absent.txt"], "There is no file or folder absent.txt."),
        (["a=t.txt", "a=u.txt"], "sources: the labels a, a; expected each once."),
        (["a=t.txt"], "t.txt: documents of several sentences: 1; expected at least 3."),
    ],
)
def test_wrong_sources_of_topics(run, tmp_path, monkeypatch, capsys, sources, sentence):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "t.txt").write_text("One.\nTwo.\n\nAlone.\n")
    with pytest.raises(SystemExit) as ended:
        run("topics", *sources, "--output_dir", "topics")
    assert ended.value.code == 2
    assert sentence in capsys.readouterr().err and not (tmp_path / "topics").exists()


def write_suite(folder, **tasks):
    """The report of a suite: by task, the metric, its full score, and the scores of the seeds."""
    report = {"average": 0.5, "tasks": {}}
    for task, (metric, full, scores) in tasks.items():
        mean = sum(scores) / len(scores)
        seeds = {str(42 + number): score / full for number, score in enumerate(scores)}
        report["tasks"][task] = {"metric": metric, "score": mean / full, "seeds": seeds}
    folder.mkdir()
    (folder / "suite.json").write_text(json.dumps(report))
    return folder


def test_scores_over_seeds_are_compared_in_pairs(run, tmp_path):
    first = write_suite(tmp_path / "a", cola=("matthews", 1, [0.21, 0.33]), squad=("f1", 100, [60.0, 62.0]))
    second = write_suite(tmp_path / "b", cola=("matthews", 1, [0.20, 0.30]), squad=("f1", 100, [60.0, 62.0]))
    shown = run("scores_over_seeds", first, second)
    # A difference of 2 ± 1 with one degree of freedom: p = 1 - 2 arctan(2) / pi
    assert "| cola | matthews | 2 | 27.00 ± 6.00 | 25.00 ± 5.00 | 2.00 ± 1.00 | 0.30 |" in shown
    assert "| squad | f1 | 2 | 61.00 ± 1.00 | 61.00 ± 1.00 | 0.00 ± 0.00 |  |" in shown
    assert "| mean |  | 2 |  |  | 1.00 ± 0.50 | 0.30 |" in shown


def test_scores_over_seeds_of_other_tasks_or_one_seed_are_errors(run, tmp_path, capsys):
    scores = {"a": [0.1, 0.2], "b": [0.1, 0.2, 0.3], "c": [0.1]}
    folders = {name: write_suite(tmp_path / name, t=("accuracy", 1, values)) for name, values in scores.items()}
    write_suite(tmp_path / "d")
    folders |= {"d": tmp_path / "d", "e": tmp_path / "nowhere"}
    for names, message in (
        ("ab", "differ in tasks or seeds"),
        ("ac", "one seed for t; expected several"),
        ("ad", "has no tasks; expected the report"),
        ("ae", "nowhere"),
    ):
        with pytest.raises(SystemExit):
            run("scores_over_seeds", *(folders[name] for name in names))
        assert message in capsys.readouterr().err


@pytest.mark.slow
@pytest.mark.parametrize(
    ("what", "size", "expected"),
    [("calls", 20, "| 20 | "), ("rows", 30_000, "equal byte for byte."), ("threads", 100, "| 100 | 8 | ")],
)
def test_load_finds_equal_results(what, size, expected, run, tmp_path, tiny_model):
    model = tiny_model(tmp_path / "model", MyBertForSequenceClassification)
    texts = tmp_path / "texts.txt"
    texts.write_text("the cat sat\na dog ate bread\nit was happy\n")
    assert expected in run("load", what, model, texts, "--size", size)


@pytest.mark.slow
def test_time_to_quality_trains_both_ways_once(run, tmp_path, documents):
    text = tmp_path / "text.txt"
    text.write_text("\n\n".join("\n".join(document * 8) for document in documents * 3) + "\n")
    recipe = tmp_path / "recipe.yaml"
    recipe.write_text(
        "{vocab_size: 90, vocab_layout: compact, hidden_size: 16, num_hidden_layers: 1, num_attention_heads: 2, "
        "max_length: 24, per_device_train_batch_size: 4, use_cpu: true, num_processes: 1, save_strategy: 'no', "
        "validation_split: 0.2}"
    )
    flags = [text, "--validation_file", text, "--ours", recipe, "--minutes", 0.05, "--shares", 0.5, "--rates", 1e-3]
    shown = run("time_to_quality", *flags, "--limit", 20, "--output_dir", tmp_path / "out")
    rows = [line.split("|")[1].strip() for line in shown.splitlines() if line.startswith("| ") and "nats" not in line]
    names = ["mybert, 0.025 minutes", "transformers at 0.001, a tenth of the time", "transformers, 0.05 minutes"]
    assert rows == names
    results = json.loads((tmp_path / "out" / "quality.json").read_text())
    assert len({results[name]["words"] for name in names}) == 1
    assert all(1 < results[name]["nats_per_word"] < 12 for name in names)
    again = run("time_to_quality", *flags, "--limit", 20, "--output_dir", tmp_path / "out")
    assert [line for line in again.splitlines() if line.startswith("| ")] == [
        line for line in shown.splitlines() if line.startswith("| ")
    ]
