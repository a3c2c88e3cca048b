"""Runs batches on a TensorFlow Serving, over its REST API.

tensorflow_serving.json in a version's folder names the model: {"url":
"http://host:8501", "model": "my_model"}, and optionally "version", "signature_name"
and "timeout_ms". Decoding, batching and encoding happen here; no framework is imported.

Any server with this API will do, another Basket too:
https://www.tensorflow.org/tfx/serving/api_rest
"""

import json
from collections.abc import Callable
from dataclasses import dataclass
from http import HTTPStatus
from pathlib import Path
from typing import Any, TypeVar
from urllib.parse import SplitResult, quote, urlsplit

from app.engines.base import DEFAULT_SIGNATURE, Signature, Tensors
from app.engines.tensorflow_serving import wire
from app.engines.tensorflow_serving.connections import (
    Connections,
    error_from,
    error_text,
)
from app.errors import BasketError, Late, ModelLoadError, NotYetLoadable, Unavailable
from app.settings import Settings, checks
from app.settings.model_files import MAX_VERSION

FILE_NAME = "tensorflow_serving.json"
_T = TypeVar("_T")


@dataclass(frozen=True)
class RemoteModel:
    """The content of tensorflow_serving.json.

    `version` None is the server's choice. With `signature_name`, only that signature
    is served, as the default.
    """

    url: SplitResult
    model: str
    version: int | None
    signature_name: str | None
    timeout_ms: int

    @classmethod
    def parse(cls, text: bytes, limit_ms: int) -> "RemoteModel":
        """Read the JSON of a tensorflow_serving.json.

        `limit_ms` is the default and the maximum of timeout_ms: no request waits for
        longer.

        Raises:
            ModelLoadError: not JSON, an unknown key, or an invalid value.
        """
        try:
            values = {**_DEFAULTS, "timeout_ms": limit_ms, **json.loads(text)}
            for key in values:
                if key not in _DEFAULTS:
                    known = ", ".join(_DEFAULTS)
                    raise ValueError(f"unknown key {key[:40]!r}; known: {known}")
            checked = {key: _checked(key, value) for key, value in values.items()}
        except (TypeError, ValueError, RecursionError) as error:
            raise ModelLoadError(f"{FILE_NAME}: {error}") from error
        checked["timeout_ms"] = min(checked["timeout_ms"], limit_ms)
        return cls(**checked)

    @property
    def path(self) -> str:
        """The model's path on the server."""
        version = "" if self.version is None else f"/versions/{self.version}"
        name = quote(self.model, safe="")
        return f"{self.url.path.rstrip('/')}/v1/models/{name}{version}"


class TensorFlowServingEngine:
    """An engine that has another server run the model."""

    platform = "tensorflow_serving"

    def __init__(self, remote: RemoteModel) -> None:
        """Store the model's address; connect to nothing yet."""
        self._remote = remote
        self._connections = Connections(remote.url, remote.timeout_ms / 1000)
        self.signatures: dict[str, Signature] = {}

    def connect(self) -> None:
        """Fetch the model's signatures from the server.

        Raises:
            Unavailable: the server or the model is not available now.
            Late: no response in time.
            ModelLoadError: the model has no signature that can be served.
        """
        reply = self._connections.exchange("GET", f"{self._remote.path}/metadata")
        if reply.status == HTTPStatus.NOT_FOUND:
            raise Unavailable(self._why_unavailable())
        if reply.status != HTTPStatus.OK:
            raise error_from(reply)
        name = self._remote.signature_name
        signatures = wire.read_signatures(reply.body, name or DEFAULT_SIGNATURE)
        if name is None:
            self.signatures = signatures
        elif name in signatures:
            self.signatures = {DEFAULT_SIGNATURE: signatures[name]}
        else:
            known = ", ".join(signatures)
            raise ModelLoadError(f"no signature {name!r} can be served, but {known}")

    def run(self, batch: Tensors, signature_name: str = DEFAULT_SIGNATURE) -> Tensors:
        """Have the server compute one batch.

        Raises:
            ModelFailed: the model refuses the batch.
            WrongOutputs: the outputs do not match the signature.
            OutOfDeviceMemory: the batch is too large for the server.
            Unavailable: the server or the model is not available now, or is full.
            Late: no response in time.
        """
        signature = self.signatures[signature_name]
        name = self._remote.signature_name or signature_name
        body = wire.write_inputs(batch, signature, name)
        reply = self._connections.exchange("POST", f"{self._remote.path}:predict", body)
        if reply.status != HTTPStatus.OK:
            raise error_from(reply)
        return wire.read_outputs(reply.body, signature)

    def close(self) -> None:
        """Close the connections."""
        self._connections.close()

    def _why_unavailable(self) -> str:
        """Return the model's status on the server, for an error text."""
        reply = self._connections.exchange("GET", self._remote.path)
        if reply.status != HTTPStatus.OK:
            reason = error_text(reply.body) or f"status {reply.status}"
            return f"the model server has no such model: {reason}"
        return f"the model server is not ready: {wire.read_states(reply.body)}"


def open_engine(file: Path, settings: Settings) -> TensorFlowServingEngine:
    """Open the model that a tensorflow_serving.json names.

    Raises:
        NotYetLoadable: the server or the model is not available now.
        ModelLoadError: the file is invalid, or the model can't be served.
    """
    remote = RemoteModel.parse(file.read_bytes(), settings.request_timeout_ms)
    engine = TensorFlowServingEngine(remote)
    try:
        engine.connect()
    except (Late, Unavailable) as error:
        raise NotYetLoadable(f"{FILE_NAME}: {error}") from error
    except BasketError as error:
        raise ModelLoadError(f"{FILE_NAME}: {error}") from error
    finally:
        if not engine.signatures:
            engine.close()
    return engine


def _checked(key: str, value: object) -> Any:
    try:
        return _CHECKS[key](value)
    except ValueError as error:
        raise ValueError(f"{key}: {error}") from error


def _url(value: object) -> SplitResult:
    parts = urlsplit(value if isinstance(value, str) else "")
    has_extra = parts.username or parts.password or parts.query or parts.fragment
    if parts.scheme not in ("http", "https") or not parts.hostname or has_extra:
        # The URL is not quoted: it may contain a password.
        raise ValueError("expected the like of http://host:8501 and no more")
    # Each raises a ValueError if it is none.
    _ = parts.port
    parts.hostname.encode("idna")
    return parts


def _name(value: object) -> str:
    if not isinstance(value, str) or not value:
        raise ValueError("expected a name")
    return value


def _or_none(check: Callable[[object], _T]) -> Callable[[object], _T | None]:
    return lambda value: None if value is None else check(value)


_CHECKS: dict[str, Callable[[object], Any]] = {
    "url": _url,
    "model": _name,
    "version": _or_none(checks.whole(0, MAX_VERSION)),
    "signature_name": _or_none(_name),
    "timeout_ms": checks.whole(1, 86_400_000),
}
_DEFAULTS: dict[str, Any] = dict.fromkeys(_CHECKS)
