"""The paper's ablation of the pretraining objectives, and one model on a whole suite of tasks, as commands."""

from .._registration import register as register  # processes of `engines` call it
from .ablation import ROWS, AblationArguments, run_ablation
from .suite import SuiteArguments, run_suite
from .suite_file import read_suite

__all__ = ["ROWS", "AblationArguments", "SuiteArguments", "read_suite", "run_ablation", "run_suite"]
