"""Setuptools' build, with archives that are the same bytes whoever builds them, and whenever.

With ``SOURCE_DATE_EPOCH`` set, setuptools gives the files of a wheel that time, and leaves modes as
they are on the disk; its sdist has times and owners of the files, and the time of the build.
Here they are replaced, in both.
"""

from __future__ import annotations

import gzip
import io
import os
import stat
import tarfile
import zipfile
from pathlib import Path
from typing import Any

from setuptools import build_meta
from setuptools.build_meta import *  # noqa: F403 - all other hooks are setuptools' own

__all__ = [*build_meta.__all__]


def build_sdist(sdist_directory: str, config_settings: dict[str, Any] | None = None) -> str:
    """Build the sdist; return its name."""
    name: str = build_meta.build_sdist(sdist_directory, config_settings)
    if epoch := os.environ.get("SOURCE_DATE_EPOCH"):
        even_sdist(Path(sdist_directory) / name, int(epoch))
    return name


def build_wheel(
    wheel_directory: str,
    config_settings: dict[str, Any] | None = None,
    metadata_directory: str | None = None,
) -> str:
    """Build the wheel; return its name."""
    name: str = build_meta.build_wheel(wheel_directory, config_settings, metadata_directory)
    if os.environ.get("SOURCE_DATE_EPOCH"):
        even_wheel(Path(wheel_directory) / name)
    return name


def even_wheel(path: Path) -> None:
    """Write a wheel anew, in which nothing depends on a umask."""
    written = io.BytesIO()
    with zipfile.ZipFile(path) as old, zipfile.ZipFile(written, "w") as new:
        for one in old.infolist():
            one.external_attr = (stat.S_IFREG | 0o644) << 16
            new.writestr(one, old.read(one), zipfile.ZIP_DEFLATED)
    path.write_bytes(written.getvalue())


def even_sdist(path: Path, epoch: int) -> None:
    """Write an archive anew: sorted, of nobody, and of the time *epoch*."""
    written = io.BytesIO()
    with tarfile.open(path) as old, tarfile.open(fileobj=written, mode="w") as new:
        for one in sorted(old.getmembers(), key=lambda one: one.name):
            is_program = one.isdir() or bool(one.mode & 0o100)
            one.mtime, one.mode = epoch, 0o755 if is_program else 0o644
            one.uid = one.gid = 0
            one.uname = one.gname = ""
            # Such as a fraction of the time.
            one.pax_headers = {}
            new.addfile(one, old.extractfile(one) if one.isfile() else None)
    with path.open("wb") as file, gzip.GzipFile("", "wb", 9, file, mtime=epoch) as packed:
        packed.write(written.getvalue())
