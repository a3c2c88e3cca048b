"""What tf_keras may load: its own classes and functions that only compute.

tf_keras imports any module that a file names, and calls any function of TensorFlow,
also those that write files and load libraries. So all that a file names must be in
these lists.

Not in files.py: a process of Keras 2 does not import Keras 3.
"""

import re
from collections.abc import Mapping
from typing import Any

from app.engines.keras.custom_code import EXPORT, custom_code

# Those whose arguments are numbers, names of its own, and other nodes. Not: Lambda,
# ResidualWrapper (code); TensorFlowOpLayer (any operation); ClassMethod,
# InstanceMethod, InstanceProperty (any name); DenseFeatures.
_LAYER_NAMES = """
Activation ActivityRegularization Add AddLoss AdditiveAttention AlphaDropout Attention
Average AveragePooling1D AveragePooling2D AveragePooling3D AvgPool1D AvgPool2D AvgPool3D
BatchNormalization BatchNormalizationV1 BatchNormalizationV2 Bidirectional
CategoryEncoding CenterCrop Concatenate Conv1D Conv1DTranspose Conv2D Conv2DTranspose
Conv3D Conv3DTranspose ConvLSTM1D ConvLSTM2D ConvLSTM3D Convolution1D
Convolution1DTranspose Convolution2D Convolution2DTranspose Convolution3D
Convolution3DTranspose Cropping1D Cropping2D Cropping3D CuDNNGRU CuDNNLSTM Dense
DepthwiseConv1D DepthwiseConv2D Discretization Dot Dropout ELU EinsumDense Embedding
Flatten Functional GRU GRUCell GRUCellV1 GRUCellV2 GRUV1 GRUV2 GaussianDropout
GaussianNoise GlobalAveragePooling1D GlobalAveragePooling2D GlobalAveragePooling3D
GlobalAvgPool1D GlobalAvgPool2D GlobalAvgPool3D GlobalMaxPool1D GlobalMaxPool2D
GlobalMaxPool3D GlobalMaxPooling1D GlobalMaxPooling2D GlobalMaxPooling3D
GroupNormalization HashedCrossing Hashing Identity InputLayer IntegerLookup LSTM
LSTMCell LSTMCellV1 LSTMCellV2 LSTMV1 LSTMV2 LayerNormalization LeakyReLU
LocallyConnected1D LocallyConnected2D Masking MaxPool1D MaxPool2D MaxPool3D MaxPooling1D
MaxPooling2D MaxPooling3D Maximum Minimum Model MultiHeadAttention Multiply
Normalization PReLU Permute RNN RandomBrightness RandomContrast RandomCrop RandomFlip
RandomFourierFeatures RandomHeight RandomRotation RandomTranslation RandomWidth
RandomZoom ReLU RepeatVector Rescaling Reshape Resizing SeparableConv1D SeparableConv2D
SeparableConvolution1D SeparableConvolution2D Sequential SimpleRNN SimpleRNNCell Softmax
SpatialDropout1D SpatialDropout2D SpatialDropout3D SpectralNormalization StackedRNNCells
StringLookup Subtract SyncBatchNormalization TextVectorization ThresholdedReLU
TimeDistributed UnitNormalization UpSampling1D UpSampling2D UpSampling3D ZeroPadding1D
ZeroPadding2D ZeroPadding3D
"""
# Their calls are checked by the name of the function.
_CALLS = ("SlicingOpLambda", "TFOpLambda")
# For training, and dtypes.
_OTHERS = """
Constant ConstantV2 GlorotNormal GlorotNormalV2 GlorotUniform GlorotUniformV2 HeNormal
HeNormalV2 HeUniform HeUniformV2 IdentityV2 LecunNormal LecunNormalV2 LecunUniform
LecunUniformV2 Ones OnesV2 Orthogonal OrthogonalV2 RandomNormal RandomNormalV2
RandomUniform RandomUniformV2 TruncatedNormal TruncatedNormalV2 VarianceScaling
VarianceScalingV2 Zeros ZerosV2 L1 L1L2 L2 OrthogonalRegularizer MaxNorm MinMaxNorm
NonNeg RadialConstraint UnitNorm Policy PolicyV1
Adadelta Adagrad Adam AdamW Adamax Ftrl Lion Nadam RMSprop SGD
BinaryCrossentropy BinaryFocalCrossentropy CategoricalCrossentropy
CategoricalFocalCrossentropy CategoricalHinge CosineSimilarity Hinge Huber KLDivergence
LogCosh MeanAbsoluteError MeanAbsolutePercentageError MeanSquaredError
MeanSquaredLogarithmicError Poisson SparseCategoricalCrossentropy SquaredHinge
"""
# Values, of tf_keras's JSON.
_VALUES = """
TensorShape __bytes__ __ellipsis__ __numpy__ __tensor__ __tuple__
"""
LAYERS = frozenset(_LAYER_NAMES.split())
_CLASSES = LAYERS.union(_CALLS, _OTHERS.split(), _VALUES.split())
_ACTIVATION_NAMES = """
elu exponential gelu hard_sigmoid leaky_relu linear log_softmax mish relu relu6 selu
sigmoid silu softmax softmax_v2 softplus softsign swish tanh
"""
_ACTIVATIONS = frozenset(_ACTIVATION_NAMES.split())
# Names of the objects for training, in files before classes stood for them.
_TRAINING_NAMES = """
constant glorot_normal glorot_uniform he_normal he_uniform identity lecun_normal
lecun_uniform normal one ones orthogonal random_normal random_uniform truncated_normal
uniform variance_scaling zero zeros l1 l2 l1_l2 orthogonal_regularizer max_norm maxnorm
min_max_norm non_neg nonneg radial_constraint unit_norm unitnorm
"""
_NAMES = frozenset(_TRAINING_NAMES.split())
_ROLES = ("_constraint", "_initializer", "_regularizer")
# Functions of TensorFlow by module, "" for its own.
_FUNCTIONS = {
    "": """
abs acos acosh add add_n argmax argmin argsort as_string asin asinh atan atan2 atanh
batch_to_space bitcast boolean_mask broadcast_to cast clip_by_norm clip_by_value complex
concat convert_to_tensor cos cosh cumsum divide dynamic_partition dynamic_stitch einsum
ensure_shape equal exp expand_dims eye fill floor gather gather_nd greater greater_equal
identity less less_equal linspace logical_and logical_not logical_or matmul maximum
meshgrid minimum multiply negative norm not_equal one_hot ones ones_like pad pow range
rank realdiv reduce_all reduce_any reduce_logsumexp reduce_max reduce_mean reduce_min
reduce_prod reduce_sum repeat reshape reverse reverse_sequence roll round saturate_cast
scalar_mul scatter_nd searchsorted sequence_mask shape sigmoid sign sin sinh size slice
sort space_to_batch space_to_batch_nd split sqrt square squeeze stack stop_gradient
strided_slice subtract tan tanh tensor_scatter_nd_add tensor_scatter_nd_max
tensor_scatter_nd_min tensor_scatter_nd_sub tensor_scatter_nd_update tensordot tile
to_double to_float to_int32 to_int64 transpose truediv truncatediv truncatemod unique
unravel_index unstack where where_v2 zeros zeros_like
""",
    "__operators__": "add eq getitem ne",
    "bitwise": "bitwise_and bitwise_or bitwise_xor invert left_shift right_shift",
    "dtypes": "cast complex saturate_cast",
    "image": """
adjust_brightness adjust_contrast adjust_gamma adjust_hue adjust_saturation central_crop
convert_image_dtype crop_and_resize crop_to_bounding_box extract_patches flip_left_right
flip_up_down grayscale_to_rgb hsv_to_rgb pad_to_bounding_box per_image_standardization
resize resize_bicubic resize_bilinear resize_image_with_pad resize_images
resize_nearest_neighbor resize_with_crop_or_pad resize_with_pad rgb_to_grayscale
rgb_to_hsv rgb_to_yiq rgb_to_yuv rot90 sobel_edges transpose yiq_to_rgb yuv_to_rgb
""",
    "linalg": """
adjoint band_part cholesky cholesky_solve cross det diag diag_part eigh eigvalsh einsum
expm eye inv l2_normalize logdet matmul matrix_transpose matvec norm normalize pinv qr
set_diag slogdet solve sqrtm svd tensor_diag tensor_diag_part tensordot trace
triangular_solve
""",
    "math": """
abs accumulate_n acos acosh add add_n angle argmax argmin asin asinh atan atan2 atanh
bessel_i0 bessel_i0e bessel_i1 bessel_i1e betainc bincount ceil conj cos cosh
count_nonzero cumprod cumsum cumulative_logsumexp digamma divide divide_no_nan equal erf
erfc erfcinv erfinv exp expm1 floor floordiv floormod greater greater_equal igamma
igammac imag in_top_k invert_permutation is_finite is_inf is_nan l2_normalize lbeta less
less_equal lgamma log log1p log_sigmoid log_softmax logical_and logical_not logical_or
logical_xor maximum minimum mod multiply multiply_no_nan ndtri negative nextafter
not_equal polygamma polyval pow real reciprocal reciprocal_no_nan reduce_all reduce_any
reduce_euclidean_norm reduce_logsumexp reduce_max reduce_mean reduce_min reduce_prod
reduce_std reduce_sum reduce_variance rint round rsqrt scalar_mul segment_max
segment_mean segment_min segment_prod segment_sum sigmoid sign sin sinh softmax softplus
softsign sqrt square squared_difference subtract tan tanh top_k truediv
unsorted_segment_max unsorted_segment_mean unsorted_segment_min unsorted_segment_prod
unsorted_segment_sqrt_n unsorted_segment_sum xdivy xlog1py xlogy zero_fraction zeta
""",
    "nn": """
atrous_conv2d avg_pool avg_pool1d avg_pool2d avg_pool3d batch_normalization bias_add
conv1d conv1d_transpose conv2d conv2d_transpose conv3d conv3d_transpose conv_transpose
convolution crelu depth_to_space depthwise_conv2d dilation2d dropout elu
embedding_lookup erosion2d gelu in_top_k l2_loss l2_normalize leaky_relu
local_response_normalization log_softmax lrn max_pool max_pool1d max_pool2d max_pool3d
max_pool_with_argmax max_pool_v2 moments pool relu relu6 relu_layer selu
separable_conv2d sigmoid sigmoid_cross_entropy_with_logits silu softmax softmax_v2
softplus softsign space_to_batch space_to_depth swish tanh top_k weighted_moments
zero_fraction
""",
    "random": "normal truncated_normal uniform",
    "signal": """
dct fft fft2d fft3d fftshift frame hamming_window hann_window idct ifft ifft2d ifft3d
ifftshift irfft irfft2d irfft3d linear_to_mel_weight_matrix
mfccs_from_log_mel_spectrograms overlap_and_add rfft rfft2d rfft3d stft
""",
    "strings": """
as_string bytes_split format join length lower ngrams reduce_join regex_full_match
regex_replace split strip substr to_hash_bucket to_hash_bucket_fast
to_hash_bucket_strong to_number unicode_decode unicode_encode unicode_script
unicode_split unicode_transcode upper
""",
}
_CALLED = frozenset(
    f"{module}.{name}".removeprefix(".")
    for module, names in _FUNCTIONS.items()
    for name in names.split()
)
_V1_OR_V2 = re.compile(r"compat\.v[12]\.")
_MODULES = re.compile(
    r"builtins|tensorflow\.python\.ops\.init_ops_v2|(tf_)?keras(\.src)?"
    r"(\.(activations|constraints|dtensor|engine|initializers|layers|losses|"
    r"mixed_precision|models|optimizers|regularizers)(\.\w+)*)?"
)
# The longest text among the arguments of a function.
_MAX_CHARS = 80


