"""Settings, and where each has its value from."""

from pathlib import Path
from types import SimpleNamespace

import pytest

from app.web.page.settings_rows import settings_rows
from app.settings import Settings, variables
from app.settings.model_config import read_model_config


def rows_of(settings, models=(), environ=None):
    rows = settings_rows(settings, models, environ or {})
    return {(row["name"], row["model"]): (row["value"], row["from"]) for row in rows}


def model(folder, settings, **toml):
    """A version whose basket.toml has these lines."""
    folder.mkdir(parents=True)
    lines = "\n".join(f"{key} = {value}" for key, value in toml.items())
    (folder / "basket.toml").write_text(lines)
    config = read_model_config(folder, settings)
    return SimpleNamespace(name=folder.name, config=config)


def test_every_setting_has_a_row():
    """All variables are there, as defaults, with the words of the environment."""
    rows = rows_of(Settings())
    assert {name for name, _ in rows} == set(variables())
    assert {origin for _, origin in rows.values()} == {"default"}
    assert rows["BASKET_MAX_BATCH_SIZE", None] == ("64", "default")
    assert rows["BASKET_BATCH_TIMEOUT_MICROS", None] == ("auto", "default")
    assert rows["BASKET_BATCHING", None] == ("on", "default")
    assert rows["BASKET_GPUS", None] == ("all", "default")
    assert rows["BASKET_API_KEYS", None] == ("", "default")


def test_setting_of_the_environment_says_so():
    """Also one that has the value of the default; an empty one counts as not set."""
    environ = {
        "BASKET_MAX_BATCH_SIZE": "64",
        "BASKET_GPUS": "0,1",
        "BASKET_BATCHING": "off",
        "BASKET_ENGINE": " ",
        "BASKET_MODEL_DIR": ".",
    }
    rows = rows_of(Settings.from_environment(environ), environ=environ)
    assert rows["BASKET_MAX_BATCH_SIZE", None] == ("64", "environment")
    assert rows["BASKET_GPUS", None] == ("0,1", "environment")
    assert rows["BASKET_BATCHING", None] == ("off", "environment")
    assert rows["BASKET_ENGINE", None] == ("tensorflow", "default")


@pytest.mark.parametrize("name", ["api_keys", "admin_keys"])
def test_keys_are_never_shown(name):
    """Of a secret there is only that it is set."""
    settings = Settings(**{name: ("sesame", "other")})
    environ = {f"BASKET_{name.upper()}": "sesame,other"}
    rows = settings_rows(settings, (), environ)
    assert "sesame" not in str(rows)
    assert rows_of(settings, environ=environ)[f"BASKET_{name.upper()}", None] == (
        *("set", "environment"),
    )


def test_limit_of_the_batching_file_names_the_file(tmp_path):
    """A limit that is neither a default nor in the environment is from there."""
    file = tmp_path / "batching"
    file.write_text("max_batch_size { value: 8 }\nbatch_timeout_micros { value: 0 }")
    environ = {"BASKET_BATCHING_PARAMETERS_FILE": str(file), "BASKET_MODEL_DIR": "."}
    rows = rows_of(Settings.from_environment(environ), environ=environ)
    source = "batching parameters file"
    assert rows["BASKET_MAX_BATCH_SIZE", None] == ("8", source)
    assert rows["BASKET_BATCH_TIMEOUT_MICROS", None] == ("0", source)


def test_what_a_model_changes_names_its_basket_toml(tmp_path, monkeypatch):
    """Only what differs from the server has a row, and only of the newest version."""
    monkeypatch.chdir(tmp_path)
    settings = Settings(model_dir=Path("models"))
    folder = tmp_path / "models"
    same = model(folder / "same", settings, max_batch_size=64)
    old = model(folder / "old" / "m", settings, max_batch_size=2)
    new = model(folder / "m", settings, max_batch_size=8, allowed_batch_sizes=[4, 8])
    rows = settings_rows(settings, [same, old, new], {})
    own = [row for row in rows if row["model"]]
    assert own == [
        {
            "name": name,
            "value": value,
            "from": "models/m/basket.toml",
            "model": "m",
        }
        for name, value in (("max_batch_size", "8"), ("allowed_batch_sizes", "4,8"))
    ]
