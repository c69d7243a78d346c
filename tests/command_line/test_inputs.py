"""What is wrong is found in the order of its cost: flags, then files, then libraries and models."""

import json
import re
from importlib.metadata import version
from pathlib import Path

import pytest
from transformers import TrainingArguments

from mybert import MyBertForSequenceClassification, cli
from mybert.command_line import GROUPS
from mybert.command_line.flags import CommandParser, parse_flags
from mybert.command_line.inputs import check_files_and_models
from mybert.files.checkpoint import TASK_RECORD
from mybert.finetuning import FinetuningArguments
from mybert.finetuning.prediction.prediction_run import PredictArguments
from mybert.runs import trainer_options

WITHOUT_LIBRARIES = """
import runpy, sys
sys.argv = ["mybert", *sys.argv[1:]]
import mybert.__main__
status = mybert.__main__.main()
print(*sorted({"torch", "transformers", "datasets", "huggingface_hub"} & set(sys.modules)))
raise SystemExit(status)
"""


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("finetune m --lr 1e-4", "unknown flag '--lr'. Did you mean --learning_rate?"),
        ("finetune m --train_file t.tsv --output_dir o --num_seeds 0", "--num_seeds is 0; expected at least 1."),
        ("finetune m --train_file no.tsv --output_dir o", "There is no file or folder no.tsv."),
        (
            "finetune m --train_file t.tsv --output_dir o",
            "has no columns 'text' and 'label'; its columns are 'review'",
        ),
        ("predict ./model t.tsv", "There is no model folder ./model."),
        ("pretrain no.txt --output_dir o --max_steps 5", "There is no file or folder no.txt."),
        ("pretrain t.tsv --output_dir o --max_steps 5", "t.tsv has no 'text', only 'review', 'stars'"),
        (
            "features t.tsv --model m --output v.jsonl --text_column body",
            "t.tsv has no 'body', only 'review', 'stars'",
        ),
        ("bench .", "--data is not set"),
        (
            "distill m --student tiny --train_file t.tsv --freeze encoder --freeze_layers 1 --output_dir o",
            "which trains only pooler and head; leave it out",
        ),
    ],
)
def test_parse_flags_and_inputs_import_no_libraries(words, message, run_python, tmp_path):
    (tmp_path / "t.tsv").write_text("review\tstars\na\t1\n")
    done = run_python("-c", WITHOUT_LIBRARIES, *words.split(), status=2, cwd=tmp_path)
    assert message in done.stderr and done.stderr.startswith(f"mybert {words.split()[0]}: ")
    assert done.stdout == "\n"


@pytest.mark.parametrize("words", ["finetune --help", "pretrain --help_all", "--help"])
def test_help_imports_no_libraries(words, run_python, tmp_path):
    done = run_python("-c", WITHOUT_LIBRARIES, *words.split(), cwd=tmp_path)
    assert "usage: mybert" in done.stdout and done.stdout.endswith("\n\n")


@pytest.mark.parametrize(
    ("words", "loaded"),
    [
        ("completion bash", ""),
        ("vocab t.txt --output_dir v --vocab_size 40 --vocab_layout compact --quiet", "transformers"),
        ("data t.txt --dry_run", "transformers"),
    ],
    ids=["completion", "vocab", "data"],
)
def test_commands_without_a_model_load_no_torch(words, loaded, run_python, tmp_path):
    (tmp_path / "t.txt").write_text("a cat sat\nthe cat ran\n")
    done = run_python("-c", WITHOUT_LIBRARIES, *words.split(), cwd=tmp_path)
    assert loaded in (last := done.stdout.splitlines()[-1]) and "torch" not in last


def test_trainer_options_hold_what_transformers_declares():
    """If this fails: python -m mybert.runs.trainer_options, with the transformers of constraints.txt."""
    if trainer_options.table()["transformers"] != version("transformers"):
        pytest.skip("another version of transformers")
    assert Path(trainer_options.__file__).with_suffix(".json").read_text("utf-8") == trainer_options.table_text()


