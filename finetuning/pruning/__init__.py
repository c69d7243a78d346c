"""Smaller models without training: fewer layers or attention heads (`mybert prune`)."""

from .pruning_run import PruneArguments, prune

__all__ = ["PruneArguments", "prune"]
