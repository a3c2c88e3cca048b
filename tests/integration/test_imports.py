"""What a fresh process does not import."""

import subprocess
import sys

import pytest

from testing.server import ROOT


def output_of(program):
    """Run a program in a Python of its own, and return what it prints."""
    command = [sys.executable, "-c", program]
    return subprocess.check_output(command, cwd=ROOT, text=True)


def test_without_traces_nothing_of_opentelemetry_is_imported(tmp_path):
    """An application that is built without the variables does not load the SDK."""
    program = f"""
import sys
from pathlib import Path
from app import create_app
from app.settings import Settings
server = create_app(Settings(model_dir=Path({str(tmp_path)!r})))
print(type(server).__name__, [name for name in sys.modules if "opentelemetry" in name])
"""
    assert output_of(program).split() == ["Server", "[]"]


@pytest.mark.parametrize(
    ("text", "loaded"),
    [("", "[]"), ("max_batch_size { value: 8 }", "['google.protobuf']")],
    ids=["none", "one"],
)
def test_settings_import_protobuf_only_for_a_file(tmp_path, text, loaded):
    """Settings never import TensorFlow, and protobuf only with a batching file."""
    file = tmp_path / "batching.txt"
    file.write_text(text)
    environ = {"BASKET_BATCHING_PARAMETERS_FILE": str(file) if text else ""}
    code = f"""
import sys
from app.settings import Settings
Settings.from_environment({environ})
print([name for name in ("google.protobuf", "tensorflow") if name in sys.modules])
"""
    assert output_of(code).strip() == loaded
