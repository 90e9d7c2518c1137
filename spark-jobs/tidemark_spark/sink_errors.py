"""What the sink raises beside OptionError and SchemaError; each says what, and what to try."""

from tidemark_spark.errors import TidemarkSparkError


class SinkError(TidemarkSparkError):
    """The cluster refused a write, or cannot be reached."""


class RowError(SinkError):
    """A row that cannot be a record: no topic, no such partition, too large."""


class StaleCheckpointError(SinkError):
    """The checkpoint is older than what the sink has committed."""


class ReplayMismatchError(SinkError):
    """A batch that was committed before came again with other rows."""


class RetiredQueryError(SinkError):
    """Another query has taken the sink over."""
