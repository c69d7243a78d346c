"""`python -m mybert`, also for `accelerate launch -m mybert` and `torchrun -m mybert`."""

import sys

from .cli import main

if __name__ == "__main__":
    sys.exit(main())
