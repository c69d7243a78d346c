"""One vocabulary of flags: each is shown once, has its help, and means the same in every command."""

import re
import shlex
import types
import typing
from collections import defaultdict
from inspect import get_annotations

import pytest

from mybert import cli
from mybert.command_line.flags import CommandParser, name_positional, parse_flags
from mybert.files.errors import SettingError
from mybert.files.options import Group, options_of, parts_of, types_of
from mybert.files.settings import build
from mybert.runs.trainer_options import is_inherited

# What a command reads, writes, replaces and draws: each says in its help what that is.
OWN_WORDS = {
    "data",
    "dtype",
    "encoding",
    "model",
    "output",
    "output_dir",
    "overwrite",
    "pooling",
    "seed",
    "task",
    "text",
    "tokenizer",
}
OWN_WORDS |= {"num_processes", "model_size", "dry_run"}
# Defaults that depend on the task, and options only for a new vocabulary, are described in the help.
OWN_DEFAULTS = {"learning_rate", "max_length", "per_device_train_batch_size", "save_total_limit", "text_column"}
OWN_DEFAULTS |= {"do_lower_case", "features", "strip_accents", "text_pair_column", "validation_split", "vocab_layout"}
OWN_DEFAULTS |= {"vocab_size"}


def own_fields(name):
    """The fields of a command's arguments that this package states, not transformers, and their types.

    Derived fields, which users cannot set, are not included.
    """
    arguments_class = cli.COMMANDS[name].load_settings()
    hints = typing.get_type_hints(arguments_class).values()
    parts = [part for hint in hints for part in parts_of(hint)]
    classes = [kind for part in (arguments_class, *parts) for kind in part.__mro__]
    own = {field for kind in classes if kind.__module__.startswith("mybert.") for field in get_annotations(kind)}
    hints = types_of(arguments_class)
    given = [field for field in options_of(arguments_class).values() if field.init]
    return [(each, hints[each.name]) for each in given if each.name in own and not is_inherited(each)]


def kind(field, hint):
    """A field's type, None left out."""
    is_union = isinstance(hint, types.UnionType) or typing.get_origin(hint) is typing.Union
    return frozenset(typing.get_args(hint) if is_union else [hint]) - {type(None)}


def stated(what):
    """For each flag, its statements and the commands with each."""
    found = defaultdict(lambda: defaultdict(list))
    for name in cli.COMMANDS:
        for field, hint in own_fields(name):
            found[field.name][what(field, hint)].append(name)
    return {flag: dict(said) for flag, said in found.items() if len(said) > 1}


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ("my-bert --quiet", "--model my-bert --quiet"),
        ("my-bert --data - --quiet", "--model my-bert --data - --quiet"),
        ("my-bert a.csv b.csv --quiet", "--model my-bert --data a.csv b.csv --quiet"),
        ("--quiet my-bert", "--quiet my-bert"),
        ("", ""),
    ],
)
def test_leading_values_get_names_in_order(given, expected):
    takes_list = {"model": False, "data": True}
    assert name_positional(given.split(), takes_list) == expected.split()
    with pytest.raises(ValueError, match=r"3 values \(a b c\); expected MODEL OUTPUT_DIR"):
        name_positional(["a", "b", "c"], {"model": False, "output_dir": False})
    with pytest.raises(ValueError, match="data is given twice, as 'b' and as --data"):
        name_positional(["a", "b", "--data=c"], takes_list)


def test_parse_flags_of_a_value_that_a_settings_file_makes_superfluous_names_its_flag(tmp_path):
    (tmp_path / "r.yaml").write_text("model: tuned")
    with pytest.raises(ValueError, match=r"data is not set: 't.txt' is read as --model; expected MODEL DATA"):
        parse_flags("predict", ["t.txt", "--config", str(tmp_path / "r.yaml")])
    assert parse_flags("predict", ["m", "t.txt", "--config", str(tmp_path / "r.yaml")]).model == "m"


def test_a_flag_has_one_type():
    assert set(stated(kind)) == {"dtype", "pooling"}  # of which a command supports some


