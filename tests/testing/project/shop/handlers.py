from django.core.mail import send_mail

from mq_django import handler, queues, stream, subscriber
from shop.models import Order

emails = queues["emails"]


@handler("emails", "welcome")
def welcome(message):
    send_mail("Welcome", "Thank you for your order.", None, [message.data["email"]])


@handler("answers", "question")
def answer(message):
    for word in ("Yes, ", "we ", "have."):
        stream(word)


@handler("slow", "welcome")
def welcome_slowly(message):
    welcome(message)


@handler("default", "tick")
def tick(message):
    pass


@subscriber("orders", group="statistics", start="end")
def count(message):
    Order.objects.get(pk=message.data["order"])
