"""Speed beside the tools people have now (`mybert bench`)."""

from .model_speed import BenchArguments, run_benchmarks

__all__ = ["BenchArguments", "run_benchmarks"]
