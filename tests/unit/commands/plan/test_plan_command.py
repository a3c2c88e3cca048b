"""`models plan`: arguments, tables, errors."""

import re
from functools import partial

import pytest

from app.commands.plan.search import largest_that_holds
from tests.support.cases import case
from tests.support.plan import short_plans, table

GIVEN = ("plan", "--base-ms", "300", "--per-row-ms", "0")
USERS = ("--users", "50", "--think", "1-3")
LIMIT = ("--p95-ms", "650")


@pytest.fixture
def command(monkeypatch, tmp_path):
    """Run `models plan` with a folder of models; return exit status and output.

    Small batches take few users, and so few requests, to fill.
    """
    return partial(short_plans(monkeypatch, tmp_path, 200), max_batch_size=16)


def test_plan_of_given_times_shows_servers_limit_and_cost(command):
    """The fewest servers are named and marked, and what one server holds."""
    status, output = command(*GIVEN, *USERS, *LIMIT, "--price", "3.06")
    assert status == 0
    assert "50 users that think 1 to 3 s; over servers: random" in output
    rows = table(output)
    assert list(rows) == [1, 2]
    mean_ms, p50_ms, p95_ms, p99_ms = (float(rows[1][n]) for n in (0, 1, 2, 4))
    assert 400 < mean_ms < 500
    assert p50_ms < p95_ms < p99_ms < 650
    assert rows[1][-1] == "$2,203"
    assert "\n*      1 " in output
    assert (
        "1 server holds a p95 of 650 ms: $2,203 a month (720 hours at $3.06)" in output
    )
    (most,) = re.findall(r"one server holds a p95 of 650 ms up to (\d+) users", output)
    assert 50 < int(most) < 150


def test_articles_cost_sum(command):
    """500 ms a request, 100 requests/s and $3.06 an hour are $110,160 a month."""
    article = ("plan", "--base-ms", "500", "--rate", "100", "--price", "3.06")
    status, output = command(*article, "--p95-ms", "1200", max_batch_size=64)
    assert status == 0
    assert (
        "without batching a server answers 2 requests/s: at least 50 servers, "
        "$110,160 a month"
    ) in output
    assert "1 server holds a p95 of 1,200 ms: $2,203 a month" in output
    assert table(output)[2][-1] == "$4,406"


def test_more_users_need_more_servers(command):
    """With 4 rows a batch, 125 users need more than three servers."""
    users = ("--users", "125", "--think", "1-3")
    status, output = command(*GIVEN, *users, *LIMIT, max_batch_size=4)
    assert status == 0
    rows = table(output)
    fewest = int(re.findall(r"\n\*\s+(\d+) ", output)[0])
    assert 3 < fewest < 8
    assert {*rows} >= {*range(1, fewest + 2)}
    for servers in (1, 2, fewest - 1, fewest):
        holds = float(rows[servers][2]) <= 650 and rows[servers][8] == "0.00%"
        assert holds == (servers == fewest)


def test_an_open_load_of_internet_scale_is_planned_in_a_few_simulations(command):
    """50,000 requests/s need some more servers than their full batches fill."""
    given = ("--rate", "50000", "--p95-ms", "700", "--spread", "least-of-two")
    status, output = command(*GIVEN, *given, max_batch_size=64)
    assert status == 0
    assert "50,000 requests/s; over servers: least-of-two" in output
    fewest = int(re.findall(r"\n\*\s+(\d+) ", output)[0])
    assert 50_000 / (64 / 0.3) < fewest < 300
    assert len(table(output)) < 20
    assert re.search(
        r"one server holds a p95 of 700 ms up to \d+\.?\d* requests/s", output
    )


def test_the_same_arguments_give_the_same_plan(command):
    """Randomness is seeded."""
    few = ("--users", "5", "--think", "1-3")
    plans = {command(*GIVEN, *few, *LIMIT, max_batch_size=2) for _ in range(2)}
    assert len(plans) == 1


def test_plan_of_a_model_that_does_not_load(command, tmp_path):
    """The error is that of loading it."""
    (tmp_path / "bad" / "1").mkdir(parents=True)
    (tmp_path / "bad" / "1" / "simulated.json").write_text("{")
    status, output = command("plan", "bad", "--rate", "20", "--p95-ms", "100")
    assert status == 1
    assert "Error: simulated.json: " in output


