"""Progress bars: tqdm's, and in a notebook one output of a cell that is replaced, for which no widgets are needed."""

import io
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from huggingface_hub.utils import are_progress_bars_disabled, disable_progress_bars, enable_progress_bars
from tqdm import tqdm


def progress_bar(*items: Any, **settings: Any) -> Any:
    """A bar with the arguments of `tqdm`; `disable=None` disables it where there is neither terminal nor notebook."""
    if _hidden:
        settings["disable"] = True
    ipython = sys.modules.get("IPython")
    in_notebook = getattr(ipython and ipython.get_ipython(), "kernel", None) is not None
    return (CellBar if in_notebook else tqdm)(*items, **settings)


_hidden: list[object] = []  # a mark for each `without_bars` that is open


def are_bars_hidden() -> bool:
    """Whether `without_bars` is open."""
    return bool(_hidden)


@contextmanager
def without_bars() -> Iterator[None]:
    """Show no bars of this package, and none of downloads."""
    mark, of_downloads = object(), not are_progress_bars_disabled()
    _hidden.append(mark)
    disable_progress_bars()
    try:
        yield
    finally:
        _hidden.remove(mark)
        if of_downloads:
            enable_progress_bars()


@contextmanager
def without_loading_bars() -> Iterator[None]:
    """Hide transformers' bars of loading and saving weights, which take a moment; those of downloads stay."""
    from transformers.utils import logging

    shown = logging.is_progress_bar_enabled()
    set_of_downloads = disable_progress_bars if are_progress_bars_disabled() else enable_progress_bars
    logging.disable_progress_bar()
    set_of_downloads()  # which transformers switches, too
    try:
        yield
    finally:
        if shown:
            logging.enable_progress_bar()
            set_of_downloads()


class CellBar(tqdm):
    """The bar of a notebook's cell. One that would be removed at its end is not shown."""

    def __init__(self, *items: Any, **settings: Any) -> None:
        self._output: Any = None
        hidden = bool(settings.get("disable")) or settings.get("leave") is False
        super().__init__(
            *items, **settings | {"file": io.StringIO(), "dynamic_ncols": False, "ascii": False, "disable": hidden}
        )

    def display(self, msg: str | None = None, pos: int | None = None) -> bool:
        """Show the bar in place of what it showed before."""
        from IPython.display import display

        content = {"text/plain": str(self) if msg is None else msg}
        if self._output is None:
            self._output = display(content, raw=True, display_id=True)
        else:
            self._output.update(content, raw=True)
        return True

    def say(self, line: str) -> None:
        """Show a line after the bar, also after its end."""
        if self._output is not None:
            self.set_postfix_str(line, refresh=False)
            self.display()
