"""Plain values that go in and out of the client. No I/O, any thread.

``DSecContainerRunArgs`` keeps the argument names of the published session; every
field left at None is left to the server's default, which the answer echoes.
"""
from __future__ import annotations

import base64
import os
from dataclasses import dataclass, field
from typing import Any, Dict, Mapping, Optional, Tuple

from .errors import CommandFailed, DSecError, from_body

CREATE_LABEL = "dsec.create"  # finds a sandbox whose create call was cut (client.py)


@dataclass
class DSecContainerRunArgs:
    container_image: str = ""  # "name" (newest), "name:tag" or "name@version"
    memory_limit_mb: Optional[int] = None
    cpu_cores_limit: Optional[float] = None
    ttl_running_stop: Optional[float] = None  # idle timeout in seconds; 0: none
    network_rules: Optional[Mapping[str, bool]] = None
    init_user: Optional[str] = None
    # Beyond the published names:
    environment: Optional[str] = None  # another word for container_image
    ttl_seconds: Optional[float] = None  # lifetime
    disk_limit_mb: Optional[int] = None
    pids_limit: Optional[int] = None
    env: Optional[Mapping[str, str]] = None
    labels: Optional[Mapping[str, str]] = None
    cwd: Optional[str] = None
    hostname: Optional[str] = None
    no_new_privileges: Optional[bool] = None
    backend: Optional[str] = None
    idempotency_key: Optional[str] = None  # the same key again: the same sandbox, none made twice

    def to_body(self) -> Dict[str, Any]:
        if self.container_image and self.environment and self.container_image != self.environment:
            raise ValueError("container_image and environment name different things")
        name = self.environment or self.container_image
        if not name:
            raise ValueError("container_image (or environment) must be given")
        body: Dict[str, Any] = {"environment": name}
        named = {
            "memory_mb": self.memory_limit_mb,
            "cpu": self.cpu_cores_limit,
            "idle_ttl_seconds": self.ttl_running_stop,
            "user": self.init_user,
            "ttl_seconds": self.ttl_seconds,
            "disk_mb": self.disk_limit_mb,
            "pids": self.pids_limit,
            "cwd": self.cwd,
            "hostname": self.hostname,
            "no_new_privileges": self.no_new_privileges,
            "backend": self.backend,
            "idempotency_key": self.idempotency_key,
        }
        body.update((k, v) for k, v in named.items() if v is not None)
        for key, value in (("network_rules", self.network_rules), ("env", self.env), ("labels", self.labels)):
            if value is not None:
                body[key] = dict(value)
        return body


@dataclass(frozen=True)
class SandboxUsage:
    memory_bytes: int = 0
    memory_peak_bytes: int = 0
    cpu_seconds: float = 0.0
    disk_bytes: int = 0
    pids: int = 0
    oom_kills: int = 0


@dataclass(frozen=True)
class SandboxInfo:
    """One look at a sandbox. ``raw`` is the server's whole object."""

    id: str
    state: str
    reason: str
    message: str
    backend: str
    edge: str
    environment: str
    layers: Tuple[str, ...]
    cpu: float
    memory_mb: int
    disk_mb: int
    pids: int
    created_at: Optional[float]
    running_at: Optional[float]
    end_at: Optional[float]
    idle_ttl_seconds: float
    idle_end_at: Optional[float]
    stopped_at: Optional[float]
    labels: Dict[str, str]
    env: Dict[str, str]
    cwd: str
    user: str
    hostname: str
    no_new_privileges: bool
    usage: SandboxUsage
    execs_running: int
    raw: Dict[str, Any] = field(repr=False, compare=False)

    @classmethod
    def from_json(cls, o: Dict[str, Any]) -> "SandboxInfo":
        usage = o.get("usage") or {}
        return cls(
            id=o["id"],
            state=o["state"],
            reason=o.get("reason") or "",
            message=o.get("message") or "",
            backend=o.get("backend") or "",
            edge=o.get("edge") or "",
            environment=o.get("environment") or "",
            layers=tuple(o.get("layers") or ()),
            cpu=float(o.get("cpu") or 0),
            memory_mb=int(o.get("memory_mb") or 0),
            disk_mb=int(o.get("disk_mb") or 0),
            pids=int(o.get("pids") or 0),
            created_at=o.get("created_at"),
            running_at=o.get("running_at"),
            end_at=o.get("end_at"),
            idle_ttl_seconds=float(o.get("idle_ttl_seconds") or 0),
            idle_end_at=o.get("idle_end_at"),
            stopped_at=o.get("stopped_at"),
            labels={k: v for k, v in (o.get("labels") or {}).items() if k != CREATE_LABEL},
            env=dict(o.get("env") or {}),
            cwd=o.get("cwd") or "",
            user=o.get("user") or "",
            hostname=o.get("hostname") or "",
            no_new_privileges=bool(o.get("no_new_privileges")),
            usage=SandboxUsage(
                memory_bytes=int(usage.get("memory_bytes") or 0),
                memory_peak_bytes=int(usage.get("memory_peak_bytes") or 0),
                cpu_seconds=float(usage.get("cpu_seconds") or 0),
                disk_bytes=int(usage.get("disk_bytes") or 0),
                pids=int(usage.get("pids") or 0),
                oom_kills=int(usage.get("oom_kills") or 0),
            ),
            execs_running=int(o.get("execs_running") or 0),
            raw=o,
        )


