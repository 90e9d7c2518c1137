"""The data source ``tidemark`` as Spark meets it: four doors, each to a module of its own."""

from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    DataSourceStreamReader,
    DataSourceStreamWriter,
    DataSourceWriter,
)
from pyspark.sql.types import StructType

from tidemark_spark.options import boolean, read_options
from tidemark_spark.schema import HEADERS_DDL, SOURCE_DDL


class TidemarkDataSource(DataSource):
    """Reads topics and writes them, in batch and streaming queries.

    Modules are imported where they are needed: Spark starts a process for each step of a query's
    planning.
    """

    @classmethod
    def name(cls) -> str:
        """``spark.read.format("tidemark")``."""
        return "tidemark"

    def schema(self) -> str:
        """The columns of Spark's Kafka source, with ``headers`` if they are asked for."""
        options = {name.lower(): value for name, value in self.options.items()}
        with_headers = boolean(options, "includeHeaders", otherwise=False)
        return f"{SOURCE_DDL}, {HEADERS_DDL}" if with_headers else SOURCE_DDL

    def reader(self, schema: StructType) -> DataSourceReader:
        """For ``spark.read``. Raises OptionError, SchemaError."""
        from tidemark_spark.batch_reader import BatchReader

        return BatchReader(read_options(self.options, streaming=False), schema)

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802
        """For ``spark.readStream``. Raises OptionError, SchemaError."""
        from tidemark_spark.stream_reader import StreamReader

        return StreamReader(read_options(self.options, streaming=True), schema)

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:  # noqa: FBT001
        """For ``df.write``. Raises OptionError, SchemaError."""
        from tidemark_spark.batch_writer import BatchWriter

        return BatchWriter(self.options, schema, overwrite=overwrite)

    def streamWriter(  # noqa: N802
        self,
        schema: StructType,
        overwrite: bool,  # noqa: FBT001
    ) -> DataSourceStreamWriter:
        """For ``df.writeStream``. Raises OptionError, SchemaError."""
        from tidemark_spark.stream_writer import StreamWriter

        return StreamWriter(self.options, schema, overwrite=overwrite)
