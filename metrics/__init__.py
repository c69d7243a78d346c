"""Metrics that need no network."""
