from django.db import models


class Cart(models.Model):
    email = models.EmailField()
    welcomed = models.BooleanField(default=False)
