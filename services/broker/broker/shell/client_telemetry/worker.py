"""The job of a worker that decodes a push."""

from collections.abc import Sequence

from broker.shell.client_telemetry.pushes import DecodedPush


def decode(codec: int, payload: bytes, prefixes: Sequence[str], bytes_max: int) -> DecodedPush:
    """Return the points of subscribed metrics, and raise, as ``otlp.decode_push``. OpenTelemetry's
    messages are imported by workers alone.
    """
    from broker.shell.client_telemetry.otlp import decode_push

    return decode_push(codec, payload, prefixes, bytes_max)
