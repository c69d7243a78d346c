import io
import logging
import sys
import warnings
from dataclasses import dataclass, field

import pytest
from huggingface_hub.utils import are_progress_bars_disabled
from tqdm import tqdm
from transformers.utils import logging as transformers_logging

from mybert import MyBertModel, cli
from mybert.command_line.console import sentence_for_command, set_up_output, silence_libraries
from mybert.files.errors import SettingError, worded
from mybert.files.progress import progress_bar
from mybert.files.settings import Parts
from mybert.finetuning import PredictSettings


@dataclass(frozen=True, kw_only=True)
class NoisySettings(Parts):
    name: str = field(default="x", metadata={"help": "A name."})


starts = []


def make_noise(arguments: NoisySettings):
    starts.append(vars(tqdm)["__init__"])
    for _ in progress_bar(range(3), desc="work", disable=False):
        pass
    for _ in transformers_logging.tqdm(range(3), desc="Loading weights"):
        pass
    warnings.warn("'pin_memory' argument is set as true but no accelerator is found", UserWarning, stacklevel=1)
    logging.getLogger("mybert").info("a line")
    logging.getLogger("mybert").warning("a warning")


@pytest.fixture
def noisy_command(monkeypatch):
    command = cli.Command("make noise", __name__, "NoisySettings", "make_noise")
    monkeypatch.setitem(cli.COMMANDS, "noise", command)
    monkeypatch.setitem(sys.modules, __name__, sys.modules.get(__name__) or sys.modules[make_noise.__module__])


def test_bars_of_our_own_and_no_chatter(noisy_command, capsys):
    assert cli.main(["noise"]) == 0
    captured = capsys.readouterr()
    assert captured.out == "a line\na warning\n"
    assert "work: 100%" in captured.err and "Loading" not in captured.err and "pin_memory" not in captured.err


def test_quiet_is_quiet(noisy_command, capsys):
    assert cli.main(["noise", "--quiet"]) == 0
    captured = capsys.readouterr()
    assert (captured.out, captured.err) == ("a warning\n", "")


def test_quiet_leaves_tqdm_as_it_is(noisy_command, capsys):
    begin = vars(tqdm)["__init__"]
    assert cli.main(["noise", "--quiet"]) == 0
    assert starts[-1] is begin
    for _ in progress_bar(range(3), desc="later", disable=False):
        pass
    assert "later: 100%" in capsys.readouterr().err


def test_libraries_are_as_they_were_afterwards(noisy_command):
    shown = transformers_logging.is_progress_bar_enabled()
    assert cli.main(["noise", "--quiet"]) == 0
    assert transformers_logging.is_progress_bar_enabled() == shown and not are_progress_bars_disabled()
    with pytest.raises(ZeroDivisionError), silence_libraries():
        1 / 0  # noqa: B018
    assert transformers_logging.is_progress_bar_enabled() == shown
    set_up_output(quiet=False)
    with silence_libraries():
        assert not transformers_logging.is_progress_bar_enabled() and not are_progress_bars_disabled()


@pytest.mark.parametrize("is_terminal", [True, False])
def test_a_terminal_gets_lines_that_fit_and_a_pipe_whole_ones(is_terminal, monkeypatch):
    stream = io.StringIO()
    stream.isatty = lambda: is_terminal
    monkeypatch.setattr(sys, "stdout", stream)
    monkeypatch.setenv("COLUMNS", "40")
    set_up_output(quiet=False)
    logging.getLogger("mybert").info("short\n  %s", "word " * 20)
    lines = stream.getvalue().splitlines()
    assert lines[0] == "short"
    if is_terminal:
        assert len(lines) == 4 and max(map(len, lines)) <= 40
        assert lines[1].startswith("  word") and lines[2].startswith("    word")
    else:
        assert lines[1] == "  " + "word " * 20


def test_bars_whose_delay_is_not_over_stay_unseen(capsys):
    set_up_output(quiet=False)
    with tqdm(desc="long", delay=60), tqdm(desc="short"):
        logging.getLogger("mybert").info("a line")
        captured = capsys.readouterr()
    assert captured.out == "a line\n" and "short" in captured.err and "long" not in captured.err


def test_a_line_that_is_our_own_mistake_is_not_hidden(capsys):
    set_up_output(quiet=False)
    with pytest.raises(TypeError, match="a real number is required"):
        logging.getLogger("mybert").info("%d texts", "many")


@dataclass
class ModelArguments:
    model: str = "models/tuned"
    task: str = "sst2"
    found: str = field(default="", init=False)


TASK = SettingError("task", "sst", known=["cola", "sst2"])
COLUMNS = {"unknown": ["labels", "txt"], "alike": 0.75}