def test_a_flag_has_one_help():
    said = stated(lambda field, hint: field.metadata.get("help"))
    assert not {flag: helps for flag, helps in said.items() if flag not in OWN_WORDS | OWN_DEFAULTS}


@pytest.mark.parametrize("name", cli.COMMANDS)
def test_flags_are_shown_once_and_explained(name):
    parser = CommandParser(name)
    for action in parser.flags:
        assert action.help, action.dest
        shown = [flag for flag in action.option_strings if flag.startswith("--")]
        assert len(shown) == 1 and "-" not in shown[0][2:], shown
    assert len(re.findall(r"^  --config\b", parser.format_help(), re.MULTILINE)) == 1
    for field, _ in own_fields(name):
        assert f"--{field.name.replace('_', '-')}" in parser._option_string_actions


@pytest.mark.parametrize(
    ("name", "idle"),
    [
        ("predict", {"label_column", "label_columns", "label_separator", "continuation_labels"}),
        ("evaluate", {"continuation_labels"}),
        ("compare", {"n_best_size", "confidence_threshold"}),
    ],
)
def test_commands_lack_settings_of_tasks_without_effect(name, idle):
    assert not {field.name for field, _ in own_fields(name)} & idle
    assert idle < {field.name for field, _ in own_fields("finetune")}


@pytest.mark.parametrize("name", cli.COMMANDS)
def test_only_two_flags_say_where_to_write(name):
    for field, _ in own_fields(name):
        if re.search(r"output|prefix|^out_|^save_dir$", field.name):
            assert field.name in ("output", "output_dir"), field.name


def test_usage_shows_the_values_that_may_lead_and_which_are_several():
    expected = {
        "finetune": "[MODEL]",
        "distill": "[TEACHER]",  # and not the model that it inherits
        "pretrain": "[TEXT ...]",
        "adapt": "[MODEL] [TEXT ...]",
        "evaluate": "[DATA ...]",
        "predict": "[MODEL] [DATA ...]",
        "convert google": "[SOURCE] [OUTPUT_DIR]",
        "bench": "[MODEL] [DATA ...]",
    }
    for name, values in expected.items():
        usage = CommandParser(name).format_usage()
        assert " ".join(usage.split()) == " ".join(f"usage: mybert {name} {values} [flags]".split())


@pytest.mark.parametrize("name", cli.COMMANDS)
def test_help_fits_a_terminal_and_begins_with_a_call_that_is_right(name, monkeypatch):
    command = cli.COMMANDS[name]
    monkeypatch.setenv("COLUMNS", "80")
    parser = CommandParser(name)
    for text in (parser.format_help(), parser.full_help(every_flag=True)):
        assert max(map(len, text.splitlines())) <= 80
        assert "\n  mybert " in text.partition("Example:")[2][:12]
        assert not text.endswith("\n\n") and text.endswith("\n")
    lexed = shlex.split(command.example)
    flags = [*name_positional(lexed[: lexed.index(">")] if ">" in lexed else lexed, parser.positional)]
    assert not parser.parse_known_args(flags)[1]


