"""Flow control of a request's body."""

import asyncio
from unittest.mock import Mock

from app.server.head import Head, Limits
from app.server.request import Request


def test_reading_pauses_until_the_application_has_received_the_body():
    """One client's packets do not follow one another while others wait."""
    head, loop = Head(Limits(0, 0, 0)), asyncio.new_event_loop()
    head.feed(b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 999999\r\n\r\n")
    connection = Mock()
    connection.server.future = loop.create_future
    request = Request(connection, head)
    request.take_body(bytes(64 << 10))
    connection.pause_reading.assert_not_called()
    request.take_body(b"x")
    connection.pause_reading.assert_called_once_with()
    connection.resume_reading.assert_not_called()
    assert len(request.receive().result()["body"]) == (64 << 10) + 1
    connection.resume_reading.assert_called_once_with()
    loop.close()
