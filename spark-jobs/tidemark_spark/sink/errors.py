"""Errors of the sink, in addition to OptionError and SchemaError."""

from tidemark_spark.errors import TidemarkSparkError


class SinkError(TidemarkSparkError):
    """The cluster refused a write or cannot be reached."""


class RowError(SinkError):
    """A row cannot be written: no topic, no such partition, or too large."""


class StaleCheckpointError(SinkError):
    """The checkpoint is older than what the sink has committed."""


class ReplayMismatchError(SinkError):
    """A batch that is already committed was replayed with other rows."""


class RetiredQueryError(SinkError):
    """Another query has taken over the sink."""
