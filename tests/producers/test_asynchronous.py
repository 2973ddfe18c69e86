import inspect

from mq_django.producers import Queue, Topic

PAIRS = [
    *((Queue, name) for name in ("publish", "publish_many", "cancel", "reschedule", "find", "progress")),
    *((Topic, name) for name in ("publish", "publish_many")),
]


def test_a_coroutine_function_has_the_parameters_and_the_documentation_of_its_method(subtests):
    for owner, name in PAIRS:
        with subtests.test(owner=owner, name=name):
            method, found = getattr(owner, name), getattr(owner, f"a{name}")
            assert inspect.iscoroutinefunction(found)
            assert inspect.signature(found) == inspect.signature(method)
            assert "self" in inspect.signature(found).parameters
            assert found.__doc__ == method.__doc__
            owned_by = method.__qualname__.removesuffix(name)
            assert (found.__name__, found.__qualname__) == (f"a{name}", f"{owned_by}a{name}")


def test_every_method_that_writes_or_looks_up_has_a_coroutine_function(subtests):
    for owner in [Queue, Topic]:
        with subtests.test(owner=owner):
            found = {name for name, _ in inspect.getmembers(owner, inspect.iscoroutinefunction)}
            assert found == {f"a{name}" for kind, name in PAIRS if kind is owner}
