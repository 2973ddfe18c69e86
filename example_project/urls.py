"""The shop at the root, Django's admin (and with it the queues) below `/admin/`."""

from django.contrib import admin
from django.contrib.auth import views as auth
from django.urls import include, path

from example_project.shop.forms import ForgottenPasswordForm

forgotten = auth.PasswordResetView.as_view(form_class=ForgottenPasswordForm)

urlpatterns = [
    # With the first of these names the log-in page of the admin offers a new password.
    path("admin/password/", forgotten, name="admin_password_reset"),
    path("admin/password/sent/", auth.PasswordResetDoneView.as_view(), name="password_reset_done"),
    path("admin/password/<uidb64>/<token>/", auth.PasswordResetConfirmView.as_view(), name="password_reset_confirm"),
    path("admin/password/done/", auth.PasswordResetCompleteView.as_view(), name="password_reset_complete"),
    path("admin/", admin.site.urls),
    path("", include("example_project.shop.urls")),
]
