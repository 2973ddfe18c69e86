"""How tests know that a process has ended."""

import os
import subprocess
import sys

from tests.processes import PROC, alive
from tests.waiting import wait_until

#: Its first thread ends, as in any order when it is killed; the other one, which waits for its input, does not.
PROGRAM = """
import ctypes, sys, threading
threading.Thread(target=sys.stdin.read).start()
ctypes.CDLL(None).pthread_exit(None)
"""


def test_a_process_has_not_ended_before_its_last_thread():
    process = subprocess.Popen([sys.executable, "-c", PROGRAM], stdin=subprocess.PIPE)
    with process:
        wait_until(lambda: b"\nState:\tZ" in (PROC / str(process.pid) / "status").read_bytes())
        assert alive(process.pid)
        process.kill()
        os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)
        # It has not been collected.
        assert not alive(process.pid)
