"""The orders of published classes of GLUE's tasks, which differ."""

import re
from collections.abc import Mapping, Sequence

_INFERENCE = ("contradiction", "entailment", "neutral")
# Task -> classes in the order of the classifier's rows: `get_labels` of google-research/bert's run_classifier.py.
GOOGLE_LABELS: dict[str, tuple[str, ...]] = {
    "cola": ("0", "1"),
    "mnli": _INFERENCE,
    "mrpc": ("0", "1"),
    "xnli": _INFERENCE,
}
# The order of GLUE's and XNLI's data sets on the Hub, where it differs.
_HUB_INFERENCE = ("entailment", "neutral", "contradiction")
HUB_LABELS: dict[str, tuple[str, ...]] = {"mnli": _HUB_INFERENCE, "xnli": _HUB_INFERENCE}


def has_unnamed_labels(names: Sequence[str]) -> bool:
    """Whether classes have the names that transformers gives by default: LABEL_0, LABEL_1, ..."""
    return bool(names) and all(re.fullmatch(r"LABEL_\d+", str(name)) for name in names)


def google_row_order(names: Sequence[str]) -> list[int] | None:
    """The row of each of Google's classes in a classifier with these; None if no task of Google's code has them."""
    found = [str(name).lower() for name in names]
    for order in GOOGLE_LABELS.values():
        if sorted(found) == sorted(order):
            return [found.index(name) for name in order]
    return None


def require_named_labels(model: str, task: str | None, id2label: Mapping[int, str]) -> None:
    """Reject a classifier with unnamed classes for a task whose published models differ in their order."""
    if (
        task not in HUB_LABELS
        or len(id2label) != len(HUB_LABELS[task])
        or not has_unnamed_labels([*id2label.values()])
    ):
        return
    raise ValueError(
        f"The classes of {model} have no names ({', '.join(map(str, id2label.values()))}), and published models of "
        f"{task} have them in different orders (Google's: {', '.join(GOOGLE_LABELS[task])}; GLUE's on the Hub: "
        f"{', '.join(HUB_LABELS[task])}). Write the names as id2label into its config.json, or convert Google's "
        f"checkpoint with --task {task}."
    )
