from django.db import transaction
from django.http import HttpResponse

from mq_django import topics
from shop.handlers import emails
from shop.models import Order
from shop.tasks import confirm


def checkout(request):
    with transaction.atomic():
        order = Order.objects.create(email=request.POST["email"])
        emails.publish("welcome", {"email": order.email})
        topics["orders"].publish("order.placed", {"order": order.pk})
        confirm.enqueue(order.pk)
    return HttpResponse(order.pk)
