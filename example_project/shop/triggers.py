"""Triggers: model signals that enqueue delayed tasks."""

from typing import Any

from django.conf import settings
from django.core.mail import send_mail
from django.db import transaction
from django.db.models.signals import post_delete, post_save
from django.template.loader import render_to_string
from django.utils import timezone

from example_project.ledger import book
from example_project.shop.mail import MAIL_PATIENCE
from example_project.shop.models import Cart, Order
from mq_django import on_signal, task


def can_be_reminded(instance: Cart) -> bool:
    """Say whether there is an address to write to, and nobody wrote there before."""
    return bool(instance.email) and instance.reminded_at is None


@on_signal(
    post_save,
    sender=Cart,
    when=can_be_reminded,
    delay=settings.CART_REMINDER_DELAY,
    unique="cart:{instance.pk}",
    cancel_on=[(post_save, Order, "cart:{instance.cart_id}"), (post_delete, Cart)],
)
@task(queue_name="emails", takes_context=True, retry=MAIL_PATIENCE, timeout=30)
def remind(context: Any, cart_id: int) -> None:
    """Mail customers who left their carts.

    Each change of the cart starts the wait anew, because its reminder is unique; an order or an emptied cart
    ends it.
    """
    cart = Cart.objects.filter(pk=cart_id, order=None).first()
    if cart is not None and can_be_reminded(cart):
        text = render_to_string("shop/reminder.txt", {"cart": cart, "lines": cart.lines.select_related("product")})
        send_mail("Your cart is still here", text, None, [cart.email])
    with transaction.atomic():
        # Not cart.save(): that would send post_save, and the reminder would remind for ever.
        Cart.objects.filter(pk=cart_id, reminded_at=None).update(reminded_at=timezone.now())
        book.handle_task(context.task_result.id, attempt=context.attempt)
