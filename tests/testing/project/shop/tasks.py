from datetime import timedelta

from django.core.mail import send_mail

from mq_django import task
from mq_django.workflows import workflow
from shop.models import Order


@task
def confirm(order_id):
    Order.objects.filter(pk=order_id).update(confirmed=True)
    return order_id


@task(queue_name="emails")
def report(order_ids):
    send_mail("Confirmed", f"{len(order_ids)} orders", None, ["office@shop.example"])


@workflow(expires=timedelta(days=1))
def confirm_all(flow, order_ids):
    flow.add(report, flow.map(confirm, order_ids))
