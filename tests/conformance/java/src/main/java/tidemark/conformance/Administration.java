package tidemark.conformance;

import java.util.Arrays;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.Set;
import java.util.TreeSet;
import java.util.stream.Collectors;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.AlterConfigOp;
import org.apache.kafka.clients.admin.ConfigEntry;
import org.apache.kafka.clients.admin.ListConfigResourcesOptions;
import org.apache.kafka.clients.admin.NewPartitionReassignment;
import org.apache.kafka.clients.admin.NewPartitions;
import org.apache.kafka.clients.admin.NewTopic;
import org.apache.kafka.clients.admin.OffsetSpec;
import org.apache.kafka.clients.admin.RecordsToDelete;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.ElectionType;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.config.ConfigResource;

/**
 * What the AdminClient asks of a cluster, topics and their settings.
 *
 * <p>Arguments: bootstrap servers, a name for the topic.
 */
public final class Administration {
    private static final int PARTITIONS = 3;

    private final Clients clients;
    private final Admin admin;
    private final String topic;
    private final TopicPartition partition;

    private Administration(Clients clients, Admin admin, String topic) {
        this.clients = clients;
        this.admin = admin;
        this.topic = topic;
        this.partition = new TopicPartition(topic, 0);
    }

    public static void main(String[] arguments) throws Exception {
        Clients clients = new Clients(arguments[0]);
        try (Admin admin = clients.admin()) {
            var program = new Administration(clients, admin, arguments[1]);
            program.cluster();
            program.topics();
            program.offsets();
            program.settings();
            program.replicas();
            Facts.ask("deleteTopics", () -> admin.deleteTopics(List.of(program.topic)).all().get());
        }
    }

    private void cluster() {
        var cluster = admin.describeCluster();
        Facts.ask("nodes", () -> cluster.nodes().get().size());
        Facts.ask("controller is a node", () ->
                cluster.nodes().get().contains(cluster.controller().get()));
        Facts.ask("clusterId", () -> !cluster.clusterId().get().isEmpty());
        var features = admin.describeFeatures().featureMetadata();
        for (String feature : List.of("transaction.version", "group.version")) {
            Facts.ask(feature, () ->
                    features.get().finalizedFeatures().get(feature).maxVersionLevel());
        }
        Facts.ask("finalized epoch", () -> features.get().finalizedFeaturesEpoch().get() >= 0);
    }

    private void topics() {
        var retention = Map.of("retention.ms", "86400000");
        var wanted = new NewTopic(topic, PARTITIONS, (short) 3).configs(retention);
        var created = admin.createTopics(List.of(wanted));
        Facts.ask("createTopics", () -> created.numPartitions(topic).get());
        Facts.ask("created with", () -> created.config(topic).get().get("retention.ms").value());
        Facts.ask("createTopics again", () -> admin.createTopics(List.of(wanted)).all().get());
        Facts.ask("listTopics", () -> admin.listTopics().names().get().contains(topic));
        Facts.ask("describeTopics", () -> admin.describeTopics(List.of(topic))
                .allTopicNames().get().get(topic).partitions().stream()
                .map(one -> one.replicas().size() + "/" + one.isr().size())
                .collect(Collectors.joining(" ")));
        Facts.ask("createPartitions", () -> {
            admin.createPartitions(Map.of(topic, NewPartitions.increaseTo(PARTITIONS + 1)))
                    .all().get();
            return partitionCount();
        });
    }

    private int partitionCount() throws Exception {
        return admin.describeTopics(List.of(topic))
                .allTopicNames().get().get(topic).partitions().size();
    }

