import gc
import logging
import sys
import uuid
from datetime import timedelta

import pytest
from django.contrib.auth import get_user_model, user_logged_in
from django.contrib.auth import signals as auth_signals
from django.core import serializers
from django.db import transaction
from django.db.models import Model, signals
from django.db.models.signals import m2m_changed, post_delete, post_save, pre_save
from django.dispatch import Signal
from django.utils import timezone

from mq_django import on_signal, queues
from mq_django.conf import get_config
from mq_django.core.keys import QueueKeys
from mq_django.errors import AlreadyPublished, ConfigurationError, ConnectionLost, InvalidMessage
from mq_django.triggers import declarations
from mq_django.triggers.declarations import Enqueues, expand, read_entry
from tests.testapp import models, tasks
from tests.testapp.models import Cart, Dated, GiftCart, Order, Tag, Ticket
from tests.working import take, work

HOUR = timedelta(hours=1)
POST_SAVE = "django.db.models.signals.post_save"

paid = Signal()

pytestmark = pytest.mark.django_db(transaction=True, databases=["default", "other"])


@pytest.fixture
def entries():
    """The entries of SIGNALS."""
    return []


@pytest.fixture(autouse=True)
def mq(mq_settings, entries):
    tasks.ran.clear()
    return lambda **changed: mq_settings(**{"SIGNALS": entries, **changed})


@pytest.fixture
def decorated(monkeypatch):
    """Make triggers with on_signal that are gone after the test."""
    made = []
    add = declarations._add

    def remember(one):
        add(one)
        made.append(one)

    monkeypatch.setattr(declarations, "_add", remember)
    yield lambda *args, task=tasks.note, **options: on_signal(*args, **options)(task)
    for one in made:
        one.disconnect()


@pytest.fixture
def configured(entries, mq):
    """Make the same triggers with entries of SIGNALS."""

    def add(signal, *, task=tasks.note, **options):
        entry = {"signal": signal, "task": task, **options}
        entry = {key: as_setting(value) for key, value in entry.items()}
        # Where on_signal raises, the settings are checked and logged.
        read_entry(get_config(), len(entries), entry).resolve()
        entries.append(entry)
        mq()

    return add


@pytest.fixture(params=["decorated", "configured"])
def trigger(request):
    """Make a trigger, in each of the two forms, for what each of them is given: what becomes of it is the same."""
    return request.getfixturevalue(request.param)


def as_setting(value):
    """Return how settings name something: by its path, when it has one."""
    if isinstance(value, list | tuple):
        return [as_setting(each) for each in value]
    if isinstance(value, type) and issubclass(value, Model) and not value._meta.abstract:
        return value._meta.label
    if isinstance(value, Signal | Enqueues) or callable(value):
        for module in (signals, auth_signals, tasks, models, sys.modules[__name__]):
            for name, found in vars(module).items():
                if found is value:
                    return f"{module.__name__}.{name}"
    return value


@pytest.fixture
def waiting(redis_client, namespace):
    """Return the unique keys that wait in the queue default."""
    due = QueueKeys(namespace, "default").due
    return lambda: sorted(member.decode().removeprefix("u:") for member in redis_client.zrange(due, 0, -1))


def ran():
    """Return the arguments of the tasks that were enqueued and are due."""
    work("default")
    found, tasks.ran[:] = list(tasks.ran), []
    return found


# what is enqueued


def test_a_save_enqueues_a_task_with_the_pk(trigger):
    trigger(post_save, sender=Cart)
    cart = Cart.objects.create()
    assert ran() == [(cart.pk,)]
    cart.save()
    assert ran() == [(cart.pk,)]


def test_the_decorator_gives_the_task_back(decorated):
    assert decorated(post_save, sender=Cart) is tasks.note


def test_a_pk_that_is_no_integer_is_text(decorated):
    decorated(post_save, sender=Ticket)
    ticket = Ticket.objects.create(id=uuid.UUID(int=7))
    assert ran() == [(str(ticket.pk),)]


def test_a_deleted_instance_still_has_its_pk(decorated):
    decorated(post_delete, sender=Cart)
    cart = Cart.objects.create()
    pk = cart.pk
    with transaction.atomic():
        cart.delete()
    assert ran() == [(pk,)]


