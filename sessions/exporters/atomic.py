"""A file that appears whole or not at all."""

from __future__ import annotations

import contextlib
import os
import tempfile
from collections.abc import Iterator
from pathlib import Path

from sessions.errors import SessionError


@contextlib.contextmanager
def atomic(path: str | Path) -> Iterator[Path]:
    """A temporary name beside ``path`` to write to; it takes the place of ``path`` when the block ends well.

    Raises:
        SessionError: the folder or the disk does not allow it.
    """
    target = Path(path)
    try:
        handle, name = tempfile.mkstemp(dir=target.parent, prefix=f".{target.name}.", suffix=".part")
        os.close(handle)
    except OSError as error:
        raise _refused(target, error) from error
    part = Path(name)
    try:
        yield part
        part.chmod(0o666 & ~_umask())
        part.replace(target)
    except OSError as error:
        raise _refused(target, error) from error
    finally:
        part.unlink(missing_ok=True)


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask


def _refused(path: Path, error: OSError) -> SessionError:
    return SessionError(path, error.strerror or str(error), "to write here", "Choose another place.")
