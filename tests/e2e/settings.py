"""The example project behind a strict content security policy."""

from example_project.settings import *  # noqa: F403
from example_project.settings import INSTALLED_APPS as SHOP_APPS
from example_project.settings import MIDDLEWARE as SHOP_MIDDLEWARE

INSTALLED_APPS = [*SHOP_APPS, "tests.e2e"]
MIDDLEWARE = ["tests.e2e.policy.strict", *SHOP_MIDDLEWARE]
