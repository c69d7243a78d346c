"""The commands: `mybert <command> --help`. Each is a thin call of one library function.

A mistake of the user's gets one sentence on standard error and exit status 2; `--debug` shows where it was found.
"""

import errno
import importlib
import json
import logging
import os
import re
import sys
from argparse import Action, ArgumentError, ArgumentParser
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import takewhile
from pathlib import Path
from typing import Any, NoReturn

from safetensors import SafetensorError

from . import __version__
from .files import INTERRUPTED, interruptible

_RECIPES = Path(__file__).parent / "pretraining" / "recipes"
NOBODY_READS = 141  # exit status of a command whose output is a closed pipe, as shells have it
LONGEST_SENTENCE = 500  # characters of an error; of a longer one the middle is left out
_NO_MEMORY = re.compile("out of memory|can't allocate memory|not enough memory", re.IGNORECASE)  # torch's words


@dataclass(frozen=True)
class Command:
    """A command: `function` of `module` takes one `arguments` object, whose class says which flags there are.

    The flags in `positional` may also be given without their names, before all others; a single one takes a list, and
    so does the last one where dots follow its name.
    """

    summary: str
    module: str
    arguments: str
    function: str
    positional: tuple[str, ...] = ()

    def load(self) -> tuple[Any, Callable[[Any], Any]]:
        """Import the class of the arguments and the function."""
        module = importlib.import_module(self.module, __package__)
        return getattr(module, self.arguments), getattr(module, self.function)


COMMANDS = {
    "demo": Command(
        "a whole BERT life in minutes: vocabulary, pretraining, fine-tuning, pipelines, card",
        ".demo",
        "DemoArguments",
        "demo",
        ("text",),
    ),
    "vocab": Command(
        "text to a vocabulary and tokenizer",
        ".tokenization.commands",
        "VocabArguments",
        "train_vocabulary",
        ("text",),
    ),
    "data": Command(
        "text to a token store, ready for pretraining on any number of machines",
        ".pretraining.commands",
        "DataArguments",
        "prepare_data",
        ("text",),
    ),
    "pretrain": Command(
        "text to a pretrained model folder", ".pretraining", "PretrainingArguments", "pretrain", ("text",)
    ),
    "finetune": Command(
        "task data to a fine-tuned model folder", ".finetuning", "FinetuningArguments", "finetune", ("model",)
    ),
    "evaluate": Command(
        "model and task data to metrics, or the metrics of a file of predictions",
        ".finetuning",
        "EvaluateArguments",
        "evaluate_model",
        ("data",),
    ),
    "features": Command(
        "text to the vectors of frozen layers, token by token",
        ".finetuning",
        "FeaturesArguments",
        "extract_features",
        ("text",),
    ),
    "ablation": Command(
        "the paper's Table 5: what each part of pretraining gives",
        ".studies",
        "AblationArguments",
        "run_ablation",
        ("text",),
    ),
    "convert google": Command(
        "Google's checkpoint to a model folder",
        ".conversion.commands",
        "ConvertGoogleArguments",
        "convert_google",
        ("source", "output_dir"),
    ),
    "convert to-google": Command(
        "model folder to a checkpoint for Google's code",
        ".conversion.commands",
        "ConvertToGoogleArguments",
        "convert_to_google",
        ("model", "output"),
    ),
    "convert bert": Command(
        "transformers' bert folder to a MyBERT folder",
        ".conversion.commands",
        "ConvertBertArguments",
        "convert_bert",
        ("model", "output_dir"),
    ),
    "convert to-bert": Command(
        "MyBERT folder to a plain bert folder, for servers that know only that",
        ".conversion.commands",
        "ConvertToBertArguments",
        "convert_to_bert",
        ("model", "output_dir"),
    ),
    "convert onnx": Command(
        "model folder to an ONNX graph, run and compared",
        ".conversion.commands",
        "ConvertOnnxArguments",
        "convert_onnx",
        ("model", "output_dir"),
    ),
    "card": Command(
        "model folder to its model card, with examples that are run",
        ".hub_card",
        "CardArguments",
        "make_card",
        ("model",),
    ),
    "push": Command(
        "model folder to a repository on the Hub", ".hub_card", "PushArguments", "push", ("model", "repo_id")
    ),
    "attention": Command(
        "attention maps of a text or pair, or its input, as a page or a picture",
        ".visualization.commands",
        "AttentionArguments",
        "draw_attention",
        ("model", "text..."),
    ),
    "curves": Command(
        "the training curves of a run's folder",
        ".visualization.commands",
        "CurvesArguments",
        "draw_run",
        ("run_dir",),
    ),
    "bench": Command(
        "speed beside transformers and ONNX Runtime, on the same weights and inputs",
        ".benchmarks",
        "BenchArguments",
        "run_benchmarks",
    ),
}


