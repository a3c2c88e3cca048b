"""Versions in the paths of V2's routes."""

from werkzeug.routing import BaseConverter


class VersionConverter(BaseConverter):
    """Matches a number of ASCII digits: Flask's int also takes those of all scripts."""

    # int() takes at most 4300 digits.
    regex = "[0-9]{1,4300}"

    def to_python(self, value: str) -> int:
        """Return the version's number."""
        return int(value)
