"""Exceptions: one class for each stable error code of the API.

``DSecError`` has three children that say whose fault it was: ``ProgramError``
(what runs in the sandbox), ``CallerError`` (the request) and ``PlatformError``
(us). Below them is one class a code, so that ``except SandboxNotFound`` works.
The codes mirror src/base/errcodes.h; a unit test holds the two together. A code
this version does not know becomes the plain class of its ``fault``.

Codes in ``CLIENT_SIDE`` never come from a server: this library raises them.
"""
from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar, Dict, Mapping, Optional, Type

if TYPE_CHECKING:
    from .types import ExecResult


class DSecError(Exception):
    """Anything this library raises on purpose.

    ``retry`` says whether the same call may succeed later without a change;
    ``retry_after`` is what the server asked for, in seconds, or None.
    """

    CODE: ClassVar[str] = ""
    FAULT: ClassVar[str] = "platform"
    RETRY: ClassVar[bool] = False

    def __init__(
        self,
        message: str,
        *,
        code: Optional[str] = None,
        retry: Optional[bool] = None,
        retry_after: Optional[float] = None,
        request_id: Optional[str] = None,
        status: Optional[int] = None,
    ) -> None:
        super().__init__(message)
        self.message = message
        self.code: str = code if code is not None else self.CODE
        self.fault: str = self.FAULT
        self.retry: bool = self.RETRY if retry is None else retry
        self.retry_after = retry_after
        self.request_id = request_id
        self.status = status

    def __str__(self) -> str:
        tail = " (request %s)" % self.request_id if self.request_id else ""
        return "%s: %s%s" % (self.code or type(self).__name__, self.message, tail)


class ProgramError(DSecError):
    """The program in the sandbox, or a limit its own load ran into."""

    FAULT = "program"


class CallerError(DSecError):
    """The request itself; the same call will fail again."""

    FAULT = "caller"


class PlatformError(DSecError):
    """The platform or the way to it."""

    FAULT = "platform"


# --- caller: the request itself ---------------------------------------------
class BadRequest(CallerError):
    CODE = "bad_request"


class BadJson(CallerError):
    CODE = "bad_json"


class UnknownField(CallerError):
    CODE = "unknown_field"


class BadField(CallerError):
    CODE = "bad_field"


class NameTooLong(CallerError):
    CODE = "name_too_long"


class BodyTooLarge(CallerError):
    CODE = "body_too_large"


class HeadersTooLarge(CallerError):
    CODE = "headers_too_large"


class Unauthenticated(CallerError):
    CODE = "unauthenticated"


class Forbidden(CallerError):
    CODE = "forbidden"


class NotFound(CallerError):
    """Also the parent of every other "there is no such thing"."""

    CODE = "not_found"


class MethodNotAllowed(CallerError):
    CODE = "method_not_allowed"


class SandboxNotFound(NotFound):
    CODE = "sandbox_not_found"


class ExecNotFound(NotFound):
    CODE = "exec_not_found"


class EnvironmentNotFound(NotFound):
    CODE = "environment_not_found"


class LayerNotFound(NotFound):
    CODE = "layer_not_found"


class LayerInUse(CallerError):
    CODE = "layer_in_use"


class Conflict(CallerError):
    CODE = "conflict"


class SandboxStopped(CallerError):
    CODE = "sandbox_stopped"


class WrongState(CallerError):
    CODE = "wrong_state"
    RETRY = True


class Unsupported(CallerError):
    CODE = "unsupported"


# --- caller: what was asked to run or touch in the sandbox ------------------
class BadArgv(CallerError):
    CODE = "bad_argv"


class BadUser(CallerError):
    CODE = "bad_user"


class BadCwd(CallerError):
    CODE = "bad_cwd"


class CommandNotFound(CallerError):
    CODE = "command_not_found"


class ExecFormat(CallerError):
    CODE = "exec_format"


class PermissionDenied(CallerError):
    CODE = "permission_denied"


class RemoteFileNotFound(NotFound):
    CODE = "file_not_found"


class RemoteFileExists(CallerError):
    CODE = "file_exists"


class RemoteNotADirectory(CallerError):
    CODE = "not_a_directory"


class RemoteIsADirectory(CallerError):
    CODE = "is_a_directory"


class DirectoryNotEmpty(CallerError):
    CODE = "directory_not_empty"


class PathUnsafe(CallerError):
    """Also raised here, when a downloaded archive would leave its target."""

    CODE = "path_unsafe"


class HashMismatch(CallerError):
    CODE = "hash_mismatch"


# --- program ----------------------------------------------------------------
class DiskFull(ProgramError):
    CODE = "disk_full"


class PidsLimit(ProgramError):
    CODE = "pids_limit"
    RETRY = True


class ExecBlocked(ProgramError):
    CODE = "exec_blocked"
    RETRY = True


