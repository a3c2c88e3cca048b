"""Check manifests of kinds that operators add to Kubernetes, and print the problems.

Run as a script in the environment with kserve. Reads a list of manifests as JSON from
stdin, and prints a list of problems for each.
"""

import json
import re
import sys
from collections.abc import Iterator
from typing import Any

import kserve.models
import kubernetes.client.models
from cloudcoil.models.keda import v1alpha1 as keda
from cloudcoil.models.prometheus_operator import v1 as prometheus
from pydantic import ValidationError

PYDANTIC = {
    ("keda.sh/v1alpha1", "ScaledObject"): keda.ScaledObject,
    ("monitoring.coreos.com/v1", "PodMonitor"): prometheus.PodMonitor,
}
OPENAPI = {
    ("serving.kserve.io/v1alpha1", "ServingRuntime"): "V1alpha1ServingRuntime",
    ("serving.kserve.io/v1beta1", "InferenceService"): "V1beta1InferenceService",
}
# Both spellings occur.
MAPPING = re.compile(r"[dD]ict[(\[]str, (.*)[)\]]")
SEQUENCE = re.compile(r"[lL]ist\[(.*)\]")
SCALARS = {"str": str, "int": int, "bool": bool, "float": float}


def problems(manifest: dict[str, Any]) -> list[str]:
    kind = (manifest["apiVersion"], manifest["kind"])
    if kind in OPENAPI:
        return list(openapi_problems(manifest, OPENAPI[kind], manifest["kind"]))
    try:
        PYDANTIC[kind].model_validate(manifest, extra="forbid")
    except ValidationError as error:
        return [f"{each['loc']}: {each['msg']}" for each in error.errors()]
    return []


def openapi_problems(value: Any, expected: str, path: str) -> Iterator[str]:
    """Compare a value with a type as KServe's and Kubernetes' models name it."""
    if mapping := MAPPING.fullmatch(expected):
        for key, each in value.items():
            yield from openapi_problems(each, mapping[1], f"{path}.{key}")
    elif sequence := SEQUENCE.fullmatch(expected):
        if not isinstance(value, list):
            yield f"{path}: {value!r} is no list"
            return
        for place, each in enumerate(value):
            yield from openapi_problems(each, sequence[1], f"{path}[{place}]")
    elif expected in SCALARS:
        if type(value) is not SCALARS[expected]:
            yield f"{path}: {value!r} is no {expected}"
    elif expected not in ("object", "ResourceQuantity"):
        yield from model_problems(value, expected, path)


def model_problems(value: Any, name: str, path: str) -> Iterator[str]:
    """Find unknown and missing fields."""
    model = getattr(kserve.models, name, None)
    model = model or getattr(kubernetes.client.models, name)
    if not isinstance(value, dict):
        yield f"{path}: {value!r} is no {name}"
        return
    attributes = {given: attribute for attribute, given in model.attribute_map.items()}
    known = {attributes[key]: each for key, each in value.items() if key in attributes}
    yield from (f"{path}.{key} is unknown" for key in value.keys() - attributes.keys())
    try:
        model(**known)
    except ValueError as error:
        yield f"{path}: {error}"
    for attribute, each in known.items():
        below = f"{path}.{model.attribute_map[attribute]}"
        yield from openapi_problems(each, model.openapi_types[attribute], below)


if __name__ == "__main__":
    print(json.dumps([problems(manifest) for manifest in json.load(sys.stdin)]))
