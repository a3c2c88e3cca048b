"""Which version a request gets: by number, label, client, or share of the traffic."""

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
def test_without_traffic_the_newest_answers_unless_another_is_named(target, version):
    """A request gets the version or label that it names, else the newest version."""
    assert Routes(LABELS).choose(target, {1, 2, 3}) == version


def test_an_unknown_label_is_bad_input():
    """A label that the model does not have is refused in TensorFlow Serving's words."""
    with pytest.raises(BadInput, match=r"^Unrecognized servable version label: beta$"):
        Routes(LABELS).choose(Target(label="beta"), {1})


@pytest.mark.parametrize("target", [Target(version=2), Target(label="canary")])
@pytest.mark.parametrize("available", [{1}, ()])
def test_a_named_version_stays_even_if_it_does_not_serve(target, available):
    """A version that is not available is not replaced, by number or by label."""
    assert Routes(LABELS).choose(target, available) == 2


def test_who_names_no_version_gets_none_where_none_serves():
    """Without an available version there is nothing to split."""
    assert Routes(LABELS, SPLIT).choose(Target(), ()) is None


@pytest.mark.parametrize("weights", [(90, 10), (0.9, 0.1), (1, 1), (0, 5)])
@pytest.mark.parametrize("named", [True, False], ids=["clients", "anonymous"])
def test_traffic_is_split_by_weight(weights, named):
    """10,000 requests are split within 1 point of the weights, clients or none."""
    routes = Routes(LABELS, dict(zip(LABELS, weights, strict=True)))
    targets = [
        Target(client=f"checkout-{n}" if named else None) for n in range(REQUESTS)
    ]
    shares = _shares(routes, targets)
    for version, weight in zip((1, 2), weights, strict=True):
        assert shares[version] == pytest.approx(weight / sum(weights), abs=0.01)


@given(client=clients)
def test_a_client_stays_on_its_side(client):
    """A client gets the same version each time, from each process's own routes."""
    sides = {
        Routes(LABELS, SPLIT).choose(Target(client=client), {1, 2}) for _ in range(5)
    }
    assert len(sides) == 1


@given(client=clients)
def test_a_client_moves_only_towards_the_side_that_grows(client):
    """When the canary's share grows, none of its clients goes back to stable."""
    target = Target(client=client)
    sides = [
        Routes(LABELS, {"stable": 100 - share, "canary": share}).choose(target, {1, 2})
        for share in (0, 1, 10, 50, 90, 100)
    ]
    assert sides == sorted(sides)


def test_a_version_that_is_not_there_has_no_share():
    """While the canary is not available, all requests go to the other label."""
    routes = Routes(LABELS, SPLIT)
    targets = [Target(client=str(n)) for n in range(100)] + [Target()] * 100
    assert _shares(routes, targets, available=(1,)) == {1: 1.0}


def test_traffic_without_any_of_its_versions_goes_to_the_newest():
    """Where no label's version is available, the newest one answers."""
    assert Routes(LABELS, SPLIT).choose(Target(), {3, 4}) == 4
