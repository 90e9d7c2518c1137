"""What workers of the copy are told."""

import json

import pytest
from chaos.copying import PROTOCOLS, worker_plan


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_workers_share_a_group_and_have_ids_of_their_own(protocol: str) -> None:
    one, other = (worker_plan("localhost:1", protocol, number, 1) for number in (1, 2))
    assert one["consumer"] == other["consumer"]
    assert one["producer"]["transactional.id"] != other["producer"]["transactional.id"]


def test_a_worker_that_follows_another_has_its_id_and_hangs_at_other_times() -> None:
    one, heir = (worker_plan("localhost:1", "classic", 1, life) for life in (1, 2))
    assert one["producer"] == heir["producer"]
    assert one["seed"] != heir["seed"]


def test_only_the_classic_protocol_has_sessions_that_members_choose() -> None:
    chosen = {
        protocol: "session.timeout.ms" in worker_plan("localhost:1", protocol, 1, 1)["consumer"]
        for protocol in PROTOCOLS
    }
    assert chosen == {"classic": True, "consumer": False}


def test_a_plan_fits_on_a_command_line() -> None:
    plan = worker_plan("localhost:1", "consumer", 1, 1)
    assert json.loads(json.dumps(plan)) == plan
