"""Checks of conversations: replies, history, new messages, limits and model failures."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from paddock.agents.engines.base import FILE_SCHEME, ContinueTurn, TurnLimitReached
from paddock.errors import PaddockError, Unavailable
from paddock.model.session_events import MessageDelta
from paddock.model.sessions import CallResult, FileContent, TextContent
from paddock.testing.engines.conformance_harness import (
    EngineConformanceHarness,
    ScriptPlayer,
    conformance_check,
    list_image_urls,
    list_tool_results,
)
from paddock.testing.in_memory_turn import (
    InMemoryTurn,
    ModelQuestion,
    ScriptedCall,
    ScriptedReply,
    make_tool,
    message_text,
)

PICTURE = FileContent(type="image", file="ab" * 32, name="screen.png", mime="image/png", size=10)


async def look_at_cat(arguments: Mapping[str, Any]) -> str:
    return "a cat"


LOOK_TOOL = make_tool("look", look_at_cat)


class ConversationChecks:
    """Checks of conversations: replies, history, new messages, limits and model failures."""

    @conformance_check
    async def test_plain_reply(self, harness: EngineConformanceHarness) -> None:
        """The model is asked once with the prompt and the message; its reply is recorded."""
        turn = harness.new_turn(["Hello."], prompt="You are kind.")
        await harness.run_turn(turn, turn.receive_message("Hi!"))
        assert [message.role for message in turn.records.messages] == ["user", "assistant"]
        if harness.engine.has_own_tools and type(harness.player) is ScriptPlayer:
            return
        (question,) = turn.records.questions
        assert "You are kind." in message_text(question.messages[0])
        assert question.text == "Hi!"
        assert turn.records.messages[-1].text == "Hello."

    @conformance_check
    async def test_thoughts_are_not_sent_back(self, harness: EngineConformanceHarness) -> None:
        """Thoughts of the model are not sent back as its text."""
        harness.require_player()
        turn = harness.new_turn([ScriptedReply("Yes.", thought="Hm, let me see."), "Still yes."])
        await harness.run_turn(turn, turn.receive_message("Is it?"))
        assert (turn.records.messages[-1].text, turn.records.messages[-1].thought) == ("Yes.", "Hm, let me see.")
        await harness.run_turn(harness.track_turn(next_turn := turn.next_turn()), next_turn.receive_message("Sure?"))
        assert "Hm, let me see." not in "".join(
            message_text(message) for message in next_turn.records.questions[-1].messages
        )

    @conformance_check
    async def test_earlier_turns_are_remembered(self, harness: EngineConformanceHarness) -> None:
        """Messages and calls of earlier turns are sent in order, each once."""
        harness.require_player()
        turn = harness.new_turn(
            [ScriptedReply("I look.", calls=[ScriptedCall("look")]), "A cat.", "Black.", "Old."], tools=[LOOK_TOOL]
        )
        await harness.run_turn(turn, turn.receive_message("What is there?"))
        for text in ("What colour?", "How old?"):
            turn = harness.track_turn(turn.next_turn())
            await harness.run_turn(turn, turn.receive_message(text))
        question_messages = turn.records.questions[-1].messages
        texts = [message_text(message) for message in question_messages[1:] if message["role"] != "tool"]
        assert texts == ["What is there?", "I look.", "A cat.", "What colour?", "Black.", "How old?"]
        assert [message_text(message) for message in list_tool_results(question_messages)] == ["a cat"]

    @conformance_check
    async def test_session_with_history_only(self, harness: EngineConformanceHarness) -> None:
        """A fork or an import has a history, but no saved state of the engine."""
        harness.require_player()
        turn = harness.new_turn([ScriptedReply(calls=[ScriptedCall("look")]), "A cat."], tools=[LOOK_TOOL])
        await harness.run_turn(turn, turn.receive_message("What is there?"))
        fork = harness.track_turn(turn.forked_turn(["Black."]))
        await harness.run_turn(fork, fork.receive_message("What colour?"))
        (question,) = fork.records.questions
        texts = [message_text(message) for message in question.messages[1:] if message_text(message)]
        assert texts == ["What is there?", "a cat", "A cat.", "What colour?"]

    @conformance_check
    async def test_new_messages_are_read_before_next_question(self, harness: EngineConformanceHarness) -> None:
        """They follow the results of running calls, for some engines the reply to them."""
        harness.require_player()

        async def look(arguments: Mapping[str, Any]) -> str:
            turn.write_message("Only the colour, please.")
            turn.write_message("A person has moved the cat.", role="note")
            return "a cat"

        later = ["A cat."] if harness.player.reads_after_reply else []
        turn = harness.new_turn(
            [ScriptedReply(calls=[ScriptedCall("look")]), *later, "Black."], tools=[make_tool("look", look)]
        )
        await harness.run_turn(turn, turn.receive_message("What is there?"))
        *texts, note = [message_text(message) for message in turn.records.questions[-1].messages[-3 - len(later) :]]
        assert texts == ["a cat", *later, "Only the colour, please."]
        assert "A person has moved the cat." in note
        assert turn.records.messages[-1].text == "Black."

    @conformance_check
    async def test_message_during_last_reply_is_not_lost(self, harness: EngineConformanceHarness) -> None:
        """A late message is read in the same run, or when the turn is continued."""
        harness.require_player()

        def answer(question: ModelQuestion) -> str:
            if len(turn.records.questions) == 1:
                turn.write_message("And its name?")
            return f"Answer {len(turn.records.questions)}."

        turn = harness.new_turn(answer)
        await harness.run_turn(turn, turn.receive_message("What is there?"))
        if len(turn.records.questions) == 1:
            await harness.run_turn(turn, ContinueTurn())
        texts = [message_text(message) for message in turn.records.questions[-1].messages[1:]]
        assert texts == ["What is there?", "Answer 1.", "And its name?"]

    @conformance_check
    async def test_user_images_are_references(self, harness: EngineConformanceHarness) -> None:
        """Images are referenced by the session's URL scheme, also in later turns."""
        harness.require_paddock_tools("its program gets the images themselves, not references")
        turn = harness.new_turn(["A cat.", "Black."])
        await harness.run_turn(turn, turn.receive_message([TextContent(text="What is this?"), PICTURE]))
        await harness.run_turn(
            harness.track_turn(next_turn := turn.next_turn()), next_turn.receive_message("What colour?")
        )
        for question in next_turn.records.questions:
            assert list_image_urls(question.messages) == [FILE_SCHEME + PICTURE.file]

    @conformance_check
    async def test_result_images_are_references(self, harness: EngineConformanceHarness) -> None:
        """Images are referenced by the session's URL scheme."""
        harness.require_paddock_tools("its program reads the images of its tools itself")

        async def look(arguments: Mapping[str, Any]) -> CallResult:
            return CallResult(content=(TextContent(text="the screen"), PICTURE))

        turn = harness.new_turn(
            [ScriptedReply(calls=[ScriptedCall("look")]), "A cat."], tools=[make_tool("look", look)]
        )
        await harness.run_turn(turn, turn.receive_message("What is there?"))
        question_messages = turn.records.questions[-1].messages
        assert list_image_urls(question_messages) == [FILE_SCHEME + PICTURE.file]
        assert "the screen" in message_text(list_tool_results(question_messages)[0])

    @conformance_check
    async def test_step_limit_ends_the_turn(self, harness: EngineConformanceHarness) -> None:
        """The next message continues the session."""
        harness.require_paddock_tools("its program takes its own steps, which no turn counts")
        turn = harness.new_turn(
            lambda question: ScriptedReply(calls=[ScriptedCall("look")]), tools=[LOOK_TOOL], steps=3
        )
        try:
            await harness.run_turn(turn, turn.receive_message("Look for ever."))
        except TurnLimitReached:
            pass
        else:
            raise AssertionError("the limit was not raised")
        assert len(turn.records.questions) == 3
        turn = harness.track_turn(turn.next_turn(["Enough."]))
        await harness.run_turn(turn, turn.receive_message("Stop looking."))
        assert turn.records.questions[-1].text == "Stop looking."
        assert len(list_tool_results(turn.records.questions[-1].messages)) == 3

    @conformance_check
    async def test_model_failure_ends_the_turn(self, harness: EngineConformanceHarness) -> None:
        """The turn ends with the model's error, and the next message continues the session."""
        harness.require_player()
        turn = harness.new_turn(
            [ScriptedReply(calls=[ScriptedCall("look")]), Unavailable("the model is away")], tools=[LOOK_TOOL]
        )
        await self._run_failing_turn(harness, turn)
        turn = harness.track_turn(turn.next_turn(["A cat."]))
        await harness.run_turn(turn, turn.receive_message("And now?"))
        texts = [message_text(message) for message in turn.records.questions[-1].messages[1:] if message_text(message)]
        assert texts == ["What is there?", "a cat", "And now?"]
        assert turn.runs_of("look") == [{}]

    @conformance_check
    async def test_failed_turn_can_be_continued(self, harness: EngineConformanceHarness) -> None:
        """The turn continues from its records."""
        harness.require_player()
        script = [ScriptedReply(calls=[ScriptedCall("look")]), Unavailable("the model is away"), "A cat."]
        turn = harness.new_turn(script, tools=[LOOK_TOOL])
        await self._run_failing_turn(harness, turn)
        await harness.run_turn(turn.after_restart(), ContinueTurn())
        assert turn.records.messages[-1].text == "A cat."
        assert turn.runs_of("look") == [{}]
        assert len(turn.records.questions) == 3

    @conformance_check
    async def test_turn_cancelled_during_reply(self, harness: EngineConformanceHarness) -> None:
        """The turn ends at once, and the next message is answered."""
        harness.require_player()
        turn = harness.new_turn([ScriptedReply("Once upon a time", never_ends=True)])
        await harness.cancel_when(
            turn, turn.receive_message("A story!"), lambda: len(turn.events_of(MessageDelta)) == 2
        )
        assert [message.cut for message in turn.records.messages] == [None, "cancelled"]
        turn = harness.track_turn(turn.next_turn(["Paris."]))
        await harness.run_turn(turn, turn.receive_message("The capital of France?"))
        texts = [message_text(message) for message in turn.records.questions[-1].messages[1:]]
        assert texts[0] == "A story!"
        assert texts[-1] == "The capital of France?"

    @conformance_check
    async def test_release_is_idempotent(self, harness: EngineConformanceHarness) -> None:
        """Releasing is idempotent, also for a session that the engine never saw."""
        turn = harness.new_turn(["Hello."])
        await harness.run_turn(turn, turn.receive_message("Hi!"))
        for session in (turn.session, turn.session, turn.session.model_copy(update={"id": "ses_never"})):
            await harness.engine.release(session)

    async def _run_failing_turn(self, harness: EngineConformanceHarness, turn: InMemoryTurn) -> None:
        try:
            await harness.run_turn(turn, turn.receive_message("What is there?"))
        except Unavailable as error:
            message = error.message
        except PaddockError as error:
            # Agent programs raise errors of their own.
            if not harness.engine.has_own_tools:
                raise
            message = error.message[-len("the model is away") :]
        else:
            message = "nothing"
        assert message == "the model is away", f"the error was not raised: {message}"
