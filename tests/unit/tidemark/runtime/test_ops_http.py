import asyncio
import contextlib
import logging
import threading
from collections.abc import Awaitable, Callable, Iterator
from contextlib import AsyncExitStack

import httpx
import pytest
from tidemark.runtime.metrics import Metrics
from tidemark.runtime.ops_http import (
    AddressTakenError,
    HttpServer,
    OpsServer,
    Receive,
    Scope,
    Send,
    bind_listener,
)
from tidemark.runtime.service_config import HostPort
from waiting import PATIENCE_S

Ask = Callable[[httpx.AsyncClient], Awaitable[httpx.Response]]


class Door:
    """One server and one client for all tests here: to stop a server takes a tenth of a second.

    ``problem`` is what it answers when asked for its readiness.
    """

    def __init__(self, runner: asyncio.Runner) -> None:
        self.problem: str | None = None
        self._runner = runner
        self._open = AsyncExitStack()
        self.server = OpsServer(
            "127.0.0.1:0", Metrics("broker").registry, ready=lambda: self.problem
        )

    async def start(self) -> None:
        await self._open.enter_async_context(self.server)
        client = httpx.AsyncClient(base_url=f"http://{self.server.address}", trust_env=False)
        self._client = await self._open.enter_async_context(client)

    async def stop(self) -> None:
        await self._open.aclose()

    def ask(self, ask: Ask, *, problem: str | None = None) -> httpx.Response:
        self.problem = problem
        return self._runner.run(_answer(ask(self._client)))


async def _answer(answer: Awaitable[httpx.Response]) -> httpx.Response:
    return await answer


@pytest.fixture(scope="module")
def door() -> Iterator[Door]:
    with asyncio.Runner() as runner:
        door = Door(runner)
        runner.run(door.start())
        yield door
        runner.run(door.stop())


@pytest.fixture(autouse=True)
def _level_as_it_was() -> Iterator[None]:
    level = logging.getLogger().level
    yield
    logging.getLogger().setLevel(level)
    logging.getLogger("example").setLevel(logging.NOTSET)


def test_metrics_are_served_as_text(door: Door) -> None:
    answer = door.ask(lambda client: client.get("/metrics"))
    assert answer.status_code == 200
    assert answer.headers["content-type"].startswith("text/plain")
    assert "tidemark_build_info" in answer.text


def test_a_scraper_that_asks_gets_open_metrics(door: Door) -> None:
    accept = {"accept": "application/openmetrics-text; version=1.0.0"}
    answer = door.ask(lambda client: client.get("/metrics", headers=accept))
    assert answer.headers["content-type"].startswith("application/openmetrics-text")
    assert answer.text.endswith("# EOF\n")


def test_a_service_that_answers_lives(door: Door) -> None:
    answer = door.ask(lambda client: client.get("/livez"), problem="not yet")
    assert (answer.status_code, answer.text) == (200, "ok\n")


def test_readiness_says_why_not(door: Door) -> None:
    answer = door.ask(lambda client: client.get("/readyz"), problem="no controller")
    assert (answer.status_code, answer.text) == (503, "no controller\n")


def test_head_has_no_body(door: Door) -> None:
    answer = door.ask(lambda client: client.head("/readyz"))
    assert (answer.status_code, answer.content) == (200, b"")


@pytest.mark.parametrize("body", ["debug", '"DEBUG"', '{"level": "DEBUG"}'])
def test_the_log_level_is_changed_while_running(door: Door, body: str) -> None:
    answer = door.ask(lambda client: client.put("/loglevel", content=body))
    assert answer.json()["level"] == "DEBUG"
    assert logging.getLogger().level == logging.DEBUG


def test_one_loggers_level_is_changed(door: Door) -> None:
    door.ask(lambda client: client.put("/loglevel?logger=example", content="ERROR"))
    assert logging.getLogger("example").level == logging.ERROR


@pytest.mark.parametrize(
    ("body", "status"), [("LOUD", 400), ("{", 400), (b"\xff", 400), ("x" * 2_000, 413)]
)
def test_a_level_that_cannot_be_is_refused(door: Door, body: str | bytes, status: int) -> None:
    assert door.ask(lambda client: client.put("/loglevel", content=body)).status_code == status


def test_other_paths_and_methods_are_refused(door: Door) -> None:
    assert door.ask(lambda client: client.get("/nothing")).status_code == 404
    assert door.ask(lambda client: client.post("/metrics")).status_code == 405


async def _listen_at(address: HostPort) -> None:
    async with OpsServer(str(address), Metrics("broker").registry, ready=lambda: None):
        pass


def test_a_taken_port_names_the_key_to_change(door: Door) -> None:
    with pytest.raises(AddressTakenError, match=r"or change ops\.listen"):
        asyncio.run(_listen_at(door.server.address))


