"""The verdict: kept, broken, or proved nothing; and the table says why."""

import json
from dataclasses import replace

import pytest
from chaos.counting import Unavailability
from chaos.history import Findings
from chaos.report import (
    EXIT_BROKEN,
    EXIT_HELD,
    EXIT_PROVED_NOTHING,
    Figures,
    Report,
    TransactionFigures,
)
from chaos.transactions import ROWS, TransactionFindings

TRANSACTIONS = TransactionFigures(
    committed=600, copied=100, coordinator_changes=1, group_moves=1, zombies=1
)
ENOUGH = Figures(
    seconds=120.0,
    rounds=1,
    acknowledged=12_000,
    elections=3,
    controller_changes=1,
    session_expiries=1,
    unavailability=Unavailability(4.0, 2.5, 7),
    faults={"kill -9, broker": 2},
    transactions=TRANSACTIONS,
    shared=2_400,
    share_copies=10,
)


def report(
    figures: Figures = ENOUGH,
    findings: Findings | None = None,
    others: dict[str, list[str]] | None = None,
) -> Report:
    return Report(7, figures, findings or Findings(), others or {})


def test_enough_and_nothing_broken_is_held() -> None:
    assert report().exit_code() == EXIT_HELD
    assert list(report().lines())[-1] == "all promises were kept"


@pytest.mark.parametrize(
    "less",
    [
        {"acknowledged": 999},
        {"elections": 2},
        {"controller_changes": 0},
        {"session_expiries": 0},
        {"shared": 199},
        {"share_copies": 9},
    ],
)
def test_too_little_proves_nothing(less: dict[str, int]) -> None:
    one = report(replace(ENOUGH, **less))  # type: ignore[arg-type]
    assert one.exit_code() == EXIT_PROVED_NOTHING
    assert list(one.lines())[-1].startswith("proved nothing: ")


@pytest.mark.parametrize(
    "less",
    [
        {"committed": 49},
        {"coordinator_changes": 0},
        {"group_moves": 0},
        {"copied": 0},
        {"zombies": 0},
    ],
)
def test_too_few_transactions_prove_nothing(less: dict[str, int]) -> None:
    transactions = replace(TRANSACTIONS, **less)
    assert report(replace(ENOUGH, transactions=transactions)).exit_code() == EXIT_PROVED_NOTHING


def test_a_run_of_more_rounds_must_have_more() -> None:
    longer = replace(ENOUGH, seconds=600.0, rounds=5, acknowledged=60_000)
    assert len(report(longer).lacking()) == 5
    transactions = TransactionFigures(
        committed=3_000, copied=1, coordinator_changes=5, group_moves=5, zombies=1
    )
    more = replace(
        longer,
        elections=15,
        controller_changes=5,
        session_expiries=5,
        transactions=transactions,
        shared=12_000,
        share_copies=10,
    )
    assert report(more).exit_code() == EXIT_HELD


def test_a_run_without_a_whole_round_may_not_have_less() -> None:
    assert report(replace(ENOUGH, seconds=60.0, rounds=0, elections=2)).lacking()


def test_a_slow_machine_need_not_do_more() -> None:
    assert not report(replace(ENOUGH, seconds=600.0)).lacking()


@pytest.mark.parametrize(
    "promise", ["lost", "invented", "out_of_order", "misplaced", "unsaid", "torn"]
)
def test_a_broken_promise_outweighs_having_proved_nothing(promise: str) -> None:
    findings = Findings(**{promise: ["p1/a/7 at orders-0@9"]})
    one = report(replace(ENOUGH, elections=0), findings)
    assert one.exit_code() == EXIT_BROKEN
    assert "  p1/a/7 at orders-0@9" in list(one.lines())


@pytest.mark.parametrize("promise", list(ROWS))
def test_a_broken_promise_of_transactions_is_told(promise: str) -> None:
    findings = TransactionFindings(**{promise: ["chaos-v2/7 (committed)"]})
    one = replace(report(), transactions=findings)
    assert one.exit_code() == EXIT_BROKEN
    assert f"BROKEN: {ROWS[promise]}, 1 times" in list(one.lines())


def test_repeats_are_no_broken_promise() -> None:
    one = report(findings=Findings(duplicated=["p1/a/7 at orders-0@1, orders-0@2"]))
    assert one.exit_code() == EXIT_HELD
    assert dict(one.rows())["duplicated"] == "1"


def test_what_no_history_shows_counts_too() -> None:
    one = report(others={"not healed": ["healing took over 60 s"], "did not stop": []})
    assert one.exit_code() == EXIT_BROKEN
    assert set(one.broken()) == {"not healed"}


def test_the_table_is_aligned() -> None:
    lines = list(report().lines())[: len(report().rows())]
    assert len({len(line) for line in lines}) == 1


def test_long_evidence_is_cut_in_the_table_and_whole_in_json() -> None:
    one = report(findings=Findings(lost=[f"p1/a/{number}" for number in range(50)]))
    assert "  and 30 more" in list(one.lines())
    content = json.loads(json.dumps(one.content()))
    assert len(content["findings"]["lost"]) == 50
    assert content["exit_code"] == EXIT_BROKEN
