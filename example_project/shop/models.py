"""What the shop sells, what is in a cart, what was ordered, and how its buyer was told."""

import uuid
from decimal import Decimal

from django.db import models
from django.urls import reverse


class Product(models.Model):
    """Something for sale."""

    name = models.CharField(max_length=80)
    slug = models.SlugField(unique=True)
    description = models.TextField(blank=True)
    price = models.DecimalField(max_digits=8, decimal_places=2)
    picture = models.SlugField(help_text="The name of a drawing in pictures.svg.")

    class Meta:
        ordering = ["name"]

    def __str__(self) -> str:
        return self.name


class Cart(models.Model):
    """What a visitor means to buy, until it is ordered."""

    email = models.EmailField("e-mail", blank=True, help_text="Known if the visitor asked to keep the cart.")
    created_at = models.DateTimeField(auto_now_add=True)
    updated_at = models.DateTimeField(auto_now=True)
    reminded_at = models.DateTimeField(null=True, blank=True, editable=False)

    class Meta:
        ordering = ["-updated_at"]

    def __str__(self) -> str:
        return f"Cart {self.pk}"

    def add(self, product: Product, quantity: int = 1) -> None:
        """Put a product into the cart; saving the cart starts its reminder anew."""
        line, created = self.lines.get_or_create(product=product, defaults={"quantity": quantity})
        if not created:
            line.quantity += quantity
            line.save(update_fields=["quantity"])
        self.save()

    def total(self) -> Decimal:
        """Return what the cart costs."""
        return sum((line.cost() for line in self.lines.select_related("product")), Decimal())


class CartLine(models.Model):
    """Some pieces of one product in a cart."""

    cart = models.ForeignKey(Cart, on_delete=models.CASCADE, related_name="lines")
    product = models.ForeignKey(Product, on_delete=models.CASCADE)
    quantity = models.PositiveIntegerField(default=1)

    class Meta:
        ordering = ["pk"]
        constraints = [models.UniqueConstraint(fields=["cart", "product"], name="one_line_a_product")]

    def __str__(self) -> str:
        return f"{self.quantity} x {self.product}"

    def cost(self) -> Decimal:
        """Return what all pieces cost."""
        return self.product.price * self.quantity


class Channel(models.TextChoices):
    """A way to reach a buyer, in the order in which the shop tries them."""

    PUSH = "push", "Push"
    SMS = "sms", "SMS"
    EMAIL = "email", "E-mail"


class Order(models.Model):
    """A cart that was bought."""

    reference = models.UUIDField(default=uuid.uuid4, unique=True, editable=False)
    cart = models.OneToOneField(Cart, on_delete=models.PROTECT, related_name="order")
    name = models.CharField(max_length=80)
    email = models.EmailField("e-mail")
    phone = models.CharField(max_length=32, blank=True)
    device = models.CharField(
        max_length=64, blank=True, help_text="What the shop's app calls the telephone it runs on."
    )
    total = models.DecimalField(max_digits=10, decimal_places=2)
    placed_at = models.DateTimeField(auto_now_add=True)
    receipt_sent_at = models.DateTimeField(null=True, blank=True, editable=False)

    class Meta:
        ordering = ["-placed_at"]

    def __str__(self) -> str:
        return f"Order {self.pk}"

    def get_absolute_url(self) -> str:
        """Return the page that the buyer sees."""
        return reverse("shop:order", args=[self.reference])

    def channels(self) -> list[Channel]:
        """Return the ways in which this buyer can be told, the best first."""
        addresses = {Channel.PUSH: self.device, Channel.SMS: self.phone, Channel.EMAIL: self.email}
        return [channel for channel in Channel if addresses[channel]]


class OrderLine(models.Model):
    """A bought article, at the price of the day."""

    order = models.ForeignKey(Order, on_delete=models.CASCADE, related_name="lines")
    product = models.ForeignKey(Product, on_delete=models.PROTECT)
    quantity = models.PositiveIntegerField()
    price = models.DecimalField(max_digits=8, decimal_places=2)

    class Meta:
        ordering = ["pk"]

    def __str__(self) -> str:
        return f"{self.quantity} x {self.product}"

    def cost(self) -> Decimal:
        """Return what all pieces cost."""
        return self.price * self.quantity


class Notification(models.Model):
    """The confirmation of an order, by whichever channel took it."""

    order = models.OneToOneField(Order, on_delete=models.CASCADE, related_name="notification")
    delivered_at = models.DateTimeField(null=True, blank=True)

    def __str__(self) -> str:
        return f"Confirmation of order {self.order_id}"

    def text(self) -> str:
        """Return what the buyer reads."""
        return f"Thank you! Your order {self.order_id} over {self.order.total} EUR is being packed."

    def channel_after(self, channel: Channel) -> Channel | None:
        """Return the next way to reach the buyer, None when there is none."""
        channels = self.order.channels()
        following = channels[channels.index(channel) + 1 :]
        return following[0] if following else None


class NotificationStep(models.Model):
    """How one channel of a notification ended."""

    class Outcome(models.TextChoices):
        """Tell a step that reached the buyer from one that handed on to the next channel."""

        DELIVERED = "delivered", "delivered"
        REFUSED = "refused", "refused for good"
        EXHAUSTED = "exhausted", "given up after the last attempt"

    notification = models.ForeignKey(Notification, on_delete=models.CASCADE, related_name="steps")
    channel = models.CharField(max_length=8, choices=Channel.choices)
    outcome = models.CharField(max_length=12, choices=Outcome.choices)
    detail = models.CharField(max_length=200, blank=True)
    attempt = models.PositiveIntegerField()
    at = models.DateTimeField(auto_now_add=True)

    class Meta:
        ordering = ["pk"]
        constraints = [
            models.UniqueConstraint(fields=["notification", "channel"], name="one_end_a_channel"),
        ]

    def __str__(self) -> str:
        return f"{self.get_channel_display()}: {self.get_outcome_display()}"
