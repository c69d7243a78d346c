"""`mybert completion SHELL`: a script with which a shell completes commands, flags and their choices.

It holds all names, so that a shell completes at once: nothing is imported when a key is pressed. shtab writes it.
"""

from argparse import ArgumentParser
from dataclasses import dataclass, field
from typing import Any, Literal

from .command_table import COMMANDS, Command

_FILES = ("file", "dir", "text", "model", "tokenizer", "data", "output", "source", "config", "predictions")


@dataclass
class CompletionArguments:
    """Settings of `print_completion`."""

    shell: Literal["bash", "zsh", "tcsh"] = field(metadata={"help": "The shell."})


def print_completion(arguments: CompletionArguments) -> str:
    """Print a script for a shell to read when it starts.

    Args:
        arguments: The settings.

    Returns:
        The script.

    Raises:
        ImportError: If shtab is not installed.
    """
    try:
        import shtab
    except ImportError as error:
        raise ImportError("shtab, which writes completions, is not installed: pip install shtab.") from error
    script = shtab.complete(_all_commands(shtab.FILE), shell=arguments.shell)
    print(script)
    return script


def _all_commands(files: Any) -> ArgumentParser:
    """One parser with a subparser for each command; `convert google` is one of `convert`'s."""
    root = ArgumentParser(prog=__package__.partition(".")[0])
    root.add_argument("-V", "--version", action="store_true", help="The version.")
    branches: dict[str, Any] = {"": root.add_subparsers()}
    for name, command in COMMANDS.items():
        group, _, last = name.rpartition(" ")
        if group not in branches:
            branches[group] = branches[""].add_parser(group, help=f"{group} checkpoints").add_subparsers()
        _add(branches[group], last, name, command, files)
    return root


def _add(branches: Any, last: str, name: str, command: Command, files: Any) -> None:
    from .flags import CommandParser

    flags = CommandParser(name, command, command.load()[0])
    parser = branches.add_parser(last, parents=[flags], add_help=False, help=command.summary)
    for action in parser._actions:
        action.help = (action.help or "").partition(". ")[0]
        if action.choices is None and action.dest.rpartition("_")[2] in _FILES:
            action.complete = files
