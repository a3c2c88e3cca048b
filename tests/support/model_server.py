"""A model server in a thread, whose responses the test chooses."""

import contextlib
import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from typing import Any


@dataclass
class Request:
    """A request; `connection` is the number of its connection, from 0."""

    method: str
    path: str
    body: bytes
    connection: int

    def json(self) -> Any:
        return json.loads(self.body)


@dataclass(frozen=True)
class Response:
    """A response; with `disconnects` the server closes the connection afterwards."""

    status: int = 200
    body: bytes = b""
    headers: Mapping[str, str] = field(default_factory=dict)
    disconnects: bool = False

    @classmethod
    def value(cls, value: Any, status: int = 200, **more: Any) -> "Response":
        return cls(status, json.dumps(value).encode(), **more)


# None: the server closes the connection without a response.
Answer = Callable[[Request], Response | None]


class ModelServer:
    """A server that records its requests, and runs inside `running`."""

    def __init__(self, answer: Answer) -> None:
        self.answer = answer
        self.requests: list[Request] = []
        self.connections = 0
        self._http = ThreadingHTTPServer(("127.0.0.1", 0), _handler(self))
        self.url = f"http://127.0.0.1:{self._http.server_port}"

    @contextlib.contextmanager
    def running(self) -> Iterator["ModelServer"]:
        thread = Thread(target=self._http.serve_forever, args=(0.002,))
        thread.start()
        try:
            yield self
        finally:
            self._http.shutdown()
            thread.join()
            self._http.server_close()

    def requests_to(self, path: str) -> list[Request]:
        return [request for request in self.requests if request.path.endswith(path)]


def _handler(server: ModelServer) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        disable_nagle_algorithm = True

        def setup(self) -> None:
            super().setup()
            self.number = server.connections
            server.connections += 1

        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
            request = Request(self.command, self.path, body, self.number)
            server.requests.append(request)
            response = server.answer(request)
            if response is None:
                self.close_connection = True
                return
            self.send_response(response.status)
            for name, value in response.headers.items():
                self.send_header(name, value)
            self.send_header("Content-Length", str(len(response.body)))
            self.end_headers()
            self.wfile.write(response.body)
            self.close_connection = self.close_connection or response.disconnects

        do_GET = do_POST

        def log_message(self, *_: object) -> None:
            """Log nothing."""

    return Handler


def tensor(dtype: str, *sizes: int) -> dict[str, Any]:
    """Return a tensor of TensorFlow Serving's metadata; the first size is the batch."""
    dims = [{"size": str(size), "name": ""} for size in sizes]
    shape = {"dim": dims, "unknown_rank": False}
    return {"dtype": dtype, "tensor_shape": shape, "name": "any:0"}


def metadata(**signatures: tuple[Mapping[str, Any], Mapping[str, Any]]) -> Response:
    """Return a response of /metadata; signatures are inputs and outputs by name."""
    definitions = {
        name: {
            "inputs": inputs,
            "outputs": outputs,
            "method_name": "tensorflow/serving/predict",
        }
        for name, (inputs, outputs) in signatures.items()
    }
    return Response.value(
        {
            "model_spec": {"name": "m", "signature_name": "", "version": "1"},
            "metadata": {"signature_def": {"signature_def": definitions}},
        }
    )
