-- with numbers
-- The steps of a run of a workflow. The record of a step is a field of the hash `steps`, under the step's number:
--   state waits bad seq round kind began
-- state: B not committed, W waits, H held because the run has ended, S started, D done, F failed, K skipped, P passed
--   by an operator; waits: how many steps it waits for; bad: how many of these have failed or were skipped; seq: the
--   number of the latest note about its message; round: the run's round in which it was started; kind: 't' a task,
--   'j' a join: it has no message, and is done when the steps that it waits for are done; began: when it was started
--   last, in ms, or 0.
local function read_step(steps, number)
  local text = redis.call('hget', steps, number) or ''
  local state, waits, bad, seq, round, kind, began =
    string.match(text, '^(%u) (%d+) (%d+) (%d+) (%d+) (%l) (%d+)$')
  if state then
    return {
      number = number,
      state = state,
      waits = number_of(waits),
      bad = number_of(bad),
      seq = number_of(seq),
      round = number_of(round),
      kind = kind,
      began = number_of(began),
    }
  end
end

local function write_step(steps, step)
  local text = string.format(
    '%s %d %d %.0f %d %s %.0f',
    step.state,
    step.waits,
    step.bad,
    step.seq,
    step.round,
    step.kind,
    step.began
  )
  redis.call('hset', steps, step.number, text)
end

-- Whether nothing will change a step's state but an operator.
local function is_over(step)
  return step.state == 'D' or step.state == 'P'
end
