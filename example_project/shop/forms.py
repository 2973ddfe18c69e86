"""What visitors fill in."""

from django import forms

from example_project.shop.models import Cart, Order


class QuantityForm(forms.Form):
    """How many pieces to put into the cart."""

    quantity = forms.IntegerField(min_value=1, max_value=99, initial=1)


class KeepCartForm(forms.ModelForm):  # type: ignore[type-arg]
    """Where to write about a cart that was left alone."""

    class Meta:
        model = Cart
        fields = ["email"]


class CheckoutForm(forms.ModelForm):  # type: ignore[type-arg]
    """Who buys, and how to tell them."""

    class Meta:
        model = Order
        fields = ["name", "email", "phone", "device"]
