"""The private names of Werkzeug that tests need; they fail by name when one moves."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from werkzeug.routing import Rule


@contextmanager
def routes_compiled_once() -> Iterator[None]:
    """Compile each route once, and not for each application that has it.

    Some hundred applications have the same routes, and Werkzeug compiles each of them
    for each application: a quarter of the time of tests of the API.
    """
    compiled: dict[Any, Any] = {}
    compile_route = Rule._compile_builder

    def compile_once(rule: Any, append_unknown: bool = True) -> Any:
        key = str(rule.rule), tuple(rule._trace), str(rule.defaults), append_unknown
        if key not in compiled:
            compiled[key] = compile_route(rule, append_unknown)
        return compiled[key]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Rule, "_compile_builder", compile_once)
        yield