@pytest.mark.parametrize(
    ("args", "text"),
    [
        ((*GIVEN, "--users", "0", "--think", "1-3", *LIMIT), "'--users': 0 is not in"),
        ((*GIVEN, "--users", "9", "--think", "3-1", *LIMIT), "the least comes first"),
        ((*GIVEN, "--users", "9", "--think", "x", *LIMIT), "such as 2 or 1-3"),
        ((*GIVEN, "--users", "9", "--think", "-1", *LIMIT), "such as 2 or 1-3"),
        ((*GIVEN, "--users", "9", *LIMIT), "--users wants --think, such as 1-3"),
        ((*GIVEN, *USERS, "--rate", "9", *LIMIT), "--users or --rate, and not both"),
        ((*GIVEN, *LIMIT), "--users or --rate, and not both"),
        ((*GIVEN, "--rate", "9", "--think", "1", *LIMIT), "--think is of --users"),
        ((*GIVEN, "--rate", "0", *LIMIT), "'--rate': 0.0 is not in the range 0<x<="),
        ((*GIVEN, "--rate", "1e300", *LIMIT), "'--rate': 1e+300 is not in the range"),
        ((*GIVEN, "--users", "9", "--think", "1e300", *LIMIT), "such as 2 or 1-3"),
        ((*GIVEN, *USERS), "Missing option '--p95-ms'"),
        ((*GIVEN, *USERS, "--p95-ms", "nan"), "not a finite number"),
        (("plan", "a", "--base-ms", "3", *USERS, *LIMIT), "NAME, or --base-ms"),
        (("plan", *USERS, *LIMIT), "NAME, or --base-ms"),
        (("plan", "a", "--per-row-ms", "3", *USERS, *LIMIT), "goes with --base-ms"),
        (("plan", "--base-ms", "0", *USERS, *LIMIT), "a batch takes some time"),
        (("plan", "--base-ms", "1e-300", *USERS, *LIMIT), "some time, 0.001 ms or"),
        ((*GIVEN, *USERS, *LIMIT, "--spread", "all"), "'all' is not one of"),
    ],
)
def test_wrong_arguments_say_what_is_expected(command, args, text):
    """A wrong argument ends with status 2 and a text, before anything is simulated."""
    status, output = command(*args)
    assert status == 2
    assert text in " ".join(output.split())
    assert "simulating" not in output


def test_a_limit_below_the_time_of_one_row_is_impossible(command):
    """The text says that no number of servers can hold it, and why."""
    assert command(*GIVEN, *USERS, "--p95-ms", "300", "--overhead-ms", "2") == (
        1,
        "Error: no number of servers can hold a p95 of 300 ms: a batch of one row "
        "takes 300 ms, and a request 2 ms besides\n",
    )


def test_a_row_that_takes_longer_than_the_request_timeout_is_impossible(command):
    """Nothing is simulated: each request would end with a 504."""
    long = ("--base-ms", "40000", "--rate", "1", "--p95-ms", "50000")
    assert command("plan", *long) == (
        1,
        "Error: no number of servers can answer: a batch of one row takes 40000 ms, "
        "and BASKET_REQUEST_TIMEOUT_MS is 30000\n",
    )


def test_a_limit_that_only_a_timeout_prevents_is_reported(command):
    """With a fixed timeout even a server for each user does not hold 650 ms."""
    few = ("--users", "2", "--think", "1-3")
    status, output = command(*GIVEN, *few, *LIMIT, batch_timeout_micros=500_000)
    assert status == 0
    assert "none of these numbers of servers holds a p95 of 650 ms" in output
    assert "one server holds a p95 of 650 ms under no load" in output


def test_unknown_model_and_batching_off(command):
    """Each is one line that says what is wrong."""
    status, output = command("plan", "nowhere", *USERS, *LIMIT)
    assert (status, output) == (1, "Error: no model 'nowhere'; there are: none\n")
    status, output = command(*GIVEN, *USERS, *LIMIT, batching=False)
    assert status == 1
    assert output.startswith("Error: BASKET_BATCHING=off: ")


def test_plot_names_the_missing_package(command, tmp_path, monkeypatch):
    """Without matplotlib the command fails at once, with the pip command."""
    monkeypatch.setattr("app.commands.plan.plot.find_spec", lambda name: None)
    file = tmp_path / "p95.png"
    assert command(*GIVEN, *USERS, *LIMIT, "--plot", str(file)) == (
        1,
        "Error: --plot needs a package that is not here: pip install matplotlib\n",
    )


@pytest.mark.parametrize(
    ("name", "problem"),
    [
        ("missing/p95.png", "there is no folder {folder}/missing"),
        ("p95.txt", "expected a name that ends in .png, .svg, .pdf, .webp, .jpg or"),
        ("p95", "expected a name that ends in .png, .svg,"),
    ],
)
def test_plot_that_can_not_be_written_fails_before_the_measurement(
    command, tmp_path, monkeypatch, name, problem
):
    """The file's folder and its ending are checked first."""
    monkeypatch.setattr("app.commands.plan.plot.find_spec", lambda name: name)
    monkeypatch.setattr("app.commands.plan.command.measured", pytest.fail)
    file = tmp_path / name
    arguments = ("plan", "a", *USERS, *LIMIT, "--plot", str(file))
    status, output = command(*arguments)
    assert status == 1
    assert output.startswith(
        f"Error: --plot {file}: {problem.format(folder=tmp_path)}"
    ), output
    assert len(output.splitlines()) == 1


@pytest.mark.parametrize("edge", [0, 1, 2, 7, 8, 99, 100])
def test_largest_number_that_holds_is_found_from_any_guess(edge):
    """Without a precision it is exact, and few numbers are tried."""
    tried = []

    def holds(number):
        assert 1 <= number <= 100
        tried.append(number)
        return number <= edge

    for guess in (0, 1, 8, 50, 1000):
        tried.clear()
        with case(guess):
            assert largest_that_holds(holds, guess, 100, 0) == edge
            assert len(tried) == len(set(tried)) < 15
