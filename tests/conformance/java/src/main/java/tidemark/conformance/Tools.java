package tidemark.conformance;

import java.io.BufferedReader;
import java.io.ByteArrayInputStream;
import java.io.ByteArrayOutputStream;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.lang.reflect.InvocationTargetException;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.Base64;
import java.util.List;
import java.util.stream.Stream;
import org.apache.kafka.common.utils.Exit;

/**
 * Runs Kafka's command line tools one after the other, as their scripts would, in one JVM.
 *
 * <p>A line of standard input is a command: the class, its standard input and its arguments, each
 * in base64 and separated by spaces. The answer is a line: status, standard output and standard
 * error.
 */
public final class Tools {
    private final PrintStream answers = System.out;
    private final List<Runnable> hooks = new ArrayList<>();
    private int status;

    private Tools() {}

    /** Thrown in place of the end of the JVM. */
    private static final class Exited extends Error {
        private static final long serialVersionUID = 1;
    }

    public static void main(String[] arguments) throws Exception {
        new Tools().serve();
    }

    private void serve() throws Exception {
        Exit.setExitProcedure(this::exit);
        Exit.setHaltProcedure(this::exit);
        Exit.setShutdownHookAdder((name, hook) -> hooks.add(hook));
        var commands = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line; (line = commands.readLine()) != null; ) {
            String[] words = Stream.of(line.split(" ", -1)).map(Tools::decoded).toArray(String[]::new);
            answers.println(run(words));
            answers.flush();
        }
    }

    private String run(String[] words) throws Exception {
        var out = new ByteArrayOutputStream();
        var error = new ByteArrayOutputStream();
        System.setIn(new ByteArrayInputStream(words[1].getBytes(StandardCharsets.UTF_8)));
        System.setOut(new PrintStream(out, true, StandardCharsets.UTF_8));
        System.setErr(new PrintStream(error, true, StandardCharsets.UTF_8));
        status = -1;
        String[] arguments = Stream.of(words).skip(2).toArray(String[]::new);
        try {
            Class.forName(words[0]).getMethod("main", String[].class)
                    .invoke(null, (Object) arguments);
        } catch (InvocationTargetException problem) {
            if (!(problem.getCause() instanceof Exited)) {
                problem.getCause().printStackTrace();
                status = 1;
            }
        }
        hooks.forEach(Runnable::run);
        hooks.clear();
        System.out.flush();
        System.err.flush();
        return Math.max(status, 0) + " " + encoded(out) + " " + encoded(error);
    }

    /** The first end counts: a tool may catch what stands for it, and end again. */
    private void exit(int code, String message) {
        if (status < 0) {
            status = code;
        }
        throw new Exited();
    }

    private static String decoded(String word) {
        return new String(Base64.getDecoder().decode(word), StandardCharsets.UTF_8);
    }

    private static String encoded(ByteArrayOutputStream bytes) {
        return Base64.getEncoder().encodeToString(bytes.toByteArray());
    }
}
