from dataclasses import dataclass, field
from decimal import Decimal
from typing import Any
from uuid import UUID

import pytest

from mq_django.core.templates import Template, filler
from mq_django.errors import ConfigurationError, InvalidMessage


@dataclass
class Cart:
    pk: Any = 7
    owner: Any = None
    lines: list[int] = field(default_factory=list)
    _secret: str = "hidden"

    @property
    def total(self):
        return Decimal("1.50")

    def save(self):
        raise AssertionError("a template calls nothing")


def test_a_place_is_filled_with_an_attribute(subtests):
    for text, filled in [
        *(("daily", "daily"), ("", ""), ("cart:{instance.pk}", "cart:7"), ("{instance.pk}:{created}", "7:True")),
        *(("{instance.owner.pk}", "9"), ("{instance.total}", "1.50"), ("{{x}} {instance.pk}", "{x} 7")),
    ]:
        with subtests.test(text=text):
            assert Template(text).fill({"instance": Cart(owner=Cart(pk=9)), "created": True}) == filled


def test_what_is_more_than_attributes_is_no_template(subtests):
    for text in [
        *("{instance._secret}", "{instance.__class__}", "{instance.pk.__class__.__mro__}", "{_private}"),
        *("{instance[0]}", "{instance.lines[0]}", "{0}", "{}", "{instance.}", "{.pk}", "{instance!r}"),
        *("{instance.pk:>10}", "{instance.pk:{width}}", "{instance.save()}", "{instance.pk", "instance.pk}"),
        *("{größe}", None, 7),
    ]:
        with subtests.test(text=text), pytest.raises(ConfigurationError, match="is not a template"):
            Template(text)


def test_a_place_without_a_value_is_an_error(subtests):
    for text, reason in [
        *(("{instance.owner}", "is None"), ("{instance.owner.pk}", "cannot be filled")),
        *(("{instance.nothing}", "cannot be filled"), ("{order.pk}", "available: instance")),
        ("{instance.save}", "cannot be called"),
    ]:
        with subtests.test(text=text), pytest.raises(InvalidMessage, match=reason):
            Template(text).fill({"instance": Cart()})


def test_a_template_of_one_place_gives_the_value_itself():
    arguments = {"instance": Cart(pk=UUID(int=5), owner=None, lines=[1]), "created": False, "pk_set": {1, 2}}
    assert Template("{pk_set}").value(arguments) == [1, 2]
    assert Template("{created}").value(arguments) is False
    assert Template("{instance.owner}").value(arguments) is None
    assert Template("{instance.lines}").value(arguments) == [1]
    assert Template("{instance.total}").value(arguments) == "1.50"
    assert Template("{instance.pk}").value(arguments) == "00000000-0000-0000-0000-000000000005"
    assert Template("cart {created}").value(arguments) == "cart False"
    assert Template("cart").value(arguments) == "cart"


def test_a_structure_is_filled_all_through():
    fill = filler({"id": "{instance.pk}", "kind": "cart", "more": [1, None, {"total": "{instance.total} EUR"}]})
    assert fill({"instance": Cart()}) == {"id": 7, "kind": "cart", "more": [1, None, {"total": "1.50 EUR"}]}


def test_a_structure_with_a_wrong_template_is_refused_at_once():
    with pytest.raises(ConfigurationError):
        filler({"id": ["{instance._secret}"]})
