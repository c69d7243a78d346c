"""The modules of the sweep, which is a script, for its tests."""

import sys
from pathlib import Path

sys.path[:0] = [str(Path(__file__).parent), str(Path(__file__).parents[1] / "golden")]
