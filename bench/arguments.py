"""What several commands take on their command lines."""

import argparse


def positive(text: str) -> float:
    """A number above 0.

    Raises:
        ValueError: not a number.
        argparse.ArgumentTypeError: not above 0, or not finite.
    """
    number = float(text)
    if not 0 < number < float("inf"):
        raise argparse.ArgumentTypeError(f"{text} is not above 0")
    return number
