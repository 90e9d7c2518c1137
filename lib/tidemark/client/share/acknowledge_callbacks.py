"""Functions of the application that receive the outcome of acknowledgements."""

import logging
from collections.abc import Callable, Mapping
from typing import Final

from tidemark.client.errors import ClientError
from tidemark.model.topics import TopicPartition

log: Final = logging.getLogger("tidemark.client.share.acknowledge_callbacks")

AcknowledgeResults = Mapping[TopicPartition, ClientError | None]
"""Outcome of acknowledgements by partition; None: all are stored."""
AcknowledgeCallback = Callable[[AcknowledgeResults], None]


def call_back(callback: AcknowledgeCallback, results: AcknowledgeResults) -> None:
    """Call a function of the application. An exception is logged: raised here, it would end the
    tasks of the consumer, and with them records that were just received.
    """
    try:
        callback(results)
    except Exception:
        log.exception("a callback for acknowledgements failed")
