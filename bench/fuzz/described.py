"""Valid and invalid requests that schemathesis makes from the OpenAPI document."""

import contextlib
import warnings
from collections.abc import Iterator
from functools import lru_cache
from typing import Any

import requests
import schemathesis
from hypothesis import HealthCheck, Phase, given, seed, settings
from hypothesis.errors import Unsatisfiable
from schemathesis import APIOperation, Case, GenerationMode

from bench.fuzz import models
from testing.contract import read_document
from testing.exchange import Request


def described(number: int, examples: int) -> Iterator[Request]:
    """Yield requests for one operation; `number` selects it and is the seed."""
    operations = _operations()
    operation = operations[number % len(operations)]
    modes = list(GenerationMode)
    mode = modes[number // len(operations) % len(modes)]
    found: list[Request] = []

    @seed(number)
    @settings(
        max_examples=examples,
        database=None,
        deadline=None,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    @given(operation.as_strategy(generation_mode=mode))
    def collect(case: Case) -> None:
        # HTTP cannot express every case.
        with contextlib.suppress(ValueError, TypeError, requests.RequestException):
            found.append(_request(case))

    # For some operations there is no invalid request, or a warning that there are few.
    with warnings.catch_warnings(), contextlib.suppress(Unsatisfiable):
        warnings.simplefilter("ignore")
        collect()
    yield from found


@lru_cache
def _operations() -> list[APIOperation]:
    schema = schemathesis.openapi.from_dict(_of_these_models(read_document()))
    operations = [each.ok() for each in schema.get_all_operations()]
    # Without parameters and body a request cannot be invalid.
    return [each for each in operations if "{" in each.path or each.body or each.query]


def _of_these_models(document: dict[str, Any]) -> dict[str, Any]:
    """Return the document with existing names, so that not all answers are 404."""
    model = document["components"]["parameters"]["Model"]
    model["schema"] = {"enum": list(models.NAMES)}
    spare = {**model, "schema": {"enum": [models.SPARE]}}
    for path, operations in document["paths"].items():
        if path.startswith("/v2/repository/models/"):
            operations["post"]["parameters"] = [spare]
    return document


def _request(case: Case) -> Request:
    parts = case.as_transport_kwargs(base_url="http://fuzz")
    prepared = requests.Request(**parts).prepare()
    body = prepared.body or b""
    headers = tuple(
        (name, str(value))
        for name, value in prepared.headers.items()
        if name not in ("Content-Length", "Connection", "Transfer-Encoding")
    )
    whole = body.encode() if isinstance(body, str) else bytes(body)
    return Request(str(prepared.method), prepared.path_url, headers, whole)
