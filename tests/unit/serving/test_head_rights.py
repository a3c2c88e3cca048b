"""Rights of a call whose message is still to come, by its head."""

import pytest

from app.call import Head
from app.errors import Unauthorized
from app.repository.routing import Target
from app.serving.predictor import Limits, Predictor


class Rights:
    """Notes the addresses of checks; `error` is raised."""

    origins = None

    def __init__(self):
        self.addresses = []
        self.error = None

    def check(self, headers, address):
        self.addresses.append(address)
        if self.error is not None:
            raise self.error


def test_rights_of_a_head_are_checked_twice_a_second():
    """What one call may, others with the same head may too, but not for long."""
    rights = Rights()
    asked = Predictor(None, rights, (), (), Limits(1000, 1000))
    head = Head("POST", "/m", "", {})
    asked.direct(head, None, Target())
    for seconds in (0.0, 0.49, 0.51, 0.99, 1.02):
        asked.check_head(head, "grpc", 100.0 + seconds)
    assert rights.addresses == ["grpc"] * 3
    asked.check_head(head, "192.0.2.7", 101.02)
    assert rights.addresses[-1] == "192.0.2.7"


def test_refused_head_is_checked_each_time():
    """A refusal is not remembered: the key may be added."""
    rights = Rights()
    asked = Predictor(None, rights, (), (), Limits(1000, 1000))
    head = Head("POST", "/m", "", {})
    asked.direct(head, None, Target())
    rights.error = Unauthorized("no key")
    for _ in range(2):
        with pytest.raises(Unauthorized):
            asked.check_head(head, "grpc", 100.0)
    rights.error = None
    asked.check_head(head, "grpc", 100.0)
    assert len(rights.addresses) == 3
