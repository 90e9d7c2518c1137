"""What the data source raises: one line what is wrong and where, one line what to try."""


class TidemarkSparkError(Exception):
    """Base of all. Plain text, so that it crosses Spark's process boundaries whole."""

    def __init__(self, what: str, hint: str = "") -> None:
        super().__init__(f"{what}\n  try: {hint}" if hint else what)
        self.what = what
        self.hint = hint

    def __reduce__(self) -> tuple[type["TidemarkSparkError"], tuple[str, str]]:
        return type(self), (self.what, self.hint)


class OptionError(TidemarkSparkError):
    """An option that is missing, unknown, malformed or contradicts another."""


class SchemaError(TidemarkSparkError):
    """Columns that the source does not give, or the sink does not take."""


class DataLossError(TidemarkSparkError):
    """Records that the query has not read are no longer there, and failOnDataLoss is true."""


class SourceError(TidemarkSparkError):
    """The cluster refused, or cannot be reached."""
