"""gRPC channels, opened only here: the same limits and keepalive for all, TLS on request."""

from typing import Final

import grpc
import grpc.aio

MIB: Final = 1024 * 1024
MESSAGE_BYTES_MAX: Final = 64 * MIB
"""Room for a metadata snapshot of 100,000 partitions, and for a batch of any allowed size."""

_OPTIONS: Final[tuple[tuple[str, int], ...]] = (
    ("grpc.max_send_message_length", MESSAGE_BYTES_MAX),
    ("grpc.max_receive_message_length", MESSAGE_BYTES_MAX),
    # A peer that vanished without a FIN is noticed within time + timeout, even without calls.
    ("grpc.keepalive_time_ms", 10_000),
    ("grpc.keepalive_timeout_ms", 5_000),
    ("grpc.keepalive_permit_without_calls", 1),
    ("grpc.http2.max_pings_without_data", 0),
    # Reconnecting is cheap, and a controller failover should take only seconds.
    ("grpc.initial_reconnect_backoff_ms", 100),
    ("grpc.min_reconnect_backoff_ms", 1_000),
    ("grpc.max_reconnect_backoff_ms", 2_000),
    # A pod that is made again has another address under the same name; gRPC's default is to ask for
    # it every 30 s at most.
    ("grpc.dns_min_time_between_resolutions_ms", 1_000),
    ("grpc.enable_http_proxy", 0),
)


def open_channel(
    target: str, credentials: grpc.ChannelCredentials | None = None
) -> grpc.aio.Channel:
    """Return a channel to ``host:port`` that connects when first used. The caller closes it.

    ``credentials`` come from ``tls.channel_credentials``; None means plain text.
    """
    assert ":" in target, f"expected host:port, not {target!r}"
    if credentials is not None:
        return grpc.aio.secure_channel(target, credentials, options=_OPTIONS)
    return grpc.aio.insecure_channel(target, options=_OPTIONS)
