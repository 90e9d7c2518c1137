"""Claims of Idempotency-Keys, in a tree of znodes that answers at once."""

from collections.abc import Callable

import pytest
from controller.admin import idempotency
from controller.admin.errors import AdminError
from controller.admin.idempotency import KEY_CHARS_MAX, Answer, IdempotencyStore
from manual_clock import ManualClock
from sim.znode_tree import Tree
from tidemark.runtime.zk_session import Delete, ZkError
from unit.controller.lives import TreeSession, finish

DAY_MS = 86_400_000
CREATED = Answer(201, {"location": "/v3/x"}, b'{"name":"\xc3\xa9"}')


class Session(TreeSession):
    """Session that can be lost, and beside which another controller deletes keys."""

    lost = False
    before_delete: Callable[[str], object] = staticmethod(lambda path: None)

    async def delete(self, path: str, *, version: int = -1) -> None:
        self.before_delete(path)
        self._run([Delete(path, version)])

    async def exists(self, path: str, on_change=None):  # type: ignore[no-untyped-def]
        if self.lost:
            raise ZkError("connection loss")
        return await super().exists(path, on_change)


class World:
    """One store, and the requests of clients."""

    def __init__(self) -> None:
        self.clock = ManualClock()
        self.session = Session(Tree())
        self.store = IdempotencyStore(self.session, self.clock)

    def claim(
        self, key: str = "k", body: bytes = b"{}", *, principal: str = "User:a", path: str = "/v3/t"
    ) -> Answer | str:
        return finish(self.store.claim(principal, path, key, body))

    def carry_out(self, key: str = "k", answer: Answer | None = CREATED) -> None:
        claim = self.claim(key)
        assert isinstance(claim, str)
        finish(self.store.settle(claim, b"{}", answer))

    def days(self) -> list[str]:
        return self.session.tree.children("/idempotency")


@pytest.fixture
def world() -> World:
    return World()


@pytest.mark.feature("AD06")
def test_a_repetition_has_the_first_answer(world: World) -> None:
    world.carry_out()
    assert world.claim() == CREATED


def test_a_key_that_is_in_use_or_ended_without_an_answer_is_refused(world: World) -> None:
    world.claim()
    with pytest.raises(AdminError, match="under way") as refusal:
        world.claim()
    assert refusal.value.status == 409


def test_a_key_of_another_request_is_refused(world: World) -> None:
    world.carry_out()
    with pytest.raises(AdminError, match="another request") as refusal:
        world.claim(body=b'{"other":1}')
    assert refusal.value.status == 422


def test_a_request_that_failed_frees_its_key(world: World) -> None:
    world.carry_out(answer=None)
    assert isinstance(world.claim(), str)


def test_an_answer_that_is_too_long_is_not_kept(world: World) -> None:
    world.carry_out(answer=Answer(200, {}, bytes(idempotency.ANSWER_BYTES_MAX + 1)))
    assert isinstance(world.claim(), str)


def test_keys_are_those_of_a_principal_and_a_path(world: World) -> None:
    world.carry_out()
    assert isinstance(world.claim(principal="User:b"), str)
    assert isinstance(world.claim(path="/v3/other"), str)


def test_an_answer_is_given_again_for_a_day_at_least(world: World) -> None:
    world.clock.advance(DAY_MS - world.clock.wall_ms() % DAY_MS)  # midnight
    world.carry_out()
    world.clock.advance(2 * DAY_MS - 1)
    assert world.claim() == CREATED
    world.clock.advance(1)
    assert isinstance(world.claim(), str)


def test_the_keys_of_past_days_are_deleted_some_at_a_time(world: World) -> None:
    for number in range(250):
        world.carry_out(str(number))
    (past,) = world.days()
    world.clock.advance(2 * DAY_MS)
    left = []
    for key in "abc":
        world.carry_out(key)
        left.append(
            len(world.session.tree.children(f"/idempotency/{past}")) if past in world.days() else 0
        )
    assert left == [150, 50, 0]
    assert past not in world.days()


def test_another_controller_may_delete_the_same_keys(world: World) -> None:
    world.carry_out("old")
    world.clock.advance(2 * DAY_MS)
    world.session.before_delete = lambda path: world.session._run([Delete(path, -1)])
    assert isinstance(world.claim("new"), str)


@pytest.mark.parametrize("key", ["", "x" * (KEY_CHARS_MAX + 1)])
def test_a_key_has_a_bounded_length(world: World, key: str) -> None:
    with pytest.raises(AdminError) as refusal:
        world.claim(key)
    assert (refusal.value.status, refusal.value.field) == (400, "Idempotency-Key")


def test_the_keys_of_a_day_are_bounded(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(idempotency, "KEYS_PER_DAY_MAX", 2)
    world.carry_out("a")
    world.carry_out("b")
    with pytest.raises(AdminError) as refusal:
        world.claim("c")
    assert refusal.value.status == 429


def test_without_zookeeper_nothing_is_carried_out(world: World) -> None:
    world.session.lost = True
    with pytest.raises(AdminError, match="connection loss") as refusal:
        world.claim()
    assert refusal.value.status == 503
