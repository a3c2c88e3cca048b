"""The model of requests that name none."""

import logging
from collections.abc import Collection

from app.errors import UnknownModel
from app.run_dir.notes import Notes

# The demo model is the default of several models, unless another one is set.
_DEMO = "digits"
_log = logging.getLogger(__name__)


class DefaultModel:
    """The model that is set, the only one, or digits.

    Clients rely on the choice that the server made when it started: a model that is
    added or removed later does not change it.
    """

    def __init__(self, name: str | None, kept: Notes) -> None:
        """Store the model that is set; `kept` shows a choice to other processes."""
        self._name = name
        self._kept = kept

    def among(self, names: Collection[str]) -> str | None:
        """Return the default; None: not set, and none of these models can be it."""
        if self._name is not None:
            return self._name
        return _choice(names) if names else _DEMO

    def required(self, names: Collection[str]) -> str:
        """Return the default model of these.

        Raises:
            UnknownModel: there is none.
        """
        name = self.among(names)
        if name is not None:
            return name
        raise UnknownModel(
            f"there are several models, and none is the default: {known_text(names)}; "
            "set BASKET_DEFAULT_MODEL or ask /v1/models/NAME:predict"
        )

    def keep(self, names: Collection[str]) -> None:
        """Keep the default of these models, if there is one and none is kept.

        The choice of the server's first process counts for all: another worker may
        start when there are more models.
        """
        if self._name is not None or not names:
            return
        kept = sorted(note.key for note in self._kept.all())
        name = kept[0] if kept else _choice(names)
        if name is None:
            return
        self._name = name
        if not kept:
            self._kept.add(name)
        _log.info("default model: %s; BASKET_DEFAULT_MODEL chooses another", name)


def _choice(names: Collection[str]) -> str | None:
    """Return the default of one or more models, None if there is none."""
    if len(names) == 1:
        return next(iter(names))
    return _DEMO if _DEMO in names else None


def known_text(names: Collection[str]) -> str:
    """Return the names of models, in order."""
    return ", ".join(sorted(names)) or "none"
