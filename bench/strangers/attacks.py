"""The attacks: what is sent, by how many clients, and for how long they wait."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial

from bench.strangers import bodies
from testing.open_loop_requests import Request

# The server's default of BASKET_REQUEST_TIMEOUT_MS.
_DEADLINE_S = 30.0
_SOON_S = 1.0
_DEADLINE_HEADER = f"X-Request-Timeout-Ms: {_SOON_S * 1000:.0f}\r\n"


@dataclass(frozen=True)
class Attack:
    """A request that `clients` send at once, each of them `each` times.

    They disconnect after a second if they are `impatient`, or give a `deadline` of a
    second. Memory is read `settle_s` after the last answer. `silent` connections, which
    send nothing, are open meanwhile.
    """

    name: str
    make: Callable[[], Request]
    clients: int = 1
    each: int = 1
    impatient: bool = False
    deadline: bool = False
    settle_s: float = 0.0
    silent: int = 0

    @property
    def waits_s(self) -> float:
        """Seconds after which nobody waits for what was sent first."""
        return _SOON_S if self.impatient or self.deadline else _DEADLINE_S

    def request(self) -> Request:
        """Return what each client sends; large ones take a second to make."""
        made = self.make()
        return replace(
            made,
            disconnect_s=_SOON_S if self.impatient else None,
            headers=made.headers + _DEADLINE_HEADER * self.deadline,
        )


def _thrice(name: str, make: Callable[[], Request]) -> tuple[Attack, ...]:
    """Return an attack, with a client that disconnects, and with a deadline."""
    return (
        Attack(name, make),
        Attack(f"{name}; disconnects after 1 s", make, impatient=True),
        Attack(f"{name}; deadline of 1 s", make, deadline=True),
    )


_rows = partial(bodies.packed, '{"instances":[')
_most, _large = bodies.MOST_BYTES, partial(bodies.floats, 20 << 20)
_columns, _v2 = partial(bodies.floats, key=b"inputs"), bodies.floats_v2
ATTACKS = (
    *_thrice("64 WebP", bodies.webp_form),
    Attack("64 WebP, 20 at once", bodies.webp_form, clients=20),
    *_thrice("64 JPEG of 64 scans", bodies.jpeg_form),
    *_thrice("60 MiB of [0]", partial(_rows, "[0],", "[0]]}")),
    Attack("60 MiB of strings and Infinity", bodies.packed_strings),
    Attack("60 MiB of NaN", partial(_rows, "NaN,", "NaN]}")),
    Attack("60 MiB of {}", partial(_rows, "{},", "{}]}")),
    Attack(
        "60 MiB in one row", partial(bodies.packed, '{"instances":[[', "0,", "0]]}")
    ),
    Attack("60 MiB of brackets", bodies.brackets),
    Attack("156,504 good rows", bodies.good_rows),
    Attack("156,504 good rows, 6 at once", bodies.good_rows, clients=6),
    Attack("honest 64 MiB of rows", partial(bodies.floats, _most)),
    Attack("honest 64 MiB of columns", partial(_columns, _most)),
    Attack("honest 64 MiB in V2", partial(_v2, _most)),
    Attack("honest 20 MiB, 100 times", _large, clients=4, each=25, settle_s=10),
    Attack("1,000 silent connections", bodies.digit, silent=1000),
)
