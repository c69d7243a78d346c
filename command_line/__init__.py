"""What stands between shell and library: commands, flags and their help, settings files, words for mistakes."""

from .command_table import COMMANDS, Command
from .console import sentence_for
from .spelling import did_you_mean

__all__ = ["COMMANDS", "Command", "did_you_mean", "sentence_for"]
