"""Processes by their numbers."""

import os


def lives(pid: int) -> bool:
    """Say whether a process of this server has the number now."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:  # somebody else's by now
        return False
    return True
