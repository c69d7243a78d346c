"""The whole pipeline of a BERT in minutes, on a CPU, with text that is already there."""

from .run_demo import DemoArguments, demo

__all__ = ["DemoArguments", "demo"]
