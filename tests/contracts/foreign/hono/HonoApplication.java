import io.vertx.core.Future;
import io.vertx.core.Handler;
import io.vertx.core.Vertx;
import io.vertx.core.VertxOptions;
import io.vertx.core.buffer.Buffer;
import io.vertx.core.json.JsonObject;
import java.io.BufferedReader;
import java.io.IOException;
import java.io.InputStreamReader;
import java.time.Duration;
import java.util.Map;
import org.eclipse.hono.application.client.ApplicationClient;
import org.eclipse.hono.application.client.DownstreamMessage;
import org.eclipse.hono.application.client.MessageContext;
import org.eclipse.hono.application.client.amqp.ProtonBasedApplicationClient;
import org.eclipse.hono.application.client.kafka.KafkaApplicationClient;
import org.eclipse.hono.application.client.kafka.impl.KafkaApplicationClientImpl;
import org.eclipse.hono.client.ServiceInvocationException;
import org.eclipse.hono.client.amqp.config.ClientConfigProperties;
import org.eclipse.hono.client.amqp.connection.HonoConnection;
import org.eclipse.hono.client.kafka.CommonKafkaClientConfigProperties;
import org.eclipse.hono.client.kafka.consumer.MessagingKafkaConsumerConfigProperties;
import org.eclipse.hono.client.kafka.producer.CachingKafkaProducerFactory;
import org.eclipse.hono.client.kafka.producer.MessagingKafkaProducerConfigProperties;

/**
 * An application that uses Eclipse Hono's clients. It reads requests as lines of JSON, and prints what comes as lines of JSON.
 *
 * A result has the `number` of its request, an arrival has `on`.
 */
public class HonoApplication {

    private static final String REPLY_ID = "reply-1";
    private static final Duration LIMIT = Duration.ofSeconds(20);

    private final Vertx vertx = Vertx.vertx(new VertxOptions().setEventLoopPoolSize(2));
    private ApplicationClient<? extends MessageContext> client;
    private String tenant;

    public static void main(String[] args) throws IOException {
        HonoApplication application = new HonoApplication();
        BufferedReader requests = new BufferedReader(new InputStreamReader(System.in));
        for (String line = requests.readLine(); line != null; line = requests.readLine()) {
            JsonObject request = new JsonObject(line);
            application.perform(request)
                .recover(error -> Future.succeededFuture(failure(error)))
                .onSuccess(result -> print(result.put("number", request.getInteger("number"))));
        }
        System.exit(0);
    }

    private Future<JsonObject> perform(JsonObject request) {
        String device = request.getString("device");
        String name = request.getString("name");
        Buffer body = Buffer.buffer(request.getString("body", ""));
        switch (request.getString("do")) {
            case "open":
                tenant = request.getString("tenant");
                String address = request.getString("address");
                client = request.getString("client").equals("kafka") ? kafkaClient(vertx, address) : amqpClient(vertx, address);
                return client.start().compose(started -> consume(client)).map(ready -> new JsonObject());
            case "command":
                return client.sendCommand(tenant, device, name, body, "application/json", null, LIMIT, null).map(HonoApplication::shown);
            case "one-way":
                return client.sendOneWayCommand(tenant, device, name, body).map(sent -> new JsonObject());
            case "async":
                return sendAsync(device, name, request.getString("correlation"), body).map(sent -> new JsonObject());
            default:
                return client.stop().map(stopped -> new JsonObject());
        }
    }

    private <T extends MessageContext> Future<?> consume(ApplicationClient<T> client) {
        return Future.all(
            client.createTelemetryConsumer(tenant, printer("telemetry"), closed -> {}),
            client.createEventConsumer(tenant, printer("event"), closed -> {}),
            client.createCommandResponseConsumer(tenant, REPLY_ID, printer("response"), closed -> {}));
    }

    private Future<Void> sendAsync(String device, String name, String correlation, Buffer body) {
        if (client instanceof KafkaApplicationClientImpl) {
            Map<String, Object> metadata = Map.of("order", "7");
            return ((KafkaApplicationClientImpl) client)
                .sendAsyncCommand(tenant, device, name, correlation, body, "application/json", metadata, null);
        }
        return client.sendAsyncCommand(tenant, device, name, correlation, REPLY_ID, body);
    }

    private static KafkaApplicationClient kafkaClient(Vertx vertx, String bootstrap) {
        CommonKafkaClientConfigProperties common = new CommonKafkaClientConfigProperties();
        common.setCommonClientConfig(Map.of("bootstrap.servers", bootstrap));
        MessagingKafkaConsumerConfigProperties consumer = new MessagingKafkaConsumerConfigProperties();
        consumer.setCommonClientConfig(common);
        consumer.setConsumerConfig(Map.of("isolation.level", "read_committed", "auto.offset.reset", "earliest"));
        MessagingKafkaProducerConfigProperties producer = new MessagingKafkaProducerConfigProperties();
        producer.setCommonClientConfig(common);
        return new KafkaApplicationClientImpl(vertx, consumer, CachingKafkaProducerFactory.sharedFactory(vertx), producer);
    }

    private static ProtonBasedApplicationClient amqpClient(Vertx vertx, String address) {
        ClientConfigProperties settings = new ClientConfigProperties();
        settings.setHost(address.split(":")[0]);
        settings.setPort(Integer.parseInt(address.split(":")[1]));
        settings.setReconnectAttempts(0);
        return new ProtonBasedApplicationClient(HonoConnection.newConnection(vertx, settings));
    }

    private static <T extends MessageContext> Handler<DownstreamMessage<T>> printer(String on) {
        return message -> print(shown(message).put("on", on));
    }

    private static JsonObject shown(DownstreamMessage<? extends MessageContext> message) {
        return new JsonObject()
            .put("tenant", message.getTenantId())
            .put("device", message.getDeviceId())
            .put("contentType", message.getContentType())
            .put("qos", message.getQos().name())
            .put("created", message.getCreationTime() == null ? null : message.getCreationTime().toEpochMilli())
            .put("ttd", message.getTimeTillDisconnect())
            .put("correlation", message.getCorrelationId())
            .put("status", message.getStatus())
            .put("adapter", message.getProperties().getProperty("orig_adapter", String.class))
            .put("tenantProperty", message.getProperties().getProperty("tenant_id", String.class))
            .put("metadata", message.getProperties().getProperty("delivery-failure-notification-metadata.order", String.class))
            .put("body", message.getPayload() == null ? null : message.getPayload().toString());
    }

    private static JsonObject failure(Throwable error) {
        int status = error instanceof ServiceInvocationException ? ((ServiceInvocationException) error).getErrorCode() : 0;
        return new JsonObject().put("error", status).put("why", String.valueOf(error.getMessage()));
    }

    private static synchronized void print(JsonObject line) {
        System.out.println(line.encode());
        System.out.flush();
    }
}