def test_args_can_be_made_by_a_function_of_what_it_names(trigger):
    trigger(post_save, sender=Cart, args=lambda instance, created: [instance.owner, created])
    Cart.objects.create(owner="ada")
    assert ran() == [("ada", True)]


def test_args_can_be_made_by_a_function_of_everything(decorated):
    decorated(post_save, sender=Cart, args=lambda **given: sorted(given))
    Cart.objects.create()
    assert ran() == [("created", "instance", "raw", "sender", "signal", "update_fields", "using")]


def test_args_can_hold_templates(trigger):
    trigger(post_save, sender=Cart, args=["{instance.pk}", "cart of {instance.owner}", 3, {"new": "{created}"}])
    cart = Cart.objects.create(owner="ada")
    assert ran() == [(cart.pk, "cart of ada", 3, {"new": True})]


def test_args_can_be_keywords(trigger):
    trigger(post_save, sender=Cart, args={"cart_id": "{instance.pk}"})
    cart = Cart.objects.create()
    assert ran() == [((), {"cart_id": cart.pk})]


def is_of_ada(instance):
    return instance.owner == "ada"


def test_when_decides(trigger):
    trigger(post_save, sender=Cart, when=is_of_ada)
    Cart.objects.create(owner="bob")
    assert ran() == []
    Cart.objects.create(owner="ada")
    assert len(ran()) == 1


def test_a_fixture_enqueues_nothing(decorated):
    decorated(post_save, sender=Cart)
    text = serializers.serialize("json", [Cart(pk=5, owner="ada", changed_at=timezone.now())])
    for loaded in serializers.deserialize("json", text):
        loaded.save()
    assert Cart.objects.filter(pk=5).exists()
    assert ran() == []


# when


def test_a_rollback_takes_it_back(decorated, redis_client, namespace):
    decorated(post_save, sender=Cart)
    decorated(post_save, sender=Cart, delay=HOUR, unique="cart:{instance.pk}")
    with transaction.atomic():
        with transaction.atomic():
            Cart.objects.create()
            transaction.set_rollback(True)
        assert list(redis_client.scan_iter(f"{namespace}:*")) == []
    assert list(redis_client.scan_iter(f"{namespace}:*")) == []


def test_the_commit_is_that_of_the_instances_database(decorated):
    decorated(post_save, sender=Cart)
    with transaction.atomic(using="default"):
        Cart.objects.using("other").create()
        assert len(ran()) == 1
    with transaction.atomic(using="other"):
        Cart.objects.using("other").create()
        assert ran() == []
    assert len(ran()) == 1


def test_a_signal_without_a_database_is_about_its_instances(decorated):
    decorated(paid, args=[])
    cart = Cart.objects.using("other").create()
    with transaction.atomic(using="other"):
        paid.send("shop", instance=cart)
        assert ran() == []
    assert len(ran()) == 1


def test_a_signal_that_says_no_database_is_about_the_default(decorated):
    decorated(paid, args=[])
    with transaction.atomic():
        paid.send("shop", using="telephone")
        assert ran() == []
    assert len(ran()) == 1


def test_the_options_of_the_task_stay(trigger):
    trigger(post_save, sender=Cart, task=tasks.note.using(queue_name="emails", priority=7, key="carts"))
    Cart.objects.create()
    (message,) = work("emails")
    assert (message.priority, message.key) == (7, "carts")


# unique, cancel_on


def test_a_debounce_keeps_the_last(decorated, waiting):
    decorated(post_save, sender=Cart, delay=HOUR, unique="cart:{instance.pk}", args=["{instance.owner}"])
    cart = Cart.objects.create(owner="ada")
    cart.owner = "bob"
    cart.save()
    assert waiting() == [f"cart:{cart.pk}"]


def test_until_it_is_handled_a_second_signal_adds_nothing(trigger):
    trigger(post_save, sender=Cart, unique="cart:{instance.pk}", unique_for="handled", strict=True)
    cart, other = Cart.objects.create(), Cart.objects.create()
    cart.save()
    with transaction.atomic():
        cart.save()
    assert ran() == [(cart.pk,), (other.pk,)]
    cart.save()
    assert ran() == [(cart.pk,)]


