"""Which code of the user's own, or of a package, a Keras file needs.

Not in files.py: a process of Keras 2 does not import Keras 3.
"""

import builtins
import re
from collections.abc import Mapping
from typing import Any

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
_KERAS = ("keras", "tf_keras")
_INITIALIZERS = "tensorflow.python.ops.init_ops_v2"
# Functions of TensorFlow that compute on tensors, and read or load no file.
_COMPUTING = re.compile(
    r"(compat\.v[12]\.)?((__operators__|bitwise|dtypes|experimental\.numpy|image|linalg|"
    r"math|nn|quantization|ragged|random|sets|signal|sparse|strings)\.[\w.]+|"
    r"(?!load_|py_|numpy_|import_)\w+)"
)
_EXPORT = 'write a SavedModel with model.export("models/NAME/VERSION")'
_NOT_RUN = f"is code of yours, which is not run here: {_EXPORT}"
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
        return (
            f"{kind} {name!r} is code of yours: define it in {_SERVICE}, or {_EXPORT}"
        )
    return (
        f"{kind} {name!r} is code of {known[0]}: import it in {_SERVICE}, or, where "
        f"that is installed, {_EXPORT}"
    )


def code_run_by_keras2(config: Any) -> str:
    """Return what in a configuration tf_keras would run beside Keras and TensorFlow.

    tf_keras imports any module that a file names, and runs its lambdas. The text says
    what to do; it is empty for the file of an ordinary model.
    """
    if isinstance(config, list):
        return next(filter(None, map(code_run_by_keras2, config)), "")
    if not isinstance(config, Mapping):
        return ""
    code = _own_code(config) if "class_name" in config else ""
    return code or code_run_by_keras2(list(config.values()))


def _own_code(config: Mapping[str, Any]) -> str:
    kind, module = config["class_name"], config.get("module")
    inner = config.get("config")
    if kind in ("Lambda", "__lambda__"):
        return f"a Python lambda {_NOT_RUN}"
    if kind in ("TFOpLambda", "ClassMethod"):
        called = str(inner and (inner.get("function") or inner.get("cls_ref")))
        return "" if _COMPUTING.fullmatch(called) else f"a call of {called} {_NOT_RUN}"
    if module is None:
        return ""
    names = str(module).split(".")
    if kind == "function":
        is_keras = names == ["builtins"] and not hasattr(builtins, str(inner))
    else:
        is_keras = names[0] in _KERAS and "utils" not in names
        # tf_keras takes a function for a class, too.
        is_keras = (is_keras or module == _INITIALIZERS) and kind[:1].isupper()
    return "" if is_keras else f"{inner if kind == 'function' else kind} {_NOT_RUN}"
