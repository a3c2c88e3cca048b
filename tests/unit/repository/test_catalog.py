"""What is served, by name, version and label, and what is not, with the reason."""

import threading
import time

import pytest

from app.batching.unbatched import Unbatched
from app.engines.base import DEFAULT_SIGNATURE
from app.errors import BadInput, NotReady, Stopping, UnknownModel
from app.repository.catalog import Catalog
from app.repository.routing import Routes, Target
from app.repository.served import ServedModel, State, VersionStatus
from app.settings import Settings
from app.settings.model_config import ModelConfig
from testing.server import wait_until
from tests.support.engines import Echo
from tests.support.jobs import Notes, executor

PATIENCE_S = 10


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


def test_a_model_is_found_by_its_name():
    """A ready model is found by its own name."""
    catalog = _catalog("digits", "flowers")
    assert _found(catalog, "flowers") == ("flowers", 1)


@pytest.mark.parametrize(
    ("names", "default", "found"),
    [
        pytest.param(["flowers"], None, "flowers", id="the only one"),
        pytest.param(["digits", "flowers"], None, "digits", id="digits among several"),
        pytest.param(["digits", "flowers"], "flowers", "flowers", id="the chosen one"),
    ],
)
def test_the_default_model(names, default, found):
    """The default is the chosen model, else the only one, else digits."""
    catalog = _catalog(*names, default=default)
    assert _found(catalog) == (found, 1)
    assert catalog.not_ready() == {}


@pytest.mark.parametrize(
    ("names", "default", "wanted", "known"),
    [
        pytest.param(["digits"], "pears", "pears", "digits", id="chosen and not there"),
        pytest.param([], None, "digits", "none", id="no model at all"),
    ],
)
def test_a_default_that_is_not_there_is_missing(names, default, wanted, known):
    """Where the default model does not exist, it is unknown and readiness says so."""
    catalog = _catalog(*names, default=default)
    with pytest.raises(UnknownModel, match=f"'{wanted}'; there are: {known}$"):
        _found(catalog)
    assert catalog.not_ready() == {wanted: "is the default model and not there"}


def test_several_models_need_no_default_to_be_ready():
    """Where nobody chose a default, two models are ready without a digits model.

    None of them is the default, and who names none is told what to do.
    """
    catalog = _catalog("apples", "pears")
    assert catalog.not_ready() == {}
    assert catalog.default_name() is None
    what_to_do = "default: apples, pears; set BASKET_DEFAULT_MODEL or ask /v1/models/"
    with pytest.raises(UnknownModel, match=what_to_do):
        _found(catalog)
    assert _found(catalog, "pears") == ("pears", 1)


def test_one_that_loads_counts_when_the_default_is_chosen():
    """A model that is not ready yet is not the only one beside a ready one."""
    catalog = _catalog("flowers")
    catalog.announce("digits")
    with pytest.raises(NotReady, match="'digits': is loading"):
        _found(catalog)


def test_an_unknown_name_lists_the_known_ones():
    """A name that nobody has is unknown, and the text lists all names, ready or not."""
    catalog = _catalog("pears")
    catalog.announce("apples")
    with pytest.raises(UnknownModel, match="'plums'; there are: apples, pears"):
        _found(catalog, "plums")


def test_a_model_is_missing_until_all_it_starts_with_is_there():
    """A model is found with its first version, and ready when it has settled."""
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


def test_a_failed_model_keeps_its_reason():
    """A model whose only version failed is not ready, and says why."""
    catalog = _catalog("digits")
    catalog.announce("flowers")
    catalog.mark_failed("flowers", 1, "no weights")
    catalog.mark_settled("flowers")
    assert catalog.not_ready() == {"flowers": "no weights"}
    assert catalog.problems() == {"flowers": ["version 1: no weights"]}
    with pytest.raises(NotReady, match="'flowers': no weights"):
        _found(catalog, "flowers")
    assert _found(catalog) == ("digits", 1)


def test_a_failed_version_leaves_the_old_one_serving():
    """Where a newer version failed, the older serves, is ready, and the error shows."""
    catalog = _catalog("flowers")
    catalog.mark_failed("flowers", 2, "no weights")
    assert _found(catalog) == ("flowers", 1)
    assert catalog.not_ready() == {}
    assert catalog.problems() == {"flowers": ["version 2: no weights"]}
    assert catalog.status("flowers") == [
        VersionStatus(2, State.END, "no weights"),
        VersionStatus(1, State.AVAILABLE),
    ]


def test_a_problem_of_the_whole_model_is_new_once():
    """What is wrong with a whole model shows until it is mended, and is new once."""
    catalog = _catalog("flowers")
    assert catalog.set_problem("flowers", "bad file")
    assert not catalog.set_problem("flowers", "bad file")
    assert catalog.problems() == {"flowers": ["bad file"]}
    catalog.set_problem("flowers", "")
    assert catalog.problems() == {}


