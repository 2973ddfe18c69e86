from django.db import models
from wagtail.admin.panels import FieldPanel
from wagtail.models import Page
from wagtail.search import index


class Article(Page):
    body = models.TextField()
    related = models.ForeignKey(Page, null=True, blank=True, on_delete=models.SET_NULL, related_name="+")

    search_fields = [*Page.search_fields, index.SearchField("body")]
    content_panels = [*Page.content_panels, FieldPanel("body"), FieldPanel("related")]
