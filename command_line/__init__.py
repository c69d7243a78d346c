"""The command line: commands, flags and their help, settings files, console output."""

from .command_table import COMMANDS, GROUPS, Command
from .console import did_you_mean

__all__ = ["COMMANDS", "GROUPS", "Command", "did_you_mean"]
