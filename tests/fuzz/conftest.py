"""The modules of the fuzzer, which is a script, for its tests."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
