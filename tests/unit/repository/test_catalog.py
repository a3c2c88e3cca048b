"""The catalog: leases by name, version and label; readiness and its reasons."""

import threading
import time

import pytest

from app.batching.unbatched import Unbatched
from app.engines.base import DEFAULT_SIGNATURE
from app.errors import BadInput, NotReady, Stopping, UnknownModel
from app.repository.catalog import Catalog
from app.repository.routing import Rollout, Routes, Target
from app.repository.served import ServedModel, State, VersionStatus
from app.settings import Settings
from app.settings.model_config import ModelConfig
from testing.server import wait_until
from tests.support.engines import Echo
from tests.support.jobs import Notes, executor

TIMEOUT_S = 10


def _model(name, version=1):
    engine, notes = Echo(), Notes()
    return ServedModel(
        name,
        version,
        engine.platform,
        {DEFAULT_SIGNATURE: engine.signatures[DEFAULT_SIGNATURE]},
        ModelConfig(Settings()),
        Unbatched(executor(engine, 16, notes), 16),
        notes,
    )


def _catalog(*names, default=None):
    catalog = Catalog(default)
    for name in names:
        catalog.announce(name)
        catalog.add(_model(name))
        catalog.mark_settled(name)
    return catalog


def _found(catalog, name=None, **wanted):
    with catalog.lease(Target(name, **wanted)) as model:
        return model.name, model.version


@pytest.mark.parametrize(
    ("names", "default", "found"),
    [
        pytest.param(["flowers"], None, "flowers", id="the only one"),
        pytest.param(["digits", "flowers"], None, "digits", id="digits among several"),
        pytest.param(
            ["digits", "flowers"], "flowers", "flowers", id="the one that is set"
        ),
    ],
)
def test_default_model_is_the_set_the_only_one_or_digits(names, default, found):
    """A request without a name gets the default model."""
    catalog = _catalog(*names, default=default)
    assert _found(catalog) == (found, 1)
    assert catalog.not_ready() == {}


@pytest.mark.parametrize(
    ("names", "default", "wanted", "known"),
    [
        pytest.param(["digits"], "pears", "pears", "digits", id="set and missing"),
        pytest.param([], None, "digits", "none", id="no model at all"),
    ],
)
def test_readiness_fails_without_the_default_model(names, default, wanted, known):
    """A default model that does not exist is unknown and not ready."""
    catalog = _catalog(*names, default=default)
    with pytest.raises(UnknownModel, match=f"'{wanted}'; there are: {known}$"):
        _found(catalog)
    assert catalog.not_ready() == {wanted: "is the default model and not there"}


def test_several_models_are_ready_without_a_default():
    """A request without a name is then an error that names the setting."""
    catalog = _catalog("apples", "pears")
    assert catalog.not_ready() == {}
    assert catalog.default_name() is None
    text = "default: apples, pears; set BASKET_DEFAULT_MODEL or ask /v1/models/"
    with pytest.raises(UnknownModel, match=text):
        _found(catalog)
    assert _found(catalog, "pears") == ("pears", 1)


def test_loading_model_counts_for_the_choice_of_the_default():
    """A ready model is not the only one while another one is loading."""
    catalog = _catalog("flowers")
    catalog.announce("digits")
    with pytest.raises(NotReady, match="'digits': is loading"):
        _found(catalog)


def test_unknown_model_error_lists_all_models():
    """The list has models in any state."""
    catalog = _catalog("pears")
    catalog.announce("apples")
    with pytest.raises(UnknownModel, match="'plums'; there are: apples, pears"):
        _found(catalog, "plums")


def test_readiness_waits_until_the_model_is_settled():
    """The first version of a model serves while its other versions are loading."""
    catalog = Catalog(None)
    catalog.announce("flowers")
    catalog.mark_loading("flowers", 1)
    with pytest.raises(NotReady, match="'flowers': is loading"):
        _found(catalog)
    catalog.add(_model("flowers"))
    assert _found(catalog) == ("flowers", 1)
    assert catalog.not_ready() == {"flowers": "is loading"}
    catalog.mark_settled("flowers")
    assert catalog.not_ready() == {}


