"""Durations as text."""


def duration(seconds: float) -> str:
    """Format a duration in seconds in suitable units: `3.14 s`, `4 min 12 s`, `1 h 23 min`."""
    minutes, second = divmod(round(seconds), 60)
    hours, minute = divmod(minutes, 60)
    if hours:
        return f"{hours} h {minute} min"
    return f"{minute} min {second} s" if minute else f"{seconds:.3g} s"