def test_settings_with_an_option_that_transformers_lacks_names_the_version(tmp_path, monkeypatch, capsys):
    (tmp_path / "t.txt").write_text("a cat\n")
    monkeypatch.delitem(TrainingArguments.__dataclass_fields__, "logging_nan_inf_filter")
    command = f"pretrain {tmp_path}/t.txt --output_dir {tmp_path}/o --max_steps 1 --logging_nan_inf_filter"
    assert cli.main([*command.split(), "no"]) == 2
    assert capsys.readouterr().err == (
        f"mybert pretrain: --logging_nan_inf_filter is set, but transformers {version('transformers')} has no such "
        f"argument; leave it out, or install transformers {trainer_options.table()['transformers']}.\n"
    )
    assert not (tmp_path / "o").exists()


@pytest.mark.parametrize(
    ("name", "missing"),
    [
        (
            "finetune",
            "--model, --train_file (or --data_dir or --dataset or --class_names) and --output_dir are not set",
        ),
        ("predict", "--model and --data are not set"),
        ("evaluate", "--data and --model (or --predictions) are not set"),
        ("pretrain", "--text (or --token_store) and --output_dir are not set"),
        ("adapt", "--model, --text (or --token_store) and --output_dir are not set"),
        ("push", "--model and --repo_id are not set"),
        ("convert google", "--source and --output_dir are not set"),
        ("vocab", "--text and --output_dir are not set"),
        ("data", "--tokenizer (or --dry_run) and --output (or --dry_run) are not set"),
    ],
)
def test_parse_flags_without_flags_names_all_that_is_missing(name, missing, capsys):
    assert cli.main(name.split()) == 2
    error = capsys.readouterr().err
    assert error == f"mybert {name}: {missing} (as in: mybert {name} {cli.COMMANDS[name].example}).\n"


@pytest.mark.parametrize("name", cli.COMMANDS)
def test_parse_flags_without_flags_is_one_sentence(name, capsys):
    status = cli.main(name.split()) if name != "demo" else 2
    error = capsys.readouterr().err
    assert status == 2 and error.count("\n") <= 1 and "following arguments" not in error


def test_push_without_a_repository_says_what_is_expected(capsys):
    assert cli.main(["push", "m"]) == 2
    expected = (
        "mybert push: --repo_id is not set; expected: Name of the repository: OWNER/NAME, or NAME for one of your"
    )
    assert capsys.readouterr().err.startswith(expected)


@pytest.mark.parametrize(
    ("command", "flag", "meant"),
    [
        ("finetune", "--lr", "--learning_rate"),
        ("finetune", "--epochs", "--num_train_epochs"),
        ("finetune", "--batch_size", "--per_device_train_batch_size"),
        ("finetune", "--batch-size", "--per_device_train_batch_size"),
        ("finetune", "--data", "--train_file"),
        ("finetune", "--output", "--output_dir"),
        ("finetune", "--seeds", "--num_seeds"),
        ("finetune", "--model_name_or_path", "--model"),
        ("pretrain", "--data", "--text"),
        ("pretrain", "--lr=1e-4", "--learning_rate"),
        ("pretrain", "--seeds", "--seed"),
        ("predict", "--output_dir", "--output"),
        ("predict", "--train_batch_size", "--batch_size"),
        ("distill", "--model", "--teacher"),
        ("compare", "--model", "--models"),
        ("convert google", "--model", "--source"),
        ("finetune", "--lerning_rate", "--learning_rate"),
    ],
)
def test_unknown_flag_suggests_what_other_tools_call_it(command, flag, meant, capsys):
    assert cli.main([*command.split(), flag, "1"]) == 2
    name = flag.partition("=")[0]
    assert capsys.readouterr().err == f"mybert {command}: unknown flag {name!r}. Did you mean {meant}?\n"


def test_unknown_flag_of_another_command_suggests_nothing(capsys):
    """`--lr` has no meaning there, and the nearest flag would be a wrong one."""
    assert cli.main(["predict", "--lr", "1"]) == 2
    assert capsys.readouterr().err == "mybert predict: unknown flag '--lr'; --help lists the flags.\n"


