"""Check answers against the OpenAPI document, and against rules for all answers."""

import json
import re
from collections.abc import Callable, Mapping
from http import HTTPStatus
from typing import Any
from urllib.parse import unquote

import jsonschema_rs

from testing.exchange import Answer, Request
from testing.server import ROOT

DOCUMENT = ROOT / "app" / "web" / "openapi.json"
# Statuses that any path and method may get.
_ANYWHERE = {400, 401, 404, 405, 408, 413, 414, 417, 431, 501, 503}
_LONGEST_ERROR = 2000
_DIGITS = "[0-9]+"
_LEAKS = (
    *(b"Traceback", b'File "', b"site-packages", b"/tmp/", b"/home/", b"/root/"),
    f"{ROOT}/".encode(),
)
# Shows settings, some of which are paths.
_STATE = "/page/state"
_ERROR = "#/components/schemas/Error"

_Check = Callable[[Any], bool]


class Contract:
    """Finds violations of the OpenAPI document."""

    def __init__(self, document: Mapping[str, Any]) -> None:
        """Read the routes; those without parameters come first."""
        self._document = document
        self._checks: dict[str, _Check] = {}
        paths = sorted(document["paths"].items(), key=lambda each: each[0].count("{"))
        self._routes = [(_pattern(path), operations) for path, operations in paths]

    def problem(self, request: Request | None, answer: Answer) -> str | None:
        """Return what is wrong with the answer to a request, or to malformed HTTP."""
        if answer.status == HTTPStatus.INTERNAL_SERVER_ERROR:
            return "status 500"
        if not _shows_settings(request, answer) and any(
            leak in answer.body for leak in _LEAKS
        ):
            return "a traceback or a path of the machine"
        if request is not None and request.method == "HEAD":
            return None
        responses = self._responses(request)
        if str(answer.status) in responses:
            return self._against(responses[str(answer.status)], answer)
        # Damaged bytes may still be a valid request.
        if answer.status >= HTTPStatus.BAD_REQUEST:
            is_known = request is None and self._is_documented_somewhere(answer)
            return None if is_known else self._error_problem(answer)
        is_right = request is None or request.method == "OPTIONS"
        return None if is_right else f"status {answer.status} is not documented"

    def _is_documented_somewhere(self, answer: Answer) -> bool:
        return any(
            self._against(operation["responses"][str(answer.status)], answer) is None
            for _, operations in self._routes
            for operation in operations.values()
            if str(answer.status) in operation["responses"]
        )

    def _responses(self, request: Request | None) -> Any:
        """Return the documented responses of the request's operation, if it has one."""
        if request is None:
            return {}
        sent = request.path.partition("?")[0]
        for pattern, operations in self._routes:
            # V1 matches the raw path, other routes the decoded one with one slash.
            is_v1 = sent.lower().startswith("/v1/")
            path = sent if is_v1 else "/" + unquote(sent).lstrip("/")
            if pattern.fullmatch(path):
                operation = operations.get(request.method.lower(), {})
                return operation.get("responses", {})
        return {}

    def _against(self, documented: Any, answer: Answer) -> str | None:
        is_error = answer.status >= HTTPStatus.BAD_REQUEST
        if "$ref" in documented:
            name = documented["$ref"].rpartition("/")[2]
            documented = self._document["components"]["responses"][name]
        content_type = answer.headers.get("content-type", "").partition(";")[0]
        content = documented["content"].get(content_type)
        if content is None:
            return f"content type {content_type!r} with status {answer.status}"
        if content_type.endswith("json"):
            value = _json(answer.body)
            if value is None or not self._fits(content["schema"], value):
                return (
                    f"not the schema of status {answer.status}: {answer.body[:300]!r}"
                )
        if is_error and len(answer.body) > _LONGEST_ERROR:
            return f"an error of {len(answer.body)} bytes"
        return None

    def _error_problem(self, answer: Answer) -> str | None:
        """Return what is wrong with an error that no operation documents."""
        if answer.status not in _ANYWHERE:
            return f"status {answer.status} is not documented"
        error = {"content": {"application/json": {"schema": {"$ref": _ERROR}}}}
        return self._against(error, answer)

    def _fits(self, schema: Mapping[str, Any], value: Any) -> bool:
        key = json.dumps(schema)
        if key not in self._checks:
            whole = {**schema, "components": self._document["components"]}
            self._checks[key] = jsonschema_rs.Draft202012Validator(whole).is_valid
        return self._checks[key](value)


def _shows_settings(request: Request | None, answer: Answer) -> bool:
    is_ok = answer.status == HTTPStatus.OK
    return is_ok and request is not None and _STATE in unquote(request.path)


def _pattern(path: str) -> re.Pattern[str]:
    """Return a pattern for a documented path; V1 ignores case."""
    is_v1 = path.startswith("/v1/")
    other = "[^/:]+" if is_v1 else "[^/]+"
    parts = [
        re.escape(part)
        if part[:1] != "{"
        else _DIGITS
        if part == "{version}"
        else other
        for part in re.split(r"(\{[a-z]+\})", path)
    ]
    return re.compile("".join(parts), re.IGNORECASE if is_v1 else 0)


def _json(body: bytes) -> Any:
    """Return the value, with 0 for NaN and infinities, which no schema describes."""
    try:
        return json.loads(body, parse_constant=lambda _: 0.0)
    except ValueError:
        return None


def read_document() -> dict[str, Any]:
    """Return the OpenAPI document."""
    document: dict[str, Any] = json.loads(DOCUMENT.read_text())
    return document
