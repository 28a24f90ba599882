"""DSec: isolated sandboxes for agents.

    import asyncio
    from dsec import DSecClient, DSecContainerRunArgs

    async def main():
        client = DSecClient()
        await client.open()
        args = DSecContainerRunArgs(
            container_image="base:1", memory_limit_mb=1024, cpu_cores_limit=1,
            ttl_running_stop=300, network_rules={"npm": False}, init_user="root")
        sandbox = await client.run_container(args, timeout=120)
        result = await sandbox.run_shell("echo hello world")
        print(result.exit_code, result.stdout_text)
        await sandbox.stop()
        await client.close()

    asyncio.run(main())

Without asyncio: `from dsec.sync import DSecSyncClient`.
"""
from . import errors
from .client import DSecClient, Layers
from .errors import *  # noqa: F401,F403
from .errors import __all__ as _error_names
from .files import Files
from .process import Process, Pty
from .sandbox import Sandbox
from .types import (
    ArchiveWritten,
    DSecContainerRunArgs,
    ExecInfo,
    ExecResult,
    FileStat,
    FileWritten,
    LayerInfo,
    OutputEvent,
    SandboxEvent,
    SandboxesDeleted,
    SandboxInfo,
    SandboxStatuses,
    SandboxUsage,
)
from .version import __version__

__all__ = [
    "ArchiveWritten",
    "DSecClient",
    "DSecContainerRunArgs",
    "ExecInfo",
    "ExecResult",
    "FileStat",
    "FileWritten",
    "Files",
    "LayerInfo",
    "Layers",
    "OutputEvent",
    "Process",
    "Pty",
    "Sandbox",
    "SandboxEvent",
    "SandboxInfo",
    "SandboxStatuses",
    "SandboxUsage",
    "SandboxesDeleted",
    "__version__",
    "errors",
    *_error_names,
]
