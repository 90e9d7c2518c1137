package tidemark.conformance;

import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.stream.Collectors;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.ConsumerGroupDescription;
import org.apache.kafka.clients.admin.ListGroupsOptions;
import org.apache.kafka.clients.admin.MemberToRemove;
import org.apache.kafka.clients.admin.RemoveMembersFromConsumerGroupOptions;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.TopicPartition;

/**
 * What the AdminClient asks about groups, of either protocol.
 *
 * <p>Arguments: bootstrap servers, a name for topic and groups.
 */
public final class GroupAdministration {
    private static final int PARTITIONS = 2;

    private final Clients clients;
    private final Admin admin;
    private final String name;
    private final TopicPartition partition;

    private GroupAdministration(Clients clients, Admin admin, String name) {
        this.clients = clients;
        this.admin = admin;
        this.name = name;
        this.partition = new TopicPartition(name, 0);
    }

    public static void main(String[] arguments) throws Exception {
        Clients clients = new Clients(arguments[0]);
        clients.create(arguments[1], PARTITIONS);
        try (Admin admin = clients.admin()) {
            var program = new GroupAdministration(clients, admin, arguments[1]);
            program.write();
            program.withMembers("classic");
            program.withMembers("consumer");
            program.withoutMembers();
            program.staticMember();
        }
    }

    private void write() throws Exception {
        try (var producer = clients.producer(Map.of())) {
            producer.send(new ProducerRecord<>(name, 0, null, "v")).get();
        }
    }

    private void withMembers(String protocol) throws Exception {
        String group = name + "-" + protocol;
        Map<String, Object> settings = Map.of(
                "group.id", group, "group.protocol", protocol, "client.id", "reader");
        try (KafkaConsumer<String, String> member = clients.consumer(settings)) {
            member.subscribe(List.of(name));
            Clients.until("an assignment", () -> {
                member.poll(Clients.MOMENT);
                return member.assignment().size() == PARTITIONS;
            });
            member.poll(Clients.MOMENT);
            member.commitSync(Map.of(partition, new OffsetAndMetadata(1, "note")));
            Facts.ask(protocol + " described", () -> described(group));
            Facts.ask(protocol + " listed", () -> listed(group));
            Facts.ask(protocol + " offsets", () -> offset(group));
            Facts.ask(protocol + " delete while alive", () ->
                    admin.deleteConsumerGroups(List.of(group)).all().get());
            Facts.ask(protocol + " alter while alive", () -> alter(group, 0));
        }
        Facts.ask(protocol + " alter", () -> alter(group, 0));
        Facts.ask(protocol + " altered", () -> offset(group));
        Facts.ask(protocol + " deleteOffsets", () ->
                admin.deleteConsumerGroupOffsets(group, Set.of(partition)).all().get());
        Facts.ask(protocol + " offsets deleted", () -> offset(group));
    }

    /** It stays in the group when it is closed, until an administrator removes it. */
    private void staticMember() throws Exception {
        String group = name + "-static";
        var settings = Map.<String, Object>of("group.id", group, "group.instance.id", "one");
        try (KafkaConsumer<String, String> member = clients.consumer(settings)) {
            member.subscribe(List.of(name));
            Clients.until("an assignment", () -> {
                member.poll(Clients.MOMENT);
                return member.assignment().size() == PARTITIONS;
            });
        }
        Facts.ask("static members", () -> members(group));
        Facts.ask("static member removed", () -> {
            var one = Set.of(new MemberToRemove("one"));
            return admin.removeMembersFromConsumerGroup(
                    group, new RemoveMembersFromConsumerGroupOptions(one)).all().get();
        });
        Facts.ask("static members left", () -> members(group));
    }

    private int members(String group) throws Exception {
        return admin.describeConsumerGroups(List.of(group)).all().get().get(group).members().size();
    }

    private void withoutMembers() {
        String simple = name + "-simple";
        Facts.ask("simple alter", () -> alter(simple, 1));
        Facts.ask("simple offsets", () -> offset(simple));
        Facts.ask("simple listed", () -> admin.listGroups().all().get().stream()
                .filter(one -> one.groupId().equals(simple))
                .map(one -> one.isSimpleConsumerGroup() + " " + one.groupState().get())
                .collect(Collectors.joining()));
        Facts.ask("simple delete", () -> admin.deleteConsumerGroups(List.of(simple)).all().get());
        Facts.ask("simple offsets deleted", () -> offset(simple));
        Facts.ask("unknown described", () ->
                admin.describeConsumerGroups(List.of(name + "-no")).all().get());
        Facts.ask("unknown deleted", () ->
                admin.deleteConsumerGroups(List.of(name + "-no")).all().get());
    }

    private String described(String group) throws Exception {
        ConsumerGroupDescription found =
                admin.describeConsumerGroups(List.of(group)).all().get().get(group);
        var member = found.members().iterator().next();
        return String.join(" ",
                found.groupState().toString(),
                found.type().toString(),
                found.partitionAssignor(),
                member.clientId(),
                Integer.toString(member.assignment().topicPartitions().size()));
    }

    private String listed(String group) throws Exception {
        return admin.listGroups(ListGroupsOptions.forConsumerGroups()).all().get().stream()
                .filter(one -> one.groupId().equals(group))
                .map(one -> one.type().get() + " " + one.protocol() + " " + one.groupState().get())
                .collect(Collectors.joining());
    }

    private Object alter(String group, long offset) throws Exception {
        return admin.alterConsumerGroupOffsets(
                group, Map.of(partition, new OffsetAndMetadata(offset))).all().get();
    }

    private String offset(String group) throws Exception {
        OffsetAndMetadata found = admin.listConsumerGroupOffsets(group)
                .partitionsToOffsetAndMetadata().get().get(partition);
        return found == null ? "none" : found.offset() + found.metadata();
    }
}