def main(argv: Sequence[str] | None = None) -> int:
    """Run a command.

    Args:
        argv: The command and its flags; those of the process by default.

    Returns:
        The exit status: 0, 2 for a mistake of the user's, 130 if the command was interrupted, 141 if nobody reads
        its output any more.
    """
    _make_output_safe()
    try:
        with interruptible():
            status = _run(list(sys.argv[1:] if argv is None else argv))
        sys.stdout.flush()
    except BrokenPipeError:  # `mybert -h | head -2`
        _drop_output()
        return NOBODY_READS
    except OSError as error:
        _drop_output()
        print(f"mybert: standard output cannot be written: {_sentence(error)}", file=sys.stderr)
        return 2
    return status


def _run(argv: list[str]) -> int:
    words = 2 if argv and any(name.startswith(f"{argv[0]} ") for name in COMMANDS) else 1
    group, name, flags = " ".join(argv[: words - 1]), " ".join(argv[:words]), argv[words:]
    commands = {name: command for name, command in COMMANDS.items() if name.startswith(group)}
    if len(argv) < words or argv[words - 1] in ("-h", "--help"):
        print(_usage(commands))
        return 2 if len(argv) < words else 0
    if name == "--version":
        print(f"mybert {__version__}")
        return 0
    if name not in COMMANDS:
        print(f"mybert: unknown command {name!r}; expected one of {', '.join(commands)}.", file=sys.stderr)
        return 2
    flags, debug = _take_debug(flags)
    try:
        arguments_class, function = COMMANDS[name].load()
        if {"-h", "--help"} & set(flags):
            print(_parser(name, arguments_class).format_help(), end="")
            return 0
        result = function(_parse(name, arguments_class, _name_positional(flags, COMMANDS[name].positional)))
    except BrokenPipeError:
        raise
    except Exception as error:
        if debug or not (sentence := _sentence(error)):
            raise
        print(f"mybert {name}: {sentence}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print(f"mybert {name}: interrupted.", file=sys.stderr)
        return INTERRUPTED
    return INTERRUPTED if isinstance(result, dict) and result.get("interrupted") else 0


def _take_debug(flags: list[str]) -> tuple[list[str], bool]:
    """Take out `--debug` where no value follows; with one it is `TrainingArguments`' own flag."""
    for index, flag in enumerate(flags):
        if flag == "--debug" and (index + 1 == len(flags) or flags[index + 1].startswith("--")):
            return flags[:index] + flags[index + 1 :], True
    return flags, False


def _name_positional(flags: list[str], names: tuple[str, ...]) -> list[str]:
    """Give the leading values their flags: `MODEL OUTPUT_DIR` becomes `--model MODEL --output_dir OUTPUT_DIR`."""
    leading = list(takewhile(lambda flag: flag == "-" or not flag.startswith("-"), flags))
    rest = flags[len(leading) :]
    if not leading or not names:
        return flags
    *first, last = (name.removesuffix("...") for name in names)
    given = {flag.partition("=")[0].replace("-", "_") for flag in rest if flag.startswith("--")}
    if twice := [name for name in (*first, last) if f"__{name}" in given]:
        raise ValueError(f"{twice[0]} is given twice, as {leading[0]!r} and as --{twice[0]}.")
    takes_list = not first or names[-1].endswith("...")
    if len(leading) < len(names) or (len(leading) > len(names) and not takes_list):
        raise ValueError(f"{len(leading)} values ({' '.join(leading)}); expected {' '.join(names).upper()}.")
    named = [part for name, value in zip(first, leading, strict=False) for part in (f"--{name}", value)]
    return [*named, f"--{last}", *leading[len(first) :], *rest]


def _usage(commands: Mapping[str, Command]) -> str:
    width = max(map(len, commands))
    lines = [f"  {name:<{width}}  {command.summary}" for name, command in commands.items()]
    return "\n".join(
        ["usage: mybert <command> [flags]", "", *lines, "", "mybert <command> --help lists the flags of a command."]
    )


def _refuse(message: str) -> NoReturn:
    raise ValueError(f"{message}; --help lists the flags.")


def _parser(name: str, arguments_class: Any) -> Any:
    """The parser of a command: a flag for each field of the class, `--config`, and `--quiet`."""
    from transformers import HfArgumentParser
    from transformers.hf_argparser import string_to_bool

    positional = COMMANDS[name].positional
    values = f"{positional[0]} ..." if len(positional) == 1 else " ".join(positional)
    parser = HfArgumentParser(
        arguments_class,
        prog=f"mybert {name}",
        usage=f"mybert {name} {f'[{values.upper()}] ' if positional else ''}[flags]",
        description=COMMANDS[name].summary.capitalize() + ".",
        allow_abbrev=False,
    )
    parser.error = _refuse
    parser.add_argument(
        "--config", metavar="FILE", help="YAML file of flags, or the name of a recipe; flags here win."
    )
    if "quiet" not in arguments_class.__dataclass_fields__:
        parser.add_argument(
            "--quiet",
            type=string_to_bool,
            nargs="?",
            const=True,
            default=False,
            help="Say nothing but warnings; show no progress bars.",
        )
    for action in parser._actions:  # `--output-dir` is read, and not shown beside `--output_dir`
        action.option_strings = [flag for flag in action.option_strings if "-" not in flag.lstrip("-")]
    return parser


def _parse(name: str, arguments_class: Any, flags: list[str]) -> Any:
    from transformers.utils import logging as hf_logging

    parser = _parser(name, arguments_class)
    finder = ArgumentParser(add_help=False, allow_abbrev=False)
    finder.add_argument("--config")
    finder.error = _refuse  # type: ignore[method-assign]
    path = finder.parse_known_args(flags)[0].config
    settings = _read_config(path, parser) if path is not None else {}
    parser.set_defaults(**settings)
    for action in parser._actions:
        action.required = action.required and settings.get(action.dest) is None
    known, unknown = parser.parse_known_args(flags)
    if unknown:
        _refuse(f"unknown flag {unknown[0]!r}")
    _set_up_output(known.quiet)
    if known.quiet:
        if "disable_tqdm" in arguments_class.__dataclass_fields__:
            parser.set_defaults(disable_tqdm=True)
        hf_logging.disable_progress_bar()
    return parser.parse_args_into_dataclasses(flags)[0]


def _read_config(path: str, parser: ArgumentParser) -> dict[str, Any]:
    """The settings of a file. What stands there means what it would on the command line; `null` is None."""
    import yaml

    # Reversed, so that of --pack and --no_pack the first counts, which takes a value.
    actions = {action.dest: action for action in reversed(parser._actions) if action.dest not in ("help", "config")}
    settings: dict[str, Any] = {}
    try:
        root = yaml.compose(_config_file(path).read_text(encoding="utf-8"), Loader=yaml.SafeLoader)
        if not isinstance(root, yaml.MappingNode):
            raise ValueError("holds no settings; expected lines of the form 'flag: value'")
        nodes = {str(key.value).replace("-", "_"): node for key, node in root.value}
        if len(nodes) < len(root.value):
            raise ValueError("names a setting twice")
        if unknown := sorted(nodes.keys() - actions):
            raise ValueError(f"has unknown settings: {', '.join(unknown)}")
        for name, node in nodes.items():
            is_null = node.tag == "tag:yaml.org,2002:null"
            settings[name] = None if is_null else parser._get_values(actions[name], _strings(node, actions[name]))
    except yaml.YAMLError as error:
        raise ValueError(f"{path} is not YAML: {' '.join(str(error).split())}.") from error
    except UnicodeDecodeError as error:
        raise ValueError(f"{path} is not UTF-8 text: bad byte at offset {error.start}.") from error
    except RecursionError as error:
        raise ValueError(f"{path} is nested too deeply; expected lines of the form 'flag: value'.") from error
    except (ArgumentError, ValueError) as error:
        raise ValueError(f"{path} {' '.join(str(error).split())}.") from error
    return settings


def _config_file(path: str) -> Path:
    file = Path(path)
    if not file.exists() and file.name == path:
        file = _RECIPES / f"{path}.yaml"
    if not file.exists():
        recipes = ", ".join(sorted(recipe.stem for recipe in _RECIPES.glob("*.yaml")))
        raise FileNotFoundError(f"There is no file or recipe {path}; the recipes are {recipes}.")
    return file


def _strings(node: Any, action: Action) -> list[str]:
    """What would stand on the command line for a node of YAML."""
    from yaml import SafeLoader, ScalarNode, SequenceNode

    takes_several = action.nargs in ("+", "*")
    parts = node.value if takes_several and isinstance(node, SequenceNode) else [node]
    if all(isinstance(part, ScalarNode) for part in parts):
        return [part.value for part in parts]
    content = SafeLoader("").construct_document(node)
    if isinstance(content, dict) and not takes_several:
        return [json.dumps(content, default=str)]  # as `TrainingArguments` takes it; a date stays a text
    raise ValueError(f"{action.dest} is {content}; expected {'single values' if takes_several else 'a single value'}")


def _set_up_output(quiet: bool) -> None:
    """Show what the library has to say in plain lines, beside progress bars."""
    from tqdm.contrib.logging import _TqdmLoggingHandler

    handler = _TqdmLoggingHandler()
    handler.handleError = _stop_or_go_on
    handler.setStream(sys.stdout)
    handler.setFormatter(logging.Formatter("%(message)s"))
    logger = logging.getLogger(__package__)
    logger.handlers = [handler]
    logger.propagate = False
    logger.setLevel(logging.WARNING if quiet else logging.INFO)


def _stop_or_go_on(record: logging.LogRecord) -> None:
    """Called where a line could not be shown. What a command makes is worth more than its words."""
    if isinstance(sys.exc_info()[1], OSError):
        _drop_output()
    else:
        raise  # the error that is being handled


def _make_output_safe() -> None:
    """Let output be there even if it was closed, and show characters that it cannot encode."""
    for name in ("stdout", "stderr"):
        if getattr(sys, name) is None:
            setattr(sys, name, os.fdopen(os.open(os.devnull, os.O_WRONLY), "w"))
    with suppress(AttributeError):  # a stream of another kind, as notebooks have
        sys.stdout.reconfigure(errors="backslashreplace")  # type: ignore[union-attr]


def _drop_output() -> None:
    """Send what is still to come on standard output nowhere."""
    with suppress(OSError):  # a stream without a file, as tests have
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _sentence(error: Exception) -> str:
    """What a mistake of the user's or a want of the machine's is in words; "" for what is neither."""
    text = " ".join(str(error).split())
    if isinstance(error, MemoryError) or (isinstance(error, RuntimeError) and _NO_MEMORY.search(text)):
        text = f"there is not enough memory ({text or 'an allocation failed'})."
    elif isinstance(error, RecursionError):
        text = "what was read is nested too deeply."
    elif isinstance(error, SafetensorError):
        text = f"the weights are no whole safetensors file: {text}."
    elif isinstance(error, OSError) and error.strerror:
        cause = "the disk is full" if error.errno in (errno.ENOSPC, errno.EDQUOT) else error.strerror
        text = f"{error.filename}: {cause}." if error.filename else f"{cause}."
    elif not isinstance(error, ValueError | OSError | ImportError):
        return ""
    half = (LONGEST_SENTENCE - 5) // 2
    return text if len(text) <= LONGEST_SENTENCE else f"{text[:half]} ... {text[-half:]}"
