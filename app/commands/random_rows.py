"""Random rows, as the commands use them."""

from app.engines.random_rows import RandomRows, rows_for

__all__ = ["RandomRows", "rows_for"]
