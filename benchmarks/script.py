"""What the scripts of this room share: words for mistakes, columns of tables."""

import inspect
import sys
from collections.abc import Callable, Sequence
from functools import wraps
from pathlib import Path
from typing import Any

from ..files import INTERRUPTED, interruptible, sentence_for


def script(main: Callable[[], None]) -> Callable[[], None]:
    """Let a script end as commands do: a mistake of the user's is one sentence on standard error and exit status 2."""

    @wraps(main)
    def run() -> None:
        name = Path(inspect.getfile(inspect.unwrap(main))).stem
        try:
            with interruptible():
                main()
        except KeyboardInterrupt:
            print(f"{name}: interrupted.", file=sys.stderr)
            sys.exit(INTERRUPTED)
        except Exception as error:
            if not (sentence := sentence_for(error)):
                raise
            print(f"{name}: {sentence}", file=sys.stderr)
            sys.exit(2)

    return run


def column(rows: Sequence[dict[str, Any]], name: str, path: str | Path) -> list[str]:
    """A column of a file's rows, as text.

    Raises:
        ValueError: If there is none of that name.
    """
    if missing := next((row for row in rows if name not in row), None):
        raise ValueError(f"{path} has the columns {', '.join(missing)}; expected {name}.")
    return [str(row[name]) for row in rows]