def not_allowed(config: Any) -> str:
    """Return what in a configuration tf_keras may not load, or an empty text.

    The text says what to do.
    """
    # tf_keras leaves that of the whole out.
    if isinstance(config, Mapping):
        config = {key: config[key] for key in config if key != "compile_config"}
    return _in_value(config)


def _in_value(value: Any) -> str:
    if isinstance(value, list):
        return next(filter(None, map(_in_value, value)), "")
    if not isinstance(value, Mapping):
        return ""
    if not value.keys().isdisjoint(("class_name", "module", "registered_name")):
        kind, inner = value.get("class_name"), value.get("config")
        if kind in ("Lambda", "__lambda__"):
            return custom_code("Python lambda", "")
        found = _refused_class(value, kind, inner)
        if not found and kind in _CALLS:
            found = _refused_call(value, inner)
        if found:
            return found
    named = (_refused_name(key, each) for key, each in value.items())
    return next(filter(None, named), "") or _in_value(list(value.values()))


def _refused_class(value: Mapping[str, Any], kind: Any, inner: Any) -> str:
    module, registered = value.get("module"), value.get("registered_name")
    if module is not None and not _is_in(module, _MODULES):
        return _text(f"{inner if kind == 'function' else kind} of module {module}")
    # tf_keras looks for either name.
    names, allowed = [kind, registered or kind], _CLASSES
    if kind == "function":
        names, allowed = [inner, registered or inner], _ACTIVATIONS
    for name in names:
        # Keras's own are of no package, or of this one.
        own = name.removeprefix("Keras>") if isinstance(name, str) else None
        if own not in allowed:
            return _text(f"{'function' if kind == 'function' else 'class'} {name}")
    return ""


