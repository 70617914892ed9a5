package sock

// Package syscall lacks the numbers of these calls on 386, since it uses socketcall instead. Linux has had the calls since 4.3.
const (
	sysAccept4     = 364
	sysGetsockopt  = 365
	sysGetpeername = 368
	sysRecvfrom    = 371
	sysShutdown    = 373
)
