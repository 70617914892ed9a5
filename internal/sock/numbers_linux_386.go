package sock

// Package syscall lacks these calls, since it uses socketcall instead. Linux has them since 4.3. Only loops need them, which aren't used
// here.
const (
	sysAccept4     = 364
	sysGetsockopt  = 365
	sysGetpeername = 368
	sysRecvfrom    = 371
	sysShutdown    = 373
)
