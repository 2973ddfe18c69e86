-- Read the server's clock.
--
-- KEYS[1]  any key of the queue: it is not read, but every script has a key
--
-- Returns microseconds since 1970.

-- with clock
return now_us()
