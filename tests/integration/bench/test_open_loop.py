"""The load generator of the reliability checks."""

import asyncio
import json
from dataclasses import replace

import pytest

from testing.open_loop import Client
from testing.open_loop_requests import End, poisson, rows_request

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
    times = [n / 2000 for n in range(100)]
    client, outcomes = against(echo, lambda client: client.open_loop(requests(times)))
    assert len(outcomes) == 100
    assert all(outcome.is_good() for outcome in outcomes)
    assert all(outcome.latency_s >= 0 for outcome in outcomes)
    assert client.unexpected == 0


def test_slow_server_delays_no_request():
    """Requests are sent when due to a server that answers only after the last one."""
    held = []

    async def answer_late(rows, writer):
        held.append((rows, writer))
        if len(held) == 20:
            for late_rows, late_writer in held:
                await echo(late_rows, late_writer)

    times = [n / 200 for n in range(20)]
    _, outcomes = against(
        answer_late, lambda client: client.open_loop(requests(times), wait_s=10)
    )
    by_time = sorted(outcomes, key=lambda outcome: outcome.request.at_s)
    assert all(outcome.is_good() for outcome in by_time)
    assert by_time[0].latency_s >= times[-1]
    assert by_time[-1].sent_s >= times[-1]


def test_latency_counts_from_the_due_time():
    """A request that is sent a second late has a latency of a second or more."""
    _, (outcome,) = against(echo, lambda client: client.open_loop(requests([-1])))
    assert outcome.is_good()
    assert outcome.latency_s == pytest.approx(outcome.ended_s + 1)
    assert outcome.ended_s >= outcome.sent_s >= 0


def test_answer_of_another_row_is_wrong():
    """A 200 with another row is not good."""

    async def mistake(rows, writer):
        await echo([[value + 1 for value in row] for row in rows], writer)

    _, (outcome,) = against(mistake, lambda client: client.open_loop(requests([0])))
    assert (outcome.status, outcome.right, outcome.is_good()) == (200, False, False)


@pytest.mark.parametrize(
    ("body", "is_right"),
    [(b'{"error": "full"}', True), (b"<html>", False), (b"[]", False)],
)
def test_error_must_be_json(body, is_right):
    """An error that is not JSON with a text is wrong."""

    async def refuse(rows, writer):
        writer.write(message(body, 503))

    _, (outcome,) = against(refuse, lambda client: client.open_loop(requests([0])))
    assert (outcome.status, outcome.right) == (503, is_right)


def test_error_is_good_where_it_is_expected():
    """A request says which status is that of a good answer, and 200 is then none."""

    async def refuse(rows, writer):
        writer.write(message(b'{"error": "bad"}', 400))

    expected = [replace(requests([0])[0], status=400)]
    _, (refused,) = against(refuse, lambda client: client.open_loop(expected))
    _, (answered,) = against(echo, lambda client: client.open_loop(expected))
    assert (refused.is_good(), answered.is_good()) == (True, False)


def test_disconnect_is_good_where_the_client_is_to_disconnect():
    """A request whose client disconnects by itself needs no answer."""

    async def say_nothing(rows, writer):
        pass

    dropped = [replace(requests([0])[0], disconnect_s=0.01)]
    _, (outcome,) = against(say_nothing, lambda client: client.open_loop(dropped))
    assert (outcome.end, outcome.is_good()) == (End.DISCONNECTED, True)


def test_second_response_is_unexpected():
    """Two responses to one request count as one unexpected."""

    async def twice(rows, writer):
        await echo(rows, writer)
        await echo(rows, writer)

    client, _ = against(twice, lambda client: client.open_loop(requests([0, 0.02])))
    assert client.unexpected == 2


def test_lost_connection_ends_its_request():
    """A request whose connection the server closes ends without an answer."""

    async def close(rows, writer):
        writer.close()

    _, (outcome,) = against(close, lambda client: client.open_loop(requests([0])))
    assert (outcome.end, outcome.status) == (End.BROKEN, 0)


def test_requests_never_answered_are_in_the_outcomes():
    """Requests without an answer are in the outcomes as never answered."""

    async def say_nothing(rows, writer):
        pass

    _, outcomes = against(
        say_nothing, lambda client: client.open_loop(requests([0, 0]), wait_s=0.05)
    )
    assert [outcome.end for outcome in outcomes] == [End.OPEN] * 2


def test_arrivals_are_the_same_for_the_same_seed():
    """A seed fixes the arrivals, which are as many as the rate says, in order."""
    times = poisson(1000, 10, seed=7)
    assert times == poisson(1000, 10, seed=7) != poisson(1000, 10, seed=8)
    assert times == sorted(times)
    assert len(times) == pytest.approx(10_000, rel=0.05)
    assert times[-1] < 10
