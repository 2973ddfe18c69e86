-- A write that is allowed when memory is out: after it the others are, and a full Redis can be emptied. No entry is 0-0.
redis.call('xack', KEYS[1], ARGV[1], '0-0')
