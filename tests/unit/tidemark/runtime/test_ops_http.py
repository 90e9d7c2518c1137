import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterator

import httpx
import pytest
from tidemark.runtime.metrics import Metrics
from tidemark.runtime.ops_http import AddressTakenError, Health, OpsServer

Ask = Callable[[httpx.AsyncClient], Awaitable[httpx.Response]]


@pytest.fixture(autouse=True)
def _level_as_it_was() -> Iterator[None]:
    level = logging.getLogger().level
    yield
    logging.getLogger().setLevel(level)
    logging.getLogger("example").setLevel(logging.NOTSET)


def asked(ask: Ask, *, ready: Health = lambda: None) -> httpx.Response:
    async def main() -> httpx.Response:
        async with (
            OpsServer("127.0.0.1:0", Metrics("broker").registry, ready=ready) as server,
            httpx.AsyncClient(base_url=f"http://{server.address}", trust_env=False) as client,
        ):
            return await ask(client)

    return asyncio.run(main())


def test_metrics_are_served_as_text() -> None:
    answer = asked(lambda client: client.get("/metrics"))
    assert answer.status_code == 200
    assert answer.headers["content-type"].startswith("text/plain")
    assert "tidemark_build_info" in answer.text


def test_a_scraper_that_asks_gets_open_metrics() -> None:
    accept = {"accept": "application/openmetrics-text; version=1.0.0"}
    answer = asked(lambda client: client.get("/metrics", headers=accept))
    assert answer.headers["content-type"].startswith("application/openmetrics-text")
    assert answer.text.endswith("# EOF\n")


def test_a_service_that_answers_lives() -> None:
    answer = asked(lambda client: client.get("/livez"), ready=lambda: "not yet")
    assert (answer.status_code, answer.text) == (200, "ok\n")


def test_readiness_says_why_not() -> None:
    answer = asked(lambda client: client.get("/readyz"), ready=lambda: "no controller")
    assert (answer.status_code, answer.text) == (503, "no controller\n")


def test_head_has_no_body() -> None:
    answer = asked(lambda client: client.head("/readyz"))
    assert (answer.status_code, answer.content) == (200, b"")


@pytest.mark.parametrize("body", ["debug", '"DEBUG"', '{"level": "DEBUG"}'])
def test_the_log_level_is_changed_while_running(body: str) -> None:
    answer = asked(lambda client: client.put("/loglevel", content=body))
    assert answer.json()["level"] == "DEBUG"
    assert logging.getLogger().level == logging.DEBUG


def test_one_loggers_level_is_changed() -> None:
    asked(lambda client: client.put("/loglevel?logger=example", content="ERROR"))
    assert logging.getLogger("example").level == logging.ERROR


@pytest.mark.parametrize(
    ("body", "status"), [("LOUD", 400), ("{", 400), (b"\xff", 400), ("x" * 2_000, 413)]
)
def test_a_level_that_cannot_be_is_refused(body: str | bytes, status: int) -> None:
    assert asked(lambda client: client.put("/loglevel", content=body)).status_code == status


def test_other_paths_and_methods_are_refused() -> None:
    assert asked(lambda client: client.get("/nothing")).status_code == 404
    assert asked(lambda client: client.post("/metrics")).status_code == 405


async def _listen_twice() -> None:
    registry = Metrics("broker").registry
    async with (
        OpsServer("127.0.0.1:0", registry, ready=lambda: None) as first,
        OpsServer(str(first.address), registry, ready=lambda: None),
    ):
        pass


def test_a_taken_port_names_the_key_to_change() -> None:
    with pytest.raises(AddressTakenError, match=r"or change ops\.listen"):
        asyncio.run(_listen_twice())
