"""Backlog: many clients connect and send right before SIGTERM."""

import contextlib
from http.client import HTTPConnection, HTTPException

from bench.reliability.report import Report, tally
from bench.reliability.server import (
    CROWDED,
    GOOD,
    device,
    raise_descriptor_limit,
    simulated,
)
from testing.open_loop_requests import End, Outcome, Request, rows_request

_TIMEOUT_S = 60.0


def backlog(clients: int = 1000, app: str = GOOD) -> Report:
    """Let clients connect and send a request right before SIGTERM.

    Most of them are in the kernel's backlog or in the queue by then.
    """
    raise_descriptor_limit()
    requests = [rows_request(0, number) for number in range(clients)]
    simulation = device(base_ms=50, per_row_ms=0)
    with (
        simulated(simulation, *CROWDED, app=app) as server,
        contextlib.ExitStack() as stack,
    ):
        connections = []
        for request in requests:
            connection = HTTPConnection("127.0.0.1", server.port, _TIMEOUT_S)
            connections.append(stack.enter_context(contextlib.closing(connection)))
            connection.request("POST", request.path, request.body)
        server.process.terminate()
        outcomes = list(map(_outcome, connections, requests))
        status = server.process.wait(_TIMEOUT_S)
    answered = sum(one.is_good() for one in outcomes)
    note = (
        f"Simulated device, 50 ms a batch of up to 64; {clients:,} clients connect and "
        f"send, then SIGTERM at once: {tally(outcomes)}."
    )
    report = Report("Backlog", [note])
    report.promise(
        "right answers", f"{clients:,}", f"{answered:,}", answered == clients
    )
    report.promise("exit status", "0", status, status == 0)
    return report


def _outcome(connection: HTTPConnection, request: Request) -> Outcome:
    outcome = Outcome(request, 0, end=End.BROKEN)
    with contextlib.suppress(OSError, HTTPException):
        reply = connection.getresponse()
        body = reply.read()
        outcome.end, outcome.status = End.ANSWERED, reply.status
        outcome.right = request.is_right(reply.status, body)
    return outcome