@pytest.mark.parametrize("name", cli.COMMANDS)
def test_help_has_at_most_120_lines_and_names_every_flag_of_its_own(name, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    parser = CommandParser(name)
    text = parser.format_help()
    assert len(text.splitlines()) <= 120
    shown = set(re.findall(r"(?<![\w`])--(?!no_)\w+", text))
    own = {field.name for field, _ in own_fields(name) if field.group not in (None, Group.FURTHER)}
    if name == "adapt":  # its model, which is required, has a vocabulary and a size
        own -= {"vocab_size", "vocab_layout", "do_lower_case", "model_size", "hidden_size", "num_hidden_layers"}
        own -= {"num_attention_heads", "embedding_init", "phase2_positions"}
        assert not {"--vocab_size", "--phase2_positions"} & shown
    assert {f"--{flag}" for flag in own} <= shown


@pytest.mark.parametrize("name", cli.COMMANDS)
def test_a_default_is_the_last_word_of_a_help_and_choices_are_shown_once(name):
    parser = CommandParser(name)
    formatter = parser._get_formatter()
    for flag in parser.flags:
        field = parser.options.get(flag.dest)
        if field is None or is_inherited(field):
            continue
        text = formatter._get_help_string(flag)
        assert "default" not in re.sub(r"\(default: [^()]*\)\.$", "", text.lower()), flag.dest
        if formatter._format_action_invocation(flag).endswith("|".join(map(str, flag.choices or ()))):
            assert "One of" not in text, flag.dest


def test_help_all_explains_inherited_flags_too(monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    parser = CommandParser("pretrain")
    short, full = parser.format_help(), parser.full_help(every_flag=True)
    explained = [set(re.findall(r"^  (--\w+)", text, re.MULTILINE)) for text in (short, full)]
    assert {"--text", "--no_do_lower_case", "--help_all"} <= explained[0] < explained[1]
    assert explained[1] == {flag for action in parser.flags for flag in action.option_strings if flag != "-h"} - {
        "--help"  # comes after -h
    }
    assert "--deepspeed" in explained[1] and "--deepspeed" not in short
    titles = re.findall(r"^(\w.*?)(?: \(see --help_all\))?:$", short, re.MULTILINE)
    assert titles.index("Vocabulary") < titles.index("Training") < titles.index("Every command")
    assert re.search(r"--output_dir DIR .*\n?.*\(required\)", short)
    assert "Turn --do_lower_case off." in short and "(default: 128)" in full
    assert "(default: None)" not in full and "(default: False)" not in full


@pytest.mark.parametrize("name", cli.COMMANDS)
def test_arguments_without_a_required_option_raise(name):
    command = cli.COMMANDS[name]
    arguments_class = command.load_settings()
    if any(getattr(field, "required", None) for field in options_of(arguments_class).values()):
        with pytest.raises(ValueError, match=r"not set|neither .* is set|is empty"):
            build(arguments_class, {})


OUTPUTS = ("output", "output_dir", "predictions_dir", "report", "report_dir", "export")


@pytest.mark.parametrize("name", cli.COMMANDS)
def test_outputs_of_a_command_are_declared_as_such(name):
    options = options_of(cli.COMMANDS[name].load_settings())
    assert [each for each in OUTPUTS if each in options and not options[each].writes] == []
    assert all(each in OUTPUTS for each, option in options.items() if getattr(option, "writes", None))


def test_parse_flags_tilde_in_an_output_is_the_home_folder(monkeypatch):
    monkeypatch.setenv("HOME", "/home/me")  # which no shell puts into `--output_dir=~/x`
    settings = parse_flags("pretrain", ["--text", "~/a.txt", "--output_dir=~/x", "--max_steps", "1"])
    assert (settings.output_dir, settings.text) == ("/home/me/x", ["~/a.txt"])


REPLACED = {
    "pretrain": [
        ("max_hours: 1.0\ntext: a.txt", "--max_steps 5", {"max_steps": 5, "max_hours": None, "text": ["a.txt"]}),
        ("max_hours: 1.0\nmax_steps: null", "--text a.txt --max-hours=2", {"max_hours": 2.0}),
        ("max_steps: 7\ntext: a.txt", "--max_hours 2", {"max_hours": 2.0}),
        (
            "max_steps: 7\ntext: a.txt",
            "--token_store store --tokenizer t",
            {"max_steps": 7, "text": [], "token_store": "store"},
        ),
        (
            "token_store: store\ntokenizer: t",
            "--text a.txt",
            {"text": ["a.txt"], "token_store": None, "tokenizer": "t"},
        ),
        (
            "text: a.txt\nfilter: duplicates",
            "--token_store store --tokenizer t",
            {"text": [], "token_store": "store", "filter": []},
        ),
        ("max_hours: 1.0\ntext: a.txt", "--num_train_epochs 3", {"max_hours": None, "num_train_epochs": 3.0}),
        ("max_hours: 1.0\ntext: a.txt", "--max_steps -1", {"max_hours": 1.0}),  # which is none
        ("fp16: yes\ntext: a.txt", "--bf16", {"bf16": True, "fp16": False}),
        ("fp16: yes\ntext: a.txt", "--bf16 False", {"bf16": False, "fp16": True}),
        ("embedding_init: cooccurrence\ntext: a.txt", "--model m", {"model": "m", "embedding_init": "random"}),
        ("vocab_size: 60\nmodel_size: tiny\ntext: a.txt", "--model m", {"vocab_size": 30522, "model_size": "base"}),
        ("model: m\ntext: a.txt", "--embedding_init random", {"model": "m", "embedding_init": "random"}),
    ],
    "finetune": [
        ("validation_split: 0.1", "--validation_file d.tsv", {"validation_split": 0.0, "validation_file": ["d.tsv"]}),
        ("validation_file: d.tsv", "--folds 3", {"validation_file": None, "folds": 3}),
        ("folds: 3", "--validation_split 0", {"folds": 3}),
        ("peft_config: p.json", "--lora", {"peft_config": None, "lora": True}),
        ("max_steps: 5", "--num_train_epochs 2", {"max_steps": -1, "num_train_epochs": 2.0}),
        ("freeze: encoder", "--gradual_unfreezing 0.5", {"freeze": None, "gradual_unfreezing": 0.5}),
    ],
}


@pytest.mark.parametrize(
    ("command", "recipe", "flags", "expected"),
    [(command, *row) for command, rows in REPLACED.items() for row in rows],
)
def test_a_flag_takes_the_place_of_what_a_recipe_says_instead(command, recipe, flags, expected, tmp_path):
    data = "model: m\ntrain_file: t.tsv\n" if command == "finetune" else ""
    (tmp_path / "recipe.yaml").write_text(f"{data}{recipe}")
    found = parse_flags(command, ["--config", str(tmp_path / "recipe.yaml"), *flags.split(), "--output_dir", "out"])
    assert {name: getattr(found, name) for name in expected} == expected


def test_parse_flags_recipe_next_to_a_folder_of_its_name_is_read(tmp_path, monkeypatch):
    """The run's own folder, when it is resumed."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "laptop_10_minutes").mkdir()
    flags = "text.txt --config laptop_10_minutes --output_dir laptop_10_minutes".split()
    assert parse_flags("pretrain", flags).max_hours == pytest.approx(1 / 6, abs=1e-3)


def test_a_switch_that_may_be_unset_needs_no_value():
    """As in scripts that pass `--load_best_model_at_end` to transformers' parser."""
    flags = ["m", "--train_file", "t.tsv", "--output_dir", "out", "--validation_split", "0.1"]
    switches = ["disable_tqdm", "load_best_model_at_end", "greater_is_better"]
    found = parse_flags("finetune", [*flags, *(f"--{name}" for name in switches)])
    assert all(getattr(found, name) is True for name in switches)


def test_settings_that_exclude_each_other_are_refused_in_one_place(tmp_path, capsys):
    (text := tmp_path / "a.txt").write_text("a text\n")
    (tmp_path / "recipe.yaml").write_text(f"max_hours: 1.0\nmax_steps: 5\ntext: {text}\noutput_dir: out")
    for flags in (["--config", str(tmp_path / "recipe.yaml")], f"--text {text} --max_hours 1 --max_steps 5".split()):
        assert cli.main(["pretrain", *flags, "--output_dir", str(tmp_path / "out")]) == 2
        assert (
            "--max_hours is 1.0 and --max_steps 5; use either --max_hours or --max_steps." in capsys.readouterr().err
        )


@pytest.mark.parametrize(
    ("flags", "expected"),
    [("--bf16", True), ("--bf16 true", True), ("--bf16 False", False), ("--bf16 auto", "auto"), ("", False)],
)
def test_a_switch_that_may_be_left_to_the_command(flags, expected):
    parser = CommandParser("pretrain")
    assert vars(parser.parse_args(flags.split()))["bf16"] == expected
    with pytest.raises(SettingError, match="bf16 is 'atuo'; expected one of True, False, auto"):
        parser.parse_args(["--bf16", "atuo"])
