"""Speed compared with the tools in use today (`mybert bench`)."""

from .model_speed import BenchArguments, run_benchmarks

__all__ = ["BenchArguments", "run_benchmarks"]