def test_failed_model_is_not_ready_with_its_reason():
    """A model whose only version has failed answers with the reason."""
    catalog = _catalog("digits")
    catalog.announce("flowers")
    catalog.mark_failed("flowers", 1, "no weights")
    catalog.mark_settled("flowers")
    assert catalog.not_ready() == {"flowers": "no weights"}
    assert catalog.problems() == {"flowers": ["version 1: no weights"]}
    with pytest.raises(NotReady, match="'flowers': no weights"):
        _found(catalog, "flowers")
    assert _found(catalog) == ("digits", 1)


def test_failed_version_leaves_the_previous_one_serving():
    """The model is ready, and the error is in its problems and its status."""
    catalog = _catalog("flowers")
    catalog.mark_failed("flowers", 2, "no weights")
    assert _found(catalog) == ("flowers", 1)
    assert catalog.not_ready() == {}
    assert catalog.problems() == {"flowers": ["version 2: no weights"]}
    assert catalog.status("flowers") == [
        VersionStatus(2, State.END, "no weights"),
        VersionStatus(1, State.AVAILABLE),
    ]


def test_problem_of_the_whole_model_is_shown_until_cleared():
    """`set_problem` returns whether the problem has changed."""
    catalog = _catalog("flowers")
    assert catalog.set_problem("flowers", "bad file")
    assert not catalog.set_problem("flowers", "bad file")
    assert catalog.problems() == {"flowers": ["bad file"]}
    catalog.set_problem("flowers", "")
    assert catalog.problems() == {}


def test_newest_version_serves_and_each_is_found_by_number():
    """Versions are compared as numbers."""
    catalog = _catalog("flowers")
    catalog.add(_model("flowers", 10))
    catalog.add(_model("flowers", 9))
    assert _found(catalog) == ("flowers", 10)
    assert _found(catalog, version=9) == ("flowers", 9)
    assert [model.version for model in catalog.models()] == [1, 9, 10]


def test_version_is_found_by_label_and_by_traffic():
    """Unknown labels and versions are errors that name them."""
    catalog = _catalog("flowers")
    catalog.add(_model("flowers", 2))
    catalog.route("flowers", Routes({"stable": 1}, {"stable": 1}))
    assert _found(catalog, label="stable") == ("flowers", 1)
    assert _found(catalog) == ("flowers", 1)
    with pytest.raises(BadInput, match="label: beta"):
        _found(catalog, label="beta")
    with pytest.raises(UnknownModel, match="model 'flowers': version 3 is not served"):
        _found(catalog, version=3)


@pytest.mark.parametrize("named", [{"version": 2}, {"label": "new"}])
def test_loading_or_failed_version_is_not_ready(named):
    """Such a version is a 503 and no 404, also by its label."""
    catalog = _catalog("flowers")
    catalog.route("flowers", Routes({"new": 2}))
    with pytest.raises(UnknownModel, match=r"'flowers': version 2 is not served$"):
        _found(catalog, **named)
    catalog.mark_loading("flowers", 2)
    with pytest.raises(NotReady, match=r"'flowers': version 2 is loading$"):
        _found(catalog, **named)
    catalog.mark_failed("flowers", 2, "no weights")
    with pytest.raises(NotReady, match=r"'flowers': version 2: no weights$"):
        _found(catalog, **named)
    assert _found(catalog) == ("flowers", 1)


def test_unknown_version_beside_a_failed_one_is_unknown():
    """A settled model has no version or label but those in its folder."""
    catalog = Catalog(None)
    catalog.announce("flowers")
    catalog.mark_failed("flowers", 1, "no weights")
    catalog.mark_settled("flowers")
    with pytest.raises(UnknownModel, match="version 7 is not served"):
        _found(catalog, version=7)
    with pytest.raises(BadInput, match="label: beta"):
        _found(catalog, label="beta")


