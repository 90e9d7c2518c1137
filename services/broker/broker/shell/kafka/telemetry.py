"""GetTelemetrySubscriptions (71) and PushTelemetry (72): metrics of clients (KIP-714).

Any client may send them, as in Kafka. Values of sums are asked for as totals: so a push that was
lost does not make a counter wrong.
"""

from __future__ import annotations

from typing import Final

from tidemark.codec.compression import GZIP, LZ4, SNAPPY, ZSTD
from tidemark.kafka.long_tail import Struct
from tidemark.model.errors import ErrorCode, TidemarkError

from broker.core.client_metrics.instances import Push
from broker.shell.client_telemetry.receiver import ClientTelemetry
from broker.shell.request_context import RequestContext

CODECS: Final = (ZSTD, LZ4, GZIP, SNAPPY)
"""Preferred first."""


async def subscriptions(
    receiver: ClientTelemetry, request: Struct, context: RequestContext
) -> dict[str, object]:
    """Answer with the metrics that the client is to push, and when."""
    try:
        instance_id, wanted = receiver.ask(request.client_instance_id, context)
    except TidemarkError as refused:
        return {"error_code": int(refused.code)}
    return {
        "error_code": int(ErrorCode.NONE),
        "client_instance_id": instance_id,
        "subscription_id": wanted.subscription_id,
        "accepted_compression_types": list(CODECS),
        "push_interval": wanted.interval_ms,
        "telemetry_max_bytes": receiver.instances.bytes_max,
        "delta_temporality": False,
        "requested_metrics": list(wanted.metrics),
    }


async def push(
    receiver: ClientTelemetry, request: Struct, context: RequestContext
) -> dict[str, object]:
    """Take the metrics of a client."""
    payload = bytes(request.metrics or b"")
    pushed = Push(
        request.client_instance_id,
        request.subscription_id,
        request.terminating,
        request.compression_type,
        len(payload),
    )
    try:
        await receiver.push(pushed, payload, context)
    except TidemarkError as refused:
        return {"error_code": int(refused.code)}
    return {"error_code": int(ErrorCode.NONE)}
