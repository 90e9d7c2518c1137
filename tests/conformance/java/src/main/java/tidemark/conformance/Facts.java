package tidemark.conformance;

import java.util.concurrent.ExecutionException;

/** What a program saw, on its standard output: a fact a line, "name TAB value". */
final class Facts {
    private Facts() {}

    /** Something to ask of the cluster. */
    interface Question {
        Object ask() throws Exception;
    }

    static void tell(String name, Object value) {
        System.out.println(name + "\t" + value);
        System.out.flush();
    }

    /** The answer, or the simple name of what was thrown; the trace goes to standard error. */
    static void ask(String name, Question question) {
        try {
            tell(name, question.ask());
        } catch (Exception problem) {
            Throwable cause = problem instanceof ExecutionException ? problem.getCause() : problem;
            System.err.print(name + ": ");
            cause.printStackTrace();
            tell(name, cause.getClass().getSimpleName());
        }
    }
}
