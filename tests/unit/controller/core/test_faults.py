"""Errors of the controller's own code: who is answered, what is published, if the term goes on."""

from collections.abc import Iterator
from itertools import count

import pytest
from controller.core import controller, term
from controller.core.cluster import Cluster
from controller.core.controller import FAULT, Role
from controller.core.effects import CloseFeed, Effect, NoteFault, Publish, Reply, Resign
from controller.core.inputs import Faulted, StoreFailed
from controller.core.term import ActiveTerm
from tidemark.model.errors import ErrorCode
from unit.controller.worlds import NOW, World, a_broker, create, new_topic

BUG = KeyError("a bug")
UNKNOWN, NOT_CONTROLLER = ErrorCode.UNKNOWN_SERVER_ERROR, ErrorCode.NOT_CONTROLLER


def fail(*_: object, **__: object) -> Iterator[Effect]:
    raise BUG


def replies(effects: list[Effect]) -> dict[int, ErrorCode]:
    return {one.request_id: one.error for one in effects if isinstance(one, Reply)}


@pytest.fixture
def world() -> World:
    return World(brokers=1)


@pytest.mark.parametrize(("owner", "name"), [(term, "decide_create_topics"), (term, "store_ops")])
def test_a_decision_that_fails_refuses_its_request_and_the_term_goes_on(
    world: World, monkeypatch: pytest.MonkeyPatch, owner: object, name: str
) -> None:
    with monkeypatch.context() as poisoned:
        poisoned.setattr(owner, name, fail)
        for _ in range(3):
            effects = world.step(create(new_topic("a")))
            assert effects[0] == NoteFault("CreateTopics", BUG)
            assert replies(effects) == {1: UNKNOWN}
    assert world.machine.role is Role.ACTIVE
    assert world.ask(create(new_topic("a"))).error is ErrorCode.NONE


def test_the_state_is_checked_once_and_not_at_each_repetition(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    checks = count()
    monkeypatch.setattr(term, "decide_create_topics", fail)
    monkeypatch.setattr(Cluster, "check", lambda _: next(checks))
    for _ in range(3):
        world.machine.step(create(new_topic("a")), NOW)
    assert next(checks) == 1


def test_after_a_decision_that_fails_the_term_ends_if_its_state_is_not_sound(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(term, "decide_create_topics", fail)
    monkeypatch.setattr(ActiveTerm, "check", fail)
    effects = world.step(create(new_topic("a")))
    assert replies(effects) == {1: UNKNOWN}
    assert effects[-1] == Resign(FAULT)
    assert world.machine.role is Role.STANDBY


def test_a_change_that_cannot_be_applied_ends_the_term_and_is_not_published(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    world.hold = True
    world.step(create(new_topic("a"), request_id=1))
    world.step(create(new_topic("b"), request_id=2))
    monkeypatch.setattr(Cluster, "apply", fail)
    effects = world.written()
    assert replies(effects) == {1: UNKNOWN, 2: NOT_CONTROLLER}
    assert world.kinds(effects) == ["Reply", "NoteFault", "CloseFeed", "Reply", "Resign"]
    assert world.machine.role is Role.STANDBY


def test_a_change_that_was_applied_is_published_though_what_follows_fails(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    world.hold = True
    world.step(create(new_topic("a"), request_id=1))
    monkeypatch.setattr(ActiveTerm, "due_change", fail)
    effects = world.written()
    assert world.kinds(effects) == ["Publish", "Reply", "NoteFault", "CloseFeed", "Resign"]
    assert replies(effects) == {1: ErrorCode.NONE}


def test_a_request_whose_listing_cannot_be_seen_is_answered(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ActiveTerm, "see_brokers", fail)
    assert world.register(a_broker(2)).error is UNKNOWN
    assert world.effects[-1] == Resign(FAULT)


def test_a_state_that_cannot_be_taken_over_leaves_a_standby(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(controller, "ActiveTerm", fail)
    world = World()
    assert [type(one) for one in world.effects] == [NoteFault, CloseFeed, Resign]
    assert world.machine.image is None
    monkeypatch.undo()
    world.elect(epoch=2)
    assert world.machine.role is Role.ACTIVE


def test_a_change_that_fails_in_the_store_by_a_bug_is_answered_as_such(world: World) -> None:
    world.hold = True
    world.step(create(new_topic("a"), request_id=1))
    world.step(create(new_topic("b"), request_id=2))
    assert world.held is not None
    effects = world.step(StoreFailed(world.held.write_id, FAULT, BUG))
    assert replies(effects) == {1: UNKNOWN, 2: NOT_CONTROLLER}
    assert NoteFault("store", BUG) in effects


def test_an_effect_that_fails_closes_the_feed_and_answers_what_was_not_yet(world: World) -> None:
    effects = world.step(Faulted(BUG, (7, 8)))
    assert replies(effects) == {7: UNKNOWN, 8: UNKNOWN}
    assert effects[-2:] == [CloseFeed(FAULT), Resign(FAULT)]
    again = world.step(Faulted(BUG))
    assert again == [NoteFault("effects", BUG), CloseFeed(FAULT), Resign(FAULT)]
    assert not any(isinstance(one, Publish) for one in effects)
