"""What stands between shell and library: commands, flags and their help, settings files, what is shown."""

from .command_table import COMMANDS, Command
from .spelling import did_you_mean

__all__ = ["COMMANDS", "Command", "did_you_mean"]
