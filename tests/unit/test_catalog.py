"""What is served, by name, and what is not, with the reason."""

import pytest

from app.errors import NotReady, UnknownModel
from app.serving.batcher import Unbatched
from app.serving.catalog import Catalog, ServedModel
from tests.support.engines import Echo
from tests.support.jobs import Notes


def _model(name, version="1"):
    engine, notes = Echo(), Notes()
    runner = Unbatched(engine, 16, notes)
    return ServedModel(name, version, engine.signature, runner, notes)


def _catalog(*names, default=None):
    catalog = Catalog(default)
    for name in names:
        catalog.add(_model(name))
    return catalog


def test_a_model_is_found_by_its_name():
    """A ready model is found by its own name."""
    catalog = _catalog("digits", "flowers")
    assert catalog.find("flowers").name == "flowers"


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
    assert catalog.find().name == found
    assert catalog.missing() == {}


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
        catalog.find()
    assert catalog.missing() == {wanted: "is the default model and not there"}


def test_several_models_need_no_default_to_be_ready():
    """Where nobody chose a default, two models are ready without a digits model."""
    catalog = _catalog("apples", "pears")
    assert catalog.missing() == {}
    with pytest.raises(UnknownModel, match=r"there are: apples, pears$"):
        catalog.find()


def test_one_that_loads_counts_when_the_default_is_chosen():
    """A model that is not ready yet is not the only one beside a ready one."""
    catalog = _catalog("flowers")
    catalog.expect("digits")
    with pytest.raises(NotReady, match="'digits': is loading"):
        catalog.find()


def test_an_unknown_name_lists_the_known_ones():
    """A name that nobody has is unknown, and the text lists all names, ready or not."""
    catalog = _catalog("pears")
    catalog.expect("apples")
    with pytest.raises(UnknownModel, match="'plums'; there are: apples, pears"):
        catalog.find("plums")


def test_a_model_is_missing_until_it_is_added():
    """An expected model is not ready with a reason, and is found once it is added."""
    catalog = Catalog(None)
    catalog.expect("flowers")
    assert catalog.missing() == {"flowers": "is loading"}
    assert catalog.models() == []
    with pytest.raises(NotReady, match="'flowers': is loading"):
        catalog.find()
    catalog.add(_model("flowers"))
    assert catalog.missing() == {}
    assert [model.name for model in catalog.models()] == ["flowers"]
    assert catalog.find().name == "flowers"


def test_a_failed_model_keeps_its_reason():
    """A model that failed to load is not ready, and says why."""
    catalog = _catalog("digits")
    catalog.expect("flowers")
    catalog.fail("flowers", "has no version folder")
    assert catalog.missing() == {"flowers": "has no version folder"}
    with pytest.raises(NotReady, match="'flowers': has no version folder"):
        catalog.find("flowers")
    assert catalog.find().name == "digits"


def test_a_newer_version_takes_the_place_of_the_old():
    """Of two versions of one name that are added the later is served."""
    catalog = Catalog(None)
    catalog.add(_model("flowers", "1"))
    catalog.add(_model("flowers", "2"))
    assert [model.version for model in catalog.models()] == ["2"]
    assert catalog.find().version == "2"
