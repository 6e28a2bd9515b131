"""Schema of script files: turns of abstract actions, rendered for the format and tools of the client."""

from __future__ import annotations

import re
from typing import Annotated, Any, ClassVar, Literal, Self, TypeAlias

from pydantic import AfterValidator, Field, JsonValue, field_validator, model_validator

from paddock.config.section import ConfigSection
from paddock.config.units import Seconds
from paddock.llm.formats.neutral import FinishReason
from paddock.llm.scripted_model import text_template


def _check_regex(pattern: str) -> str:
    try:
        re.compile(pattern)
    except re.error as error:
        raise ValueError(f"{pattern!r} is not a regular expression: {error}") from None
    return pattern


TemplateText = Annotated[str, AfterValidator(text_template.check_script_template)]
RegexPattern = Annotated[str, AfterValidator(_check_regex)]
FaultTimes = Annotated[int, Field(ge=1, le=1000)] | Literal["always"]


class ScriptAction(ConfigSection):
    """Base class of script actions. Most have a short form: the value of their main field alone."""

    short_form_field: ClassVar[str | None] = None
    needs_tool: ClassVar[bool] = False
    """Whether the action needs a tool of the client."""

    @model_validator(mode="before")
    @classmethod
    def _long_form(cls, value: object) -> object:
        if value is None:
            return {}
        return (
            {cls.short_form_field: value} if cls.short_form_field is not None and not isinstance(value, dict) else value
        )


class SayAction(ScriptAction):
    """Write text. Consecutive texts are joined."""

    short_form_field = "text"
    text: TemplateText


class ThinkAction(ScriptAction):
    """Write a thought, if the format supports thoughts."""

    short_form_field = "text"
    text: TemplateText


class RefuseAction(ScriptAction):
    """Refuse the request, and finish the answer as a refusal."""

    short_form_field = "text"
    text: TemplateText


class ShellAction(ScriptAction):
    """Run a shell command with the client's tool."""

    short_form_field = "command"
    needs_tool = True
    command: TemplateText = Field(min_length=1)
    description: TemplateText = "Run a command of the script"
    """Description passed to tools that require one."""


class WriteFileAction(ScriptAction):
    """Write a file with the client's file tool, else with its shell tool."""

    needs_tool = True
    path: TemplateText = Field(min_length=1)
    content: TemplateText


class ReadFileAction(ScriptAction):
    """Read a file with the client's file tool, else with its shell tool."""

    short_form_field = "path"
    needs_tool = True
    path: TemplateText = Field(min_length=1)


class CallToolAction(ScriptAction):
    """Call one of the client's tools."""

    short_form_field = "tool"
    needs_tool = True
    tool: str = Field(min_length=1)
    """Name of the tool, optionally without a prefix such as `mcp__server__`; `*` and `?` are wildcards."""
    arguments: dict[str, JsonValue] = {}
    """Arguments; missing required ones are filled in from the tool's schema."""

    @field_validator("arguments")
    @classmethod
    def _check_templates(cls, value: dict[str, JsonValue]) -> dict[str, JsonValue]:
        text_template.check_script_templates(value)
        return value


class FailAction(ScriptAction):
    """Fail with an error: with its HTTP status at the start of an answer, else inside the stream."""

    short_form_field = "status"
    status: int = Field(default=500, ge=400, le=599)
    message: TemplateText = "the script says so"
    retry_after: Seconds | None = Field(default=None, ge=0, le=86_400)
    """Sent as `Retry-After`, in whole seconds."""
    times: FaultTimes = 1
    """Number of requests that fail before the turn continues."""


class StallAction(ScriptAction):
    """Pause: before the answer if it is the first action, else within it."""

    short_form_field = "seconds"
    seconds: Seconds = Field(ge=0, le=3600)
    times: FaultTimes = "always"


class DropConnectionAction(ScriptAction):
    """Drop the connection."""

    times: FaultTimes = 1


class FinishReasonAction(ScriptAction):
    """Set the finish reason; by default it follows from the other actions."""

    short_form_field = "reason"
    reason: FinishReason


class UsageAction(ScriptAction):
    """Set the reported token usage; by default it is estimated from the lengths of texts."""

    input: int = Field(default=0, ge=0, le=10**9)
    output: int = Field(default=0, ge=0, le=10**9)
    cache_read: int = Field(default=0, ge=0, le=10**9)
    cache_write: int = Field(default=0, ge=0, le=10**9)
    reasoning: int = Field(default=0, ge=0, le=10**9)


FaultAction: TypeAlias = FailAction | StallAction | DropConnectionAction


class ScriptStep(ConfigSection):
    """One step of a turn: exactly one action."""

    say: SayAction | None = None
    think: ThinkAction | None = None
    refuse: RefuseAction | None = None
    shell: ShellAction | None = None
    write_file: WriteFileAction | None = None
    read_file: ReadFileAction | None = None
    call: CallToolAction | None = None
    fail: FailAction | None = None
    stall: StallAction | None = None
    drop: DropConnectionAction | None = None
    finish: FinishReasonAction | None = None
    usage: UsageAction | None = None

    @model_validator(mode="before")
    @classmethod
    def _expand_short_form(cls, value: object) -> object:
        if value == "drop":
            return {"drop": {}}
        # A key without a value is an action with default fields, not a missing action.
        return {key: {} if each is None else each for key, each in value.items()} if isinstance(value, dict) else value

    @model_validator(mode="after")
    def _exactly_one(self) -> Self:
        if len(self.model_fields_set) != 1:
            names = ", ".join(type(self).model_fields)
            raise ValueError(f"a step is exactly one action: one of {names}")
        return self

    @property
    def action(self) -> ScriptAction:
        (name,) = self.model_fields_set
        action = getattr(self, name)
        assert isinstance(action, ScriptAction)
        return action


