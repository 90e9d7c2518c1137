package tidemark.conformance;

import java.util.List;
import java.util.Map;
import java.util.Set;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.consumer.ConsumerGroupMetadata;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.TopicPartition;

/**
 * Transactions of the Java producer, which speaks version 2 (KIP-890) with a cluster that offers
 * it: what readers see, offsets within transactions, and who is fenced.
 *
 * <p>Arguments: bootstrap servers, a name for topics, groups and transactional ids.
 */
public final class Transactions {
    private final Clients clients;
    private final String name;
    private final String other;

    private Transactions(Clients clients, String name) {
        this.clients = clients;
        this.name = name;
        this.other = name + "-other";
    }

    public static void main(String[] arguments) throws Exception {
        var program = new Transactions(new Clients(arguments[0]), arguments[1]);
        program.clients.create(program.name, 1);
        program.clients.create(program.other, 1);
        program.visible();
        program.offsets();
        program.staleMember("classic");
        program.staleMember("consumer");
        program.fenced();
        program.timedOut();
        program.many();
    }

    /** Two topics in one transaction; then one that is aborted; then one that is left open. */
    private void visible() throws Exception {
        try (var producer = begun(name)) {
            int before = epoch(name);
            write(producer, name, "a1", "a2");
            write(producer, other, "b1");
            producer.commitTransaction();
            // Version 2 gives the producer a new epoch with each end of a transaction.
            Facts.ask("a commit raises the epoch", () -> epoch(name) > before);
            producer.beginTransaction();
            write(producer, name, "a3");
            write(producer, other, "b2");
            producer.abortTransaction();
            producer.beginTransaction();
            write(producer, name, "a4");
            Facts.ask("committed", () -> clients.read(name, "read_committed"));
            Facts.ask("uncommitted", () -> clients.read(name, "read_uncommitted"));
            Facts.ask("committed elsewhere", () -> clients.read(other, "read_committed"));
            producer.commitTransaction();
            Facts.ask("committed at last", () -> readUntil("a4"));
        }
    }

    private void offsets() throws Exception {
        String group = name + "-offsets";
        var member = new ConsumerGroupMetadata(group);
        try (var producer = begun(group)) {
            producer.sendOffsetsToTransaction(at(2), member);
            producer.commitTransaction();
            Facts.ask("offset of a commit", () -> committedOffset(group));
            producer.beginTransaction();
            producer.sendOffsetsToTransaction(at(4), member);
            producer.abortTransaction();
            Facts.ask("offset of an abort", () -> committedOffset(group));
        }
    }

    /** KIP-447: who left the group since may not commit its offsets. */
    private void staleMember(String protocol) throws Exception {
        String group = name + "-stale-" + protocol;
        var settings = Map.<String, Object>of("group.id", group, "group.protocol", protocol);
        ConsumerGroupMetadata present;
        try (KafkaConsumer<String, String> reader = clients.consumer(settings);
                var producer = begun(group)) {
            reader.subscribe(List.of(name));
            Clients.until("an assignment", () -> {
                reader.poll(Clients.MOMENT);
                return !reader.assignment().isEmpty();
            });
            present = reader.groupMetadata();
            producer.sendOffsetsToTransaction(at(1), present);
            producer.commitTransaction();
            Facts.ask(protocol + " member's offset", () -> committedOffset(group));
        }
        try (var producer = begun(group)) {
            Facts.ask(protocol + " member that left", () -> {
                producer.sendOffsetsToTransaction(at(3), present);
                producer.commitTransaction();
                return "committed";
            });
            producer.abortTransaction();
        }
        Facts.ask(protocol + " offset stays", () -> committedOffset(group));
    }

    private void fenced() throws Exception {
        String id = name + "-fenced";
        try (var first = begun(id)) {
            write(first, other, "of the first");
            try (var second = begun(id)) {
                write(second, other, "of the second");
                second.commitTransaction();
            }
            Facts.ask("the first instance", () -> {
                first.commitTransaction();
                return "committed";
            });
        }
        Facts.ask("after fencing", () -> clients.read(other, "read_committed"));
    }

    /** The coordinator aborts what its producer leaves open. */
    private void timedOut() throws Exception {
        String id = name + "-late";
        Map<String, Object> settings =
                Map.of("transactional.id", id, "transaction.timeout.ms", 1_000);
        try (var late = clients.producer(settings)) {
            late.initTransactions();
            late.beginTransaction();
            write(late, other, "too late");
            Clients.until("the abort", () -> !open(id));
            Facts.ask("the late commit", () -> {
                late.commitTransaction();
                return "committed";
            });
        }
        Facts.ask("after the timeout", () -> clients.read(other, "read_committed"));
    }

    /** One right after the other: each begins while the last one's markers are written. */
    private void many() throws Exception {
        String topic = name + "-many";
        clients.create(topic, 3);
        int transactions = 100;
        try (var producer = clients.transactional(topic)) {
            producer.initTransactions();
            for (int number = 0; number < transactions; number++) {
                producer.beginTransaction();
                for (int partition = 0; partition < 3; partition++) {
                    producer.send(new ProducerRecord<>(topic, partition, null, "m" + number));
                }
                if (number % 5 == 4) {
                    producer.abortTransaction();
                } else {
                    producer.commitTransaction();
                }
            }
        }
        Facts.ask("many", () -> clients.read(topic, "read_committed").size());
    }

    private KafkaProducer<String, String> begun(String transactionalId) {
        KafkaProducer<String, String> producer = clients.transactional(transactionalId);
        producer.initTransactions();
        producer.beginTransaction();
        return producer;
    }

    private static void write(
            KafkaProducer<String, String> producer, String topic, String... values)
            throws Exception {
        for (String value : values) {
            producer.send(new ProducerRecord<>(topic, 0, null, value)).get();
        }
    }

    /** A commit is answered before its markers are in the log. */
    private List<String> readUntil(String last) {
        Clients.until(last, () -> clients.read(name, "read_committed").contains(last));
        return clients.read(name, "read_committed");
    }

    private Map<TopicPartition, OffsetAndMetadata> at(long offset) {
        return Map.of(new TopicPartition(name, 0), new OffsetAndMetadata(offset));
    }

    /** Waits for the end of transactions that commit offsets, as consumers do. */
    private long committedOffset(String group) {
        TopicPartition partition = new TopicPartition(name, 0);
        try (var reader = clients.consumer(Map.of("group.id", group))) {
            return reader.committed(Set.of(partition)).get(partition).offset();
        }
    }

    private int epoch(String transactionalId) throws Exception {
        try (Admin admin = clients.admin()) {
            return admin.describeTransactions(List.of(transactionalId))
                    .description(transactionalId).get().producerEpoch();
        }
    }

    private boolean open(String transactionalId) {
        try (Admin admin = clients.admin()) {
            return admin.describeTransactions(List.of(transactionalId))
                    .description(transactionalId).get().state().toString()
                    .matches("Ongoing|Prepare.*");
        } catch (Exception problem) {
            throw new IllegalStateException(problem);
        }
    }
}
