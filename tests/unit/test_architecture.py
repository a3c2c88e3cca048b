"""The packages of app/, and what each may import."""

import ast
import re
from functools import cache
from pathlib import Path

import pytest

from tests.support.documents import parsed

ROOT = Path(__file__).parents[2]
# What each package may import of app; a new package says here what it builds on.
ALLOWED = {
    "app.errors": (),
    "app.memory": (),
    "app.file_stem": (),
    "app.tls": (),
    "app.interpreter": (),
    "app.port_check": (),
    "app.settings": ("app.settings", "app.errors"),
    "app.gpus": ("app.errors",),
    "app.start_checks": ("app.errors", "app.settings"),
    "app.run_dir": ("app.run_dir", "app.errors", "app.file_stem"),
    "app.engines": (
        *("app.engines", "app.errors", "app.gpus", "app.memory", "app.settings"),
    ),
    "app.codec": (
        *("app.codec", "app.engines.base", "app.errors", "app.memory"),
        "app.settings.image_config",
    ),
    "app.background": (),
    "app.capture": (
        *("app.background", "app.capture", "app.codec", "app.engines.base"),
        "app.file_stem",
    ),
    "app.batching": ("app.batching", "app.engines.base", "app.errors", "app.settings"),
    "app.user_code": (
        *("app.user_code", "app.batching.model_log", "app.codec", "app.engines.base"),
        *("app.engines.python", "app.errors", "app.settings"),
    ),
    "app.repository": (
        *("app.repository", "app.batching", "app.engines", "app.errors", "app.memory"),
        *("app.capture.ring", "app.codec", "app.promotion"),
        *("app.run_dir", "app.settings", "app.user_code"),
    ),
    "app.promotion": (
        *("app.promotion", "app.batching.execution", "app.capture", "app.codec"),
        *("app.engines", "app.errors", "app.run_dir", "app.settings"),
        *("app.file_stem", "app.user_code"),
    ),
    "app.shared_model": (
        *("app.shared_model", "app.batching", "app.repository", "app.engines.base"),
        *("app.engines.python", "app.errors", "app.memory", "app.run_dir.notes"),
        *("app.settings", "app.user_code"),
    ),
    "app.exemplar_files": ("app.run_dir.json_files", "app.run_dir.notes"),
    "app.prometheus_private": (
        *("app.exemplar_files", "app.run_dir.metrics_files", "app.run_dir.notes"),
    ),
    "app.totals": (),
    "app.unbuffered_metrics": ("app.prometheus_private",),
    "app.telemetry": ("app.prometheus_private", "app.totals"),
    # The parts of app.serving for their types alone.
    "app.call": (
        "app.codec.bounds",
        "app.errors",
        "app.serving.asks",
        "app.serving.large_calls",
    ),
    "app.error_replies": ("app.call", "app.codec", "app.errors", "app.telemetry"),
    "app.access": ("app.access", "app.call", "app.errors", "app.settings.key_file"),
    "app.protocols": (
        *("app.protocols", "app.batching.job", "app.call", "app.codec"),
        *("app.engines.base", "app.errors", "app.repository", "app.settings"),
        *("app.telemetry", "app.totals"),
    ),
    "app.recording": (
        *("app.recording", "app.call", "app.capture", "app.codec"),
        *("app.engines.base", "app.promotion.evidence", "app.settings"),
        *("app.telemetry", "app.totals", "app.unbuffered_metrics"),
    ),
    "app.web": (
        *("app.web", "app.access", "app.call", "app.codec", "app.engines.base"),
        *("app.error_replies", "app.errors", "app.gpus", "app.protocols"),
        *("app.repository", "app.run_dir", "app.settings", "app.telemetry"),
        "app.totals",
    ),
    "app.serving": (
        *("app.serving", "app.access", "app.batching", "app.call", "app.codec"),
        *("app.error_replies", "app.errors", "app.memory", "app.protocols"),
        *("app.recording", "app.repository", "app.settings"),
        *("app.shared_model.remote_loader", "app.telemetry", "app.web"),
    ),
    "app.rims": (
        *("app.rims", "app.access", "app.call", "app.codec", "app.error_replies"),
        *("app.errors", "app.protocols", "app.repository.routing", "app.serving"),
        *("app.tls", "app.web.body"),
    ),
    "app.commands": (
        *("app.batching", "app.capture", "app.codec", "app.commands", "app.engines"),
        *(
            "app.errors",
            "app.repository.loading.example",
            "app.repository.loading.opener",
            "app.repository.find_version",
            "app.repository.rollouts.by_hand",
        ),
        *("app.promotion", "app.settings", "app.user_code"),
    ),
    "app.tracing": (
        *("app.tracing", "app.background", "app.batching.fair_queue", "app.call"),
        *("app.errors", "app.prometheus_private", "app.telemetry"),
    ),
    "app.ray_serve": (
        *("app.create_app", "app.errors", "app.memory", "app.ray_serve"),
        *("app.settings", "app.telemetry"),
    ),
}
FRAMEWORKS = (
    *("tensorflow", "keras", "jax", "openvino", "ai_edge_litert", "onnxruntime"),
)
# Dependency -> the only packages or modules of app that may import it.
KEPT_TO = {
    "tensorflow": ("app.engines.tensorflow",),
    "keras": ("app.engines.keras", "app.engines.tensorflow", "app.engines.jax"),
    "jax": ("app.engines.jax",),
    "openvino": ("app.engines.openvino",),
    "ai_edge_litert": ("app.engines.litert",),
    "onnxruntime": ("app.engines.onnx",),
    "tf_keras": ("app.engines.tensorflow",),
    "asyncio": ("app.rims", "app.ray_serve", "app.serving", "app.shared_model"),
    "flask": ("app.web", "app.commands"),
    "gunicorn": (
        *("app.rims.gunicorn_private", "app.rims.model_worker", "app.rims.worker"),
    ),
    "httptools": ("app.rims.http_bodies", "app.rims.http_heads"),
    "opentelemetry": ("app.tracing.spans",),
    "uvloop": ("app.rims.worker", "app.shared_model"),
    "werkzeug": (
        *("app.protocols", "app.rims.wsgi", "app.serving.asks", "app.tracing.spans"),
        "app.web",
    ),
    "prometheus_client": (
        *("app.unbuffered_metrics", "app.ray_serve"),
        *("app.prometheus_private", "app.telemetry", "app.totals"),
        *("app.exemplar_files", "app.tracing.traced_metrics"),
    ),
    "ray": ("app.ray_serve",),
    "google": ("app.protocols", "app.settings"),
    "grpc": ("app.rims.grpc",),
    "grpc_health": ("app.rims.grpc",),
    "grpc_reflection": ("app.rims.grpc",),
}
# Private API -> the only module of app that may import it.
PRIVATE_API = {
    "tensorflow.python": "app.engines.tensorflow.tensorflow_private",
    "tensorflow.core": "app.engines.tensorflow.tensorflow_private",
    "keras.src": "app.engines.keras.keras_private",
}
# Packages in which no module but *_private reads another object's private names.
NO_PRIVATE_NAMES = ("app.commands", "app.engines")
# What Gunicorn documents for a worker of one's own to import.
GUNICORN = ("gunicorn.workers.base",)


