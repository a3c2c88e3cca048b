"""TensorFlow's private API is where app.engines.tensorflow.tensorflow_private has it.

Each test is named for one private name. A test that fails after an upgrade of
TensorFlow names what moved.
"""

import numpy as np
import pytest

from tests.support.marks import USES_TENSORFLOW

pytestmark = USES_TENSORFLOW


@pytest.fixture(scope="module", name="private")
def _private(tf):
    from app.engines.tensorflow import tensorflow_private  # noqa: PLC0415

    return tensorflow_private


@pytest.fixture(name="weight")
def _weight(tf):
    """Keep the variable alive: a traced function holds no reference to it."""
    return tf.Variable(3.0)


@pytest.fixture(name="scale")
def _scale(tf, weight):
    """Return a traced function with one input and one variable."""
    spec = tf.TensorSpec([None], tf.float32, "x")
    function = tf.function(lambda x: {"y": x * weight}, input_signature=[spec])
    return function.get_concrete_function()


def test_eager_tensor_shares_the_memory_of_an_array(private, scale):
    """ops.EagerTensor takes an aligned array without copying it."""
    memory = np.zeros(64, np.float32)
    begin = -memory.ctypes.data % 64 // memory.itemsize
    array = memory[begin : begin + 4]
    assert np.shares_memory(np.asarray(private.tensor_view(array)), array)


def test_context_clears_the_kernel_cache(tf, private):
    """context.clear_kernel_cache leaves eager operations usable."""
    private.clear_kernel_cache()
    assert (tf.constant(1) + 1).numpy() == 2


def test_convert_variables_to_constants_freezes_a_function(tf, private, scale, weight):
    """convert_variables_to_constants_v2 removes the variables and keeps the values."""
    frozen = private.variables_to_constants(scale)
    weight.assign(5.0)
    assert not frozen.variables
    assert tf.nest.flatten(frozen(tf.constant([2.0])))[0].numpy() == [6.0]


def test_grappler_optimize_graph_folds_constants(tf, private):
    """tf_optimizer.OptimizeGraph computes what depends on no input."""
    with tf.Graph().as_default() as graph:
        total = tf.add(tf.constant(1.0), tf.constant(2.0))
    meta_graph = tf.compat.v1.train.export_meta_graph(
        graph_def=graph.as_graph_def(), graph=graph
    )
    meta_graph.collection_def["train_op"].node_list.value.append(total.name)
    config = tf.compat.v1.ConfigProto()
    config.graph_options.rewrite_options.min_graph_nodes = -1
    config.graph_options.rewrite_options.optimizers.append("constfold")
    nodes = private.optimize_graph(config, meta_graph).node
    assert {node.name: node.op for node in nodes}[total.op.name] == "Const"


def test_function_from_graph_def_computes_a_graph_def(tf, private):
    """wrap_function.function_from_graph_def calls a GraphDef by tensor names."""
    with tf.Graph().as_default() as graph:
        x = tf.compat.v1.placeholder(tf.float32, [None])
        y = x + 1.0
    function = private.function_from_graph_def(graph.as_graph_def(), [x.name], [y.name])
    assert tf.nest.flatten(function(tf.constant([2.0])))[0].numpy() == [3.0]


def test_op_def_registry_declares_resource_inputs(tf, private):
    """op_def_registry.get knows the input types of operations, and None for others."""
    (resource,) = private.op_definition("ReadVariableOp").input_arg
    assert resource.type == tf.resource.as_datatype_enum
    assert private.op_definition("NoSuchOperation") is None


def test_inference_fn_call_flat_takes_positional_tensors(tf, private, scale):
    """ConcreteFunction.inference_fn.call_flat returns outputs in their flat order."""
    frozen = private.variables_to_constants(scale)
    compute = private.with_output_names(frozen, ["y"])
    assert compute(tf.constant([2.0]))["y"].numpy() == [6.0]


def test_saved_model_proto_holds_signature_defs_and_objects(tf, private, tmp_path):
    """saved_model_pb2.SavedModel has the names of a signature's inputs, and objects."""
    module = tf.Module()
    spec = tf.TensorSpec([None], tf.float32, "x")
    module.double = tf.function(lambda x: {"y": 2 * x}, input_signature=[spec])
    tf.saved_model.save(module, str(tmp_path), signatures={"f": module.double})
    file = tmp_path / "saved_model.pb"
    (graph,) = private.read_saved_model(file).meta_graphs
    assert list(graph.signature_def["f"].inputs) == ["x"]
    assert graph.object_graph_def.nodes[0].children
