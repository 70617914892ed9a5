-- Sends what the file FILO_REQUESTS has, each piece behind its length, one after the other, and says what it found as JSON.
local file, pieces, turn = assert(io.open(os.getenv("FILO_REQUESTS"), "rb")), {}, 0
while true do
	local size = file:read("*n")
	if not size then break end
	file:read(1)
	pieces[#pieces + 1] = file:read(size)
end
if #pieces == 1 then
	wrk.format = function() return pieces[1] end
else
	function request() turn = turn % #pieces + 1; return pieces[turn] end
end
function done(summary, latency)
	local e = summary.errors
	io.write(string.format('\n{"Answers":%d,"Bytes":%.0f,"Errors":%d,"Micros":[%d,%d,%d,%d]}\n', summary.requests, summary.bytes,
		e.connect + e.read + e.write + e.status + e.timeout, summary.duration,
		latency:percentile(50), latency:percentile(99), latency:percentile(99.9)))
end
