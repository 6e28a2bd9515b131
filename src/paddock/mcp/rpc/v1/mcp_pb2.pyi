from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class FrameBatch(_message.Message):
    __slots__ = ("frames",)
    FRAMES_FIELD_NUMBER: _ClassVar[int]
    frames: _containers.RepeatedCompositeFieldContainer[Frame]
    def __init__(self, frames: _Optional[_Iterable[_Union[Frame, _Mapping]]] = ...) -> None: ...

class Frame(_message.Message):
    __slots__ = ("exchange", "open", "notification", "response", "failure", "cancel", "consumed")
    EXCHANGE_FIELD_NUMBER: _ClassVar[int]
    OPEN_FIELD_NUMBER: _ClassVar[int]
    NOTIFICATION_FIELD_NUMBER: _ClassVar[int]
    RESPONSE_FIELD_NUMBER: _ClassVar[int]
    FAILURE_FIELD_NUMBER: _ClassVar[int]
    CANCEL_FIELD_NUMBER: _ClassVar[int]
    CONSUMED_FIELD_NUMBER: _ClassVar[int]
    exchange: int
    open: Open
    notification: bytes
    response: bytes
    failure: Failure
    cancel: Cancel
    consumed: int
    def __init__(self, exchange: _Optional[int] = ..., open: _Optional[_Union[Open, _Mapping]] = ..., notification: _Optional[bytes] = ..., response: _Optional[bytes] = ..., failure: _Optional[_Union[Failure, _Mapping]] = ..., cancel: _Optional[_Union[Cancel, _Mapping]] = ..., consumed: _Optional[int] = ...) -> None: ...

class Open(_message.Message):
    __slots__ = ("target", "request", "timeout_ms")
    TARGET_FIELD_NUMBER: _ClassVar[int]
    REQUEST_FIELD_NUMBER: _ClassVar[int]
    TIMEOUT_MS_FIELD_NUMBER: _ClassVar[int]
    target: str
    request: bytes
    timeout_ms: int
    def __init__(self, target: _Optional[str] = ..., request: _Optional[bytes] = ..., timeout_ms: _Optional[int] = ...) -> None: ...

