"""Pipelines that transformers 5 no longer has."""
