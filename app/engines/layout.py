"""What is wrong with the layout of a folder of models, and the command that mends it.

Clients read these texts, too. So a path is shown as it is if the operator wrote a
relative one, and else with $BASKET_MODEL_DIR in it, which hides the machine's folders.
"""

import os
import re
import shlex
from collections.abc import Collection, Iterable, Iterator
from contextlib import suppress
from pathlib import Path

from app.settings import Settings
from app.settings.model_files import (
    MAX_VERSION,
    MODEL_FILES,
    SAVED_MODEL_ENTRIES,
    SERVICE_FILE,
    is_hidden,
    is_model_file,
    is_version,
    lone_model_file,
    model_file,
    name_problem,
    other_file,
)

_MAX_SHOWN = 5
_MAX_NAME_CHARS = 40


class Layout:
    """Describes problems of folders in BASKET_MODEL_DIR or BASKET_MODEL."""

    def __init__(self, settings: Settings) -> None:
        """Store the folder that is set, and its variable."""
        self._folder, self._variable = settings.model_dir, "$BASKET_MODEL_DIR"
        if settings.model is not None:
            self._folder, self._variable = settings.model, "$BASKET_MODEL"

    def missing_file(self, version: Path) -> str:
        """Return what is wrong with a version's folder that no engine can open.

        Raises:
            OSError: the folder can't be read.
        """
        name, shown = f"version {version.name}", self._shown
        entries = [
            each
            for each in sorted(version.iterdir())
            if not is_hidden(each.name) and not name_problem(each.name)
        ]
        if not entries:
            return f"{name} is empty: save its model as {shown(_new(version))}"
        files = [each for each in entries if is_model_file(each)]
        if len(files) == 1:
            file = files[0]
            return (
                f"{name} holds {file.name}; expected the name model{file.suffix}: "
                f"`{self._move(file, _new(version, file))}`"
            )
        deeper = [each for each in entries if model_file(each)]
        if len(deeper) == 1:
            return (
                f"{name} holds its model one folder deeper, in {deeper[0].name}: "
                f"`mv {shown(deeper[0])}/* {shown(version)}/`"
            )
        names = [each.name for each in entries]
        for each in entries:
            if what := other_file(each):
                return f"{name} holds {each.name}, which {what}"
        more = ", ..." if len(names) > _MAX_SHOWN else ""
        return (
            f"{name} holds {', '.join(names[:_MAX_SHOWN])}{more}; expected one of: "
            f"{', '.join((*MODEL_FILES, SERVICE_FILE))}"
        )

    def missing_version(self, model: Path) -> str:
        """Return what is wrong with a model's folder that is empty."""
        version = model / "1"
        return (
            f"has no version folder: `mkdir {self._shown(version)}`, and save its "
            f"model as {self._shown(_new(version))}"
        )

    def misplaced(
        self, model: Path, versions: Collection[int], others: Iterable[Path]
    ) -> Iterator[str]:
        """Yield the models in a model's folder that are in no version's folder.

        `others` are the entries of the folder that are no versions.
        """
        file = model_file(model)
        if file and is_version(model.name):
            yield (
                f"holds {file}, so BASKET_MODEL_DIR looks like one model: serve it "
                f"with BASKET_MODEL={self._shown(model.parent)}"
            )
            return
        taken = set(versions)
        for each in others:
            # Links, such as `latest`, are intended.
            is_left_out = is_hidden(each.name) or each.name.startswith("_")
            if is_left_out or each.is_symlink() or name_problem(each.name):
                continue
            held = _model_in(each)
            if held:
                version = model / str(_take_number(taken, each.name))
                limit = f" up to {MAX_VERSION}" if each.name.isdecimal() else ""
                yield (
                    f"{each.name} holds {held} and is no version, whose name is a "
                    f"number{limit}: `{self._move(each, version)}`"
                )
            # Beside versions, other files may be anything, such as weights.
            elif each.name == file or (not versions and is_model_file(each)):
                # The code is that of a model which is there.
                is_code = each.name == SERVICE_FILE and versions
                number = max(versions) if is_code else _take_number(taken)
                command = self._into(model / str(number), each)
                yield f"{each.name} is in no version folder: `{command}`"
            elif not versions and (what := other_file(each)):
                yield f"{each.name} {what}"

    def stray_files(self) -> Iterator[str]:
        """Yield the models that lie straight in the folder of models.

        Raises:
            OSError: the folder can't be read.
        """
        file = model_file(self._folder)
        if file and not is_model_file(self._folder / file):
            place = self._shown(self._folder)
            yield f"{file} is in no folder: serve it with BASKET_MODEL={place}"
            return
        for each in sorted(self._folder.iterdir()):
            if problem := name_problem(each.name):
                yield f"{each.name[:_MAX_NAME_CHARS]!a} is no model: {problem}"
            elif not each.name.startswith((".", "_")) and is_model_file(each):
                version = self._folder / each.stem / "1"
                yield (
                    f"{each.name} is in no folder: serve it alone with "
                    f"BASKET_MODEL={self._shown(each)}, or "
                    f"`mkdir -p {self._shown(version)} && "
                    f"{self._move(each, _new(version, each))}`"
                )
            elif each.name[0] not in "._" and (what := other_file(each)):
                yield f"{each.name} {what}"

    def unreadable(self, error: OSError) -> str:
        """Return that the folder can't be read at the moment, and why."""
        return f"{self._shown(self._folder)} can't be read now: {error.strerror}"

    def no_model(self) -> str:
        """Return what to do about an empty folder of models."""
        file = _new(self._folder / "NAME" / "1")
        return (
            f"save a model as {self._shown(file)}, or serve a single file with "
            "BASKET_MODEL=my.keras"
        )

    def _into(self, version: Path, file: Path) -> str:
        """Return the command that moves a file, with all that belongs to it."""
        make = "" if version.exists() else f"mkdir {self._shown(version)} && "
        if file.name not in (*MODEL_FILES, SERVICE_FILE):
            return f"{make}{self._move(file, _new(version, file))}"
        names = dict.fromkeys((file.name, SERVICE_FILE))
        if file.name in SAVED_MODEL_ENTRIES:
            names |= dict.fromkeys(SAVED_MODEL_ENTRIES)
        parts = [file.with_name(each) for each in names]
        shown = [self._shown(each) for each in parts if each.exists()]
        return f"{make}mv {' '.join(shown)} {self._shown(version)}/"

    def _move(self, source: Path, target: Path) -> str:
        return f"mv {self._shown(source)} {self._shown(target)}"

    def _shown(self, path: Path) -> str:
        """Return a path as a shell takes it."""
        if not path.is_absolute():
            return shlex.quote(str(path))
        folder = os.path.abspath(self._folder)
        is_plain = shlex.quote(folder) == folder
        variable = self._variable if is_plain else f'"{self._variable}"'
        if str(path) == folder:
            return variable
        with suppress(ValueError):
            return f"{variable}/{shlex.quote(str(path.relative_to(folder)))}"
        return shlex.quote(path.name)


def _take_number(taken: set[int], name: str = "") -> int:
    """Return the number in a name such as v2 if it is free, else the next free one."""
    digits = re.findall(r"[0-9]+", name)
    is_number = len(digits) == 1 and is_version(digits[0])
    number = int(digits[0]) if is_number else max(taken, default=0) + 1
    if number in taken:
        number = max(taken) + 1
    if number > MAX_VERSION:
        number = min({*range(1, len(taken) + 2)} - taken)
    taken.add(number)
    return number


def _model_in(folder: Path) -> str | None:
    with suppress(OSError, ValueError):
        return model_file(folder) or lone_model_file(folder)
    return None


def _new(version: Path, file: Path = Path("model.keras")) -> Path:
    return version / f"model{file.suffix}"