class Cancel(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class Failure(_message.Message):
    __slots__ = ("code", "message")
    CODE_FIELD_NUMBER: _ClassVar[int]
    MESSAGE_FIELD_NUMBER: _ClassVar[int]
    code: str
    message: str
    def __init__(self, code: _Optional[str] = ..., message: _Optional[str] = ...) -> None: ...

class ListToolsRequest(_message.Message):
    __slots__ = ("target", "cursor")
    TARGET_FIELD_NUMBER: _ClassVar[int]
    CURSOR_FIELD_NUMBER: _ClassVar[int]
    target: str
    cursor: str
    def __init__(self, target: _Optional[str] = ..., cursor: _Optional[str] = ...) -> None: ...

class ListToolsResponse(_message.Message):
    __slots__ = ("tools", "next_cursor")
    TOOLS_FIELD_NUMBER: _ClassVar[int]
    NEXT_CURSOR_FIELD_NUMBER: _ClassVar[int]
    tools: _containers.RepeatedCompositeFieldContainer[Tool]
    next_cursor: str
    def __init__(self, tools: _Optional[_Iterable[_Union[Tool, _Mapping]]] = ..., next_cursor: _Optional[str] = ...) -> None: ...

class Tool(_message.Message):
    __slots__ = ("name", "title", "description", "input_schema_json", "output_schema_json", "definition_json")
    NAME_FIELD_NUMBER: _ClassVar[int]
    TITLE_FIELD_NUMBER: _ClassVar[int]
    DESCRIPTION_FIELD_NUMBER: _ClassVar[int]
    INPUT_SCHEMA_JSON_FIELD_NUMBER: _ClassVar[int]
    OUTPUT_SCHEMA_JSON_FIELD_NUMBER: _ClassVar[int]
    DEFINITION_JSON_FIELD_NUMBER: _ClassVar[int]
    name: str
    title: str
    description: str
    input_schema_json: bytes
    output_schema_json: bytes
    definition_json: bytes
    def __init__(self, name: _Optional[str] = ..., title: _Optional[str] = ..., description: _Optional[str] = ..., input_schema_json: _Optional[bytes] = ..., output_schema_json: _Optional[bytes] = ..., definition_json: _Optional[bytes] = ...) -> None: ...

class CallToolRequest(_message.Message):
    __slots__ = ("target", "name", "arguments_json", "input_responses_json", "request_state", "capabilities_json")
    TARGET_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    ARGUMENTS_JSON_FIELD_NUMBER: _ClassVar[int]
    INPUT_RESPONSES_JSON_FIELD_NUMBER: _ClassVar[int]
    REQUEST_STATE_FIELD_NUMBER: _ClassVar[int]
    CAPABILITIES_JSON_FIELD_NUMBER: _ClassVar[int]
    target: str
    name: str
    arguments_json: bytes
    input_responses_json: bytes
    request_state: str
    capabilities_json: bytes
    def __init__(self, target: _Optional[str] = ..., name: _Optional[str] = ..., arguments_json: _Optional[bytes] = ..., input_responses_json: _Optional[bytes] = ..., request_state: _Optional[str] = ..., capabilities_json: _Optional[bytes] = ...) -> None: ...

class CallToolEvent(_message.Message):
    __slots__ = ("progress", "log", "input_required", "result", "error")
    PROGRESS_FIELD_NUMBER: _ClassVar[int]
    LOG_FIELD_NUMBER: _ClassVar[int]
    INPUT_REQUIRED_FIELD_NUMBER: _ClassVar[int]
    RESULT_FIELD_NUMBER: _ClassVar[int]
    ERROR_FIELD_NUMBER: _ClassVar[int]
    progress: Progress
    log: Log
    input_required: InputRequired
    result: ToolResult
    error: ToolError
    def __init__(self, progress: _Optional[_Union[Progress, _Mapping]] = ..., log: _Optional[_Union[Log, _Mapping]] = ..., input_required: _Optional[_Union[InputRequired, _Mapping]] = ..., result: _Optional[_Union[ToolResult, _Mapping]] = ..., error: _Optional[_Union[ToolError, _Mapping]] = ...) -> None: ...

class Progress(_message.Message):
    __slots__ = ("progress", "total", "message")
    PROGRESS_FIELD_NUMBER: _ClassVar[int]
    TOTAL_FIELD_NUMBER: _ClassVar[int]
    MESSAGE_FIELD_NUMBER: _ClassVar[int]
    progress: float
    total: float
    message: str
    def __init__(self, progress: _Optional[float] = ..., total: _Optional[float] = ..., message: _Optional[str] = ...) -> None: ...

class Log(_message.Message):
    __slots__ = ("level", "logger", "data_json")
    LEVEL_FIELD_NUMBER: _ClassVar[int]
    LOGGER_FIELD_NUMBER: _ClassVar[int]
    DATA_JSON_FIELD_NUMBER: _ClassVar[int]
    level: str
    logger: str
    data_json: bytes
    def __init__(self, level: _Optional[str] = ..., logger: _Optional[str] = ..., data_json: _Optional[bytes] = ...) -> None: ...

class InputRequired(_message.Message):
    __slots__ = ("input_requests_json", "request_state")
    INPUT_REQUESTS_JSON_FIELD_NUMBER: _ClassVar[int]
    REQUEST_STATE_FIELD_NUMBER: _ClassVar[int]
    input_requests_json: bytes
    request_state: str
    def __init__(self, input_requests_json: _Optional[bytes] = ..., request_state: _Optional[str] = ...) -> None: ...

class ToolResult(_message.Message):
    __slots__ = ("text", "is_error", "structured_json", "result_json")
    TEXT_FIELD_NUMBER: _ClassVar[int]
    IS_ERROR_FIELD_NUMBER: _ClassVar[int]
    STRUCTURED_JSON_FIELD_NUMBER: _ClassVar[int]
    RESULT_JSON_FIELD_NUMBER: _ClassVar[int]
    text: str
    is_error: bool
    structured_json: bytes
    result_json: bytes
    def __init__(self, text: _Optional[str] = ..., is_error: _Optional[bool] = ..., structured_json: _Optional[bytes] = ..., result_json: _Optional[bytes] = ...) -> None: ...

class ToolError(_message.Message):
    __slots__ = ("code", "message", "data_json")
    CODE_FIELD_NUMBER: _ClassVar[int]
    MESSAGE_FIELD_NUMBER: _ClassVar[int]
    DATA_JSON_FIELD_NUMBER: _ClassVar[int]
    code: int
    message: str
    data_json: bytes
    def __init__(self, code: _Optional[int] = ..., message: _Optional[str] = ..., data_json: _Optional[bytes] = ...) -> None: ...
