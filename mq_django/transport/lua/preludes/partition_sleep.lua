-- Before a script that fetches from a partition: what comes from now on wakes consumers.
--
-- Set before the fetch, so that nothing can come between a fetch that finds nothing and this.
--
-- KEYS[last]  asleep  {queue.p.x}:asleep  STRING
-- ARGV[last]  ms      time to live
--
-- Returns what the script returns that follows.

do
  -- A full Redis refuses it, and is to be emptied all the same.
  redis.pcall('set', table.remove(KEYS), '1', 'px', table.remove(ARGV))
end
