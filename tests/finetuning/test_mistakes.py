"""Errors in data or settings are one sentence with exit status 2, and leave no files behind."""

import json
import shutil
from dataclasses import replace

import pytest
from transformers import DistilBertConfig, DistilBertModel, RobertaConfig, RobertaModel

from mybert import MyBertConfig, MyBertForPreTraining
from mybert.cli import main
from mybert.files.source import HubSplit
from mybert.finetuning import (
    TASKS,
    EvaluateArguments,
    FeaturesArguments,
    FinetuningArguments,
    distill,
    extract_features,
    finetune,
    tag_words,
)
from mybert.finetuning.data import rows_of

GOOD = {"t.tsv": "text\tlabel\na cat\tx\na dog\ty\n", "t.conll": "a\tO\ncat\tB-A\n"}


@pytest.mark.parametrize(
    ("task", "train", "dev", "message"),
    [
        (
            "classification",
            ("t.tsv", "text\tgold\na\tx\n"),
            None,
            "t.tsv has no column 'label'; its columns are 'text', 'gold'; choose which to read with --label_column "
            "NAME.",
        ),
        (
            "classification",
            None,
            ("d.tsv", "text\tlabel\na\tz\n"),
            "has the label 'z'; expected one of 'x', 'y'",
        ),
        ("classification", ("t.tsv", "text\tlabel\n"), None, "t.tsv holds no rows"),
        ("classification", None, ("d.tsv", ""), "d.tsv holds no rows"),
        (
            "classification",
            ("t.tsv", "text\tlabel\na\tx\nb\tx\n"),
            None,
            "only one class ('x'); expected at least two",
        ),
        (
            "rte",
            ("t.tsv", "sentence1\tsentence2\tlabel\na\tb\tyes\nc\td\tno\n"),
            None,
            "the label 'no'; expected one of 'entailment', 'not_ent",
        ),
        ("ner", ("t.conll", "a\tO\ncat\n"), None, "t.conll, line 2: 'cat' has 1 fields; expected 2"),
        ("ner", ("t.conll", "a\ncat\n"), None, "has no column 'tags'; its columns are 'tokens', '0'"),
        ("ner", ("t.conll", "a\tO\ncat\tO\n"), None, "only one class ('O')"),
        (
            "ner",
            ("t.conll", "a\tO\ncat\tBAD\n"),
            ("d.conll", "a\tO\ncat\tBAD\n"),
            "tag 'BAD' is not of the form 'B-PER'",
        ),
        ("ner", None, ("d.conll", "a\tB-C\n"), "has the label 'B-C'; expected one of"),
        ("squad", ("t.json", '{"data": []}'), None, "t.json holds no rows"),
        (
            "squad",
            ("t.json", '{"data": [{"paragraphs": [{}]}]}'),
            None,
            "t.json is not a SQuAD file (KeyError: 'qas')",
        ),
        (
            "multilabel",
            ("t.jsonl", '{"review": "a", "kinds": ["x"]}'),
            None,
            "no column 'text' and 'labels'; its columns are 'review', 'kinds'; choose which to read with "
            "--text_column NAME and --label_column NAME",
        ),
        (
            "squad",
            ("t.csv", "q,text\na,b\n"),
            None,
            "no column 'question', 'answers' and 'context'; its columns are 'q', 'text'; choose which to read with "
            "--text_column NAME, --label_column NAME and --text_pair_column NAME.",
        ),
        ("regression", ("t.tsv", f"{'a' * 99}\t3\nb\t4\n"), None, f"its columns are '{'a' * 40}', '3'; choose which"),
        (
            "swag",
            ("t.csv", "sent1,sent2,label,ending0\na,b,0,c\n"),
            None,
            "has no column 'ending1', 'ending2' and 'ending3'; its columns are 'sent1', 'sent2', 'label', 'ending0'; "
            "choose which to read with --choice_columns NAME.",
        ),
        (
            "stsb",
            ("t.tsv", "sentence1\tsentence2\tscore\na\tb\tnan\n"),
            None,
            "row 1: 'nan' as score; expected a number",
        ),
    ],
)
def test_broken_data(tmp_path, pretrained, capsys, task, train, dev, message):
    good = "t.conll" if task == "ner" else "t.tsv"
    flags = []
    for split, (name, content) in {"train": train or (good, GOOD[good]), "validation": dev or ("", "")}.items():
        if name:
            (tmp_path / name).write_text(content)
            flags += [f"--{split}_file", str(tmp_path / name)]
    flags += [
        "--model",
        str(pretrained),
        "--output_dir",
        str(tmp_path / "out"),
        "--max_length",
        "32",
        "--doc_stride",
        "8",
    ]
    flags = flags if task == "squad" else flags[:-2]
    assert main(["finetune", "--task", task, *flags, "--max_steps", "1", "--use_cpu", "True", "--quiet"]) == 2
    error = capsys.readouterr().err
    assert message in error
    assert error.count("\n") == 1


