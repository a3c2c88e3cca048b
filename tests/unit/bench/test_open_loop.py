"""The load generator that the checks of reliability measure with."""

import asyncio
import json

import pytest

from testing.open_loop import Client
from testing.open_loop_requests import (
    End,
    even,
    poisson,
    rows_request,
)

_HEAD = "HTTP/1.1 {status} X\r\nContent-Length: {length}\r\n\r\n"


def message(body: bytes, status: int = 200) -> bytes:
    return _HEAD.format(status=status, length=len(body)).encode() + body


def against(answer, work):
    """Run `work(client)` against a server; `answer(row, writer)` says what it does."""
    writers = []

    async def serve(reader, writer):
        writers.append(writer)
        try:
            while True:
                head = await reader.readuntil(b"\r\n\r\n")
                length = int(head.split(b"Content-Length: ")[1].split()[0])
                body = json.loads(await reader.readexactly(length))
                await answer(body["instances"], writer)
        except (asyncio.IncompleteReadError, ConnectionError):
            pass

    async def run():
        server = await asyncio.start_server(serve, "127.0.0.1", 0)
        async with server:
            client = Client(server.sockets[0].getsockname()[1])
            try:
                return client, await work(client)
            finally:
                client.close()
                for writer in writers:
                    writer.transport.abort()
                # The loop closes what is aborted in its next round.
                await asyncio.sleep(0)

    return asyncio.run(run())


async def echo(rows, writer):
    writer.write(message(json.dumps({"predictions": rows}).encode()))


def requests(times):
    return [rows_request(at_s, number) for number, at_s in enumerate(times)]


def test_each_request_gets_its_own_answer():
    """100 requests to an echo end well, each with its own row, none of them twice."""
    times = even(2000, 0.05)
    client, outcomes = against(echo, lambda client: client.open_loop(requests(times)))
    assert len(outcomes) == 100
    assert all(outcome.is_good() for outcome in outcomes)
    assert all(outcome.latency_s >= 0 for outcome in outcomes)
    assert client.unasked == 0


def test_nobody_waits_for_a_slow_server():
    """All are sent at their times, to a server that answers only when all have come."""
    held = []

    async def answer_late(rows, writer):
        held.append((rows, writer))
        if len(held) == 20:
            for late_rows, late_writer in held:
                await echo(late_rows, late_writer)

    times = even(200, 0.1)
    _, outcomes = against(
        answer_late, lambda client: client.open_loop(requests(times), patience_s=10)
    )
    by_time = sorted(outcomes, key=lambda outcome: outcome.request.at_s)
    assert all(outcome.is_good() for outcome in by_time)
    assert by_time[0].latency_s >= times[-1]
    assert by_time[-1].sent_s >= times[-1]


def test_latency_counts_from_when_a_request_was_due():
    """A request that was due a second before it could be sent took a second or more."""
    _, (outcome,) = against(echo, lambda client: client.open_loop(requests([-1])))
    assert outcome.is_good()
    assert outcome.latency_s == pytest.approx(outcome.ended_s + 1)
    assert outcome.ended_s >= outcome.sent_s >= 0


def test_another_rows_answer_is_wrong():
    """An answer of 200 with somebody else's row is not a good one."""

    async def mistake(rows, writer):
        await echo([[value + 1 for value in row] for row in rows], writer)

    _, (outcome,) = against(mistake, lambda client: client.open_loop(requests([0])))
    assert (outcome.status, outcome.right, outcome.is_good()) == (200, False, False)


@pytest.mark.parametrize(
    ("body", "is_right"),
    [(b'{"error": "full"}', True), (b"<html>", False), (b"[]", False)],
)
def test_an_error_is_to_be_json(body, is_right):
    """An error that is no JSON with a text in it is wrong as well."""

    async def refuse(rows, writer):
        writer.write(message(body, 503))

    _, (outcome,) = against(refuse, lambda client: client.open_loop(requests([0])))
    assert (outcome.status, outcome.right) == (503, is_right)


def test_a_second_answer_is_noticed():
    """Two answers to one request count as one that nobody asked for."""

    async def twice(rows, writer):
        await echo(rows, writer)
        await echo(rows, writer)

    client, _ = against(twice, lambda client: client.open_loop(requests([0, 0.02])))
    assert client.unasked == 2


def test_a_lost_connection_ends_its_request():
    """A request whose connection is closed on it has ended, without an answer."""

    async def close(rows, writer):
        writer.close()

    _, (outcome,) = against(close, lambda client: client.open_loop(requests([0])))
    assert (outcome.end, outcome.status) == (End.BROKEN, 0)


def test_what_is_never_answered_is_in_the_outcomes():
    """Requests without an answer are there in the end, as never answered."""

    async def say_nothing(rows, writer):
        pass

    _, outcomes = against(
        say_nothing, lambda client: client.open_loop(requests([0, 0]), patience_s=0.05)
    )
    assert [outcome.end for outcome in outcomes] == [End.OPEN] * 2


def test_arrivals_are_the_same_for_the_same_seed():
    """A seed fixes the arrivals, which are as many as the rate says, in order."""
    times = poisson(1000, 10, seed=7)
    assert times == poisson(1000, 10, seed=7) != poisson(1000, 10, seed=8)
    assert times == sorted(times)
    assert len(times) == pytest.approx(10_000, rel=0.05)
    assert times[-1] < 10