@pytest.mark.feature("SE11")
@pytest.mark.parametrize(
    "sent", [b"", b"GET /livez HTTP/1.1\r\nx: ", b"GET /livez HTTP/1.1\r\nhost: h\r\n\r\nGET"]
)
def test_slow_handshake_a_client_that_completes_no_request_is_disconnected(
    sent: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tidemark.runtime.ops_http._HEAD_S", 0.05)
    monkeypatch.setattr("tidemark.runtime.ops_http._KEEP_ALIVE_S", 1)

    async def main() -> bytes:
        async with OpsServer("127.0.0.1:0", Metrics("b").registry, ready=lambda: None) as server:
            reader, writer = await asyncio.open_connection(*server.address)
            writer.write(sent)
            answer = b""
            async with asyncio.timeout(PATIENCE_S):
                with contextlib.suppress(ConnectionError):
                    while part := await reader.read(1_000):
                        answer += part
            writer.close()
            return answer

    answer = asyncio.run(main())
    assert (b"200" in answer) == (b"\r\n\r\n" in sent)


def test_a_request_that_takes_long_and_a_pause_before_the_next_are_no_slow_heads(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("tidemark.runtime.ops_http._HEAD_S", 0.2)
    slow_s = 0.4

    async def after_a_while() -> None:
        over = asyncio.Event()
        asyncio.get_running_loop().call_later(slow_s, over.set)
        await over.wait()

    async def slow(scope: Scope, _: Receive, send: Send) -> None:
        await after_a_while()
        await send({"type": "http.response.start", "status": 204, "headers": []})
        await send({"type": "http.response.body"})

    async def main() -> list[int]:
        async with (
            HttpServer(slow, "127.0.0.1:0", key="x") as server,
            httpx.AsyncClient(base_url=f"http://{server.address}", trust_env=False) as client,
        ):
            first = await client.get("/")
            await after_a_while()
            return [first.status_code, (await client.get("/")).status_code]

    assert asyncio.run(main()) == [204, 204]


async def reads_all(_: Scope, receive: Receive, send: Send) -> None:
    """Answer once the body has arrived."""
    while (await receive()).get("more_body"):
        pass
    await send({"type": "http.response.start", "status": 204, "headers": []})
    await send({"type": "http.response.body"})


@pytest.mark.feature("SE11")
@pytest.mark.parametrize("body", [b"", b"user=a"])
def test_slow_body_a_client_that_does_not_complete_it_is_disconnected(
    body: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tidemark.runtime.ops_http._BODY_S", 0.05)

    async def main() -> bytes:
        async with HttpServer(reads_all, "127.0.0.1:0", key="x") as server:
            reader, writer = await asyncio.open_connection(*server.address)
            writer.write(b"POST /login HTTP/1.1\r\nhost: h\r\ncontent-length: 100\r\n\r\n" + body)
            answer = b"?"
            async with asyncio.timeout(PATIENCE_S):
                with contextlib.suppress(ConnectionError):
                    answer = await reader.read(1_000)
            writer.close()
            return answer

    assert asyncio.run(main()) == b""


def test_an_answer_that_takes_long_is_no_slow_body(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tidemark.runtime.ops_http._BODY_S", 0.2)

    async def slow(scope: Scope, receive: Receive, send: Send) -> None:
        over = asyncio.Event()
        asyncio.get_running_loop().call_later(0.4, over.set)
        await over.wait()
        await reads_all(scope, receive, send)

    async def main() -> list[int]:
        async with (
            HttpServer(slow, "127.0.0.1:0", key="x") as server,
            httpx.AsyncClient(base_url=f"http://{server.address}", trust_env=False) as client,
        ):
            return [(await client.post("/", content=b"a")).status_code for _ in range(2)]

    assert asyncio.run(main()) == [204, 204]


async def nothing(_scope: Scope, _receive: Receive, _send: Send) -> None:
    """Answer nothing."""


async def _begun(server: HttpServer, meanwhile: Callable[[asyncio.Task[object]], object]) -> None:
    """Start a server; call ``meanwhile`` once its address is bound, before it listens."""
    async with asyncio.TaskGroup() as tasks:
        starting = tasks.create_task(server.__aenter__())
        await asyncio.sleep(0)
        meanwhile(starting)


async def _is_left(server: HttpServer) -> bool:
    """True if a task or a listener is left of the server."""
    await asyncio.sleep(0)
    if asyncio.all_tasks() != {asyncio.current_task()}:
        return True
    with bind_listener(server.address, "x") as sock:
        sock.listen()
    return False


def test_a_start_that_another_listener_overtakes_leaves_nothing() -> None:
    async def main() -> None:
        with bind_listener(HostPort("127.0.0.1", 0), "x") as rival:
            address = "{}:{}".format(*rival.getsockname())
            server = HttpServer(nothing, address, key="rest.listen")
            with pytest.raises(ExceptionGroup) as raised:
                await _begun(server, lambda _: rival.listen())
        assert raised.group_contains(AddressTakenError, match=f"{address}.*rest.listen", depth=1)
        assert not await _is_left(server)

    asyncio.run(main())


def test_a_start_that_is_cancelled_leaves_nothing() -> None:
    async def main() -> None:
        server = HttpServer(nothing, "127.0.0.1:0", key="x")
        await _begun(server, lambda starting: starting.cancel())
        assert not await _is_left(server)

    asyncio.run(main())


def _probe(url: str, probed: threading.Event) -> None:
    try:
        httpx.get(url, timeout=httpx.Timeout(PATIENCE_S, read=0.2), trust_env=False)
    finally:
        probed.set()


def test_a_service_whose_loop_stands_still_gives_a_prober_no_answer() -> None:
    probed = threading.Event()

    async def main() -> None:
        async with OpsServer("127.0.0.1:0", Metrics("b").registry, ready=lambda: None) as server:
            url = f"http://{server.address}/livez"
            probing = asyncio.get_running_loop().run_in_executor(None, _probe, url, probed)
            assert probed.wait(PATIENCE_S)  # the loop stands here
            with pytest.raises(httpx.ReadTimeout):
                await probing
            answer = await asyncio.to_thread(httpx.get, url, timeout=PATIENCE_S, trust_env=False)
            assert answer.text == "ok\n"

    asyncio.run(main())