def test_signals_postpone_a_task_up_to_a_limit(trigger):
    trigger(post_save, sender=Cart, delay=600, unique="{instance.pk}", at_most=600, strict=True)
    cart = Cart.objects.create()
    due_ms = queues["default"].find(unique=str(cart.pk)).due_ms
    cart.save()
    assert queues["default"].find(unique=str(cart.pk)).due_ms == due_ms


def test_a_key_that_is_taken_can_be_an_error(trigger):
    trigger(post_save, sender=Cart, unique="{instance.pk}", unique_for=60, on_conflict="error", strict=True)
    cart = Cart.objects.create()
    with pytest.raises(AlreadyPublished):
        cart.save()


def test_expiry_and_priority_can_be_said(trigger):
    trigger(post_save, sender=Cart, expires=timedelta(minutes=5), priority="high")
    Cart.objects.create()
    (message,) = work("default")
    assert message.priority == 10
    assert message.expires_ms > message.published_ms


def test_a_receiver_that_nobody_else_holds_stays(redis_client):
    signal = Signal()
    on_signal(signal, args=["{amount}"])(tasks.note)
    gc.collect()
    signal.send("shop", amount=5)
    assert ran() == [(5,)]


def test_a_key_is_made_when_the_signal_fires(decorated, waiting):
    decorated(post_delete, sender=Cart, delay=HOUR, unique="gone:{instance.pk}")
    cart = Cart.objects.create()
    pk = cart.pk
    with transaction.atomic():
        cart.delete()
        assert cart.pk is None
    assert waiting() == [f"gone:{pk}"]


def test_a_dead_mans_switch(trigger, waiting):
    trigger(
        post_save,
        sender=Cart,
        delay=HOUR,
        unique="cart:{instance.pk}",
        cancel_on=[(post_save, Order, "cart:{instance.cart_id}"), (post_delete, "testapp.Cart")],
    )
    ordered, deleted, left = (Cart.objects.create() for _ in range(3))
    assert waiting() == sorted(f"cart:{cart.pk}" for cart in (ordered, deleted, left))
    with transaction.atomic():
        Order.objects.create(cart=ordered)
        assert f"cart:{ordered.pk}" in waiting()
    assert f"cart:{ordered.pk}" not in waiting()
    deleted.delete()
    assert waiting() == [f"cart:{left.pk}"]


# what fails


def test_a_none_in_a_key_is_logged_and_the_save_goes_on(decorated, waiting, caplog):
    decorated(post_save, sender=Order, delay=HOUR, unique="cart:{instance.cart_id}")
    Order.objects.create()
    assert Order.objects.count() == 1
    assert waiting() == []
    assert "'instance.cart_id' in 'cart:{instance.cart_id}' is None" in caplog.text
    assert "tests.testapp.tasks.note" in caplog.text


def broken(**given):
    raise ZeroDivisionError


def no_json(**given):
    return [{1}]


def test_an_error_in_a_users_function_is_logged(trigger, caplog):
    wrong = [{"when": broken}, {"args": broken}, {"args": lambda: 7}, {"args": no_json}]
    for number, options in enumerate(wrong, 1):
        caplog.clear()
        trigger(post_save, sender=Cart, **options)
        Cart.objects.create()
        assert Cart.objects.count() == number
        assert [r.levelno for r in caplog.records if r.name == "mq_django.triggers"] == [logging.ERROR] * number


def test_redis_away_is_logged_and_the_save_goes_on(decorated, mq, caplog):
    decorated(post_save, sender=Cart)
    mq(CONNECTION="redis://127.0.0.1:1/0")
    Cart.objects.create()
    with transaction.atomic():
        Cart.objects.create()
    assert Cart.objects.count() == 2
    assert "Cannot reach Redis" in caplog.text


def test_strict_raises_from_the_commit(trigger, mq):
    trigger(post_save, sender=Cart, strict=True)
    mq(CONNECTION="redis://127.0.0.1:1/0")
    with pytest.raises(ConnectionLost), transaction.atomic():
        Cart.objects.create()
    assert Cart.objects.count() == 1


def test_a_signal_without_an_instance_needs_args(decorated):
    decorated(paid, strict=True)
    with pytest.raises(InvalidMessage, match="args="):
        paid.send("shop", amount=5)


def test_a_pk_that_is_not_there_yet_is_an_error(decorated):
    decorated(pre_save, sender=Cart, strict=True)
    with pytest.raises(InvalidMessage, match="pk"):
        Cart().save()


