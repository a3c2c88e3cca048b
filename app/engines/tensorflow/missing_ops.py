"""Packages that register TensorFlow operations when they are imported."""

import re

from app.settings.model_files import SERVICE_FILE

# TensorFlow's texts for the name of an operation that nothing has registered.
_MISSING = re.compile(r"Op type not registered '([^']+)'|No op named (\S+) in defined")
# Beginnings of operations' names -> the package of tensorflow-text and so on. Read from
# tensorflow-text 2.21.1, tensorflow-decision-forests 1.12.0, tensorflow-addons 0.23.0,
# tensorflow-io 0.37.1 and tensorflow-recommenders-addons 0.8.1.
_PACKAGES = {
    "TFText>": "tensorflow-text",
    **dict.fromkeys(
        (
            *("CaseFoldUTF8", "ConstrainedSequence", "FastBertNormalize"),
            *("FastWordpiece", "FindSourceOffsets", "MaxSpanningTree", "NormalizeUTF8"),
            *("PhraseTokenize", "RegexSplitWithOffsets", "RougeL", "SentenceFragments"),
            *("Sentencepiece", "SplitMergeTokenize", "TokenizerFromLogits"),
            *("UnicodeScriptTokenize", "WhitespaceTokenize", "WordpieceTokenize"),
        ),
        "tensorflow-text",
    ),
    "SimpleML": "tensorflow-decision-forests",
    "Addons>": "tensorflow-addons",
    "IO>": "tensorflow-io",
    "TFRA>": "tensorflow-recommenders-addons",
}


def advice_for_missing_op(text: str) -> str:
    """Return what to do about the operation that TensorFlow's error misses, or ""."""
    found = _MISSING.search(text)
    if found is None:
        return ""
    name = found[1] or found[2]
    package = next(
        (each for start, each in _PACKAGES.items() if name.startswith(start)), ""
    )
    if not package:
        return (
            f"no installed package has the operation {name!r}: install the one that "
            f"does, and import it in a {SERVICE_FILE} beside the file "
            "(docs/user_code.md)"
        )
    return (
        f"the operation {name!r} is of {package}: pip install {package}, write the "
        f"line `import {package.replace('-', '_')}` into a {SERVICE_FILE} beside the "
        "file, and start the server with BASKET_USER_CODE=on"
    )
