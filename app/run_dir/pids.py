"""Processes by their numbers."""

import os


def lives(pid: int) -> bool:
    """Say whether a process has the number now that this one may signal.

    It may be a stranger: numbers are given again.
    """
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:  # somebody else's by now
        return False
    return True
