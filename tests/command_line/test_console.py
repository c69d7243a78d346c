import io
import logging
import sys
import warnings
from dataclasses import dataclass, field

import pytest
from huggingface_hub.utils import are_progress_bars_disabled
from tqdm import tqdm
from transformers.utils import logging as transformers_logging

from mybert import cli
from mybert.command_line.console import sentence_for_command, set_up_output, silence_libraries
from mybert.files.progress import progress_bar
from mybert.finetuning import PredictArguments


@dataclass
class NoisyArguments:
    name: str = field(default="x", metadata={"help": "A name."})


starts = []


def make_noise(arguments: NoisyArguments):
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
    command = cli.Command("make noise", __name__, "make_noise")
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


@dataclass
class ModelArguments:
    model: str = "models/tuned"
    vocab_layout: str = "google"
    other: bool = False
    part2_size: int = 1
    bf16: bool = False
    found: str = field(default="", init=False)


@pytest.mark.parametrize(
    ("said", "shown"),
    [
        ("raise it or use vocab_layout='compact'.", "raise it or use --vocab_layout compact."),
        (
            "task is 'sst'; expected one of cola, sst2.",
            "task is 'sst'. Did you mean sst2? Expected one of cola, sst2.",
        ),
        (
            "task is 'sst'; for labels of your own use x. Expected one of cola, sst2.",
            "task is 'sst'. Did you mean sst2? Expected one of cola, sst2.",
        ),
        *(
            (said, f"{said}{meant}")
            for said, meant in (
                ("f has no column 'labels' in row 2; its columns are 'text', 'Label'.", " Did you mean Label?"),
                (
                    "f has no columns 'txt' and 'lable'; its columns are 'text', 'label', ...; choose which to read.",
                    " Did you mean text? Did you mean label?",
                ),
                ("f has no 'Text', only 'id', 'text'; rename it.", " Did you mean text?"),
                ("f has no column 'context'; its columns are 'line', 'text'; choose which to read.", ""),
                ("f has no 'text', only 'id'; rename it.", ""),
                ("f has no column 'text'; its columns are 'id', ....", ""),
            )
        ),
        ("algorithm is 'bp', expected 'bpe'.", "algorithm is 'bp', expected 'bpe'."),
        (
            "vocab_layout is 'compct'; expected 'google' or 'compact'.",
            "--vocab_layout is 'compct'. Did you mean compact? Expected 'google' or 'compact'.",
        ),
        (
            "model is 'm' and other is set; use either model or other.",
            "--model is 'm' and --other is set; use either --model or --other.",
        ),
        (
            "m.txt (vocab_layout): a model is there; its vocab_layout=3.",
            "m.txt (--vocab_layout): a model is there; its vocab_layout=3.",
        ),
        ("neither model nor other is set; expected one.", "neither --model nor --other is set; expected one."),
        ("model and other are not set.", "--model and --other are not set."),
        # of a model's folder that has an option's name
        *(
            (said, said)
            for said in (
                "model has no head for this task; expected one of classification.",
                "model is BertModel, without a head for a task; expected a fine-tuned model.",
                "other has 30,522 entries in its vocabulary, the tokenizer has 100.",
                "model is a folder of sentence-transformers.",
            )
        ),
        ("vocab_layout is 3 without model; leave it out.", "--vocab_layout is 3 without --model; leave it out."),
        ("model is 3 with other 'x'; with model files.", "--model is 3 with --other 'x'; with model files."),
        ("d has no x, the vocab_layout of sst2.", "d has no x, the vocab_layout of sst2."),  # of a suite's task
        ("'vocab_layout' is no model.", "'vocab_layout' is no model."),
        ("part2_size is 3 without bf16, as fp16.", "--part2_size is 3 without --bf16, as fp16."),
        ("found is 'm'.", "found is 'm'."),  # no flag
        ("number is 'abc'; expected a whole number.", "number is 'abc'; expected a whole number."),
        ("Pass other=True to go on.", "Pass --other to go on."),
        ("seed='compact' and 3 layout are as they were.", "seed='compact' and 3 layout are as they were."),
    ],
)
def test_sentences_are_in_the_words_of_the_command(said, shown):
    assert sentence_for_command(said, ModelArguments) == shown
    if "did you" not in shown.lower():
        assert sentence_for_command(said, None) == said


@pytest.mark.parametrize("advice", [" or pass --overwrite", ", or pass --encoding cp949 or cp1252"])
def test_sentence_for_command_leaves_out_flags_that_the_command_lacks(advice):
    said = f"x holds another run; name another folder{advice}. Other settings: hidden was 1, is 2."
    assert sentence_for_command(said, PredictArguments) == said
    assert sentence_for_command(said, ModelArguments) == said.replace(advice, "")


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
