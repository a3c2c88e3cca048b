"""The page, /docs and their files: who gets them, with which headers."""

import re
from html.parser import HTMLParser
from pathlib import Path

import pytest

from app import create_app
from app.web.page import page
from app.settings import Settings

FILES = Path(page.__file__).with_name("files")
BROWSER = {"Accept": "text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8"}


@pytest.fixture(name="client", scope="module")
def _client(tmp_path_factory):
    settings = Settings(model_dir=tmp_path_factory.mktemp("models"), api_keys=("key",))
    return create_app(settings).flask.test_client()


def loaded_by(html):
    """Return the addresses that a page loads, and its inline scripts and styles."""
    found, inline = [], []

    class Reader(HTMLParser):
        def handle_starttag(self, tag, attrs):
            given = dict(attrs)
            found.extend(given[key] for key in ("src", "href") if key in given)
            is_inline = tag == "style" or (tag == "script" and "src" not in given)
            inline.extend([tag] * is_inline)
            inline.extend(name for name in given if name[:2] == "on" or name == "style")

    Reader().feed(html)
    return found, inline


def test_browser_gets_the_page_without_a_key(client):
    """A request that prefers HTML gets the page, for everybody and never cached."""
    response = client.get("/", headers=BROWSER)
    assert (response.status_code, response.mimetype) == (200, "text/html")
    assert "<title>Basket</title>" in response.text
    assert response.headers["Cache-Control"] == "no-cache"
    assert response.headers["Vary"] == "Accept"


@pytest.mark.parametrize("accept", [None, "*/*", "application/json", "text/*;q=0"])
def test_other_clients_get_health(client, accept):
    """Whoever does not prefer HTML gets what /healthz answers."""
    headers = {"Accept": accept} if accept else {}
    response = client.get("/", headers=headers)
    assert response.json == {"status": "alive"}
    assert response.headers["Vary"] == "Accept"


@pytest.mark.parametrize("path", ["/", "/docs", "/page/app.js", "/page/style.css"])
def test_pages_allow_nothing_of_other_hosts(client, path):
    """The policy names this server alone, and no inline script or style."""
    headers = client.get(path, headers=BROWSER).headers
    policy = headers["Content-Security-Policy"]
    assert policy.startswith("default-src 'self'; ")
    assert "frame-ancestors 'none'" in policy
    assert not re.search("unsafe|http|\\*", policy)
    assert headers["X-Content-Type-Options"] == "nosniff"
    assert headers["Referrer-Policy"] == "no-referrer"


@pytest.mark.parametrize("path", ["/", "/docs"])
def test_all_that_a_page_loads_is_served_without_a_key(client, path):
    """Each script and style sheet is there for strangers; nothing is inline."""
    addresses, inline = loaded_by(client.get(path, headers=BROWSER).text)
    assert inline == []
    ours = [each for each in addresses if each.startswith("page/")]
    assert len(ours) >= 2
    for each in ours:
        assert client.get(f"/{each}").status_code == 200, each
    assert all(re.match(r"page/|data:|#|docs$|\.$", each) for each in addresses)


@pytest.mark.parametrize("file", sorted(FILES.glob("*.js")), ids=lambda file: file.name)
def test_each_import_of_a_script_is_served(client, file):
    """Modules import only files of the page."""
    for name in re.findall(r'from "(.*?)"', file.read_text()):
        assert client.get(f"/page/{name.removeprefix('./')}").status_code == 200


def test_swagger_ui_ships_its_files(client):
    """flask-swagger-ui has the two files that /docs loads."""
    script = client.get("/page/swagger-ui-bundle.js")
    assert (script.status_code, script.mimetype) == (200, "text/javascript")
    assert "SwaggerUIBundle" in script.text
    assert client.get("/page/swagger-ui.css").mimetype == "text/css"


def test_known_file_is_not_sent_again(client):
    """A client that shows the ETag of a file gets a 304."""
    tag = client.get("/page/app.js").headers["ETag"]
    response = client.get("/page/app.js", headers={"If-None-Match": tag})
    assert (response.status_code, response.data) == (304, b"")


@pytest.mark.parametrize("name", ["page.py", "..%2fpage.py", "index.html", "app.js/"])
def test_no_other_file_is_served(client, name):
    """Only the named files are there; a stranger does not learn that."""
    assert client.get(f"/page/{name}").status_code == 401
    headers = {"Authorization": "Bearer key"}
    assert client.get(f"/page/{name}", headers=headers).status_code == 404


def test_page_is_small():
    """All of the page but Swagger UI is below 300 KiB, the charts below 200 lines."""
    assert sum(file.stat().st_size for file in FILES.iterdir()) < 300 << 10
    assert len((FILES / "chart.js").read_text().splitlines()) <= 200
