"""Audit of one broker: its sinks, and the notes of logins."""

from tidemark.model.authorization import MEMBER
from tidemark.model.errors import TidemarkError
from tidemark.model.topics import AUDIT_LOG
from tidemark.protocol.audit import NoteLogin, no_note
from tidemark.runtime.audit.config import LOG, TOPIC
from tidemark.runtime.audit.writer import AuditSink, AuditWriter, LogSink, Origin, TopicSink
from tidemark.runtime.channel_pool import ChannelPool
from tidemark.runtime.metadata_cache import MetadataCache

from broker.shell.cluster.internal_topics import InternalTopics
from broker.shell.facts import BrokerFacts
from broker.shell.request_context import RequestContext

_CONTEXT = RequestContext(MEMBER, None, 0, 0, "", "", "")


def note_login(facts: BrokerFacts) -> NoteLogin:
    """Return the function that notes logins."""
    trail = facts.audit
    if trail is None:
        return no_note
    return lambda login: trail.note(login, facts.clock.wall_ms())


def make_writer(
    facts: BrokerFacts, metadata: MetadataCache, topics: InternalTopics, channels: ChannelPool
) -> AuditWriter | None:
    """Return the writer; None without audit."""
    if facts.audit is None:
        return None

    async def ensure() -> TidemarkError | None:
        return await topics.ensure(_CONTEXT, AUDIT_LOG)

    sinks: list[AuditSink] = []
    if LOG in facts.config.audit_sinks:
        sinks.append(LogSink())
    if TOPIC in facts.config.audit_sinks:
        image = lambda: metadata.image  # noqa: E731
        sinks.append(TopicSink(image, channels, ensure, number=facts.broker_id))
    origin = Origin(f"broker-{facts.broker_id}", lambda: metadata.image.cluster_id)
    return AuditWriter(
        facts.audit, sinks, origin, facts.clock, interval_ms=facts.config.audit_interval_ms
    )
