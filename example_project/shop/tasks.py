"""Tasks: functions that run later, in a consumer."""

from typing import Any

from django.core.mail import send_mail
from django.db import transaction
from django.template.loader import render_to_string
from django.utils import timezone

from example_project.ledger import book
from example_project.shop import letters
from example_project.shop.accounts import SendingForm
from example_project.shop.mail import MAIL_PATIENCE
from example_project.shop.models import Order
from mq_django import task


@task(queue_name="emails", takes_context=True, retry=MAIL_PATIENCE, timeout=30)
def send_receipt(context: Any, order_id: int) -> str:
    """Mail the buyer a receipt, and return when it was sent."""
    order = Order.objects.get(pk=order_id)
    if order.receipt_sent_at is None:
        text = render_to_string("shop/receipt.txt", {"order": order, "lines": order.lines.select_related("product")})
        send_mail(f"Receipt for order {order.pk}", text, None, [order.email])
        order.receipt_sent_at = timezone.now()
    with transaction.atomic():
        order.save(update_fields=["receipt_sent_at"])
        book.handle_task(context.task_result.id, attempt=context.attempt)
    return order.receipt_sent_at.isoformat()


@task(queue_name=letters.QUEUE, priority=letters.AWAITED, takes_context=True, retry=MAIL_PATIENCE, timeout=30)
def send_password_mail(context: Any, email: str, site: str) -> None:
    """Mail a customer the way to a new password; the link in it is made here, and stands in no queue."""
    form = SendingForm({"email": email})
    if form.is_valid():
        form.save(domain_override=site)
    book.handle_task(context.task_result.id, attempt=context.attempt)


@task
def send_newsletter() -> int:
    """Write to all buyers whose mailbox is known to exist; `settings.py` says when."""
    buyers = Order.objects.exclude(receipt_sent_at=None).order_by("email").values_list("email", flat=True).distinct()
    return letters.publish_newsletters(buyers)
