"""Which code of the user's own, or of a package, a Keras file needs.

Not in files.py: a process of Keras 2 does not import Keras 3.
"""

import re

# Keras's texts for a kind of object and a name that it does not know.
_UNKNOWN = re.compile(
    r"(?:Could not locate|Unknown|Cannot deserialize object of|Could not deserialize) "
    r"(class|function|layer|object|type):? ['`](?:(\w+)>)?([^'`]+)"
)
# Its texts for the module that the object is from.
_MODULE = re.compile(
    r"parent module (\w+)|Full object config: \{'module': '(\w+)[^']*', 'class_name'"
)
# Modules that say nothing: code of a notebook or a script, and functions.
_NO_MODULES = ("__main__", "builtins", "Custom")
# What to do about code that is not run here.
EXPORT = 'write a SavedModel with model.export("models/NAME/VERSION")'
_NOT_RUN = f"is code of yours, which is not run here: {EXPORT}"
_SERVICE = "service.py beside the file, with BASKET_USER_CODE=on"


def unknown_name(reason: str) -> str:
    """Return the object that Keras does not know, by its error, or an empty text."""
    found = _UNKNOWN.match(reason)
    return found[3] if found else ""


def custom_code(reason: str, text: str) -> str:
    """Return which custom code a file needs, by Keras's error, or an empty text.

    The text says what to do, too.
    """
    if "Python lambda" in reason:
        return f"a Python lambda {_NOT_RUN}"
    found = _UNKNOWN.match(reason)
    if not found:
        return ""
    kind, package, name = found.groups()
    modules = [group for match in _MODULE.findall(text) for group in match]
    known = [each for each in (package, *modules) if each and each not in _NO_MODULES]
    if not known:
        return f"{kind} {name!r} is code of yours: define it in {_SERVICE}, or {EXPORT}"
    return (
        f"{kind} {name!r} is code of {known[0]}: import it in {_SERVICE}, or, where "
        f"that is installed, {EXPORT}"
    )