@pytest.mark.parametrize(
    ("settings", "is_said"),
    [
        ({}, False),
        ({"eval_strategy": "steps", "eval_steps": 5}, True),
        ({"eval_strategy": "steps", "eval_steps": 5, "save_strategy": "steps"}, False),
        ({"eval_strategy": "steps", "eval_steps": 5, "load_best_model_at_end": False}, False),
        ({"save_strategy": "no"}, False),
    ],
)
def test_it_is_said_if_the_last_model_is_kept_and_not_the_best(tmp_path, pretrained, caplog, settings, is_said):
    (tmp_path / "t.tsv").write_text(GOOD["t.tsv"])
    files = {"train_file": str(tmp_path / "t.tsv"), "validation_file": [str(tmp_path / "t.tsv")]}
    FinetuningArguments(model=str(pretrained), output_dir=str(tmp_path / "out"), use_cpu=True, **files, **settings)
    said = "eval_strategy is 'steps' and save_strategy 'epoch': the last model is kept, not the best"
    assert (said in caplog.text) == is_said


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"max_length": 600}, "max_length is 600; .* reads at most 512 tokens"),
        ({"freeze_layers": 2}, "freeze_layers is 2; expected 0 to 1, the layers of the encoder"),
        ({"reinitialize_layers": 2}, "reinitialize_layers is 2; expected 0 to 1"),
        ({"reinitialize_layers": 1, "freeze_layers": 1}, "some would be random and never trained; expected less"),
        ({"dataloader_drop_last": True}, "there are 2 sequences to train on, less than a batch of 32"),
        ({"folds": 3}, "folds is 3, but there are only 2 examples or texts"),
    ],
)
def test_settings_that_the_model_cannot_do(tmp_path, pretrained, settings, message):
    (tmp_path / "t.tsv").write_text(GOOD["t.tsv"])
    defaults = {"model": str(pretrained), "output_dir": str(tmp_path / "out"), "train_file": str(tmp_path / "t.tsv")}
    with pytest.raises(ValueError, match=message):
        finetune(FinetuningArguments(**defaults | {"max_length": 16, "use_cpu": True} | settings))
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("field", "value", "message"),
    [
        ("hidden_size", 64, r"embeddings.word_embeddings.weight in .* has shape \(28, 32\); expected \(28, 64\)"),
        ("vocab_size", 10**12, r"word_embeddings.weight in .* has shape \(28, 32\); expected \(1000000000000, 32\)"),
        ("num_hidden_layers", 10**9, "num_hidden_layers is 1000000000, but the weights have 1 layers"),
        ("dtype", "float7", "dtype is 'float7'; expected one of float16"),
        ("id2label", ["x"], r"id2label is \['x'\]; expected an object"),
        ("architectures", 7, "architectures is 7; expected a list of class names"),
    ],
)
def test_a_configuration_that_disagrees_with_the_weights(tmp_path, pretrained, field, value, message):
    """Every command reports it before anything is loaded or written."""
    model = shutil.copytree(pretrained, tmp_path / "model")
    config = json.loads((model / "config.json").read_text())
    (model / "config.json").write_text(json.dumps(config | {field: value}))
    for name, content in GOOD.items():
        (tmp_path / name).write_text(content)
    out, table = str(tmp_path / "out"), str(tmp_path / "t.tsv")
    for call in (
        lambda: finetune(FinetuningArguments(model=str(model), output_dir=out, train_file=table, use_cpu=True)),
        lambda: EvaluateArguments(model=str(model), data=[table]),
        lambda: FeaturesArguments(model=str(model), text=[table], output=f"{out}.jsonl"),
        lambda: tag_words(model, [["a"]]),
    ):
        with pytest.raises(ValueError, match=message):
            call()
    assert not list(tmp_path.glob("out*"))


