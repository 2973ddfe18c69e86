"""The example project behind a strict content security policy."""

from example_project.settings import *  # noqa: F403
from example_project.settings import INSTALLED_APPS as SHOP_APPS
from example_project.settings import MIDDLEWARE as SHOP_MIDDLEWARE
from example_project.settings import MQ_DJANGO as SHOP_QUEUES

INSTALLED_APPS = [*SHOP_APPS, "tests.e2e"]
MIDDLEWARE = ["tests.e2e.policy.strict", *SHOP_MIDDLEWARE]


def directly(found):
    """Return queues or topics to which messages are published at once: tests look for them where no relay runs."""
    return {name: {**options, "OUTBOX": False} for name, options in found.items()}


MQ_DJANGO = {**SHOP_QUEUES, **{part: directly(SHOP_QUEUES[part]) for part in ("QUEUES", "TOPICS")}}