# signals


def test_a_signal_of_the_user(trigger):
    trigger(paid, args=["{amount}", "{sender}"])
    paid.send("shop", amount=5)
    assert ran() == [(5, "shop")]


def test_a_sender_that_is_no_model(trigger):
    trigger(paid, sender=tasks, args=["{amount}"])
    paid.send("other", amount=1)
    paid.send(tasks, amount=2)
    assert ran() == [(2,)]


def test_a_log_in(trigger, client):
    user = get_user_model().objects.create_superuser("ada", password="x")
    trigger(user_logged_in, args=["{user.pk}", "{request.method}"])
    trigger(user_logged_in, sender="auth.User", args=["{user.username}"])
    client.post("/admin/login/", {"username": "ada", "password": "x"})
    assert ran() == [(user.pk, "POST"), ("ada",)]


def test_a_change_of_many_to_many_counts_once(trigger):
    trigger(m2m_changed, sender=Cart.tags.through, args=["{action}", "{instance.pk}"])
    cart, tag = Cart.objects.create(), Tag.objects.create(name="x")
    cart.tags.add(tag)
    assert ran() == [("post_add", cart.pk)]
    cart.tags.clear()
    assert ran() == [("post_clear", cart.pk)]


def test_several_signals(trigger):
    trigger([post_save, post_delete], sender=Cart)
    cart = Cart.objects.create()
    cart.delete()
    assert len(ran()) == 2


# senders


def test_several_senders(trigger):
    trigger(post_save, sender=[Cart, "testapp.Tag"], args=["{instance.pk}"])
    Cart.objects.create()
    Tag.objects.create(name="x")
    Ticket.objects.create()
    assert len(ran()) == 2


def test_an_abstract_sender_is_all_that_inherit_from_it(decorated):
    decorated(post_save, sender=Dated)
    Cart.objects.create()
    GiftCart.objects.create()
    Order.objects.create()
    Tag.objects.create(name="x")
    assert len(ran()) == 3


def test_a_model_is_its_proxies_too(decorated):
    decorated(post_save, sender=Cart)
    GiftCart.objects.create()
    assert len(ran()) == 1


def test_a_proxy_is_only_itself(decorated):
    decorated(post_save, sender=GiftCart)
    Cart.objects.create()
    assert ran() == []
    GiftCart.objects.create()
    assert len(ran()) == 1


def test_everybody_is_a_sender_of_none():
    assert expand(None) == [None]
    assert expand("testapp.Tag") == [Tag]
    assert expand("testapp.Cart_tags") == [Cart.tags.through]
    assert expand("tests.testapp.models.Tag") == [Tag]
    with pytest.raises(ConfigurationError, match="is not a model"):
        expand("testapp.Nothing")


# connecting


def test_a_module_that_is_imported_again_enqueues_once(decorated):
    for _ in range(2):
        decorated(post_save, sender=Cart, when=lambda created: created)
    Cart.objects.create()
    assert len(ran()) == 1


def test_two_triggers_of_one_task_are_two(trigger):
    trigger(post_save, sender=Cart, when=lambda created: created)
    trigger(post_save, sender=Cart, when=lambda created: not created)
    trigger(post_save, sender=Cart, delay=0)
    Cart.objects.create()
    assert len(ran()) == 2


def test_a_trigger_made_before_the_models_waits_for_them(decorated, monkeypatch):
    monkeypatch.setattr(declarations.apps, "models_ready", False)
    decorated(post_save, sender="testapp.Cart")
    monkeypatch.undo()
    Cart.objects.create()
    assert ran() == []
    declarations.connect_waiting()
    Cart.objects.create()
    assert len(ran()) == 1