def test_models_of_other_types_whose_encoder_does_not_fit(tmp_path, tokenizer):
    """Their parameter names are unknown before they are loaded."""
    size = {"vocab_size": len(tokenizer), "dim": 8, "n_layers": 1, "n_heads": 2, "hidden_dim": 16}
    DistilBertModel(DistilBertConfig(**size)).save_pretrained(tmp_path / "model")
    tokenizer.save_pretrained(tmp_path / "model")
    (tmp_path / "t.tsv").write_text(GOOD["t.tsv"])
    settings = {"model": str(tmp_path / "model"), "train_file": str(tmp_path / "t.tsv"), "max_length": 16}
    settings |= {"output_dir": str(tmp_path / "out"), "max_steps": 1, "use_cpu": True}
    features = {"text": [str(tmp_path / "t.tsv")], "output": str(tmp_path / "out.jsonl"), "max_length": 16}
    config = json.loads((tmp_path / "model" / "config.json").read_text())
    for change, message in (
        (
            {"hidden_dim": 32},
            r"distilbert.transformer.layer.0.ffn.lin1.bias in .* shape \(16,\); expected \(32,\)",
        ),
        ({"n_layers": 2}, r"lack 16 of the encoder's, such as distilbert.transformer.layer.1.attention.k_lin.bias"),
    ):
        (tmp_path / "model" / "config.json").write_text(json.dumps(config | change))
        with pytest.raises(ValueError, match=message) as training:
            finetune(FinetuningArguments(**settings))
        with pytest.raises(ValueError, match=message.replace("distilbert.", "")) as extraction:
            extract_features(FeaturesArguments(str(tmp_path / "model"), **features))
        assert ("--from_scratch" in str(training.value)) == ("n_layers" in change)
        assert "--from_scratch" not in str(extraction.value)  # which has no such flag
        assert not list(tmp_path.glob("out*"))


@pytest.mark.parametrize(("max_length", "fits"), [(16, True), (17, False), (18, False)])
def test_positions_that_begin_behind_the_paddings_number(tmp_path, tokenizer, max_length, fits):
    """RoBERTa's 514 positions read 512 tokens."""
    size = {"hidden_size": 8, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 8}
    config = RobertaConfig(vocab_size=len(tokenizer), max_position_embeddings=18, pad_token_id=1, **size)
    RobertaModel(config).save_pretrained(tmp_path / "model")
    tokenizer.save_pretrained(tmp_path / "model")
    (tmp_path / "t.tsv").write_text("text\tlabel\n" + "".join(f"{'a cat ' * 20}\t{label}\n" for label in "xy"))
    settings = {"model": str(tmp_path / "model"), "train_file": str(tmp_path / "t.tsv"), "max_length": max_length}
    settings |= {"output_dir": str(tmp_path / "out"), "max_steps": 1, "use_cpu": True, "save_strategy": "no"}
    if fits:
        assert not finetune(FinetuningArguments(**settings))["interrupted"]
    else:
        with pytest.raises(ValueError, match=rf"max_length is {max_length}; .*model reads at most 16 tokens"):
            finetune(FinetuningArguments(**settings))


def test_a_benchmarks_folder_without_its_files(tmp_path, pretrained):
    (tmp_path / "readme.txt").write_text("")
    settings = {"model": str(pretrained), "output_dir": str(tmp_path / "out"), "data_dir": str(tmp_path)}
    with pytest.raises(ValueError, match=r"has no train.tsv; it holds readme.txt"):
        FinetuningArguments(task="rte", **settings)
    with pytest.raises(ValueError, match="has no benchmark files to look for in data_dir; use train_file"):
        FinetuningArguments(task="classification", **settings)


def test_a_data_set_without_network(tmp_path, pretrained):
    arguments = FinetuningArguments(
        task="rte", model=str(pretrained), output_dir=str(tmp_path / "out"), dataset="nobody/nothing", use_cpu=True
    )
    with pytest.raises(
        OSError, match=r"The data set 'nobody/nothing' could not be loaded .*; check its name and the network"
    ):
        finetune(arguments)


def test_an_empty_split(monkeypatch):
    class Empty(list):
        features = None

    monkeypatch.setattr(HubSplit, "_load", lambda *arguments: {"validation": Empty()})
    with pytest.raises(ValueError, match="somebody/some, split validation holds no rows"):
        TASKS["classification"].rows(HubSplit("somebody/some", None, "validation"), labelled=False)


