"""Memory that processes share: none of them can lose it to a full disk or to another process."""

import os
import resource

import pytest

from mq_django.consumers import shared_state

SIZE = 300_000


@pytest.fixture(params=["in memory", "in the temporary folder"])
def shared(request, monkeypatch):
    if request.param == "in the temporary folder":
        monkeypatch.delattr(os, "memfd_create", raising=False)
    elif not hasattr(os, "memfd_create"):
        pytest.skip("this system has no memfd_create()")
    fd = shared_state.allocate(SIZE)
    yield fd
    os.close(fd)


def test_all_of_it_is_allocated_and_zero(shared):
    """Of a sparse file each page is allocated when it is written; without room for it the process gets a SIGBUS."""
    told = os.fstat(shared)
    assert told.st_size == SIZE
    assert told.st_blocks * 512 >= SIZE
    assert os.pread(shared, SIZE, 0) == bytes(SIZE)


@pytest.mark.skipif(not hasattr(os, "memfd_create"), reason="only Linux seals files")
def test_no_process_can_take_it_from_the_others():
    fd = shared_state.allocate(SIZE)
    for size in (0, SIZE * 2):
        with pytest.raises(PermissionError):
            os.ftruncate(fd, size)
    assert os.fstat(fd).st_size == SIZE
    os.close(fd)


@pytest.mark.parametrize("has_memfd", [True, False])
def test_without_room_it_is_refused_and_nothing_is_left(monkeypatch, has_memfd):
    if not has_memfd:
        monkeypatch.delattr(os, "memfd_create", raising=False)
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    free = os.dup(0)
    os.close(free)
    resource.setrlimit(resource.RLIMIT_FSIZE, (SIZE // 2, before[1]))
    try:
        with pytest.raises(OSError, match="too large"):
            shared_state.allocate(SIZE)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    again = os.dup(0)
    os.close(again)
    assert again == free
