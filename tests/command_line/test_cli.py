import importlib
import json
import signal
import sys
import time
from dataclasses import dataclass, field
from typing import Any, Literal

import pytest
from safetensors import SafetensorError
from torch import distributed

import mybert
from mybert import cli
from mybert.command_line import GROUPS
from mybert.files.errors import SettingError
from mybert.files.options import Group, option
from mybert.files.settings import Parts


@dataclass(frozen=True, kw_only=True)
class NamedSettings(Parts):
    name: str = field(metadata={"help": "A name."})
    number: int = field(default=1, metadata={"help": "A number."})


@dataclass(frozen=True, kw_only=True)
class EchoSettings(Parts):
    number: int = field(default=1, metadata={"help": "A number."})
    rate: float = field(default=0.5, metadata={"help": "A rate."})
    names: list[str] | None = option(None, "Names.", group=Group.INPUT, positional=1)
    color: Literal["red", "blue"] = field(default="red", metadata={"help": "A color."})
    day: str | None = field(default="today", metadata={"help": "A text."})
    more: dict[str, Any] | str | None = field(default=None, metadata={"help": "Settings, as JSON."})
    disable_tqdm: bool = field(default=False, metadata={"help": "No progress bars."})


ERRORS = {
    13: SettingError("number", 13, "\n luck"),
    14: PermissionError(13, "Permission denied", "/no/x"),
    16: SafetensorError("Error while deserializing header: header too large"),
    17: OSError(28, "No space left on device", "tokens.safetensors"),
    18: ValueError(f"/a/file holds {'x' * 1000}; expected another."),
    19: RecursionError("maximum recursion depth exceeded"),
    20: MemoryError("Unable to allocate 2 TiB"),
    21: RuntimeError("CUDA out of memory. Tried to allocate 2 GiB."),
    22: KeyError("a key of the package"),
    23: RuntimeError("an invariant of the package"),
}
calls = []


def echo(arguments: EchoSettings):
    calls.append(arguments)
    if arguments.number in ERRORS:
        raise ERRORS[arguments.number]
    return {"interrupted": arguments.number in (15, 24)} | ({"accuracy": 0.5} if arguments.number == 24 else {})


def say_name(arguments: NamedSettings):
    calls.append(arguments)


def join_group(arguments: NamedSettings):
    distributed.init_process_group("gloo", store=distributed.HashStore(), rank=0, world_size=1)
    calls.append(distributed.get_world_size())


@pytest.fixture
def echo_command(monkeypatch):
    calls.clear()
    monkeypatch.setitem(cli.COMMANDS, "echo", cli.Command("say it again", __name__, "EchoSettings", "echo"))
    monkeypatch.setitem(sys.modules, __name__, sys.modules.get(__name__) or sys.modules[echo.__module__])


def test_yaml_gives_defaults_and_flags_win(echo_command, tmp_path):
    path = tmp_path / "run.yaml"
    path.write_text("number: 4\nrate: 1e-3\n")
    assert cli.main(["echo", "--config", str(path)]) == 0
    assert cli.main(["echo", "--config", str(path), "--number", "5"]) == 0
    path.write_text("names: Ada\n")  # a single value for a list is a list of one
    assert cli.main(["echo", "--config", str(path)]) == 0
    assert calls == [
        EchoSettings(number=4, rate=0.001),
        EchoSettings(number=5, rate=0.001),
        EchoSettings(names=["Ada"]),
    ]


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        ("day: 2024-11-21", {"day": "2024-11-21"}),
        ("day: 007", {"day": "007"}),
        ("day: no", {"day": "no"}),
        ("day: null", {"day": None}),
        ("names: null\ndisable_tqdm:\nmore: ~\nquiet: null", {}),  # which cannot be None
        ("number: 1\nmore: {<<: &a {b: 1}, <<: *a, b: 2}", {"number": 1, "more": '{"b": 2}'}),
        ("names: [1, 2024-11-21, -x]", {"names": ["1", "2024-11-21", "-x"]}),
        ("color: blue", {"color": "blue"}),
        ("disable_tqdm: no", {"disable_tqdm": False}),
        ("quiet: yes", {"disable_tqdm": True}),
        ("quiet: no", {}),
        ("more: {since: 2024-11-21}", {"more": '{"since": "2024-11-21"}'}),
        ("more: {steps: 3, rate: 0.5}", {"more": '{"steps": 3, "rate": 0.5}'}),
    ],
)
def test_yaml_means_what_stands_there(echo_command, tmp_path, content, expected):
    path = tmp_path / "run.yaml"
    path.write_text(content)
    assert cli.main(["echo", "--config", str(path)]) == 0
    assert calls == [EchoSettings(**expected)]


