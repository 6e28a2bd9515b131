"""Code contexts in every language of the SDK, in the image `code-interpreter`."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import pytest
from code_interpreter import CodeInterpreterSync
from code_interpreter.models.code_sync import CodeContextSync, SupportedLanguageSync
from opensandbox import SandboxSync
from opensandbox.config import ConnectionConfigSync
from opensandbox.exceptions import SandboxApiException
from opensandbox.models.execd import Execution, ExecutionResult, OutputMessage
from opensandbox.models.execd_sync import ExecutionHandlersSync

from tests.support.screen_images import share_screen_images
from tests.support.server import Server, run_server

pytestmark = pytest.mark.timeout(900)  # On a new machine the image is built first.
IMAGE = "code-interpreter"
LANGUAGES = ("java", "go", "typescript", "javascript")


@dataclass(frozen=True)
class LanguageSample:
    """Cells of one language for the same behaviour."""

    first: str
    """Prints `hi`, sets x to 41, and declares a function `twice` and a type."""
    second: str
    """Prints to stderr; its last expression uses all of them."""
    second_result: str
    redeclare: str
    """Declares x again with another type; the last expression is x."""
    redeclared: str
    fail: str
    failure: tuple[str, str]
    malformed: str
    endless: str
    """Prints `busy` and never ends."""
    waiting: str
    """Prints `busy` and waits for a minute."""
    leave: str


JAVASCRIPT = LanguageSample(
    first="import { basename } from 'node:path'\nlet x = 41\nfunction twice(n) { return n * 2 }\n"
    "class Point { constructor(a) { this.a = a } }\nconsole.log('hi')",
    second="console.error('warning')\nawait new Promise(done => setTimeout(done, 5));\n"
    "[twice(x) + new Point(1).a, basename('/a/b')]",
    second_result="[ 83, 'b' ]",
    redeclare="const x = 'text'\nx",
    redeclared="'text'",
    fail="[].length\n\nthrow new RangeError('too far')",
    failure=("RangeError", "too far"),
    malformed="let = = 3",
    endless="console.log('busy')\nwhile (true) {}",
    waiting="console.log('busy')\nawait new Promise(done => setTimeout(done, 60000))",
    leave="process.exit(3)",
)
SAMPLES = {
    "javascript": JAVASCRIPT,
    "typescript": LanguageSample(
        first="import { basename } from 'node:path'\nimport type { Stats } from 'node:fs'\nlet x: number = 41\n"
        "function twice<T extends number>(n: T): number { return n * 2 }\nenum Size { Small = 1, Large }\n"
        "class Point { constructor(public readonly a: number) {} }\nconsole.log('hi')",
        second="console.error('warning')\nconst point: Point = new Point(1);\n"
        "[twice(x) + point!.a, basename('/a/b') as string, Size.Large]",
        second_result="[ 83, 'b', 2 ]",
        redeclare="let x: string = 'text'\nx",
        redeclared=JAVASCRIPT.redeclared,
        fail="interface Named { name: string }\nthrow new RangeError('too far' satisfies string)",
        failure=JAVASCRIPT.failure,
        malformed="let x: = 3",
        endless=JAVASCRIPT.endless,
        waiting=JAVASCRIPT.waiting,
        leave=JAVASCRIPT.leave,
    ),
    "java": LanguageSample(
        first="import java.time.Duration;\nint x = 41;\nint twice(int n) { return n * 2; }\n"
        'record Point(int a) {}\nSystem.out.println("hi");',
        second='System.err.println("warning");\nDuration.ofSeconds(twice(x) + new Point(1).a())',
        second_result="PT1M23S",
        redeclare='String x = "text";\nx',
        redeclared='"text"',
        fail='var unused = 1;\n\nthrow new IllegalStateException("too far");',
        failure=("java.lang.IllegalStateException", "too far"),
        malformed="int = 3;",
        endless='System.out.println("busy");\nwhile (true) { }',
        waiting='System.out.println("busy");\nThread.sleep(60000);',
        leave="System.exit(3);",
    ),
    "go": LanguageSample(
        first='import (\n\t"fmt"\n\t"os"\n\t"time"\n)\nx := 41\nfunc twice(n int) int { return n * 2 }\n'
        'type Point struct{ A int }\nfmt.Println("hi")',
        second='import "fmt"\nfmt.Fprintln(os.Stderr, "warning")\ntime.Duration(twice(x)+Point{1}.A) * time.Second',
        second_result="1m23s",
        redeclare='x := "text"\nx',
        redeclared="text",
        fail='for i := 0; i < 2; i++ {\n}\npanic("too far")',
        failure=("panic", "too far"),
        malformed="x := = 3",
        endless='fmt.Println("busy")\nfor { x += "" }',
        waiting='fmt.Println("busy")\ntime.Sleep(time.Minute)',
        leave="os.Exit(3)",
    ),
}


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    directory = tmp_path_factory.mktemp("languages")
    share_screen_images(directory / "data", IMAGE)
    with run_server(directory) as running:
        yield running


@pytest.fixture(scope="module")
def config(server: Server) -> ConnectionConfigSync:
    return ConnectionConfigSync(domain=server.domain, api_key=server.key)


@pytest.fixture(scope="module")
def interpreter(config: ConnectionConfigSync) -> Iterator[CodeInterpreterSync]:
    sandbox = SandboxSync.create(IMAGE, connection_config=config)
    try:
        with CodeInterpreterSync.create(sandbox=sandbox) as made:
            yield made
    finally:
        sandbox.destroy()


@pytest.fixture(params=LANGUAGES)
def context(request: pytest.FixtureRequest, interpreter: CodeInterpreterSync) -> Iterator[CodeContextSync]:
    made = interpreter.codes.create_context(request.param)
    yield made
    interpreter.codes.delete_context(str(made.id))


@pytest.fixture
def sample(context: CodeContextSync) -> LanguageSample:
    return SAMPLES[context.language]


def texts(messages: Sequence[OutputMessage | ExecutionResult]) -> list[str]:
    return [str(message.text) for message in messages]


def interrupt_when_busy(interpreter: CodeInterpreterSync, context: CodeContextSync, code: str) -> Execution:
    identifiers: list[str] = []
    interrupted: list[threading.Thread] = []

    def interrupt(_: object) -> None:
        thread = threading.Thread(target=interpreter.codes.interrupt, args=(identifiers[0],))
        thread.start()
        interrupted.append(thread)

    handlers = ExecutionHandlersSync(on_init=lambda event: identifiers.append(event.id), on_stdout=interrupt)
    done = interpreter.codes.run(code, context=context, handlers=handlers)
    interrupted[0].join(20)
    return done


def test_sdk_names_every_tested_language() -> None:
    named = {value for name, value in vars(SupportedLanguageSync).items() if name.isupper()}
    assert named == {"python", "bash", *LANGUAGES}


def test_state_is_kept_between_cells(
    interpreter: CodeInterpreterSync, context: CodeContextSync, sample: LanguageSample
) -> None:
    first = interpreter.codes.run(sample.first, context=context)
    assert (first.error, texts(first.logs.stdout), first.execution_count) == (None, ["hi"], 1)
    second = interpreter.codes.run(sample.second, context=context)
    assert second.error is None, second.error
    assert texts(second.logs.stderr) == ["warning"]
    assert texts(second.result) == [sample.second_result]
    assert second.execution_count == 2
    again = interpreter.codes.run(sample.redeclare, context=context)
    assert (again.error, texts(again.result)) == (None, [sample.redeclared])


def test_errors_have_name_value_and_traceback(
    interpreter: CodeInterpreterSync, context: CodeContextSync, sample: LanguageSample
) -> None:
    failed = interpreter.codes.run(sample.fail, context=context).error
    assert failed is not None
    assert (failed.name, failed.value) == sample.failure
    assert any("cell" in line for line in failed.traceback), failed.traceback
    malformed = interpreter.codes.run(sample.malformed, context=context).error
    assert malformed is not None and malformed.value
    assert malformed.name in ("SyntaxError", "CompileError")


def test_interrupted_context_keeps_its_state(
    interpreter: CodeInterpreterSync, context: CodeContextSync, sample: LanguageSample
) -> None:
    interpreter.codes.run(sample.first, context=context)
    interpreter.codes.run(sample.redeclare, context=context)
    for code in (sample.endless, sample.waiting):
        done = interrupt_when_busy(interpreter, context, code)
        assert done.error is not None and done.error.name == "Interrupted", done.error
    assert texts(interpreter.codes.run("x", context=context).result) == [sample.redeclared]


def test_ended_program_is_reported_and_replaced(
    interpreter: CodeInterpreterSync, context: CodeContextSync, sample: LanguageSample
) -> None:
    interpreter.codes.run(sample.first, context=context)
    ended = interpreter.codes.run(sample.leave, context=context).error
    assert ended is not None and ended.name == "KernelDied" and "exit code 3" in ended.value
    lost = interpreter.codes.run("x", context=context).error
    assert lost is not None and lost.name != "KernelDied"


def test_default_contexts_of_languages_are_separate(interpreter: CodeInterpreterSync) -> None:
    for language in ("javascript", "typescript"):
        interpreter.codes.run(f"var own = '{language}'", language=language)
    shown = [interpreter.codes.run("own", language=language).result for language in ("javascript", "typescript")]
    assert [texts(result) for result in shown] == [["'javascript'"], ["'typescript'"]]
    listed = interpreter.codes.list_contexts("typescript")
    assert {each.language for each in listed} == {"typescript"}


def test_image_without_the_languages_names_the_one_that_has_them(config: ConnectionConfigSync) -> None:
    sandbox = SandboxSync.create("host", connection_config=config)
    try:
        interpreter = CodeInterpreterSync.create(sandbox=sandbox)
        with interpreter, pytest.raises(SandboxApiException, match="code-interpreter"):
            interpreter.codes.create_context("go")
    finally:
        sandbox.destroy()
