package tidemark.conformance;

import java.lang.reflect.Field;
import java.util.List;
import java.util.Map;
import java.util.stream.Collectors;
import org.apache.kafka.common.config.ConfigDef;
import org.apache.kafka.common.protocol.ApiKeys;

/** Settings and APIs of Kafka, as its classes define them; those of the server are there at run time only. */
public final class Reference {
    private static final String BROKER = "org.apache.kafka.server.config.AbstractKafkaConfig";
    private static final String DYNAMIC = "org.apache.kafka.server.config.DynamicConfig$Broker";
    private static final String MODES = "org.apache.kafka.server.config.DynamicBrokerConfig";
    private static final String TOPIC = "org.apache.kafka.storage.internals.log.LogConfig";

    private Reference() {}

    public static void main(String[] arguments) throws Exception {
        @SuppressWarnings("unchecked")
        Map<String, String> modes =
                (Map<String, String>) Class.forName(MODES).getMethod("dynamicConfigUpdateModes").invoke(null);
        ConfigDef broker = definition(BROKER, "CONFIG_DEF");
        ConfigDef dynamic = definition(DYNAMIC, "BROKER_CONFIGS");
        tell("broker", broker, modes);
        dynamic.configKeys().keySet().removeAll(broker.configKeys().keySet());
        tell("broker", dynamic, modes);
        tell("topic", (ConfigDef) Class.forName(TOPIC).getMethod("configDefCopy").invoke(null), Map.of());
        for (ApiKeys api : ApiKeys.values()) {
            String versions = api.oldestVersion() + " " + api.latestVersion(false);
            Facts.tell("api " + api.id + " " + api.messageType.name, versions);
        }
    }

    private static ConfigDef definition(String type, String field) throws Exception {
        Field found = Class.forName(type).getDeclaredField(field);
        found.setAccessible(true);
        return (ConfigDef) found.get(null);
    }

    private static void tell(String owner, ConfigDef definition, Map<String, String> modes) {
        for (ConfigDef.ConfigKey key : definition.configKeys().values()) {
            if (!key.internalConfig) {
                String mode = modes.getOrDefault(key.name, "read-only");
                String type = key.type.toString().toLowerCase();
                Facts.tell(owner + " " + key.name, type + " " + mode + " " + text(key.defaultValue));
            }
        }
    }

    private static String text(Object value) {
        if (value == null) {
            return "";
        }
        if (value == ConfigDef.NO_DEFAULT_VALUE) {
            return "(required)";
        }
        if (value instanceof List<?> items) {
            return items.stream().map(String::valueOf).collect(Collectors.joining(","));
        }
        return value instanceof Class<?> type ? type.getName() : String.valueOf(value);
    }
}
