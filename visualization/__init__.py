"""Pictures of training and attention."""

from .training_curves import plot_run, training_curves

__all__ = ["plot_run", "training_curves"]
