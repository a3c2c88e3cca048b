"""Imports of service.py, and the checks of its functions."""

import gc
import importlib
import json
import os
import sys
import textwrap
import threading
import types
from functools import partial

import pytest

from app.engines.python import bounded
from app.engines.python.imports import ServiceImports
from app.engines.python.service import Service, find_service
from app.errors import ModelLoadError
from app.settings import Settings
from testing.server import wait_until

ON = Settings(user_code=True)


@pytest.fixture
def write(tmp_path):
    """Write the files of a version, and return its folder."""

    def write(version="1", **files):
        folder = tmp_path / "m" / version
        folder.mkdir(parents=True, exist_ok=True)
        for name, text in files.items():
            path = folder / f"{name}.py"
            path.parent.mkdir(exist_ok=True)
            path.write_text(textwrap.dedent(text))
        return folder

    return write


@pytest.fixture
def left():
    """Return a function for the modules of services that the test leaves behind."""
    before = set(sys.modules)

    def left():
        gc.collect()
        names = set(sys.modules) - before
        return [name for name in names if name.startswith("basket_service_")]

    return left


def refusal(folder):
    with pytest.raises(ModelLoadError) as raised:
        Service(folder)
    return str(raised.value)


def test_functions_that_are_not_there_are_none(write):
    """Every function is optional."""
    service = Service(write(service="def preprocess(x): return x + 1"))
    assert service.preprocess(1) == 2
    assert service.predict is None
    assert service.postprocess is None
    assert service.load() is None
    assert not service.has_load
    assert not service.has_example


def test_service_that_only_imports_has_no_parts(write):
    """It is imported, for what that registers, and is called by nothing."""
    assert not Service(write(service="import json\nWORDS = []")).has_parts
    for part in ("def preprocess(x): return x", "EXAMPLE = 1"):
        assert Service(write(service=part)).has_parts


def test_example_may_be_any_value(write):
    """An EXAMPLE of None is one."""
    service = Service(write(service="EXAMPLE = None"))
    assert service.has_example
    assert service.example is None


def test_load_gets_the_folder(write):
    """It is where the version's other files are."""
    folder = write(service="def load(folder): return folder / 'words.txt'")
    assert Service(folder).load() == folder / "words.txt"


def test_versions_have_helper_modules_of_their_own(write):
    """Two versions may have helpers of one name, at import, in load and in a pickle."""
    text = """
        import pickle
        from helpers import VALUE, Point
        from package.inner import NAME
        def load(folder):
            import helpers, late
            assert pickle.loads(pickle.dumps(Point())).value == VALUE
            return helpers.VALUE, late.VALUE
        def preprocess(x):
            from . import lazy
            return VALUE, NAME, lazy.VALUE
        """
    services = []
    for version in ("1", "2"):
        value = f"VALUE = {version}\n"
        point = "class Point: value = VALUE\n"
        folder = write(
            version, service=text, helpers=value + point, late=value, lazy=value
        )
        (folder / "package").mkdir()
        (folder / "package" / "__init__.py").touch()
        (folder / "package" / "inner.py").write_text(f"NAME = 'v{version}'")
        services.append(Service(folder))
    for number, service in enumerate(services, 1):
        assert service.load() == (number, number)
        assert service.preprocess(0) == (number, f"v{number}", number)
    assert {"helpers", "late", "package", "package.inner"}.isdisjoint(sys.modules)


def test_helper_does_not_replace_a_module_of_the_process(write):
    """A helper with the name of an imported module is seen by its own version only."""
    folder = write(service="import json\nNAME = json.NAME", json="NAME = 'mine'")
    service = Service(folder)
    assert sys.modules["json"] is json
    assert service is not None


def test_folder_of_data_does_not_hide_a_package(write):
    """Only a folder with code in it is a module."""
    folder = write(service="import numpy as np\ndef preprocess(x): return np.ones(2)")
    (folder / "numpy").mkdir()
    (folder / "numpy" / "rows.txt").touch()
    assert Service(folder).preprocess(0).shape == (2,)


