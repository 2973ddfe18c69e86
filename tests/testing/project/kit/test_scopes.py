"""What a module has published once is gone when its first test begins."""

import pytest
from shop.handlers import emails


@pytest.fixture(scope="module", autouse=True)
def published():
    emails.publish("welcome", {"email": "ann@shop.example"})


@pytest.mark.parametrize("number", [1, 2])
def test_nothing_is_there(mq, number):
    assert mq.run("emails") == []
