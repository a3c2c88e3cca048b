"""[image] in basket.toml: valid and invalid values."""

import json

import pytest

from app.errors import SettingsError
from app.settings import Settings
from app.settings.image_config import ImageClass, ImageConfig
from app.settings.model_config import read_model_config

VALID = 'size = [96, 64]\nscale = "-1..1"\n'


@pytest.fixture(name="read")
def _read(tmp_path):
    def read(lines: str, classes: object = None) -> ImageConfig | None:
        (tmp_path / "basket.toml").write_text(f"[image]\n{lines}")
        if classes is not None:
            text = classes if isinstance(classes, str) else json.dumps(classes)
            (tmp_path / "classes.json").write_text(text)
        return read_model_config(tmp_path, Settings(model_dir=tmp_path)).image

    return read


@pytest.fixture(name="refusal")
def _refusal(read, tmp_path):
    def refusal(lines: str, classes: object = None) -> str:
        with pytest.raises(SettingsError) as raised:
            read(lines, classes)
        text = str(raised.value)
        assert text.startswith("basket.toml: [image] ")
        assert str(tmp_path) not in text
        return text

    return refusal


def test_defaults_of_the_image_table(read):
    """Size and scale are required; the defaults are RGB, nearest, no classes."""
    assert read(VALID) == ImageConfig((96, 64), "RGB", "-1..1", "nearest", ())


def test_all_keys_of_the_image_table(read):
    """Each key has its effect, and the shape follows from size and mode."""
    image = read(
        'size = [8, 6]\nmode = "L"\nscale = "0..1"\ninterpolation = "bilinear"\n'
        'classes = "classes.json"\n',
        ["no", "yes"],
    )
    names = (ImageClass("0", "no"), ImageClass("1", "yes"))
    assert image == ImageConfig((8, 6), "L", "0..1", "bilinear", names)
    assert image.shape() == (8, 6, 1)


def test_resizing_of_the_dataset_is_bilinear_by_default(read):
    """Each function of Keras has its own default of interpolation."""
    dataset = f'{VALID}resize = "image_dataset_from_directory"\n'
    assert read(dataset) == ImageConfig(
        (96, 64), "RGB", "-1..1", "bilinear", (), "image_dataset_from_directory"
    )
    assert read(f'{dataset}interpolation = "nearest"').interpolation == "nearest"
    assert read(f'{VALID}resize = "load_img"') == read(VALID)


@pytest.mark.parametrize(("value", "crops"), [("true", True), ("false", False)])
def test_cropping_is_off_by_default(read, value, crops):
    """It is a switch of its own, for both functions of Keras."""
    assert read(f"{VALID}crop_to_aspect_ratio = {value}").crop_to_aspect_ratio is crops
    assert not read(VALID).crop_to_aspect_ratio


def test_classes_in_the_form_of_imagenet(read):
    """ImageNet's index of pairs gives ids and names in the order of its keys."""
    index = {str(place): [f"n{place}", f"name {place}"] for place in (2, 0, 1)}
    image = read(f'{VALID}classes = "classes.json"', index)
    assert image.classes == tuple(
        ImageClass(f"n{place}", f"name {place}") for place in range(3)
    )