def test_a_data_set_that_datasets_reads(tmp_path, pretrained):
    """As on the Hub: splits, class numbers with names, -1 for missing labels."""
    datasets = pytest.importorskip("datasets")
    names = ["entailment", "not_entailment"]
    features = datasets.Features(
        {
            "sentence1": datasets.Value("string"),
            "sentence2": datasets.Value("string"),
            "label": datasets.ClassLabel(names=names),
        }
    )
    for split, labels in (("train", [0, 1, 0, 1]), ("validation", [1, 0]), ("test", [-1, -1])):
        rows = {"sentence1": ["a cat"] * len(labels), "sentence2": ["a dog"] * len(labels), "label": labels}
        data = datasets.Dataset.from_dict(rows, features=features)
        (tmp_path / "data").mkdir(exist_ok=True)
        data.to_parquet(tmp_path / "data" / f"{split}.parquet")
    read = list(rows_of(HubSplit(str(tmp_path / "data"), None, "validation"), TASKS["classification"]))
    assert [row.values["label"] for row in read] == ["not_entailment", "entailment"]
    arguments = FinetuningArguments(
        task="rte",
        model=str(pretrained),
        output_dir=str(tmp_path / "out"),
        dataset=str(tmp_path / "data"),
        max_steps=1,
        max_length=16,
        save_strategy="no",
        use_cpu=True,
        disable_tqdm=True,
    )
    assert "accuracy" in finetune(arguments)
    assert len((tmp_path / "out" / "predictions.tsv").read_text().splitlines()) == 3


def test_classes_and_scores_of_glue_on_the_hub(tmp_path, pretrained):
    """Classes stay numbers, as GLUE's server expects; a score of -1 is a missing label, like a class of -1."""
    datasets = pytest.importorskip("datasets")
    for split, labels, scores in (
        ("train", [0, 1], [0.5, 4.0]),
        ("validation", [1, 0], [1.0, 3.0]),
        ("test", [-1], [-1.0]),
    ):
        texts = {name: ["a cat", "a dog"][: len(labels)] for name in ("sentence", "sentence1", "sentence2")}
        for task, values, feature in (
            ("sst2", labels, datasets.ClassLabel(names=["negative", "positive"])),
            ("stsb", scores, datasets.Value("float32")),
        ):
            (tmp_path / task).mkdir(exist_ok=True)
            data = datasets.Dataset.from_dict(texts | {"label": values}).cast_column("label", feature)
            data.to_parquet(tmp_path / task / f"{split}.parquet")
    settings = {"model": str(pretrained), "max_steps": 1, "save_strategy": "no", "use_cpu": True, "disable_tqdm": True}
    for task, metric in (("sst2", "accuracy"), ("stsb", "pearson")):
        folder = tmp_path / f"out_{task}"
        arguments = FinetuningArguments(
            task=task, dataset=str(tmp_path / task), output_dir=str(folder), max_length=16, **settings
        )
        metrics = finetune(arguments)
        assert metric in metrics and not [name for name in metrics if name.startswith("test")]
        (prediction,) = (folder / "predictions.tsv").read_text().splitlines()[1:]
        assert task == "stsb" or prediction.split("\t")[1] in "01"


@pytest.mark.parametrize(
    ("splits", "metrics"),
    [
        (("train", "validation_matched", "validation_mismatched"), {"matched_accuracy", "mismatched_accuracy"}),
        (("train", "validation"), {"accuracy"}),
        (("train",), set()),
    ],
)
def test_the_best_checkpoint_of_a_data_set(tmp_path, pretrained, splits, metrics):
    """MNLI has two validation splits on the Hub, some data sets none."""
    datasets = pytest.importorskip("datasets")
    rows = {"premise": ["a cat"] * 3, "hypothesis": ["a dog"] * 3, "label": [0, 1, 2]}
    (tmp_path / "mnli" / "data").mkdir(parents=True)
    for split in splits:
        data = datasets.Dataset.from_dict(rows).cast_column(
            "label", datasets.ClassLabel(names=["entailment", "neutral", "contradiction"])
        )
        data.to_parquet(tmp_path / "mnli" / "data" / f"{split}-00000-of-00001.parquet")
    arguments = FinetuningArguments(
        task="mnli",
        model=str(pretrained),
        output_dir=str(tmp_path / "out"),
        dataset=str(tmp_path / "mnli"),
        max_steps=1,
        max_length=16,
        use_cpu=True,
        disable_tqdm=True,
    )
    assert finetune(arguments).keys() >= metrics
    assert arguments.load_best_model_at_end == bool(metrics)
    if not metrics:
        with pytest.raises(
            ValueError, match="seeds is 2 without validation data; there is no telling which run is best"
        ):
            finetune(replace(arguments, seeds=2))


