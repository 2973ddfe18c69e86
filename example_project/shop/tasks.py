"""Tasks: functions that run later, in a consumer."""

from typing import Any

from django.core.mail import send_mail
from django.db import transaction
from django.template.loader import render_to_string
from django.utils import timezone

from example_project.ledger import book
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
