"""Account for every message that the shop published: handled, still in a queue, a dead letter, or lost."""

from collections import Counter
from collections.abc import Mapping, Set
from dataclasses import dataclass

from django.db.models import Count

from example_project.demo import watch
from example_project.demo.outage import Away
from example_project.ledger import book
from example_project.office.models import Invoice, Price, PriceImport, Report, Sale, StockMove
from example_project.shop.models import Cart, Channel, NotificationStep, Order
from example_project.shop.triggers import remind
from mq_django import inspector
from mq_django.core.keys import STEP_PREFIX
from mq_django.workflows import get_run

#: The row that a group of the topic `orders` writes for each order.
Written = StockMove | Sale | Invoice
DEPARTMENTS: dict[str, type[Written]] = {"stock": StockMove, "statistics": Sale, "bookkeeping": Invoice}

#: How reminders are named in their queue.
NAME = remind.module_path


@dataclass(frozen=True, slots=True, kw_only=True)
class Account:
    """What happened to the published messages."""

    accepted: int
    handled: int
    repeated: int
    #: Handled, by the names of the messages.
    by_name: Mapping[str, int]
    #: Discarded because they had expired.
    expired: int
    #: Accepted and not handled, by state: ready, pending, delayed, unhandled, dead.
    remaining: Mapping[str, int]
    #: Carts whose reminder was mailed, and carts whose reminder waits (or is a dead letter).
    reminded: int
    reminding: int
    #: Descriptions of messages that are nowhere.
    lost: list[str]
    #: Descriptions of orders that were billed twice.
    doubled: list[str]
    #: When Redis was away; None: it was not.
    away: Away | None
    #: Orders that were placed while it was away, and how many of them have one invoice.
    placed_meanwhile: int
    billed_once: int


def settle(away: Away | None = None) -> Account:
    """Compare the ledger with the messages in the queues and the outbox. No consumer may run meanwhile."""
    balance = book.balance()
    states = watch.states()
    gone = {message_id: label for message_id, label in balance.open.items() if message_id not in states}
    lost = [f"{label} {message_id}" for message_id, label in gone.items() if message_id not in balance.expired]
    reminding = carts_with_reminders()
    invoices = dict(Invoice.objects.values_list("order_id").annotate(count=Count("pk")))
    orders = Order.objects.all()
    meanwhile = orders.none() if away is None else orders.filter(placed_at__range=(away.since, away.until))
    return Account(
        accepted=balance.accepted,
        handled=balance.handled,
        repeated=balance.repeated,
        by_name=balance.by_name,
        expired=len(gone) - len(lost),
        remaining=Counter(states[message_id] for message_id in balance.open if message_id in states),
        reminded=Cart.objects.exclude(reminded_at=None).count(),
        reminding=len(reminding),
        lost=[*lost, *lost_reminders(reminding, watch.states([remind.queue_name])), *lost_orders()],
        doubled=[f"{count} invoices for order {order_id}" for order_id, count in invoices.items() if count > 1],
        away=away,
        placed_meanwhile=len(meanwhile),
        billed_once=sum(invoices.get(order.pk) == 1 for order in meanwhile),
    )


def carts_with_reminders() -> set[int]:
    """Return the carts whose reminder waits, or is a dead letter."""
    found = watch.delayed_and_dead(remind.queue_name)
    return {view.data["args"][0] for view in found if view.name == NAME and view.has_data}


def lost_reminders(reminding: Set[int], states: Mapping[str, watch.LookupState]) -> list[str]:
    """Return the carts that should get a reminder and will not.

    A reminder has no line in the ledger, because each change of its cart replaces it. What must be true is
    that each cart with an address that was not ordered has got one, or has one coming.
    """
    carts = Cart.objects.filter(order=None, reminded_at=None).exclude(email="").values_list("pk", flat=True)
    missing = [f"reminder of cart {cart_id}" for cart_id in carts if cart_id not in reminding]
    # What is in the outbox, ready or pending shows its id alone. Of those that are not in the ledger each is a
    # reminder, or a step of a workflow.
    under_way = {
        message_id
        for message_id, state in states.items()
        if state in ("in the outbox", "ready", "pending") and not message_id.startswith(STEP_PREFIX)
    }
    return missing[len(under_way - book.accepted_ids()) :]


def lost_orders() -> list[str]:
    """Return the orders that a department has not written down, and will not.

    Every group of the topic gets every order: what it has not handled it must still have in front of it.
    """
    lost = []
    unpublished = len({row.message_id for row in watch.rows("orders")})
    for group, written in DEPARTMENTS.items():
        done = written.objects.values_list("order_id", flat=True)
        missing = Order.objects.exclude(pk__in=done).values_list("pk", flat=True)
        view = inspector.queue(f"orders:{group}")
        lost += [f"order {order_id} for {group}" for order_id in missing[unpublished + view.depth + view.dead :]]
    return lost


def report(account: Account) -> str:
    """Return the account as text."""
    delivered = NotificationStep.objects.filter(outcome=NotificationStep.Outcome.DELIVERED)
    notified = ", ".join(f"{delivered.filter(channel=channel).count()} by {channel.label}" for channel in Channel)
    remaining = ", ".join(f"{count} {state}" for state, count in sorted(account.remaining.items())) or "none"
    receipts = Order.objects.exclude(receipt_sent_at=None).count()
    books = {"sales": Sale.objects.count(), "invoices": Invoice.objects.count()}
    report = Report.objects.last()
    imports = ", ".join(imported(found) for found in PriceImport.objects.all())
    mails = {"codes": "code", "passwords": "send_password_mail", "newsletters": "newsletter"}
    lines = [
        "By the shop's own books, in its database:",
        f"Orders      {Order.objects.count()}; buyers notified: {notified}; receipts mailed: {receipts}",
        f"Office      {', '.join(f'{count} {name}' for name, count in books.items())}",
        f"Reports     {report.edition if report else 0}, every few seconds here; {report or 'none'}",
        f"Imports     {imports or 'none'}; prices: {Price.objects.count()}",
        f"Mails       {', '.join(f'{account.by_name.get(name, 0)} {what}' for what, name in mails.items())}",
        f"Reminders   {account.reminded} mailed, {account.reminding} waiting",
        "Of the messages that it wrote down (not steps of workflows, reminders and orders for the departments):",
        f"Accepted    {account.accepted}",
        f"Handled     {account.handled} ({account.repeated} of them again)",
        f"Remaining   {remaining}",
        f"Expired     {account.expired}",
        f"Outage      {outage(account)}",
        f"Doubled     {len(account.doubled)}",
        *(f"  {label}" for label in account.doubled[:20]),
        f"Lost        {len(account.lost)}",
        *(f"  {label}" for label in account.lost[:20]),
    ]
    return "\n".join(lines)


def outage(account: Account) -> str:
    """Return what happened while Redis was away."""
    away = account.away
    if away is None:
        return "none: Redis was not stopped"
    return (
        f"Redis was away for {away.seconds:.1f} s; orders placed meanwhile: {account.placed_meanwhile}, "
        f"of which billed once: {account.billed_once}; failed visits: {away.failures}"
    )


def imported(found: PriceImport) -> str:
    """Return how far an import of price lists is."""
    run = get_run(found.run)
    return f"{run.state} after {run.progress.done} of {run.progress.total} steps"
