-- End the streams of messages that were deleted before they were handled, and tell the readers.
--
-- KEYS     stream    {queue}:stream:<id>   STREAM with a TTL: see parts/message_streams
-- ARGV[1]  attempt   of messages without a stream, which get one; or '', and they get none
-- ARGV[2]  text      how they have ended, as JSON
-- ARGV[3]  time to live, ms
--
-- Returns how many could not be written, because another program has made the key something else.

-- with types
-- with message_streams
local failed = 0
for _, key in ipairs(KEYS) do
  if wrong_type({ [key] = 'stream' }) then
    failed = failed + 1
  else
    end_stream(key, ARGV[1], ARGV[2], ARGV[3])
  end
end
return failed
