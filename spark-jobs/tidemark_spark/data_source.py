"""The class that Spark calls for the format ``tidemark``."""

from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    DataSourceStreamReader,
    DataSourceStreamWriter,
    DataSourceWriter,
)
from pyspark.sql.types import StructType

from tidemark_spark.options import boolean
from tidemark_spark.source.read_options import read_options
from tidemark_spark.source.schema import HEADERS_DDL, SOURCE_DDL


class TidemarkDataSource(DataSource):
    """Data source for topics, in batch and streaming queries.

    Spark starts a process for each step of planning a query, so modules are imported only where
    they are needed.
    """

    @classmethod
    def name(cls) -> str:
        """Name of the format: ``spark.read.format("tidemark")``."""
        return "tidemark"

    def schema(self) -> str:
        """Return the columns of Spark's Kafka source; ``headers`` only with includeHeaders."""
        options = {name.lower(): value for name, value in self.options.items()}
        with_headers = boolean(options, "includeHeaders", otherwise=False)
        return f"{SOURCE_DDL}, {HEADERS_DDL}" if with_headers else SOURCE_DDL

    def reader(self, schema: StructType) -> DataSourceReader:
        """Return the reader for ``spark.read``. Raises OptionError, SchemaError."""
        from tidemark_spark.source.batch_reader import BatchReader

        return BatchReader(read_options(self.options, streaming=False), schema)

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802
        """Return the reader for ``spark.readStream``. Raises OptionError, SchemaError."""
        from tidemark_spark.source.stream_reader import StreamReader

        return StreamReader(read_options(self.options, streaming=True), schema)

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:  # noqa: FBT001
        """Return the writer for ``df.write``. Raises OptionError, SchemaError."""
        from tidemark_spark.sink.batch_writer import BatchWriter

        return BatchWriter(self.options, schema, overwrite=overwrite)

    def streamWriter(  # noqa: N802
        self,
        schema: StructType,
        overwrite: bool,  # noqa: FBT001
    ) -> DataSourceStreamWriter:
        """Return the writer for ``df.writeStream``. Raises OptionError, SchemaError."""
        from tidemark_spark.sink.stream_writer import StreamWriter

        return StreamWriter(self.options, schema, overwrite=overwrite)