def test_unknown_task_says_what_is_for_own_labels(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "t.tsv").write_text("text\tlabel\na\t1\nb\t0\n")
    expected = {
        "sentiment": "--task is 'sentiment'; for labels of your own use classification. Expected one of ",
        "clasification": "--task is 'clasification'. Did you mean classification? Expected one of ",
    }
    for task, message in expected.items():
        assert cli.main(f"finetune m --train_file t.tsv --output_dir o --task {task}".split()) == 2
        error = capsys.readouterr().err
        assert error.startswith(f"mybert finetune: {message}classification, multilabel, ")


README = Path(trainer_options.__file__).parents[1] / "README.md"
USUAL = {
    "finetune": "model task train_file validation_file validation_split text_column label_column learning_rate "
    "num_train_epochs per_device_train_batch_size seed output_dir",
    "predict": "model data output",
    "evaluate": "data model",
    "pretrain": "text config",
}


@pytest.mark.parametrize("name", [name for name, command in cli.COMMANDS.items() if command.usual])
def test_help_explains_the_usual_flags_first(name, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    parser = CommandParser(name)
    usual = parser.command.usual.split()
    assert set(usual) <= {flag.dest for flag in parser.flags}
    assert USUAL.get(name, "").split() == usual[: len(USUAL.get(name, "").split())]
    text = parser.format_help()
    _, _, section = text.partition("\nMost used:\n")
    shown = [line.split()[0] for line in section.partition("\n\n")[0].splitlines() if line.startswith("  --")]
    assert shown == [f"--{flag}" for flag in usual]
    assert text.index("Most used:") < text.index("\nEvery command:")


def test_help_lists_tasks_on_own_data_before_benchmarks():
    text = " ".join(CommandParser("finetune").format_help().split())
    assert "on your own data classification, multilabel, regression" in text and "; benchmarks cola, " in text


def test_readme_table_has_the_groups_of_the_help():
    table = README.read_text(encoding="utf-8").partition("| to |")[2].partition("\n\n")[0]
    rows = [line.strip("| ").split(" | ") for line in table.splitlines()[2:]]
    known = {name.split()[0] for name in cli.COMMANDS}
    found = {title: [name for name in re.findall("`([^`]+)`", text) if name in known] for title, text in rows}
    assert found == {title: names.split() for title, names in GROUPS.items()}


def test_readme_examples_are_those_of_the_help():
    readme = README.read_text(encoding="utf-8")
    for name in ("finetune", "predict", "pretrain"):
        assert f"mybert {name} {cli.COMMANDS[name].example}" in " ".join(readme.replace("\\\n", " ").split()), name


def write(path, content):
    path.write_text(content, encoding="utf-8")
    return str(path)


def check(command, flags):

    check_files_and_models(parse_flags(command, flags))


RECORD = {"task": "classification", "text_column": "review", "label_column": "stars"}


@pytest.mark.parametrize("record", [RECORD, None])
@pytest.mark.parametrize("command", ["evaluate", "distill", "compare"])
def test_check_inputs_compares_columns_with_those_of_the_model(command, record, tiny_model, tmp_path):
    model = str(tiny_model(tmp_path / "m", MyBertForSequenceClassification))
    config = json.loads((tmp_path / "m" / "config.json").read_text())
    write(tmp_path / "m" / "config.json", json.dumps(config | ({TASK_RECORD: record} if record else {})))
    good, bad = write(tmp_path / "good.csv", "review,stars\na,1\n"), write(tmp_path / "bad.csv", "text,score\na,1\n")
    flags = {
        "evaluate": ["--model", model, "--data"],
        "distill": ["--teacher", model, "--student", "tiny", "--output_dir", "o", "--train_file"],
        "compare": ["--models", model, model, "--data"],  # whose models may record different columns
    }[command]
    check(command, [*flags, good])
    if record and command != "compare":
        with pytest.raises(
            ValueError, match=r"bad\.csv has no columns 'review' and 'stars'; its columns are 'text', "
        ):
            check(command, [*flags, bad])
    else:
        check(command, [*flags, bad])
    with pytest.raises(ValueError, match=r"good\.csv has no column 'body'; .* which to read with text_column='NAME'"):
        check(command, [*flags, good, "--text_column", "body"])


@pytest.mark.parametrize(
    ("command", "flags"),
    [
        ("finetune", "m --train_file {0} --validation_file {0} --output_dir o"),
        ("finetune", "m --train_file t2.tsv --validation_file {0} --test_file ./{0} --output_dir o"),
        ("predict", "m {0} {0}"),
        ("evaluate", "{0} {0} --model m"),
        ("score", "m {0} {0}"),
        ("features", "{0} {0} --model m --output v.jsonl"),
        ("vocab", "{0} {0} --output_dir o"),
        ("data", "{0} {0} --dry_run"),
        ("pretrain", "{0} {0} --output_dir o --max_steps 1"),
        ("adapt", "m {0} {0} --output_dir o --max_steps 1"),
        ("curves", "{0} {0}"),
        ("convert openvino", "m o --data {0} {0}"),
        ("bench", "--model m --data {0} {0}"),
        ("ablation", '--text {0} {0} --output_dir o --tasks {{"cola":{{}}}}'),
        ("demo", "{0} {0}"),
    ],
)
def test_arguments_same_file_twice_warn_once(command, flags, tiny_model, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    tiny_model(tmp_path / "m", MyBertForSequenceClassification)
    for name in ("t.tsv", "t2.tsv"):
        write(tmp_path / name, "text\tlabel\na\t1\nb\t0\n")
    parse_flags(command, flags.format("t.tsv").split())
    assert capsys.readouterr().out.count("t.tsv is given more than once, as ") == 1


def test_arguments_in_python_same_file_twice_warn_once(tmp_path, caplog):
    path = write(tmp_path / "t.tsv", "text\tlabel\na\t1\nb\t0\n")
    FinetuningArguments(model="o/m", train_file=Path(path), validation_file=[path], output_dir="o", use_cpu=True)
    PredictArguments(model="o/m", data=[path, Path(path)])
    PredictArguments(model="o/m", data=[[{"text": "a"}], [{"text": "a"}]])
    assert [message.removeprefix(path) for message in caplog.messages if "more than once" in message] == [
        " is given more than once, as train_file and validation_file.",
        " is given more than once, as data.",
    ]


def test_finetune_with_wrong_data_logs_nothing_before_the_error(tiny_model, tmp_path, capsys, monkeypatch):
    model = tiny_model(tmp_path / "m", MyBertForSequenceClassification)
    monkeypatch.chdir(tmp_path)
    write(tmp_path / "t.jsonl", '{"text": "a", "label": "x"}\n{"text": "b", "label": "x"}\n')
    assert cli.main(["finetune", str(model), "--train_file", "t.jsonl", "--output_dir", "o", "--use_cpu"]) == 2
    captured = capsys.readouterr()
    assert captured.out == "" and "has only one class" in captured.err
    assert not (tmp_path / "o").exists()


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ("finetune --config base", "base is a recipe of mybert pretrain; mybert finetune has no recipes."),
        ("evaluate FOLDER --model FOLDER", "FOLDER is a folder; expected a file."),
    ],
)
def test_a_file_of_another_kind_is_an_error(words, said, tmp_path, capsys):
    assert cli.main(words.replace("FOLDER", str(tmp_path)).split()) == 2
    assert said.replace("FOLDER", str(tmp_path)) in capsys.readouterr().err


def test_check_inputs_of_a_conversion_looks_for_its_texts(tiny_model, tmp_path):
    model = str(tiny_model(tmp_path / "model", MyBertForSequenceClassification))
    words = [model, str(tmp_path / "out"), "--dtype", "int8", "--data", str(tmp_path / "gone.txt")]
    with pytest.raises(FileNotFoundError, match=r"There is no file or folder .*gone\.txt\.$"):
        check("convert openvino", words)


def test_check_inputs_tagged_words_have_no_header_to_compare(tiny_model, tmp_path):
    (tmp_path / "words.tsv").write_text("the\tO\ncat\tB-X\n\na\tO\n")
    model = str(tiny_model(tmp_path / "model"))
    words = [
        model,
        "--task",
        "tagging",
        "--train_file",
        str(tmp_path / "words.tsv"),
        "--output_dir",
        str(tmp_path / "o"),
    ]
    check("finetune", words)
    (tmp_path / "words.tsv").write_text("wort\tmarke\nthe cat\tO\n")
    with pytest.raises(ValueError, match=r"words\.tsv has no columns 'tokens' and 'tags'"):
        check("finetune", words)
