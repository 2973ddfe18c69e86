-- with body_attributes
-- Read the priority of a waiting message: a number, or text with one.

local function number_after(text, at)
  return tonumber(string.match(text, '^%s*:%s*"?(%-?%d+)%.?0*"?%s*[,}]', at))
end

-- Return the priority of a body, or 0.
local function priority_of(body)
  local level = tonumber(string.match(body, '^{"priority":"(%-?%d%d?%d?)"'))
  return math.max(-100, math.min(100, level or attribute_of(body, 'priority"', number_after) or 0))
end
