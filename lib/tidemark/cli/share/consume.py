"""``tidemark share consume``: records as lines on stdout, with one outcome for all."""

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from tidemark.cli.admin_client import open_cluster_admin
from tidemark.cli.output import OutputFormat, print_line_document, say
from tidemark.cli.security import security
from tidemark.cli.topic.formats import FIELDS, as_document, as_line
from tidemark.client.consumer.fetched_chunk import ConsumerRecord
from tidemark.client.share.ack_batches import AcknowledgeType
from tidemark.client.share.deliveries import ShareRecord
from tidemark.client.share.share_consumer import ShareConsumer
from tidemark.runtime.clock import Clock

SHARE_FIELDS: Final = (*FIELDS, "delivery_count")
_RECORDS_A_POLL: Final = 500
_POLL_MS: Final = 500


@dataclass(frozen=True, slots=True)
class ShareConsumeJob:
    """Records to read, their outcome, and the format to print; with ``template`` None documents
    of ``output``.
    """

    bootstrap: str
    group_id: str
    topics: Sequence[str]
    outcome: AcknowledgeType
    delay_ms: int
    """Delay before released records are delivered again; 0: by the group's configuration."""
    count: int | None
    idle_ms_max: int | None
    """Time without a record after which to stop."""
    template: str | None
    output: OutputFormat


async def consume(job: ShareConsumeJob) -> int:
    """Print and acknowledge records until the count, or until there are none; return their number.

    A record is printed before its outcome is stored: after a failure it may be printed again.
    Raises ClientError at the start without a cluster or a topic: a member would wait for them in
    silence, as if there were no records.
    """
    async with open_cluster_admin(job.bootstrap) as admin:
        await admin.describe_topics(job.topics)
    clock = Clock()
    total, printed_at = 0, clock.now_ms()
    async with ShareConsumer(
        job.bootstrap,
        group_id=job.group_id,
        share_acknowledgement_mode="explicit",
        share_acquire_mode="record_limit",
        **security(job.bootstrap),
    ) as consumer:
        consumer.subscribe(job.topics)
        while job.count is None or total < job.count:
            left = _RECORDS_A_POLL if job.count is None else job.count - total
            records = await consumer.poll(min(left, _RECORDS_A_POLL), timeout_ms=_POLL_MS)
            _print(records, job)
            for record in records:
                consumer.acknowledge(record, job.outcome, delay_ms=job.delay_ms)
            await _store(consumer)
            total += len(records)
            if records:
                printed_at = clock.now_ms()
            elif job.idle_ms_max is not None and clock.now_ms() - printed_at >= job.idle_ms_max:
                break
    return total


async def _store(consumer: ShareConsumer) -> None:
    for partition, error in (await consumer.commit_sync()).items():
        if error is not None:
            say(f"{partition}: {error.message}")


def _print(records: Sequence[ShareRecord], job: ShareConsumeJob) -> None:
    for record in records:
        plain = ConsumerRecord(*record[:-1])
        if job.template is None:
            document = as_document(plain, delivery_count=record.delivery_count)
            print_line_document(document, job.output)
        else:
            line = as_line(plain, job.template, delivery_count=record.delivery_count)
            sys.stdout.write(f"{line}\n")
    sys.stdout.flush()
