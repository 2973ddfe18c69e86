from django.urls import path

from shop.views import checkout

urlpatterns = [path("checkout/", checkout)]
