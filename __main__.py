"""`mybert`, and `python -m mybert`: the commands of `cli.py`."""

import atexit
import os
import sys


def main() -> int:
    """Run a command, see `cli.main`; Ctrl-C or a lack of memory during the imports is one line, too."""
    statuses: list[int] = []
    if "LOCAL_RANK" in os.environ:  # one of the processes of a launcher
        atexit.register(_end_before_finalization, statuses)  # the first to be registered runs last
    try:
        from .files.machine import set_thread_defaults

        set_thread_defaults()  # before torch is imported
        from . import cli

        statuses.append(cli.main())
    except KeyboardInterrupt:
        print("mybert: interrupted.", file=sys.stderr)
        return 130  # `files.INTERRUPTED`, which may not be imported yet
    except MemoryError:
        print("mybert: not enough memory.", file=sys.stderr)
        return 2
    return statuses[0]


def _end_before_finalization(statuses: list[int]) -> None:
    """End the process: threads of gloo that still free tensors abort it while the interpreter is finalized."""
    if statuses:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(statuses[0])


if __name__ == "__main__":
    sys.exit(main())
