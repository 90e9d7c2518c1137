"""Walks that prepare a cut: the cut does not read the batches again, and ends in the same state."""

import pytest
from broker.storage.log import Log
from broker.storage.producer_replay import ProducerReplay
from hypothesis import given
from hypothesis import strategies as st
from unit.broker.storage.log_worlds import append, new_log
from unit.broker.storage.test_producer_history import end, own, write

WRITES = st.lists(
    st.one_of(
        st.tuples(st.just("write"), st.integers(0, 3)),
        st.tuples(st.sampled_from(["commit", "abort"]), st.integers(0, 3)),
        st.tuples(st.sampled_from(["plain", "own"]), st.integers(1, 9)),
    ),
    max_size=40,
)


def written(writes: list[tuple[str, int]]) -> Log:
    _, _, log = new_log()
    for kind, number in writes:
        if kind == "write":
            write(log, number)
        elif kind == "plain":
            append(log, records=number)
        elif kind == "own":
            own(log, number)
        elif log.producers.txns.first_of(number) is not None:
            end(log, number, commits=kind == "commit")
    return log


def prepared(log: Log, offset: int) -> ProducerReplay:
    replay = log.history.begin_replay(offset, log.log_end)
    replay.run()
    assert replay.is_done
    return replay


def cut(log: Log, offset: int, replay: ProducerReplay | None) -> object:
    with log.history.replayed(replay, log.log_end):
        log.truncate_to(offset)
    aborted = log.history.aborted_between(0, log.log_end)
    return log.log_end, log.producers.state(), aborted


@given(WRITES, st.integers(0, 80))
def test_a_prepared_cut_ends_in_the_state_of_one_that_is_not(
    writes: list[tuple[str, int]], offset: int
) -> None:
    log, other = written(writes), written(writes)
    assert cut(log, offset, prepared(log, offset)) == cut(other, offset, None)


def test_a_prepared_cut_does_not_walk_the_log(monkeypatch: pytest.MonkeyPatch) -> None:
    log = written([("write", 1)] * 5)
    replay = prepared(log, 3)
    monkeypatch.delattr("broker.storage.producer_history.replay_producers")
    cut(log, 3, replay)
    assert [one.last_sequence for one in log.producers.entries()] == [2]


def test_a_walk_of_a_log_that_has_grown_since_is_void() -> None:
    log = written([("write", 1)] * 5)
    replay = prepared(log, 3)
    log.truncate_to(2)
    write(log, 2)
    write(log, 2)
    cut(log, 3, replay)
    sequences = {one.producer_id: one.last_sequence for one in log.producers.entries()}
    assert sequences == {1: 1, 2: 0}


def test_a_walk_that_meets_damage_leaves_it_to_the_cut() -> None:
    disk, _, log = new_log()
    for _ in range(5):
        write(log, 1)
    replay = log.history.begin_replay(3, log.log_end)
    disk.flip_bit(f"{log.directory}/{0:020d}.log", 16)  # magic
    replay.run()
    assert not replay.is_done
