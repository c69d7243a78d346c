"""A command's flags, made from the class of its settings: help, settings files, parsing, completion."""

import copy
import json
import re
import shutil
import textwrap
from argparse import SUPPRESS, Action, ArgumentError, ArgumentParser, ArgumentTypeError, HelpFormatter, Namespace
from collections.abc import Callable, Sequence
from dataclasses import MISSING, Field, dataclass
from itertools import takewhile
from operator import attrgetter, itemgetter
from pathlib import Path
from types import NoneType, UnionType
from typing import Any, Literal, NoReturn, Union, get_args, get_origin

import yaml

from ..files.choices import superseded
from ..files.errors import SettingError, refuse_address
from ..files.options import (
    TRUTH,
    Group,
    check_options,
    default_of,
    may_be_none,
    missing_options,
    not_set,
    option,
    options_of,
    types_of,
)
from ..files.settings import Parts, assemble
from ..files.yaml_files import yaml_nodes, yaml_value
from ..runs.trainer_options import is_inherited
from .closings import shell_lines
from .command_table import ALIASES, COMMANDS
from .console import did_you_mean, set_up_output

_RECIPES = Path(__file__).parents[1] / "pretraining" / "recipes"
_MAX_WIDTH = 100  # of the help, in columns
_MAX_LINES = 120  # of the help without --help_all
_MAX_CHOICES = 8  # that are listed without --help_all
_KINDS: dict[Any, str] = {int: "INT", float: "NUMBER"}
# placeholders that do not follow from the flag's name
_VALUES = {"metric_for_best_model": "METRIC", "report_to": "NAME"}

# What argparse says of a value, and what we say.
_ARGPARSE = {
    r"^argument (--\w+)\S*: invalid int value: (.+)$": r"\1 is \2; expected a whole number.",
    r"^argument (--\w+)\S*: invalid float value: (.+)$": r"\1 is \2; expected a number.",
    r"^argument (--\w+)\S*: expected .*argument$": r"\1 has no value.",
    r"^argument (--\w+)\S*: (.+) is no truth value$": r"\1 is \2; expected true or false.",
    r"^argument (--\w+)\S*: ": r"\1: ",
}


class GroupedFormatter(HelpFormatter):
    """Help formatter with short placeholders for values, and with informative defaults only."""

    def __init__(self, prog: str) -> None:
        width = min(shutil.get_terminal_size().columns, _MAX_WIDTH)
        super().__init__(prog, max_help_position=26, width=width)

    def _format_action_invocation(self, action: Action) -> str:
        flags = ", ".join(action.option_strings)
        value = "" if action.nargs in (0, "?") else f" {_value_name(action)}"
        return flags + value + (" ..." if action.nargs == "+" else "")

    def _get_help_string(self, action: Action) -> str:
        text = action.help or ""
        words = [str(choice) for choice in action.choices or () if not isinstance(choice, bool)]
        if not all(word in text for word in words) and _value_name(action) != "|".join(words):
            text = f"{text} One of {', '.join(words)}."
        if action.required:
            return f"{text.removesuffix('.')} (required)."
        default = action.default
        if default in (None, False, "", "{}", SUPPRESS) or default == [] or action.nargs == 0 or "(default:" in text:
            return text
        value = "on" if default is True else getattr(default, "value", default)
        return f"{text.removesuffix('.')} (default: {value}).".replace("%)", "%%)")


def _section(group: Group, actions: list[Action]) -> str:
    formatter = GroupedFormatter("")
    formatter.start_section(group.value)
    formatter.add_arguments(actions)
    formatter.end_section()
    return formatter.format_help()


def _names(group: Group, actions: list[Action]) -> str:
    """The names of a group's flags under its title."""
    names = " ".join(dict.fromkeys(f"--{action.dest}" for action in actions))
    width = min(shutil.get_terminal_size().columns, _MAX_WIDTH)
    lines = textwrap.wrap(names, width, initial_indent="  ", subsequent_indent="  ", break_on_hyphens=False)
    return "\n".join([f"{group.value} (see --help_all):", *lines, ""])


def _value_name(action: Action) -> str:
    """Return the placeholder of a flag's value in the help: its type, or the last word of the flag's name."""
    if action.metavar:
        return str(action.metavar)
    if action.choices and len(shown := "|".join(map(str, action.choices))) <= 20:
        return shown
    kind = "BOOL" if action.type is string_to_bool else _KINDS.get(action.type)
    return kind or _VALUES.get(action.dest) or action.dest.rpartition("_")[2].upper()


