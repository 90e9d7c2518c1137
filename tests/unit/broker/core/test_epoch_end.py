import pytest
from broker.core.epoch_end import EpochEnd, epoch_end
from tidemark.model.errors import ErrorCode
from unit.broker.core.test_list_offsets import a_partition, led


@pytest.mark.parametrize(
    ("asked", "epoch", "end"), [(3, 3, 0), (4, 4, 6), (6, -1, -1), (-1, -1, -1)]
)
def test_an_epoch_ends_where_the_log_has_another(asked: int, epoch: int, end: int) -> None:
    for expected in (-1, 5):
        assert epoch_end(led(), expected, asked) == (ErrorCode.NONE, epoch, end)


def test_only_the_leader_that_the_caller_means_is_asked() -> None:
    assert epoch_end(led(), 4, 4) == EpochEnd(ErrorCode.FENCED_LEADER_EPOCH)
    assert epoch_end(led(), 6, 4) == EpochEnd(ErrorCode.UNKNOWN_LEADER_EPOCH)
    assert epoch_end(a_partition(), -1, 4) == EpochEnd(ErrorCode.NOT_LEADER_OR_FOLLOWER)
