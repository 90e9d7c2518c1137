package tidemark.conformance;

import java.util.ArrayList;
import java.util.Collection;
import java.util.HashMap;
import java.util.HashSet;
import java.util.List;
import java.util.Map;
import java.util.Set;
import org.apache.kafka.clients.admin.ConsumerGroupDescription;
import org.apache.kafka.clients.consumer.ConsumerRebalanceListener;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.CooperativeStickyAssignor;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.RangeAssignor;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.TopicPartition;

/**
 * Two members of a group restart one after the other with the other protocol, and back: from the
 * classic protocol to KIP-848's, and from that to the classic one. Each commits what it read when
 * partitions are taken from it, so that every value is read once.
 *
 * <p>Arguments: bootstrap servers, a name for the topic and the group, and "range" or "cooperative"
 * for the members of the classic protocol.
 */
public final class Migration {
    private static final int PARTITIONS = 4;
    private static final int VALUES = 40;

    private final Clients clients;
    private final String name;
    private final boolean cooperative;
    private final List<String> read = new ArrayList<>();
    private final List<KafkaConsumer<String, String>> members = new ArrayList<>();
    private int written = 0;
    private int lost = 0;

    private Migration(Clients clients, String name, boolean cooperative) {
        this.clients = clients;
        this.name = name;
        this.cooperative = cooperative;
    }

    public static void main(String[] arguments) throws Exception {
        var clients = new Clients(arguments[0]);
        new Migration(clients, arguments[1], arguments[2].equals("cooperative")).run();
    }

    private void run() throws Exception {
        clients.create(name, PARTITIONS);
        members.add(member("classic"));
        members.add(member("classic"));
        settle("both classic");
        replace(0, "consumer");
        replace(1, "consumer");
        replace(0, "classic");
        replace(1, "classic");
        members.forEach(KafkaConsumer::close);
        Facts.tell("values", read.size());
        Facts.tell("distinct", new HashSet<>(read).size());
        Facts.tell("lost", lost);
        Facts.tell("committed", committed());
    }

    private void replace(int place, String protocol) throws Exception {
        members.get(place).close();
        members.set(place, member(protocol));
        settle("member " + place + " " + protocol);
    }

    /** Waits until both members share the partitions, and have read some more values. */
    private void settle(String step) throws Exception {
        Clients.until(step + ": half each", () -> poll() && shared());
        write();
        Clients.until(step + ": the values", () -> poll() && read.size() >= written);
        Facts.tell(step, described());
    }

    /** The type of the group, and the protocol of each member as its coordinator shows it. */
    private String described() throws Exception {
        try (var admin = clients.admin()) {
            ConsumerGroupDescription group =
                    admin.describeConsumerGroups(List.of(name)).all().get().get(name);
            long upgraded = group.members().stream()
                    .filter(one -> one.upgraded().orElse(false))
                    .count();
            return group.type().toString().toLowerCase() + " " + upgraded;
        }
    }

    private boolean shared() {
        Set<TopicPartition> all = new HashSet<>();
        members.forEach(one -> all.addAll(one.assignment()));
        return all.size() == PARTITIONS
                && members.stream().allMatch(one -> one.assignment().size() == PARTITIONS / 2);
    }

    private long committed() {
        var partitions = Set.copyOf(Clients.partitions(name, PARTITIONS));
        try (var reader = clients.consumer(Map.of("group.id", name))) {
            return reader.committed(partitions).values().stream()
                    .mapToLong(position -> position == null ? 0 : position.offset())
                    .sum();
        }
    }

    private void write() throws Exception {
        try (var producer = clients.producer(Map.of())) {
            for (int value = written; value < written + VALUES; value++) {
                producer.send(new ProducerRecord<>(name, value % PARTITIONS, null, "v" + value));
            }
            producer.flush();
            written += VALUES;
        }
    }

    private KafkaConsumer<String, String> member(String protocol) {
        Map<String, Object> settings = new HashMap<>();
        settings.put("group.id", name);
        settings.put("group.protocol", protocol);
        if (protocol.equals("classic")) {
            settings.put("heartbeat.interval.ms", 500);
            settings.put(
                    "partition.assignment.strategy",
                    (cooperative ? CooperativeStickyAssignor.class : RangeAssignor.class).getName());
        }
        KafkaConsumer<String, String> member = clients.consumer(settings);
        member.subscribe(List.of(name), new CommitFirst(member));
        return member;
    }

    private boolean poll() {
        for (KafkaConsumer<String, String> member : members) {
            for (ConsumerRecord<String, String> one : member.poll(Clients.MOMENT)) {
                read.add(one.value());
            }
        }
        return true;
    }

    /** Positions are committed before partitions go to somebody else, and on closing. */
    private final class CommitFirst implements ConsumerRebalanceListener {
        private final KafkaConsumer<String, String> member;

        private CommitFirst(KafkaConsumer<String, String> member) {
            this.member = member;
        }

        @Override
        public void onPartitionsRevoked(Collection<TopicPartition> partitions) {
            member.commitSync();
        }

        @Override
        public void onPartitionsLost(Collection<TopicPartition> partitions) {
            lost += partitions.size();
        }

        @Override
        public void onPartitionsAssigned(Collection<TopicPartition> partitions) {}
    }
}
