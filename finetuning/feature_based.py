"""The feature-based approach (paper, section 5.3): frozen features of the encoder, and a tagger trained on them."""

from typing import Any


def feature_tasks(task: Any, arguments: Any) -> dict[str, Any]:
    """Stub."""
    raise NotImplementedError