def _refused_call(layer: Mapping[str, Any], inner: Any) -> str:
    function = inner.get("function") if isinstance(inner, Mapping) else None
    name = _V1_OR_V2.sub("", function, count=1) if isinstance(function, str) else ""
    if name not in _CALLED:
        return _text(f"a call of {function}")
    text = _path_among(layer.get("inbound_nodes"))
    return _text(f"a call of {function} with {text}") if text else ""


def _path_among(arguments: Any) -> str:
    """Return a text among a function's arguments that may be a path, or an empty one.

    The names of layers and of operations may have slashes.
    """
    if isinstance(arguments, str):
        is_long = len(arguments) > _MAX_CHARS
        return arguments if is_long or "/" in arguments or "\\" in arguments else ""
    if isinstance(arguments, Mapping):
        arguments = [arguments[key] for key in arguments if key != "name"]
    if not isinstance(arguments, list):
        return ""
    is_place = len(arguments) in (3, 4) and all(
        isinstance(each, int) for each in arguments[1:3]
    )
    kept = arguments[3:] if is_place else arguments
    return next(filter(None, map(_path_among, kept)), "")


def _refused_name(key: str, value: Any) -> str:
    """Return what is wrong with the value of an argument, or an empty text."""
    if not isinstance(value, str):
        return ""
    if key == "vocabulary":
        return _text(f"the vocabulary of the file {value}")
    if key.endswith("activation") and value not in _ACTIVATIONS | _CLASSES:
        return _text(f"{key} {value}")
    if key.endswith(_ROLES) and value not in _NAMES | _CLASSES:
        return _text(f"{key} {value}")
    return ""


def _is_in(value: Any, pattern: re.Pattern[str]) -> bool:
    return isinstance(value, str) and pattern.fullmatch(value) is not None


def _text(what: str) -> str:
    return (
        f"{what[:_MAX_CHARS]!r} is not among what tf_keras may load here: where its "
        f"code is, {EXPORT}"
    )
