"""A hostile page in Chromium, and a server on 127.0.0.1 without keys."""

import contextlib
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from testing.server import metric_sum, serving, simulated_models, wait_until
from tests.support.browser import browsing, needs_chromium

pytestmark = needs_chromium
MODEL = {"base_ms": 0, "input_shape": [1], "outputs": 1}
EVIL = "evil.example"
ROW = '{"instances": [[1.0]]}'
FORBIDDEN = 'basket_rejected_total{reason="forbidden"}'
# Each sends one POST to the URL in arguments[0], and gives what the page sees of it to
# the last argument.
SENDERS = {
    "form": """
        const form = document.createElement('form'), field = new Option();
        document.body.innerHTML = '<iframe name="answer"></iframe>';
        Object.assign(form, {method: 'post', enctype: 'text/plain', target: 'answer'});
        form.action = arguments[0];
        form.innerHTML = '<input type="hidden">';
        form.firstChild.name = '{"instances": [[1.0]], "ignored": "';
        form.firstChild.value = '"}';
        document.body.append(form);
        const frame = document.querySelector('iframe'), done = arguments[1];
        frame.onload = () => {
            try { done(frame.contentDocument.body.innerText || 'nothing'); }
            catch (error) { done('nothing'); }
        };
        form.submit();
    """,
    "fetch of text": """
        const done = arguments[1];
        fetch(arguments[0], {method: 'POST', body: '{"instances": [[1.0]]}'})
            .then(reply => reply.text()).then(done, error => done('nothing'));
    """,
    "fetch without CORS": """
        const done = arguments[1];
        fetch(arguments[0],
              {method: 'POST', mode: 'no-cors', body: '{"instances": [[1.0]]}'})
            .then(reply => reply.text())
            .then(text => done(text || 'nothing'), error => done('nothing'));
    """,
    "fetch without a type": """
        const done = arguments[1], body = new Blob(['{"instances": [[1.0]]}']);
        fetch(arguments[0], {method: 'POST', mode: 'no-cors', body})
            .then(reply => reply.text())
            .then(text => done(text || 'nothing'), error => done('nothing'));
    """,
    "beacon": """
        navigator.sendBeacon(arguments[0], '{"instances": [[1.0]]}');
        arguments[1]('nothing');
    """,
}
READ = """
    const [url, options, done] = arguments;
    fetch(url, options).then(async reply => done([reply.status, await reply.text()]),
                             error => done([0, 'nothing']));
"""


class _Page(BaseHTTPRequestHandler):
    """An empty page."""

    def do_GET(self) -> None:
        self.send_response(200)
        self.send_header("Content-Type", "text/html")
        self.send_header("Content-Length", "6")
        self.end_headers()
        self.wfile.write(b"<body>")

    def log_message(self, *_: object) -> None:
        """Log nothing."""


@contextlib.contextmanager
def _attacker() -> Iterator[int]:
    """Serve the page of an attacker, and give its port."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), _Page)
    threading.Thread(target=server.serve_forever).start()
    try:
        yield server.server_port
    finally:
        server.shutdown()
        server.server_close()


@pytest.fixture(name="models", scope="module")
def _models(tmp_path_factory):
    return simulated_models(tmp_path_factory.mktemp("models"), m=MODEL)


@pytest.fixture(name="server", scope="module")
def _server(models):
    with serving("--threads=4", model_dir=models) as server:
        yield server


@pytest.fixture(name="allowing", scope="module")
def _allowing(models):
    """Serve with the attacker's name in BASKET_ALLOWED_HOSTS."""
    with serving("--threads=4", model_dir=models, allowed_hosts=EVIL) as server:
        yield server


@pytest.fixture(name="browser", scope="module")
def _browser():
    """A browser in which the attacker's name is an address of this machine."""
    with browsing(f"--host-resolver-rules=MAP {EVIL} 127.0.0.1") as browser:
        yield browser


@pytest.fixture(name="page", scope="module")
def _page():
    with _attacker() as port:
        yield f"http://{EVIL}:{port}/"


def _ran(server):
    return metric_sum(server, "basket_batch_rows_sum")


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost", "x.localhost", "0.0.0.0"])
@pytest.mark.parametrize("sender", SENDERS)
def test_page_of_another_site_runs_no_prediction(server, browser, page, sender, host):
    """The request reaches the server, is refused, and the page sees nothing."""
    refused, ran = server.metric(FORBIDDEN), _ran(server)
    browser.get(page)
    url = f"http://{host}:{server.port}/predict"
    assert browser.execute_async_script(SENDERS[sender], url) == "nothing"
    wait_until(lambda: server.metric(FORBIDDEN) == refused + 1, 60)
    assert _ran(server) == ran


@pytest.mark.parametrize("sender", SENDERS)
def test_same_page_runs_predictions_where_its_site_is_allowed(
    allowing, browser, page, sender
):
    """The requests of the test before are valid, but for where they come from."""
    ran = _ran(allowing)
    browser.get(page)
    url = f"http://127.0.0.1:{allowing.port}/predict"
    # Without CORS the page sees nothing here either.
    assert browser.execute_async_script(SENDERS[sender], url) == "nothing"
    wait_until(lambda: _ran(allowing) == ran + 1, 60)


@pytest.mark.parametrize(
    "options",
    [
        {"method": "POST", "headers": {"Content-Type": "application/json"}},
        {"method": "POST", "headers": {"X-Forwarded-Host": EVIL}},
        {"method": "POST", "headers": {"Authorization": "Bearer guess"}},
        {"method": "PUT"},
    ],
    ids=str,
)
def test_preflight_allows_nothing(server, browser, page, options):
    """What a page has to ask for by OPTIONS, which is refused, is not sent."""
    refused, ran = server.metric(FORBIDDEN), _ran(server)
    browser.get(page)
    url = f"http://127.0.0.1:{server.port}/predict"
    seen = browser.execute_async_script(READ, url, options | {"body": ROW})
    assert seen == [0, "nothing"]
    assert (server.metric(FORBIDDEN), _ran(server)) == (refused + 1, ran)


