from django_redis.cache import RedisCache


class TeamCache(RedisCache):
    """A cache that a team has made from django-redis's."""
