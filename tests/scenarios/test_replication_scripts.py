"""Every script under tests/scenarios/replication gives what it says; REWRITE=1 renews that."""

import logging
import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from scenarios.replication_world import ReplicationWorld
from scenarios.runner import run_script

HERE = Path(__file__).parent
SCRIPTS = sorted(HERE.glob("replication/*.txt"))
PROVES = {
    "lag_time": pytest.mark.feature("G07"),
    "figures_01_06_failover": pytest.mark.feature("H05", "H08", "H10", "H14"),
    "figures_07_12_acks_1": pytest.mark.feature("I01", "I02", "I03", "H13", "J9"),
    "figure_12_clean": pytest.mark.feature("I04", "H12"),
    "figures_13_18_acks_all": pytest.mark.feature("I05", "I06", "I07", "I08", "G09", "J9"),
    "figures_19_21_min_insync": pytest.mark.feature("I09", "I10", "I11", "J9", "J10", "G13"),
    "cut_01_leader_from_zookeeper": pytest.mark.feature("J4", "Y03"),
    "cut_02_follower_from_zookeeper": pytest.mark.feature("J3"),
    "cut_03_controller_from_zookeeper": pytest.mark.feature("J8", "H04"),
    "cut_04_leader_from_followers": pytest.mark.feature("J2"),
    "cut_05_leader_from_one_follower": pytest.mark.feature("J1", "G04"),
    "cut_06_leader_from_all_but_clients": pytest.mark.feature("J6", "J9", "Y03", "G22"),
    "cut_07_controller_from_brokers": pytest.mark.feature("J7"),
    "cut_08_no_zookeeper": pytest.mark.feature("H01", "Y03"),
    "cut_09_follower_from_all": pytest.mark.feature("J5"),
    "cut_14_leader_from_controllers": pytest.mark.feature("J7", "Y03"),
    "unclean_lease": pytest.mark.feature("Y03"),
    "follower_reads": pytest.mark.feature("A06"),
    "five_replicas": pytest.mark.feature("G15"),
    "eleven_followers": pytest.mark.feature("G16"),
    "whole_cluster_crash": pytest.mark.feature("G23"),
    "slow_follower": pytest.mark.feature("G02", "G05", "G18"),
}


@pytest.fixture(autouse=True)
def _quiet() -> Iterator[None]:
    logging.disable(logging.CRITICAL)
    yield
    logging.disable(logging.NOTSET)


def _marked(path: Path) -> object:
    mark = PROVES.get(path.stem)
    return pytest.param(path, marks=[mark] if mark else [], id=path.stem)


@pytest.mark.parametrize("path", [_marked(path) for path in SCRIPTS])
def test_script(path: Path) -> None:
    rewrite = os.environ.get("REWRITE", "") not in ("", "0")
    world = ReplicationWorld()
    try:
        expected, happened = run_script(path, world.execute, rewrite=rewrite)
    finally:
        world.close()
    assert happened == expected


def test_every_script_that_proves_a_feature_is_there() -> None:
    assert PROVES.keys() - {path.stem for path in SCRIPTS} == set()


def test_there_are_scripts() -> None:
    assert PROVES.keys() <= {path.stem for path in SCRIPTS}
