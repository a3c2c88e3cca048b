"""The image models of keras.applications, and how each scales its pixels."""

from typing import NamedTuple


class Architecture(NamedTuple):
    """A function of keras.applications, and the scale of its preprocess_input."""

    function: str
    scale: str


# Scale -> functions by the names of their models.
_BY_SCALE = {
    "-1..1": {
        "mobilenet": "MobileNet",
        "mobilenet_v2": "MobileNetV2",
        "resnet50_v2": "ResNet50V2",
        "resnet101_v2": "ResNet101V2",
        "resnet152_v2": "ResNet152V2",
        "inception_v3": "InceptionV3",
        "inception_resnet_v2": "InceptionResNetV2",
        "xception": "Xception",
        "nasnet_mobile": "NASNetMobile",
        "nasnet_large": "NASNetLarge",
    },
    "imagenet": {f"densenet{n}": f"DenseNet{n}" for n in (121, 169, 201)},
    "caffe": {f"resnet{n}": f"ResNet{n}" for n in (50, 101, 152)}
    | {f"vgg{n}": f"VGG{n}" for n in (16, 19)},
    # Models that scale pixels themselves.
    "none": {
        f"mobilenet_v3_{size.lower()}": f"MobileNetV3{size}"
        for size in ("Small", "Large")
    }
    | {f"efficientnet_b{n}": f"EfficientNetB{n}" for n in range(8)}
    | {
        f"efficientnet_v2_{size.lower()}": f"EfficientNetV2{size}"
        for size in ("B0", "B1", "B2", "B3", "S", "M", "L")
    }
    | {
        f"convnext_{size.lower()}": f"ConvNeXt{size}"
        for size in ("Tiny", "Small", "Base", "Large", "XLarge")
    },
}
ARCHITECTURES = {
    name: Architecture(function, scale)
    for scale, functions in _BY_SCALE.items()
    for name, function in functions.items()
}
