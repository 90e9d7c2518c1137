"""Settings of a share-partition: what follows from its limits."""

from collections.abc import Callable

import pytest
from broker.core.share.settings import ShareSettings
from broker.core.share.states import Cause


@pytest.mark.parametrize(
    ("limit", "isolated_from"), [(2, 2), (3, 2), (4, 2), (5, 3), (6, 3), (10, 5)]
)
def test_isolation_begins_at_half_of_the_limit(limit: int, isolated_from: int) -> None:
    assert ShareSettings(deliveries_max=limit).isolated_from == isolated_from


@pytest.mark.parametrize(("count", "delay_ms"), [(1, 100), (2, 200), (3, 400), (4, 500), (90, 500)])
def test_the_delay_doubles_with_each_delivery_up_to_its_bound(count: int, delay_ms: int) -> None:
    settings = ShareSettings(release_backoff_ms=100, release_backoff_max_ms=500)
    assert settings.delay_ms(0, count) == delay_ms


@pytest.mark.parametrize(("asked_ms", "delay_ms"), [(7, 7), (900, 500)])
def test_a_member_may_ask_for_a_delay(asked_ms: int, delay_ms: int) -> None:
    assert ShareSettings(release_backoff_max_ms=500).delay_ms(asked_ms, 3) == delay_ms


def test_there_is_no_delay_unless_configured() -> None:
    assert ShareSettings().delay_ms(0, 4) == 0


def test_dead_letters_change_the_way_of_what_is_not_processed() -> None:
    plain, lettered = ShareSettings(), ShareSettings(has_dead_letters=True)
    assert (plain.rejected, plain.exhausted) == (Cause.REJECTED, Cause.EXHAUSTED)
    assert lettered.rejected is lettered.exhausted is Cause.DEAD_LETTERED


@pytest.mark.parametrize(
    "make",
    [
        lambda: ShareSettings(deliveries_max=0),
        lambda: ShareSettings(lock_ms=0),
        lambda: ShareSettings(records_max=0),
        lambda: ShareSettings(release_backoff_ms=-1),
    ],
)
def test_limits_are_positive(make: Callable[[], ShareSettings]) -> None:
    with pytest.raises(AssertionError):
        make()