@pytest.mark.parametrize(
    ("lines", "expected"),
    [
        ('scale = "none"', "size is missing: expected [height, width] in pixels"),
        ("size = [8, 8]", "scale is missing: expected 0..1 or -1..1 or none or"),
        ('size = 8\nscale = "none"', "size = 8: expected [height, width]"),
        ('size = [8]\nscale = "none"', "size = [8]: expected"),
        ('size = [8, 8, 3]\nscale = "none"', "size = [8, 8, 3]: expected"),
        ('size = [0, 8]\nscale = "none"', "each from 1 to 4096"),
        ('size = [8, 4097]\nscale = "none"', "size = [8, 4097]: expected"),
        ('size = [8.0, 8]\nscale = "none"', "size = [8.0, 8]: expected"),
        ('size = [true, 8]\nscale = "none"', "size = [true, 8]: expected"),
        (f'{VALID}mode = "BGR"', "mode = 'BGR': expected RGB or L"),
        (f"{VALID}mode = [1]", "mode = [1]: expected RGB or L"),
        ('size = [8, 8]\nscale = "0..255"', "scale = '0..255': expected 0..1 or"),
        ("size = [8, 8]\nscale = 1", "scale = 1: expected"),
        ('size = [8, 8]\nmode = "L"\nscale = "imagenet"', 'is for mode = "RGB" only'),
        ('size = [8, 8]\nmode = "L"\nscale = "caffe"', 'is for mode = "RGB" only'),
        (f'{VALID}interpolation = "cubic"', "interpolation = 'cubic': expected"),
        (f'{VALID}resize = "tf"', "resize = 'tf': expected load_img or image_dataset"),
        (
            f'{VALID}resize = "image_dataset_from_directory"\ninterpolation = "box"',
            "interpolation = 'box': expected bilinear or nearest",
        ),
        (
            f"{VALID}crop_to_aspect_ratio = 1",
            "crop_to_aspect_ratio = 1: expected true or false",
        ),
        (f"{VALID}crop = true", "unknown key 'crop'; known: size, mode, scale"),
        (f"{VALID}classes = 3", "expected the name of a file beside basket.toml"),
        (f'{VALID}classes = "../classes.json"', "expected the name of a file beside"),
        (f'{VALID}classes = "/etc/passwd"', "expected the name of a file beside"),
        (f'{VALID}classes = ".."', "expected the name of a file beside"),
        (f'{VALID}classes = "none.json"', "none.json: No such file or directory"),
    ],
)
def test_invalid_value_is_a_configuration_error(refusal, lines, expected):
    """The error names the key, and the expected values."""
    assert expected in refusal(lines)


@pytest.mark.parametrize(
    "classes",
    [
        pytest.param([], id="nothing"),
        pytest.param({}, id="an empty index"),
        pytest.param("tench", id="not JSON"),
        pytest.param("[" * 100_000, id="too many brackets"),
        pytest.param('"tench"', id="a string"),
        pytest.param([1, 2], id="numbers"),
        pytest.param({"0": ["a", "b"], "2": ["a", "b"]}, id="a gap"),
        pytest.param({"1": ["a", "b"]}, id="from one"),
        pytest.param({"0": "tench"}, id="no pairs"),
        pytest.param({"0": ["n1", 2]}, id="a number in a pair"),
        pytest.param({"0": ["n1", "b", "c"]}, id="triples"),
    ],
)
def test_malformed_file_of_classes_is_a_configuration_error(refusal, classes):
    """The error names the file."""
    assert "classes: classes.json" in refusal(
        f'{VALID}classes = "classes.json"', classes
    )


def test_image_is_an_optional_table(tmp_path):
    """Without [image] there is no image configuration; another value is refused."""
    (tmp_path / "basket.toml").write_text("max_batch_size = 8\n")
    assert read_model_config(tmp_path, Settings(model_dir=tmp_path)).image is None
    (tmp_path / "basket.toml").write_text("image = 3\n")
    with pytest.raises(SettingsError, match="image must be a table"):
        read_model_config(tmp_path, Settings(model_dir=tmp_path))


def test_classes_behind_a_link_within_the_folder_are_read(read, tmp_path):
    """Kubernetes mounts a ConfigMap's files as such links."""
    (tmp_path / "..data").mkdir()
    (tmp_path / "..data" / "names.json").write_text('["zero", "one"]')
    (tmp_path / "names.json").symlink_to("..data/names.json")
    image = read(f'{VALID}classes = "names.json"')
    assert [each.name for each in image.classes] == ["zero", "one"]


@pytest.mark.parametrize("target", ["../secret.json", "/etc/hostname", "names.json"])
def test_classes_behind_a_link_out_of_the_folder_are_refused(refusal, tmp_path, target):
    """A link out of the model's folder, or in a loop, is not followed."""
    (tmp_path.parent / "secret.json").write_text('["zero", "one"]')
    (tmp_path / "names.json").symlink_to(target)
    text = refusal(f'{VALID}classes = "names.json"')
    loops = target == "names.json"
    assert ("symbolic links" if loops else "out of the model's folder") in text
    assert target == "names.json" or target not in text
