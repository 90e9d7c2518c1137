"""The one place where gRPC channels are made: limits and keepalive for all, TLS where it is asked
for.
"""

from typing import Final

import grpc
import grpc.aio

MIB: Final = 1024 * 1024
MESSAGE_BYTES_MAX: Final = 64 * MIB
"""A metadata snapshot of 100,000 partitions fits; so does a batch of any allowed size."""

_OPTIONS: Final[tuple[tuple[str, int], ...]] = (
    ("grpc.max_send_message_length", MESSAGE_BYTES_MAX),
    ("grpc.max_receive_message_length", MESSAGE_BYTES_MAX),
    # A peer that vanished without a FIN is noticed within time + timeout, calls or none.
    ("grpc.keepalive_time_ms", 10_000),
    ("grpc.keepalive_timeout_ms", 5_000),
    ("grpc.keepalive_permit_without_calls", 1),
    ("grpc.http2.max_pings_without_data", 0),
    # Reconnecting is cheap, and a controller failover is to be over in seconds.
    ("grpc.initial_reconnect_backoff_ms", 100),
    ("grpc.min_reconnect_backoff_ms", 1_000),
    ("grpc.max_reconnect_backoff_ms", 2_000),
    ("grpc.enable_http_proxy", 0),
)


def open_channel(
    target: str, credentials: grpc.ChannelCredentials | None = None
) -> grpc.aio.Channel:
    """A channel to ``host:port``; connects when first used. Whoever opened it closes it.

    ``credentials`` are of ``tls.channel_credentials``; None: plain text.
    """
    assert ":" in target, f"expected host:port, not {target!r}"
    if credentials is not None:
        return grpc.aio.secure_channel(target, credentials, options=_OPTIONS)
    return grpc.aio.insecure_channel(target, options=_OPTIONS)
