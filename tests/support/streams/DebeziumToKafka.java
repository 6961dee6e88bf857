import io.debezium.engine.ChangeEvent;
import io.debezium.engine.DebeziumEngine;
import io.debezium.engine.format.Json;
import java.io.FileReader;
import java.util.HashSet;
import java.util.List;
import java.util.Optional;
import java.util.Properties;
import java.util.Set;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.Future;
import java.util.ArrayList;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.NewTopic;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.clients.producer.RecordMetadata;
import org.apache.kafka.common.errors.TopicExistsException;
import org.apache.kafka.common.serialization.StringSerializer;

/**
 * Debezium's engine with the connector of the properties in a file, and a Kafka producer behind it.
 *
 * `kafka.bootstrap.servers` and `kafka.partitions` say where the messages go: each to the topic of its table, made
 * when it is missing, and by its key to a partition. The engine's position moves only after the broker has the
 * messages, so a kill repeats some and loses none.
 */
public final class DebeziumToKafka {
    private final Properties properties = new Properties();
    private final Set<String> topics = new HashSet<>();
    private final Admin admin;
    private final KafkaProducer<String, String> producer;

    private DebeziumToKafka(String path) throws Exception {
        try (FileReader file = new FileReader(path)) {
            properties.load(file);
        }
        Properties kafka = new Properties();
        kafka.put("bootstrap.servers", properties.getProperty("kafka.bootstrap.servers"));
        admin = Admin.create(kafka);
        kafka.put("enable.idempotence", "true");
        // A partition that was just made may refuse a producer's first batch and take the second one; the first is
        // out of order for ever then.
        kafka.put("max.in.flight.requests.per.connection", "1");
        kafka.put("linger.ms", "5");
        kafka.put("delivery.timeout.ms", "600000");
        kafka.put("max.block.ms", "600000");
        producer = new KafkaProducer<>(kafka, new StringSerializer(), new StringSerializer());
    }

    public static void main(String[] arguments) throws Exception {
        new DebeziumToKafka(arguments[0]).run();
    }

    private void run() throws Exception {
        try (DebeziumEngine<ChangeEvent<String, String>> engine = DebeziumEngine.create(Json.class)
                .using(properties)
                .notifying(this::send)
                .using((succeeded, message, error) -> {
                    System.err.println("ended: " + message);
                    if (error != null) {
                        error.printStackTrace();
                    }
                })
                .build()) {
            System.err.println("starting");
            engine.run();
        }
        System.exit(1);
    }

    private void send(
            List<ChangeEvent<String, String>> events,
            DebeziumEngine.RecordCommitter<ChangeEvent<String, String>> committer) throws InterruptedException {
        List<Future<RecordMetadata>> sent = new ArrayList<>();
        for (ChangeEvent<String, String> event : events) {
            make(event.destination());
            sent.add(producer.send(new ProducerRecord<>(event.destination(), event.key(), event.value())));
        }
        producer.flush();
        try {
            for (Future<RecordMetadata> each : sent) {
                each.get();
            }
        } catch (ExecutionException error) {
            error.printStackTrace();
            Runtime.getRuntime().halt(2);
        }
        for (ChangeEvent<String, String> event : events) {
            committer.markProcessed(event);
        }
        committer.markBatchFinished();
    }

    private void make(String topic) throws InterruptedException {
        if (!topics.add(topic)) {
            return;
        }
        int partitions = Integer.parseInt(properties.getProperty("kafka.partitions"));
        while (true) {
            try {
                admin.createTopics(List.of(new NewTopic(topic, Optional.of(partitions), Optional.empty()))).all().get();
                return;
            } catch (ExecutionException error) {
                if (error.getCause() instanceof TopicExistsException) {
                    return;
                }
                error.printStackTrace(); // the broker is away
                Thread.sleep(200);
            }
        }
    }
}
