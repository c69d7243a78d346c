"""Speed and memory compared with other tools, by hand, one file per topic; not in the wheel."""

from .._registration import register as register  # processes of `runtimes` call it
