package tidemark.conformance;

import java.util.ArrayList;
import java.util.HashMap;
import java.util.HashSet;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.Set;
import java.util.TreeMap;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.AlterConfigOp;
import org.apache.kafka.clients.admin.ConfigEntry;
import org.apache.kafka.clients.consumer.AcknowledgeType;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaShareConsumer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.KafkaException;
import org.apache.kafka.common.TopicIdPartition;
import org.apache.kafka.common.config.ConfigResource;
import org.apache.kafka.common.serialization.StringDeserializer;

/**
 * KafkaShareConsumer (KIP-932): implicit and explicit acknowledgement, every type of it, members
 * that share partitions, and what a closed member leaves.
 *
 * <p>Arguments: bootstrap servers, a name for the topic and the group.
 */
public final class ShareGroups {
    private static final int PARTITIONS = 2;
    private static final int VALUES = 200;
    private static final int MORE_VALUES = 30;

    private final Clients clients;
    private final String name;
    private int written;

    private ShareGroups(Clients clients, String name) {
        this.clients = clients;
        this.name = name;
    }

    public static void main(String[] arguments) throws Exception {
        new ShareGroups(new Clients(arguments[0]), arguments[1]).run();
    }

    private void run() throws Exception {
        clients.create(name, PARTITIONS);
        beginAtTheStart(clients, name);
        write(VALUES);
        implicit();
        explicit();
        renewed();
        shared();
    }

    /** A group's first records are those that its topics have already. */
    static void beginAtTheStart(Clients clients, String group) throws Exception {
        var resource = new ConfigResource(ConfigResource.Type.GROUP, group);
        var earliest = new ConfigEntry("share.auto.offset.reset", "earliest");
        try (Admin admin = clients.admin()) {
            admin.incrementalAlterConfigs(
                    Map.of(resource,
                            List.of(new AlterConfigOp(earliest, AlterConfigOp.OpType.SET))))
                    .all().get();
        }
    }

    static KafkaShareConsumer<String, String> member(
            Clients clients, String group, Map<String, Object> more) {
        Map<String, Object> settings = new HashMap<>(more);
        settings.put("bootstrap.servers", clients.bootstrap());
        settings.put("group.id", group);
        var member = new KafkaShareConsumer<String, String>(
                settings, new StringDeserializer(), new StringDeserializer());
        return member;
    }

    private KafkaShareConsumer<String, String> member(Map<String, Object> more) {
        var member = member(clients, name, more);
        member.subscribe(List.of(name));
        return member;
    }

    /** All values; each poll accepts what the one before it gave. */
    private void implicit() {
        Set<String> values = new HashSet<>();
        int records = 0;
        try (var one = member(Map.of())) {
            while (values.size() < VALUES) {
                for (var record : one.poll(Clients.MOMENT)) {
                    values.add(record.value());
                    records++;
                }
            }
            one.commitSync();
        }
        Facts.tell("implicit", values.size());
        Facts.tell("implicit records", records);
    }

    /** A third each is accepted, released and rejected; what was released comes again. */
    private void explicit() {
        write(MORE_VALUES);
        Map<String, Integer> deliveries = new TreeMap<>();
        List<String> again = new ArrayList<>();
        try (var one = member(Map.of("share.acknowledgement.mode", "explicit"))) {
            Clients.until("the values", () -> {
                for (var record : one.poll(Clients.MOMENT)) {
                    int number = Integer.parseInt(record.value()) % 3;
                    boolean isFirst = deliveries.putIfAbsent(record.value(), 1) == null;
                    if (!isFirst) {
                        again.add(record.deliveryCount().get() + "x" + number);
                    }
                    one.acknowledge(record, isFirst ? typeOf(number) : AcknowledgeType.ACCEPT);
                }
                return errors(one) == 0 && again.size() >= MORE_VALUES / 3;
            });
            Facts.ask("acknowledged twice", () -> {
                one.acknowledge(new ConsumerRecord<>(name, 0, 0, "", ""), AcknowledgeType.ACCEPT);
                return "taken";
            });
        }
        Facts.tell("explicit", deliveries.size());
        Facts.tell("released", again.size() + " " + new HashSet<>(again));
    }

    private static AcknowledgeType typeOf(int number) {
        return switch (number) {
            case 0 -> AcknowledgeType.ACCEPT;
            case 1 -> AcknowledgeType.RELEASE;
            default -> AcknowledgeType.REJECT;
        };
    }

    /** Partitions whose acknowledgements were refused. */
    private static long errors(KafkaShareConsumer<String, String> member) {
        Map<TopicIdPartition, Optional<KafkaException>> results = member.commitSync();
        return results.values().stream().filter(Optional::isPresent).count();
    }

    /** A lock that is renewed, then the record accepted. */
    private void renewed() {
        write(1);
        List<String> story = new ArrayList<>();
        try (var one = member(Map.of("share.acknowledgement.mode", "explicit"))) {
            Clients.until("a renewal", () -> {
                for (var record : one.poll(Clients.MOMENT)) {
                    boolean isFirst = story.isEmpty();
                    one.acknowledge(
                            record, isFirst ? AcknowledgeType.RENEW : AcknowledgeType.ACCEPT);
                    story.add(record.deliveryCount().get() + (isFirst ? " renewed" : " accepted"));
                }
                return errors(one) == 0 && story.size() == 2;
            });
        }
        Facts.tell("renewed", story);
    }

    /** Two members have all values between them; a third gets what a closed one has left. */
    private void shared() {
        Set<String> values = new HashSet<>();
        var one = member(Map.of("max.poll.records", 5));
        var two = member(Map.of("max.poll.records", 5));
        int[] counts = new int[2];
        one.poll(Clients.MOMENT);
        two.poll(Clients.MOMENT);
        for (int round = 0; round < 40; round++) {
            write(5);
        }
        Clients.until("the values", () -> {
            for (var record : one.poll(Clients.MOMENT)) {
                counts[0] += values.add(record.value()) ? 1 : 0;
            }
            for (var record : two.poll(Clients.MOMENT)) {
                counts[1] += values.add(record.value()) ? 1 : 0;
            }
            return values.size() >= 200;
        });
        one.close();
        two.close();
        Facts.tell("shared", counts[0] > 0 && counts[1] > 0);
        Facts.tell("shared values", values.size());
    }

    private void write(int count) {
        try (var producer = clients.producer(Map.of())) {
            for (int end = written + count; written < end; written++) {
                producer.send(new ProducerRecord<>(name, String.valueOf(written)));
            }
            producer.flush();
        }
    }
}
