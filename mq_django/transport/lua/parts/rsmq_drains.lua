-- A write that is allowed when memory is out: after it the others are, and a full Redis can be emptied. It removes nothing.
redis.call('zremrangebyrank', zset, 1, 0)
