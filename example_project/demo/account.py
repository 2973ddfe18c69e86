"""Account for every message that the shop published: handled, still in a queue, a dead letter, or lost."""

from collections.abc import Mapping
from dataclasses import dataclass

from example_project.demo import watch
from example_project.ledger import book
from example_project.shop.models import Cart, Channel, NotificationStep, Order
from example_project.shop.triggers import remind


@dataclass(frozen=True, slots=True, kw_only=True)
class Account:
    """What became of what was published."""

    accepted: int
    handled: int
    repeated: int
    #: Accepted and not handled, by where they are: ready, pending, delayed, unhandled, dead.
    kept: Mapping[str, int]
    #: Reminders of carts that were mailed, and such that wait.
    reminded: int
    reminding: int
    #: What is nowhere, in words.
    lost: list[str]


def settle() -> Account:
    """Compare the ledger with what is in the queues; nothing may run meanwhile."""
    balance = book.balance()
    found = watch.messages()
    kept: dict[str, int] = {}
    lost = []
    for message_id, label in balance.open.items():
        message = found.get(message_id)
        if message is None:
            lost.append(f"{label} {message_id}")
        else:
            kept[message.place] = kept.get(message.place, 0) + 1
    # A reminder has no line in the ledger: each change of its cart replaces it. What must be true is that
    # each cart that was not ordered has got one, or has one coming.
    reminding = {message.data["args"][0] for message in found.values() if message.name == remind.name}
    forgotten = Cart.objects.filter(order=None, reminded_at=None).values_list("pk", flat=True)
    lost += [f"reminder of cart {cart_id}" for cart_id in forgotten if cart_id not in reminding]
    return Account(
        accepted=balance.accepted,
        handled=balance.handled,
        repeated=balance.repeated,
        kept=kept,
        reminded=Cart.objects.exclude(reminded_at=None).count(),
        reminding=len(reminding),
        lost=lost,
    )


def report(account: Account) -> str:
    """Put the account into words."""
    delivered = NotificationStep.objects.filter(outcome=NotificationStep.Outcome.DELIVERED)
    told = ", ".join(
        f"{delivered.filter(channel=channel).count()} by {channel.label.lower()}" for channel in Channel
    )
    kept = ", ".join(f"{count} {place}" for place, count in sorted(account.kept.items())) or "none"
    receipts = Order.objects.exclude(receipt_sent_at=None).count()
    lines = [
        f"Orders      {Order.objects.count()}; buyers told: {told}; receipts mailed: {receipts}",
        f"Reminders   {account.reminded} of forgotten carts mailed, {account.reminding} waiting",
        f"Accepted    {account.accepted} messages",
        f"Handled     {account.handled} ({account.repeated} of them again)",
        f"Kept        {kept}",
        f"Lost        {len(account.lost)}",
        *(f"  {label}" for label in account.lost[:20]),
    ]
    return "\n".join(lines)
