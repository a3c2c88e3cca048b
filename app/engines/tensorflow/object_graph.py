"""The object graph of a SavedModel: what its signatures use, and take.

tensorflow/core/protobuf/saved_object_graph.proto describes it: objects have
children by name, functions bind variables and tables, and an optimizer has slots.
"""

from collections.abc import Iterable, Iterator
from typing import Any, TypeAlias

from app.engines.tensorflow.tensorflow_private import MetaGraphDef

# Protocol buffers, which have no types.
SavedObjectGraph: TypeAlias = Any
SavedObject: TypeAlias = Any
FunctionDefLibrary: TypeAlias = Any
StructuredValue: TypeAlias = Any


def prune(graph: MetaGraphDef) -> None:
    """Remove, in place, the objects and functions that no signature uses.

    Objects keep their numbers, so others become empty. Those on the path from the root
    to a variable keep their children on it: a checkpoint names the variable so.
    """
    objects = graph.object_graph_def
    used = _used_objects(objects, _children(objects, 0, "signatures"))
    kept = used | _parents(objects, used)
    for number, node in enumerate(objects.nodes):
        if number in used:
            continue
        children = [
            each for each in node.children if number in kept and each.node_id in kept
        ]
        empty = type(node)(children=children)
        empty.user_object.SetInParent()
        node.CopyFrom(empty)
    names = {name for number in used for name in _functions(objects.nodes[number])}
    for name in set(objects.concrete_functions) - names:
        del objects.concrete_functions[name]
    library = graph.graph_def.library
    called = _called_functions(library, names)
    functions = [each for each in library.function if each.signature.name in called]
    del library.function[:]
    library.function.extend(functions)


def composite_inputs(graph: MetaGraphDef, signature: str) -> set[str]:
    """Return the kinds of tensors with several parts that a signature takes.

    Such as RAGGED_TENSOR_SPEC. The SignatureDef has each part as an input of its own:
    what they are says only the function that the signature's own calls.
    """
    objects = graph.object_graph_def
    if not objects.nodes:
        return set()
    names = {
        name
        for signatures in _children(objects, 0, "signatures")
        for number in _children(objects, signatures, signature)
        for name in _functions(objects.nodes[number])
    }
    called = {
        node.attr["f"].func.name
        for definition in graph.graph_def.library.function
        if definition.signature.name in names
        for node in definition.node_def
        if "f" in node.attr
    }
    return {
        kind
        for name in called & set(objects.concrete_functions)
        for kind in _composites(
            objects.concrete_functions[name].canonicalized_input_signature
        )
    }


def _composites(value: StructuredValue) -> Iterator[str]:
    """Yield the kinds of the tensors with several parts in nested arguments."""
    spec = value.type_spec_value
    name = spec.TypeSpecClass.Name(spec.type_spec_class)
    # A variable is no input of the signature.
    if name not in ("UNKNOWN", "VARIABLE_SPEC"):
        yield name
    for each in (*value.tuple_value.values, *value.list_value.values):
        yield from _composites(each)
    for each in value.dict_value.fields.values():
        yield from _composites(each)
    for pair in value.named_tuple_value.values:
        yield from _composites(pair.value)


def _children(objects: SavedObjectGraph, number: int, name: str) -> list[int]:
    """Return the number of an object's child of this name, if it has one."""
    children = objects.nodes[number].children
    return [each.node_id for each in children if each.local_name == name]


def _used_objects(objects: SavedObjectGraph, roots: Iterable[int]) -> set[int]:
    """Return the numbers of these objects, and of all that they need."""
    used: set[int] = set()
    waiting = list(roots)
    while waiting:
        number = waiting.pop()
        if number in used:
            continue
        used.add(number)
        node = objects.nodes[number]
        waiting += [each.node_id for each in (*node.children, *node.dependencies)]
        for each in node.saveable_objects.values():
            waiting += [each.save_function, each.restore_function]
        for name in _functions(node):
            waiting += objects.concrete_functions[name].bound_inputs
    return used


def _functions(node: SavedObject) -> Iterator[str]:
    """Yield the names of an object's concrete functions."""
    yield from node.function.concrete_functions
    # Empty in other objects.
    single = node.bare_concrete_function.concrete_function_name
    yield from filter(None, (single, node.captured_tensor.concrete_function))


def _parents(objects: SavedObjectGraph, used: Iterable[int]) -> set[int]:
    """Return the numbers of the objects on a shortest path from the root to each."""
    parents: dict[int, int | None] = {0: None}
    # Breadth first: it grows while it is read.
    found = [0]
    for number in found:
        for child in objects.nodes[number].children:
            if child.node_id not in parents:
                parents[child.node_id] = number
                found.append(child.node_id)
    paths: set[int] = {0}
    for number in used:
        parent = parents.get(number)
        while parent is not None and parent not in paths:
            paths.add(parent)
            parent = parents[parent]
    return paths


def _called_functions(library: FunctionDefLibrary, names: Iterable[str]) -> set[str]:
    """Return the names of these functions, and of those that they call.

    Also those of custom gradients, since TensorFlow logs a warning about missing ones.
    """
    definitions = {each.signature.name: each for each in library.function}
    gradients = {
        each.registered_op_type.encode(): each.gradient_func
        for each in library.registered_gradients
    }
    called: set[str] = set()
    waiting = list(names)
    while waiting:
        name = waiting.pop()
        if name in called or name not in definitions:
            continue
        called.add(name)
        for node in definitions[name].node_def:
            waiting.append(node.op)
            for key, value in node.attr.items():
                waiting += [each.name for each in (value.func, *value.list.func)]
                if key == "_gradient_op_type":
                    waiting.append(gradients.get(value.s, ""))
    return called
