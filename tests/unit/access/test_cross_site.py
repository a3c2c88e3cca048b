"""The check of Host, Origin and Sec-Fetch-Site on a loopback address."""

import pytest

from app.access.cross_site import CrossSiteCheck
from app.errors import Forbidden

ALLOWED = ("shop", "basket.example.com")


def problem(server="127.0.0.1", check=None, *, is_page=False, **headers):
    """Return why a request is refused, "" if it is not."""
    headers = {name.replace("_", "-"): value for name, value in headers.items()}
    try:
        (check or CrossSiteCheck(ALLOWED)).check(headers, server, is_page=is_page)
    except Forbidden as error:
        return str(error)
    return ""


@pytest.mark.parametrize(
    "host",
    [
        "localhost",
        "localhost:8000",
        "LOCALHOST:8000",
        "localhost.",
        "localhost.:8000",
        "basket.localhost",
        "127.0.0.1",
        "127.0.0.1:8000",
        "127.0.0.2:80",
        "[::1]",
        "[::1]:8000",
        "[::ffff:127.0.0.1]:8000",
        "[0:0:0:0:0:0:0:1]",
        "shop",
        "Basket.Example.com:443",
        "basket.example.com.",
        "",
    ],
)
def test_own_host_is_answered(host):
    """A loopback address, a name of localhost, or an allowed name, with any port."""
    assert not problem(host=host)
    assert not problem("::1", host=host)


@pytest.mark.parametrize(
    "host",
    [
        "evil.example",
        "evil.example:8000",
        "localhost.evil.example",
        "127.0.0.1.evil.example",
        "evillocalhost",
        "notshop",
        "evil.basket.example.com",
        "0.0.0.0:8000",
        "10.0.0.7:8000",
        "[::]:8000",
        "[fe80::1]",
        "2130706433",
        "0x7f.1",
        "127.1",
        "0177.0.0.1",
        "user@localhost",
        "evil.example@localhost",
        "localhost@evil.example",
        "localhost,evil.example",
        "localhost, localhost",
        "localhost:80:80",
        "localhost:port",
        "localhost/",
        "localhost evil",
        "localhost..",
        ".",
        "::1",
        "[localhost]",
        "[::1",
        "http://localhost",
        "127.0.0.1\x00",
    ],
)
def test_foreign_or_malformed_host_is_refused(host):
    """The error quotes the host, and names the setting that allows it."""
    text = problem(host=host)
    assert text.startswith("Host: ")
    assert "BASKET_ALLOWED_HOSTS" in text
    assert problem("::1", host=host)


@pytest.mark.parametrize(
    "server", ["10.0.0.7", "::", "fe80::1%eth0", "unix", "/run/basket.sock", "", "box"]
)
def test_address_that_is_not_loopback_is_not_checked(server):
    """Other machines ask for such a server by any name."""
    assert not problem(server, host="evil.example", origin="null")


@pytest.mark.parametrize(
    "server", ["127.0.0.1", "127.8.9.1", "::1", "::ffff:127.0.0.1", "localhost"]
)
def test_each_loopback_address_is_checked(server):
    """All of 127.0.0.0/8, and ::1, are this machine."""
    assert problem(server, host="evil.example")


@pytest.mark.parametrize(
    "origin",
    [
        "http://localhost:8000",
        "https://localhost:8000",
        "HTTP://LOCALHOST:8000",
        "https://shop",
        "http://shop:9999",
    ],
)
def test_own_or_allowed_origin_is_answered(origin):
    """A page of the server itself, or of an allowed name with any port."""
    assert not problem(host="localhost:8000", origin=origin)


@pytest.mark.parametrize(
    "origin",
    [
        "null",
        "",
        "http://",
        "http://evil.example",
        "http://localhost",
        "http://localhost:3000",
        "http://127.0.0.1:8000",
        "http://localhost:8000.evil.example",
        "http://localhost:8000/",
        "http://user@localhost:8000",
        "http://localhost:8000, http://evil.example",
        "file://localhost:8000",
        "chrome-extension://shop",
        "localhost:8000",
    ],
)
def test_foreign_or_malformed_origin_is_refused(origin):
    """Another port is another origin, and "null" is nobody's."""
    text = problem(host="localhost:8000", origin=origin)
    assert text.startswith("Origin: ")
    assert "BASKET_ALLOWED_HOSTS" in text


