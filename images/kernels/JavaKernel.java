import java.io.BufferedReader;
import java.io.FileInputStream;
import java.io.FileOutputStream;
import java.io.IOException;
import java.io.InputStreamReader;
import java.io.OutputStream;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Locale;
import java.util.Map;
import java.util.concurrent.LinkedBlockingQueue;
import jdk.jshell.Diag;
import jdk.jshell.EvalException;
import jdk.jshell.JShell;
import jdk.jshell.JShellException;
import jdk.jshell.Snippet;
import jdk.jshell.SnippetEvent;
import jdk.jshell.SourceCodeAnalysis;
import jdk.jshell.UnresolvedReferenceException;
import sun.misc.Signal;

/** Kernel of Java contexts: runs cells in one JShell of this process, as docs/reference/inside.md describes. */
public final class JavaKernel {
    private static final int MAX_TEXT = 1_000_000;
    private static final String[] IMPORTED_PACKAGES = {
        "java.io", "java.math", "java.net", "java.nio.file", "java.util", "java.util.concurrent", "java.util.function",
        "java.util.regex", "java.util.stream",
    };

    private final OutputStream replies;
    private final JShell shell;
    private final LinkedBlockingQueue<Map<String, Object>> cells = new LinkedBlockingQueue<>();
    private final Map<String, String> cellsOfSnippets = new HashMap<>();
    private final Map<String, Integer> linesOfSnippets = new HashMap<>();
    private int running;
    private boolean interrupted;

    private JavaKernel(OutputStream replies) {
        this.replies = replies;
        shell = JShell.builder().executionEngine("local").build();
        for (String name : IMPORTED_PACKAGES) {
            shell.eval("import " + name + ".*;");
        }
    }

    public static void main(String[] arguments) throws Exception {
        // Interrupts come as commands; the signal is for programs that a cell has started.
        Signal.handle(new Signal("INT"), signal -> {});
        String directory = "/proc/self/fd/";
        FileInputStream commands = new FileInputStream(directory + System.getenv("PADDOCK_KERNEL_COMMANDS"));
        FileOutputStream replies = new FileOutputStream(directory + System.getenv("PADDOCK_KERNEL_REPLIES"));
        JavaKernel kernel = new JavaKernel(replies);
        Thread runner = new Thread(kernel::runCells, "cells");
        runner.setDaemon(true);
        runner.start();
        BufferedReader lines = new BufferedReader(new InputStreamReader(commands, StandardCharsets.UTF_8));
        for (String line = lines.readLine(); line != null; line = lines.readLine()) {
            Map<String, Object> command = new JsonObject(line).read();
            if (command.containsKey("interrupt")) {
                kernel.interrupt((Integer) command.get("interrupt"));
            } else {
                kernel.cells.add(command);
            }
        }
        Runtime.getRuntime().halt(0);
    }

    private void interrupt(int cell) {
        synchronized (this) {
            if (cell != running) {
                return;
            }
            interrupted = true;
        }
        shell.stop();
    }

    private void runCells() {
        try {
            while (true) {
                Map<String, Object> command = cells.take();
                int cell = (Integer) command.get("cell");
                synchronized (this) {
                    running = cell;
                    interrupted = false;
                }
                send("{\"count\":" + cell + "}");
                execute(cell, (String) command.get("code"));
                synchronized (this) {
                    running = 0;
                }
                System.out.flush();
                System.err.flush();
                send("{\"done\":true}");
            }
        } catch (InterruptedException | IOException ended) {
            Runtime.getRuntime().halt(1);
        }
    }

    /** Evaluate the snippets of a cell in order, up to the first error. */
    private void execute(int cell, String code) throws IOException {
        SnippetEvent last = null;
        String rest = code;
        while (!rest.isBlank()) {
            SourceCodeAnalysis.CompletionInfo info = shell.sourceCodeAnalysis().analyzeCompletion(rest);
            if (info.completeness() == SourceCodeAnalysis.Completeness.EMPTY) {
                break;
            }
            String source = info.source() != null ? info.source() : rest;
            int line = lineAt(code, code.length() - rest.stripLeading().length());
            rest = info.source() != null ? info.remaining() : "";
            last = null;
            for (SnippetEvent event : shell.eval(source)) {
                cellsOfSnippets.putIfAbsent(event.snippet().id(), "cell " + cell);
                linesOfSnippets.putIfAbsent(event.snippet().id(), line);
                if (isInterrupted()) {
                    sendError("Interrupted", "the cell was interrupted", List.of());
                    return;
                }
                if (event.causeSnippet() == null) {
                    if (!report(event, line)) {
                        return;
                    }
                    last = event;
                }
            }
        }
        if (last != null && isExpression(last.snippet()) && last.value() != null) {
            send("{\"result\":{\"text/plain\":" + quote(clip(last.value())) + "}}");
        }
    }

    private static boolean isExpression(Snippet snippet) {
        return snippet.kind() == Snippet.Kind.EXPRESSION
            || snippet.subKind() == Snippet.SubKind.TEMP_VAR_EXPRESSION_SUBKIND;
    }

    private synchronized boolean isInterrupted() {
        return interrupted;
    }