    private void offsets() throws Exception {
        try (var producer = clients.producer(Map.of())) {
            for (long value = 0; value < 10; value++) {
                var one = new ProducerRecord<String, String>(topic, 0, 1_000 + value, null, "v");
                producer.send(one).get();
            }
        }
        Facts.ask("earliest", () -> offset(OffsetSpec.earliest()));
        Facts.ask("latest", () -> offset(OffsetSpec.latest()));
        Facts.ask("maxTimestamp", () -> offset(OffsetSpec.maxTimestamp()));
        Facts.ask("forTimestamp", () -> offset(OffsetSpec.forTimestamp(1_004)));
        Facts.ask("deleteRecords", () -> admin
                .deleteRecords(Map.of(partition, RecordsToDelete.beforeOffset(4)))
                .lowWatermarks().get(partition).get().lowWatermark());
        Facts.ask("earliest after deleteRecords", () -> offset(OffsetSpec.earliest()));
    }

    private long offset(OffsetSpec spec) throws Exception {
        return admin.listOffsets(Map.of(partition, spec)).partitionResult(partition).get().offset();
    }

    private void settings() {
        var resource = new ConfigResource(ConfigResource.Type.TOPIC, topic);
        Facts.ask("incrementalAlterConfigs", () -> admin.incrementalAlterConfigs(Map.of(resource,
                        List.of(new AlterConfigOp(new ConfigEntry("max.message.bytes", "123456"),
                                AlterConfigOp.OpType.SET))))
                .all().get());
        Facts.ask("describeConfigs", () -> admin.describeConfigs(List.of(resource))
                .all().get().get(resource).get("max.message.bytes").value());
        Facts.ask("a setting that does not exist", () -> admin.incrementalAlterConfigs(Map.of(
                        resource, List.of(new AlterConfigOp(new ConfigEntry("no.such", "1"),
                                AlterConfigOp.OpType.SET))))
                .all().get());
        Facts.ask("listConfigResources", () -> admin
                .listConfigResources(
                        Set.of(ConfigResource.Type.TOPIC), new ListConfigResourcesOptions())
                .all().get().contains(resource));
    }

    private void replicas() throws Exception {
        var nodes = admin.describeCluster().nodes().get();
        var ids = nodes.stream().map(node -> node.id())
                .collect(Collectors.toCollection(TreeSet::new));
        Facts.ask("describeLogDirs", () -> admin.describeLogDirs(ids).allDescriptions().get()
                .values().stream()
                .filter(directories -> directories.values().stream()
                        .anyMatch(one -> one.replicaInfos().containsKey(partition)))
                .count());
        Integer[] turned = ids.descendingSet().toArray(Integer[]::new);
        var target = Optional.of(new NewPartitionReassignment(Arrays.asList(turned)));
        Facts.ask("alterPartitionReassignments", () ->
                admin.alterPartitionReassignments(Map.of(partition, target)).all().get());
        Facts.ask("listPartitionReassignments", () -> {
            Clients.until("the reassignment", () -> noneMoves());
            return 0;
        });
        Facts.ask("electLeaders", () -> {
            Clients.until("the preferred leader", () -> electedOrNotNeeded());
            Clients.until("the leader to be told of", () -> leader() == turned[0]);
            return true;
        });
    }

    private int leader() {
        try {
            var leader = admin.describeTopics(List.of(topic)).allTopicNames().get().get(topic)
                    .partitions().get(0).leader();
            return leader == null ? -1 : leader.id();
        } catch (Exception problem) {
            throw new IllegalStateException(problem);
        }
    }

    private boolean noneMoves() {
        try {
            return admin.listPartitionReassignments().reassignments().get().isEmpty();
        } catch (Exception problem) {
            throw new IllegalStateException(problem);
        }
    }

    /** The old leader stays until somebody asks: preferred, then "not needed". */
    private boolean electedOrNotNeeded() {
        try {
            var outcome = admin.electLeaders(ElectionType.PREFERRED, Set.of(partition))
                    .partitions().get().get(partition);
            return outcome.map(error -> error.getClass().getSimpleName()).orElse("elected")
                    .matches("elected|ElectionNotNeededException");
        } catch (Exception problem) {
            throw new IllegalStateException(problem);
        }
    }
}
