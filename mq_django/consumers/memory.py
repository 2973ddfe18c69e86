"""Files in memory, for sharing with child processes."""

import os
import tempfile
from importlib import import_module
from importlib.util import find_spec
from typing import Any

#: Not on Windows, where this module is imported but not used.
_fcntl: Any = import_module("fcntl") if find_spec("fcntl") else None


def new_file() -> int:
    """Return the descriptor of an empty file without a name: in memory on Linux, elsewhere in the temporary folder.

    Raises:
        OSError: out of memory or file descriptors.
    """
    if hasattr(os, "memfd_create"):
        return os.memfd_create("mq_django", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
    fd, path = tempfile.mkstemp(prefix="mq-")
    os.unlink(path)  # noqa: PTH108 - the file lives as long as a process has it open
    return fd


def allocate(size: int) -> int:
    """Return the descriptor of a new file of `size` zero bytes, all of them allocated.

    On Linux its size is sealed, because access to a truncated page kills a process with SIGBUS.

    Raises:
        OSError: out of memory or file descriptors.
    """
    fd = new_file()
    try:
        zeros = memoryview(bytes(size))
        while zeros:
            zeros = zeros[os.write(fd, zeros) :]
        if hasattr(os, "memfd_create"):
            _fcntl.fcntl(fd, _fcntl.F_ADD_SEALS, _fcntl.F_SEAL_SHRINK | _fcntl.F_SEAL_GROW | _fcntl.F_SEAL_SEAL)
    except BaseException:
        os.close(fd)
        raise
    return fd
