"""Routing of requests to versions: by number, label, client and traffic weight."""

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.errors import BadInput
from app.repository.routing import Routes, Target

REQUESTS = 10_000
LABELS = {"stable": 1, "canary": 2}
SPLIT = {"stable": 90, "canary": 10}
clients = st.text(st.characters(codec="latin-1"), max_size=40)


def _shares(routes, targets, available=(1, 2)):
    counted = Counter(routes.choose(target, available) for target in targets)
    return {version: counted[version] / counted.total() for version in available}


@pytest.mark.parametrize(
    ("target", "version"),
    [
        (Target(), 3),
        (Target(version=1), 1),
        (Target(label="stable"), 1),
        (Target(label="canary"), 2),
        (Target(version=3, client="ann"), 3),
    ],
)
def test_newest_version_serves_unless_another_is_named(target, version):
    """Without traffic weights a request gets the version or label it names."""
    assert Routes(LABELS).choose(target, {1, 2, 3}) == version


def test_unknown_label_is_bad_input():
    """The text is that of TensorFlow Serving."""
    with pytest.raises(BadInput, match=r"^Unrecognized servable version label: beta$"):
        Routes(LABELS).choose(Target(label="beta"), {1})


@pytest.mark.parametrize("target", [Target(version=2), Target(label="canary")])
@pytest.mark.parametrize("available", [{1}, ()])
def test_named_version_is_not_replaced_by_an_available_one(target, available):
    """A version or label that is not available keeps its number."""
    assert Routes(LABELS).choose(target, available) == 2


def test_no_available_version_gives_none():
    """Traffic is not split without an available version."""
    assert Routes(LABELS, SPLIT).choose(Target(), ()) is None


@pytest.mark.parametrize("weights", [(90, 10), (0.9, 0.1), (1, 1), (0, 5)])
@pytest.mark.parametrize("named", [True, False], ids=["clients", "anonymous"])
def test_traffic_is_split_by_weight(weights, named):
    """Requests are split with an error of at most 1 percentage point.

    10,000 clients are, and 1,000 requests without one, which no chance splits.
    """
    routes = Routes(LABELS, dict(zip(LABELS, weights, strict=True)))
    targets = [Target()] * 1000
    if named:
        targets = [Target(client=f"checkout-{n}") for n in range(REQUESTS)]
    shares = _shares(routes, targets)
    for version, weight in zip((1, 2), weights, strict=True):
        assert shares[version] == pytest.approx(weight / sum(weights), abs=0.01)
        told = routes.shares((1, 2))
        assert told[version] == pytest.approx(weight / sum(weights))


@given(client=clients)
def test_client_gets_the_same_version_in_each_process(client):
    """Routes in other processes give a client the same version."""
    sides = {
        Routes(LABELS, SPLIT).choose(Target(client=client), {1, 2}) for _ in range(5)
    }
    assert len(sides) == 1


@given(client=clients)
def test_clients_move_only_to_the_growing_label(client):
    """When the canary grows, none of its clients moves back to stable."""
    target = Target(client=client)
    sides = [
        Routes(LABELS, {"stable": 100 - share, "canary": share}).choose(target, {1, 2})
        for share in (0, 1, 10, 50, 90, 100)
    ]
    assert sides == sorted(sides)


def test_unavailable_version_gets_no_traffic():
    """All requests go to the other label."""
    routes = Routes(LABELS, SPLIT)
    targets = [Target(client=str(n)) for n in range(100)] + [Target()] * 100
    assert _shares(routes, targets, available=(1,)) == {1: 1.0}
    assert routes.shares((1,)) == {1: 1.0}


def test_traffic_without_available_labels_goes_to_the_newest():
    """The newest available version serves."""
    assert Routes(LABELS, SPLIT).choose(Target(), {3, 4}) == 4
    assert Routes(LABELS, SPLIT).shares({3, 4}) == {3: 0.0, 4: 1.0}
    assert Routes(LABELS, SPLIT).shares(()) == {}