def test_one_settings_file_is_read(echo_command, tmp_path, capsys):
    for name in ("a.yaml", "b.yaml"):
        (tmp_path / name).write_text("number: 4\n")
    assert cli.main(["echo", "--config", str(tmp_path / "a.yaml"), f"--config={tmp_path / 'b.yaml'}"]) == 2
    assert "--config is given 2 times (" in capsys.readouterr().err and not calls


def test_yaml_gives_what_a_command_requires(echo_command, monkeypatch, tmp_path, capsys):
    monkeypatch.setitem(cli.COMMANDS, "name", cli.Command("say a name", __name__, "NamedSettings", "say_name"))
    path = tmp_path / "run.yaml"
    path.write_text("name: Ada\n")
    assert cli.main(["name", "--config", str(path)]) == 0
    assert cli.main(["name", "--config", str(path), "--name", "Grace"]) == 0
    assert calls == [NamedSettings(name="Ada"), NamedSettings(name="Grace")]
    for content in ("number: 2\n", "name: null\n"):
        path.write_text(content)
        assert cli.main(["name", "--config", str(path)]) == 2
        assert capsys.readouterr().err == "mybert name: --name is not set; expected: A name.\n"


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("nmber: 1\n", "has unknown settings: nmber. Did you mean number?\n"),
        ("xyz: 1\n", "has unknown settings: xyz.\n"),
        ("number: [1, 2]\n", "number is [1, 2]; expected a single value"),
        ("number: two\n", "--number is 'two'; expected a whole number."),
        ("number: 1.5\n", "--number is '1.5'; expected a whole number."),
        ("number: {a: 1}\n", "--number is '{\"a\": 1}'; expected a whole number."),
        ("color: Blue\n", "--color is 'Blue'. Did you mean blue? Expected one of red, blue.\n"),
        ("disable_tqdm: perhaps\n", "--disable_tqdm is 'perhaps'; expected true or false."),
        ("names:\n- one: of two\n", "names is [{'one': 'of two'}]; expected single values"),
        ("more: {a: !!python/name:os.system x}\n", "could not determine a constructor"),
        ("config: other.yaml\n", "has unknown settings: config"),
        ("[", "is not YAML"),
        ("just words", "holds no settings"),
        ("", "holds no settings"),
        ("- number: 1", "holds no settings"),
        ("number: 1\nnumber: 2", "names number twice, again in line 2"),
        ("disable_tqdm: yes\ndisable-tqdm: no", "names a setting twice"),
        ("more:\n  rows: {wide: 1,\n    wide: 2}", "names wide twice, again in line 3"),
        ("more: " + "[" * 5000 + "]" * 5000, "is nested too deeply"),
        ("number: \udcff", "is not UTF-8 text: bad byte at offset 8"),
        ("number: 1\0", "is not YAML"),
    ],
)
def test_broken_yaml(echo_command, tmp_path, capsys, content, message):
    path = tmp_path / "run.yaml"
    path.write_text(content, encoding="utf-8", errors="surrogateescape")
    assert cli.main(["echo", "--config", str(path)]) == 2
    error = capsys.readouterr().err
    assert message in error and str(path) in error
    assert error.count("\n") == 1 and len(error) < 550


def test_a_config_that_is_not_there(echo_command, tmp_path, capsys):
    for path, message in (
        ("bsae", "There is no file or recipe bsae; the recipes are ablation, "),
        ("bsae", "Did you mean base?\n"),
        ("nowhere/run.yaml", "There is no file or recipe nowhere/run.yaml"),
        (str(tmp_path), f"{tmp_path} is a folder; expected a file."),
    ):
        assert cli.main(["echo", "--config", path]) == 2
        assert message in capsys.readouterr().err
    assert cli.main(["echo", "--config"]) == 2
    assert "--config has no value." in capsys.readouterr().err


def test_both_spellings_of_a_flag_are_read(echo_command, tmp_path):
    path = tmp_path / "run.yaml"
    path.write_text("disable-tqdm: yes\n")
    assert cli.main(["echo", "--config", str(path)]) == 0
    assert cli.main(["echo", "--disable-tqdm"]) == 0
    assert calls == [EchoSettings(disable_tqdm=True)] * 2


def test_process_group_that_a_command_has_joined_ends_with_it(echo_command, monkeypatch):
    monkeypatch.setitem(cli.COMMANDS, "join", cli.Command("join", __name__, "NamedSettings", "join_group"))
    assert cli.main(["join", "--name", "x"]) == 0
    assert calls == [1] and not distributed.is_initialized()


