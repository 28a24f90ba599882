"""Base of the tests that go through the Python SDK: a platform of the test file's
own, an open client and a sandbox for each test coroutine.

    class Exec(SdkTest):
        @in_sandbox(memory_limit_mb=128)
        async def test_true(self, client, sandbox):
            ...
"""
import asyncio
import functools
import sys

from harness import ROOT, PlatformTest

sys.path.insert(0, str(ROOT / "sdk" / "python"))

import dsec  # noqa: E402

TEST_TIMEOUT_S = 120.0


class SdkTest(PlatformTest):
    def sdk_client(self, **options):
        return dsec.DSecClient(f"http://127.0.0.1:{self.platform.port}", self.platform.client.key, **options)

    def async_run(self, body):
        """Runs `await body(client)` with an open client, within a time limit."""

        async def session():
            async with self.sdk_client() as client:
                await asyncio.wait_for(body(client), TEST_TIMEOUT_S)

        asyncio.run(session())


def args(**fields):
    fields.setdefault("container_image", "busybox:1")
    return dsec.DSecContainerRunArgs(**fields)


def with_client(method):
    @functools.wraps(method)
    def test(self):
        self.async_run(lambda client: method(self, client))

    return test


def in_sandbox(**fields):
    def decorate(method):
        @functools.wraps(method)
        def test(self):
            async def body(client):
                async with await client.run_container(args(**fields)) as sandbox:
                    await method(self, client, sandbox)

            self.async_run(body)

        return test

    return decorate
