"""The demo from curtain to curtain, once Django is set up."""

import argparse
import time

from django.core.management import call_command
from django.urls import reverse

from example_project.demo import account, watch
from example_project.demo.closing import Closing
from example_project.demo.live import LiveLine
from example_project.demo.outage import Outage
from example_project.demo.stage import Stage, running
from example_project.demo.surroundings import Surroundings
from example_project.demo.visitors import Visitors
from example_project.office.models import PriceList
from example_project.office.workflows import start_import
from example_project.shop import goods
from mq_django.workflows import Run

#: Seconds after the last visitor in which the consumers may finish what is ready.
DRAIN_TIMEOUT = 10.0
#: Seconds between two looks at whether a child has ended.
CHECK_INTERVAL = 0.1


def perform(surroundings: Surroundings, options: argparse.Namespace, closing: Closing) -> int:
    """Run the shop until somebody asks to end, and return 1 if a message was lost or an order billed twice."""
    call_command("openshop", verbosity=0)
    with running(surroundings, closing) as stage:
        stage.consumers.wait_until(watch.is_consumed, closing=closing)
        announce(stage, surroundings, start_import(PriceList.objects.all()))
        line = LiveLine()
        visitors = Visitors(stage.site, per_second=options.rate)
        outage = Outage(surroundings.server, visitors, seconds=options.seconds, say=line.say)
        let_in(stage, visitors, outage, line, options, closing)
        drain(stage, line, closing)
        line.end()
    result = account.settle(outage.away)
    print(account.report(result))
    if surroundings.server is None:
        watch.forget_all()
    return 1 if result.lost or result.doubled else 0


def announce(stage: Stage, surroundings: Surroundings, run: Run) -> None:
    """Say where everything is."""
    print(
        f"Shop        {stage.site}/\n"
        f"Admin       {stage.site}/admin/   user {goods.ADMIN_NAME}, password {goods.ADMIN_PASSWORD}\n"
        f"Import      {stage.site}{reverse('admin:mq_django_queue_workflow_run', args=[run.id])}\n"
        f"Redis       {surroundings.redis}\n"
        f"Outage      {planned(surroundings)}\n"
        f"Consumers   process {stage.consumers.pid} and its children\n"
        f"Logs        {surroundings.folder / 'logs'}; mails {surroundings.folder / 'mails'}\n"
        "Ctrl-C ends it.",
        flush=True,
    )


def planned(surroundings: Surroundings) -> str:
    """Return what will happen to Redis."""
    if surroundings.server is None:
        return "none: this Redis is not the demo's own"
    return "Redis is killed once, and started again after some seconds, while visitors go on ordering"


def let_in(
    stage: Stage, visitors: Visitors, outage: Outage, line: LiveLine, options: argparse.Namespace, closing: Closing
) -> None:
    """Let visitors in until the time is over, and not before the outage is."""
    until = None if options.seconds is None else time.monotonic() + options.seconds
    visitors.start()
    try:
        while not closing.asked and (until is None or time.monotonic() < until or outage.is_on):
            stage.tend()
            outage.tend()
            line.show()
            time.sleep(CHECK_INTERVAL)
    finally:
        visitors.stop()
        outage.end()
    if visitors.failures:
        line.say(f"{visitors.failures} visits failed.")


def drain(stage: Stage, line: LiveLine, closing: Closing) -> None:
    """Wait until nothing is in the outbox, ready or pending, for a bounded time; a second Ctrl-C ends the wait."""
    asked = closing.asked
    deadline = time.monotonic() + DRAIN_TIMEOUT
    while watch.is_busy() and closing.asked == asked and time.monotonic() < deadline:
        stage.tend()
        line.show()
        time.sleep(CHECK_INTERVAL)
