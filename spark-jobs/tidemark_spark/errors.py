"""Errors of the data source: one line for what is wrong and where, one for what to try."""


class TidemarkSparkError(Exception):
    """Base class. Contains text only, so that it can be pickled between Spark's processes."""

    def __init__(self, what: str, hint: str = "") -> None:
        super().__init__(f"{what}\n  try: {hint}" if hint else what)
        self.what = what
        self.hint = hint

    def __reduce__(self) -> tuple[type["TidemarkSparkError"], tuple[str, str]]:
        return type(self), (self.what, self.hint)


class OptionError(TidemarkSparkError):
    """An option is missing, unknown, malformed or contradicts another one."""


class SchemaError(TidemarkSparkError):
    """A column that the source does not provide or the sink does not accept."""


class DataLossError(TidemarkSparkError):
    """Records that the query has not read no longer exist, and failOnDataLoss is true."""


class SourceError(TidemarkSparkError):
    """The cluster refused a read or cannot be reached."""
