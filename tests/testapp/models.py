"""A small shop, for signals."""

import uuid

from django.db import models


class Dated(models.Model):
    """Abstract: what inherits from it is what saves."""

    changed_at = models.DateTimeField(auto_now=True)

    class Meta:
        abstract = True


class Tag(models.Model):
    name = models.CharField(max_length=50)

    def __str__(self) -> str:
        return self.name


class Cart(Dated):
    owner = models.CharField(max_length=50, default="")
    tags = models.ManyToManyField(Tag)

    def __str__(self) -> str:
        return f"cart {self.pk}"


class GiftCart(Cart):
    """A proxy: its signals come from another class, its rows are carts."""

    class Meta:
        proxy = True

    def __str__(self) -> str:
        return f"gift {self.pk}"


class Order(Dated):
    cart = models.ForeignKey(Cart, null=True, on_delete=models.SET_NULL)

    def __str__(self) -> str:
        return f"order {self.pk}"


class Ticket(models.Model):
    id = models.UUIDField(primary_key=True, default=uuid.uuid4)

    def __str__(self) -> str:
        return f"ticket {self.pk}"
