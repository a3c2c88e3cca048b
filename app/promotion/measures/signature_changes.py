"""What a new version's signatures no longer take, or no longer answer."""

from collections.abc import Iterator, Sequence

from app.codec.fit import type_name
from app.engines.base import TensorSpec
from app.promotion.side import Side


def signature_changes(old: Side, new: Side) -> list[str]:
    """Return each change that a client notices.

    More signatures are no change, and neither are inputs that take more shapes.
    """
    found: list[str] = []
    version = old.version
    if old.reads_instances() != new.reads_instances():
        kinds = ("arrays", "instances for its service.py")
        now, before = (kinds[each.reads_instances()] for each in (new, old))
        return [f"it takes {now}, and version {version} {before}"]
    for name, signature in old.signatures.items():
        other = new.signatures.get(name)
        if other is None:
            found.append(f"there is no signature {name}")
            continue
        found += _tensors("input", signature.inputs, other.inputs, version)
        found += _tensors("output", signature.outputs, other.outputs, version)
        if signature.takes_whole_tensors != other.takes_whole_tensors:
            kinds = ("rows", "whole tensors")
            now, before = (kinds[s.takes_whole_tensors] for s in (other, signature))
            found.append(f"{name} takes {now}, and version {version} {before}")
    return found


def _tensors(
    kind: str, old: Sequence[TensorSpec], new: Sequence[TensorSpec], version: int
) -> Iterator[str]:
    by_name = {spec.name: spec for spec in new}
    for spec in old:
        other = by_name.pop(spec.name, None)
        if other is None:
            yield f"there is no {kind} {spec.name}"
            continue
        what = f"{kind} {spec.name} has"
        if other.dtype != spec.dtype:
            now, before = (type_name(each.dtype) for each in (other, spec))
            yield f"{what} dtype {now}, and version {version} {before}"
        if not _fits(kind, spec, other):
            now, before = (each.shape_text() for each in (other, spec))
            yield f"{what} shape {now}, and version {version} {before}"
    for name in by_name:
        yield f"{kind} {name} is new"


def _fits(kind: str, old: TensorSpec, new: TensorSpec) -> bool:
    """Return whether each old shape is taken, or each new answer may be an old one.

    Of outputs a free size and a fixed one are taken for the same: which of both is in
    the signature depends on how the model was saved.
    """
    if new.any_rank or (old.any_rank and kind == "output"):
        return True
    if old.any_rank or len(old.shape) != len(new.shape):
        return False
    pairs = zip(old.shape, new.shape, strict=True)
    if kind == "input":
        return all(size in (None, before) for before, size in pairs)
    return all(None in (before, size) or before == size for before, size in pairs)
