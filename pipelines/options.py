"""Words of options: what computes a network, and how sentences are scored."""

from typing import Literal

Engine = Literal["auto", "torch", "openvino"]
"""What computes a network; "auto" is OpenVINO for a folder with a graph, if it is installed."""

ScoringMethod = Literal["within_word_l2r", "original"]
"""Which tokens are masked together with the one to predict."""
