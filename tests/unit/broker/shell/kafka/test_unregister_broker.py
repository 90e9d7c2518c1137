from typing import Any

import pytest
from broker.shell.cluster import controller_relay
from tidemark.kafka.apis import ApiKey
from tidemark.model.errors import ErrorCode, TidemarkError
from tidemark_wire.v1 import common_pb2
from tidemark_wire.v1 import controller_pb2 as pb
from unit.broker.shell.kafka.conftest import Ask, StubController

SEEN = common_pb2.FeedPosition(controller_epoch=1, version=5)
NOT_SEEN = common_pb2.FeedPosition(controller_epoch=1, version=7)


def unregister(ask: Ask, broker_id: int = 7) -> tuple[Any, Any]:
    answer = ask(ApiKey.UNREGISTER_BROKER, {"broker_id": broker_id})
    return ErrorCode(answer.error_code), answer.error_message


@pytest.mark.feature("AD27")
def test_a_broker_is_unregistered_by_the_controller(ask: Ask, controller: StubController) -> None:
    controller.answers["UnregisterBroker"] = pb.UnregisterBrokerResponse(position=SEEN)
    assert unregister(ask) == (ErrorCode.NONE, None)
    ((_, asked, _),) = controller.asked
    assert (asked.broker_id, asked.caller.principal) == (7, "User:ANONYMOUS")


@pytest.mark.feature("AD27")
def test_refusals_of_the_controller_are_passed_on(ask: Ask, controller: StubController) -> None:
    refused = pb.UnregisterBrokerResponse(error_code=44, error_message="it is alive")
    controller.answers["UnregisterBroker"] = refused
    assert unregister(ask) == (ErrorCode.POLICY_VIOLATION, "it is alive")
    controller.answers["UnregisterBroker"] = TidemarkError(ErrorCode.NOT_CONTROLLER, "none")
    assert unregister(ask) == (ErrorCode.NOT_CONTROLLER, "none")


def test_a_change_that_does_not_show_in_time_is_retried_by_clients(
    ask: Ask, controller: StubController, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(controller_relay, "ALTER_CONFIGS_TIMEOUT_MS", 1)
    controller.answers["UnregisterBroker"] = pb.UnregisterBrokerResponse(position=NOT_SEEN)
    assert unregister(ask)[0] is ErrorCode.REQUEST_TIMED_OUT
