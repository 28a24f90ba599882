"""Tests that need a real Debian inside: one base made by mmdebstrap, kept in the build directory.

The first use takes about 40 s; DebianTest.sandbox() then uses the layer debian@1 (python3, procps, sudo, util-linux).
"""
import os
import subprocess

from harness import BUILD, PlatformTest

PACKAGES = "python3,procps,sudo,util-linux"


def debian_tar():
    """Path of the tar; made once a build directory, whole or not at all."""
    folder = BUILD / "test-cache"
    folder.mkdir(exist_ok=True)
    path = folder / "debian-1.tar"  # another list of packages: another number
    if not path.exists():
        part = folder / f"debian.tar.{os.getpid()}"
        subprocess.run(["mmdebstrap", "--quiet", "--variant=minbase", f"--include={PACKAGES}", "--format=tar",
                        "bookworm", str(part)], check=True, stdin=subprocess.DEVNULL)
        part.rename(path)
    return path


class DebianTest(PlatformTest):
    @classmethod
    def setUpClass(cls):
        tar = debian_tar()
        super().setUpClass()
        cls.platform.client.put_layer("debian@1", tar.read_bytes(), source="mmdebstrap")

    def sandbox(self, environment="debian@1", **fields):
        fields.setdefault("memory_mb", 256)
        return super().sandbox(environment, **fields)
