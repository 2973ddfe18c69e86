-- with clock
-- with dead_groups
-- with named
-- with step_notes
-- How deliveries become dead letters, in each form of queue: see parts/stream_outcomes. `buried(entry, dead)` is called with
-- each and the entry of its dead letter; `body_of(entry)`, if there is one, returns what a redrive puts back.
local function dead_letters_of(at, lists, count, buried, body_of)
  check_keys(at, { dead = 'stream', ['dead-ids'] = 'hash' })
  if not at['dead-groups'] then
    refuse('no key has the name dead-groups')
  end
  check_lists(lists, count, 'ids', 'sizes')
  local ends, total = {}, 0
  for i = 1, count do
    total = total + (tonumber(ARGV[lists.sizes.before + i]) or -1)
    ends[i] = total
  end
  check_lists(lists, total, 'fields')
  local notes, now, fields = usable(at['step-notes'], 'hash'), now_ms(), lists.fields.before
  return function(entry, i)
    local id, letter = ARGV[lists.ids.before + i], { unpack(ARGV, fields + (ends[i - 1] or 0) + 1, fields + ends[i]) }
    if body_of then
      letter[#letter + 1] = 'deadbody'
      letter[#letter + 1] = body_of(entry)
    end
    local dead = redis.call('xadd', at.dead, '*', unpack(letter))
    redis.call('hset', at['dead-ids'], id, dead)
    buried(entry, dead)
    local group = group_of(letter, 1, #letter)
    count_dead(at['dead-groups'], at.dead, group, now)
    note_step(notes, id, 'failed', '', group)
  end
end