def test_the_newest_version_answers_and_each_can_be_named():
    """Of two versions the higher is served by default, and each by its number."""
    catalog = _catalog("flowers")
    catalog.add(_model("flowers", 10))
    catalog.add(_model("flowers", 9))
    assert _found(catalog) == ("flowers", 10)
    assert _found(catalog, version=9) == ("flowers", 9)
    assert [model.version for model in catalog.models()] == [1, 9, 10]


def test_labels_and_traffic_follow_the_routes():
    """A label finds its version, and an unknown one or version says what is wrong."""
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
def test_a_version_that_comes_or_fails_is_not_unknown(named):
    """A version that is loading, or has failed, is not ready, whatever else serves."""
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


def test_an_unknown_version_is_unknown_whatever_the_others_do():
    """Beside a version that failed another one is still none, and a label, too."""
    catalog = Catalog(None)
    catalog.announce("flowers")
    catalog.mark_failed("flowers", 1, "no weights")
    catalog.mark_settled("flowers")
    with pytest.raises(UnknownModel, match="version 7 is not served"):
        _found(catalog, version=7)
    with pytest.raises(BadInput, match="label: beta"):
        _found(catalog, label="beta")


@pytest.mark.parametrize("reloaded", [False, True])
def test_a_version_whose_turn_comes_is_loading(reloaded):
    """No version of a model that starts, or is loaded again, is unknown meanwhile."""
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


def test_a_model_that_goes_has_no_unknown_versions():
    """While the versions of an unloaded model go one by one, none is unknown."""
    catalog = _catalog("flowers")
    catalog.add(_model("flowers", 2))
    catalog.mark_unloaded("flowers")
    catalog.remove("flowers", 1)
    with pytest.raises(NotReady, match="version 1 is unloaded"):
        _found(catalog, version=1)


def test_a_retired_version_waits_for_those_that_use_it():
    """A version that retires is given to nobody more, and waits for its last lease."""
    catalog = _catalog("flowers")
    catalog.add(_model("flowers", 2))
    retired = []
    with catalog.lease(Target(version=1)) as model:
        thread = threading.Thread(
            target=lambda: retired.append(catalog.retire("flowers", 1, PATIENCE_S))
        )
        thread.start()
        wait_until(
            lambda: catalog.status("flowers")[1].state is State.UNLOADING, PATIENCE_S
        )
        with pytest.raises(NotReady, match=r"'flowers': version 1 is unloading$"):
            _found(catalog, version=1)
        assert _found(catalog) == ("flowers", 2)
        assert retired == []
    thread.join(PATIENCE_S)
    assert retired == [model]
    catalog.remove("flowers", 1)
    assert [each.version for each in catalog.status("flowers")] == [2]


def test_a_version_that_is_never_given_back_retires_at_the_limit():
    """A lease that does not end keeps its version only for as long as is allowed."""
    catalog = _catalog("flowers")
    with catalog.lease(Target()) as model:
        assert catalog.retire("flowers", 1, 0) is model


def test_a_lease_ends_with_an_error_too():
    """A request that fails gives its version back."""
    catalog = _catalog("flowers")
    with pytest.raises(ValueError, match="mine"), catalog.lease(Target()):
        raise ValueError("mine")
    started_at = time.monotonic()
    catalog.retire("flowers", 1, PATIENCE_S)
    assert time.monotonic() - started_at < PATIENCE_S


def test_an_unloaded_model_is_not_missing():
    """A model that somebody unloaded is refused with that word, and readiness stays."""
    catalog = _catalog("digits", "flowers")
    catalog.mark_unloaded("flowers")
    catalog.retire("flowers", 1, 0)
    catalog.remove("flowers", 1)
    with pytest.raises(NotReady, match="'flowers': is unloaded"):
        _found(catalog, "flowers")
    assert catalog.not_ready() == {}
    catalog.announce("flowers")
    assert catalog.not_ready() == {"flowers": "is loading"}


def test_a_forgotten_model_is_unknown():
    """A model that is forgotten is as unknown as one that never was."""
    catalog = _catalog("digits", "flowers")
    catalog.remove("flowers")
    assert catalog.names() == ["digits"]
    for ask in (catalog.status, catalog.unavailable_reason):
        with pytest.raises(UnknownModel):
            ask("flowers")


def test_a_closed_catalog_takes_nothing_in():
    """After the close a version that is ready too late is refused."""
    catalog = _catalog("flowers")
    assert [model.name for model in catalog.close()] == ["flowers"]
    with pytest.raises(Stopping):
        catalog.add(_model("flowers", 2))