@pytest.mark.parametrize("reloaded", [False, True])
def test_version_of_a_starting_model_is_loading(reloaded):
    """Until a model is settled, any version may still be loaded."""
    catalog = _catalog("flowers") if reloaded else Catalog(None)
    if reloaded:
        catalog.mark_unloaded("flowers")
        catalog.remove("flowers", 1)
        with pytest.raises(NotReady, match="'flowers': is unloaded"):
            _found(catalog, version=1)
    catalog.announce("flowers")
    for named in ({"version": 1}, {"label": "stable"}):
        with pytest.raises(NotReady, match="'flowers': is loading"):
            _found(catalog, "flowers", **named)
    catalog.add(_model("flowers", 2))
    with pytest.raises(NotReady, match="version 1 is loading"):
        _found(catalog, version=1)


def test_version_of_an_unloading_model_is_unloaded():
    """A removed version is not unknown while others are unloaded."""
    catalog = _catalog("flowers")
    catalog.add(_model("flowers", 2))
    catalog.mark_unloaded("flowers")
    catalog.remove("flowers", 1)
    with pytest.raises(NotReady, match="version 1 is unloaded"):
        _found(catalog, version=1)


def test_retire_waits_for_leases():
    """A version in retirement gets no new lease, and waits for the last one."""
    catalog = _catalog("flowers")
    catalog.add(_model("flowers", 2))
    retired = []
    with catalog.lease(Target(version=1)) as model:
        thread = threading.Thread(
            target=lambda: retired.append(catalog.retire("flowers", 1, TIMEOUT_S))
        )
        thread.start()
        wait_until(
            lambda: catalog.status("flowers")[1].state is State.UNLOADING, TIMEOUT_S
        )
        with pytest.raises(NotReady, match=r"'flowers': version 1 is unloading$"):
            _found(catalog, version=1)
        assert _found(catalog) == ("flowers", 2)
        assert retired == []
    thread.join(TIMEOUT_S)
    assert retired == [model]
    catalog.remove("flowers", 1)
    assert [each.version for each in catalog.status("flowers")] == [2]


def test_retire_ends_at_the_timeout():
    """A lease that does not end keeps its version for a limited time."""
    catalog = _catalog("flowers")
    with catalog.lease(Target()) as model:
        assert catalog.retire("flowers", 1, 0) is model


def test_lease_ends_with_an_error():
    """A request that raises ends its lease."""
    catalog = _catalog("flowers")
    with pytest.raises(ValueError, match="mine"), catalog.lease(Target()):
        raise ValueError("mine")
    started_at = time.monotonic()
    catalog.retire("flowers", 1, TIMEOUT_S)
    assert time.monotonic() - started_at < TIMEOUT_S


def test_unloaded_model_does_not_fail_readiness():
    """An unloaded model answers that it is unloaded."""
    catalog = _catalog("digits", "flowers")
    catalog.mark_unloaded("flowers")
    catalog.retire("flowers", 1, 0)
    catalog.remove("flowers", 1)
    with pytest.raises(NotReady, match="'flowers': is unloaded"):
        _found(catalog, "flowers")
    assert catalog.not_ready() == {}
    catalog.announce("flowers")
    assert catalog.not_ready() == {"flowers": "is loading"}


def test_removed_model_is_unknown():
    """A removed model is unknown to all methods."""
    catalog = _catalog("digits", "flowers")
    catalog.remove("flowers")
    assert catalog.names() == ["digits"]
    for method in (catalog.status, catalog.unavailable_reason):
        with pytest.raises(UnknownModel):
            method("flowers")


def test_closed_catalog_refuses_new_versions():
    """A version that is ready after the close is refused."""
    catalog = _catalog("flowers")
    assert [model.name for model in catalog.close()] == ["flowers"]
    with pytest.raises(Stopping):
        catalog.add(_model("flowers", 2))


# Versions are found once for equal targets, until something changes.


def _twice(catalog, name="m", **wanted):
    """Ask twice, so that the second answer is remembered."""
    first = _found(catalog, name, **wanted)
    assert _found(catalog, name, **wanted) == first
    return first[1]


def test_new_version_is_found_at_once():
    """The newest one serves, whatever was asked before."""
    catalog = _catalog("m")
    assert (_twice(catalog), _twice(catalog, None)) == (1, 1)
    catalog.add(_model("m", 2))
    assert (_twice(catalog), _twice(catalog, None)) == (2, 2)
    assert _twice(catalog, version=1) == 1


