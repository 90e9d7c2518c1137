package tidemark.conformance;

import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.Comparator;
import java.util.Optional;
import java.util.stream.Stream;
import org.apache.flink.api.common.eventtime.WatermarkStrategy;
import org.apache.flink.api.common.serialization.SimpleStringSchema;
import org.apache.flink.configuration.CheckpointingOptions;
import org.apache.flink.configuration.Configuration;
import org.apache.flink.configuration.ExternalizedCheckpointRetention;
import org.apache.flink.configuration.MemorySize;
import org.apache.flink.configuration.RestartStrategyOptions;
import org.apache.flink.configuration.StateRecoveryOptions;
import org.apache.flink.configuration.TaskManagerOptions;
import org.apache.flink.connector.base.DeliveryGuarantee;
import org.apache.flink.connector.kafka.sink.KafkaRecordSerializationSchema;
import org.apache.flink.connector.kafka.sink.KafkaSink;
import org.apache.flink.connector.kafka.sink.TransactionNamingStrategy;
import org.apache.flink.connector.kafka.source.KafkaSource;
import org.apache.flink.connector.kafka.source.enumerator.initializer.OffsetsInitializer;
import org.apache.flink.streaming.api.environment.StreamExecutionEnvironment;

/**
 * Copies a topic into another one exactly once, from the last checkpoint on.
 *
 * <p>Arguments: bootstrap servers, topic to read, topic to write, directory of checkpoints, how
 * transactions are named (INCREMENTING or POOLING). Runs until it is ended.
 */
public final class ExactlyOnceCopy {
    private static final int PARALLELISM = 2;
    private static final long CHECKPOINT_MS = 300;
    private static final int TRANSACTION_TIMEOUT_MS = 120_000;

    private ExactlyOnceCopy() {}

    public static void main(String[] args) throws Exception {
        String bootstrap = args[0];
        String from = args[1];
        String to = args[2];
        Path checkpoints = Path.of(args[3]);

        StreamExecutionEnvironment flink =
                StreamExecutionEnvironment.getExecutionEnvironment(settings(checkpoints));
        flink.setParallelism(PARALLELISM);
        flink.enableCheckpointing(CHECKPOINT_MS);
        KafkaSource<String> source =
                KafkaSource.<String>builder()
                        .setBootstrapServers(bootstrap)
                        .setTopics(from)
                        .setGroupId(to)
                        .setStartingOffsets(OffsetsInitializer.earliest())
                        .setValueOnlyDeserializer(new SimpleStringSchema())
                        .setProperty("isolation.level", "read_committed")
                        .build();
        KafkaSink<String> sink =
                KafkaSink.<String>builder()
                        .setBootstrapServers(bootstrap)
                        .setDeliveryGuarantee(DeliveryGuarantee.EXACTLY_ONCE)
                        .setTransactionalIdPrefix(to)
                        .setTransactionNamingStrategy(TransactionNamingStrategy.valueOf(args[4]))
                        .setProperty(
                                "transaction.timeout.ms", String.valueOf(TRANSACTION_TIMEOUT_MS))
                        .setRecordSerializer(
                                KafkaRecordSerializationSchema.<String>builder()
                                        .setTopic(to)
                                        .setValueSerializationSchema(new SimpleStringSchema())
                                        .build())
                        .build();
        flink.fromSource(source, WatermarkStrategy.noWatermarks(), "from")
                .uid("from")
                .sinkTo(sink)
                .uid("to");
        flink.execute("copy");
    }

    private static Configuration settings(Path checkpoints) throws IOException {
        Configuration settings = new Configuration();
        settings.set(CheckpointingOptions.CHECKPOINT_STORAGE, "filesystem");
        settings.set(CheckpointingOptions.CHECKPOINTS_DIRECTORY, checkpoints.toUri().toString());
        settings.set(
                CheckpointingOptions.EXTERNALIZED_CHECKPOINT_RETENTION,
                ExternalizedCheckpointRetention.RETAIN_ON_CANCELLATION);
        settings.set(RestartStrategyOptions.RESTART_STRATEGY, "disable");
        settings.set(TaskManagerOptions.MANAGED_MEMORY_SIZE, MemorySize.ofMebiBytes(16));
        latest(checkpoints)
                .ifPresent(
                        path ->
                                settings.set(
                                        StateRecoveryOptions.SAVEPOINT_PATH,
                                        path.toUri().toString()));
        return settings;
    }

    /** The checkpoint that was completed last: one has its metadata then. */
    private static Optional<Path> latest(Path checkpoints) throws IOException {
        if (!Files.isDirectory(checkpoints)) {
            return Optional.empty();
        }
        try (Stream<Path> files = Files.walk(checkpoints)) {
            return files.filter(path -> path.endsWith("_metadata"))
                    .max(Comparator.comparingLong(path -> path.toFile().lastModified()))
                    .map(Path::getParent);
        }
    }
}
