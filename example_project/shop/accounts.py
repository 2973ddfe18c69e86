"""Forgotten passwords: the page asks, a task mails."""

from typing import Any

from django.contrib.auth.forms import PasswordResetForm
from django.core.mail import send_mail
from django.template.loader import render_to_string


class SendingForm(PasswordResetForm):
    """Django's form, whose mail fails as a mail does: Django logs the error, and nobody would try again."""

    def send_mail(
        self,
        subject_template_name: str,
        email_template_name: str,
        context: dict[str, Any],
        from_email: str | None,
        to_email: str,
        html_email_template_name: str | None = None,
    ) -> None:
        """Mail the link."""
        subject = " ".join(render_to_string(subject_template_name, context).split())
        send_mail(subject, render_to_string(email_template_name, context), from_email, [to_email])
