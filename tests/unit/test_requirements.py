"""What Basket needs installs on a machine that has Python and no compiler."""

from importlib.metadata import distributions


def test_no_package_was_built_here():
    """Each comes as a wheel from its makers; one built here is not for manylinux."""
    built = [
        each.name
        for each in distributions()
        for line in (each.read_text("WHEEL") or "").splitlines()
        if line.startswith("Tag: ") and line.rpartition("-")[2].startswith("linux_")
    ]
    assert built == []
