package tidemark.conformance;

import java.time.Duration;
import java.util.ArrayList;
import java.util.Collection;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.function.BooleanSupplier;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.NewTopic;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.serialization.StringDeserializer;
import org.apache.kafka.common.serialization.StringSerializer;

/** Clients of strings, with Kafka's defaults but for what a test must not wait for. */
record Clients(String bootstrap) {
    static final Duration MOMENT = Duration.ofMillis(100);
    static final Duration PATIENCE = Duration.ofSeconds(60);

    Admin admin() {
        return Admin.create(Map.of("bootstrap.servers", bootstrap));
    }

    KafkaProducer<String, String> producer(Map<String, Object> more) {
        return new KafkaProducer<>(settings(more), new StringSerializer(), new StringSerializer());
    }

    KafkaProducer<String, String> transactional(String transactionalId) {
        return producer(Map.of("transactional.id", transactionalId));
    }

    KafkaConsumer<String, String> consumer(Map<String, Object> more) {
        Map<String, Object> settings = settings(more);
        settings.putIfAbsent("auto.offset.reset", "earliest");
        settings.putIfAbsent("enable.auto.commit", false);
        return new KafkaConsumer<>(settings, new StringDeserializer(), new StringDeserializer());
    }

    void create(String topic, int partitions) throws Exception {
        try (Admin admin = admin()) {
            admin.createTopics(List.of(new NewTopic(topic, partitions, (short) 3))).all().get();
        }
    }

    /** The values of partition 0 from its start to the end that this isolation level sees now. */
    List<String> read(String topic, String isolation) {
        TopicPartition partition = new TopicPartition(topic, 0);
        List<String> values = new ArrayList<>();
        try (var reader = consumer(Map.of("isolation.level", isolation))) {
            reader.assign(List.of(partition));
            reader.seekToBeginning(List.of(partition));
            long end = reader.endOffsets(List.of(partition)).get(partition);
            until("the end of " + topic, () -> {
                for (ConsumerRecord<String, String> one : reader.poll(MOMENT)) {
                    values.add(one.value());
                }
                return reader.position(partition) >= end;
            });
        }
        return values;
    }

    /** Calls again and again until it holds; complains when it is late. */
    static void until(String what, BooleanSupplier holds) {
        long deadline = System.nanoTime() + PATIENCE.toNanos();
        while (!holds.getAsBoolean()) {
            if (System.nanoTime() > deadline) {
                throw new IllegalStateException("waited in vain for " + what);
            }
        }
    }

    static Collection<TopicPartition> partitions(String topic, int count) {
        List<TopicPartition> all = new ArrayList<>();
        for (int number = 0; number < count; number++) {
            all.add(new TopicPartition(topic, number));
        }
        return all;
    }

    private Map<String, Object> settings(Map<String, Object> more) {
        Map<String, Object> settings = new HashMap<>(more);
        settings.put("bootstrap.servers", bootstrap);
        return settings;
    }
}