def test_import_leaves_the_folder_and_the_path_as_they_were(write):
    """No bytecode is written beside the model, and sys.path is the process's own."""
    folder, path = write(service="import helpers", helpers="X = 1"), [*sys.path]
    Service(folder)
    assert sorted(each.name for each in folder.iterdir()) == [
        "helpers.py",
        "service.py",
    ]
    assert sys.path == path


def test_import_under_way_finds_its_module_when_the_folder_leaves_the_path(
    write, tmp_path, monkeypatch
):
    """An import in another thread asks each folder of sys.path, also meanwhile."""

    class EndsImport:
        """A folder of sys.path, in which the other import ends that of service.py."""

        def find_spec(self, *_):
            imports.hide()

    imports = ServiceImports(write(service="") / "service.py")
    (tmp_path / "found_next.py").write_text("VALUE = 5")
    ends = str(tmp_path / "ends")
    monkeypatch.setattr(sys, "path", [ends, str(tmp_path), *sys.path])
    monkeypatch.setitem(sys.path_importer_cache, ends, EndsImport())
    with imports.visible():
        assert importlib.import_module("found_next").VALUE == 5
    assert sys.path[0] == ends
    del sys.modules["found_next"]


def test_module_goes_with_the_last_reference(write, left):
    """A service that nothing uses leaves nothing in the process."""
    service = Service(write(service="from . import helpers", helpers="X = 1"))
    assert len(left()) == 2
    service.threads.submit(list)
    del service
    assert left() == []


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("1 / 0", "ZeroDivisionError: division by zero (line 1)"),
        ("x = 1\nimport nothing_here", "No module named 'nothing_here' (line 2)"),
        ("def preprocess(", "SyntaxError: '(' was never closed"),
        ("import sys\nsys.exit(3)", "SystemExit: 3 (line 2)"),
        ("open(__file__ + 'x')", "No such file or directory: 'service.pyx' (line 1)"),
        ("open('/no/such/words.txt')", "such file or directory: 'words.txt' (line 1)"),
        (
            "import pickle\npickle.loads(b'c__main__\\nNet\\n.')",
            "'Net' on '__main__', the script that saved it (line 2)",
        ),
    ],
)
def test_error_at_import_is_a_load_error(write, left, text, reason):
    """It has the reason and the line, and no path of the machine."""
    folder = write(service=text)
    found = refusal(folder)
    assert found.startswith("service.py can't be imported: ")
    assert reason in found
    assert str(folder) not in found
    assert left() == []


def test_error_in_a_helper_has_the_line_of_its_import(write):
    """The line is that of service.py, whose author reads the error."""
    folder = write(service="\nimport helpers", helpers="\n\n\n1 / 0")
    assert refusal(folder).endswith("division by zero (line 2)")


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("preprocess = 3", "preprocess is not a plain function"),
        ("async def predict(m, b): ...", "predict is not a plain function"),
        ("def predict(batch): ...", "predict is called with 2 arguments, and takes (b"),
        ("def load(): ...", "load is called with 1 argument, and takes ()"),
    ],
)
def test_function_that_cannot_be_called_is_a_load_error(write, text, reason):
    """It is found before any request is."""
    assert refusal(write(service=text)).startswith(f"service.py: {reason}")


def test_function_may_be_a_builtin_or_have_defaults(write):
    """Whatever takes the arguments is right."""
    text = "preprocess = int\ndef predict(model, batch, *, k=1): return batch"
    service = Service(write(service=text))
    assert service.preprocess("7") == 7
    assert service.predict(None, [1]) == [1]


@pytest.mark.parametrize("text", ["raise KeyError('x')", "import sys; sys.exit()"])
def test_error_in_load_is_a_load_error(write, text):
    """Also a call of sys.exit."""
    service = Service(write(service=f"def load(folder):\n  {text}"))
    with pytest.raises(ModelLoadError, match=r"service.py: load raised .*\(line 2\)"):
        service.load()


