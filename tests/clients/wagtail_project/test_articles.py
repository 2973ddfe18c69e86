import pytest
from articles.models import Article
from django.urls import reverse
from wagtail.models import Page, ReferenceIndex
from wagtail.tasks import update_reference_index_task

from mq_django import Ack

pytestmark = pytest.mark.django_db


@pytest.fixture
def home(mq):
    return Page.objects.get(depth=2)


def publish(home, title, **fields):
    """Write a draft, and publish it."""
    article = home.add_child(instance=Article(title=title, slug=title.lower(), live=False, **fields))
    article.save_revision().publish()
    return article


def test_a_published_page_is_found_and_its_references_are_known(mq, home):
    publish(home, "Rope", body="twelve metres, spliced at one end", related=home)
    assert list(Article.objects.search("spliced")) == []
    assert not ReferenceIndex.get_references_to(home).exists()

    mq.commit()
    assert mq.published(task=update_reference_index_task.module_path)
    handled = mq.run()

    assert handled
    assert all(isinstance(each.outcome, Ack) for each in handled)
    assert [page.title for page in Article.objects.search("spliced")] == ["Rope"]
    assert ReferenceIndex.get_references_to(home).count() == 1
    assert {str(result.status) for result in mq.results} == {"SUCCESSFUL"}


def test_a_page_is_published_in_the_admin(mq, home, admin_client):
    article = home.add_child(instance=Article(title="Rope", slug="rope", live=False, body="spliced"))
    mq.commit()
    mq.run()
    assert list(Article.objects.live().search("hemp")) == []

    form = {"title": "Rope", "slug": "rope", "body": "of hemp", "related": "", "action-publish": "1"}
    form |= {"comments-TOTAL_FORMS": "0", "comments-INITIAL_FORMS": "0"}
    response = admin_client.post(reverse("wagtailadmin_pages:edit", args=[article.pk]), form)
    assert response.status_code == 302

    mq.commit()
    mq.run()
    assert [page.body for page in Article.objects.live().search("hemp")] == ["of hemp"]


def test_the_tasks_of_a_page_that_is_gone_become_dead_letters(mq, home):
    publish(home, "Rope", body="spliced").delete()
    mq.commit()
    mq.run_until_idle(raise_errors=False)
    assert len(mq.dead) == len(mq.published()) > 0
    assert {(letter.attempts, letter.error.partition(":")[0]) for letter in mq.dead} == {
        (3, "articles.models.Article.DoesNotExist")
    }