@pytest.mark.parametrize(
    ("error", "shown"),
    [
        (TASK, "--task is 'sst'. Did you mean sst2? Expected one of cola, sst2."),
        (SettingError("task", "q", known=["cola"]), "--task is 'q'; expected one of cola."),
        (SettingError("found", "m", "a folder"), "found is 'm'; expected a folder."),  # no flag
        (
            ValueError(worded("f lacks them.", known=["text", "Label"], **COLUMNS)),
            "f lacks them. Did you mean Label? Did you mean text?",
        ),
        (ValueError(worded("f lacks it.", known=["text"], unknown=["context"], alike=0.75)), "f lacks it."),
        (OSError(worded("{model} is {!r}.", "x")), "--model is 'x'."),
        (
            ValueError("model is a folder; pass task=True and --other, or task."),
            "model is a folder; pass task=True and --other, or task.",
        ),
    ],
)
def test_sentence_for_command_names_flags_and_suggests_words(error, shown):
    assert sentence_for_command(error, ModelArguments) == shown
    assert ("--model" in shown) + ("--task" in shown) == 0 or sentence_for_command(error, None) != shown


def test_sentence_for_command_leaves_out_flags_that_the_command_lacks():
    error = ValueError(worded("x holds another run; name another folder[, or pass {overwrite=True}]. It has {}.", "y"))
    assert sentence_for_command(error, PredictSettings) == (
        "x holds another run; name another folder, or pass --overwrite. It has y."
    )
    assert sentence_for_command(error, ModelArguments) == "x holds another run; name another folder. It has y."


@pytest.mark.parametrize(
    ("command", "message"),
    [
        (
            "finetune data --train_file rows.csv --text_column seed --label_column folds --output_dir out",
            "rows.csv has no columns 'seed' and 'folds'; its columns are 'label_column', 'text'; choose which to read "
            "with --text_column NAME and --label_column NAME.",
        ),
        (
            "finetune max_length --train_file rows.csv --task regression --label_column label_column --output_dir out",
            "rows.csv, row 1: 'the cat' as label_column; expected a number",
        ),
        (
            "predict max_length save_steps",
            "max_length is MyBertModel, without a head for a task; expected a fine-tuned",
        ),
        (
            "distill max_length --student pack --train_file rows.csv --output_dir out",
            "max_length is MyBertModel, without",
        ),
        ("compare data tokenizer --data save_steps", "data is MyBertModel, without a head"),
        ("bench --model data --data rows.csv", "data is MyBertModel, without a head"),
        ("predict save_steps data", "--model is 'save_steps', which is a file; expected the folder of a model"),
        (
            "features rows.csv --model data --text_column folds --output o.jsonl",
            "rows.csv has no 'folds', only 'label_col",
        ),
        (
            "data rows.csv --text_column folds --tokenizer data --output pack",
            "rows.csv has no 'folds', only 'label_col",
        ),
        (
            "pretrain save_steps --model data --output_dir out --max_steps 1 --max_length 999",
            "--max_length is 999; data reads at most 512 tokens",
        ),
        ("convert to-google config_file output", "config_file: hidden_act is 'gelu'; Google's code computes"),
        ("vocab save_steps --vocab_size 5 --output_dir data", "--vocab_size is 5, but 999 reserved tokens come first"),
    ],
)
def test_a_folder_or_file_or_column_with_the_name_of_an_option_is_no_flag(
    command, message, tmp_path, tiny_model, monkeypatch, capsys
):
    monkeypatch.chdir(tmp_path)
    for name in ("data", "tokenizer", "max_length", "config_file"):
        tiny_model(tmp_path / name, MyBertModel)
    (tmp_path / "save_steps").write_text("the cat sat\na dog\n\nit was\n")
    (tmp_path / "rows.csv").write_text("label_column,text\nthe cat,1\na dog,0\n")
    capsys.readouterr()
    assert cli.main(command.split()) == 2
    assert f": {message}" in capsys.readouterr().err.splitlines()[-1]


@pytest.mark.parametrize(
    "words",
    [
        "features text.txt --output x.jsonl --model",
        "predict --data text.txt --output x.jsonl --model",
        "score --data text.txt --output x.jsonl --model",
        "evaluate text.txt --model",
    ],
)
def test_a_folder_that_is_not_there_is_called_that(words, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "text.txt").write_text("a text\n")
    name = f"mybert {words.partition(' ')[0]}"
    assert cli.main([*words.split(), "nowhere"]) == 2
    expected = f"{name}: --model is 'nowhere'; there is no such folder here, and the Hub could not be reached"
    assert capsys.readouterr().err.startswith(expected)
    (tmp_path / "models").mkdir()
    assert cli.main([*words.split(), "models/tuned"]) == 2
    assert capsys.readouterr().err == f"{name}: There is no model folder models/tuned.\n"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["models", "text.txt"]


@pytest.mark.parametrize("is_terminal", [True, False])
def test_mistakes_fit_the_terminal(monkeypatch, is_terminal):
    stream = io.StringIO()
    monkeypatch.setattr(stream, "isatty", lambda: is_terminal)
    monkeypatch.setattr(sys, "stderr", stream)
    monkeypatch.setenv("COLUMNS", "40")
    assert cli.main(["pretran"]) == 2
    lines = stream.getvalue().splitlines()
    assert (len(lines) > 1) == is_terminal
    assert "Did you mean pretrain?" in " ".join(map(str.strip, lines))
    assert not is_terminal or max(map(len, lines)) <= 40
