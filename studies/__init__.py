"""The paper's ablation of the pretraining objectives, and one model on a whole suite of tasks, as commands."""

from typing import TYPE_CHECKING

from .._lazy_names import lazy_names
from .._registration import register as register  # processes of `engines` call it

if TYPE_CHECKING:
    from .ablation import AblationArguments, run_ablation
    from .engines import measure_engines
    from .settings import ROWS, AblationSettings, BenchSettings, SuiteArguments, SuiteSettings
    from .suite import run_suite
    from .suite_file import read_suite

__all__ = [
    "ROWS",
    "AblationArguments",
    "AblationSettings",
    "BenchSettings",
    "SuiteArguments",
    "SuiteSettings",
    "measure_engines",
    "read_suite",
    "run_ablation",
    "run_suite",
]

__getattr__, __dir__ = lazy_names(__name__)