_UNSET: Any = object()  # the value of a flag that is not given


def string_to_bool(text: str) -> bool:
    """Return the value of a switch, in the words of transformers' parser."""
    try:
        return TRUTH[text.lower()]
    except KeyError:
        raise ArgumentTypeError(f"{text!r} is no truth value") from None


def _choice_of(choices: Sequence[Any]) -> Callable[[str], Any]:
    """A function that returns the choice that a word means; other words as they are."""
    by_word = {str(choice): choice for choice in choices}

    def choice_of(word: str) -> Any:
        if True in choices and word not in by_word and word.lower() in TRUTH:
            return TRUTH[word.lower()]
        return by_word.get(word, word)

    return choice_of


class CommandParser(ArgumentParser):
    """The parser of a command: a flag for each of its options, in groups, and the common flags."""

    def __init__(self, name: str) -> None:
        self.command = COMMANDS[name]
        self.kind = self.command.load_settings()
        self.options = options_of(self.kind)
        self.flags: list[Action] = []
        super().__init__(
            prog=f"mybert {name}",
            description=f"{self.command.summary[0].upper()}{self.command.summary[1:]}.",
            formatter_class=GroupedFormatter,
            allow_abbrev=False,
            add_help=False,
        )
        types = types_of(self.kind)
        for each in self.options.values():
            self._add_option(each, types[each.name])
        leading = [each for each in self.options.values() if getattr(each, "positional", None)]
        takes_list = {flag.dest: flag.nargs == "+" for flag in self.flags}
        self.positional = {each.name: takes_list[each.name] for each in sorted(leading, key=attrgetter("positional"))}
        values = [
            f"[{each.upper()} ...]" if several else f"[{each.upper()}]" for each, several in self.positional.items()
        ]
        self.usage = " ".join(["mybert", name, *values, "[flags]"])
        self.add_argument(
            "--config",
            metavar="FILE",
            help="YAML file of flags, or the name of a recipe (docs/pretraining.md); flags here win.",
        )
        if "quiet" not in self.options:
            self.add_argument(
                "--quiet",
                type=string_to_bool,
                nargs="?",
                const=True,
                default=False,
                help="Show warnings only, and no progress bars.",
            )
        where = "show the traceback of an error."
        if "debug" in self.options:  # of `TrainingArguments`
            debug = next(action for action in self.flags if action.dest == "debug")
            debug.help, debug.metavar = f"Without a value: {where} With a value: {debug.help}", "[OPTION]"
        else:
            self.add_argument("--debug", action="store_true", help=where.capitalize())
        self.add_argument("--help_all", action="help", help="Explain every flag, inherited ones too.")
        self.add_argument("-h", "--help", action="help", help=f"Explain flags in at most {_MAX_LINES} lines.")

    def _add_option(self, declared: Field, hint: Any) -> None:
        """Add the flag of an option; for one that is on by default, also the one that turns it off."""
        name, default = declared.name, default_of(declared)
        shown = ("help", "metavar", "nargs", "const", "choices")
        settings: dict[str, Any] = {key: declared.metadata[key] for key in shown if key in declared.metadata}
        members = get_args(hint) if get_origin(hint) in (Union, UnionType) else (hint,)
        parts = [part for part in members if part is not NoneType]
        kind = parts[0] if len(parts) == 1 else bool if bool in parts else str  # a text may mean any of several types
        if get_origin(kind) is list:
            kind, settings["nargs"] = get_args(kind)[0], "+"
        if get_origin(kind) is Literal:
            settings["choices"] = get_args(kind)
        if kind is bool:
            settings = {"nargs": "?", "const": True} | settings | {"type": string_to_bool}
        elif "choices" in settings:
            settings["type"] = _choice_of(settings["choices"])
        else:
            settings["type"] = kind if kind in (int, float) else str
        self.add_argument(f"--{name}", **settings, default=None if default is MISSING else default)
        if kind is bool and default is True:
            self.add_argument(
                f"--no_{name}", action="store_false", dest=name, default=True, help=f"Turn --{name} off."
            )

    def add_argument(self, *names: Any, **settings: Any) -> Action:
        """Add a flag: an option's, or one that every command has."""
        hyphenated = [name.replace("_", "-") for name in names]
        action = super().add_argument(*dict.fromkeys([*names, *hyphenated]), **settings)
        action.option_strings = [*names]  # `--output-dir` is accepted, but only `--output_dir` is shown
        self.flags.append(action)
        return action

    def given(self, flags: list[str]) -> dict[str, Any]:
        """The values of the flags and of the settings file that they name, without defaults."""
        words, flags = flags, name_positional(flags, self.positional)
        finder = ArgumentParser(add_help=False, allow_abbrev=False)
        finder.add_argument("--config", action="append", default=[])
        finder.error = self.error  # type: ignore[method-assign]
        paths = finder.parse_known_args(flags)[0].config
        if len(paths) > 1:
            self.error(f"--config is given {len(paths)} times ({', '.join(paths)}); expected one file")
        known, unknown = self.parse_known_args(flags, Namespace(**{flag.dest: _UNSET for flag in self.flags}))
        if unknown:
            self.error(_unknown(unknown[0], self))
        values = {name: value for name, value in vars(known).items() if value is not _UNSET}
        settings, of_other = _read_settings(paths[0], self) if paths else ({}, {})
        if of_other:
            settings |= self.kind.of_training(of_other)
        for name in superseded(self.kind, values, settings) if settings else ():
            settings.pop(name, None)
        values = settings | values
        missing = missing_options(self.kind, values) if flags != words else ()
        required = [option.name for option in missing if getattr(option, "required", None)]
        for name in [name for name in self.positional if name in required][:1]:
            order = " ".join(self.positional).upper()
            self.error(f"--{name} is not set: {words[0]!r} is read as {flags[0]}; expected {order}, or --{name}.")
        return values

    def value_of(self, flag: Action, word: str) -> Any:
        """The value of a word of a settings file: the same as on the command line."""
        try:
            value = flag.type(word) if callable(flag.type) else word
        except ArgumentTypeError as error:
            raise ArgumentError(flag, str(error)) from None
        except (TypeError, ValueError):
            kind = getattr(flag.type, "__name__", repr(flag.type))
            raise ArgumentError(flag, f"invalid {kind} value: {word!r}") from None
        self._check_value(flag, value)
        return value

    def error(self, message: str) -> NoReturn:
        """Raise what argparse would print with the usage."""
        said = _in_words(message)
        is_complete = said != message or message.endswith("?")
        raise ValueError(said if is_complete else f"{message.rstrip('.')}; --help lists the flags.")

    def _check_value(self, action: Action, value: Any) -> None:
        if action.choices is not None and value not in action.choices:
            raise SettingError(action.dest, value, known=action.choices)

    def full_help(self, every_flag: bool = False) -> str:
        """Return usage, example and flags by group; `every_flag`: also those of `TrainingArguments` in no group.

        Without `every_flag` the last groups have only the flags' names where there would be too many lines.
        """
        formatter = GroupedFormatter(self.prog)
        formatter.add_usage(self.usage, (), ())
        formatter.add_text(self.description)
        head = [formatter.format_help()]
        if self.command.example:
            head.append(f"Example:\n{shell_lines(f'{self.prog} {self.command.example}')}\n")
        groups = {group: actions for group, actions in self.flags_by_group(every_flag).items() if actions}
        explained = {group: _section(group, actions) for group, actions in groups.items()}
        sections = explained
        if not every_flag:
            sections = {group: _names(group, actions) for group, actions in groups.items()}
            lines = _MAX_LINES - sum(text.count("\n") + 1 for text in [*head, *sections.values()])
            for group in sorted(groups, key=lambda group: group is not Group.COMMON):
                lines -= explained[group].count("\n") - sections[group].count("\n")
                if lines < 0:
                    break
                sections[group] = explained[group]
        return "\n".join([*head, *sections.values()])

    def flags_by_group(self, every_flag: bool = False) -> dict[Group, list[Action]]:
        """The flags of each group in their order, without those that a required one rules out."""
        known, usual = self.options, self.command.usual.split()
        places = {name: place for place, name in enumerate(known)} | {name: place for place, name in enumerate(usual)}
        is_required = {
            flag.dest: flag.dest in known
            and (default_of(known[flag.dest]) is MISSING or getattr(known[flag.dest], "required", None) is True)
            for flag in self.flags
        }
        ruled_out = superseded(self.kind, {name: True for name, needed in is_required.items() if needed}, {})
        groups: dict[Group, list[tuple[Any, Action]]] = {group: [] for group in Group}
        for action in map(copy.copy, self.flags):
            each = known.get(action.dest)
            if action.dest in ruled_out:
                continue
            if each and not every_flag and is_inherited(each):
                action.help = f"{(action.help or '').partition('. ')[0].rstrip('.')}."
            if not every_flag and len(list(action.choices or ())) > _MAX_CHOICES:
                action.choices = None
            action.required = is_required[action.dest]
            is_common = each is None or action.dest == "debug"
            group = Group.COMMON if is_common else getattr(each, "group", None) or Group.FURTHER
            is_last = action.dest not in self.positional, bool(getattr(each, "comes_last", False))
            if action.dest in usual:
                group, is_last = Group.USUAL, (False, False)
            place = (*is_last, places.get(action.dest, 0))
            groups[group].append((place, action))
        if not every_flag:
            groups[Group.FURTHER] = []
        return {group: [action for _, action in sorted(flags, key=itemgetter(0))] for group, flags in groups.items()}

    def format_help(self) -> str:
        return self.full_help()


