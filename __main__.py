"""`mybert`, and `python -m mybert`: the commands of `cli.py`."""

import sys


def main() -> int:
    """Run a command, see `cli.main`; Ctrl-C during the imports is one line, too."""
    try:
        from .files.machine import set_thread_defaults

        set_thread_defaults()  # before torch is imported
        from . import cli

        return cli.main()
    except KeyboardInterrupt:
        print("mybert: interrupted.", file=sys.stderr)
        return 130  # `files.INTERRUPTED`, which may not be imported yet


if __name__ == "__main__":
    sys.exit(main())
