"""Versions that a web worker opens from what the model process says of them."""

from unittest.mock import MagicMock

from app.errors import ModelLoadError
from app.repository.catalog import Catalog
from app.settings import Settings
from app.shared_model import catalog_json
from app.shared_model.remote_versions import RemoteVersions

VALUES = {
    **{"platform": "simulated", "signatures": {}, "settings": {}, "labels": {}},
    **{"traffic": {}, "image": None, "service": None},
}


def test_version_that_could_not_be_opened_again_comes_back_with_its_old_values(
    monkeypatch,
):
    """A basket.toml that is set back after a failure serves as before."""
    catalog = Catalog(None)
    catalog.announce("m")
    versions = RemoteVersions(Settings(), catalog, MagicMock())

    def states_with(**settings):
        versions.serve(MagicMock(), "m", 1, VALUES | {"settings": settings})
        return [each.state.value for each in catalog.status("m")]

    assert states_with() == ["AVAILABLE"]
    with monkeypatch.context() as patch:
        failure = MagicMock(side_effect=ModelLoadError("service.py: cannot import"))
        patch.setattr(catalog_json, "version_from_json", failure)
        assert states_with(max_batch_size=8) == ["END"]
    assert states_with() == ["AVAILABLE"]
