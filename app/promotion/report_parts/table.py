"""A report as lines for a terminal."""

from collections.abc import Iterator, Sequence

from app.promotion.report import Report

_MAX_ROWS = 5


def lines(report: Report) -> Iterator[str]:
    """Yield the table: latencies, agreement, the rows that differ most."""
    serving, new = report.versions
    yield _columns("", [f"version {serving}", f"version {new}"])
    for each in report.times:
        times = [f"{1000 * s:.2f} ms" for s in (each.serving_s, each.candidate_s)]
        yield _columns(f"batch of {each.rows}", times)
    failures = report.serving_failures, report.candidate_failures
    if any(each.rows for each in failures):
        yield _columns("failed rows", [str(each.rows) for each in failures])
    for compared in report.compared:
        for output in compared.outputs:
            named = len(report.compared) > 1
            prefix = f"{compared.signature_name}, " if named else ""
            yield f"  {prefix}{output.describe()}"
            if output.top_classes == 1:
                yield "  note: all rows have one top class, so this tells little"
    yield from (f"  note: {text}" for text in _notes(report))
    different = report.most_different(_MAX_ROWS)
    if different:
        yield "  rows that differ most:"
    for row in different:
        yield f"    {row.describe()}"


def _columns(title: str, figures: Sequence[str]) -> str:
    return f"  {title:14}" + "".join(f"{each:>14}" for each in figures)


def _notes(report: Report) -> Iterator[str]:
    """Yield what limits the report, and what does not count against the new version."""
    serving, _ = report.versions
    yield from report.rows.notes
    if report.signature_changes:
        yield report.signature_text()
    left_out = len(report.rows) - report.fitting_rows
    if left_out:
        yield f"{left_out} of {len(report.rows)} rows do not fit the new version"
    if report.ran_rows < report.fitting_rows:
        yield (f"out of time: based on {report.ran_rows} of {report.fitting_rows} rows")
    failed, reason = report.serving_failures
    if failed:
        yield f"version {serving} fails on {failed} rows, which do not count: {reason}"
