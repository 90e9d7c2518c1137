package tidemark.conformance;

import java.io.FileReader;
import java.util.List;
import java.util.Properties;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.TimeUnit;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.serialization.StringDeserializer;
import org.apache.kafka.common.serialization.StringSerializer;

/**
 * A client that logs in as its file says. It tells "read" with the value that it has written and read,
 * then writes until it is ended and tells "wrote" for each record. It tells "failed" with an error, and
 * ends.
 *
 * <p>Arguments: a file of properties, a topic of one partition.
 */
public final class LoggedIn {
    private static final String TOKEN_ENDPOINT = "sasl.oauthbearer.token.endpoint.url";

    private LoggedIn() {}

    public static void main(String[] arguments) throws Exception {
        var settings = new Properties();
        try (var file = new FileReader(arguments[0])) {
            settings.load(file);
        }
        if (settings.containsKey(TOKEN_ENDPOINT)) {
            // Kafka's clients call no address that is not allowed by name.
            System.setProperty(
                    "org.apache.kafka.sasl.oauthbearer.allowed.urls", settings.getProperty(TOKEN_ENDPOINT));
        }
        try {
            run(settings, arguments[1]);
        } catch (ExecutionException problem) {
            Facts.tell("failed", problem.getCause().getClass().getSimpleName());
        } catch (Exception problem) {
            problem.printStackTrace();
            Facts.tell("failed", problem.getClass().getSimpleName());
        }
    }

    private static void run(Properties settings, String topic) throws Exception {
        var partition = new TopicPartition(topic, 0);
        settings.put("retries", "0");
        settings.put("enable.idempotence", "false");
        try (var producer = new KafkaProducer<>(settings, new StringSerializer(), new StringSerializer());
                var consumer = new KafkaConsumer<>(
                        settings, new StringDeserializer(), new StringDeserializer())) {
            long offset = producer.send(new ProducerRecord<>(topic, "by Java")).get().offset();
            consumer.assign(List.of(partition));
            consumer.seek(partition, offset);
            Clients.until("the record", () -> {
                for (ConsumerRecord<String, String> one : consumer.poll(Clients.MOMENT)) {
                    Facts.tell("read", one.value());
                    return true;
                }
                return false;
            });
            while (true) {
                Facts.tell("wrote", producer.send(new ProducerRecord<>(topic, "more")).get().offset());
                TimeUnit.MILLISECONDS.sleep(50);
            }
        }
    }
}
