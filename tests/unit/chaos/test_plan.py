"""A seed is a plan, and no plan disables two brokers at once."""

from itertools import islice

import pytest
from chaos.plan import ROUND_STEPS as ROUND
from chaos.plan import Ground, Kind, Role, Step, draw_steps
from hypothesis import given
from hypothesis import strategies as st

GROUND = Ground(3, 6, 4.0, coordinators=2, internal_partitions=3, disks_fail=True)
SEEDS = st.integers(0, 2**32)


def steps(seed: int, count: int = 2 * ROUND) -> list[Step]:
    return list(islice(draw_steps(seed, GROUND), count))


@given(SEEDS)
def test_a_seed_is_a_plan(seed: int) -> None:
    assert steps(seed) == steps(seed)


def test_another_seed_is_another_plan() -> None:
    assert steps(1) != steps(2)


@given(SEEDS)
def test_a_step_disables_at_most_one_broker(seed: int) -> None:
    for step in steps(seed):
        assert sum(fault.strikes_broker for fault in step.faults) <= 1


@given(SEEDS)
def test_a_step_disables_at_most_one_coordinator(seed: int) -> None:
    for step in steps(seed):
        assert sum(fault.strikes_coordinator for fault in step.faults) <= 1


@given(SEEDS)
def test_every_round_strikes_coordinators(seed: int) -> None:
    faults = [fault for step in steps(seed, ROUND) for fault in step.faults]
    assert sum(fault.strikes_coordinator for fault in faults) == 2


@given(SEEDS)
def test_every_round_strikes_a_share_coordinator(seed: int) -> None:
    faults = [fault for step in steps(seed, ROUND) for fault in step.faults]
    assert sum(fault.role is Role.SHARE_COORDINATOR for fault in faults) == 1


@pytest.mark.parametrize("role", list(Role))
def test_every_role_is_drawn_sometime(role: Role) -> None:
    assert role in {fault.role for step in steps(1, 20 * ROUND) for fault in step.faults}


@given(SEEDS)
def test_every_round_changes_the_controller_and_ends_a_session(seed: int) -> None:
    faults = [fault for step in steps(seed, ROUND) for fault in step.faults]
    kinds = {fault.kind for fault in faults if fault.strikes_broker}
    assert any(fault.role is Role.ACTIVE for fault in faults)
    assert kinds & {Kind.PAUSE, Kind.EXPIRE}
    assert kinds & {Kind.KILL, Kind.POWER, Kind.BOUNCE}


@given(SEEDS)
def test_a_pause_outlasts_the_session(seed: int) -> None:
    for step in steps(seed):
        for fault in step.faults:
            assert fault.kind is not Kind.PAUSE or fault.hold_s > GROUND.session_s


@given(SEEDS)
def test_every_fault_begins_and_then_ends(seed: int) -> None:
    for step in steps(seed):
        acts = step.acts()
        assert [act.at_s for act in acts] == sorted(act.at_s for act in acts)
        for fault in step.faults:
            assert [act.begins for act in acts if act.fault is fault] == [True, False]


@pytest.mark.parametrize("kind", list(Kind))
def test_every_kind_is_drawn_sometime(kind: Kind) -> None:
    drawn = {fault.kind for step in steps(1, 20 * ROUND) for fault in step.faults}
    assert kind in drawn


@given(SEEDS)
def test_all_is_whole_after_records_were_lost(seed: int) -> None:
    for step in steps(seed):
        kinds = {fault.kind for fault in step.faults}
        assert step.until_whole or not kinds & {Kind.EIO, Kind.DAMAGE}


def test_without_disks_that_fail_files_are_damaged() -> None:
    ground = GROUND._replace(disks_fail=False)
    drawn = [fault.kind for step in islice(draw_steps(1, ground), ROUND) for fault in step.faults]
    assert Kind.EIO not in drawn
    assert drawn.count(Kind.DAMAGE) == 2


def test_a_step_is_one_line() -> None:
    assert "\n" not in str(steps(1)[0])
