"""Whether this Python was compiled with optimizations.

Only the standard library: make runs this file in the Pythons that it finds, to choose
one for the environment. The exit status is 0 for one that can make environments, has a
version that Basket runs on, and is optimized.
"""

import sys
import sysconfig


def is_optimized() -> bool:
    """Return whether this Python was compiled with --enable-optimizations.

    Those of Linux distributions are, whatever they say of how they were configured.
    """
    options = sysconfig.get_config_var("CONFIG_ARGS") or ""
    return sys.base_prefix == "/usr" or "--enable-optimizations" in options


if __name__ == "__main__":
    import ensurepip  # noqa: F401, Debian has it in a package of its own

    sys.exit(not ((3, 11) <= sys.version_info < (3, 14) and is_optimized()))