class ScriptTurnCondition(ConfigSection):
    """Conditions that must all hold; all but `offers` are regular expressions, searched anywhere."""

    prompt: RegexPattern | None = None
    """Matches the last prompt of the user."""
    system: RegexPattern | None = None
    """Matches the system prompt."""
    last: RegexPattern | None = None
    """Matches the last message, of any role."""
    tool: RegexPattern | None = None
    """Matches the results of the tools just called."""
    model: RegexPattern | None = None
    """Matches the name of the model."""
    offers: str | None = None
    """Name or pattern of a tool that the client offers, as in `call`."""

    @model_validator(mode="after")
    def _check_not_empty(self) -> Self:
        if not self.model_fields_set:
            raise ValueError(f"name a condition: {', '.join(type(self).model_fields)}")
        return self


class ScriptTurn(ConfigSection):
    """One answer. Short form: a list of steps, or a single step."""

    do: tuple[ScriptStep, ...]
    """Actions in order. Several calls are made in one answer."""
    when: ScriptTurnCondition | None = None
    """Conditions; the turn is skipped unless they hold."""

    @model_validator(mode="before")
    @classmethod
    def _short_form(cls, value: object) -> object:
        if isinstance(value, list):
            return {"do": value}
        if isinstance(value, str) or (isinstance(value, dict) and not value.keys() & {"do", "when"}):
            return {"do": [value]}
        return value

    @model_validator(mode="after")
    def _check_not_empty(self) -> Self:
        if not 1 <= len(self.do) <= 200:
            raise ValueError("a turn has 1 to 200 steps")
        return self

    @property
    def actions(self) -> tuple[ScriptAction, ...]:
        return tuple(step.action for step in self.do)

    @property
    def gives_answer(self) -> bool:
        """Return whether the turn gives an answer; otherwise it only injects faults."""
        return any(not isinstance(action, FailAction | StallAction | DropConnectionAction) for action in self.actions)

    @property
    def needs_tools(self) -> bool:
        return any(action.needs_tool for action in self.actions)


class ModelScript(ConfigSection):
    """A script of the scripted model."""

    name: str = Field(default="", pattern=r"^([A-Za-z0-9][A-Za-z0-9._-]{0,62})?$")
    """Label of the answers; defaults to the name of the file."""
    description: str = ""
    turns: tuple[ScriptTurn, ...] = Field(default=(), max_length=10_000)
    """Answers of a conversation, in order."""
    rules: tuple[ScriptTurn, ...] = Field(default=(), max_length=1000)
    """Answers to requests that match their conditions, at any time; checked before the turns."""
    otherwise: ScriptTurn = ScriptTurn(do=(ScriptStep(say=SayAction(text="Done.")),))
    """Answer after the last turn."""
    side: TemplateText | None = None
    """Answer to side calls, such as requests for a title; defaults to the name of the script."""
    each_prompt: bool = False
    """Whether the turns start again with every new prompt."""
    pace: Seconds = Field(default=0, ge=0, le=10)
    """Pause between two pieces of streamed text."""

    @model_validator(mode="after")
    def _check_script(self) -> Self:
        if not self.turns and not self.rules:
            raise ValueError("a script needs turns or rules")
        for index, rule in enumerate(self.rules):
            if rule.when is None:
                raise ValueError(f"rules.{index} needs a when; put an unconditional answer into otherwise")
        if not self.otherwise.gives_answer:
            raise ValueError("otherwise must give an answer, not only faults")
        return self

    @property
    def needs_tools(self) -> bool:
        """Return whether a turn needs a tool of the client."""
        return any(turn.needs_tools for turn in self.turns)


def script_action_names() -> list[str]:
    return list(ScriptStep.model_fields)


_MODEL_BY_FIELD: dict[str, type[ConfigSection]] = {
    "turns": ScriptTurn,
    "rules": ScriptTurn,
    "otherwise": ScriptTurn,
    "when": ScriptTurnCondition,
    "do": ScriptStep,
    "say": SayAction,
    "think": ThinkAction,
    "refuse": RefuseAction,
    "shell": ShellAction,
    "write_file": WriteFileAction,
    "read_file": ReadFileAction,
    "call": CallToolAction,
    "fail": FailAction,
    "stall": StallAction,
    "drop": DropConnectionAction,
    "finish": FinishReasonAction,
    "usage": UsageAction,
}


def known_script_fields(location: tuple[Any, ...]) -> list[str]:
    """Return the known fields at a location in a script, for error messages about unknown ones."""
    for part in reversed(location):
        if part in _MODEL_BY_FIELD:
            return list(_MODEL_BY_FIELD[part].model_fields)
    return list(ModelScript.model_fields)