def _in_words(message: str) -> str:
    """An error message of argparse as a sentence of this package."""
    message = " ".join(message.split())
    for pattern, sentence in _ARGPARSE.items():
        message = re.sub(pattern, sentence, message)
    return message


def name_positional(flags: list[str], takes_list: dict[str, bool]) -> list[str]:
    """Add flags to leading positional values: `MODEL OUTPUT_DIR` becomes `--model MODEL --output_dir OUTPUT_DIR`."""
    leading = list(takewhile(lambda flag: flag == "-" or not flag.startswith("-"), flags))
    rest = flags[len(leading) :]
    if not leading or not takes_list:
        return flags
    named = list(zip(takes_list, leading, strict=False))
    for name, value in named:
        if name in _given(rest):
            raise ValueError(f"--{name} is given twice, as {value!r} and as --{name}.")
    others = leading[len(named) :]
    if others and not takes_list[named[-1][0]]:
        raise ValueError(f"{len(leading)} values ({' '.join(leading)}); expected {' '.join(takes_list).upper()}.")
    return [*(part for name, value in named for part in (f"--{name}", value)), *others, *rest]


def _given(flags: Sequence[str]) -> set[str]:
    return {flag[2:].partition("=")[0].replace("-", "_") for flag in flags if flag.startswith("--")}


