package tidemark.conformance;

import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.concurrent.ExecutionException;
import org.apache.kafka.clients.admin.AbortTransactionSpec;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.ListOffsetsOptions;
import org.apache.kafka.clients.admin.ListTransactionsOptions;
import org.apache.kafka.clients.admin.OffsetSpec;
import org.apache.kafka.clients.admin.ProducerState;
import org.apache.kafka.clients.admin.TransactionDescription;
import org.apache.kafka.clients.admin.TransactionState;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.IsolationLevel;
import org.apache.kafka.common.KafkaException;
import org.apache.kafka.common.TopicPartition;

/**
 * What the AdminClient asks about transactions, and how it ends them.
 *
 * <p>Arguments: bootstrap servers, a name for topic and transactional ids.
 */
public final class TransactionAdministration {
    private final Clients clients;
    private final Admin admin;
    private final String name;
    private final TopicPartition partition;

    private TransactionAdministration(Clients clients, Admin admin, String name) {
        this.clients = clients;
        this.admin = admin;
        this.name = name;
        this.partition = new TopicPartition(name, 0);
    }

    public static void main(String[] arguments) throws Exception {
        Clients clients = new Clients(arguments[0]);
        clients.create(arguments[1], 1);
        try (Admin admin = clients.admin()) {
            var program = new TransactionAdministration(clients, admin, arguments[1]);
            program.looked();
            program.fenced();
            program.aborted();
        }
    }

    /** An open transaction, as coordinator, partition and readers see it. */
    private void looked() throws Exception {
        try (var producer = opened(name + "-look")) {
            String id = name + "-look";
            TransactionDescription open = described(id);
            Facts.tell("described", open.state() + " " + open.topicPartitions());
            Facts.tell("timeout", open.transactionTimeoutMs());
            Facts.tell("started", open.transactionStartTimeMs().isPresent());
            Facts.ask("listed", () -> listed(new ListTransactionsOptions(), id));
            Facts.ask("listed by state", () -> listed(
                    new ListTransactionsOptions()
                            .filterStates(Set.of(TransactionState.ONGOING)), id));
            Facts.ask("not listed by another state", () -> listed(new ListTransactionsOptions()
                    .filterStates(Set.of(TransactionState.COMPLETE_ABORT)), id));
            Facts.ask("not listed as long", () ->
                    listed(new ListTransactionsOptions().filterOnDuration(3_600_000), id));
            Facts.ask("listed by pattern", () -> listed(
                    new ListTransactionsOptions().filterOnTransactionalIdPattern(name + ".*"), id));
            ProducerState state = producerState(open.producerId());
            Facts.tell("describeProducers", state.currentTransactionStartOffset().getAsLong());
            Facts.tell("same epoch", state.producerEpoch() == open.producerEpoch());
            Facts.ask("latest committed", () -> latest(IsolationLevel.READ_COMMITTED));
            Facts.ask("latest uncommitted", () -> latest(IsolationLevel.READ_UNCOMMITTED));
            producer.commitTransaction();
            Clients.until("the end of the transaction", () -> complete(id));
            Facts.tell("after commit", described(id).state());
            Clients.until("what readers see of it", () -> committedEnd() == 2);
            Facts.tell("latest committed after commit", committedEnd());
        }
        Facts.ask("unknown", () -> described(name + "-no"));
    }

    private void fenced() throws Exception {
        String id = name + "-fence";
        try (var producer = opened(id)) {
            Facts.ask("fenceProducers", () -> admin.fenceProducers(List.of(id)).all().get());
            try {
                producer.commitTransaction();
                Facts.tell("commit of the fenced", "committed");
            } catch (KafkaException refused) {
                Facts.tell("commit of the fenced", refused.getClass().getSimpleName());
            }
        }
        Clients.until("the abort", () -> committedEnd() == 4);
        Facts.ask("after fencing", () -> described(id).state());
    }

    /** As "kafka-transactions --abort" does: a marker straight to the partition's leader. */
    private void aborted() throws Exception {
        String id = name + "-abort";
        try (var producer = opened(id)) {
            ProducerState state = producerState(described(id).producerId());
            var spec = new AbortTransactionSpec(partition, state.producerId(),
                    (short) state.producerEpoch(), state.coordinatorEpoch().orElse(0));
            Facts.ask("abortTransaction", () -> admin.abortTransaction(spec).all().get());
            Facts.ask("open after abort", () ->
                    producerState(state.producerId()).currentTransactionStartOffset().isPresent());
            Clients.until("the abort", () -> committedEnd() == 6);
            producer.abortTransaction();
        }
        Facts.tell("values", clients.read(name, "read_committed"));
    }

    private KafkaProducer<String, String> opened(String transactionalId) throws Exception {
        var producer = clients.transactional(transactionalId);
        producer.initTransactions();
        producer.beginTransaction();
        producer.send(new ProducerRecord<>(name, 0, null, transactionalId)).get();
        return producer;
    }

    private TransactionDescription described(String id) throws Exception {
        return admin.describeTransactions(List.of(id)).all().get().get(id);
    }

    /** A commit is answered once it is decided; its markers follow. */
    private boolean complete(String id) {
        try {
            return described(id).state() != TransactionState.PREPARE_COMMIT;
        } catch (Exception problem) {
            throw new IllegalStateException(problem);
        }
    }

    private boolean listed(ListTransactionsOptions options, String id) throws Exception {
        return admin.listTransactions(options).all().get().stream()
                .anyMatch(one -> one.transactionalId().equals(id));
    }

    private ProducerState producerState(long producerId) throws Exception {
        return admin.describeProducers(List.of(partition)).partitionResult(partition).get()
                .activeProducers().stream()
                .filter(one -> one.producerId() == producerId)
                .findFirst().orElseThrow();
    }

    private long committedEnd() {
        try {
            return latest(IsolationLevel.READ_COMMITTED);
        } catch (ExecutionException | InterruptedException problem) {
            throw new IllegalStateException(problem);
        }
    }

    private long latest(IsolationLevel isolation) throws ExecutionException, InterruptedException {
        var asked = Map.of(partition, OffsetSpec.latest());
        return admin.listOffsets(asked, new ListOffsetsOptions(isolation))
                .partitionResult(partition).get().offset();
    }
}