def test_leading_values_need_no_flag(echo_command, capsys):
    assert cli.main(["echo", "Ada", "-", "--number", "3"]) == 0
    assert calls == [EchoSettings(names=["Ada", "-"], number=3)]
    for flags in (["--names", "Grace"], ["--names=Grace"]):
        assert cli.main(["echo", "Ada", *flags]) == 2
        assert capsys.readouterr().err == "mybert echo: --names is given twice, as 'Ada' and as --names.\n"
    assert cli.main(["echo", "--help"]) == 0
    assert capsys.readouterr().out.startswith("usage: mybert echo [NAMES ...] [flags]\n")


def test_quiet(echo_command):
    assert cli.main(["echo", "--quiet"]) == 0
    assert calls == [EchoSettings(disable_tqdm=True)]


def test_mistakes_are_one_sentence_and_status_2(echo_command, capsys):
    assert cli.main(["echo", "--number", "13"]) == 2
    assert capsys.readouterr().err == "mybert echo: --number is 13; expected luck.\n"
    assert cli.main(["echo", "--number", "14"]) == 2
    assert capsys.readouterr().err == "mybert echo: /no/x: Permission denied.\n"
    assert cli.main(["echo", "--number", "16"]) == 2  # transformers passes it on as it is
    assert "mybert echo: the weights are not a complete safetensors file: Error while" in capsys.readouterr().err
    assert cli.main(["echo", "--number", "17"]) == 2
    assert capsys.readouterr().err == "mybert echo: tokens.safetensors: the disk is full.\n"
    assert cli.main(["echo", "--number", "18"]) == 2
    shown = capsys.readouterr().err
    assert shown.startswith("mybert echo: /a/file holds xx") and shown.endswith("xx; expected another.\n")
    assert "x ... x" in shown and len(shown) < 520
    assert cli.main(["echo", "--number", "19"]) == 2
    assert capsys.readouterr().err == "mybert echo: the input is nested too deeply.\n"
    for number, cause in (("20", "Unable to allocate 2 TiB"), ("21", "CUDA out of memory. Tried")):
        assert cli.main(["echo", "--number", number]) == 2
        assert f"not enough memory ({cause}" in capsys.readouterr().err
    assert cli.main(["echo", "--numer", "14"]) == 2
    assert capsys.readouterr().err == "mybert echo: unknown flag '--numer'. Did you mean --number?\n"
    assert cli.main(["echo", "--xyz", "14"]) == 2
    assert capsys.readouterr().err == "mybert echo: unknown flag '--xyz'; --help lists the flags.\n"
    assert cli.main(["echo", "--number", "4", "5"]) == 2
    assert capsys.readouterr().err == "mybert echo: '5' belongs to no flag; --help lists the flags.\n"
    assert cli.main(["ecko"]) == 2
    error = capsys.readouterr().err
    assert "unknown command 'ecko'. Did you mean echo? mybert --help lists the commands." in error
    for number in ("13", "14"):
        assert cli.main(["echo", "--number", number]) == 2
        sentence = capsys.readouterr().err
        assert cli.main(["echo", "--debug", "--number", number]) == 2
        shown = capsys.readouterr().err
        assert shown.startswith("Traceback") and shown.endswith(f"\n{sentence}")


@pytest.mark.parametrize("number", [22, 23])
def test_our_own_mistakes_are_not_hidden(echo_command, number):
    with pytest.raises(type(ERRORS[number])):
        cli.main(["echo", "--number", str(number)])


def test_interrupted_commands_exit_as_shells_expect(echo_command):
    assert cli.main(["echo", "--number", "15"]) == 130


def test_main_interrupted_in_the_last_step_of_a_complete_run_returns_0(echo_command):
    assert cli.main(["echo", "--number", "24"]) == 0


@pytest.mark.parametrize(
    ("error", "status", "said"),
    [(KeyboardInterrupt, 130, "mybert: interrupted.\n"), (MemoryError, 2, "mybert: not enough memory.\n")],
)
def test_an_error_while_the_commands_are_loaded_is_one_line(error, status, said, monkeypatch, capsys):
    class Failing:
        @staticmethod
        def find_spec(name, *_):
            if name == "mybert.cli":
                raise error

    entry = importlib.import_module("mybert.__main__")
    monkeypatch.delattr(mybert, "cli")
    monkeypatch.delitem(sys.modules, "mybert.cli")
    monkeypatch.setattr(sys, "meta_path", [Failing, *sys.meta_path])
    assert entry.main() == status
    assert capsys.readouterr().err == said


def test_usage_lists_every_command_once_in_groups(capsys):
    assert cli.main([]) == 2
    capsys.readouterr()
    assert cli.main(["--help"]) == 0
    usage = capsys.readouterr().out
    assert all(usage.count(f"\n  {name} ") == 1 for name in cli.COMMANDS)
    places = [usage.index(f"\n{title.capitalize()}:\n") for title in GROUPS]
    assert usage.index("Start here: mybert demo") < places[0] and places == sorted(places)
    assert sorted({name.split()[0] for name in cli.COMMANDS}) == sorted(" ".join(GROUPS.values()).split())
    first = [name for words in GROUPS.values() for name in words.split()]
    shown = [usage.index(f"\n  {name} ") for name in first if name in cli.COMMANDS]
    assert shown == sorted(shown)


