package tidemark.conformance;

import java.time.Duration;
import java.util.Properties;
import java.util.concurrent.CountDownLatch;
import org.apache.kafka.common.serialization.Serdes;
import org.apache.kafka.common.utils.Bytes;
import org.apache.kafka.streams.KafkaStreams;
import org.apache.kafka.streams.StreamsBuilder;
import org.apache.kafka.streams.StreamsConfig;
import org.apache.kafka.streams.Topology;
import org.apache.kafka.streams.errors.StreamsUncaughtExceptionHandler;
import org.apache.kafka.streams.kstream.Grouped;
import org.apache.kafka.streams.kstream.Materialized;
import org.apache.kafka.streams.kstream.Produced;
import org.apache.kafka.streams.state.KeyValueStore;

/**
 * Counts words exactly once: input topic, repartition topic, a store with its changelog, and an
 * output topic with every update of every count.
 *
 * <p>Arguments: bootstrap servers, application id (input and output topics are named after it),
 * state directory. Runs until it is ended.
 */
public final class CountingTopology {
    private CountingTopology() {}

    public static void main(String[] arguments) throws Exception {
        String name = arguments[1];
        CountDownLatch ended = new CountDownLatch(1);
        try (var streams = new KafkaStreams(
                topology(name), settings(arguments[0], name, arguments[2]))) {
            streams.setStateListener((now, before) -> {
                Facts.tell("state", now);
                if (now == KafkaStreams.State.ERROR || now == KafkaStreams.State.NOT_RUNNING) {
                    ended.countDown();
                }
            });
            streams.setUncaughtExceptionHandler(problem -> {
                problem.printStackTrace();
                return StreamsUncaughtExceptionHandler.StreamThreadExceptionResponse
                        .SHUTDOWN_CLIENT;
            });
            Runtime.getRuntime().addShutdownHook(
                    new Thread(() -> streams.close(Duration.ofSeconds(20))));
            streams.start();
            ended.await();
        }
    }

    private static Topology topology(String name) {
        StreamsBuilder builder = new StreamsBuilder();
        builder.<String, String>stream(name + "-input")
                .groupBy((key, word) -> word, Grouped.as("by-word"))
                .count(Materialized.<String, Long, KeyValueStore<Bytes, byte[]>>as("counts")
                        .withCachingDisabled())
                .toStream()
                .mapValues(count -> Long.toString(count))
                .to(name + "-output", Produced.with(Serdes.String(), Serdes.String()));
        return builder.build();
    }

    private static Properties settings(String bootstrap, String name, String directory) {
        Properties settings = new Properties();
        settings.put(StreamsConfig.APPLICATION_ID_CONFIG, name);
        settings.put(StreamsConfig.BOOTSTRAP_SERVERS_CONFIG, bootstrap);
        settings.put(StreamsConfig.STATE_DIR_CONFIG, directory);
        settings.put(StreamsConfig.PROCESSING_GUARANTEE_CONFIG, StreamsConfig.EXACTLY_ONCE_V2);
        settings.put(StreamsConfig.NUM_STREAM_THREADS_CONFIG, 2);
        settings.put(StreamsConfig.DEFAULT_KEY_SERDE_CLASS_CONFIG, Serdes.String().getClass());
        settings.put(StreamsConfig.DEFAULT_VALUE_SERDE_CLASS_CONFIG, Serdes.String().getClass());
        settings.put(StreamsConfig.REPLICATION_FACTOR_CONFIG, 3); // The loss of a broker is borne.
        // So that a test sees a takeover within seconds.
        settings.put(StreamsConfig.consumerPrefix("session.timeout.ms"), 6_000);
        settings.put(StreamsConfig.consumerPrefix("heartbeat.interval.ms"), 1_000);
        // One commit covers few records, so that many commits fall between two kills.
        settings.put(StreamsConfig.consumerPrefix("max.poll.records"), 20);
        return settings;
    }
}
