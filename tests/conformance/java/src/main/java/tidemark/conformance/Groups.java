package tidemark.conformance;

import java.util.ArrayList;
import java.util.Collection;
import java.util.HashMap;
import java.util.HashSet;
import java.util.List;
import java.util.Map;
import java.util.Set;
import org.apache.kafka.clients.consumer.ConsumerRebalanceListener;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.CooperativeStickyAssignor;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.SubscriptionPattern;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.TopicPartition;

/**
 * A group grows to two members, shrinks to one, ends and begins again. Each member commits what it
 * read when partitions are taken from it, so that every value is read once.
 *
 * <p>Arguments: bootstrap servers, a name for the topic and the group, and "classic",
 * "cooperative" (classic with the cooperative assignor) or "consumer" (KIP-848).
 */
public final class Groups {
    private static final int PARTITIONS = 4;
    private static final int VALUES = 200;
    private static final int MORE_VALUES = 20;

    private final Clients clients;
    private final String name;
    private final String protocol;
    private final List<String> read = new ArrayList<>();

    private Groups(Clients clients, String name, String protocol) {
        this.clients = clients;
        this.name = name;
        this.protocol = protocol;
    }

    public static void main(String[] arguments) throws Exception {
        new Groups(new Clients(arguments[0]), arguments[1], arguments[2]).run();
    }

    private void run() throws Exception {
        clients.create(name, PARTITIONS);
        write(0, VALUES);
        var first = member(Map.of());
        Clients.until(
                "all partitions", () -> poll(first) && first.assignment().size() == PARTITIONS);
        Facts.tell("alone", first.assignment().size());
        Clients.until("some values", () -> poll(first) && read.size() >= VALUES / 4);
        Facts.tell("read before the second", read.size() < VALUES);
        var second = member(Map.of());
        Clients.until("half each", () -> poll(first) && poll(second) && shared(first, second));
        Facts.tell("shared", first.assignment().size() + " and " + second.assignment().size());
        Clients.until("the values", () -> poll(first) && poll(second) && read.size() >= VALUES);
        second.close();
        Clients.until("all again", () -> poll(first) && first.assignment().size() == PARTITIONS);
        Facts.tell("left alone", first.assignment().size());
        first.close();
        Facts.tell("values", read.size());
        Facts.tell("distinct", new HashSet<>(read).size());
        resume();
    }

    /** Another member, in an empty group: it finds what was committed. */
    private void resume() throws Exception {
        read.clear();
        write(VALUES, MORE_VALUES);
        try (var heir = member(Map.of("group.instance.id", "heir"))) {
            Clients.until("more values", () -> poll(heir) && read.size() >= MORE_VALUES);
            heir.poll(Clients.MOMENT).forEach(one -> read.add(one.value()));
            heir.commitSync();
            Facts.tell("resumed", read.size());
            Facts.tell("committed", committed(heir));
        }
        try (var again = member(Map.of("group.instance.id", "heir"))) {
            Clients.until("partitions of the static member",
                    () -> poll(again) && again.assignment().size() == PARTITIONS);
            Facts.tell("static member again", again.assignment().size());
        }
        if (protocol.equals("consumer")) {
            byPattern();
        }
    }

    /** The coordinator finds the topics (KIP-848 with RE2 patterns). */
    private void byPattern() {
        var settings =
                Map.<String, Object>of("group.id", name + "-p", "group.protocol", "consumer");
        try (var member = clients.consumer(settings)) {
            member.subscribe(new SubscriptionPattern(name + ".*"));
            Clients.until("the pattern's topic", () -> !member.poll(Clients.MOMENT).isEmpty());
            Facts.tell("by pattern", member.assignment().size());
        }
    }

    private long committed(KafkaConsumer<String, String> member) {
        var partitions = Set.copyOf(Clients.partitions(name, PARTITIONS));
        return member.committed(partitions).values().stream()
                .mapToLong(position -> position == null ? 0 : position.offset())
                .sum();
    }

    private static boolean shared(
            KafkaConsumer<String, String> first, KafkaConsumer<String, String> second) {
        Set<TopicPartition> both = new HashSet<>(first.assignment());
        both.addAll(second.assignment());
        return both.size() == PARTITIONS
                && first.assignment().size() == PARTITIONS / 2
                && second.assignment().size() == PARTITIONS / 2;
    }

    private void write(int from, int count) throws Exception {
        try (var producer = clients.producer(Map.of("linger.ms", 5))) {
            for (int value = from; value < from + count; value++) {
                producer.send(new ProducerRecord<>(name, value % PARTITIONS, null, "v" + value));
            }
            producer.flush();
            Facts.tell("written to " + (from + count), count);
        }
    }

    private KafkaConsumer<String, String> member(Map<String, Object> more) {
        Map<String, Object> settings = new HashMap<>(more);
        settings.put("group.id", name);
        settings.put("max.poll.records", 10);
        settings.put("group.protocol", protocol.equals("consumer") ? "consumer" : "classic");
        if (!protocol.equals("consumer")) {
            settings.put("heartbeat.interval.ms", 500);
        }
        if (protocol.equals("cooperative")) {
            settings.put(
                    "partition.assignment.strategy", CooperativeStickyAssignor.class.getName());
        }
        KafkaConsumer<String, String> member = clients.consumer(settings);
        member.subscribe(List.of(name), new CommitFirst(member));
        return member;
    }

    private boolean poll(KafkaConsumer<String, String> member) {
        for (ConsumerRecord<String, String> one : member.poll(Clients.MOMENT)) {
            read.add(one.value());
        }
        return true;
    }

    /** Positions are committed before partitions go to somebody else, and on closing. */
    private record CommitFirst(KafkaConsumer<String, String> member)
            implements ConsumerRebalanceListener {
        @Override
        public void onPartitionsRevoked(Collection<TopicPartition> partitions) {
            member.commitSync();
        }

        @Override
        public void onPartitionsAssigned(Collection<TopicPartition> partitions) {}
    }
}