def test_usage_of_a_group_lists_its_commands(capsys):
    assert cli.main(["convert"]) == 2
    assert cli.main(["convert", "--help"]) == 0
    usage = capsys.readouterr().out
    assert "  convert to-google  convert a model folder" in usage
    assert "pretrain" not in usage
    assert cli.main(["convert", "gogle", "a", "b"]) == 2
    expected = "unknown command 'convert gogle'. Did you mean convert google? mybert --help lists the commands."
    assert expected in capsys.readouterr().err


@pytest.mark.parametrize("name", cli.COMMANDS)
def test_every_command_loads_and_has_help(name, capsys):
    assert cli.main([*name.split(), "--help"]) == 0
    assert "-h, --help" in capsys.readouterr().out
    assert cli.COMMANDS[name].load_function().__doc__


def test_help_of_a_command_by_its_name(capsys):
    assert cli.main(["help", "curves"]) == cli.main(["curves", "-h"]) == 0
    twice = capsys.readouterr().out
    assert twice[: len(twice) // 2] == twice[len(twice) // 2 :]
    assert twice.startswith("usage: mybert curves [RUN_DIRS ...] [flags]")
    assert cli.main(["help"]) == 0
    assert "usage: mybert <command>" in capsys.readouterr().out
    assert cli.main(["help", "convert", "onnx"]) == 0
    assert capsys.readouterr().out.startswith("usage: mybert convert onnx ")
    assert cli.main(["help", "curvs"]) == 2
    assert capsys.readouterr().err.startswith("mybert: unknown command 'curvs'. Did you mean curves? ")


@pytest.mark.parametrize("flag", ["-V", "--version"])
def test_version(flag, capsys):
    assert cli.main([flag]) == 0
    assert capsys.readouterr().out == f"mybert {mybert.__version__}\n"


@pytest.mark.slow
def test_ctrl_c_keeps_the_work_and_the_same_command_goes_on(tmp_path, text_file, start_python, monkeypatch):
    flags = f"pretrain --text {text_file} --output_dir out --vocab_size 60 --vocab_layout compact --model_size tiny"
    flags += (
        " --hidden_size 32 --max_length 32 --max_steps 300 --logging_steps 5 --save_steps 100000 --validation_split 0"
    )
    flags = flags.split()
    process = start_python("-m", "mybert", *flags, cwd=tmp_path)
    deadline = time.monotonic() + 120
    while ": mlm " not in (line := process.stdout.readline()):
        assert line or process.poll() is None, process.stderr.read()
        assert time.monotonic() < deadline
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=120)
    assert process.returncode == 130, err
    assert "the same command continues from there" in out
    (checkpoint,) = (tmp_path / "out").glob("checkpoint-*")
    stopped_at = int(checkpoint.name.removeprefix("checkpoint-"))
    assert 0 < stopped_at < 300
    monkeypatch.chdir(tmp_path)
    assert cli.main(flags) == 0
    state = json.loads((tmp_path / "out" / "trainer_state.json").read_text())
    assert state["global_step"] == 300
    assert [entry["step"] for entry in state["log_history"] if "mlm_loss" in entry] == list(range(5, 301, 5))


LAUNCHED = """
import sys
sys.argv = ["mybert"]
import mybert.__main__, mybert.cli

class Kept:
    def __del__(self):
        print("finalized")

def command():
    import atexit
    atexit.register(print, "closed")
    return 3

kept, mybert.cli.main = Kept(), command
sys.exit(mybert.__main__.main())
"""


@pytest.mark.parametrize(("launcher", "output"), [({}, "closed\nfinalized\n"), ({"LOCAL_RANK": "0"}, "closed\n")])
def test_processes_of_a_launcher_end_before_the_interpreter_is_finalized(run_python, launcher, output):
    assert run_python("-c", LAUNCHED, status=3, **launcher).stdout == output


@pytest.mark.parametrize(
    ("error", "status", "said"),
    [(KeyboardInterrupt, 130, "mybert completion: interrupted.\n"), (BrokenPipeError, 141, "")],
)
def test_a_command_that_is_ended_has_the_status_of_shells(error, status, said, monkeypatch, capsys):
    def end(settings):
        raise error

    monkeypatch.setattr(type(cli.COMMANDS["completion"]), "load_function", lambda command: end)
    monkeypatch.setattr(cli, "drop_output", lambda: None)
    assert cli.main(["completion", "bash"]) == status
    assert capsys.readouterr().err == said
