"""Answers, memory, messages that come meanwhile, limits and failures of the model."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from paddock.agents.engines.base import FILE_SCHEME, Continue, TurnLimit
from paddock.agents.engines.conformance.stage import Cast, Stage, check, pictures, results
from paddock.agents.engines.rehearsal import Answer, Question, Rehearsal, Wanted, tool, words
from paddock.errors import PaddockError, Unavailable
from paddock.model.session_events import MessageDelta
from paddock.model.sessions import CallResult, FileContent, TextContent

PICTURE = FileContent(type="image", file="ab" * 32, name="screen.png", mime="image/png", size=10)


async def a_cat(arguments: Mapping[str, Any]) -> str:
    return "a cat"


LOOK = tool("look", a_cat)


class Talking:
    """Answers, memory, messages that come meanwhile, limits and failures of the model."""

    @check
    async def test_a_plain_answer(self, stage: Stage) -> None:
        """Asked once, with the prompt and the message; its answer is kept."""
        turn = stage.turn(["Hello."], prompt="You are kind.")
        await stage.play(turn, turn.says("Hi!"))
        assert [message.role for message in turn.records.messages] == ["user", "assistant"]
        if stage.engine.own_tools and type(stage.cast) is Cast:
            return
        (question,) = turn.records.questions
        assert "You are kind." in words(question.messages[0])
        assert question.text == "Hi!"
        assert turn.records.messages[-1].text == "Hello."

    @check
    async def test_thoughts_are_no_answer(self, stage: Stage) -> None:
        """What the model thinks is not said to it again as its words."""
        stage.needs_a_cast()
        turn = stage.turn([Answer("Yes.", thought="Hm, let me see."), "Still yes."])
        await stage.play(turn, turn.says("Is it?"))
        assert (turn.records.messages[-1].text, turn.records.messages[-1].thought) == ("Yes.", "Hm, let me see.")
        await stage.play(stage.follow(again := turn.following()), again.says("Sure?"))
        assert "Hm, let me see." not in "".join(words(message) for message in again.records.questions[-1].messages)

    @check
    async def test_it_remembers(self, stage: Stage) -> None:
        """What was said and called in earlier turns, in order, each once."""
        stage.needs_a_cast()
        turn = stage.turn([Answer("I look.", calls=[Wanted("look")]), "A cat.", "Black.", "Old."], tools=[LOOK])
        await stage.play(turn, turn.says("What is there?"))
        for text in ("What colour?", "How old?"):
            turn = stage.follow(turn.following())
            await stage.play(turn, turn.says(text))
        asked = turn.records.questions[-1].messages
        said = [words(message) for message in asked[1:] if message["role"] != "tool"]
        assert said == ["What is there?", "I look.", "A cat.", "What colour?", "Black.", "How old?"]
        assert [words(message) for message in results(asked)] == ["a cat"]

    @check
    async def test_a_session_that_begins_with_messages(self, stage: Stage) -> None:
        """A fork or an import: the engine has saved nothing in it, but there is a history."""
        stage.needs_a_cast()
        turn = stage.turn([Answer(calls=[Wanted("look")]), "A cat."], tools=[LOOK])
        await stage.play(turn, turn.says("What is there?"))
        fork = stage.follow(turn.forked(["Black."]))
        await stage.play(fork, fork.says("What colour?"))
        (question,) = fork.records.questions
        said = [words(message) for message in question.messages[1:] if words(message)]
        assert said == ["What is there?", "a cat", "A cat.", "What colour?"]

    @check
    async def test_what_is_written_meanwhile_is_read_before_the_next_question(self, stage: Stage) -> None:
        """After the results of the calls that were under way, and for some engines after the answer to them."""
        stage.needs_a_cast()

        async def look(arguments: Mapping[str, Any]) -> str:
            turn.write("Only the colour, please.")
            turn.write("A person has moved the cat.", role="note")
            return "a cat"

        later = ["A cat."] if stage.cast.told_later else []
        turn = stage.turn([Answer(calls=[Wanted("look")]), *later, "Black."], tools=[tool("look", look)])
        await stage.play(turn, turn.says("What is there?"))
        *said, note = [words(message) for message in turn.records.questions[-1].messages[-3 - len(later) :]]
        assert said == ["a cat", *later, "Only the colour, please."]
        assert "A person has moved the cat." in note
        assert turn.records.messages[-1].text == "Black."

    @check
    async def test_what_is_written_during_the_last_answer_is_not_lost(self, stage: Stage) -> None:
        """It is read in the same run, or when the engine is told to go on."""
        stage.needs_a_cast()

        def answer(question: Question) -> str:
            if len(turn.records.questions) == 1:
                turn.write("And its name?")
            return f"Answer {len(turn.records.questions)}."

        turn = stage.turn(answer)
        await stage.play(turn, turn.says("What is there?"))
        if len(turn.records.questions) == 1:
            await stage.play(turn, Continue())
        said = [words(message) for message in turn.records.questions[-1].messages[1:]]
        assert said == ["What is there?", "Answer 1.", "And its name?"]

    @check
    async def test_pictures_of_persons_are_named(self, stage: Stage) -> None:
        """By the session's own scheme, also in later turns."""
        stage.needs_our_tools("its program is given pictures themselves, not their names")
        turn = stage.turn(["A cat.", "Black."])
        await stage.play(turn, turn.says([TextContent(text="What is this?"), PICTURE]))
        await stage.play(stage.follow(again := turn.following()), again.says("What colour?"))
        for question in again.records.questions:
            assert pictures(question.messages) == [FILE_SCHEME + PICTURE.file]

    @check
    async def test_pictures_in_results_are_named(self, stage: Stage) -> None:
        """By the session's own scheme."""
        stage.needs_our_tools("its program looks at the pictures of its tools itself")

        async def look(arguments: Mapping[str, Any]) -> CallResult:
            return CallResult(content=(TextContent(text="the screen"), PICTURE))

        turn = stage.turn([Answer(calls=[Wanted("look")]), "A cat."], tools=[tool("look", look)])
        await stage.play(turn, turn.says("What is there?"))
        asked = turn.records.questions[-1].messages
        assert pictures(asked) == [FILE_SCHEME + PICTURE.file]
        assert "the screen" in words(results(asked)[0])

    @check
    async def test_the_limit_of_steps_ends_the_turn(self, stage: Stage) -> None:
        """And the next message goes on."""
        stage.needs_our_tools("its program takes its steps by itself, and no turn counts them")
        turn = stage.turn(lambda question: Answer(calls=[Wanted("look")]), tools=[LOOK], steps=3)
        try:
            await stage.play(turn, turn.says("Look for ever."))
        except TurnLimit:
            pass
        else:
            raise AssertionError("the limit was not heard of")
        assert len(turn.records.questions) == 3
        turn = stage.follow(turn.following(["Enough."]))
        await stage.play(turn, turn.says("Stop looking."))
        assert turn.records.questions[-1].text == "Stop looking."
        assert len(results(turn.records.questions[-1].messages)) == 3

    @check
    async def test_a_failing_model_ends_the_turn(self, stage: Stage) -> None:
        """With its error, and the next message goes on."""
        stage.needs_a_cast()
        turn = stage.turn([Answer(calls=[Wanted("look")]), Unavailable("the model is away")], tools=[LOOK])
        await self._fails(stage, turn)
        turn = stage.follow(turn.following(["A cat."]))
        await stage.play(turn, turn.says("And now?"))
        said = [words(message) for message in turn.records.questions[-1].messages[1:] if words(message)]
        assert said == ["What is there?", "a cat", "And now?"]
        assert turn.runs("look") == [{}]

    @check
    async def test_a_turn_that_failed_can_be_continued(self, stage: Stage) -> None:
        """From where it was."""
        stage.needs_a_cast()
        script = [Answer(calls=[Wanted("look")]), Unavailable("the model is away"), "A cat."]
        turn = stage.turn(script, tools=[LOOK])
        await self._fails(stage, turn)
        await stage.play(turn.reborn(), Continue())
        assert turn.records.messages[-1].text == "A cat."
        assert turn.runs("look") == [{}]
        assert len(turn.records.questions) == 3

    @check
    async def test_cancelled_within_an_answer(self, stage: Stage) -> None:
        """It ends at once, and the next message is answered."""
        stage.needs_a_cast()
        turn = stage.turn([Answer("Once upon a time", hangs=True)])
        await stage.cancel(turn, turn.says("A story!"), lambda: len(turn.heard(MessageDelta)) == 2)
        assert [message.cut for message in turn.records.messages] == [None, "cancelled"]
        turn = stage.follow(turn.following(["Paris."]))
        await stage.play(turn, turn.says("The capital of France?"))
        said = [words(message) for message in turn.records.questions[-1].messages[1:]]
        assert said[0] == "A story!"
        assert said[-1] == "The capital of France?"

    @check
    async def test_released_twice(self, stage: Stage) -> None:
        """Also a session that the engine never saw."""
        turn = stage.turn(["Hello."])
        await stage.play(turn, turn.says("Hi!"))
        for session in (turn.session, turn.session, turn.session.model_copy(update={"id": "ses_never"})):
            await stage.engine.release(session)

    async def _fails(self, stage: Stage, turn: Rehearsal) -> None:
        try:
            await stage.play(turn, turn.says("What is there?"))
        except Unavailable as error:
            told = error.message
        except PaddockError as error:
            # Programs have words and errors of their own.
            if not stage.engine.own_tools:
                raise
            told = error.message[-len("the model is away") :]
        else:
            told = "nothing"
        assert told == "the model is away", f"the error was not heard of: {told}"
