"""Speed compared with the tools in use today (`mybert bench`)."""

from .._registration import register as register  # before own_model, whose processes call it
from .model_speed import BenchArguments, run_benchmarks

__all__ = ["BenchArguments", "run_benchmarks"]