def test_origin_without_a_host_is_refused():
    """A page of no site, and a request without Host, are not the same origin."""
    assert problem(host="", origin="null")
    assert problem(host="", origin="http://")


@pytest.mark.parametrize("site", ["", "none", "same-origin", "Same-Origin"])
def test_request_of_the_same_site_is_answered(site):
    """What the user typed, what the server's own page sends, and what is no browser."""
    assert not problem(host="localhost:8000", sec_fetch_site=site)


@pytest.mark.parametrize(
    "site", ["cross-site", "same-site", "CROSS-SITE", "none, cross-site", "new"]
)
def test_request_of_another_site_is_refused(site):
    """Another port of localhost is the same site, and refused; unknown words too."""
    assert problem(host="localhost:8000", sec_fetch_site=site)
    own = problem(
        host="localhost:8000", origin="http://localhost:8000", sec_fetch_site=site
    )
    assert own.startswith("Sec-Fetch-Site: ")


LINK = {"host": "localhost:8000", "sec_fetch_site": "cross-site"}
FOLLOWED = {"sec_fetch_mode": "navigate", "sec_fetch_dest": "document"}


@pytest.mark.parametrize("site", ["cross-site", "same-site"])
def test_link_on_another_site_leads_to_a_page(site):
    """What the user follows opens in a window of its own, which the site can't read."""
    followed = LINK | FOLLOWED | {"sec_fetch_site": site}
    assert not problem(is_page=True, **followed)
    assert problem(**followed)


@pytest.mark.parametrize(
    "other",
    [
        {"sec_fetch_mode": "no-cors"},
        {"sec_fetch_mode": ""},
        {"sec_fetch_dest": "iframe"},
        {"sec_fetch_dest": ""},
        {"origin": "https://evil.example"},
        {"origin": "null"},
        {"host": "evil.example"},
    ],
    ids=str,
)
def test_page_is_refused_to_what_is_no_link(other):
    """Frames, scripts and forms of another site, and rebound names, get no page."""
    assert problem(is_page=True, **(LINK | FOLLOWED | other))


def test_allowed_origin_may_be_of_another_site():
    """Else the name in BASKET_ALLOWED_HOSTS would allow nothing."""
    headers = {"host": "localhost:8000", "sec_fetch_site": "cross-site"}
    assert not problem(**headers, origin="https://shop")
    assert problem(**headers, origin="https://evil.example")


def test_page_behind_a_proxy_is_of_the_forwarded_host():
    """The origin of a proxy's own page is the name that the client asked it for."""
    behind = {"host": "localhost", "x_forwarded_host": "Till.example:8443"}
    assert not problem(**behind)
    assert not problem(**behind, origin="https://till.example:8443")
    assert problem(**behind, origin="https://evil.example")
    assert problem(**behind, origin="null")
    assert problem(**{**behind, "host": "evil.example"}, origin="http://evil.example")
    assert problem(host="evil.example", x_forwarded_host="localhost")


@pytest.mark.parametrize(
    ("hosts", "is_checked"),
    [
        (["127.0.0.1"], True),
        (["::1"], True),
        (["127.0.0.1", "10.0.0.7"], True),
        (["0.0.0.0"], False),
        (["::"], False),
        (["127.0.0.1", "0.0.0.0"], False),
        (["10.0.0.7"], False),
        ([], False),
    ],
)
def test_listening_addresses_turn_the_check_on_or_off(hosts, is_checked):
    """With 0.0.0.0 proxies and probes come in on 127.0.0.1; Unix sockets have none."""
    check = CrossSiteCheck(())
    check.listens_at(hosts)
    assert bool(problem(check=check, host="evil.example")) is is_checked


def test_long_header_is_quoted_in_part():
    """An error stays short."""
    for name in ("host", "origin", "sec_fetch_site"):
        text = problem(**({"host": "localhost"} | {name: "x" * 5000}))
        assert text
        assert len(text) < 400
