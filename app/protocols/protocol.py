"""A protocol: how calls that predict are read and answered, and what all share."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from app.batching.job import Job, JobGroup
from app.call import Call, Head, Reply
from app.codec import rows
from app.codec.bounds import INLINE_BYTES
from app.codec.compression import decompress
from app.codec.fit import check_narrower
from app.codec.json_rows import read_plain_rows, write_plain_rows
from app.codec.uneven import Uneven
from app.codec.v2 import tensors
from app.engines.base import DEFAULT_SIGNATURE, Tensors
from app.protocols.describe import no_tensors
from app.repository.routing import Target


@dataclass(frozen=True)
class Protocol:
    """How a kind of calls that predict is read and answered.

    `find` returns the model that a POST asks for, None if the head is not of this
    protocol, and raises BadInput. `begin` makes a job of a call's body, which it then
    releases, and `finish` a reply of the model's outputs; both run in any thread, and
    raise BasketError. `explain` may put an error in the protocol's own words. Flask
    answers 405 and OPTIONS at the `rules`. With `calls_service` begin and finish call
    the functions of a model's service.py.
    """

    begin: Callable[[Call], Job]
    finish: Callable[[Call, Tensors], Reply]
    find: Callable[[Head], Target | None] = lambda head: None
    rules: Sequence[str] = ()
    explain: Callable[[Target, BaseException], BaseException] = lambda _, error: error
    calls_service: bool = False


# The form of all requests of plain rows.
_PLAIN = rows.Request(DEFAULT_SIGNATURE, {})


def begins_with(
    decode: Callable[[Call, bytes], rows.Request | tensors.TensorsRequest],
    *,
    takes_tensors: bool = False,
) -> Callable[[Call], Job]:
    """Return a `begin` that decodes the body, or a message with tensors.

    Else it tries plain rows of JSON first. A body that is wrong is no plain one;
    `decode` says what is wrong.
    """

    def begin(call: Call) -> Job:
        """Return the job of a call, and release the body: rows may take less."""
        asks, model, body = call.head.asks, call.model, call.body
        client = asks.client_key or call.peer.client
        plain = model.plain_input
        if takes_tensors:
            if not model.has_tensors:
                raise no_tensors(model)
        # A large body may have many rows, which the codec counts before it reads them.
        elif plain is not None and asks.is_plain and len(body) <= INLINE_BYTES:
            array = read_plain_rows(body, plain, model.max_rows)
            if array is not None:
                call.decoded = _PLAIN
                call.body = b""
                return Job(
                    {plain.name: array},
                    call.deadline,
                    DEFAULT_SIGNATURE,
                    client,
                    model.plain_key,
                )
        if asks.encoding is not None:
            body = _unpacked(call)
        call.decoded = decoded = decode(call, body)
        call.body, call.message = b"", None
        inputs, name = decoded.inputs, decoded.signature_name
        groups = inputs.groups if isinstance(inputs, Uneven) else [inputs]
        if model.has_narrower_inputs:
            for group in groups:
                check_narrower(group, model.signatures[name])
        if len(body) + call.filled_bytes > INLINE_BYTES:
            arrays = [array for group in groups for array in group.values()]
            # Strings take about as many bytes as in the body.
            has_strings = any(array.dtype.hasobject for array in arrays)
            size = sum(array.nbytes for array in arrays)
            call.hold(len(body) + call.filled_bytes if has_strings else size)
        if decoded.timeout_s is not None:
            call.deadline = min(call.deadline, call.arrived_at + decoded.timeout_s)
        if not isinstance(inputs, Uneven):
            return Job(inputs, call.deadline, name, client)
        jobs = [Job(group, call.deadline, name, client) for group in groups]
        return JobGroup(jobs, inputs.joined)

    return begin


def _unpacked(call: Call) -> bytes:
    """Return the body without its Content-Encoding.

    Raises:
        BasketError: it is malformed or too large, or nobody waits for the answer.
    """
    body, asks = call.body, call.asks

    def count(size: int) -> None:
        """Count the bytes so far, before many calls have unpacked all of theirs."""
        call.check_awaited()
        call.hold(len(body) + size)

    return decompress(body, asks.encoding or "", asks.max_body_bytes, count)


def finishes_with(
    encode: Callable[[Call, Tensors], Reply],
) -> Callable[[Call, Tensors], Reply]:
    """Return a `finish` that writes plain predictions of plain rows, or encodes."""

    def finish(call: Call, outputs: Tensors) -> Reply:
        if call.decoded is _PLAIN:
            body = write_plain_rows(outputs)
            if body is not None:
                return Reply(body)
        return encode(call, outputs)

    return finish
