"""Two runs have the same effect if they have changed the same rows, whatever their keys are."""

import pytest
from django.contrib.auth.models import Group, User

from mq_django.errors import TestKitError
from mq_django.testing.idempotence import Database
from tests.testapp.models import Cart, GiftCart, Order, Tag, Ticket

pytestmark = pytest.mark.django_db


@pytest.fixture
def compare():
    """Return a function that runs two functions from the same state, and returns in what the second one differs."""

    def compare(first, second, ignore=()):
        database, found = Database.of(["default"], ignore), []
        for change in (first, second):
            change()
            found.append(database.read())
            for model in (Order, Cart, Tag, Ticket, User):
                known = database.before["default", model._meta.label]
                model.objects.exclude(pk__in=known).delete()
        return list(found[1].differences_from(found[0]))

    return compare


def test_the_same_new_rows_are_the_same(compare):
    """The second has other keys."""

    def change():
        order = Order.objects.create(cart=Cart.objects.create(owner="ann"))
        order.cart.tags.add(Tag.objects.create(name="x"))
        Ticket.objects.create()

    assert compare(change, change) == []


def test_a_reference_to_another_new_row_is_a_difference(compare):
    def change(owner):
        carts = {name: Cart.objects.create(owner=name) for name in ("ann", "bob")}
        Order.objects.create(cart=carts[owner])

    assert compare(lambda: change("ann"), lambda: change("bob")) == [
        "1 row of testapp.Order too few: cart=(new: owner='ann')",
        "1 row of testapp.Order too many: cart=(new: owner='bob')",
    ]


def test_a_reference_to_a_row_that_was_there_is_its_key(compare):
    cart = Cart.objects.create(pk=7, owner="ann")
    assert compare(lambda: None, lambda: Order.objects.create(cart=cart)) == [
        "1 row of testapp.Order too many: cart_id=7"
    ]


def test_rows_of_many_to_many_are_compared(compare):
    cart, tag = Cart.objects.create(pk=7), Tag.objects.create(pk=8, name="x")
    assert compare(lambda: None, lambda: cart.tags.add(tag)) == [
        "1 row of testapp.Cart_tags too many: cart_id=7, tag_id=8"
    ]


def test_the_rows_of_a_proxy_are_compared_once(compare):
    assert compare(lambda: None, lambda: GiftCart.objects.create(owner="ann")) == [
        "1 row of testapp.Cart too many: owner='ann'"
    ]


def test_a_key_that_django_makes_or_that_has_a_default_differs_from_run_to_run():
    tables = Database.of(["default"], ()).tables
    assert tables["default", "testapp.Tag"].makes_keys()
    assert tables["default", "testapp.Ticket"].makes_keys()
    assert not tables["default", "sessions.Session"].makes_keys()


def test_rows_of_other_apps_are_compared(compare):
    group = Group.objects.create(pk=3, name="staff")

    def rename():
        group.name = "stuff"
        group.save()

    assert compare(lambda: None, rename) == ["the row 3 of auth.Group has name='stuff', not 'staff'"]


def test_times_that_django_sets_are_not_compared():
    database = Database.of(["default"], ())
    assert [each.name for each in database.tables["default", "testapp.Order"].fields()] == ["id", "cart"]


def test_what_is_ignored_is_not_read():
    database = Database.of(["default"], ["testapp.Tag", "testapp.Cart.owner", "testapp.Cart"])
    assert ("default", "testapp.Tag") not in database.tables
    assert ("default", "testapp.Cart") not in database.tables


def test_an_unknown_name_is_refused():
    with pytest.raises(TestKitError, match=r"not 'testapp\.Tag\.colour'"):
        Database.of(["default"], ["testapp.Tag.colour"])