@pytest.mark.parametrize(
    ("text", "what"),
    [
        ("import blocker; blocker.wait()", "its import"),
        ("import blocker\ndef load(folder): blocker.wait()", "load"),
    ],
)
def test_code_that_never_returns_is_a_load_error(write, monkeypatch, text, what):
    """Other versions are loaded then, with their own helpers; its thread stays."""
    goes_on, returned = threading.Event(), threading.Semaphore(0)
    blocker = types.ModuleType("blocker")

    def wait():
        goes_on.wait(30)
        returned.release()

    blocker.wait = wait
    monkeypatch.setitem(sys.modules, "blocker", blocker)
    folder = write(service=text)

    def load():
        with monkeypatch.context() as patch:
            if what == "its import":
                patch.setattr(bounded, "LONGEST_S", 0.05)
            service = Service(folder)
            patch.setattr(bounded, "LONGEST_S", 0.05)
            service.load()

    try:
        with pytest.raises(ModelLoadError, match=f"{what} has not returned within"):
            load()
        code = "import helpers\ndef preprocess(x): return helpers.X"
        other = Service(write("2", service=code, helpers="X = 2"))
        assert other.preprocess(0) == 2
        assert str(folder) not in sys.path
    finally:
        goes_on.set()
        # Other tests count the threads.
        assert returned.acquire(timeout=10)
        wait_until(_no_thread_is_busy, 10)


def _no_thread_is_busy():
    """Return whether as many calls as there are threads start no further one."""
    threads = _count_threads()
    call = list
    for _ in range(threads):
        call = partial(bounded.bounded, call, "a call inside another")
    call()
    return _count_threads() == threads


def _count_threads():
    return [each.name for each in threading.enumerate()].count("service load")


def test_imports_and_loads_share_a_thread(write):
    """The heap of each thread keeps room for what was freed at its end."""
    text = """
        from threading import get_ident
        IMPORTED = get_ident()
        def load(folder): return IMPORTED, get_ident()
        """
    services = [Service(write(version, service=text)) for version in ("1", "2")]
    idents = {ident for service in services for ident in service.load()}
    assert len(idents - {threading.get_ident()}) == 1


def test_folder_without_service_has_none(write):
    """Most versions have no code of their own."""
    assert find_service(write(other=""), Settings()) is None


def test_service_is_not_run_unless_user_code_is_on(write):
    """The error names the setting, and nothing is imported."""
    folder = write(service="raise AssertionError")
    with pytest.raises(ModelLoadError) as raised:
        find_service(folder, Settings())
    assert str(raised.value) == (
        "it holds service.py, which runs only with BASKET_USER_CODE=on"
    )


@pytest.mark.parametrize("place", ["", "..", "../..", "service.py", "words/a.txt"])
def test_service_that_everybody_may_write_is_refused(write, place):
    """The error has the command that mends it."""
    folder = write(service="")
    (folder / "words").mkdir()
    (folder / "words" / "a.txt").touch()
    path = folder / place
    os.chmod(path, path.stat().st_mode | 0o002)
    with pytest.raises(ModelLoadError, match="everybody may write") as raised:
        find_service(folder, ON)
    name = (folder / place).resolve().name if "a.txt" not in place else place
    assert str(raised.value).endswith(f"chmod o-w {name}")
    os.chmod(path, path.stat().st_mode & ~0o002)
    assert find_service(folder, ON) is not None


def test_link_to_nothing_beside_service_is_ignored(write):
    """An editor's lock is one, and so is a file that has just gone."""
    folder = write(service="")
    (folder / ".#service.py").symlink_to("user@host.1234:5678")
    assert find_service(folder, ON) is not None


@pytest.mark.parametrize("place", ["..", "../.."])
def test_service_below_a_sticky_folder_is_run_if_its_folder_is_ours(write, place):
    """In /tmp and its like nobody else may replace a folder."""
    folder = write(service="")
    os.chmod(folder / place, 0o1777)
    assert find_service(folder, ON) is not None
    os.chmod(folder, 0o1777)
    with pytest.raises(ModelLoadError, match="everybody may write the folder 1: chmod"):
        find_service(folder, ON)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root may give a folder away")
def test_service_of_another_user_below_a_sticky_folder_is_refused(write):
    """Somebody else may have put it there."""
    folder = write(service="")
    os.chmod(folder / "..", 0o1777)
    os.chown(folder, 61234, -1)
    with pytest.raises(ModelLoadError, match="everybody may write the folder m: chmod"):
        find_service(folder, ON)
