"""The pages of the shop."""

from django.urls import path

from example_project.shop import assistant, views
from mq_django.views import message_stream

app_name = "shop"

urlpatterns = [
    path("", views.catalogue, name="catalogue"),
    path("products/<slug:slug>/", views.product, name="product"),
    path("products/<slug:slug>/add/", views.add_to_cart, name="add"),
    path("cart/", views.cart, name="cart"),
    path("cart/keep/", views.keep_cart, name="keep"),
    path("cart/empty/", views.empty_cart, name="empty"),
    path("checkout/", views.checkout, name="checkout"),
    path("assistant/", views.assistant, name="assistant"),
    path("assistant/<str:id>/", message_stream, {"may_read": assistant.may_read, "queue": assistant.QUEUE}, "answer"),
    path("orders/", views.orders, name="orders"),
    path("orders/find/", views.find_orders, name="find"),
    path("orders/<uuid:reference>/", views.order, name="order"),
]
