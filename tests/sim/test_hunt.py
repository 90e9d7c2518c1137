"""The order of the seeds of a hunt, and the file that keeps it."""

from pathlib import Path

import pytest

from sim.cluster import mutations, share_mutations, txn_mutations
from sim.hunt import FOUND_AT, SEEDS_UNTIL_FOUND, last_findings, seeds_to_try, write
from sim.mutations import MUTATIONS
from sim.run import unreached

RESULTS = """<testsuites><testsuite>
<testcase classname="tests.sim.cluster.test_txn" name="test_the_simulator_finds[drops a marker]">
<properties><property name="found by" value="seed 9: a marker: once"/></properties></testcase>
<testcase classname="tests.sim.test_sim" name="test_the_simulator_finds[cuts a log]">
<properties><property name="found by" value="seed 1: logs are whole"/></properties></testcase>
<testcase classname="tests.sim.test_sim" name="test_another"/>
</testsuite></testsuites>"""


def test_each_seed_is_tried_once_and_the_last_finding_first(tmp_path: Path) -> None:
    kept = tmp_path / "found_at.txt"
    kept.write_text("# seeds\ntxn 9 drops a marker\ntxn 900 keeps an epoch\n")
    tried = list(seeds_to_try("txn", "drops a marker", found_at=kept))
    assert tried[:3] == [9, 1, 2]
    assert sorted(tried) == list(range(1, SEEDS_UNTIL_FOUND + 1))
    unknown = list(seeds_to_try("cluster", "drops a marker", found_at=kept))
    beyond = list(seeds_to_try("txn", "keeps an epoch", found_at=kept))
    assert unknown == beyond == sorted(tried)


def test_results_change_the_seeds_that_they_name(tmp_path: Path) -> None:
    results = tmp_path / "results.xml"
    results.write_text(RESULTS)
    kept = tmp_path / "found_at.txt"
    kept.write_text("# seeds\nsim 4 cuts a log\nsim 5 keeps a file\n")
    write(results, kept)
    assert kept.read_text() == "# seeds\nsim 5 keeps a file\ntxn 9 drops a marker\n"


def test_the_file_names_mutations_that_exist() -> None:
    worlds = {
        "sim": MUTATIONS,
        "cluster": mutations.MUTATIONS,
        "txn": txn_mutations.MUTATIONS,
        "share": share_mutations.MUTATIONS,
    }
    unknown = [row for row in last_findings(FOUND_AT) if row[1] not in worlds[row[0]]]
    assert unknown == []


def test_seeds_run_until_everything_is_reached() -> None:
    ran: list[int] = []

    def reached(seed: int) -> set[str]:
        ran.append(seed)
        return {"a cut"} if seed % 2 else {"a kill", "a move"}

    assert unreached(["a cut", "a kill"], range(1, 9), reached) == []
    assert ran == [1, 2]
    assert unreached(["a pause", "a cut", "a rival"], range(3), reached) == ["a pause", "a rival"]


def test_a_hunt_is_not_ended_by_the_clock(request: pytest.FixtureRequest) -> None:
    mark = request.node.get_closest_marker("timeout")
    assert mark is not None
    assert mark.args == (0,)