def parse_flags(name: str, flags: list[str]) -> Any:
    """The settings of a command, as its flags say, checked as far as options alone tell; sets up the output."""
    parser = CommandParser(name)
    values = parser.given(flags)
    set_up_output(quiet := values.get("quiet", False))
    values = {name: value for name, value in values.items() if name in parser.options}
    if quiet and "disable_tqdm" in parser.options:
        values["disable_tqdm"] = True
    if missing := missing_options(parser.kind, values):
        raise SettingError(not_set(missing, f"{parser.prog} {parser.command.example}"))
    settings = assemble(parser.kind, values)
    check_options(settings)
    return settings


def _unknown(word: str, parser: CommandParser) -> str:
    if not word.startswith("-"):
        return f"{word!r} belongs to no flag"
    flag = word.partition("=")[0]
    known = [option for action in parser.flags for option in action.option_strings if option.startswith("--")]
    return f"unknown flag {flag!r}.{did_you_mean(flag, known, aliases=ALIASES)}"


def _read_settings(path: str, parser: CommandParser) -> tuple[dict[str, Any], dict[str, Any]]:
    """Read a file's or recipe's settings: the command's, and those that only the command of `config_of` knows."""
    own, nullable = _settable(parser), may_be_none(parser.kind)
    others: dict[str, Action] = {}
    settings: dict[str, Any] = {}
    of_other: dict[str, Any] = {}
    root = yaml_nodes(_config_file(path))
    if not isinstance(root, yaml.MappingNode):
        raise ValueError(f"{path} holds no settings; expected lines of the form 'flag: value'.")
    nodes = {str(key.value).replace("-", "_"): node for key, node in root.value}
    if len(nodes) < len(root.value):
        raise ValueError(f"{path} names a setting twice.")
    if parser.command.config_of and not nodes.keys() <= own.keys():
        other = CommandParser(parser.command.config_of)
        others = _settable(other)
        nullable = nullable - others.keys() | may_be_none(other.kind)
    unknown = sorted(nodes.keys() - own.keys() - others.keys())
    if unknown and _config_file(path).parent == _RECIPES:
        command = next((name for name in ("ablation", "glue") if path.startswith(name)), "pretrain")
        raise ValueError(f"{path} is a recipe of mybert {command}; {parser.prog} has no recipes.")
    if unknown:
        guess = did_you_mean(unknown[0], [*own, *others], aliases=ALIASES)
        raise ValueError(f"{path} has unknown settings: {', '.join(unknown)}.{guess}")
    for name, node in nodes.items():
        is_null = node.tag == "tag:yaml.org,2002:null"
        # a setting that cannot be None: as if the file did not name it
        if is_null and name not in nullable:
            continue
        action = others.get(name) or own[name]
        value = None if is_null else _value_of(path, node, action, parser)
        (of_other if name in others else settings)[name] = value
    return settings, of_other