class CommandFailed(ProgramError):
    """Raised by ``ExecResult.check()``; the whole result is in ``result``."""

    CODE = "command_failed"

    def __init__(self, message: str, result: "ExecResult") -> None:
        super().__init__(message)
        self.result = result


class StdinClosed(ProgramError):
    """The command no longer reads its standard input."""

    CODE = "stdin_closed"


# --- platform ---------------------------------------------------------------
class CapacityExhausted(PlatformError):
    CODE = "capacity_exhausted"
    RETRY = True


class Overloaded(PlatformError):
    CODE = "overloaded"
    RETRY = True


class EdgeUnavailable(PlatformError):
    CODE = "edge_unavailable"
    RETRY = True


class HostLacks(PlatformError):
    CODE = "host_lacks"


class DeadlineExceeded(PlatformError):
    CODE = "deadline_exceeded"
    RETRY = True


class LayerBroken(PlatformError):
    CODE = "layer_broken"


class SandboxLost(PlatformError):
    CODE = "sandbox_lost"


class InternalError(PlatformError):
    CODE = "internal"
    RETRY = True


class NotConfigured(CallerError):
    """No server is known, or its key cannot be read."""

    CODE = "not_configured"


class ConnectionFailed(PlatformError):
    """No connection could be made, so nothing of the request was sent."""

    CODE = "connection_failed"
    RETRY = True


class ConnectionLost(PlatformError):
    """The connection broke; the server may or may not have acted."""

    CODE = "connection_lost"
    RETRY = True


class RequestTimeout(PlatformError):
    """This library's own patience ended; the server may still act."""

    CODE = "request_timeout"
    RETRY = True


class BadResponse(PlatformError):
    """What answered does not speak this API."""

    CODE = "bad_response"


CLIENT_SIDE = frozenset(
    [
        "command_failed",
        "stdin_closed",
        "not_configured",
        "connection_failed",
        "connection_lost",
        "request_timeout",
        "bad_response",
    ]
)


def _collect(root: Type[DSecError], into: Dict[str, Type[DSecError]]) -> Dict[str, Type[DSecError]]:
    for cls in root.__subclasses__():
        if "CODE" in cls.__dict__:
            into[cls.CODE] = cls
        _collect(cls, into)
    return into


BY_CODE: Dict[str, Type[DSecError]] = _collect(DSecError, {})
_BY_FAULT: Dict[str, Type[DSecError]] = {
    "program": ProgramError,
    "caller": CallerError,
    "platform": PlatformError,
}


def from_body(
    error: Mapping[str, Any],
    *,
    status: Optional[int] = None,
    retry_after: Optional[float] = None,
    request_id: Optional[str] = None,
) -> DSecError:
    """The exception for the inner object of ``{"error": {...}}``."""
    code = str(error.get("code", ""))
    fault = str(error.get("fault", ""))
    cls = BY_CODE.get(code) if code not in CLIENT_SIDE else None
    if cls is None:
        cls = _BY_FAULT.get(fault, PlatformError)
    retry = error.get("retry")
    exc = cls(
        str(error.get("message", "")) or "the server gave no message",
        code=code or None,
        retry=retry if isinstance(retry, bool) else None,
        retry_after=retry_after,
        request_id=str(error.get("request_id") or "") or request_id,
        status=status,
    )
    if fault in _BY_FAULT:
        exc.fault = fault
    return exc


__all__ = [
    "DSecError",
    "ProgramError",
    "CallerError",
    "PlatformError",
    "BadRequest",
    "BadJson",
    "UnknownField",
    "BadField",
    "NameTooLong",
    "BodyTooLarge",
    "HeadersTooLarge",
    "Unauthenticated",
    "Forbidden",
    "NotFound",
    "MethodNotAllowed",
    "SandboxNotFound",
    "ExecNotFound",
    "EnvironmentNotFound",
    "LayerNotFound",
    "LayerInUse",
    "Conflict",
    "SandboxStopped",
    "WrongState",
    "Unsupported",
    "BadArgv",
    "BadUser",
    "BadCwd",
    "CommandNotFound",
    "ExecFormat",
    "PermissionDenied",
    "RemoteFileNotFound",
    "RemoteFileExists",
    "RemoteNotADirectory",
    "RemoteIsADirectory",
    "DirectoryNotEmpty",
    "PathUnsafe",
    "HashMismatch",
    "DiskFull",
    "PidsLimit",
    "ExecBlocked",
    "CommandFailed",
    "StdinClosed",
    "CapacityExhausted",
    "Overloaded",
    "EdgeUnavailable",
    "HostLacks",
    "DeadlineExceeded",
    "LayerBroken",
    "SandboxLost",
    "InternalError",
    "NotConfigured",
    "ConnectionFailed",
    "ConnectionLost",
    "RequestTimeout",
    "BadResponse",
]
