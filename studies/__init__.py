"""The paper's ablation of the pretraining objectives, as one command (`mybert ablation`)."""

from .ablation import ROWS, AblationArguments, run_ablation

__all__ = ["ROWS", "AblationArguments", "run_ablation"]
