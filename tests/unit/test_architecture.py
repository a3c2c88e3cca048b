"""The rooms of app/, who may import whom, and how large a part may grow."""

import ast
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
# What each room may import of app; a new room says here what it builds on.
ALLOWED = {
    "app.coroutines": (),
    "app.errors": (),
    "app.memory": (),
    "app.pids": (),
    "app.settings": ("app.settings", "app.errors"),
    "app.gpus": ("app.errors",),
    "app.advice": ("app.settings",),
    "app.run_dir": ("app.errors",),
    "app.granian": (
        *("app.granian", "app.api", "app.serving.job"),
        *("app.advice", "app.errors", "app.gpus", "app.settings"),
    ),
    "app.engines": ("app.engines", "app.errors", "app.gpus", "app.settings"),
    "app.codec": (
        *("app.codec", "app.engines.base", "app.errors", "app.memory"),
        "app.settings.image_config",
    ),
    "app.serving": (
        *("app.serving", "app.engines", "app.errors", "app.memory"),
        *("app.pids", "app.settings"),
    ),
    "app.shared_model": (
        *("app.shared_model", "app.serving", "app.engines.base", "app.errors"),
        "app.settings",
    ),
    "app.prometheus_private": ("app.pids",),
    "app.telemetry": ("app.prometheus_private",),
    "app.api": (
        *("app.api", "app.codec", "app.coroutines", "app.serving"),
        *("app.engines.base", "app.errors", "app.settings", "app.telemetry"),
    ),
    "app.commands": (
        *("app.codec.npy", "app.commands", "app.engines", "app.errors"),
        *("app.serving.repository", "app.settings"),
    ),
    "app.workers": ("app.workers",),
}
FRAMEWORKS = ("tensorflow", "keras", "jax", "openvino")
# Package -> the only rooms that may import it.
KEPT_TO = dict.fromkeys(FRAMEWORKS, ("app.engines",)) | {
    "asyncio": ("app.granian",),
    "flask": ("app.api", "app.commands", "app.workers"),
    "granian": ("app.granian",),
    "gunicorn": ("app.workers",),
    "werkzeug": ("app.api",),
    "prometheus_client": ("app.prometheus_private", "app.telemetry"),
    "google": ("app.settings",),
}


def name_of(file: Path) -> str:
    parts = file.relative_to(ROOT).with_suffix("").parts
    return ".".join(parts).removesuffix(".__init__")


MODULES = {
    name_of(file): ast.parse(file.read_text()) for file in ROOT.glob("app/**/*.py")
}
every_module = pytest.mark.parametrize("module", sorted(MODULES))


def imports(tree: ast.Module) -> set[str]:
    """The full name of all that is imported, inside functions too."""
    found = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            found.update(alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            start = "." * node.level + (node.module or "")
            found.update(f"{start}.{alias.name}" for alias in node.names)
    return found


def room_of(module: str) -> str:
    return ".".join(module.split(".")[:2])


def within(name: str, rooms: tuple[str, ...]) -> bool:
    return any(f"{name}.".startswith(f"{room}.") for room in rooms)


def test_modules_are_found():
    """The other tests here look at the real modules."""
    assert {"app", "app.codec.rows", "app.engines", "app.errors"} <= set(MODULES)


@every_module
def test_imports_go_one_way(module):
    """A module imports only from rooms below its own; app itself, from all."""
    allowed = ("app",) if module == "app" else ALLOWED[room_of(module)]
    for name in imports(MODULES[module]):
        assert not name.startswith(".")
        assert within(name, allowed) or not within(name, ("app",))


@pytest.mark.parametrize("room", ALLOWED)
def test_nothing_is_allowed_in_vain(room):
    """A room imports something of each part that it may import."""
    trees = [tree for module, tree in MODULES.items() if room_of(module) == room]
    found = set().union(*map(imports, trees))
    for part in ALLOWED[room]:
        assert any(within(name, (part,)) for name in found), part


@every_module
def test_packages_stay_in_their_rooms(module):
    """Frameworks, Flask and Prometheus are imported only in the rooms made for them."""
    for name in imports(MODULES[module]):
        package = name.split(".")[0]
        assert room_of(module) in KEPT_TO.get(package, [room_of(module)]), package


@every_module
def test_size(module):
    """A module has a docstring and up to 250 lines, a function up to 40."""
    tree = MODULES[module]
    assert ast.get_docstring(tree)
    assert max(node.end_lineno for node in tree.body) <= 250
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            assert node.end_lineno - node.lineno < 40, node.name
