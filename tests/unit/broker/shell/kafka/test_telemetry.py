"""GetTelemetrySubscriptions and PushTelemetry, but for what a worker decodes."""

import pytest
from tidemark.kafka.apis import ApiKey
from tidemark.model.errors import ErrorCode
from unit.broker.shell.broker_parts import BrokerParts
from unit.broker.shell.kafka.conftest import AskOf

pytestmark = pytest.mark.feature("AD91")

ALL = {"all": {"metrics": "*", "interval.ms": "1000"}}


def test_a_new_client_gets_an_id_and_is_told_what_to_push(
    parts: BrokerParts, ask_of: AskOf
) -> None:
    parts.telemetry.instances.subscribe(ALL)
    ask = ask_of(parts)
    told = ask(ApiKey.GET_TELEMETRY_SUBSCRIPTIONS, {"client_instance_id": bytes(16)})
    assert (told.error_code, told.requested_metrics, told.push_interval) == (0, ["*"], 1_000)
    assert told.accepted_compression_types == [4, 3, 1, 2]
    assert (told.telemetry_max_bytes, told.delta_temporality) == (1_048_576, False)
    again = ask(ApiKey.GET_TELEMETRY_SUBSCRIPTIONS, {"client_instance_id": told.client_instance_id})
    assert again.error_code == ErrorCode.THROTTLING_QUOTA_EXCEEDED
    push = {"client_instance_id": told.client_instance_id, "terminating": False}
    push |= {"subscription_id": told.subscription_id + 1, "compression_type": 0, "metrics": b""}
    refused = ask(ApiKey.PUSH_TELEMETRY, push).error_code
    assert refused == ErrorCode.UNKNOWN_SUBSCRIPTION_ID


def test_without_a_subscription_a_client_pushes_nothing(parts: BrokerParts, ask_of: AskOf) -> None:
    asked = {"client_instance_id": bytes(16)}
    told = ask_of(parts)(ApiKey.GET_TELEMETRY_SUBSCRIPTIONS, asked)
    assert (told.requested_metrics, told.push_interval) == ([], 300_000)
