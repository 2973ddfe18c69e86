import inspect
import re

import pytest
from redis import exceptions

from mq_django import errors
from mq_django.transport.failures import translate

ALL = [found for _, found in inspect.getmembers(errors, inspect.isclass) if found.__module__ == errors.__name__]


@pytest.mark.parametrize("kind", ALL)
def test_every_error_is_ours_and_in_the_tree(kind):
    assert issubclass(kind, errors.MQError)
    assert re.search(rf"\b{kind.__name__}\b", errors.__doc__)


@pytest.mark.parametrize(
    ("theirs", "ours"),
    [
        (exceptions.ConnectionError("refused"), errors.ConnectionLost),
        (exceptions.TimeoutError("late"), errors.ConnectionLost),
        (exceptions.BusyLoadingError("LOADING"), errors.ConnectionLost),
        (exceptions.MaxConnectionsError("too many"), errors.ConnectionLost),
        (OSError("pipe"), errors.ConnectionLost),
        (exceptions.ReadOnlyError("You can't write"), errors.ReadOnly),
        (exceptions.OutOfMemoryError("command not allowed"), errors.RedisOutOfMemory),
        (exceptions.ResponseError("WRONGTYPE Operation"), errors.WrongKeyType),
        (exceptions.ResponseError("ERR Error running script: @user_script:4: WRONGTYPE Op"), errors.WrongKeyType),
        (exceptions.ResponseError("MISCONF Redis is configured to save"), errors.ReadOnly),
        (exceptions.ResponseError("OOM command not allowed"), errors.RedisOutOfMemory),
        (exceptions.ResponseError("CLUSTERDOWN"), errors.ConnectionLost),
        (exceptions.NoPermissionError("this user has no permissions"), errors.NotPermitted),
        (exceptions.ResponseError("ERR Error running script: @user_script:4: NOPERM this user"), errors.NotPermitted),
        (exceptions.ResponseError("ERR whatever"), errors.StoreError),
    ],
    ids=lambda value: getattr(value, "__name__", None) or f"{type(value).__name__}: {value}",
)
def test_errors_of_redis_are_said_in_our_words(theirs, ours):
    assert type(translate(theirs)) is ours
