import asyncio
import os
import signal
from collections.abc import Callable

import pytest
from tidemark.runtime.exit_codes import MEANING, ExitCode
from tidemark.runtime.service import ServiceError, ServiceMain, run_service
from tidemark.storage.disk import DiskError
from waiting import PATIENCE_MS

pytestmark = pytest.mark.usefixtures("signals_restored")


def run(main: ServiceMain, *, shutdown_deadline_ms: int = PATIENCE_MS) -> ExitCode:
    return asyncio.run(run_service(main, shutdown_deadline_ms=shutdown_deadline_ms))


def raising(error: Callable[[], BaseException]) -> ServiceMain:
    async def main(stop: asyncio.Event) -> None:
        raise error()

    return main


async def _serve_until_stopped(stop: asyncio.Event) -> None:
    os.kill(os.getpid(), signal.SIGTERM)
    await stop.wait()


async def _never_drain(stop: asyncio.Event) -> None:
    os.kill(os.getpid(), signal.SIGTERM)
    await asyncio.Event().wait()


async def _never_drain_and_be_told_twice(stop: asyncio.Event) -> None:
    os.kill(os.getpid(), signal.SIGINT)
    await stop.wait()
    os.kill(os.getpid(), signal.SIGINT)
    await asyncio.Event().wait()


def test_a_service_that_returns_is_done() -> None:
    async def main(stop: asyncio.Event) -> None:
        assert not stop.is_set()

    assert run(main) is ExitCode.OK


def test_sigterm_drains() -> None:
    assert run(_serve_until_stopped) is ExitCode.OK


def test_a_drain_past_its_deadline_is_cut_off() -> None:
    assert run(_never_drain, shutdown_deadline_ms=10) is ExitCode.TEMPORARY


def test_a_second_signal_cuts_off_at_once() -> None:
    assert run(_never_drain_and_be_told_twice, shutdown_deadline_ms=60_000) is ExitCode.TEMPORARY


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (lambda: ServiceError("no ZooKeeper"), ExitCode.UNAVAILABLE),
        (lambda: ServiceError("foreign disk", ExitCode.IO), ExitCode.IO),
        (lambda: DiskError("orders-0", "I/O error"), ExitCode.IO),
        (lambda: ExceptionGroup("x", [ServiceError("y", ExitCode.CONFIG)]), ExitCode.CONFIG),
        (lambda: AssertionError("our bug"), ExitCode.INTERNAL),
    ],
)
def test_a_failure_has_its_exit_code(error: Callable[[], BaseException], code: ExitCode) -> None:
    assert run(raising(error)) is code


def test_every_exit_code_is_documented() -> None:
    assert set(MEANING) == set(ExitCode)
