"""Models of images."""

import numpy as np

from testing.tried.case import EXPORT, H5, KERAS, tried
from testing.tried.saving import Known, Saving, numbers


def _of_sizes(saving: Saving, model: object, *sizes: tuple[int, int]) -> Known:
    """Save a model, and return images of several sizes."""
    known = Known((), ())
    for height, width in sizes:
        images = numbers(2, height, width, 3, seed=height)
        known = known.and_rows(saving.predicted(model, images))
    saving.save(model)
    return known


def _cnn(saving: Saving) -> object:
    layers = saving.keras.layers
    return saving.keras.Sequential(
        [
            saving.keras.Input((16, 16, 1)),
            layers.Conv2D(8, 3, activation="relu"),
            layers.MaxPooling2D(),
            layers.Conv2D(8, 3, padding="same"),
            layers.BatchNormalization(),
            layers.ReLU(),
            layers.Flatten(),
            layers.Dense(10, activation="softmax"),
        ]
    )


@tried("Convolutional classifier", KERAS)
def cnn(saving: Saving) -> Known:
    return saving.save(_cnn(saving), numbers(4, 16, 16, 1))


@tried("Convolutional classifier", H5)
def cnn_h5(saving: Saving) -> Known:
    return saving.save(_cnn(saving), numbers(4, 16, 16, 1), "model.h5")


@tried("Convolutional classifier", EXPORT)
def cnn_exported(saving: Saving) -> Known:
    return saving.export(_cnn(saving), numbers(4, 16, 16, 1))


@tried("Convolutions and global pooling, any height and width", KERAS)
def cnn_of_any_size(saving: Saving) -> Known:
    layers = saving.keras.layers
    image = saving.keras.Input((None, None, 3))
    signal = layers.Conv2D(8, 3, strides=2, activation="relu")(image)
    signal = layers.SeparableConv2D(8, 3, padding="same")(signal)
    model = saving.keras.Model(image, layers.GlobalAveragePooling2D()(signal))
    return _of_sizes(saving, model, (20, 30), (33, 17))


@tried("Ten layers with batch normalization, trained for an epoch", KERAS)
def batch_normalization(saving: Saving) -> Known:
    layers = saving.keras.layers
    image = saving.keras.Input((8, 8, 4))
    signal = image
    for _ in range(5):
        signal = layers.Conv2D(4, 3, padding="same", use_bias=False)(signal)
        signal = layers.ReLU()(layers.BatchNormalization()(signal))
        signal = layers.BatchNormalization()(
            layers.DepthwiseConv2D(3)(layers.ZeroPadding2D(1)(signal))
        )
    model = saving.keras.Model(image, layers.GlobalAveragePooling2D()(signal))
    model.compile("sgd", "mse")
    model.fit(numbers(16, 8, 8, 4), numbers(16, 4), verbose=0)
    return saving.save(model, numbers(4, 8, 8, 4))


# Its two outputs are small sums of large terms.
@tried(
    "MobileNetV2 with a head of one's own (transfer learning)", KERAS, tolerance=1e-4
)
def transfer_learning(saving: Saving) -> Known:
    keras, layers = saving.keras, saving.keras.layers
    base = keras.applications.MobileNetV2(
        input_shape=(32, 32, 3), include_top=False, weights=None, alpha=0.35
    )
    base.trainable = False
    image = keras.Input((32, 32, 3))
    signal = layers.RandomFlip("horizontal")(image)
    signal = keras.applications.mobilenet_v2.preprocess_input(signal)
    signal = layers.GlobalAveragePooling2D()(base(signal, training=False))
    model = keras.Model(image, layers.Dense(2)(layers.Dropout(0.2)(signal)))
    return saving.save(model, numbers(3, 32, 32, 3) * 255)


@tried("EfficientNetB0", KERAS)
def efficientnet(saving: Saving) -> Known:
    model = saving.keras.applications.EfficientNetB0(
        weights=None, input_shape=(32, 32, 3), classes=7
    )
    return saving.save(model, numbers(2, 32, 32, 3) * 255)


def _unet(saving: Saving, up: object) -> object:
    layers = saving.keras.layers
    image = saving.keras.Input((None, None, 3))
    left = layers.Conv2D(4, 3, padding="same", activation="relu")(image)
    inner = layers.Conv2D(8, 3, padding="same")(layers.MaxPooling2D()(left))
    joined = layers.Concatenate()([left, up(inner)])
    return saving.keras.Model(image, layers.Conv2D(1, 1, activation="sigmoid")(joined))


@tried("U-Net with Conv2DTranspose, any height and width", KERAS)
def unet(saving: Saving) -> Known:
    up = saving.keras.layers.Conv2DTranspose(4, 2, strides=2)
    return _of_sizes(saving, _unet(saving, up), (8, 12), (16, 16))


@tried(
    "U-Net with bilinear UpSampling2D, any height and width",
    KERAS,
    refusal="Give it fixed sizes: x = keras.Input(",
)
def unet_bilinear(saving: Saving) -> Known:
    up = saving.keras.layers.UpSampling2D(interpolation="bilinear", name="up")
    return saving.save(_unet(saving, up))


@tried("U-Net with bilinear UpSampling2D, of fixed sizes as its error says", KERAS)
def unet_bilinear_fixed(saving: Saving) -> Known:
    keras = saving.keras
    image = keras.Input((8, 12, 3))
    free = _unet(saving, keras.layers.UpSampling2D(interpolation="bilinear"))
    return saving.save(keras.Model(image, free(image)), numbers(3, 8, 12, 3))


@tried("Autoencoder", KERAS)
def autoencoder(saving: Saving) -> Known:
    layers = saving.keras.layers
    image = saving.keras.Input((8, 8, 1))
    code = layers.Conv2D(4, 3, strides=2, padding="same", activation="relu")(image)
    code = layers.Dense(5, name="code")(layers.Flatten()(code))
    signal = layers.Reshape((4, 4, 1))(layers.Dense(16)(code))
    signal = layers.Conv2DTranspose(1, 3, strides=2, padding="same")(signal)
    return saving.save(saving.keras.Model(image, signal), numbers(4, 8, 8, 1))


@tried("Decoder of a variational autoencoder", KERAS)
def vae_decoder(saving: Saving) -> Known:
    layers = saving.keras.layers
    model = saving.keras.Sequential(
        [
            saving.keras.Input((2,)),
            layers.Dense(7 * 7 * 4, activation="relu"),
            layers.Reshape((7, 7, 4)),
            layers.Conv2DTranspose(4, 3, strides=2, padding="same", activation="relu"),
            layers.Conv2DTranspose(1, 3, padding="same", activation="sigmoid"),
        ]
    )
    return saving.save(model, numbers(4, 2))


@tried("uint8 images; Rescaling, Resizing and augmentation in the model", KERAS)
def preprocessing_inside(saving: Saving) -> Known:
    layers = saving.keras.layers
    image = saving.keras.Input((20, 30, 3), dtype="uint8")
    signal = layers.Resizing(16, 16)(image)
    signal = layers.Rescaling(1 / 127.5, -1)(signal)
    for augment in (
        layers.RandomFlip(),
        layers.RandomRotation(0.2),
        layers.RandomZoom(0.2),
        layers.RandomContrast(0.2),
        layers.GaussianNoise(0.5),
    ):
        signal = augment(signal)
    signal = layers.GlobalAveragePooling2D()(layers.Conv2D(4, 3)(signal))
    model = saving.keras.Model(image, signal)
    return saving.save(model, (numbers(3, 20, 30, 3) * 255).astype(np.uint8))
