"""Methods of gRPC: what a message asks for, and what answers it."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from google.protobuf import json_format

from app.errors import UnknownModel
from app.protocols.describe import Description
from app.protocols.grpc_messages import message_class, parse, pool
from app.protocols.protocol import Protocol
from app.repository.routing import Target

_SHOWN = 80
# Of a version, which is an int64.
_MAX_DIGITS = 19


# Equal only to itself: a method is part of the key of a call's head.
@dataclass(frozen=True, eq=False)
class Method:
    """A method of a service.

    One that predicts has a `protocol`; `target_of` returns the model that a message
    names, and `filled_bytes` the bytes of tensors of which it has one value, None: each
    has all of its values. Both may raise BasketError. Of all others, `answer` returns
    the values of the response, and `unsupported` says why there is no answer.

    The request is named for the method, or for `message`. A method that `is_open`
    needs no key, one that `changes` the server an admin's.
    """

    service: str
    name: str
    answer: Callable[[Description, Any], Any] = lambda describe, message: {}
    message: str = ""
    protocol: Protocol | None = None
    target_of: Callable[[Any], Target] = lambda message: Target()
    filled_bytes: Callable[[Any], int] | None = None
    is_open: bool = False
    changes: bool = False
    unsupported: str = ""

    @cached_property
    def path(self) -> str:
        """The path of its calls."""
        return f"/{self.service}/{self.name}"

    @cached_property
    def request(self) -> str:
        """The name of the message that it takes."""
        package = self.service.rpartition(".")[0]
        return f"{package}.{self.message or self.name}Request"

    def reply(self, describe: Description, sent: bytes) -> bytes:
        """Return the response to a message.

        Raises:
            BasketError: the message is malformed, or can't be answered.
        """
        values = self.answer(describe, parse(self.request, sent))
        message = message_class(self.request.removesuffix("Request") + "Response")()
        json_format.ParseDict(
            values, message, ignore_unknown_fields=True, descriptor_pool=pool()
        )
        return bytes(message.SerializeToString())


def model_of(name: str, version: str = "") -> tuple[str, int | None]:
    """Return a model's name and version as the catalog has them.

    Raises:
        UnknownModel: the name or the version can't be one.
    """
    if not name or "/" in name:
        raise UnknownModel(f"there is no model {name[:_SHOWN]!r}")
    if not version:
        return name, None
    if not (version.isascii() and version.isdigit() and len(version) <= _MAX_DIGITS):
        raise UnknownModel(f"model {name!r} has no version {version[:_SHOWN]!r}")
    return name, int(version)
