"""Two other codecs: each reads our bytes and writes them again, so that equal bytes mean equal
understanding."""

import importlib
import io
from functools import cache
from typing import Any

from kafka.protocol.api_message import ApiMessage
from kio.index import load_request_schema, load_response_schema
from kio.serial import entity_reader, entity_writer

_KAFKA_PYTHON_MODULES = ("admin", "consumer", "metadata", "producer", "sasl")


def kio_again(key: int, version: int, direction: str, body: bytes) -> bytes:
    """Read and written by kio."""
    load = load_request_schema if direction == "request" else load_response_schema
    schema = load(key, version)
    entity, size = entity_reader(schema)(body, 0)
    assert size == len(body), f"kio read {size} of {len(body)} bytes"
    with io.BytesIO() as buffer:
        entity_writer(schema)(buffer, entity)
        return buffer.getvalue()


@cache
def _kafka_python_classes() -> dict[tuple[int, str], Any]:
    classes: dict[tuple[int, str], Any] = {}
    for name in _KAFKA_PYTHON_MODULES:
        module = importlib.import_module(f"kafka.protocol.{name}")
        found: list[Any] = [
            item
            for item in vars(module).values()
            if isinstance(item, type) and issubclass(item, ApiMessage) and item is not ApiMessage
        ]
        classes.update({(item.API_KEY, item.type): item for item in found})
    return classes


def kafka_python_knows(key: int, version: int, direction: str) -> bool:
    """Whether kafka-python has this message."""
    found = _kafka_python_classes().get((key, direction))
    return found is not None and version <= found.max_version


def kafka_python_again(key: int, version: int, direction: str, body: bytes) -> bytes:
    """Read and written by kafka-python."""
    message = _kafka_python_classes()[key, direction].decode(body, version=version, header=False)
    message._header = None
    return bytes(message.encode(version=version))


def kio_request_header(key: int, version: int, correlation_id: int, client_id: str) -> bytes:
    """The header that kio's schema of this request names."""
    header: Any = load_request_schema(key, version).__header_schema__
    return _kio_bytes(
        header(
            request_api_key=key,
            request_api_version=version,
            correlation_id=correlation_id,
            client_id=client_id,
        )
    )


def kio_response_header(key: int, version: int, correlation_id: int) -> bytes:
    """The header that kio's schema of this response names."""
    header: Any = load_response_schema(key, version).__header_schema__
    return _kio_bytes(header(correlation_id=correlation_id))


def _kio_bytes(entity: Any) -> bytes:
    with io.BytesIO() as buffer:
        entity_writer(type(entity))(buffer, entity)
        return buffer.getvalue()