def _settable(parser: CommandParser) -> dict[str, Action]:
    """Return the action of each setting; for `--pack` and `--no_pack`, the first, which takes a value."""
    unsettable = ("help", "help_all", "config")
    return {action.dest: action for action in reversed(parser.flags) if action.dest not in unsettable}


def _config_file(path: str) -> Path:
    refuse_address(path, "a file or the name of a recipe")
    file = Path(path)
    if not file.is_file() and file.name == path and (recipe := _RECIPES / f"{path}.yaml").is_file():
        return recipe  # also next to a folder of its name, such as the run's
    if not file.exists():
        recipes = sorted(recipe.stem for recipe in _RECIPES.glob("*.yaml"))
        raise FileNotFoundError(
            f"There is no file or recipe {path}; the recipes are {', '.join(recipes)}.{did_you_mean(path, recipes)}"
        )
    return file


def _value_of(path: str, node: Any, action: Action, parser: CommandParser) -> Any:
    """Return the value that the command line would have for the words of a YAML node."""
    takes_several = action.nargs in ("+", "*")
    parts = node.value if takes_several and isinstance(node, yaml.SequenceNode) else [node]
    if all(isinstance(part, yaml.ScalarNode) for part in parts):
        words = [part.value for part in parts]
    else:
        content = yaml_value(path, node)
        if takes_several or not isinstance(content, dict):
            expected = "single values" if takes_several else "a single value"
            raise SettingError.worded("{} {:option} is {}; expected {}.", path, action.dest, content, expected)
        words = [json.dumps(content, default=str)]  # as `TrainingArguments` takes it; dates stay texts
    try:
        values = [parser.value_of(action, word) for word in words]
    except SettingError as error:
        raise SettingError.worded("{}: {}", path, error.args[0]) from error
    except ArgumentError as error:
        raise ValueError(f"{path}: {_in_words(str(error)).removesuffix('.')}.") from error
    return values if takes_several else values[0]


# Completion: a script of all names, so that it is immediate and imports nothing. It is generated by shtab.


@dataclass(frozen=True, kw_only=True)
class CompletionSettings(Parts):
    """Settings of `print_completion`."""

    group = Group.INPUT
    shell: Literal["bash", "zsh", "tcsh"] = option(help="The shell.", positional=1)


def print_completion(arguments: CompletionSettings) -> str:
    """Print, and return, a script for a shell to read when it starts."""
    try:
        import shtab
    except ImportError as error:
        raise ImportError("shtab, which writes completions, is not installed: pip install shtab.") from error
    script = shtab.complete(_all_commands(shtab.FILE), shell=arguments.shell)
    print(script)
    return script


def _all_commands(files: Any) -> ArgumentParser:
    """Return one parser with a subparser for each command; `convert google` is one of `convert`'s."""
    root = ArgumentParser(prog=__package__.partition(".")[0])
    root.add_argument("-V", "--version", action="store_true", help="The version.")
    branches: dict[str, Any] = {"": root.add_subparsers()}
    for name, command in COMMANDS.items():
        group, _, last = name.rpartition(" ")
        if group not in branches:
            branches[group] = branches[""].add_parser(group, help=f"{group} checkpoints").add_subparsers()
        flags = CommandParser(name)
        parser = branches[group].add_parser(last, parents=[flags], add_help=False, help=command.summary)
        shown: list[Any] = list(flags.flags)
        for value, takes_list in flags.positional.items():  # without it the shell would offer nothing, not even files
            named = next(action for action in flags.flags if action.dest == value)
            nargs = "*" if takes_list else "?"
            shown.append(parser.add_argument(named.dest, nargs=nargs, choices=named.choices, help=named.help))
        for action in shown:
            action.help = (action.help or "").partition(". ")[0]
            if action.choices is None and action.nargs != 0 and action.type in (None, str):  # most texts are paths
                action.complete = files
    return root
