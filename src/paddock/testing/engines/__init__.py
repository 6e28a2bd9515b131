"""Conformance suite that every engine must pass. It needs no server and no model.

A plugin's test file needs one class and one fixture:

    from paddock.testing.engines import EngineConformance

    class TestMyEngine(EngineConformance):
        pass

    @pytest.fixture
    def engine():       # an engine, or a function that gives an async context manager of one
        return MyEngine(...)

The suite imports without pytest, and needs no pytest plugin to run.

An engine with its own tools and its own model cannot run the scripts of the checks by itself, and skips them. If the
fixture returns a `ScriptPlayer` for the engine, all checks run except the few that cannot apply; each skip says why:

    class MyScriptPlayer(ScriptPlayer):     # returned as MyScriptPlayer(engine)
        def begin(self, turn): ...          # from now on, this turn's script and tools apply to its session

    # In the stand-in for the model and the tools of the engine's program:
    reply = turn.next_reply(messages)       # the next scripted reply; records the question for the checks
    result = await turn.run_function("add", {"a": 1, "b": 2})
"""

from paddock.testing.engines.approval_checks import ApprovalChecks
from paddock.testing.engines.conformance_harness import ScriptPlayer
from paddock.testing.engines.conversation_checks import ConversationChecks
from paddock.testing.engines.crash_checks import CrashChecks
from paddock.testing.engines.tool_call_checks import ToolCallChecks


class EngineConformance(ConversationChecks, ToolCallChecks, ApprovalChecks, CrashChecks):
    """All conformance checks. Subclass it in a test module."""


__all__ = ["EngineConformance", "ScriptPlayer"]
