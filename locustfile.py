"""Locust users and load shapes: `locust --host=http://localhost:8000`.

Users are self-checkouts that scan products. They send random rows of the shape and
type that the server reports for its model, pictures, or captured requests.
"""

import os
import urllib.error
import urllib.request
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar
from urllib.parse import quote

import gevent
import orjson
from locust import LoadTestShape, between, constant, events, task
from locust.argument_parser import LocustArgumentParser
from locust.contrib.fasthttp import FastHttpUser
from locust.env import Environment
from locust.exception import StopTest

from bench.figures import THINK_S
from testing.payload import (
    CapturedRequests,
    Payload,
    PayloadError,
    Pictures,
    basket_payload,
    tf_serving_signature,
)

_TIMEOUT_S = 10
_SHOWN_ERROR = 200

# Without this gevent adds a traceback to the message of a test that cannot start.
gevent.get_hub().NOT_ERROR += (StopTest,)


@dataclass(frozen=True)
class Target:
    """Path, bodies and headers of the requests."""

    path: str
    payload: Payload | Pictures | CapturedRequests
    headers: dict[str, str]


class _Checkout(FastHttpUser):
    """Sends one product at a time and waits for its answer."""

    abstract = True
    target: ClassVar[Target]

    def on_start(self) -> None:
        """Begin with a think time, so that users do not start all at once."""
        self.wait()

    @task
    def scan(self) -> None:
        """Send the picture or row of one product."""
        target = self.target
        body = target.payload.body()
        with self.client.post(
            target.path, data=body, headers=target.headers, catch_response=True
        ) as answer:
            if answer.status_code >= 400:  # noqa: PLR2004
                text = (answer.text or "")[:_SHOWN_ERROR]
                answer.failure(f"{answer.status_code}: {text}")


class SelfCheckout(_Checkout):
    """A person at a till: 1 to 3 seconds from an answer to the next product."""

    wait_time = between(*THINK_S)


class Saturation(_Checkout):
    """No think time: the next request follows the answer at once."""

    wait_time = constant(0)


class _Steps(LoadTestShape):
    """A number of users for each step; `steps` are (seconds, users)."""

    abstract = True
    # Else Locust warns that --users has no effect, even if no shape is chosen.
    use_common_options = True
    steps: ClassVar[tuple[tuple[int, int], ...]]

    def tick(self) -> tuple[int, float] | None:
        """Return the current number of users and the spawn rate, None at the end."""
        end_s = 0
        for seconds, users in self.steps:
            end_s += seconds
            if self.get_run_time() < end_s:
                return users, users
        return None


class Ramp(_Steps):
    """1 user, then 5, then 20: half a minute, half a minute, a minute."""

    abstract = False
    steps = ((30, 1), (30, 5), (60, 20))


class Spike(_Steps):
    """5 users, half a minute of 64, and 5 again."""

    abstract = False
    steps = ((30, 5), (30, 64), (60, 5))


def aim(environment: Environment) -> None:
    """Read the model's inputs from the server, and set the target of all users.

    Raises:
        PayloadError: there is no server, or no ready model with known inputs.
    """
    options = environment.parsed_options
    model = getattr(options, "tf_serving_model", None)
    host = (environment.host or "").rstrip("/")
    key = os.environ.get("BASKET_API_KEYS", "").split(",")[0].strip()
    headers = {"Authorization": f"Bearer {key}"} if key else {}
    route = f"/v1/models/{quote(model, safe='')}" if model else ""
    payload: Payload | Pictures | CapturedRequests
    if getattr(options, "captured", None):
        payload = CapturedRequests(Path(options.captured))
    elif model:
        payload = Payload(
            tf_serving_signature(_get(f"{host}{route}/metadata", headers))
        )
    else:
        payload = basket_payload(_get(f"{host}/readyz", headers))
    path = f"{route}:predict" if model else "/predict"
    headers["Content-Type"] = payload.content_type
    _Checkout.target = Target(path, payload, headers)


def _get(url: str, headers: dict[str, str]) -> Any:
    if not url.startswith(("http://", "https://")):
        raise PayloadError("say which server: --host=http://localhost:8000")
    try:
        request = urllib.request.Request(url, headers=headers)  # noqa: S310
        with urllib.request.urlopen(request, timeout=_TIMEOUT_S) as answer:  # noqa: S310
            return orjson.loads(answer.read())
    except urllib.error.HTTPError as error:
        text = error.read().decode(errors="replace")[:_SHOWN_ERROR]
        raise PayloadError(f"{url} answers {error.code}: {text}") from error
    except OSError as error:
        reason = getattr(error, "reason", error)
        raise PayloadError(f"no answer from {url}: {reason}") from error
    except orjson.JSONDecodeError as error:
        raise PayloadError(f"{url} does not answer JSON: {error}") from error


@events.init_command_line_parser.add_listener
def _add_arguments(parser: LocustArgumentParser) -> None:
    parser.add_argument(
        "--tf-serving-model",
        env_var="TF_SERVING_MODEL",
        default="",
        help="The host is a TensorFlow Serving, and this is its model; empty: Basket",
    )
    parser.add_argument(
        "--captured",
        default="",
        help="Send the captured requests in this folder or .npz, not random rows",
    )
    parser.add_argument(
        "--shape",
        choices=("Ramp", "Spike"),
        include_in_web_ui=False,
        help="With --headless: the shape of the load; without it --users are steady",
    )


@events.init.add_listener
def _choose_for_headless(environment: Environment, **_: Any) -> None:
    """Set users and shape: without the dashboard Locust takes all, and the first."""
    options = environment.parsed_options
    if options is None or not options.headless:
        return
    if not options.user_classes:
        environment.user_classes = [SelfCheckout]
    shapes = environment.available_shape_classes or {}
    environment.shape_class = shapes.get(options.shape)
    if environment.shape_class is not None:
        environment.shape_class.runner = environment.runner


@events.test_start.add_listener
def _aim_or_stop(environment: Environment, **_: Any) -> None:
    try:
        aim(environment)
    except PayloadError as error:
        environment.process_exit_code = 1
        raise StopTest(str(error)) from None
