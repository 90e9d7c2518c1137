"""Process of a service: configuration, logs, signals, a bounded drain, an exit code.

A service's main is ``sys.exit(run_process(serve, BrokerConfig, service="broker"))`` where
``serve(config, stop)`` returns soon after ``stop`` is set. Any exception with an ``exit_code``
attribute ends the process with that code and one line.
"""

import asyncio
import logging
import signal
import sys
from collections.abc import Awaitable, Callable, Sequence
from typing import Final, TypeVar

import uvloop

from tidemark.runtime.event_loop import keep_what_is_loaded
from tidemark.runtime.exit_codes import ExitCode
from tidemark.runtime.service_config import ServiceConfig, load_or_exit, version
from tidemark.runtime.telemetry import configure_logging, fields
from tidemark.runtime.threads import start_shared_threads
from tidemark.storage.disk import DiskError

Config = TypeVar("Config", bound=ServiceConfig)
ServiceMain = Callable[[asyncio.Event], Awaitable[None]]

_SIGNALS: Final = (signal.SIGTERM, signal.SIGINT)
_log = logging.getLogger(__name__)


class ServiceError(Exception):
    """A service cannot continue. The message, shown without a traceback, names what failed and
    where, and what to try.
    """

    def __init__(self, message: str, exit_code: ExitCode = ExitCode.UNAVAILABLE) -> None:
        super().__init__(message)
        self.exit_code = exit_code


def run_process(
    serve: Callable[[Config, asyncio.Event], Awaitable[None]],
    config_class: type[Config],
    *,
    service: str,
    argv: Sequence[str] | None = None,
    loop_factory: Callable[[], asyncio.AbstractEventLoop] = uvloop.new_event_loop,
) -> ExitCode:
    """Configure, run until a signal or a failure, and return the exit code.

    Raises SystemExit on --help and invalid keys.
    """
    config = load_or_exit(config_class, sys.argv[1:] if argv is None else argv, service=service)
    configure_logging(service, level=config.log_level, log_format=config.log_format)
    _log.info("starting", extra=fields(version=version()))
    keep_what_is_loaded()

    async def main(stop: asyncio.Event) -> None:
        await start_shared_threads()
        await serve(config, stop)

    with asyncio.Runner(loop_factory=loop_factory) as runner:
        code = runner.run(run_service(main, shutdown_deadline_ms=config.shutdown_deadline_ms))
    _log.info("stopped", extra=fields(exit_code=int(code), reason=code.name))
    return code


async def run_service(main: ServiceMain, *, shutdown_deadline_ms: int) -> ExitCode:
    """Run ``main`` until it returns; return the exit code, and log the reason.

    The first SIGTERM or SIGINT sets its event; a second one, or the deadline, cancels it. Does not
    raise the exceptions of ``main``.
    """
    loop = asyncio.get_running_loop()
    stop = asyncio.Event()
    cut_off = asyncio.Event()

    def on_signal(name: str) -> None:
        if stop.is_set():
            cut_off.set()
            return
        _log.info("draining", extra=fields(signal=name, deadline_ms=shutdown_deadline_ms))
        stop.set()

    for number in _SIGNALS:
        loop.add_signal_handler(number, on_signal, number.name)
    try:
        return await _supervise(main, stop, cut_off, shutdown_deadline_ms)
    finally:
        for number in _SIGNALS:
            loop.remove_signal_handler(number)


async def _supervise(
    main: ServiceMain, stop: asyncio.Event, cut_off: asyncio.Event, deadline_ms: int
) -> ExitCode:
    """Run ``main`` with a task that cancels it when draining takes too long."""
    overran = False

    async def watch(served: asyncio.Task[ExitCode]) -> None:
        nonlocal overran
        await stop.wait()
        try:
            async with asyncio.timeout(deadline_ms / 1_000):
                await cut_off.wait()
        except TimeoutError:
            _log.warning("drain deadline passed", extra=fields(deadline_ms=deadline_ms))
        overran = True
        served.cancel()

    async with asyncio.TaskGroup() as tasks:
        served = tasks.create_task(_serve(main, stop), name="service")
        watcher = tasks.create_task(watch(served), name="drain-deadline")
        served.add_done_callback(lambda _: watcher.cancel())
    if served.cancelled():
        assert overran, "only the watchdog cancels a service"
        return ExitCode.TEMPORARY
    return served.result()


async def _serve(main: ServiceMain, stop: asyncio.Event) -> ExitCode:
    """Run ``main``; turn its exception into an exit code, here and nowhere else."""
    try:
        await main(stop)
    except Exception as error:  # noqa: BLE001 - the outermost frame of a process: logged, then its exit code
        return _code_of(error)
    return ExitCode.OK


def _code_of(error: BaseException) -> ExitCode:
    """Return the code of the first cause that has one, else INTERNAL; log the cause."""
    known = next((cause for cause in _causes(error) if _own_code(cause) is not None), None)
    if known is None:
        _log.critical("internal error, please report it", exc_info=error)
        return ExitCode.INTERNAL
    code = _own_code(known)
    assert code is not None, "chosen because it has one"
    _log.critical("%s", known, extra=fields(reason=code.name))
    return code


def _causes(error: BaseException) -> list[BaseException]:
    """Return the exceptions within a group, or the exception itself."""
    if isinstance(error, BaseExceptionGroup):
        return [cause for inner in error.exceptions for cause in _causes(inner)]
    return [error]


def _own_code(error: BaseException) -> ExitCode | None:
    if isinstance(error, DiskError):
        return ExitCode.IO
    code = getattr(error, "exit_code", None)
    return code if isinstance(code, ExitCode) else None
