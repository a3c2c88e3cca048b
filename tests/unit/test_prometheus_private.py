"""The private API of prometheus_client that app/prometheus_private.py uses."""

import json
import pkgutil

import pytest
from prometheus_client import Histogram
from prometheus_client.multiprocess import MultiProcessCollector
from prometheus_client.values import MultiProcessValue


@pytest.mark.parametrize(
    "name",
    [
        *("values:ValueClass", "values:MultiProcessValue"),
        "mmap_dict:MmapedDict.read_all_values_from_file",
        *("mmap_dict:MmapedDict.write_value", "mmap_dict:MmapedDict.close"),
        "multiprocess:MultiProcessCollector.collect",
    ],
)
def test_private_name_of_prometheus_client_exists(name):
    """Modules and classes of prometheus_client have each private name that is used."""
    assert callable(pkgutil.resolve_name(f"prometheus_client.{name}"))


@pytest.mark.parametrize("name", ["_upper_bounds", "_buckets", "_sum"])
def test_private_attribute_of_histogram_exists(name):
    """A histogram's child has each private attribute that an aggregated write uses."""
    histogram = Histogram("seconds", "Help.", ["model"], registry=None)
    assert hasattr(histogram.labels("m"), name)


def test_private_path_of_multiprocess_collector_exists(tmp_path):
    """The collector has its folder in the private attribute that a merge uses."""
    assert MultiProcessCollector(None, str(tmp_path))._path == str(tmp_path)


def test_private_key_of_a_value_in_a_file_exists(tmp_path, monkeypatch):
    """A MultiProcessValue has the attributes `_key` and `set_exemplar`."""
    monkeypatch.setenv("PROMETHEUS_MULTIPROC_DIR", str(tmp_path))
    value = MultiProcessValue()("counter", "m", "m_total", ("a",), ("b",), "Help.")
    assert json.loads(value._key)[1:3] == ["m_total", {"a": "b"}]
    assert callable(value.set_exemplar)
