import re
from dataclasses import replace

from benchmarks import documents, outbox_rows, report, transactions
from benchmarks.contenders import BY_OUTBOX, HANDLERS, RAW
from benchmarks.record import Record
from benchmarks.trees import ROOT
from tests.benchmarks.contenders import SAFE, A, B

NODE = replace(B, name="node one", module="peers/b.js")
CONTENDERS = [RAW, HANDLERS, A, SAFE, NODE]
FIGURES = {
    RAW.name: {"handle /s": 1000.0, "at rest p50 ms": 1.0, "at rest p99 ms": 2.0},
    HANDLERS.name: {
        "handle /s": 700.0,
        "2 processes /s": 900.0,
        "2 processes: Redis's core %": 98.0,
        "at rest p50 ms": 1.2,
        "at rest p99 ms": 2.2,
        "kill missing": 0.0,
        "bulk /s": 5.0,
    },
    A.name: {"handle /s": 20.0, "at rest p50 ms": 3.0, "at rest p99 ms": 9.0, "kill missing": 7.0},
    SAFE.name: {"handle /s": 10.0, "kill missing": 0.0},
    NODE.name: {"handle /s": 350.0, "at rest p50 ms": 4.0, "at rest p99 ms": 8.0},
}
OUTBOX_FIGURES = {
    outbox_rows.name_of("postgresql", outbox_rows.RELAYED): 5400.0,
    outbox_rows.name_of("postgresql", outbox_rows.FSYNC): 0.25,
    outbox_rows.name_of("sqlite", outbox_rows.RELAYED): 4100.0,
}
IN_DJANGO = {
    transactions.ALONE: 1.0,
    transactions.PUBLISHED: 1.5,
    transactions.BY_ALONE: 1.5,
    transactions.P50: 9.0,
    transactions.P99: 12.04,
    transactions.HANDLED: 4000.0,
}


def record(figures=FIGURES, failures=()):
    values = {who: {name: [value] for name, value in row.items()} for who, row in figures.items()}
    return Record(
        machine={"date": "2026-11-20 21:00 UTC", "cores": "2 of some make", "Redis": "7.0.15"},
        seconds=90.0,
        contenders=list(figures),
        values=values,
        failures=failures,
    )


def rows(table):
    lines = [line.strip("| ").split(" | ") for line in table.splitlines()[2:]]
    return {cells[0]: cells[1:] for cells in lines}


def test_a_target_holds_or_is_missed(subtests):
    for value, missed in [(0.59, ", **missed**: [why](#where-the-time-goes)"), (0.6, "")]:
        with subtests.test(value=value):
            figures = {RAW.name: {"handle /s": 1000.0}, HANDLERS.name: {"handle /s": value * 1000}}
            line = next(
                line for line in report.targets(figures).splitlines() if "one process, by the raw limit |" in line
            )
            assert line.endswith(f"| ≥ 0.6 | {value:.2f}{missed} |")


def copy_pages(folder):
    for path in (documents.PAGE, documents.README, documents.TESTING, documents.TRANSACTIONS, documents.COMPARISON):
        (folder / path).parent.mkdir(exist_ok=True)
        (folder / path).write_text((ROOT / path).read_text(encoding="utf-8"), encoding="utf-8")
    (folder / documents.DRAWING).parent.mkdir()


def test_who_publishes_in_transactions_has_a_table_of_those_who_do(tmp_path):
    copy_pages(tmp_path)
    figures, contenders = {**FIGURES, BY_OUTBOX.name: IN_DJANGO}, [*CONTENDERS, BY_OUTBOX]
    assert rows(report.transactions(figures, contenders)) == {
        BY_OUTBOX.name: ["1.00 / 1.50", "1.50", "9.0 / 12.0", "4,000"]
    }
    assert "in Django" not in report.others(figures, contenders)
    assert report.transactions(FIGURES, CONTENDERS) == ""
    documents.write(record(figures), contenders, tmp_path, steps=["transactions"])
    assert f"| {BY_OUTBOX.name} | 1.00 / 1.50 |" in (tmp_path / documents.COMPARISON).read_text(encoding="utf-8")


def test_a_step_alone_renews_its_own_page(tmp_path):
    copy_pages(tmp_path)
    before = (tmp_path / documents.PAGE).read_text(encoding="utf-8")
    documents.write(record({HANDLERS.name: OUTBOX_FIGURES}), CONTENDERS, tmp_path, steps=["outbox"])
    costs = (tmp_path / documents.TRANSACTIONS).read_text(encoding="utf-8").partition("## What each costs")[2]
    assert "| rows relayed /s | 5,400 | 4,100 |" in costs
    assert (tmp_path / documents.PAGE).read_text(encoding="utf-8") == before
    assert not (tmp_path / documents.DRAWING).exists()


def test_all_pages_have_their_place_and_are_renewed(tmp_path):
    copy_pages(tmp_path)
    tests = {**FIGURES[HANDLERS.name], "test fixture p50 ms": 0.5, "test fixture p95 ms": 1.25, **OUTBOX_FIGURES}
    further = {**tests, "grown MB": 1.0}
    documents.write(record({**FIGURES, HANDLERS.name: further}), CONTENDERS, tmp_path)
    page = (tmp_path / documents.PAGE).read_text(encoding="utf-8")
    assert "### Targets" in page
    assert "Growth and further figures" not in page
    assert "## Growth and further figures" in report.markdown(record({HANDLERS.name: further}), CONTENDERS)
    costs = (tmp_path / documents.TESTING).read_text(encoding="utf-8").partition("## Cost")[2]
    assert "| an empty test with the fixture `mq` | 0.5 | 1.25 |" in costs
    readme = (tmp_path / documents.README).read_text(encoding="utf-8")
    assert "One process handles 700 messages a second: 0.70 of the rate of bare redis-py, and 2 times that" in readme
    assert "when the consumer was killed three times. Measured on 2026-11-20" in readme
    assert re.search(rf"!\[[^]]+\]\({re.escape(str(documents.DRAWING))}\)", readme)
    assert (tmp_path / documents.DRAWING).read_text(encoding="utf-8").startswith("<svg")
