"""What visitors fill in."""

from typing import Any

from django import forms
from django.contrib.auth.forms import PasswordResetForm
from django.db import transaction

from example_project.ledger import book
from example_project.shop.models import Cart, Order
from example_project.shop.tasks import send_password_mail


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


class FindOrdersForm(forms.Form):
    """Whose orders to look for."""

    email = forms.EmailField(label="E-mail")


class CodeForm(forms.Form):
    """The code that was mailed."""

    code = forms.CharField(label="Code from the mail", max_length=6)


class QuestionForm(forms.Form):
    """What to ask the assistant."""

    question = forms.CharField(max_length=200)


class ForgottenPasswordForm(PasswordResetForm):
    """Django's form, that leaves the mailing to a task."""

    def save(self, *args: Any, request: Any = None, **options: Any) -> None:
        """Enqueue the mail, before everything that nobody waits for."""
        with transaction.atomic():
            result = send_password_mail.enqueue(self.cleaned_data["email"], request.get_host())
            book.accept(result.id, queue=send_password_mail.queue_name, name="send_password_mail")