@pytest.mark.parametrize(
    "path", ["/", "/docs", "/readyz", "/metrics", "/v2/models", "/page/state"]
)
def test_page_of_another_site_reads_nothing(server, browser, page, path):
    """Neither a script of the page sees an answer, nor a link leads to data."""
    browser.get(page)
    url = f"http://localhost:{server.port}{path}"
    for mode in ("cors", "no-cors"):
        seen = browser.execute_async_script(READ, url, {"mode": mode})
        assert seen == [0, "nothing" if mode == "cors" else ""]
    browser.execute_script(f"location.href = {url!r}")
    # The pages of the server are shown; else the user sees the refusal.
    is_page = path in ("/", "/docs")
    expected = 'id="key-form"' if is_page else "BASKET_ALLOWED_HOSTS"
    wait_until(lambda: expected in browser.page_source, 60)


CROSS_ORIGIN = """
    const [url, options, done] = arguments;
    fetch(url, options).then(
        async reply => done([reply.status, reply.headers.get('X-Model-Version'),
                             await reply.text()]),
        error => done('nothing'));
"""
KEY = "s3cret"


@pytest.fixture(name="trusting", scope="module")
def _trusting(models, page):
    """Serve with the page's origin in BASKET_ALLOWED_ORIGINS, and an API key."""
    settings = {"allowed_origins": page.rstrip("/"), "api_keys": KEY}
    with serving("--threads=4", model_dir=models, **settings) as server:
        server.headers["Authorization"] = f"Bearer {KEY}"
        yield server


def _sent_from(browser, page, server, key):
    """Return what a page sees of its POST with JSON, a key and a deadline."""
    browser.get(page)
    headers = {
        "Authorization": f"Bearer {key}",
        "Content-Type": "application/json",
        "X-Request-Timeout-Ms": "9000",
    }
    options = {"method": "POST", "headers": headers, "body": ROW}
    url = f"http://127.0.0.1:{server.port}/predict"
    return browser.execute_async_script(CROSS_ORIGIN, url, options)


def test_page_of_an_allowed_origin_predicts(trusting, browser, page):
    """It reads the answer with its headers, and errors."""
    answer = [200, "1", '{"predictions":[[1.0]]}']
    assert _sent_from(browser, page, trusting, KEY) == answer
    status, _, text = _sent_from(browser, page, trusting, "guess")
    assert (status, "Authorization" in text) == (401, True)


def test_page_of_an_origin_that_is_not_listed_sends_nothing(trusting, browser):
    """The same site on another port is another origin, even with the key."""
    ran = _ran(trusting)
    with _attacker() as port:
        other = f"http://{EVIL}:{port}/"
        assert _sent_from(browser, other, trusting, KEY) == "nothing"
    assert _ran(trusting) == ran


FRAME = """
    const frame = document.createElement('iframe');
    frame.src = arguments[0];
    frame.onload = () => arguments[1](true);
    document.body.append(frame);
"""


@pytest.mark.parametrize("path", ["/", "/docs"])
def test_pages_are_in_no_frame_of_another_site(server, browser, page, path):
    """A page that is framed could be clicked unseen: its request is refused."""
    browser.get(page)
    browser.execute_async_script(FRAME, f"http://localhost:{server.port}{path}")
    browser.switch_to.frame(0)
    try:
        wait_until(lambda: "BASKET_ALLOWED_HOSTS" in browser.page_source, 60)
    finally:
        browser.switch_to.default_content()


@pytest.mark.parametrize(
    "headers",
    [
        {},
        {"X-Forwarded-Host": "localhost"},
        {"Forwarded": "host=localhost"},
        {"X-Real-Host": "localhost"},
    ],
    ids=str,
)
def test_rebound_name_gets_nothing(server, browser, headers):
    """A page whose own name leads to 127.0.0.1 is refused on every route."""
    refused, ran = server.metric(FORBIDDEN), _ran(server)
    origin = f"http://{EVIL}:{server.port}"
    # As after the rebinding: the origin is the attacker's, and the address Basket's.
    browser.get(f"{origin}/")
    assert "no name of this server" in browser.page_source
    for path in ("/readyz", "/metrics", "/v1/models", "/v2", "/openapi.json"):
        seen = browser.execute_async_script(READ, path, {"headers": headers})
        assert seen[0] == 403
    json = headers | {"Content-Type": "application/json"}
    for path in ("/predict", "/v1/models/m:predict", "/v2/models/m/infer"):
        post = {"method": "POST", "headers": json, "body": ROW}
        status, text = browser.execute_async_script(READ, path, post)
        assert (status, "predictions" in text) == (403, False)
    # The browser may ask for an icon, too.
    wait_until(lambda: server.metric(FORBIDDEN) - refused in (9, 10), 60)
    assert _ran(server) == ran


def test_page_of_the_server_itself_predicts(server, browser):
    """What the user typed is shown, and its scripts may use the server."""
    for host in ("localhost", "127.0.0.1", "basket.localhost"):
        browser.get(f"http://{host}:{server.port}/")
        assert browser.title == "Basket"
        post = {"method": "POST", "body": ROW}
        seen = browser.execute_async_script(READ, "/predict", post)
        assert seen == [200, '{"predictions":[[1.0]]}']
