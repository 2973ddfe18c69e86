-- with types
-- The keys and the further arguments of scripts that settle deliveries have names: most are needed for some outcomes, or
-- in some queues only.

-- Return the keys by their names, which are separated by spaces, and their number. More keys may follow.
local function keys_named(names)
  local at, count = {}, 0
  for name in string.gmatch(names, '%S+') do
    count = count + 1
    at[name] = KEYS[count]
  end
  return at, count
end

-- Return the lists in the arguments from `from` on: of each its name, how many values it has, and these. A list has its
-- size, and `before`: ARGV[before + i] is its value i. Returns nil if there is anything else.
local function lists_from(from)
  local lists, count = {}, #ARGV
  while from <= count do
    local size = tonumber(ARGV[from + 1])
    if not size or size < 0 or from + 1 + size > count then
      return nil
    end
    lists[ARGV[from]] = { before = from + 1, size = size }
    from = from + 2 + size
  end
  return lists
end

-- Raise an error. Called before the first write.
local function refuse(why)
  error(redis.error_reply('ERR ' .. why))
end

-- Raise an error when one of these keys is not named, or has another type. `kinds`: name -> type.
local function check_keys(at, kinds)
  local types = {}
  for name, kind in pairs(kinds) do
    if not at[name] then
      refuse('no key has the name ' .. name)
    end
    types[at[name]] = kind
  end
  check_types(types)
end

-- Raise an error when one of these lists does not have as many values as there are deliveries.
local function check_lists(lists, count, ...)
  for _, name in ipairs({ ... }) do
    if not lists[name] or lists[name].size ~= count then
      refuse('the list ' .. name .. ' needs a value for each delivery')
    end
  end
end
