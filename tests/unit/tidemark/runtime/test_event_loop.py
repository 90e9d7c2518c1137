"""Settings of the garbage collector of a service: at its start, and once its metadata is loaded."""

import gc
import json
import subprocess
import sys
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


_SERVICE = """
import gc, json
from tidemark.runtime.service import run_process
from tidemark.runtime.service_config import ServiceConfig

async def serve(config, stop):
    print(json.dumps([gc.get_freeze_count(), *gc.get_threshold()]))

run_process(serve, ServiceConfig, service="broker", argv=[])
"""


def test_a_service_does_not_walk_its_modules_in_search_of_garbage() -> None:
    done = subprocess.run([sys.executable, "-c", _SERVICE], check=True, capture_output=True)
    frozen, *threshold = json.loads(done.stdout)
    assert frozen > 20_000
    assert threshold == [20_000, 20, 50]