#: A signal, the options of a trigger, and what is said of them.
REFUSED = [
    (post_save, {"delay": "1h"}, "delay must be"),
    (post_save, {"delay": True}, "delay must be"),
    (post_save, {"delay": -1}, "delay must be"),
    (post_save, {"unique": "x"}, "needs delay="),
    (post_save, {"unique_for": "handled"}, "unique_for= needs unique="),
    (post_save, {"unique": "x", "unique_for": "ever"}, "unique_for must be"),
    (post_save, {"unique": "x", "unique_for": 5, "on_conflict": "replace"}, "on_conflict must"),
    (post_save, {"delay": 5, "at_most": 9}, "at_most= needs unique="),
    (post_save, {"delay": 5, "unique": "x", "at_most": 4}, "shorter than delay"),
    (post_save, {"priority": 101}, "priority"),
    (post_save, {"expires": "5"}, "expires must be"),
    (post_save, {"delay": 5, "unique": "{instance.__class__}"}, "not a template"),
    (post_save, {"delay": 5, "unique": "x", "on_conflict": "first"}, "on_conflict must"),
    (post_save, {"delay": 5, "cancel_on": [(post_delete, Cart, "x")]}, "needs unique="),
    (post_save, {"delay": 5, "unique": "x", "cancel_on": [post_delete]}, "cancel_on="),
    (post_save, {"delay": 5, "unique": "x", "cancel_on": [(post_delete, Cart, "{0}")]}, "not a template"),
    (post_save, {"args": 7}, "args="),
    (post_save, {"sender": "testapp.Nothing"}, "is not a model"),
    (post_save, {"when": 7}, "called"),
    (7, {}, "is not a signal"),
    ([post_save, 7], {}, "is not a signal"),
    (post_save, {"delay": 5, "unique": "x", "cancel_on": [(7, Cart)]}, "is not a signal"),
]
#: Settings name these by their paths, and a decorator does not.
PATHS = [
    (POST_SAVE, {}, "is not a signal"),
    (post_save, {"delay": 5, "unique": "x", "cancel_on": [(POST_SAVE, Cart)]}, "is not a signal"),
    (post_save, {"args": "{instance.pk}"}, "args="),
]


def test_what_cannot_work_is_refused_when_it_is_written(trigger, request, subtests):
    for signal, options, reason in REFUSED + (PATHS if request.node.callspec.params["trigger"] == "decorated" else []):
        with subtests.test(options=options), pytest.raises(ConfigurationError, match=reason):
            trigger(signal, **options)


def test_only_a_task_of_ours_can_be_triggered(decorated):
    with pytest.raises(ConfigurationError, match="@task"):
        decorated(post_save, sender=Cart, task=lambda pk: None)


# settings


def test_a_trigger_of_the_settings_publishes_a_message(mq):
    mq(SIGNALS=[{"signal": POST_SAVE, "sender": "testapp.Cart", "queue": "emails", "name": "cart.saved"}])
    cart = Cart.objects.create()
    assert [(message.name, message.data) for message in take("emails")] == [("cart.saved", cart.pk)]


def test_the_data_of_a_message_can_be_said(mq):
    said = {
        "structure": ({"owner": "{instance.owner}", "kind": "cart"}, {"owner": "ada", "kind": "cart"}),
        "template": ("{instance.owner}", "ada"),
        "path": ("tests.testapp.triggers.cart_data", {"cart": 1, "created": True}),
        "function": (lambda instance: instance.owner.upper(), "ADA"),
    }
    entry = {"signal": POST_SAVE, "sender": "testapp.Cart", "queue": "emails"}
    mq(SIGNALS=[{**entry, "name": name, "data": data} for name, (data, _) in said.items()])
    Cart.objects.create(pk=1, owner="ada")
    assert {m.name: m.data for m in take("emails")} == {name: published for name, (_, published) in said.items()}


def test_triggers_follow_the_settings(mq):
    entry = {"signal": POST_SAVE, "sender": "testapp.Cart", "queue": "emails", "name": "cart.saved"}
    mq(SIGNALS=[entry])
    mq(SIGNALS=[entry, {**entry, "name": "also"}])
    Cart.objects.create()
    assert sorted(message.name for message in take("emails")) == ["also", "cart.saved"]
    mq(SIGNALS=[])
    Cart.objects.create()
    assert len(take("emails")) == 0


def test_a_trigger_that_cannot_work_is_logged_and_the_others_do(mq, caplog):
    entry = {"signal": POST_SAVE, "sender": "testapp.Cart", "queue": "emails", "name": "cart.saved"}
    mq(SIGNALS=[{**entry, "sender": "testapp.Nothing"}, entry])
    assert 'MQ_DJANGO["SIGNALS"][0] is not connected' in caplog.text
    Cart.objects.create()
    assert len(take("emails")) == 1
