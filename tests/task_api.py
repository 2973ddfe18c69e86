"""Django's task API, which a Django before 6.0 has of the package django-tasks: what is not ours."""

from importlib import import_module

from mq_django.task_backend.compat import LOGGER as PACKAGE

#: The decorator.
plain_task = import_module(PACKAGE).task
TaskResultMismatch = import_module(f"{PACKAGE}.exceptions").TaskResultMismatch
DUMMY = f"{PACKAGE}.backends.dummy.DummyBackend"
IMMEDIATE = f"{PACKAGE}.backends.immediate.ImmediateBackend"
