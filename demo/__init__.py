"""The whole pipeline of a BERT in minutes, on a CPU, with text that is already there."""

from typing import TYPE_CHECKING

from .._lazy_names import lazy_names

if TYPE_CHECKING:
    from .run_demo import demo
    from .settings import DemoArguments, DemoSettings

__all__ = ["DemoArguments", "DemoSettings", "demo"]

__getattr__, __dir__ = lazy_names(__name__)