def test_replaced_version_gets_no_request_more():
    """The object that serves is the new one, and has the only lease."""
    catalog = _catalog("m")
    before, _ = catalog.take(Target("m"))
    catalog.give_back([before])
    catalog.add(_model("m"))
    after, _ = catalog.take(Target("m"))
    assert after is not before
    assert (before.leases, after.leases) == (0, 1)


def test_removed_version_is_not_found_any_more():
    """Neither by its number, nor as the newest one."""
    catalog = _catalog("m")
    catalog.add(_model("m", 2))
    assert (_twice(catalog), _twice(catalog, version=2)) == (2, 2)
    catalog.withdraw("m", 2)
    assert _twice(catalog) == 1
    with pytest.raises(NotReady, match="version 2 is unloading"):
        _found(catalog, "m", version=2)
    catalog.remove("m", 2)
    with pytest.raises(UnknownModel, match="version 2 is not served"):
        _found(catalog, "m", version=2)


def test_removed_model_is_not_found_any_more():
    """The default model is another one then."""
    catalog = _catalog("m", "n", default="m")
    assert (_twice(catalog), _twice(catalog, "n")) == (1, 1)
    catalog.remove("n")
    with pytest.raises(UnknownModel):
        _found(catalog, "n")
    catalog.mark_failed("m", 1, "broken")
    with pytest.raises(NotReady, match="broken"):
        _found(catalog, None)


def test_version_that_loads_again_is_not_found():
    """It was ready before."""
    catalog = _catalog("m")
    assert _twice(catalog) == 1
    catalog.mark_loading("m", 1)
    with pytest.raises(NotReady, match="is loading"):
        _found(catalog, "m")


def test_moved_label_is_followed_at_once():
    """The same label names another version, and then none."""
    catalog = _catalog("m")
    catalog.add(_model("m", 2))
    for number in (1, 2):
        catalog.route("m", Routes({"stable": number}))
        assert _twice(catalog, label="stable") == number
    catalog.route("m", Routes())
    with pytest.raises(BadInput, match="label: stable"):
        _found(catalog, "m", label="stable")


def test_rollout_is_followed_at_once():
    """The serving version takes requests that name none, and gives them back."""
    catalog = _catalog("m")
    catalog.add(_model("m", 2))
    assert _twice(catalog) == 2
    catalog.set_rollout("m", Rollout(1))
    assert _twice(catalog) == 1
    catalog.set_rollout("m", None)
    assert _twice(catalog) == 2


def test_other_default_model_is_found_at_once():
    """A second model takes the default from the only one, if it is named digits."""
    catalog = _catalog("m")
    assert _found(catalog) == ("m", 1)
    catalog.announce("digits")
    catalog.add(_model("digits", 3))
    assert _found(catalog) == ("digits", 3)


@pytest.mark.parametrize("settle", ["traffic", "rollout"])
def test_requests_of_a_split_are_not_remembered(settle):
    """Each client has its own version, and the others come in turn."""
    catalog = _catalog("m")
    catalog.add(_model("m", 2))
    assert _twice(catalog) == 2
    if settle == "traffic":
        labels = {"stable": 1, "canary": 2}
        catalog.route("m", Routes(labels, {"stable": 50, "canary": 50}))
    else:
        catalog.set_rollout("m", Rollout(1, candidate=2, percent=50))
    clients = [f"client {number}" for number in range(50)]
    versions = [_twice(catalog, client=client) for client in clients]
    assert 10 < versions.count(1) < 40
    found = [_found(catalog, "m")[1] for _ in range(50)]
    assert 20 < found.count(1) < 30
    catalog.route("m", Routes())
    catalog.set_rollout("m", None)
    assert {_twice(catalog, client=client) for client in clients} == {2}


def test_remembered_version_is_leased_each_time():
    """A version in retirement waits for all of its requests."""
    catalog = _catalog("m")
    versions = [catalog.take(Target("m"))[0] for _ in range(3)]
    assert versions[0].leases == 3
    withdrawn = catalog.withdraw("m", 1)
    catalog.give_back(versions[:2])
    assert not catalog.wait_until_unused(withdrawn, 0)
    catalog.give_back(versions[2:])
    assert catalog.wait_until_unused(withdrawn, 0)
