"""Settings without an effect, as the log has them at the start."""

from pathlib import Path

import pytest
from gunicorn.config import Config

from app.settings import Settings
from app.start_checks import settings_without_effect


@pytest.mark.parametrize(
    ("given", "with_it"),
    [
        ({"model_name": "shop"}, {"model": Path("my.keras")}),
        ({"request_log_share": 0.5}, {"request_log": "-"}),
    ],
    ids=lambda given: next(iter(given)),
)
def test_setting_without_the_one_it_belongs_to_is_a_warning(given, with_it):
    """The line names both variables; with both there is none."""

    def lines(**settings):
        settings = Settings(**settings)
        return list(
            settings_without_effect(
                settings, Config(), has_gpus=True, is_asynchronous=True
            )
        )

    (line,) = lines(**given)
    for name in (*given, *with_it):
        assert f"BASKET_{name.upper()}" in line
    assert "has no effect" in line
    assert lines(**given, **with_it) == lines() == []
