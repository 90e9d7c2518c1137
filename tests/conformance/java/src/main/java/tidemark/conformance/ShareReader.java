package tidemark.conformance;

import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import org.apache.kafka.clients.consumer.AcknowledgeType;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.common.TopicIdPartition;

/**
 * A member of a share group that accepts all it gets, until it is ended. Tells "got" for each record
 * and "accepted" once its acknowledgement was answered without an error, or else "unknown".
 *
 * <p>Arguments: bootstrap servers, topic, group.
 */
public final class ShareReader {
    private ShareReader() {}

    public static void main(String[] arguments) throws Exception {
        var clients = new Clients(arguments[0]);
        var settings = Map.<String, Object>of("share.acknowledgement.mode", "explicit");
        try (var member = ShareGroups.member(clients, arguments[2], settings)) {
            member.subscribe(List.of(arguments[1]));
            while (true) {
                List<ConsumerRecord<String, String>> records = new ArrayList<>();
                for (var record : member.poll(Clients.MOMENT)) {
                    Facts.tell("got", placeOf(record));
                    member.acknowledge(record, AcknowledgeType.ACCEPT);
                    records.add(record);
                }
                var results = member.commitSync();
                for (var record : records) {
                    var failed = results.entrySet().stream()
                            .filter(one -> isOf(one.getKey(), record))
                            .anyMatch(one -> one.getValue().isPresent());
                    Facts.tell(failed ? "unknown" : "accepted", placeOf(record));
                }
            }
        }
    }

    private static boolean isOf(TopicIdPartition partition, ConsumerRecord<String, String> record) {
        return partition.partition() == record.partition();
    }

    private static String placeOf(ConsumerRecord<String, String> record) {
        return record.partition() + "-" + record.offset() + " " + record.value();
    }
}