    /** Send the error of a snippet; false if there is one. */
    private boolean report(SnippetEvent event, int line) throws IOException {
        if (event.exception() != null) {
            sendException(event.exception());
            return false;
        }
        if (event.status() != Snippet.Status.REJECTED) {
            return true;
        }
        List<String> traceback = new ArrayList<>();
        String value = "";
        for (Diag problem : shell.diagnostics(event.snippet()).toArray(Diag[]::new)) {
            if (!problem.isError()) {
                continue;
            }
            String message = problem.getMessage(Locale.ENGLISH);
            value = value.isEmpty() ? message : value;
            int inSnippet = lineAt(event.snippet().source(), (int) Math.max(0, problem.getPosition()));
            traceback.add("line " + (line + inSnippet - 1) + ": " + message);
        }
        sendError("CompileError", value.isEmpty() ? "this is not complete Java code" : value, traceback);
        return false;
    }

    private void sendException(JShellException problem) throws IOException {
        if (problem instanceof UnresolvedReferenceException) {
            String name = ((UnresolvedReferenceException) problem).getSnippet().name();
            String unresolved = shell.unresolvedDependencies(((UnresolvedReferenceException) problem).getSnippet())
                .reduce((left, right) -> left + ", " + right).orElse("");
            sendError("UnresolvedReference", name + " refers to what is not declared: " + unresolved, List.of());
            return;
        }
        List<String> traceback = new ArrayList<>();
        for (Throwable each = problem; each != null; each = each.getCause()) {
            String prefix = each == problem ? "" : "Caused by: ";
            traceback.add(prefix + className(each) + (each.getMessage() == null ? "" : ": " + each.getMessage()));
            for (StackTraceElement frame : each.getStackTrace()) {
                traceback.add("    at " + describe(frame));
            }
        }
        sendError(className(problem), problem.getMessage() == null ? "" : problem.getMessage(), traceback);
    }

    /** Describe a frame with its cell, which JShell knows by the number of a snippet. */
    private String describe(StackTraceElement frame) {
        String snippet = String.valueOf(frame.getFileName()).replace("#", "");
        if (!cellsOfSnippets.containsKey(snippet)) {
            return frame.toString();
        }
        String where = cellsOfSnippets.get(snippet) + ":" + (linesOfSnippets.get(snippet) + frame.getLineNumber() - 1);
        return frame.getMethodName().isEmpty()
            ? where : (frame.getClassName() + "." + frame.getMethodName()).replaceFirst("^\\.", "") + " (" + where + ")";
    }

    private static int lineAt(String text, int offset) {
        return (int) text.substring(0, Math.min(offset, text.length())).chars().filter(each -> each == '\n').count() + 1;
    }

    private static String className(Throwable problem) {
        return problem instanceof EvalException
            ? ((EvalException) problem).getExceptionClassName() : problem.getClass().getName();
    }

    private void sendError(String name, String value, List<String> traceback) throws IOException {
        List<String> lines = new ArrayList<>();
        for (String line : traceback.isEmpty() ? List.of(name + ": " + value) : traceback) {
            lines.add(quote(clip(line)));
        }
        send("{\"error\":{\"ename\":" + quote(name) + ",\"evalue\":" + quote(clip(value))
            + ",\"traceback\":[" + String.join(",", lines) + "]}}");
    }

    private void send(String reply) throws IOException {
        replies.write((reply + "\n").getBytes(StandardCharsets.UTF_8));
    }

    private static String clip(String text) {
        return text.length() > MAX_TEXT ? text.substring(0, MAX_TEXT) + "…" : text;
    }

    private static String quote(String text) {
        StringBuilder quoted = new StringBuilder("\"");
        for (char each : text.toCharArray()) {
            if (each == '"' || each == '\\') {
                quoted.append('\\').append(each);
            } else if (each < 0x20 || each > 0x7e) {
                quoted.append(String.format("\\u%04x", (int) each));
            } else {
                quoted.append(each);
            }
        }
        return quoted.append('"').toString();
    }

    /** Reader of a flat JSON object with strings and integers, as the daemon sends it. */
    private static final class JsonObject {
        private final String text;
        private int position;

        JsonObject(String text) {
            this.text = text;
        }

        Map<String, Object> read() {
            Map<String, Object> members = new HashMap<>();
            position = text.indexOf('{') + 1;
            while (true) {
                int quote = text.indexOf('"', position);
                if (quote < 0) {
                    return members;
                }
                position = quote;
                String name = readString();
                position = text.indexOf(':', position) + 1;
                while (text.charAt(position) == ' ') {
                    position++;
                }
                members.put(name, text.charAt(position) == '"' ? readString() : readInteger());
            }
        }

        private Integer readInteger() {
            int start = position;
            while (Character.isDigit(text.charAt(position))) {
                position++;
            }
            return Integer.valueOf(text.substring(start, position));
        }

        private String readString() {
            StringBuilder result = new StringBuilder();
            for (position++; text.charAt(position) != '"'; position++) {
                char each = text.charAt(position);
                if (each != '\\') {
                    result.append(each);
                    continue;
                }
                each = text.charAt(++position);
                if (each == 'u') {
                    result.append((char) Integer.parseInt(text.substring(position + 1, position + 5), 16));
                    position += 4;
                } else {
                    int plain = "nrtbf".indexOf(each);
                    result.append(plain < 0 ? each : "\n\r\t\b\f".charAt(plain));
                }
            }
            position++;
            return result.toString();
        }
    }
}
