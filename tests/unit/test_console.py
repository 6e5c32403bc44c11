"""The console in a real Chromium: each page opened, clicked and looked at, over a live stream and over a dead one."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from browser import Visit, chromium
from penstock.inspect.batches import Batches
from penstock.replica.reader import Reader
from penstock.workloads import bank as payments
from penstock.workloads import bind
from serving import Server, serving

WRITER = """
import sys, time
from penstock.workloads import bank, bind
app = bank.app()
with app.open(sys.argv[1], log="input") as db:
    while True:
        number = db.version
        db.run(bind(app, bank.payments(7, number, (300, 24)[number % 2])), id=number)
        print(number, flush=True)
        sys.stdin.readline()
"""
PAGES = ["#/", "#/tables", "#/tables/Account?where=balance+%3E+100", "#/tables/Account?version=1", "#/batches", "#/sql"]
PAGES += [
    "#/tables/Account/records/acc001",
    "#/tables/Account/records/none",
    "#/events",
    "#/events/e30",
    "#/events/none",
]
PAGES += ["#/batches/1", "#/batches/2", "#/batches/2?status=aborted", "#/events/2?row=3"]


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    with chromium() as found:
        yield found


@dataclass
class Stream:
    server: Server
    writer: subprocess.Popen[str]

    def batch(self) -> int:
        """One more; its version."""
        assert self.writer.stdin is not None and self.writer.stdout is not None
        self.writer.stdin.write("\n")
        self.writer.stdin.flush()
        return int(self.writer.stdout.readline()) + 1


@pytest.fixture(scope="module")
def stream(browser: Any, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stream]:
    state = tmp_path_factory.mktemp("console") / "bank"
    app = payments.app()
    with app.open(state, log="input") as db:
        db.load("Account", payments.opening())
        for number in range(2):
            db.run(bind(app, payments.payments(7, number, (300, 24)[number])), id=number)
    writer = subprocess.Popen(
        [sys.executable, "-c", WRITER, os.fspath(state)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert writer.stdin is not None and writer.stdout is not None
    try:
        writer.stdout.readline()
        with serving(state, "--explain", "penstock.workloads.bank:app") as server:
            yield Stream(server, writer)
    finally:
        writer.kill()
        writer.wait()
        writer.stdin.close()
        writer.stdout.close()


@pytest.fixture
def visit(browser: Any, stream: Stream) -> Iterator[Visit]:
    found = Visit(browser, stream.server.url)
    paint = found.enter(stream.server.token())
    print(f"first paint after {paint:.0f} ms")
    yield found
    found.close()


def test_it_is_live_without_reloading(visit: Visit, stream: Stream) -> None:
    page = visit.page
    assert page.inner_text(".pill.live") == "live" and page.is_hidden("#banner")
    before = visit.version()
    newest = stream.batch()
    assert newest > before
    visit.until("to => document.querySelector('tr[data-href] td').textContent === to", f"{newest:,}")
    assert visit.version() == newest
    told = Batches(stream.server.state).one(newest)
    row = page.inner_text("tr[data-href] >> nth=0").split("\t")
    assert row[3].strip() == f"{told['events']:,}" and row[4].strip() == f"{told['committed']:,}"
    assert not visit.wrong


def test_from_a_batch_to_an_event_to_a_record(visit: Visit, stream: Stream) -> None:
    page = visit.page
    visit.open("#/batches/2")
    assert "24 rounds in" in visit.text() and page.locator(".node").count() == 24
    assert "Hottest records" in visit.text()
    page.click("summary:has-text('The plan of each transaction')")
    assert "transaction transfer(Transfer)" in page.inner_text("pre >> nth=0")
    page.click(".tabs a:has-text('committed')")
    visit.until("() => location.hash.includes('status=committed') && document.querySelector('tbody .pill.committed')")
    visit.until("() => !document.querySelector('tbody .pill.aborted')")
    page.click("tbody tr:has(.pill.committed) td:nth-child(3)")
    page.wait_for_selector("[data-again]")
    visit.until("() => document.body.innerText.toUpperCase().includes('WHAT IT READ AND WROTE')")
    record = page.locator(".tree a").first
    name = record.inner_text().removeprefix("Account ")
    record.click()
    page.wait_for_selector(".timeline")
    with Reader(stream.server.state, plan=payments.app().plan) as reader:
        found = reader.get("Account", name)
        assert found is not None and str(found["balance"]) in page.inner_text("table")
        changes = reader.history("Account", name).num_rows
    assert page.locator(".timeline > li").count() == min(changes, 30)
    page.go_back()
    page.wait_for_selector("[data-again]")
    assert not visit.wrong


def test_tables_are_filtered_found_and_moved_through_versions(visit: Visit, stream: Stream) -> None:
    page = visit.page
    visit.open("#/tables/Account")
    page.fill("input[name=where]", "balance > 100 and id < 'acc100'")
    page.click("button:has-text('Filter')")
    visit.until("() => location.hash.includes('where=')")
    page.wait_for_selector("tbody tr")
    with Reader(stream.server.state, plan=payments.app().plan) as reader:
        rows = reader.sql("select id from account where balance > 100 and id < 'acc100' order by id").to_pylist()
        old = reader.table("Account", version=1).to_pylist()
    shown = page.locator("tbody tr td:first-child").all_inner_texts()
    assert shown[: len(rows)][:50] == [row["id"] for row in rows][:50]
    visit.open("#/tables/Account")
    page.evaluate(
        "() => { const one = document.querySelector('input[type=range]'); one.value = 1;"
        " one.dispatchEvent(new Event('input', {bubbles: true})); }"
    )
    visit.until("() => location.hash.includes('version=1')")
    visit.until("() => document.body.textContent.includes('of version 1,')")
    balance = next(str(row["balance"]) for row in old if row["id"] == "acc000")
    assert page.inner_text("tbody tr:first-child td:nth-child(2)") == balance
    page.fill("input[name=key]", "acc007")
    page.click("button:has-text('Find key')")
    page.wait_for_selector("h1:has-text('acc007')")
    assert not visit.wrong


def test_sql_is_asked_where_it_is_allowed(browser: Any, tmp_path: Path) -> None:
    app = payments.app()
    with app.open(tmp_path / "bank") as db:
        db.load("Account", payments.opening())
    with serving(tmp_path / "bank", "--sql") as server:
        visit = Visit(browser, server.url)
        visit.enter(server.token())
        visit.open("#/sql")
        visit.page.fill("textarea", "select count(*) as accounts from account")
        visit.page.click("button:has-text('Run')")
        visit.page.wait_for_selector("tbody td")
        assert visit.page.inner_text("tbody td") == "200"
        assert "q=select" in visit.page.url and not visit.wrong
        visit.close()


@pytest.mark.parametrize(("dark", "width"), [(False, 1280), (True, 390)])
def test_every_page_opens_and_fits(browser: Any, stream: Stream, *, dark: bool, width: int) -> None:
    visit = Visit(browser, stream.server.url, dark=dark, width=width)
    visit.enter(stream.server.token())
    for address in PAGES:
        visit.open(address)
        assert visit.fits(), address
        assert not visit.wrong, (address, visit.wrong)
    visit.close()


def test_without_a_token_it_asks_for_one(browser: Any, stream: Stream) -> None:
    visit = Visit(browser, stream.server.url)
    visit.page.goto(visit.url)
    visit.page.fill("input[name=token]", stream.server.token())
    visit.page.click("button")
    visit.page.wait_for_selector("main[data-page]")
    assert "token" not in visit.page.url
    visit.close()


def test_an_empty_state_says_what_would_fill_it(browser: Any, tmp_path: Path) -> None:
    app = payments.app()
    with app.open(tmp_path / "bank"):
        pass
    with serving(tmp_path / "bank") as server:
        visit = Visit(browser, server.url, dark=True, width=390)
        visit.enter(server.token())
        told = {address: (visit.open(address), visit.text())[1] for address in PAGES[:2] + ["#/events", "#/sql"]}
        assert "No batch has run yet" in told["#/"] and "writer gone" in told["#/"]
        assert 'db.load("Account", rows)' in told["#/tables"]
        assert "ps.id()" in told["#/events"] and "penstock serve STATE --sql" in told["#/sql"]
        assert not visit.wrong and visit.fits()
        visit.close()


def test_when_the_writer_is_gone_it_says_so_and_goes_on(browser: Any, stream: Stream) -> None:
    """Last: the stream is dead from here on."""
    visit = Visit(browser, stream.server.url)
    visit.enter(stream.server.token())
    visit.page.wait_for_selector(".pill.live")
    stream.writer.kill()
    stream.writer.wait()
    visit.page.wait_for_selector("#banner:visible")
    assert f"The writer, pid {stream.writer.pid}" in visit.page.inner_text("#banner")
    assert visit.page.inner_text("#live .pill") == "writer gone"
    for address in PAGES:
        visit.open(address)
        assert visit.page.is_visible("#banner") and not visit.wrong, (address, visit.wrong)
    visit.close()
