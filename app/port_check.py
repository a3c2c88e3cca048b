"""Checks that the ports of a server are free, before anything is installed.

Only the standard library: `make serve` runs this file with Gunicorn's arguments.
Gunicorn itself says that a port is busy when all is installed.
"""

import argparse
import os
import shlex
import socket
import sys
from collections.abc import Iterator, Sequence

_GRPC = "BASKET_GRPC_BIND"
_LAST_PORT = 65535


def addresses(arguments: Sequence[str]) -> Iterator[str]:
    """Yield the TCP addresses that a server with these arguments listens at.

    Those that a file of configuration may name are not known, and ports that others may
    share need not be free.

    Raises:
        argparse.ArgumentError: Gunicorn would refuse the arguments.
    """
    parser = argparse.ArgumentParser(add_help=False, exit_on_error=False)
    parser.add_argument("-b", "--bind", action="append")
    parser.add_argument("-c", "--config")
    parser.add_argument("--reuse-port", action="store_true")
    in_environment = shlex.split(os.environ.get("GUNICORN_CMD_ARGS", ""))
    given = [parser.parse_known_args(each)[0] for each in (arguments, in_environment)]
    bind = next((each.bind for each in given if each.bind), None)
    if bind is None and not any(each.config for each in given):
        port = os.environ.get("PORT")
        bind = [f"0.0.0.0:{port}" if port else "127.0.0.1:8000"]
    if not any(each.reuse_port for each in given) and "LISTEN_FDS" not in os.environ:
        yield from (
            each for each in bind or () if not each.startswith(("unix:", "fd:"))
        )
    if os.environ.get(_GRPC):
        yield os.environ[_GRPC]


def problem(address: str) -> str:
    """Return why a server can't listen at host:port, "" if it can.

    Raises:
        ValueError: that is no address.
        OverflowError: there is no such port.
    """
    host, colon, port = address.removeprefix("tcp://").rpartition(":")
    if not colon or port.endswith("]"):  # without a port Gunicorn takes 8000
        host, port = address, "8000"
    host = host.strip("[]")
    try:
        number = int(port)
        if not 0 <= number <= _LAST_PORT:
            raise OverflowError
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        socket.create_server((host, number), family=family).close()
    except OSError as error:
        # create_server adds the address to strerror; a name may have no address.
        code = error.errno or 0
        return os.strerror(code) if code > 0 else str(error)
    return ""


def main(arguments: Sequence[str]) -> str:
    """Return what is wrong and what to do, "" if all ports are free."""
    try:
        for address in addresses(arguments):
            reason = problem(address)
            if reason:
                return (
                    f"{address}: {reason}. Stop what has the port, or take another "
                    'one: make serve ARGS="--bind 127.0.0.1:8001"'
                )
    except OverflowError:
        return (
            f"{address}: there is no such port, the last is {_LAST_PORT}. Take another "
            'one: make serve ARGS="--bind 127.0.0.1:8001"'
        )
    except (argparse.ArgumentError, ValueError):
        pass  # Gunicorn, or Basket, says what is wrong
    return ""


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]) or 0)
