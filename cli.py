"""`mybert <command>`: finds the command, runs it, and turns every error into a sentence.

A user error is one sentence on standard error, with exit status 2; `--debug` shows the traceback.
"""

import logging
import sys
import textwrap
import traceback
from collections.abc import Mapping, Sequence

from . import __version__
from ._registration import register
from .command_line import COMMANDS, GROUPS, Command, did_you_mean
from .command_line.closings import say_closing
from .command_line.console import (
    drop_output,
    make_output_safe,
    print_error,
    sentence_for_command,
    show_report,
    silence_libraries,
)
from .files.errors import user_message
from .files.processes import INTERRUPTED, interruptible, leave_standard_output

EXIT_SIGPIPE = 141  # exit status of a command whose output pipe is closed, as in shells
_HELP = {"-h", "--help", "--help_all", "--help-all"}


def main(argv: Sequence[str] | None = None) -> int:
    """Run a command; return 0, 2 for a user error, 130 if interrupted before the end, 141 for a closed output pipe."""
    make_output_safe()
    try:
        with interruptible() as interrupts:
            status = _run(list(sys.argv[1:] if argv is None else argv))
            if interrupts.held and status == 0:
                print_error("mybert: interrupted when the result was complete.")
        sys.stdout.flush()
    except BrokenPipeError:  # `mybert -h | head -2`
        drop_output()
        return EXIT_SIGPIPE
    except OSError as error:
        drop_output()
        print_error(f"mybert: standard output cannot be written: {user_message(error)}")
        return 2
    return status


def _run(argv: list[str]) -> int:
    if argv[:1] == ["help"]:  # `mybert help pretrain`
        argv = [*argv[1:], "--help"]
    words = 2 if argv and any(name.startswith(f"{argv[0]} ") for name in COMMANDS) else 1
    group, name, flags = " ".join(argv[: words - 1]), " ".join(argv[:words]), argv[words:]
    commands = {name: command for name, command in COMMANDS.items() if name.startswith(group)}
    if len(argv) < words or argv[words - 1] in _HELP:
        print(_usage(commands))
        return 2 if len(argv) < words else 0
    if name in ("-V", "--version"):
        print(f"mybert {__version__}")
        return 0
    if name not in COMMANDS:
        print_error(
            f"mybert: unknown command {name!r}.{did_you_mean(name, commands)} mybert --help lists the commands."
        )
        return 2
    return _run_command(name, *take_debug(flags))


def _run_command(name: str, flags: list[str], debug: bool) -> int:
    command, kind = COMMANDS[name], None
    try:
        from .command_line.flags import CommandParser, parse_flags
        from .command_line.inputs import check_files_and_models

        if asked := _HELP & set(flags):
            every_flag = not asked <= {"-h", "--help"}
            print(CommandParser(name).full_help(every_flag), end="")
            return 0
        # In the order of the cost: flags and files, then libraries and models.
        kind = command.load_settings()
        settings = parse_flags(name, flags)
        check_files_and_models(settings)
        if command.has_model:
            register()
        function = command.load_function()
        settings.check()
        reports = getattr(settings, "dry_run", False)
        if reports and not logging.getLogger(__package__).isEnabledFor(logging.INFO):
            leave_standard_output()  # for JSON alone
        with silence_libraries():
            result = function(settings)
            distributed = sys.modules.get("torch.distributed")
            if distributed is not None and distributed.is_available() and distributed.is_initialized():
                distributed.destroy_process_group()  # as NCCL expects it at the end of a process
        interrupted = result == {"interrupted": True}  # otherwise it is complete
        if reports:
            show_report(result)
        elif not interrupted:
            say_closing(name, settings, result)
    except BrokenPipeError:
        raise
    except Exception as error:
        if not (sentence := sentence_for_command(error, kind)):
            raise
        if debug:
            traceback.print_exc()
        print_error(f"mybert {name}: {sentence}")
        return 2
    except KeyboardInterrupt:
        print_error(f"mybert {name}: interrupted.")
        return INTERRUPTED
    return INTERRUPTED if interrupted else 0


def take_debug(flags: list[str]) -> tuple[list[str], bool]:
    """Remove `--debug` if no value follows; with a value it is the flag of `TrainingArguments`."""
    for index, flag in enumerate(flags):
        if flag == "--debug" and (index + 1 == len(flags) or flags[index + 1].startswith("--")):
            return flags[:index] + flags[index + 1 :], True
    return flags, False


def _usage(commands: Mapping[str, Command]) -> str:
    """The commands with their summaries; all of them by what they are for."""
    width = max(map(len, commands)) + 4
    lines = {
        name: textwrap.fill(
            command.summary, 80, initial_indent=f"  {name:<{width - 2}}", subsequent_indent=" " * width
        )
        for name, command in commands.items()
    }
    parts = ["\n".join(lines.values())]
    if len(commands) == len(COMMANDS):
        parts = ["Start here: mybert demo"]
        for title, names in GROUPS.items():
            of_group = [lines[name] for first in names.split() for name in lines if name.split()[0] == first]
            parts.append("\n".join([f"{title.capitalize()}:", *of_group]))
    end = "mybert <command> --help lists the flags of a command."
    return "\n\n".join(["usage: mybert <command> [flags]", *parts, end])