@dataclass(frozen=True)
class SandboxEvent:
    """``event`` is "sandbox" (it was there), "listed" (those were all), "state" (a
    change) or "overflow" (changes were lost: all comes anew, as at the start)."""

    event: str
    sandbox: Optional[SandboxInfo] = None


@dataclass(frozen=True)
class SandboxStatuses:
    sandboxes: Tuple[SandboxInfo, ...]  # in the order asked
    unknown: Tuple[str, ...]  # ids that are not there


@dataclass(frozen=True)
class SandboxesDeleted:
    ids: Tuple[str, ...]
    failed: Dict[str, DSecError]  # by id: the call may be repeated


@dataclass(frozen=True)
class ExecInfo:
    """One look at a command, finished or not."""

    id: str
    sandbox_id: str
    state: str  # starting, running, finished, failed
    argv: Tuple[bytes, ...]
    started_at: Optional[float]
    finished_at: Optional[float]
    exit_code: Optional[int]
    signal: Optional[str]
    timed_out: bool
    killed_by: str  # "", user, timeout, oom, sandbox
    oom_killed: bool
    background_alive: bool
    drain_cut: bool
    cpu_seconds: float
    max_rss_bytes: int
    wall_seconds: float
    stdout_bytes: int  # totals, also of what was not kept
    stderr_bytes: int
    stdout_truncated: bool
    stderr_truncated: bool
    stdin_offset: int
    pty: bool
    error: Optional[DSecError]
    raw: Dict[str, Any] = field(repr=False, compare=False)

    @property
    def finished(self) -> bool:
        return self.state in ("finished", "failed")

    @classmethod
    def from_json(cls, o: Dict[str, Any]) -> "ExecInfo":
        error = o.get("error")
        return cls(
            id=o["id"],
            sandbox_id=o.get("sandbox_id") or "",
            state=o["state"],
            argv=tuple(_argv_member(a) for a in o.get("argv") or ()),
            started_at=o.get("started_at"),
            finished_at=o.get("finished_at"),
            exit_code=o.get("exit_code"),
            signal=o.get("signal"),
            timed_out=bool(o.get("timed_out")),
            killed_by=o.get("killed_by") or "",
            oom_killed=bool(o.get("oom_killed")),
            background_alive=bool(o.get("background_alive")),
            drain_cut=bool(o.get("drain_cut")),
            cpu_seconds=float(o.get("cpu_seconds") or 0),
            max_rss_bytes=int(o.get("max_rss_bytes") or 0),
            wall_seconds=float(o.get("wall_seconds") or 0),
            stdout_bytes=int(o.get("stdout_bytes") or 0),
            stderr_bytes=int(o.get("stderr_bytes") or 0),
            stdout_truncated=bool(o.get("stdout_truncated")),
            stderr_truncated=bool(o.get("stderr_truncated")),
            stdin_offset=int(o.get("stdin_offset") or 0),
            pty=bool(o.get("pty")),
            error=from_body(error) if isinstance(error, dict) else None,
            raw=o,
        )


def _argv_member(member: Any) -> bytes:
    if isinstance(member, dict):
        return base64.b64decode(member["b64"])
    return str(member).encode("utf-8", "surrogateescape")