def name_of(file: Path) -> str:
    parts = file.relative_to(ROOT).with_suffix("").parts
    return ".".join(parts).removesuffix(".__init__")


def package_of(module: str) -> str:
    return ".".join(module.split(".")[:2])


def modules_of(package: str) -> dict[str, ast.Module]:
    return {name: tree_of(name) for name in FILES if package_of(name) == package}


def below(package: str) -> dict[str, ast.Module]:
    """The modules of a package, and of all packages in it."""
    return {name: tree_of(name) for name in FILES if within(name, (package,))}


def tree_of(module: str) -> ast.Module:
    return parsed(FILES[module])


FILES = {name_of(file): file for file in ROOT.glob("app/**/*.py")}


@cache
def nodes_of(tree: ast.Module) -> list[ast.AST]:
    return list(ast.walk(tree))


@cache
def imports(tree: ast.Module) -> frozenset[str]:
    """The full name of all that is imported, inside functions too."""
    found = set()
    for node in nodes_of(tree):
        if isinstance(node, ast.Import):
            found.update(alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            start = "." * node.level + (node.module or "")
            found.update(f"{start}.{alias.name}" for alias in node.names)
    return frozenset(found)


def within(name: str, packages: tuple[str, ...]) -> bool:
    return any(f"{name}.".startswith(f"{package}.") for package in packages)


def test_modules_are_found():
    """The other tests here look at the real modules."""
    assert {"app", "app.codec.rows", "app.engines", "app.errors"} <= set(FILES)


def test_imports_go_one_way():
    """A module imports only from packages below its own; app itself, from all."""
    for module, tree in below("app").items():
        allowed = ("app",) if module == "app" else ALLOWED[package_of(module)]
        for name in imports(tree):
            assert not name.startswith("."), module
            assert within(name, allowed) or not within(name, ("app",)), (module, name)


def test_no_import_is_allowed_in_vain():
    """A package imports something of each part that it may import."""
    for package, parts in ALLOWED.items():
        found = set().union(*map(imports, modules_of(package).values()))
        for part in parts:
            assert any(within(name, (part,)) for name in found), (package, part)


def test_dependencies_stay_in_their_packages():
    """Frameworks, Flask and Gunicorn are imported only in the packages for them."""
    for module, tree in below("app").items():
        for name in imports(tree):
            dependency = name.split(".")[0]
            allowed = KEPT_TO.get(dependency, (module,))
            assert within(module, allowed), (module, dependency)


# Some frameworks are imported by name, when a model wants them.
@pytest.mark.parametrize("dependency", sorted(KEPT_TO.keys() - set(FRAMEWORKS)))
def test_no_dependency_is_allowed_in_vain(dependency):
    """Each package that may import a dependency does."""
    for package in KEPT_TO[dependency]:
        found = set().union(*map(imports, below(package).values()))
        assert any(within(name, (dependency,)) for name in found), package


def test_gunicorn_is_imported_only_where_it_documents_that():
    """Of Gunicorn nothing is imported but the base class of workers."""
    files = ("gunicorn.conf.py", "wsgi.py")
    others = {file: parsed(ROOT / file) for file in files}
    for module, tree in (below("app") | others).items():
        for name in imports(tree):
            is_other = not within(name, ("gunicorn",))
            assert is_other or within(name, GUNICORN), (module, name)


def test_private_api_is_imported_only_by_its_module():
    """Internals of TensorFlow and Keras are imported by one module each."""
    for module, tree in below("app").items():
        for name in imports(tree):
            for api, owner in PRIVATE_API.items():
                assert module == owner or not within(name, (api,)), (module, name)


@pytest.mark.parametrize("package", NO_PRIVATE_NAMES)
def test_private_names_are_read_only_by_private_modules(package):
    """Names with a leading underscore of other objects stay in *_private modules."""
    for module, tree in below(package).items():
        if module.endswith("_private"):
            continue
        names = {part for name in imports(tree) for part in name.split(".")}
        for node in nodes_of(tree):
            if isinstance(node, ast.Attribute) and ast.unparse(node.value) != "self":
                names.add(node.attr)
        private = [name for name in names if re.match("_[^_]", name)]
        assert not private, module


def test_each_module_says_what_it_is():
    """A module begins with a docstring."""
    for module, tree in below("app").items():
        assert ast.get_docstring(tree), module


def test_no_two_classes_have_one_name():
    """A class's name can be found by grep, and means one thing in all of app/."""
    found: dict[str, list[str]] = {}
    for module, tree in below("app").items():
        for node in tree.body:
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                found.setdefault(node.name, []).append(module)
    assert not {name: modules for name, modules in found.items() if len(modules) > 1}
