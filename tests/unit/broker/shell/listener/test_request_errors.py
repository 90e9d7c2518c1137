"""Requests whose answer has an error are counted, wherever in the answer it is."""

import asyncio
from collections.abc import Mapping
from types import SimpleNamespace
from typing import Any, cast

import pytest
from broker.shell.listener.replies import Reply
from broker.shell.listener.request_router import RequestRouter, _Asked
from broker.shell.request_context import RequestContext
from tidemark.kafka.apis import APIS, ApiKey
from tidemark.kafka.headers import RequestHeader
from tidemark.kafka.long_tail import Struct
from tidemark.model.authorization import Requester
from tidemark.model.errors import ErrorCode, TidemarkError
from unit.broker.shell.broker_worlds import World

_FAILED = int(ErrorCode.NOT_COORDINATOR)


def commit(*codes: int) -> Mapping[str, object]:
    partitions = [{"partition_index": at, "error_code": code} for at, code in enumerate(codes)]
    return {"topics": [{"name": "t", "partitions": partitions}]}


@pytest.mark.parametrize(
    ("api_key", "answer", "errors"),
    [
        (ApiKey.HEARTBEAT, {"error_code": 0}, 0),
        (ApiKey.HEARTBEAT, {"error_code": _FAILED}, 1),
        (ApiKey.OFFSET_COMMIT, commit(0, 0), 0),
        (ApiKey.OFFSET_COMMIT, commit(0, _FAILED, _FAILED), 1),
        (ApiKey.OFFSET_COMMIT, {"topics": []}, 0),
        (ApiKey.HEARTBEAT, TidemarkError(ErrorCode.NOT_COORDINATOR, "it is elsewhere"), 1),
    ],
)
def test_an_answer_with_an_error_counts_once(
    api_key: ApiKey, answer: Mapping[str, object] | TidemarkError, errors: int
) -> None:
    async def handler(_: Struct, __: RequestContext) -> Mapping[str, object]:
        if isinstance(answer, TidemarkError):
            raise answer
        return answer

    parts, version = World().parts, APIS[api_key].max
    router = RequestRouter(parts.counters, {}, {api_key: handler}, parts.facts.quotas)
    sent: list[Any] = []
    reply = SimpleNamespace(send=sent.append, mute=lambda _: None)
    context = RequestContext(Requester("User:me", ""), "c", 1, version, "CLIENT", "peer", "r-1")
    header = RequestHeader(api_key, version, 1, "c", 0)
    asked = _Asked(header, b"", cast("Reply", reply), context)
    asyncio.run(router._run(handler, Struct(), asked))
    assert len(sent) == 1
    assert parts.counters.request_errors[api_key] == errors
    assert sum(parts.counters.request_errors) == errors
