"""Settings of the garbage collector of a service, once its metadata is loaded."""

import gc
from collections.abc import Iterator

import pytest
from tidemark.runtime import event_loop


@pytest.fixture(autouse=True)
def as_before() -> Iterator[None]:
    before = gc.get_threshold()
    yield
    gc.set_threshold(*before)
    gc.unfreeze()


@pytest.mark.parametrize(("is_compiled", "young"), [(False, 20_000), (True, 2_000)])
def test_young_garbage_is_collected_sooner_in_the_compiled_build(
    monkeypatch: pytest.MonkeyPatch,
    is_compiled: bool,
    young: int,
) -> None:
    monkeypatch.setattr(event_loop, "is_compiled", lambda: is_compiled)
    event_loop.collect_young_garbage_only()
    assert gc.get_threshold()[0] == 20_000
    event_loop.keep_what_is_loaded()
    assert gc.get_threshold()[0] == young
    assert gc.get_freeze_count() > 0