@pytest.mark.parametrize("how", [{"validation_split": 0.5}, {"folds": 2}])
def test_a_data_set_without_validation_data_is_measured_on_a_part(tmp_path, pretrained, how):
    datasets = pytest.importorskip("datasets")
    rows = {"text": ["a cat", "a dog", "a fish", "a tree"], "label": ["x", "y"] * 2}
    datasets.Dataset.from_dict(rows).to_json(tmp_path / "train.jsonl")
    settings = {"model": str(pretrained), "dataset": str(tmp_path), "output_dir": str(tmp_path / "out")} | how
    found = finetune(**settings, max_steps=1, max_length=16, use_cpu=True, disable_tqdm=True)
    assert "accuracy" in found


@pytest.mark.parametrize(
    "make",
    [
        lambda model: EvaluateArguments(model=model, data=["t.tsv"]),
        lambda model: FeaturesArguments(model=model, text=["t.txt"], output="f.jsonl"),
    ],
)
def test_a_model_folder_that_is_not_there(tmp_path, make):
    with pytest.raises(FileNotFoundError, match=r"There is no model folder .*nowhere\."):
        make(str(tmp_path / "nowhere"))
    make("owner/name")


def test_a_model_folder_that_is_not_there_yet(tmp_path):
    """Settings may be created before the model exists."""
    (tmp_path / "t.tsv").write_text("text\tlabel\n")
    arguments = FinetuningArguments(
        model=str(tmp_path / "nowhere"), output_dir=str(tmp_path / "out"), train_file=str(tmp_path / "t.tsv")
    )
    with pytest.raises(FileNotFoundError, match=r"There is no model folder .*nowhere\."):
        finetune(arguments)
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("from_scratch", [False, True])
def test_int8_weights_are_not_trained(tmp_path, pretrained, from_scratch):
    MyBertForPreTraining.from_pretrained(pretrained).quantize_weights("int8").save_pretrained(tmp_path / "int8")
    for name in ("tokenizer.json", "tokenizer_config.json", "vocab.txt"):
        shutil.copy(pretrained / name, tmp_path / "int8")
    (tmp_path / "t.tsv").write_text(GOOD["t.tsv"])
    data = {"train_file": str(tmp_path / "t.tsv"), "from_scratch": from_scratch}
    arguments = FinetuningArguments(model=str(tmp_path / "int8"), output_dir=str(tmp_path / "out"), **data)
    with pytest.raises(
        ValueError, match=r"int8: its weights are quantized \('mybert_int8'\); expected floating-point"
    ):
        finetune(arguments)
    assert not (tmp_path / "out").exists()


def test_sequences_are_no_longer_than_a_model_reads(tmp_path, tokenizer):
    """By default; a length that is given is an error."""
    size = {"hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 16}
    config = MyBertConfig(vocab_size=len(tokenizer), max_position_embeddings=32, **size)
    MyBertForPreTraining(config).save_pretrained(tmp_path / "short")
    tokenizer.save_pretrained(tmp_path / "short")
    (tmp_path / "t.tsv").write_text(f"text\tlabel\n{'a cat ' * 40}\tx\na dog\ty\n")
    settings = {"train_file": str(tmp_path / "t.tsv"), "max_steps": 1, "use_cpu": True, "disable_tqdm": True}
    finetune(model=str(tmp_path / "short"), output_dir=str(tmp_path / "out"), **settings)
    with pytest.raises(ValueError, match=r"max_length is 128; .*short reads at most 32 tokens"):
        finetune(model=str(tmp_path / "short"), output_dir=str(tmp_path / "a"), max_length=128, **settings)
    student = {"teacher": str(tmp_path / "out"), "student": str(tmp_path / "short"), "task": "classification"}
    distill(**student, output_dir=str(tmp_path / "student"), **settings)
