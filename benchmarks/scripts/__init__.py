"""Measurements by hand, each a script (`python -m mybert.benchmarks.scripts.NAME`): in the repository only."""
