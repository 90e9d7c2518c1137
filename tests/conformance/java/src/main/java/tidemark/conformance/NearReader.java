package tidemark.conformance;

import java.time.Duration;
import java.util.List;
import java.util.Map;
import java.util.concurrent.atomic.AtomicInteger;
import org.apache.kafka.clients.consumer.ConsumerConfig;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.common.TopicPartition;

/**
 * A consumer with a rack (KIP-392) reads partition 0 from its start.
 *
 * <p>Arguments: bootstrap servers, the topic, client.rack, and how many values to read.
 */
public final class NearReader {
    private static final Duration POLL = Duration.ofMillis(100);

    private NearReader() {}

    public static void main(String[] arguments) {
        var partition = new TopicPartition(arguments[1], 0);
        var settings = Map.<String, Object>of(ConsumerConfig.CLIENT_RACK_CONFIG, arguments[2]);
        int wanted = Integer.parseInt(arguments[3]);
        var read = new AtomicInteger();
        try (var consumer = new Clients(arguments[0]).consumer(settings)) {
            consumer.assign(List.of(partition));
            consumer.seekToBeginning(List.of(partition));
            Clients.until(
                    wanted + " values", () -> read.addAndGet(consumer.poll(POLL).count()) >= wanted);
            Facts.tell("values", read.get());
            Facts.tell("preferred replica", preferred(consumer));
        }
    }

    /** The follower that the consumer reads from, by its own metric. */
    private static String preferred(KafkaConsumer<String, String> consumer) {
        return consumer.metrics().entrySet().stream()
                .filter(metric -> metric.getKey().name().equals("preferred-read-replica"))
                .map(metric -> String.valueOf(metric.getValue().metricValue()))
                .findFirst()
                .orElse("none");
    }
}
