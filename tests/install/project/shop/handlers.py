from pathlib import Path

from mq_django import handler


@handler("emails", "welcome")
def welcome(message):
    with Path("handled").open("a") as handled:
        handled.write(f"{message.data['user']}\n")