@dataclass(frozen=True)
class ExecResult:
    """How a command ended, and what was kept of its output.

    ``exit_code`` is what the kernel gave, or None after a signal; a timeout or an
    out-of-memory kill is said in its own field, never by an invented exit code.
    """

    info: ExecInfo
    stdout: bytes = field(repr=False)
    stderr: bytes = field(repr=False)
    stdout_truncated: bool = False
    stderr_truncated: bool = False

    @property
    def exec_id(self) -> str:
        return self.info.id

    @property
    def exit_code(self) -> Optional[int]:
        return self.info.exit_code

    @property
    def signal(self) -> Optional[str]:
        return self.info.signal

    @property
    def stdout_text(self) -> str:
        return self.stdout.decode("utf-8", "replace")

    @property
    def stderr_text(self) -> str:
        return self.stderr.decode("utf-8", "replace")

    @property
    def stdout_bytes(self) -> int:
        return self.info.stdout_bytes

    @property
    def stderr_bytes(self) -> int:
        return self.info.stderr_bytes

    @property
    def timed_out(self) -> bool:
        return self.info.timed_out

    @property
    def oom_killed(self) -> bool:
        return self.info.oom_killed

    @property
    def killed_by(self) -> str:
        return self.info.killed_by

    @property
    def background_alive(self) -> bool:
        return self.info.background_alive

    @property
    def drain_cut(self) -> bool:
        return self.info.drain_cut

    @property
    def cpu_seconds(self) -> float:
        return self.info.cpu_seconds

    @property
    def max_rss_bytes(self) -> int:
        return self.info.max_rss_bytes

    @property
    def wall_seconds(self) -> float:
        return self.info.wall_seconds

    @property
    def ok(self) -> bool:
        return self.info.exit_code == 0

    def check(self) -> "ExecResult":
        """Itself when the command exited with 0; otherwise raises CommandFailed."""
        if self.ok:
            return self
        tail = (self.stderr_text.strip() or self.stdout_text.strip())[-500:]
        raise CommandFailed(self._how() + (": " + tail if tail else ""), self)

    def _how(self) -> str:
        if self.timed_out:
            return "timed out after %.1f s" % self.wall_seconds
        if self.oom_killed:
            return "killed for using more memory than the sandbox has"
        if self.signal:
            return "killed by SIG%s" % self.signal
        return "exited with %s" % self.exit_code


@dataclass(frozen=True)
class OutputEvent:
    """A piece of live output. ``text`` is decoded incrementally per stream: a
    character cut over two pieces appears whole in the second, what is not UTF-8
    becomes U+FFFD. ``skipped`` bytes just before this piece were not kept."""

    stream: str  # "stdout" or "stderr"; a pty has only stdout
    data: bytes
    text: str
    offset: int  # of data's first byte in the stream
    skipped: int = 0


@dataclass(frozen=True)
class FileStat:
    name: str  # bytes that are not UTF-8 come as surrogate escapes
    type: str  # file, directory, symlink, fifo, socket, char, block
    mode: int  # permission bits
    size: int
    mtime: float
    uid: int
    gid: int
    inode: int
    nlink: int
    link: Optional[str]  # a symbolic link's target

    @property
    def is_file(self) -> bool:
        return self.type == "file"

    @property
    def is_dir(self) -> bool:
        return self.type == "directory"

    @classmethod
    def from_json(cls, o: Dict[str, Any]) -> "FileStat":
        return cls(
            name=_name(o, "name") or "",
            type=o["type"],
            mode=int(o["mode"], 8),
            size=int(o["size"]),
            mtime=float(o["mtime"]),
            uid=int(o["uid"]),
            gid=int(o["gid"]),
            inode=int(o["inode"]),
            nlink=int(o["nlink"]),
            link=_name(o, "link"),
        )


def _name(o: Dict[str, Any], key: str) -> Optional[str]:
    raw = o.get(key + "_b64")
    if raw is not None:
        return os.fsdecode(base64.b64decode(raw))
    value = o.get(key)
    return value if isinstance(value, str) and (value or key == "name") else None


@dataclass(frozen=True)
class FileWritten:
    path: str
    size: int
    sha256: str


@dataclass(frozen=True)
class ArchiveWritten:
    entries: int
    bytes: int


@dataclass(frozen=True)
class LayerInfo:
    name: str
    version: str
    digest: str
    size_bytes: int
    files: int
    created_at: Optional[float]
    config: Dict[str, Any]
    source: str
    raw: Dict[str, Any] = field(repr=False, compare=False)

    @property
    def reference(self) -> str:
        return "%s@%s" % (self.name, self.version)

    @classmethod
    def from_json(cls, o: Dict[str, Any]) -> "LayerInfo":
        return cls(
            name=o["name"],
            version=str(o["version"]),
            digest=o["digest"],
            size_bytes=int(o.get("size_bytes") or 0),
            files=int(o.get("files") or 0),
            created_at=o.get("created_at"),
            config=dict(o.get("config") or {}),
            source=o.get("source") or "",
            raw=o,
        )
