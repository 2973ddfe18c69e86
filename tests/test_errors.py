import inspect
import re

import pytest
from redis import exceptions

from mq_django import errors
from mq_django.transport.failures import translate

pytestmark = pytest.mark.versions

ALL = [found for _, found in inspect.getmembers(errors, inspect.isclass) if found.__module__ == errors.__name__]


def test_every_error_is_ours_and_in_the_tree():
    ends = {errors.HandlerCancelled, errors.Interrupted}
    assert {kind for kind in ALL if not issubclass(kind, errors.MQError)} == ends
    assert not any(issubclass(kind, Exception) for kind in ends)
    assert [kind for kind in ALL if not re.search(rf"\b{kind.__name__}\b", errors.__doc__)] == []


#: What Redis writes behind the error of a command in a script.
BEHIND = f"script: {'0' * 40}, on @user_script:1."


TRANSLATED = [
    (exceptions.ConnectionError("refused"), errors.ConnectionLost),
    (exceptions.TimeoutError("late"), errors.ConnectionLost),
    (exceptions.BusyLoadingError("LOADING"), errors.ConnectionLost),
    (exceptions.MaxConnectionsError("too many"), errors.ConnectionLost),
    (OSError("pipe"), errors.ConnectionLost),
    (exceptions.ReadOnlyError("You can't write"), errors.ReadOnly),
    (exceptions.OutOfMemoryError("command not allowed"), errors.RedisOutOfMemory),
    (exceptions.ResponseError("WRONGTYPE Operation"), errors.WrongKeyType),
    (exceptions.ResponseError(f"WRONGTYPE Operation against a key {BEHIND}"), errors.WrongKeyType),
    (exceptions.ResponseError("MISCONF Redis is configured to save"), errors.ReadOnly),
    (exceptions.ResponseError("OOM command not allowed"), errors.RedisOutOfMemory),
    (exceptions.ResponseError("CLUSTERDOWN"), errors.ConnectionLost),
    (exceptions.NoPermissionError("this user has no permissions"), errors.NotPermitted),
    (exceptions.ResponseError(f"OOM command not allowed {BEHIND}"), errors.RedisOutOfMemory),
    (exceptions.ResponseError("this user may not touch the key OOM"), errors.StoreError),
    (exceptions.ResponseError("BUSY Redis is busy running a script"), errors.ServerBusy),
    (exceptions.MovedError("866 127.0.0.1:7001"), errors.WrongNode),
    (exceptions.AskError("866 127.0.0.1:7001"), errors.WrongNode),
    (exceptions.ResponseError(f"MOVED 866 127.0.0.1:7001 {BEHIND}"), errors.WrongNode),
    (exceptions.ResponseError("ERR whatever"), errors.StoreError),
]


def test_errors_of_redis_are_said_in_our_words():
    found = [(theirs, type(translate(theirs)), str(translate(theirs))) for theirs, _ in TRANSLATED]
    assert [(theirs, kind) for theirs, kind, _ in found] == TRANSLATED
    assert [said for _, _, said in found if "script:" in said] == []
