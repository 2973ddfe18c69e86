"""The shop over HTTP."""

import secrets
import time

from django.contrib import messages
from django.db import transaction
from django.http import HttpRequest, HttpResponse
from django.shortcuts import get_object_or_404, redirect, render
from django.views.decorators.http import require_GET, require_http_methods, require_POST

from example_project.shop import assistant as assisting
from example_project.shop import letters
from example_project.shop.carts import close_cart, find_cart, open_cart
from example_project.shop.forms import (
    CheckoutForm,
    CodeForm,
    FindOrdersForm,
    KeepCartForm,
    QuantityForm,
    QuestionForm,
)
from example_project.shop.models import Order, Product
from example_project.shop.ordering import place_order

#: In the session: whose orders are looked for, the code, and until when it is good; and whose may be seen.
ASKED, KNOWN = "asked", "known"


@require_GET
def catalogue(request: HttpRequest) -> HttpResponse:
    """Show all that is for sale."""
    return render(request, "shop/catalogue.html", {"products": Product.objects.all()})


@require_GET
def product(request: HttpRequest, slug: str) -> HttpResponse:
    """Show one product."""
    context = {"product": get_object_or_404(Product, slug=slug), "form": QuantityForm()}
    return render(request, "shop/product.html", context)


@require_POST
def add_to_cart(request: HttpRequest, slug: str) -> HttpResponse:
    """Put a product into the cart."""
    chosen = get_object_or_404(Product, slug=slug)
    form = QuantityForm(request.POST)
    if not form.is_valid():
        return render(request, "shop/product.html", {"product": chosen, "form": form}, status=422)
    with transaction.atomic():
        open_cart(request).add(chosen, form.cleaned_data["quantity"])
    return redirect("shop:cart")


@require_GET
def cart(request: HttpRequest) -> HttpResponse:
    """Show the cart."""
    found = find_cart(request)
    lines = found.lines.select_related("product") if found else []
    form = KeepCartForm(instance=found)
    return render(request, "shop/cart.html", {"cart": found, "lines": lines, "form": form})


@require_POST
def keep_cart(request: HttpRequest) -> HttpResponse:
    """Note where to write if the cart is left alone."""
    found = find_cart(request)
    if found is None:
        return redirect("shop:cart")
    form = KeepCartForm(request.POST, instance=found)
    if not form.is_valid():
        context = {"cart": found, "lines": found.lines.select_related("product"), "form": form}
        return render(request, "shop/cart.html", context, status=422)
    with transaction.atomic():
        form.save()
    messages.success(request, "We keep your cart, and write if you forget it.")
    return redirect("shop:cart")


@require_POST
def empty_cart(request: HttpRequest) -> HttpResponse:
    """Throw the cart away."""
    found = find_cart(request)
    if found is not None:
        with transaction.atomic():
            found.delete()
    close_cart(request)
    return redirect("shop:cart")


@require_http_methods(["GET", "POST"])
def checkout(request: HttpRequest) -> HttpResponse:
    """Ask who buys, then place the order."""
    found = find_cart(request)
    if found is None or not found.lines.exists():
        return redirect("shop:cart")
    form = CheckoutForm(request.POST or None, initial={"email": found.email})
    if request.method == "POST" and form.is_valid():
        placed = place_order(form.save(commit=False), found)
        close_cart(request)
        return redirect(placed)
    status = 422 if form.is_bound else 200
    return render(request, "shop/checkout.html", {"cart": found, "form": form}, status=status)


@require_GET
def order(request: HttpRequest, reference: str) -> HttpResponse:
    """Show an order, and how its buyer was told."""
    placed = get_object_or_404(Order.objects.select_related("notification"), reference=reference)
    context = {
        "order": placed,
        "lines": placed.lines.select_related("product"),
        "steps": placed.notification.steps.all(),
    }
    return render(request, "shop/order.html", context)


@require_http_methods(["GET", "POST"])
def find_orders(request: HttpRequest) -> HttpResponse:
    """Ask for an address, and mail it a one-time code."""
    form = FindOrdersForm(request.POST or None)
    if form.is_valid():
        email = form.cleaned_data["email"]
        code = letters.request_code(email)
        request.session[ASKED] = [email, code, time.time() + letters.CODE_LIFE.total_seconds()]
        return redirect("shop:orders")
    return render(request, "shop/find.html", {"form": form}, status=422 if form.is_bound else 200)


@require_http_methods(["GET", "POST"])
def orders(request: HttpRequest) -> HttpResponse:
    """Show all orders of an address to the visitor who has its code."""
    form = CodeForm(request.POST or None)
    email, code, until = request.session.get(ASKED, ["", "", 0.0])
    if form.is_valid():
        if time.time() < until and secrets.compare_digest(form.cleaned_data["code"], code):
            request.session[KNOWN] = email
            del request.session[ASKED]
            return redirect("shop:orders")
        form.add_error("code", "This is not the code, or it is too old.")
    known = request.session.get(KNOWN)
    found = Order.objects.filter(email=known) if known else None
    context = {"form": form, "orders": found, "email": known, "asked": email}
    return render(request, "shop/orders.html", context, status=422 if form.is_bound else 200)


@require_http_methods(["GET", "POST"])
def assistant(request: HttpRequest) -> HttpResponse:
    """Take a question, and show the answer while it is given."""
    form = QuestionForm(request.POST or None)
    if form.is_valid():
        assisting.ask(request, form.cleaned_data["question"])
        return redirect("shop:assistant")
    asked = [{"id": message_id, "question": question} for message_id, question in assisting.questions(request)]
    return render(request, "shop/assistant.html", {"form": form, "asked": asked}, status=422 if form.is_bound else 200)
