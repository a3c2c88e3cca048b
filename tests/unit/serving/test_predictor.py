"""From a call to its reply: rights, lease, outcome."""

import numpy as np
import pytest

from app.batching.job import Job
from app.batching.unbatched import Unbatched
from app.call import Call, Head, Peer, Reply
from app.engines.base import DEFAULT_SIGNATURE
from app.errors import Late, Unauthorized
from app.protocols.protocol import Protocol
from app.repository.catalog import Catalog
from app.repository.routing import Target
from app.repository.served import ServedModel
from app.serving.predictor import Limits, Predictor
from app.settings import Settings
from app.settings.model_config import ModelConfig
from tests.support.engines import Echo
from tests.support.jobs import Notes, executor

PEER = Peer("10.0.0.7", 51234, "127.0.0.1", 8000)
LIMIT_BYTES = 1000


class Rights:
    """Allows requests with the key of now; `checked` counts the looks at one."""

    origins = None

    def __init__(self):
        self.key, self.checked = "good", 0

    def check(self, headers, address):
        self.checked += 1
        if headers.get("authorization") != self.key:
            raise Unauthorized("no")


class Site:
    """A predictor with one model, whose protocol takes a body as the row's value."""

    def __init__(self):
        self.catalog, self.rights = Catalog(None), Rights()
        engine, notes = Echo(), Notes()
        model = ServedModel(
            "m",
            1,
            engine.platform,
            {DEFAULT_SIGNATURE: engine.signatures[DEFAULT_SIGNATURE]},
            ModelConfig(Settings()),
            Unbatched(executor(engine, 16, notes), 16),
            notes,
        )
        self.catalog.add(model)
        protocol = Protocol(self._begin, self._finish, self._find)
        self.told = []
        self.predictor = Predictor(
            self.catalog,
            self.rights,
            [protocol],
            [self._note],
            Limits(30_000, LIMIT_BYTES),
        )

    def _find(self, head):
        return Target() if head.path == "/row" else None

    def _begin(self, call):
        if call.body == b"exit":
            raise SystemExit
        return Job({"input": np.float32([[float(call.body)]])}, call.deadline)

    def _finish(self, call, outputs):
        return Reply(b"%d" % outputs["output"][0, 0])

    def _note(self, calls):
        self.told += [(call.status, call.error, call.job) for call in calls]

    def leases(self):
        version, _ = self.catalog.take(Target())
        self.catalog.give_back([version])
        return version.leases

    def answer(self, call):
        return self.predictor.answer(call)


@pytest.fixture(name="site")
def _site():
    return Site()


def head_of(key="good", path="/row"):
    return Head("POST", path, "", {"authorization": key})


def test_answered_call_ends_its_lease_and_is_told_of(site):
    """Listeners get it once, with its job, and neither is kept."""
    call = Call(head_of(), b"5", PEER)
    reply = site.answer(call)
    assert (reply.status, reply.body) == (200, b"5")
    ((status, error, job),) = site.told
    assert (status, error, job.rows) == (200, None, 1)
    assert site.leases() == 0
    assert (call.job, call.version, call.reply, call.error) == (None,) * 4


def test_failed_call_ends_its_lease_and_is_told_of(site):
    """Listeners get its error."""
    reply = site.answer(Call(head_of(), b"x", PEER))
    assert reply.status == 500
    ((status, error, job),) = site.told
    assert (status, type(error), job) == (500, ValueError, None)
    assert site.leases() == 0


def test_call_that_ends_late_is_not_answered_behind_that(site):
    """A thread that still writes its reply changes nothing of what was told."""
    call = Call(head_of(), b"5", PEER)
    site.predictor.open(call)
    site.predictor.begin(call, None)
    job = call.job
    job.submit(call.model.runner)
    site.predictor.finish(call)
    assert call.stages_s is not None
    site.predictor.refuse(call, Late("late"))
    call.job = job
    assert site.predictor.finish(call).status == 200
    assert (call.status, call.stages_s) == (504, None)
    assert call.reply.status == 504


def test_end_of_a_worker_ends_the_lease(site):
    """Gunicorn raises SystemExit in the thread of a request."""
    with pytest.raises(SystemExit):
        site.answer(Call(head_of(), b"exit", PEER))
    assert site.leases() == 0
    assert len(site.told) == 1


def test_rights_of_equal_heads_are_not_checked_again_at_once(site):
    """Calls of a half second that share a head share the check."""
    head = head_of()
    for _ in range(3):
        assert site.answer(Call(head, b"1", PEER)).status == 200
    assert site.rights.checked == 1


def test_rights_are_checked_again_after_half_a_second(site):
    """A key that has been withdrawn is refused then."""
    head = head_of()
    assert site.answer(Call(head, b"1", PEER)).status == 200
    site.rights.key = "new"
    late = Call(head, b"1", PEER)
    late.arrived_at += 0.6
    assert site.answer(late).status == 401
    assert site.rights.checked == 2


def test_rights_are_checked_at_each_address(site):
    """What is allowed on one of the server's addresses may be refused on another."""
    head = head_of()
    assert site.answer(Call(head, b"1", PEER)).status == 200
    site.rights.key = "new"
    other = PEER._replace(server="::1")
    assert site.answer(Call(head, b"1", other)).status == 401


def test_refusal_is_not_remembered(site):
    """A new key is taken at once."""
    head = head_of("new")
    assert site.answer(Call(head, b"1", PEER)).status == 401
    site.rights.key = "new"
    assert site.answer(Call(head, b"1", PEER)).status == 200


def test_body_over_the_limit_is_refused_however_often_its_head_came(site):
    """The size is looked at for each call."""
    head = head_of()
    assert site.answer(Call(head, b"1", PEER)).status == 200
    assert site.answer(Call(head, b"1" * (LIMIT_BYTES + 1), PEER)).status == 413


@pytest.mark.parametrize("text", ["0", "x", "-1"])
def test_wrong_head_is_refused_each_time(site, text):
    """What is wrong with a head is found once, and said of each call."""
    headers = {"authorization": "good", "x-request-timeout-ms": text}
    head = Head("POST", "/row", "", headers)
    for _ in range(2):
        assert site.answer(Call(head, b"1", PEER)).status == 400
    assert site.leases() == 0


def test_shorter_timeout_of_a_rim_counts(site):
    """A client of gRPC gives it beside the headers; none may be longer."""
    for given_s, expected_s in ((5.0, 5.0), (60.0, 30.0), (-1.0, 0.0)):
        call = Call(head_of(), b"1", PEER)
        call.rim_timeout_s = given_s
        site.predictor.open(call)
        assert call.deadline - call.arrived_at == pytest.approx(expected_s)
        site.catalog.give_back([call.version])
